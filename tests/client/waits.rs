//! Callers that wait for a session: how often the client looks at the time for them.

use std::sync::mpsc;
use std::time::Duration;

use epoll_group::client::{ErrorKind, Stage};
use epoll_group::stats::Counter;
use lab::LONG;
use lab::both::Both;

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
