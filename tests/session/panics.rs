//! Panics in code of the service, wherever it is called: each costs its request or session, and no
//! more.

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::stats::Counter;
use lab::engine::{Counts, Fixture, PASSWORD, config};
use lab::threads::threads;
use lab::xrpc::AUTO;
use lab::xrpc::request::query;
use lab::{LONG, eventually};

const KILLED: &str = "Session unexpected killed.";

#[test]
fn in_a_handler_they_end_the_session() {
    let server = Fixture::start(config());
    let before = threads(&server.stats());
    let mut client = server.client_with_sessions(2..20);
    let ways = ["panic", "panic-row", "source-panic 0", "source-panic 10"];
    for (session, sql) in (2..).zip(ways.into_iter().cycle().take(17)) {
        client.queue(session, &ClientMessage::ExecSql(query("echo before")));
        let chunks = Some(session % 2 == 0);
        let statement = StmtExecute { chunk_result: chunks, ..query(sql) };
        client.queue(session, &ClientMessage::ExecSql(statement));
        client.queue(session, &ClientMessage::ExecSql(query("one")));
        client.flush();
        assert_eq!(client.reply(session).one().text(), Some("before"));
        let failure = client.reply(session).failure();
        assert_eq!((failure.fatal, &*failure.text), (true, KILLED), "{sql}");
        client.reply(session).failure();
        client.new_session(session);
        client.execute(session, "one").one();
    }
    assert_eq!(client.execute(AUTO | 2, "panic").failure().text, KILLED);
    client.execute(AUTO | 2, "one").one();
    assert_eq!(server.count(Counter::RequestPanics), 18);
    server.wait_until_idle(before);
}

#[test]
fn a_row_that_was_begun_is_taken_back() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let ticket = client.send_sql(2, query("panic-row"));
    client.wait_for(ticket, |_| false);
    assert_eq!(client.so_far(ticket).row_count, 10);
    client.probe();
}

#[test]
fn when_a_session_opens_they_refuse_it() {
    let server = Fixture::start(config());
    for (account, code, text) in
        [("panic-open", 8001, KILLED), ("no-entry", 1040, "Too many connections")]
    {
        let mut client = server.client_of(account);
        for session in [2, 3, 2] {
            client.queue(session, &ClientMessage::SessionNew);
            client.queue(session, &ClientMessage::ExecSql(query("one")));
            client.flush();
            let failure = client.reply(session).failure();
            assert_eq!((failure.fatal, failure.code, &*failure.text), (true, code, text));
            client.reply(session).failure();
        }
        assert_eq!(client.execute(AUTO | 2, "one").failure().text, text);
        client.probe();
    }
    assert_eq!(Counts::of(&server.control.counts.opened), 0);
}

#[test]
fn in_what_is_called_between_requests_they_are_counted() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..6);
    let panics = || server.count(Counter::Panics);

    client.execute(2, "trap closed").good();
    client.close(2).good();
    eventually(LONG, || panics() == 1);

    client.execute(3, "trap in_transaction").good();
    client.execute(3, "one").one();
    client.close(3).good();
    assert!(panics() >= 2);

    client.execute(4, "trap cancelled").good();
    client.send_sql(4, query("gate a"));
    server.control.wait_at("a", 1);
    client.kill_query(4);
    assert_eq!(client.reply(4).failure().code, 1317);
    client.execute(4, "one").one();

    // The cancel callback panics. It may run on any thread.
    client.execute(5, "trap cancel").good();
    client.send_sql(5, query("source 100000 100"));
    client.set_offers(None);
    let ticket = client.send_sql(4, StmtExecute { token: Some(1), ..query("source 1000 100") });
    client.wait_for(ticket, |reply| reply.token_done == 1);
    client.kill_query(5);
    client.reply(5);
    client.execute(5, "one").one();
    let kill = client.kill_connection(5);
    client.reply_to(kill).failure();
    client.offer(4, 1000);
    client.reply(4).good();
}

#[test]
fn a_source_that_panics_when_it_is_dropped_spoils_nothing() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..5);
    client.set_offers(None);
    let little = StmtExecute { token: Some(1), ..query("source-drop-panic 1000 100") };
    for session in 2..4 {
        let ticket = client.send_sql(session, little.clone());
        client.wait_for(ticket, |reply| reply.token_done == 1);
        client.send_sql(session, query("echo behind"));
    }
    client.kill_query(2);
    assert_eq!(client.reply(2).failure().code, 1317);
    assert_eq!(client.reply(2).one().text(), Some("behind"));
    let kill = client.kill_connection(3);
    client.reply_to(kill).failure();
    client.execute(4, "one").one();
    let ticket = client.send_sql(4, little);
    client.wait_for(ticket, |reply| reply.token_done == 1);
    client.reset();
    server.wait_until_even();
    server.client_with_sessions([2]).execute(2, "one").one();
}

#[test]
fn in_a_timestamp_they_are_an_error() {
    let server = Fixture::start(config());
    let mut client = server.client_of("panic-clock");
    for _ in 0..3 {
        let failure = client.timestamps(2, 1).failure();
        assert_eq!((failure.fatal, &*failure.text), (false, "Failed to get tso."));
    }
    assert_eq!(server.count(Counter::RequestPanics), 3);
}

#[test]
fn in_a_login_they_end_the_connection() {
    let server = Fixture::start(config());
    let mut client = server.stranger();
    let challenge = client.challenge().expect("a challenge");
    let proof = lab::xrpc::Client::proof("panic", PASSWORD, &challenge);
    client.send(0, &lab::xrpc::request::login_continue(proof));
    assert_eq!(client.rest(), []);
    drop(client);
    eventually(LONG, || server.stats().unauthenticated_connections == 0);
    server.client_with_sessions([2]).execute(2, "one").one();
}
