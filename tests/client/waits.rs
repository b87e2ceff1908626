//! Callers that wait for a session: how often the client looks at the time for them.

use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{Client, Error, ErrorKind, Request, Stage};
use epoll_group::stats::Counter;
use lab::LONG;
use lab::both::{Both, options};

#[test]
fn a_deadline_that_has_passed_is_not_looked_at_again_while_another_caller_waits() {
    let both = Both::start_with(|options| {
        options.connections(1).sessions_per_connection(1).session_timeout(LONG * 100)
    });
    let session = both.session();
    let (give, given) = mpsc::channel();
    both.client.session_then(move |session| give.send(session.is_ok()).expect("it listens"));
    let before = both.runtime.stats().get(Counter::TimersFired);
    // The second deadline leaves time for many looks, if the first one caused any.
    for limit in [Duration::from_millis(1), Duration::from_millis(100)] {
        let error = both.client.session_within(limit).expect_err("one session, which is in use");
        assert!(matches!(error.kind(), ErrorKind::Deadline(Stage::Session(_))), "{error}");
    }
    let fired = both.runtime.stats().get(Counter::TimersFired) - before;
    assert!(fired <= 4, "{fired} timers fired for two deadlines");
    drop(session);
    assert!(given.recv_timeout(LONG).expect("served"));
}

/// Time that a caller has waited in vain for a session.
#[track_caller]
fn waited(error: Error) -> Duration {
    match error.kind() {
        ErrorKind::Deadline(Stage::Session(waited)) => *waited,
        other => panic!("no wait for a session: {other}"),
    }
}

#[test]
fn the_timeout_of_a_request_includes_the_wait_for_a_connection() {
    // The kernel accepts the connection, and the login gets no answer.
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("bound");
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let (short, long) = (Duration::from_millis(20), Duration::from_secs(5));
    let start = |request, session| {
        let options = options(address).login_timeout(LONG);
        let options = options.request_timeout(request).session_timeout(session);
        Client::new(&runtime.handle(), options).expect("good options")
    };
    for client in [start(short, long), start(long, short)] {
        assert!(waited(client.execute("one").expect_err("no connection")) < long);
        assert!(waited(client.timestamps(1).expect_err("no connection")) < long);
        let (give, given) = mpsc::channel();
        client.timestamps_then(1, move |first| give.send(first).expect("it listens"));
        let first = given.recv_timeout(LONG).expect("called");
        assert!(waited(first.expect_err("no connection")) < long);
    }
    let request = Request::sql("one").timeout(short);
    assert!(waited(start(long, long).execute(request).expect_err("no connection")) < long);
}
