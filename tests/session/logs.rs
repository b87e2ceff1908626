//! The log holds no secrets, and a peer cannot flood it.

use std::fmt;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use epoll_group::Runtime;
use epoll_group::codec::auth;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::session::KillSessionType;
use epoll_group::stats::Counter;
use lab::child::in_child;
use lab::engine::{Fixture, PASSWORD, config};
use lab::protocol::{Bytes, echo};
use lab::xrpc::Client;
use lab::xrpc::request::{kill, login_continue, query};
use lab::{LONG, TempDir, assert_clean, eventually};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// All events, of all levels, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, text: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(text)).count()
    }

    /// Number of events of a kind that the log reports as left out.
    fn left_out(&self, what: &str) -> u64 {
        let lines = self.lines();
        let sums = lines.iter().filter(|line| {
            line.contains("log events left out") && line.contains(&format!("what=\"{what}\""))
        });
        sums.map(|line| {
            let (_, rest) = line.split_once("suppressed=").expect("the sum");
            rest.split(' ').next().expect("a word").parse::<u64>().expect("a number")
        })
        .sum()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("epoll_group")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs `test` in a process of its own, with the log of that process.
fn with_log(test: impl FnOnce(&Log)) {
    in_child(|| {
        let log = Log::default();
        tracing::subscriber::set_global_default(log.clone()).expect("the first");
        test(&log);
    });
}

/// Ends each of `count` sessions by a kill, which writes a line to the log.
fn kill_many(client: &mut Client, count: u64) {
    for session in 2..2 + count {
        client.queue(session, &ClientMessage::SessionNew);
        client.queue(session, &ClientMessage::ExecSql(query("one")));
        client.queue(session, &kill(session, KillSessionType::Connection));
    }
    client.flush();
    client.probe();
}

#[test]
fn a_peer_cannot_fill_the_log() {
    const MOST: usize = 5;
    const KILLS: u64 = 1000;
    with_log(|log| {
        let began = Instant::now();
        let server = Fixture::start(config().max_log_events(MOST));
        kill_many(&mut server.client(), KILLS);
        eventually(LONG, || log.count("message=kill") as u64 + log.left_out("kill") == KILLS);
        let seconds = began.elapsed().as_secs() as usize + 2;
        assert!(log.count("message=kill") <= MOST * seconds, "{:#?}", log.lines());
        // No line is lost without being counted.
        assert!(log.left_out("kill") <= server.count(Counter::LogEventsSuppressed));

        // Connections that end are another kind, which has its own lines.
        for _ in 0..100 {
            drop(server.stranger());
        }
        eventually(LONG, || server.count(Counter::ConnectionsClosed) == 101);
        eventually(LONG, || {
            log.count("connection closed") as u64 + log.left_out("connection closed") >= 101
        });
        assert!(log.count("message=connection closed") > 0);

        // Panics are a kind of their own, too.
        let mut client = server.client();
        for session in 2..102 {
            client.new_session(session);
            client.execute(session, "panic").failure();
        }
        eventually(LONG, || {
            log.count("message=handler panicked") as u64 + log.left_out("handler panicked") == 100
        });
        assert!(log.count("message=handler panicked") > 0);
    });
}

#[test]
fn without_any_lines_the_sums_are_left() {
    with_log(|log| {
        let server = Fixture::start(config().max_log_events(0));
        kill_many(&mut server.client(), 10);
        eventually(LONG, || log.left_out("kill") == 10);
        assert_eq!(log.count("message=kill"), 0);
    });
}

#[test]
fn what_a_second_is_allowed_is_logged_in_full() {
    with_log(|log| {
        let server = Fixture::start(config());
        kill_many(&mut server.client(), 50);
        eventually(LONG, || log.count("message=kill") == 50);
        assert_eq!(log.left_out("kill"), 0);
    });
}

#[test]
fn no_secret_is_logged_or_printed() {
    with_log(|log| {
        let server = Fixture::start(config().max_login_attempts(100));
        let mut secrets = vec![PASSWORD.to_owned()];
        let mut texts = Vec::new();
        let mut try_with = |user: &str, password: &str, cut: usize| {
            let mut client = server.stranger();
            let challenge = client.challenge().expect("a challenge");
            secrets.push(String::from_utf8_lossy(&challenge).into_owned());
            let mut proof = Client::proof(user, password, &challenge);
            proof.truncate(proof.len() - cut);
            let digits = proof.split(|&byte| byte == b'*').next_back().expect("a proof");
            secrets.push(String::from_utf8_lossy(digits).into_owned());
            texts.push(format!("{:?}", login_continue(proof.clone())));
            texts.push(format!("{:?}", auth::Reply::parse(&proof)));
            client.send(0, &login_continue(proof));
            match client.try_reply(0) {
                Ok(reply) => texts.push(format!("{reply:?}").replace(
                    // The test's own copy of the challenge that it received.
                    &format!("challenge: {:?}", reply.challenge),
                    "",
                )),
                Err(trouble) => assert!(trouble.is_end(), "{trouble}"),
            }
        };
        try_with("root", PASSWORD, 0);
        try_with("root", "another password", 0);
        try_with("nobody at all", PASSWORD, 0);
        try_with("root", PASSWORD, 5);
        try_with("panic", PASSWORD, 0);
        secrets.push("another password".into());
        eventually(LONG, || log.count("connection closed") > 0);
        texts.extend(server.control.logins());
        texts.extend(log.lines());
        assert!(log.count("handler panicked") > 0, "the service has panicked");
        for secret in &secrets {
            assert!(secret.len() > 8, "{secret}");
            let shown: Vec<_> = texts.iter().filter(|text| text.contains(&**secret)).collect();
            assert!(shown.is_empty(), "{secret}: {shown:#?}");
        }
    });
}

#[test]
fn the_file_of_a_unix_socket_that_cannot_be_removed_is_told_of() {
    with_log(|log| {
        let dir = TempDir::new();
        let socket = dir.socket();
        let folder = socket.parent().expect("a directory");
        let runtime = Runtime::builder().config(lab::config()).start().expect("a runtime");
        let _listener = runtime.listen(socket.as_path(), Bytes::new(echo)).expect("a listener");
        // With a file in place of the folder, the socket cannot even be looked for.
        let away = folder.with_extension("away");
        fs::rename(folder, &away).expect("renamed");
        fs::write(folder, b"no directory").expect("written");
        assert_clean(&runtime.drain(LONG));
        let told = "the file of a Unix socket is not removed";
        eventually(LONG, || log.count(told) == 1);
        fs::remove_file(folder).expect("removed");
        fs::rename(&away, folder).expect("renamed back");
    });
}
