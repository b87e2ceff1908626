//! Requests of a server's sessions that callbacks of a client answer, as in a proxy.

use std::sync::mpsc;

use epoll_group::stall;
use epoll_group::stats::Counter;
use lab::both::Both;
use lab::engine::finish_with;
use lab::xrpc::request::query;
use lab::{LONG, often};

#[test]
fn an_answered_session_is_idle_again_without_a_task() {
    let both = Both::start();
    let server = &both.server;
    let mut client = server.client_with_sessions([2]);
    let mut session = both.session();
    let rounds = 50;
    for _ in 0..rounds {
        client.send_sql(2, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        session.execute_then("one", move |_| assert!(finish_with(deferred, "done")));
        assert_eq!(client.reply(2).one().text(), Some("done"));
    }
    // A handler may still be about to return when its request is answered.
    let tasks = server.stats().get(Counter::UrgentTasks);
    assert!(tasks < rounds / 5, "{tasks} tasks");
}

/// The client gets its answer, and the answer to its next request, although the callback goes on
/// waiting for that client.
#[test]
fn an_answered_session_does_not_wait_for_the_rest_of_the_callback() {
    let both = Both::start();
    let server = &both.server;
    let mut client = server.client_with_sessions([2]);
    let mut session = both.session();
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
