//! Replies of a session come in the order of its requests; sessions run beside one another, and no
//! reply waits for another session.

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::codec::message::{ClientMessage, ServerKind};
use epoll_group::codec::proto::tso::Operation;
use epoll_group::net::Address;
use epoll_group::session::{
    self, Account, AuthError, Cancel, Login, Peer, Reply, Request, Service, SessionError, SessionId,
};
use epoll_group::stall;
use epoll_group::stats::Counter;
use lab::engine::{Counts, Fixture, config, finish_with, one_text};
use lab::xrpc::request::{query, savepoint, timestamps, update};
use lab::xrpc::{AUTO, Client};
use lab::{Kind, LONG, often};

#[test]
fn ten_thousand_requests_with_a_hundred_in_flight_are_answered_in_order() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let all = u64::from(often(10_000)).max(200);
    for at in 0..all + 100 {
        if at < all {
            client.send_sql(2, query(&format!("echo {at}")));
        }
        if let Some(at) = at.checked_sub(100) {
            assert_eq!(client.reply(2).one().text(), Some(&*at.to_string()));
        }
    }
}

#[test]
fn order_holds_over_sessions_that_are_run_here_and_there() {
    let server = Fixture::start(config());
    let clients = [(); 3].map(|()| server.client_with_sessions(2..10));
    let workers = clients.map(|mut client| {
        thread::spawn(move || {
            for round in 0..often(300) {
                for session in 2..10 {
                    for at in 0..3 {
                        let text = format!("echo {round} {session} {at}");
                        client.queue(session, &execute(&text));
                    }
                    // Sometimes one write for all, sometimes one for each.
                    if (u64::from(round) + session).is_multiple_of(3) {
                        client.flush();
                    }
                }
                client.flush();
                for session in 2..10 {
                    for at in 0..3 {
                        let text = format!("{round} {session} {at}");
                        assert_eq!(client.reply(session).one().text(), Some(&*text));
                    }
                }
            }
        })
    });
    workers.into_iter().for_each(|worker| worker.join().expect("all in order"));
}

fn execute(sql: &str) -> ClientMessage {
    ClientMessage::ExecSql(query(sql))
}

/// Makes the server know these sessions as quick.
fn warm_up(client: &mut Client, sessions: &[u64]) {
    for _ in 0..50 {
        for &session in sessions {
            client.queue(session, &execute("one"));
        }
        client.flush();
        for &session in sessions {
            client.reply(session).one();
        }
    }
}

#[test]
fn two_sessions_of_a_connection_wait_side_by_side() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.queue(2, &execute("gate a"));
    client.queue(3, &execute("gate b"));
    client.flush();
    server.control.wait_at("a", 1);
    server.control.wait_at("b", 1);
    server.control.open("b");
    assert_eq!(client.reply(3).one().text(), Some("b"));
    server.control.open("a");
    assert_eq!(client.reply(2).one().text(), Some("a"));
}

#[test]
fn a_cheap_request_before_one_that_waits_is_answered_at_once() {
    for (warm, wait) in [
        (false, "gate a"),
        (true, "gate a"),
        (false, "defer a"),
        (true, "defer a"),
        (true, "gate-unannounced a"),
    ] {
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions([2]);
        if warm {
            warm_up(&mut client, &[2]);
        }
        client.queue(2, &execute("echo first"));
        client.queue(2, &execute(wait));
        client.queue(2, &execute("echo last"));
        client.flush();
        assert_eq!(client.reply(2).one().text(), Some("first"), "{wait}");
        if wait.starts_with("defer") {
            assert!(finish_with(server.control.take_one_deferred("a"), "a"));
        }
        server.control.open("a");
        assert_eq!(client.reply(2).one().text(), Some("a"));
        assert_eq!(client.reply(2).one().text(), Some("last"));
    }
}

#[test]
fn a_handler_that_gets_stuck_keeps_no_other_sessions_reply() {
    for wait in ["gate a", "gate-unannounced a", "defer a"] {
        for warm in [false, true] {
            let server = Fixture::start(config());
            let mut client = server.client_with_sessions([2, 3, 4]);
            if warm {
                warm_up(&mut client, &[2, 3, 4]);
            }
            client.queue(2, &execute("echo before"));
            client.queue(3, &execute(wait));
            client.queue(4, &execute("echo behind"));
            client.flush();
            assert_eq!(client.reply(2).one().text(), Some("before"), "{wait} {warm}");
            assert_eq!(client.reply(4).one().text(), Some("behind"), "{wait} {warm}");
            // Later requests do not wait either.
            assert_eq!(client.execute(2, "echo next").one().text(), Some("next"));
            server.control.open("a");
            if wait == "defer a" {
                assert!(finish_with(server.control.take_one_deferred("a"), "a"));
            }
            assert_eq!(client.reply(3).one().text(), Some("a"));
        }
    }
}

#[test]
fn replies_that_a_handler_finishes_after_a_wait_do_not_wait_for_that_handler() {
    for announced in [true, false] {
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions([2, 3, 4]);
        let mut other = server.client_with_sessions([2, 3]);
        warm_up(&mut client, &[2, 3, 4]);
        other.send_sql(2, query("defer a"));
        other.send_sql(3, query("defer a"));
        let deferred = server.control.take_deferred("a", 2);
        let ((go_on, waits), (open, opened)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        server.control.plant("lead", move |reply| {
            let wait = || waits.recv_timeout(LONG).expect("the test goes on");
            if announced {
                stall::run(wait)
            } else {
                wait()
            }
            deferred.into_iter().for_each(|one| assert!(finish_with(one, "done")));
            let _ = opened.recv_timeout(LONG);
            one_text(reply, "led")
        });
        client.queue(2, &execute("echo before"));
        client.queue(3, &execute("script lead"));
        client.queue(4, &execute("echo behind"));
        client.flush();
        assert_eq!(client.reply(2).one().text(), Some("before"));
        // Another worker has taken over all that the handler held back.
        assert_eq!(client.reply(4).one().text(), Some("behind"));
        go_on.send(()).expect("the handler waits");
        let began = Instant::now();
        for session in [2, 3] {
            assert_eq!(other.reply(session).one().text(), Some("done"), "{announced}");
        }
        assert!(began.elapsed() < Duration::from_secs(5), "a timer has sent it");
        drop(open);
        assert_eq!(client.reply(3).one().text(), Some("led"));
    }
}

#[test]
fn statements_in_sessions_of_their_own_run_in_parallel() {
    let server = Fixture::start(config());
    let mut client = server.client();
    client.queue(AUTO | 1, &execute("gate a"));
    client.queue(AUTO | 2, &execute("gate b"));
    client.queue(AUTO | 3, &execute("echo c"));
    client.flush();
    assert_eq!(client.reply(AUTO | 3).one().text(), Some("c"));
    server.control.wait_at("a", 1);
    server.control.wait_at("b", 1);
    server.control.open("b");
    assert_eq!(client.reply(AUTO | 2).one().text(), Some("b"));
    server.control.open("a");
    assert_eq!(client.reply(AUTO | 1).one().text(), Some("a"));
}

/// Service that answers at once. The end of a session waits at `gate`, if that is set. Its
/// statements count as quick also in builds without optimisation.
#[derive(Default)]
struct Clinging {
    /// The next session that ends sends to the first channel and waits for the second.
    gate: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

impl Service for Clinging {
    type Session = ();

    fn authenticate(&self, _login: &Login<'_>) -> Result<Account, AuthError> {
        Ok(Account::new("root"))
    }

    fn open(&self, _peer: &Peer, _id: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(
        &self,
        (): &mut (),
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        if let Request::Sql(sql) = request {
            reply.ending().affected = sql.text.len() as u64;
        }
        Ok(())
    }

    fn closed(&self, (): ()) {
        let gate = self.gate.lock().expect("no panic").take();
        if let Some((arrived, open)) = gate {
            arrived.send(()).expect("somebody waits");
            let _ = open.recv_timeout(LONG);
        }
    }
}

#[test]
fn two_requests_on_an_id_of_one_statement_are_answered_in_order() {
    let service = Arc::new(Clinging::default());
    let protocol = session::Server::shared(Arc::clone(&service));
    let server = lab::Server::start(Kind::Tcp, config(), protocol);
    let Address::Tcp(addr) = server.address() else { panic!("TCP") };
    let mut client = Client::logged_in(addr, "root", "");
    for _ in 0..often(20).max(2) {
        for _ in 0..50 {
            client.execute(AUTO | 9, "").good();
        }
        let ((arrived, at_gate), (open, opened)) = (mpsc::channel(), mpsc::channel());
        *service.gate.lock().expect("no panic") = Some((arrived, opened));
        client.send_sql(AUTO | 9, update("1"));
        // The first reply is written, but the end of its session is not over.
        at_gate.recv_timeout(LONG).expect("it ends");
        client.send_sql(AUTO | 9, update("22"));
        // The answers to the probes show that the request was read. A worker that may run it has
        // done so.
        (0..3).for_each(|_| drop(client.probe()));
        drop(open);
        assert_eq!(client.reply(AUTO | 9).good().affected, Some(1));
        assert_eq!(client.reply(AUTO | 9).good().affected, Some(2));
    }
}

#[test]
fn a_reply_that_was_finished_elsewhere_comes_behind_those_before_it() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    warm_up(&mut client, &[2, 3]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for deferred in server.control.deferred_by_now("a") {
                    assert!(finish_with(deferred, "deferred"));
                }
                thread::yield_now();
            }
        });
        for _ in 0..often(1000) {
            for text in ["echo 1", "echo 2", "defer a", "echo 3"] {
                client.queue(2, &execute(text));
                client.queue(3, &execute(text));
            }
            client.flush();
            for session in [2, 3] {
                for text in ["1", "2", "deferred", "3"] {
                    assert_eq!(client.reply(session).one().text(), Some(text));
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn rows_of_a_long_source_come_in_order_while_others_run() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    warm_up(&mut client, &[2, 3]);
    for _ in 0..often(20).max(2) {
        client.send_sql(2, update("source 20000 40"));
        client.send_sql(2, update("echo behind"));
        for _ in 0..20 {
            client.execute(3, "one").one();
        }
        let reply = client.reply(2).good();
        assert_eq!(reply.rows.len(), 20_000);
        for (at, row) in reply.rows.iter().enumerate() {
            assert_eq!(row[0].integer(), Some(at as i128));
        }
        assert_eq!(client.reply(2).one().text(), Some("behind"));
    }
}

#[test]
fn a_short_request_does_not_wait_for_whole_turns_of_long_results() {
    const LONG_ONES: u64 = 32;
    const ROWS: u64 = 1000;
    let alone = config()
        .epoll_threads_per_group(1)
        .enable_tasker(false)
        .thread_deadlock_check_interval(Duration::from_secs(10))
        .write_high_watermark_bytes(1 << 30);
    let server = Fixture::start(alone);
    let mut long = server.client_with_sessions(2..3 + LONG_ONES);
    let mut holder = server.client_with_sessions([2]);
    let mut short = server.client_with_sessions([2]);
    // Their requests queue, but not behind those of heavy sessions.
    server.make_slow(&mut long, 2);
    server.make_slow(&mut short, 2);
    // A worker looks for events after 1 ms of tasks, however many those are. So after this script it
    // receives all requests, before any result has its second turn.
    server.control.plant("work", |reply| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(2) {}
        one_text(reply, "done")
    });
    let pulled = Arc::new(AtomicU64::new(0));
    let (seen, control) = (Arc::clone(&pulled), Arc::clone(&server.control));
    server.control.plant("look", move |reply| {
        seen.store(Counts::of(&control.counts.rows_pulled), Ordering::SeqCst);
        one_text(reply, "done")
    });
    // All requests come while the only worker is busy.
    holder.send_sql(2, update("gate-unannounced busy"));
    server.control.wait_at("busy", 1);
    long.send_sql(2, update("script work"));
    for session in 3..3 + LONG_ONES {
        long.send_sql(session, update(&format!("source {ROWS} 1000")));
    }
    short.send_sql(2, update("script look"));
    server.wait_unread(&short);
    server.control.open("busy");
    short.reply(2).good();
    let before = pulled.load(Ordering::SeqCst);
    // A first turn has 33 rows (`FIRST_FEED_BUDGET`), a whole one 257 (`FEED_BUDGET`).
    assert!(before < LONG_ONES * 100, "{before} rows went before it");
    long.reply(2).good();
    for session in 3..3 + LONG_ONES {
        assert_eq!(long.reply(session).good().row_count, ROWS);
    }
    holder.reply(2).good();
}

#[test]
fn who_has_had_a_whole_turn_goes_behind_those_who_have_not() {
    let alone = config()
        .epoll_threads_per_group(1)
        .enable_tasker(false)
        .thread_deadlock_check_interval(Duration::from_secs(10))
        .session_budget(1);
    let server = Fixture::start(alone);
    let mut client = server.client_with_sessions([2]);
    let (tell, told) = mpsc::channel();
    let second = tell.clone();
    server.control.plant("second", move |reply| {
        second.send("the second request").expect("waited for");
        one_text(reply, "done")
    });
    for text in ["gate-unannounced first", "script second"] {
        client.queue(2, &execute(text));
    }
    client.flush();
    server.control.wait_at("first", 1);
    // The task comes behind the first request, and is still there while requests come behind it.
    let handle = server.server().runtime.handle();
    let (release, held) = mpsc::channel::<()>();
    let begun = tell.clone();
    let hold = move || {
        begun.send("a task").expect("waited for");
        let _ = held.recv();
    };
    handle.spawn(hold).expect("there is room");
    server.control.open("first");
    assert_eq!(told.recv_timeout(LONG), Ok("a task"));
    let last = move || tell.send("another task").expect("waited for");
    handle.spawn(last).expect("there is room");
    drop(release);
    assert_eq!(told.recv_timeout(LONG), Ok("another task"));
    assert_eq!(told.recv_timeout(LONG), Ok("the second request"));
    client.reply(2).good();
    client.reply(2).good();
}

/// Found by review: the refusal came first, and a client took it for the answer of the statement.
#[test]
fn a_refusal_on_an_id_of_one_statement_comes_behind_the_answer_of_the_statement() {
    let server = Fixture::start(config());
    let refused = [
        ("a", savepoint(Operation::Set, "a")),
        ("b", ClientMessage::ExecPlan(Box::default())),
        ("c", ClientMessage::SessionClose),
        ("d", ClientMessage::SessionNew),
        ("e", timestamps(1)),
    ];
    for (gate, message) in refused {
        let mut client = server.client();
        client.send_sql(AUTO | 9, query(&format!("gate {gate}")));
        server.control.wait_at(gate, 1);
        client.queue(AUTO | 9, &message);
        client.send(0, &ClientMessage::CapabilitiesGet);
        let mut kinds = iter::from_fn(|| client.raw_frame()).map(|frame| frame.kind);
        assert_eq!(kinds.next(), Some(ServerKind::Capabilities.number()), "{message:?}");
        server.control.open(gate);
        let end = kinds.find(|kind| *kind == ServerKind::StmtExecuteOk.number());
        assert_eq!((end.is_some(), kinds.next()), (true, Some(ServerKind::Error.number())));
    }
    assert_eq!(server.count(Counter::Glitches), 5);
}
