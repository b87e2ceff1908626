//! Limits that change while sessions run, and connections whose sessions are idle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use epoll_group::codec::message::ClientMessage;
use epoll_group::stats::Counter;
use lab::engine::{Fixture, config};
use lab::xrpc::request::query;
use lab::{LONG, eventually, often};

const REFUSED: &str = "max_connections limit exceed";

#[test]
fn fewer_sessions_are_allowed_while_more_are_open() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..10);
    let runtime = &server.server().runtime;
    runtime.reconfigure(|config| config.max_sessions(4)).expect("valid");
    for session in 2..10 {
        client.execute(session, "one").one();
    }
    let refused = |client: &mut lab::xrpc::Client| {
        client.send(20, &ClientMessage::SessionNew);
        assert_eq!(client.reply(20).failure().text, REFUSED);
    };
    for session in 2..6 {
        refused(&mut client);
        client.close(session).good();
    }
    eventually(LONG, || server.stats().sessions == 4);
    refused(&mut client);
    client.close(6).good();
    eventually(LONG, || server.stats().sessions == 3);
    client.new_session(20);
    refused_after_more(&server, &mut client);
}

/// A limit that rises again counts from the sessions that are open.
fn refused_after_more(server: &Fixture, client: &mut lab::xrpc::Client) {
    let runtime = &server.server().runtime;
    runtime.reconfigure(|config| config.max_sessions(6)).expect("valid");
    client.new_session(21);
    client.new_session(22);
    client.send(23, &ClientMessage::SessionNew);
    assert_eq!(client.reply(23).failure().text, REFUSED);
}

#[test]
fn a_shorter_queue_ends_a_session_at_its_next_request() {
    let server = Fixture::start(config().max_queued_messages(64));
    let mut client = server.client_with_sessions([2, 3]);
    for (session, gate) in [(2, "a"), (3, "b")] {
        client.send_sql(session, query(&format!("gate {gate}")));
        server.control.wait_at(gate, 1);
        for _ in 0..30 {
            client.send_sql(session, query("one"));
        }
    }
    eventually(LONG, || server.stats().queued_requests == 60);
    server.server().runtime.reconfigure(|config| config.max_queued_messages(16)).expect("valid");
    client.send_sql(3, query("one"));
    for _ in 0..32 {
        let failure = client.reply(3).failure();
        assert_eq!(failure.text, "Session max_queued_messages limit exceed.");
    }
    assert_eq!(server.count(Counter::RequestsRefusedQueue), 1);
    server.control.open("a");
    server.control.open("b");
    assert_eq!(client.reply(2).one().text(), Some("a"));
    for _ in 0..30 {
        client.reply(2).one();
    }
}

/// Sets the flag on drop.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn limits_that_change_under_load_lose_no_request() {
    let server = Fixture::start(config());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = server.client_with_sessions([2, 3]);
                let mut at = 0;
                while !over.load(Ordering::Relaxed) {
                    for session in [2, 3] {
                        client.send_sql(session, query(&format!("echo {at}")));
                        client.send_sql(session, query("rows 20 100"));
                    }
                    for session in [2, 3] {
                        assert_eq!(client.reply(session).one().text(), Some(&*at.to_string()));
                        assert_eq!(client.reply(session).good().rows.len(), 20);
                    }
                    at += 1;
                }
            });
        }
        // Also if a change is refused, so that the test ends.
        let _over = Over(&over);
        for round in 0..often(500) as usize {
            let change = server.server().runtime.reconfigure(|config| {
                config
                    .max_sessions(4 + round % 3)
                    .max_sessions_per_connection(2 + round % 5)
                    .max_queued_messages(16 + round % 7)
                    .max_queued_bytes_per_connection(8 << (10 + round % 4))
                    .session_budget(1 + round % 64)
            });
            change.expect("valid");
        }
    });
    let refused = [Counter::RequestsRefusedQueue, Counter::RequestsRefusedBytes];
    assert_eq!(refused.map(|counter| server.count(counter)), [0, 0]);
}

#[test]
fn an_idle_connection_is_closed_with_its_sessions_and_a_waiting_one_is_not() {
    let server = Fixture::start(config().idle_timeout(Duration::from_millis(200)));
    let mut waits = server.client_with_sessions([2, 3]);
    waits.send_sql(2, query("defer a"));
    let deferred = server.control.take_one_deferred("a");
    let mut idle = server.client_with_sessions([2, 3, 4]);
    idle.execute(4, "one").one();
    server.wait_for(Counter::ClosedIdleTimeout, 1);
    assert!(idle.rest().is_empty(), "nothing but the end");
    eventually(LONG, || server.stats().sessions == 2);
    assert!(lab::engine::finish_with(deferred, "late"));
    assert_eq!(waits.reply(2).one().text(), Some("late"));
    // From here on this one is idle as well.
    server.wait_for(Counter::ClosedIdleTimeout, 2);
    eventually(LONG, || server.stats().sessions == 0);
}
