//! Ends of connections and of the server, with sessions in every state.

use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use epoll_group::codec::message::{ClientMessage, ServerKind};
use epoll_group::codec::proto::session::KillSessionType;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::session::CancelReason;
use epoll_group::stats::Counter;
use lab::engine::backend::{Backend, end, meta, row};
use lab::engine::{Control, Counts, Fixture, config, finish_with};
use lab::xrpc::request::{kill, query, timestamps, update};
use lab::xrpc::{AUTO, Client, Ticket};
use lab::{LONG, eventually, often};

fn execute(sql: &str) -> ClientMessage {
    ClientMessage::ExecSql(query(sql))
}

#[test]
fn what_was_sent_before_a_half_close_is_answered() {
    let server = Fixture::start(config().half_close_timeout(LONG));
    for round in 0..often(200) {
        let mut client = server.client_with_sessions([2, 3]);
        for at in 0..20 {
            client.queue(2, &execute(&format!("echo {at}")));
            client.queue(3, &execute(&format!("echo {at}")));
            client.queue(AUTO | at, &execute("one"));
        }
        client.queue(2, &execute("source 100 10"));
        let ticket = client.queue(9, &timestamps(1));
        if round % 2 == 0 {
            client.queue(3, &ClientMessage::SessionClose);
        }
        client.flush();
        client.finish();
        for at in 0..20 {
            for session in [2, 3] {
                assert_eq!(client.reply(session).one().text(), Some(&*at.to_string()));
            }
            client.reply(AUTO | at).one();
        }
        assert_eq!(client.reply(2).good().rows.len(), 100);
        client.reply_to(ticket.expect("answered")).good();
        if round % 2 == 0 {
            client.reply(3).good();
        }
        assert_eq!(client.rest(), []);
    }
    server.wait_until_even();
}

#[test]
fn a_half_closed_connection_waits_for_what_is_under_way() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("gate a"));
    client.send_sql(3, query("defer b"));
    client.send_sql(3, query("echo behind"));
    server.control.wait_at("a", 1);
    let deferred = server.control.take_one_deferred("b");
    client.finish();
    server.control.open("a");
    assert_eq!(client.reply(2).one().text(), Some("a"));
    assert!(finish_with(deferred, "b"));
    assert_eq!(client.reply(3).one().text(), Some("b"));
    assert_eq!(client.reply(3).one().text(), Some("behind"));
    assert_eq!(client.rest(), []);
    server.wait_until_even();
}

#[test]
fn a_client_that_finished_sending_is_not_waited_for_for_ever() {
    let server = Fixture::start(config().half_close_timeout(Duration::from_millis(20)));
    let mut client = server.client_with_sessions(2..5);
    client.execute(2, "lock").good();
    client.send_sql(2, query("gate a"));
    client.send_sql(3, query("defer b"));
    client.send_sql(4, query("lock"));
    server.control.wait_at("a", 1);
    let deferred = server.control.take_one_deferred("b");
    client.finish();
    // The gate of `a` stays closed.
    server.wait_until_even();
    assert!(!finish_with(deferred, "too late"));
    assert!(server.control.cancels().contains(&CancelReason::Connection));
}

#[test]
fn a_reset_ends_all_sessions_whatever_they_do() {
    let server = Fixture::start(config());
    for _ in 0..often(20) {
        let mut client = server.client_with_sessions(1..9);
        client.set_offers(None);
        client.execute(1, "lock").good();
        let little = |sql: &str| StmtExecute { token: Some(1), ..query(sql) };
        client.send_sql(2, query("gate a"));
        client.send_sql(3, query("gate-unannounced b"));
        client.send_sql(4, query("defer c"));
        client.send_sql(5, query("lock"));
        client.send_sql(2, query("one"));
        client.send_sql(AUTO | 2, query("gate a"));
        let waits = [
            client.send_sql(6, little("rows 1000 100")),
            client.send_sql(7, little("source 1000 100")),
        ];
        server.control.wait_at("a", 2);
        server.control.wait_at("b", 1);
        let deferred = server.control.take_one_deferred("c");
        for ticket in waits {
            client.wait_for(ticket, |reply| reply.token_done == 1);
        }
        let before = server.control.cancels().len();
        client.reset();
        server.wait_until_even();
        let cancels = server.control.cancels().split_off(before);
        // The session that waits for the lock may get it meanwhile. The session that writes rows
        // may notice the reset by itself.
        assert!((5..=7).contains(&cancels.len()), "{cancels:?} {:?}", server.control.counts);
        assert!(cancels.iter().all(|reason| *reason == CancelReason::Connection), "{cancels:?}");
        assert!(!finish_with(deferred, "too late"));
    }
    let counts = &server.control.counts;
    assert_eq!(Counts::of(&counts.sources_dropped), u64::from(often(20)));
    // Those that were opened, and the one for a single statement.
    assert_eq!(server.count(Counter::SessionsClosed), 9 * u64::from(often(20)));
}

/// Returns a server and a client with sessions 2 and 3 busy, and 4 and 5 idle.
fn half_busy() -> (Fixture, Client) {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..6);
    client.send_sql(2, query("gate a"));
    client.send_sql(2, query("echo behind"));
    client.send_sql(3, query("defer b"));
    server.control.wait_at("a", 1);
    eventually(LONG, || server.control.deferred("b") == 1);
    (server, client)
}

#[test]
fn a_drain_finishes_what_is_in_progress_and_tells_who_is_idle() {
    let (mut server, mut client) = half_busy();
    let control = Arc::clone(&server.control);
    let drain = server.drain_on_another_thread();
    // The frames for the idle sessions show that the drain has begun. Then the requests in progress
    // end.
    for session in [4, 5] {
        let frame = client.raw_frame().expect("a frame");
        let failure = frame.failure();
        assert_eq!((failure.fatal, failure.code, &*failure.text), (true, 1053, "server shutdown"));
        assert!([4, 5].contains(&frame.session), "{session}");
    }
    control.open("a");
    for deferred in control.take_deferred("b", 1) {
        assert!(finish_with(deferred, "b"));
    }
    drain.join().expect("drained");
    assert_eq!(client.reply(2).one().text(), Some("a"));
    assert_eq!(client.reply(2).one().text(), Some("behind"));
    assert_eq!(client.reply(3).one().text(), Some("b"));
    // A session that finishes before the drain comes to it gets the same error as an idle session.
    assert!(client.rest().iter().all(|frame| frame.failure().code == 1053));
}

#[test]
fn a_drain_answers_probes_and_kills_until_the_requests_in_progress_end() {
    let mut server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..5);
    let held = client.send_sql(2, query("gate a"));
    let killed = client.send_sql(3, query("gate c"));
    server.control.wait_at("a", 1);
    server.control.wait_at("c", 1);
    let control = Arc::clone(&server.control);
    let drain = server.drain_on_another_thread();
    client.wait(|client| client.strays().iter().any(|stray| stray.0 == 4)).expect("it is told");
    client.probe();
    // A drain takes in no request. If it did, the first would not end.
    client.send_sql(2, query("gate b"));
    let refused = [
        client.send(9, &ClientMessage::SessionNew).expect("answered"),
        client.send_sql(AUTO | 9, query("one")),
    ];
    client.send(10, &timestamps(1));
    client.wait(|client| client.strays().iter().any(|stray| stray.0 == 10)).expect("it is told");
    for ticket in refused {
        assert_eq!(client.reply_to(ticket).error.map(|error| error.code), Some(1053));
    }
    client.kill_query(3);
    assert_eq!(client.reply_to(killed).error.map(|error| error.code), Some(1317));
    client.probe();
    control.open("a");
    client.reply_to(held).good();
    drain.join().expect("drained");
}

#[test]
fn a_reply_goes_on_in_a_drain_with_the_credit_that_its_client_offers() {
    let mut server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.set_offers(None);
    let backend = Backend::of(meta());
    let ticket = backend.send(&server, &mut client, 2, StmtExecute { token: Some(1), ..query("") });
    eventually(LONG, || backend.is_waiting());
    let drain = server.drain_on_another_thread();
    client.wait(|client| client.strays().iter().any(|stray| stray.0 == 3)).expect("it is told");
    client.offer(2, 100);
    client.probe();
    let long = "x".repeat(1024);
    backend.push((0..10).map(|id| row(id, &long)).chain([end()]));
    let reply = client.reply_to(ticket);
    assert_eq!((reply.token_done, reply.row_count), (0, 10));
    reply.good();
    drain.join().expect("drained");
}

#[test]
fn a_drain_ends_what_is_idle_at_once_so_that_others_get_what_it_holds() {
    let mut server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..5);
    client.execute(2, "lock").good();
    let waiting = client.send_sql(3, query("lock"));
    let slow = client.send_sql(4, query("gate a"));
    server.control.wait_at("a", 1);
    let control = Arc::clone(&server.control);
    let drain = server.drain_on_another_thread();
    client.reply_to(waiting).good();
    control.open("a");
    client.reply_to(slow).good();
    drain.join().expect("drained");
}

/// Drains while session 2 holds the row lock and runs what `begin` sends, and session 3 waits for
/// the lock. Calls `go_on` when the drain has come to the connection. Returns the error code of
/// session 2's request, if it failed.
fn drain_while_at(
    begin: impl FnOnce(&Fixture, &mut Client) -> Ticket,
    go_on: impl FnOnce(&Control),
) -> Option<u32> {
    let mut server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..5);
    client.set_offers(None);
    client.execute(2, "lock").good();
    let busy = begin(&server, &mut client);
    let waiting = client.send_sql(3, query("lock"));
    eventually(LONG, || Counts::of(&server.control.waiting_for_lock) == 1);
    let control = Arc::clone(&server.control);
    let drain = server.drain_on_another_thread();
    // Session 4 is idle, so the drain ends it at once.
    client.wait(|client| client.strays().iter().any(|stray| stray.0 == 4)).expect("it is told");
    go_on(&control);
    let ended = client.reply_to(busy).error;
    client.reply_to(waiting).good();
    assert!(client.wait(|_| false).expect_err("no more frames").is_end());
    let mut strays = client.strays().to_vec();
    strays.sort_by_key(|(session, _)| *session);
    assert_eq!(strays.iter().map(|(session, _)| *session).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(strays.iter().all(|(_, failure)| failure.fatal && failure.code == 1053), "{strays:?}");
    drop(client);
    drain.join().expect("drained");
    ended.map(|failure| failure.code)
}

#[test]
fn a_drain_ends_what_becomes_idle_so_that_others_get_what_it_holds() {
    let at_gate = |server: &Fixture, client: &mut Client| {
        client.send_sql(2, query("gate a"));
        let behind = client.send_sql(2, query("echo behind"));
        server.control.wait_at("a", 1);
        behind
    };
    assert_eq!(drain_while_at(at_gate, |control| control.open("a")), None);
    let deferred = |server: &Fixture, client: &mut Client| {
        let ticket = client.send_sql(2, query("defer b"));
        eventually(LONG, || server.control.deferred("b") == 1);
        ticket
    };
    let finish = |control: &Control| assert!(finish_with(control.take_one_deferred("b"), "b"));
    assert_eq!(drain_while_at(deferred, finish), None);
    assert_eq!(drain_while_at(deferred, Control::drop_deferred), Some(1317));
}

#[test]
fn a_drain_ends_what_has_passed_on_its_last_row() {
    let backend = Backend::of([meta(), vec![row(1, "x")]].concat());
    let relaying = |server: &Fixture, client: &mut Client| {
        let ticket = backend.send(server, client, 2, query(""));
        client.wait_for(ticket, |reply| reply.row_count == 1);
        eventually(LONG, || backend.is_waiting());
        ticket
    };
    assert_eq!(drain_while_at(relaying, |_| backend.push([end()])), None);
    // The client grants no more credit.
    let without_credit = |_: &Fixture, client: &mut Client| {
        let source = StmtExecute { token: Some(1), ..query("source 1000 100") };
        let ticket = client.send_sql(2, source);
        client.wait_for(ticket, |reply| reply.token_done == 1);
        ticket
    };
    assert_eq!(drain_while_at(without_credit, |_| ()), Some(1317));
}

#[test]
fn a_drain_in_the_middle_of_a_transaction_ends_it_behind_a_reply() {
    for _ in 0..often(40) {
        let mut server = Fixture::start(config());
        let mut client = server.client_with_sessions([2, 3]);
        client.execute(2, "lock").good();
        let waiting = client.send_sql(3, query("lock"));
        eventually(LONG, || Counts::of(&server.control.waiting_for_lock) == 1);
        let drain = server.drain_on_another_thread();
        let failure = loop {
            if let Some(failure) = client.execute(2, "one").error {
                break failure;
            }
        };
        assert_eq!((failure.fatal, failure.code), (true, 1053));
        client.reply_to(waiting).good();
        drop(client);
        drain.join().expect("drained");
    }
}

/// Session 2 has sent its last reply. Its worker, which still has to note that, is stuck in a
/// request of session 3. The only other worker is stuck, too, until the drain has begun.
#[test]
fn a_drain_ends_whose_reply_has_just_left() {
    let config = config().epoll_threads_per_group(2).enable_tasker(false);
    let mut server = Fixture::start(config);
    let mut other = server.client_with_sessions([2]);
    let mut client = server.client_with_sessions([2, 3]);
    client.execute(2, "lock").good();
    // By now session 3 counts as quick.
    (0..often(50).max(20)).for_each(|_| drop(client.execute(3, "one")));
    other.send_sql(2, query("gate-unannounced other"));
    server.control.wait_at("other", 1);
    client.queue(2, &execute("one"));
    client.queue(3, &execute("gate-unannounced a"));
    client.flush();
    client.reply(2).one();
    server.control.wait_at("a", 1);
    let control = Arc::clone(&server.control);
    let handle = server.server().runtime.handle();
    let drain = server.drain_on_another_thread();
    eventually(LONG, || handle.spawn(|| ()).is_err());
    control.open("other");
    other.reply(2).one();
    // Session 2 is closed and its lock is free, although session 3 still runs.
    eventually(LONG / 2, || Counts::of(&control.counts.closed) >= 2);
    control.open("a");
    client.reply(3).one();
    drop((client, other));
    drain.join().expect("drained");
}

#[test]
fn a_drain_cuts_what_is_not_over_at_its_deadline() {
    let (mut server, mut client) = half_busy();
    server.drain_that_cuts(1, Duration::from_millis(200), "sessions 2 and 3 stay busy");
    loop {
        match client.try_raw_frame() {
            Ok(frame) => assert_eq!(frame.failure().code, 1053),
            Err(trouble) => break assert!(trouble.is_end(), "{trouble}"),
        }
    }
    assert!(server.control.cancels().contains(&CancelReason::Connection));
    for deferred in server.control.take_deferred("b", 1) {
        assert!(!finish_with(deferred, "too late"));
    }
}

#[test]
fn a_drain_under_load_answers_what_it_took() {
    for _ in 0..often(10) {
        let mut server = Fixture::start(config());
        let clients = [(); 3].map(|()| server.client_with_sessions(2..6));
        let working = clients.map(|mut client| {
            thread::spawn(move || {
                let mut answered = 0_u64;
                let mut goes_on = true;
                while goes_on {
                    for session in 2..6 {
                        client.queue(session, &ClientMessage::ExecSql(update("echo x")));
                    }
                    // Even if the server reads no more, it has answered what it took.
                    goes_on = client.try_flush().is_ok();
                    for session in 2..6 {
                        match client.try_reply(session) {
                            Ok(reply) => match &reply.error {
                                None => {
                                    assert_eq!(reply.one().text(), Some("x"));
                                    answered += 1;
                                }
                                Some(failure) => {
                                    assert_eq!(failure.code, 1053);
                                    goes_on = false;
                                }
                            },
                            Err(trouble) if trouble.is_end() => goes_on = false,
                            Err(trouble) => panic!("{trouble}"),
                        }
                    }
                }
                answered
            })
        });
        let executed = |server: &Fixture| Counts::of(&server.control.counts.executed);
        eventually(LONG, || executed(&server) > 100);
        server.drain_on_another_thread().join().expect("drained");
        let answered: u64 =
            working.into_iter().map(|working| working.join().expect("legal to the end")).sum();
        assert_eq!(answered, executed(&server));
        assert!(server.control.is_even());
    }
}

#[test]
fn a_server_can_be_dropped_at_any_time() {
    for _ in 0..often(20) {
        let server = Fixture::start(config());
        server.leaves_work("the server is dropped in the middle of everything");
        let mut client = server.client_with_sessions(2..12);
        client.set_offers(None);
        for session in 2..12 {
            let sql = ["one", "defer a", "source 100000 100", "rows 100000 100", "gate a"]
                [session as usize % 5];
            client.send_sql(session, StmtExecute { token: Some(1), ..query(sql) });
        }
        // Dropping the server checks that all sessions were closed.
        drop(server);
    }
}

/// Found by review: a service that was slow kept a worker for each request of a client that was gone.
#[test]
fn timestamps_are_not_asked_for_a_client_that_is_gone() {
    let server = Fixture::start(config());
    server.control.hold("clock");
    let mut other = server.client();
    let used = || {
        let stats = server.stats();
        stats.slots_allocated - stats.slots_free
    };
    let before = used();
    let mut client = server.client_with_sessions([2]);
    for _ in 0..100 {
        client.queue(7, &timestamps(1));
    }
    client.flush();
    server.control.wait_at("clock", 1);
    client.probe();
    client.reset();
    eventually(LONG, || Counts::of(&server.control.counts.closed) == 1);
    server.control.open("clock");
    eventually(LONG, || used() == before);
    assert_eq!(other.timestamps(7, 1).good().timestamp, Some(1));
}

const ERROR: u8 = ServerKind::Error.number();
const OK: u8 = ServerKind::Ok.number();
const TSO: u8 = ServerKind::Tso.number();
const COLUMN: u8 = ServerKind::ColumnMetaData.number();

/// Kinds of the next frames of the session.
fn next_kinds<const N: usize>(client: &mut Client, session: u64) -> [u8; N] {
    let mut next = || iter::from_fn(|| client.raw_frame()).find(|frame| frame.session == session);
    [(); N].map(|()| next().expect("a frame").kind)
}

/// Sessions and kinds of the frames before the next one of session 98.
fn until_98(client: &mut Client) -> Vec<(u64, u8)> {
    let frames = iter::from_fn(|| client.raw_frame()).take_while(|frame| frame.session != 98);
    frames.map(|frame| (frame.session, frame.kind)).collect()
}

/// Found by review: the answer came behind the message about the end, and to the next session with
/// the same id.
#[test]
fn timestamps_do_not_come_behind_the_kill_of_their_session() {
    let server = Fixture::start(config());
    for _ in 0..often(200) {
        let mut client = server.client_with_sessions([2]);
        client.queue(2, &timestamps(1));
        client.queue(2, &kill(2, KillSessionType::Connection));
        client.queue(2, &ClientMessage::SessionNew);
        client.queue(99, &timestamps(1));
        // Timestamps come in order, so all others have come before.
        client.send(98, &timestamps(1));
        let frames = until_98(&mut client);
        let of_2 = frames.iter().filter(|(id, _)| *id == 2).map(|(_, kind)| *kind);
        let of_2: Vec<_> = of_2.skip_while(|kind| *kind == TSO).collect();
        assert!(matches!(of_2[..], [ERROR, OK] | [ERROR]), "{frames:?}");
        assert!(frames.contains(&(99, TSO)), "an id without a session: {frames:?}");
    }
}

#[test]
fn timestamps_that_the_service_gives_late_do_not_come_behind_the_kill_of_their_session() {
    let server = Fixture::start(config());
    server.control.hold("clock");
    let mut client = server.client_with_sessions([2]);
    client.queue(2, &timestamps(1));
    client.send(2, &timestamps(1));
    server.control.wait_at("clock", 1);
    client.queue(2, &kill(2, KillSessionType::Connection));
    client.queue(2, &ClientMessage::SessionNew);
    client.send(2, &execute("one"));
    assert_eq!(next_kinds(&mut client, 2), [ERROR, OK, COLUMN]);
    server.control.open("clock");
    client.send(98, &timestamps(1));
    let frames = until_98(&mut client);
    assert!(!frames.contains(&(2, TSO)), "{frames:?}");
    // The second request has not reached the service.
    let mut other = server.client();
    assert_eq!(other.timestamps(98, 1).good().timestamp, Some(2));
}

/// Found by review: the session was closed, and its id used again, before its timestamps came.
#[test]
fn a_close_waits_for_the_timestamps_that_were_asked_before() {
    let server = Fixture::start(config());
    server.control.hold("clock");
    let mut client = server.client_with_sessions([2, 3]);
    client.send(2, &timestamps(1));
    server.control.wait_at("clock", 1);
    client.send(2, &ClientMessage::SessionClose);
    // Requests behind the close are on an id without a session.
    client.send(2, &timestamps(1));
    client.send(3, &execute("gate a"));
    server.control.wait_at("a", 1);
    server.control.open("a");
    let first = client.raw_frame().expect("a frame");
    assert_eq!((first.session, first.kind), (3, COLUMN), "the close waits");
    server.control.open("clock");
    let mut kinds: [u8; 3] = next_kinds(&mut client, 2);
    assert_eq!(kinds[0], TSO);
    kinds[1..].sort_unstable();
    assert_eq!(kinds, [TSO, OK, TSO]);
    client.send(2, &ClientMessage::SessionNew);
    assert_eq!(next_kinds(&mut client, 2), [OK]);
}

/// Found by review: an idle session was closed although its client waited for timestamps.
#[test]
fn in_a_drain_a_session_ends_behind_its_timestamps() {
    let mut server = Fixture::start(config());
    server.control.hold("clock");
    let mut client = server.client_with_sessions([2, 3, 4]);
    client.queue(2, &timestamps(1));
    client.queue(3, &timestamps(1));
    client.send(3, &execute("defer a"));
    server.control.wait_at("clock", 1);
    let deferred = server.control.take_one_deferred("a");
    let control = Arc::clone(&server.control);
    let drain = server.drain_on_another_thread();
    // Sessions 2 and 3 would have ended before.
    assert_eq!(next_kinds(&mut client, 4), [ERROR]);
    assert!(finish_with(deferred, "done"));
    control.open("clock");
    let frames: Vec<_> = client.rest().iter().map(|frame| (frame.session, frame.kind)).collect();
    drain.join().expect("drained");
    for session in [2, 3] {
        let of_it =
            frames.iter().filter(|(id, kind)| *id == session && [TSO, ERROR].contains(kind));
        let kinds: Vec<_> = of_it.map(|(_, kind)| *kind).collect();
        assert_eq!(kinds, [TSO, ERROR], "{frames:?}");
    }
}

/// Found by review: the refusal came before the answers to earlier requests, and answers with
/// timestamps have no number.
#[test]
fn a_drain_refuses_timestamps_behind_those_that_were_asked_for_before() {
    let mut server = Fixture::start(config());
    server.control.hold("clock");
    let mut client = server.client_with_sessions([2]);
    let first = client.send(99, &timestamps(1)).expect("answered");
    server.control.wait_at("clock", 1);
    let control = Arc::clone(&server.control);
    let drain = server.drain_on_another_thread();
    let is_told = |client: &Client, id| client.strays().iter().any(|stray| stray.0 == id);
    client.wait(|client| is_told(client, 2)).expect("it is told");
    client.send(99, &timestamps(100));
    client.probe();
    assert!(!is_told(&client, 99), "it would be taken for an answer to the first");
    control.open("clock");
    assert_eq!(client.reply_to(first).good().timestamp, Some(0));
    client.wait(|client| is_told(client, 99)).expect("it is told");
    drain.join().expect("drained");
}

/// Found by review: the session sends no message at its end, so the second request had no answer.
#[test]
fn a_drain_refuses_a_second_statement_for_a_session_of_one_statement() {
    let mut server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let first = client.send_sql(AUTO | 9, query("gate a"));
    server.control.wait_at("a", 1);
    let control = Arc::clone(&server.control);
    let drain = server.drain_on_another_thread();
    client.wait(|client| client.strays().iter().any(|stray| stray.0 == 2)).expect("it is told");
    let late = client.send_sql(AUTO | 9, query("one"));
    client.probe();
    control.open("a");
    client.reply_to(first).one();
    assert_eq!(client.reply_to(late).error.map(|error| error.code), Some(1053));
    drain.join().expect("drained");
}

#[test]
fn a_fatal_error_of_a_statement_on_its_own_answers_those_behind_it_too() {
    let server = Fixture::start(config());
    let mut client = server.client();
    let [first, fatal, behind, last] = ["gate a", "fatal 1234", "one", "one"].map(|sql| {
        let ticket = client.send_sql(AUTO | 9, query(sql));
        server.control.wait_at("a", 1);
        ticket
    });
    // The answer to the probe shows that the other requests are queued.
    client.probe();
    server.control.open("a");
    client.reply_to(first).one();
    assert_eq!(client.reply_to(fatal).failure().code, 1234);
    for ticket in [behind, last] {
        assert_eq!(client.reply_to(ticket).failure().text, "Session not found.");
    }
    client.execute(AUTO | 9, "one").one();
}
