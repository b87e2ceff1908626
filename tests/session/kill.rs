//! Requests that are interrupted, sessions that are killed or closed, and their successors.

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::session::KillSessionType;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::session::CancelReason;
use epoll_group::stats::Counter;
use lab::engine::{Counts, Fixture, config, finish_with};
use lab::workers::all_rest;
use lab::xrpc::reply::Failure;
use lab::xrpc::request::{kill, query, update};
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually, often};

fn execute(sql: &str) -> ClientMessage {
    ClientMessage::ExecSql(query(sql))
}

/// Ways in which a request is in progress.
const WAYS: [&str; 7] = [
    "gate a",
    "gate-unannounced a",
    "defer a",
    "lock",
    "rows 1000 100",
    "source 1000 100",
    "chunks",
];

/// Begins a request on session 2 and returns when it waits.
fn begin(server: &Fixture, client: &mut Client, way: &str) {
    client.set_offers(None);
    let ticket = match way {
        "lock" => {
            client.execute(3, "lock").good();
            client.send_sql(2, query("lock"))
        }
        "chunks" => client.send_sql(2, StmtExecute { chunk_result: Some(true), ..little(SOURCE) }),
        _ => client.send_sql(2, little(way)),
    };
    match way {
        "lock" => eventually(LONG, || {
            server.control.waiting_for_lock.load(std::sync::atomic::Ordering::SeqCst) == 1
        }),
        "defer a" => eventually(LONG, || server.control.deferred("a") == 1),
        _ if way.starts_with("gate") => server.control.wait_at("a", 1),
        _ => {
            client.wait_for(ticket, |reply| reply.token_done == 1);
        }
    }
}

const SOURCE: &str = "source 1000 100";

#[test]
fn what_is_killed_in_the_same_write_is_not_begun() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..102);
    // A kill is answered by the thread that reads it, before the session runs. So a worker may still be
    // about to run the session, and would take the next statement before its kill is read.
    let rest = || all_rest(&server.server().runtime);
    for _ in 0..often(50) {
        rest();
        for session in 2..102 {
            client.queue(session, &execute("one"));
            client.queue(session, &kill(session, KillSessionType::Query));
        }
        client.flush();
        for session in 2..102 {
            assert_eq!(client.reply(session).failure().code, 1317);
        }
    }
    rest();
    for session in 2..102 {
        client.queue(session, &execute("one"));
        client.queue(session, &kill(session, KillSessionType::Connection));
    }
    client.flush();
    for session in 2..102 {
        assert!(client.reply(session).failure().fatal);
    }
    assert_eq!(Counts::of(&server.control.counts.executed), 0);
}

/// Statement with an initial credit of 1 KiB.
fn little(sql: &str) -> StmtExecute {
    StmtExecute { token: Some(1), ..query(sql) }
}

fn failure(fatal: bool, code: u32, state: &str, text: &str) -> Failure {
    Failure { fatal, code, state: state.into(), text: text.into() }
}

fn killed() -> Failure {
    failure(true, 8001, "70100", "Session is killing.")
}

fn interrupted() -> Failure {
    failure(false, 1317, "70100", "Query execution was interrupted")
}

fn not_found() -> Failure {
    failure(true, 8001, "HY000", "Session not found.")
}

#[test]
fn a_killed_session_ends_whatever_it_does() {
    for way in WAYS {
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions([2, 3]);
        begin(&server, &mut client, way);
        client.send_sql(2, query("echo behind"));
        let kill = client.kill_connection(2);
        assert_eq!(client.reply_to(kill).failure(), killed(), "{way}");
        assert_eq!(client.reply(2).failure(), killed());
        assert_eq!(client.reply(2).failure(), killed());
        assert_eq!(server.control.cancels(), [CancelReason::Session]);
        let closed = || Counts::of(&server.control.counts.closed) == 1;
        eventually(LONG, closed);
        assert_eq!(client.execute(2, "one").failure(), not_found());
        client.execute(3, "one").one();
        // Its id is free again.
        client.new_session(2);
        client.execute(2, "one").one();
        if way == "defer a" {
            let deferred = server.control.take_one_deferred("a");
            assert!(deferred.is_cancelled());
            assert!(!finish_with(deferred, "too late"));
        }
        client.execute(2, "one").one();
        client.close(2).good();
        client.close(3).good();
        assert_eq!(client.strays(), []);
    }
}

#[test]
fn a_session_with_nothing_to_do_can_be_killed() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let kill = client.kill_connection(2);
    assert_eq!(client.reply_to(kill).failure(), killed());
    server.wait_until_even();
    assert_eq!(server.control.cancels(), []);
}

#[test]
fn an_interrupted_request_ends_and_its_session_goes_on() {
    for way in WAYS {
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions([2, 3]);
        begin(&server, &mut client, way);
        client.send_sql(2, query("echo behind"));
        client.kill_query(2);
        assert_eq!(client.reply(2).failure(), interrupted(), "{way}");
        assert_eq!(client.reply(2).one().text(), Some("behind"), "{way}");
        assert_eq!(server.control.cancels(), [CancelReason::Query]);
        assert_eq!(Counts::of(&server.control.counts.cancelled), 1);
        if way == "defer a" {
            assert!(!finish_with(server.control.take_one_deferred("a"), "too late"));
        }
        if way == SOURCE || way == "chunks" {
            assert_eq!(Counts::of(&server.control.counts.sources_dropped), 1);
        }
        client.execute(3, "unlock").good();
        // Offers that come late are harmless.
        client.offer(2, 10);
        client.execute(2, "one").one();
        assert_eq!(client.strays(), []);
        for absent in [9, AUTO | 9] {
            let kill = client.kill_connection(absent);
            assert_eq!(client.reply_to(kill).failure(), not_found());
        }
    }
}

#[test]
fn interrupting_hits_the_oldest_request_and_no_other() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, query("gate a"));
    client.send_sql(2, query("gate b"));
    client.send_sql(2, query("gate c"));
    server.control.wait_at("a", 1);
    client.kill_query(2);
    assert_eq!(client.reply(2).failure(), interrupted());
    server.control.wait_at("b", 1);
    server.control.open("b");
    assert_eq!(client.reply(2).one().text(), Some("b"));
    server.control.wait_at("c", 1);
    client.kill_query(2);
    assert_eq!(client.reply(2).failure(), interrupted());
    assert_eq!(server.count(Counter::RequestsCancelled), 2);
}

#[test]
fn interrupting_between_two_requests_hits_neither() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.kill_query(2);
    for round in 0..often(1000) {
        let text = if round % 3 == 0 { "defer-finish x" } else { "echo x" };
        client.queue(2, &execute(text));
        client.flush();
        assert_eq!(client.reply(2).one().text(), Some("x"));
        client.kill_query(2);
        if round % 2 == 0 {
            client.kill_query(2);
        }
    }
    // A deferred request may have been cancelled while its answer was being sent.
    assert!(server.control.cancels().iter().all(|reason| *reason == CancelReason::Query));
}

#[test]
fn a_burst_of_interrupts_costs_one_outcome_each() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    for _ in 0..often(300) {
        for _ in 0..5 {
            client.queue(2, &execute("echo x"));
            client.queue(2, &kill(2, KillSessionType::Query));
        }
        client.flush();
        for _ in 0..5 {
            let reply = client.reply(2);
            match &reply.error {
                None => assert_eq!(reply.good().rows.len(), 1),
                Some(error) => assert_eq!(*error, interrupted()),
            }
        }
    }
    client.execute(2, "one").one();
}

#[test]
fn a_session_that_is_being_opened_can_be_killed() {
    for auto in [false, true] {
        let server = Fixture::start(config());
        server.control.hold("open");
        let mut client = server.client();
        let session = if auto { AUTO | 2 } else { 2 };
        if !auto {
            client.send(2, &ClientMessage::SessionNew);
        }
        client.send_sql(session, query("gate a"));
        server.control.wait_at("open", 1);
        client.kill_connection(session);
        assert_eq!(client.reply(session).failure(), killed());
        server.control.open("open");
        server.wait_until_even();
    }
}

#[test]
fn a_statement_is_interrupted_while_its_own_session_is_opened() {
    let server = Fixture::start(config());
    server.control.hold("open");
    let mut client = server.client();
    client.send_sql(AUTO | 2, query("gate a"));
    server.control.wait_at("open", 1);
    client.kill_query(AUTO | 2);
    client.probe();
    server.control.open("open");
    assert_eq!(client.reply(AUTO | 2).failure(), interrupted());
    server.wait_until_even();
}

#[test]
fn requests_behind_the_close_are_told_that_there_is_no_session() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.queue(2, &execute("gate a"));
    client.queue(2, &ClientMessage::SessionClose);
    client.queue(2, &execute("one"));
    client.queue(2, &execute("one"));
    client.flush();
    server.control.wait_at("a", 1);
    client.execute(3, "one").one();
    server.control.open("a");
    assert_eq!(client.reply(2).one().text(), Some("a"));
    client.reply(2).good();
    for _ in 0..2 {
        assert_eq!(client.reply(2).failure(), not_found());
    }
    assert_eq!(client.strays(), []);
    assert_eq!(client.execute(2, "one").failure(), not_found());
}

#[test]
fn the_answer_to_the_close_comes_before_that_there_is_no_session() {
    let server = Fixture::start(config());
    let mut client = server.client();
    for _ in 0..often(500) {
        client.new_session(2);
        client.queue(2, &execute("one"));
        client.queue(2, &ClientMessage::SessionClose);
        client.flush();
        for _ in 0..20 {
            client.send_sql(2, update("one"));
        }
        client.reply(2).one();
        client.reply(2).good();
        for _ in 0..20 {
            assert_eq!(client.reply(2).failure(), not_found());
        }
    }
    assert_eq!(client.strays(), []);
}

#[test]
fn a_kill_ends_the_session_of_its_header_whatever_it_names() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    for session in [2, 3] {
        client.send_sql(session, query("gate a"));
    }
    server.control.wait_at("a", 2);
    client.send(2, &kill(3, KillSessionType::Query));
    assert_eq!(client.reply(2).failure().code, 1317);
    let ticket = client.send(2, &kill(3, KillSessionType::Connection)).expect("answered");
    assert_eq!(client.reply_to(ticket).failure(), killed());
    server.control.open("a");
    client.reply(3).one();
    client.execute(3, "one").one();
}

#[test]
fn an_id_that_is_taken_is_refused_and_its_session_goes_on() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.execute(2, "begin").good();
    client.send(2, &ClientMessage::SessionNew);
    let taken = failure(true, 8001, "HY000", "Duplicate session ID.");
    assert_eq!(client.reply(2).failure(), taken);
    client.execute(2, "one").one();
    assert_eq!(Counts::of(&server.control.counts.opened), 1);
}

#[test]
fn an_id_that_nobody_opened_is_refused_and_the_connection_goes_on() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    assert_eq!(client.execute(9, "one").failure(), not_found());
    assert_eq!(client.close(9).failure(), not_found());
    let kill = client.kill_connection(9);
    assert_eq!(client.reply_to(kill).failure(), not_found());
    client.offer(9, 1);
    client.kill_query(9);
    client.execute(2, "one").one();
    let strays: Vec<_> = client.strays().iter().map(|(session, _)| *session).collect();
    assert_eq!(strays, [9, 9]);
}

#[test]
fn an_id_that_was_closed_can_be_opened_at_once() {
    let server = Fixture::start(config());
    let mut client = server.client();
    let mut last = None;
    for _ in 0..often(2000) {
        client.new_session(2);
        let number = client.execute(2, "number").one();
        assert_ne!(Some(&number), last.as_ref(), "another session");
        last = Some(number);
        client.close(2).good();
    }
    server.wait_until_even();
}

#[test]
fn nothing_of_a_killed_session_reaches_its_successor() {
    let server = Fixture::start(config());
    let mut client = server.client();
    for round in 0..often(200) {
        let gate = format!("g{round}");
        client.new_session(2);
        client.send_sql(2, query(&format!("stubborn {gate}")));
        server.control.wait_at(&gate, 1);
        let kill = client.kill_connection(2);
        assert_eq!(client.reply(2).failure(), killed());
        assert_eq!(client.reply_to(kill).failure(), killed());
        client.queue(2, &ClientMessage::SessionNew);
        client.queue(2, &execute("echo new"));
        client.flush();
        server.control.open(&gate);
        client.reply(2).good();
        assert_eq!(client.reply(2).one().text(), Some("new"));
        for _ in 0..10 {
            assert_eq!(client.execute(2, "echo more").one().text(), Some("more"));
        }
        client.close(2).good();
    }
    assert_eq!(client.strays(), []);
    let killed = u64::from(often(200));
    assert_eq!(server.count(Counter::SessionsKilled), killed);
    server.wait_for(Counter::FramesOfDeadSessionsDropped, killed);
}

/// The end may wait for anything, so another task runs it.
#[test]
fn the_end_of_a_killed_session_delays_no_answer() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.execute(2, "one").one();
    server.control.hold("closed");
    let kill = client.kill_connection(2);
    assert_eq!(client.reply_to(kill).failure(), killed());
    client.execute(3, "one").one();
    server.control.wait_at("closed", 1);
    server.control.open("closed");
}

#[test]
fn a_kill_while_a_session_opens_does_not_reach_the_session_of_the_statement_before() {
    let server = Fixture::start(config());
    let mut client = server.client();
    let session = AUTO | 2;
    client.send_sql(session, query("gate a"));
    server.control.wait_at("a", 1);
    client.send_sql(session, query("one"));
    client.probe();
    server.control.hold("open");
    server.control.open("a");
    server.control.wait_at("open", 1);
    client.kill_query(session);
    client.probe();
    assert_eq!(server.control.cancels(), []);
    server.control.open("open");
    client.reply(session).one();
    assert_eq!(client.reply(session).failure(), interrupted());
}
