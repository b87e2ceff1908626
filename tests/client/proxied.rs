//! Requests of a server's sessions that callbacks of a client answer, as in a proxy.

use std::sync::mpsc;

use epoll_group::client::{Client, Session};
use epoll_group::stall;
use epoll_group::stats::Counter;
use lab::both::options;
use lab::engine::{Fixture, config, finish_with};
use lab::xrpc::request::query;
use lab::{LONG, often};

/// A session of a client that the workers of `server` serve too.
fn session_on(server: &Fixture) -> Session {
    let client = Client::new(&server.server().runtime.handle(), options(server.addr()));
    client.expect("good options").session().expect("a session")
}

#[test]
fn an_answered_session_is_idle_again_without_a_task() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let mut session = session_on(&server);
    // Without the events that a worker has left to others.
    let tasks = || {
        server.count(Counter::UrgentTasks).saturating_sub(server.count(Counter::BatchEventsQueued))
    };
    let (before, rounds) = (tasks(), 50);
    for _ in 0..rounds {
        client.send_sql(2, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        session.execute_then("defer b", move |_| assert!(finish_with(deferred, "done")));
        // The callback is known before the answer comes.
        assert!(finish_with(server.control.take_one_deferred("b"), "answer"));
        assert_eq!(client.reply(2).one().text(), Some("done"));
    }
    // The session that this thread answers is a task each time, the other one is not. A handler may
    // still be about to return when its request is answered.
    let tasks = tasks().saturating_sub(before);
    assert!(tasks < rounds * 3 / 2, "{tasks} tasks");
}

/// The client gets its answer, and the answer to its next request, although the callback goes on
/// waiting for that client.
#[test]
fn an_answered_session_does_not_wait_for_the_rest_of_the_callback() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let mut session = session_on(&server);
    for round in 0..often(20) {
        let is_announced = round % 2 == 0;
        client.send_sql(2, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        let (go, gone) = mpsc::channel();
        let (give, given) = mpsc::channel();
        session.execute_then("one", move |_| {
            assert!(finish_with(deferred, "done"));
            let wait = || gone.recv_timeout(LONG);
            let waited = if is_announced { stall::run(wait) } else { wait() };
            give.send(waited).expect("the test listens");
        });
        assert_eq!(client.reply(2).one().text(), Some("done"));
        client.execute(2, "one").one();
        go.send(()).expect("the callback waits");
        assert_eq!(given.recv_timeout(LONG).expect("called"), Ok(()));
    }
}
