//! Glitches are whole messages that are of no use. These tests say which messages count and when
//! the connection ends for them. The daily habits of existing clients never count.

use std::sync::Arc;

use epoll_group::codec::frame::{Dialect, Header};
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::session::KillSessionType;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::stats::Counter;
use lab::abuse::frames::nested_values;
use lab::engine::{Fixture, config, finish_with};
use lab::xrpc::request::{kill, login_start, offer, query, savepoint, timestamps, update};
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually, often};

fn execute(sql: &str) -> ClientMessage {
    ClientMessage::ExecSql(query(sql))
}

/// A frame that is valid except for the memory that it asks for.
fn too_deep(session: u64) -> Vec<u8> {
    let body = nested_values(200);
    let mut frame = Header::new(session, 101, body.len() as u32).encode().to_vec();
    frame.extend(body);
    frame
}

/// Name, messages that a client sends in one write, and number of glitches.
type Case = (&'static str, Vec<(u64, ClientMessage)>, u64);

/// Cases for a client with an unused session 2.
fn cases() -> Vec<Case> {
    let kill_of = |session, what| (session, kill(session, what));
    vec![
        // The open session excuses two glitches.
        ("requests to nobody", vec![(9, execute("one")); 5], 3),
        ("closes of nobody", vec![(9, ClientMessage::SessionClose); 5], 3),
        ("kills of nobody", vec![kill_of(9, KillSessionType::Query); 5], 3),
        ("offers to nobody", vec![(9, offer(1)); 5], 3),
        ("offers to sessions that have ended", vec![(AUTO | 9, offer(1)); 5], 3),
        ("offers where nothing runs", vec![(2, offer(1)); 5], 3),
        ("offers of less than nothing", vec![(2, offer(-5)); 5], 5),
        ("the id of another", vec![(2, ClientMessage::SessionNew); 5], 5),
        ("sessions that need no opening", vec![(AUTO | 9, ClientMessage::SessionNew); 5], 5),
        ("savepoints without a session", vec![(AUTO | 9, savepoint(Operation::Set, "a")); 5], 5),
        ("the time without a session", vec![(AUTO | 9, timestamps(1)); 5], 5),
        ("a login behind the login", vec![(0, login_start()); 5], 5),
        ("closed unused", vec![(2, ClientMessage::SessionClose)], 1),
        ("killed unused", vec![kill_of(2, KillSessionType::Connection)], 1),
        (
            "killed with what it was asked",
            vec![(2, execute("one")), kill_of(2, KillSessionType::Query)],
            1,
        ),
        (
            "killed with its first time",
            vec![(2, timestamps(1)), kill_of(2, KillSessionType::Connection)],
            1,
        ),
        ("the time, and closed", vec![(2, timestamps(1)), (2, ClientMessage::SessionClose)], 0),
        ("used and closed", vec![(2, execute("one")), (2, ClientMessage::SessionClose)], 0),
        ("idle and killed", vec![kill_of(2, KillSessionType::Query); 5], 0),
        ("probes", vec![(0, ClientMessage::CapabilitiesGet); 50], 0),
        ("errors of the service", vec![(2, execute("no such word")); 20], 0),
        ("expectations that fail", vec![(2, ClientMessage::ExpectClose); 20], 0),
        ("the time", vec![(2, timestamps(1)); 20], 0),
    ]
}

/// Sends all messages in one write, and waits until the server has looked at all of them.
fn send(client: &mut Client, messages: &[(u64, ClientMessage)]) {
    let mut bytes = Vec::new();
    let mut probes = 1;
    for (session, message) in messages.iter().chain([&(0, ClientMessage::CapabilitiesGet)]) {
        message.encode(Dialect::Legacy, *session, &mut bytes).expect("small");
        probes += usize::from(matches!(message, ClientMessage::CapabilitiesGet));
    }
    client.send_bytes(&bytes).expect("sent");
    while probes > 1 {
        let frame = client.raw_frame().expect("it goes on");
        probes -= usize::from(frame.kind == 2);
    }
}

#[test]
fn each_kind_counts_or_does_not() {
    let server = Fixture::start(config());
    for (what, messages, glitches) in cases() {
        let before = server.count(Counter::Glitches);
        let mut client = server.client_with_sessions([2]);
        send(&mut client, &messages);
        assert_eq!(server.count(Counter::Glitches) - before, glitches, "{what}");
    }
    let before = server.count(Counter::Glitches);
    let mut client = server.client_with_sessions([2]);
    client.send_bytes(&too_deep(2)).expect("sent");
    send(&mut client, &[]);
    assert_eq!(server.count(Counter::Glitches) - before, 1, "beyond the limits of the codec");
    let before = server.count(Counter::Glitches);
    let mut client = server.client_with_sessions([2]);
    client.send_bytes(&too_deep(AUTO | 9).repeat(5)).expect("sent");
    send(&mut client, &vec![(9, offer(1)); 5]);
    // These frames excuse no glitch, even if a session of one statement exists already.
    assert_eq!(server.count(Counter::Glitches) - before, 5 + 3, "the same without a session");
    assert_eq!(server.count(Counter::ClosedGlitches), 0);
}

#[test]
fn messages_that_a_drain_refuses_count() {
    let mut server = Fixture::start(config().max_glitches(10));
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("gate a"));
    server.control.wait_at("a", 1);
    let control = Arc::clone(&server.control);
    let drain = server.drain_on_another_thread();
    // The end of the idle session shows that the drain has come to this connection.
    client.wait(|client| client.strays().iter().any(|stray| stray.0 == 3)).expect("it is told");
    // Two sessions and a request excuse six.
    send(&mut client, &[vec![(2, execute("one")); 8], vec![(9, execute("one")); 8]].concat());
    client.send(9, &execute("one"));
    let frames = client.rest();
    let last = frames.last().expect("an answer").failure();
    assert_eq!(last.text, "more than max_glitches 10 in 60s");
    control.open("a");
    drain.join().expect("drained");
}

#[test]
fn refusals_by_a_limit_count() {
    let server = Fixture::start(config().max_sessions_per_connection(1).max_queued_messages(16));
    let mut client = server.client_with_sessions([2]);
    for session in 3..8 {
        client.send(session, &ClientMessage::SessionNew);
        assert!(client.reply(session).failure().fatal);
    }
    assert_eq!(server.count(Counter::Glitches), 5);
    client.send_sql(2, query("gate a"));
    server.control.wait_at("a", 1);
    for _ in 0..17 {
        client.send_sql(2, query("one"));
    }
    client.probe();
    assert_eq!(server.count(Counter::Glitches), 6);
    server.control.open("a");
    let server = Fixture::start(config().max_queued_bytes_per_connection(4096));
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, query(&format!("echo {}", "a".repeat(4096))));
    client.probe();
    assert_eq!(server.count(Counter::Glitches), 1);
}

#[test]
fn one_too_many_ends_the_connection_with_an_error_and_no_other() {
    let server = Fixture::start(config().max_glitches(10));
    let mut bystander = server.client_with_sessions([2]);
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, query("gate a"));
    server.control.wait_at("a", 1);
    for _ in 0..20 {
        client.queue(2, &ClientMessage::SessionNew);
    }
    client.flush();
    let frames = client.rest();
    let last = frames.last().expect("an answer").failure();
    assert_eq!((last.fatal, last.code), (true, 8001));
    assert_eq!(last.text, "more than max_glitches 10 in 60s");
    // The first ten get their usual answers. The eleventh gets its answer and the end.
    assert_eq!(frames.len(), 12);
    eventually(LONG, || server.stats().connections == 1);
    assert_eq!(server.count(Counter::ClosedGlitches), 1);
    assert_eq!(server.count(Counter::Glitches), 11);
    bystander.execute(2, "one").one();
    server.control.open("a");
}

#[test]
fn without_a_limit_nobody_is_closed() {
    let server = Fixture::start(config().max_glitches(0));
    let mut client = server.client();
    for _ in 0..20 {
        send(&mut client, &vec![(9, ClientMessage::SessionClose); 1000]);
    }
    assert_eq!(server.count(Counter::ClosedGlitches), 0);
    assert_eq!(server.count(Counter::Glitches), 20_000);
}

/// Plays one session as existing clients use it, from its beginning to its end. `habit` chooses
/// how.
fn habit(server: &Fixture, client: &mut Client, session: u64, habit: u32) {
    client.new_session(session);
    match habit % 6 {
        // Against older servers each session is killed before it is closed.
        0 => {
            client.execute(session, "one").one();
            client.kill_connection(session);
            client.send(session, &ClientMessage::SessionClose);
        }
        // An abandoned request is killed while it runs or waits for credit. Then its session is
        // closed.
        1 => {
            client.set_offers(None);
            let ticket = client.send_sql(session, little("source 1000 100"));
            client.wait_for(ticket, |reply| reply.token_done == 1);
            client.kill_connection(session);
            client.send(session, &ClientMessage::SessionClose);
            client.set_offers(Some(1));
        }
        // A request that takes too long is cancelled, and the session goes on.
        2 => {
            client.send_sql(session, query("defer a"));
            let deferred = server.control.take_one_deferred("a");
            client.kill_query(session);
            assert_eq!(client.reply(session).failure().code, 1317);
            assert!(!finish_with(deferred, "late"));
            client.kill_query(session);
            client.execute(session, "one").one();
            client.close(session).good();
        }
        // Credit is granted ahead, and also for a request that has ended by then.
        3 => {
            client.send_sql(session, query("rows 100 100"));
            client.offer(session, 10_240);
            client.reply(session).good();
            client.offer(session, 10_240);
            client.close(session).good();
        }
        // A statement without a session, and credit that comes late.
        4 => {
            client.run(AUTO | session, query("echo x")).one();
            client.offer(AUTO | session, 10_240);
            client.offer(AUTO | session, 10_240);
            client.execute(session, "fail 1062").failure();
            client.close(session).good();
        }
        // A text that is not in the cache, a savepoint, the time.
        _ => {
            client.run_cached(session, update("affect 1")).good();
            client.savepoint(session, Operation::Set, "a").good();
            client.timestamps(session, 1).good();
            client.close(session).good();
        }
    }
}

/// Statement with an initial credit of 1 KiB.
fn little(sql: &str) -> epoll_group::codec::proto::sql::StmtExecute {
    epoll_group::codec::proto::sql::StmtExecute { token: Some(1), ..query(sql) }
}

#[test]
fn the_habits_of_existing_clients_are_no_glitches() {
    // A single glitch would close the connection.
    let server = Fixture::start(config().max_glitches(1));
    let mut client = server.client();
    for round in 0..often(3000) {
        habit(&server, &mut client, 2 + u64::from(round), round);
    }
    // The server ends a session, and the client closes it before it hears of that.
    for round in 0..often(100) {
        let session = 100_000 + u64::from(round);
        client.new_session(session);
        client.send_sql(session, query("fatal 1234"));
        client.send(session, &ClientMessage::SessionClose);
        client.wait_for_all();
    }
    assert_eq!(server.count(Counter::Glitches), 0);
    client.probe();
}
