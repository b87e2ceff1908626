//! Peers that end their connection early, for example in the middle of a frame, and connect again.

use std::time::Duration;

use epoll_group::stats::Counter;
use lab::abuse::bout::Bout;
use lab::engine::config;

#[test]
fn resets_in_the_middle_of_a_frame() {
    Bout::new("resets-mid-frame", config())
        .run(|seen| seen.count(Counter::ClosedReset) >= 4 * seen.peers);
}

#[test]
fn fins_in_the_middle_of_a_frame_and_what_came_before_is_answered() {
    let tally = Bout::new("fins-mid-frame", config())
        .run(|seen| seen.count(Counter::ClosedByPeer) >= 4 * seen.peers);
    assert_eq!(tally.failed, 0, "{tally:?}");
    // All requests are answered, except those that were in progress at the end of the bout.
    assert!(tally.answered >= tally.cut, "{tally:?}");
}

#[test]
fn who_finishes_and_does_not_read_is_not_waited_for() {
    let config = config()
        .half_close_timeout(Duration::from_millis(300))
        .net_write_timeout(Duration::from_millis(600));
    Bout::new("half-closes", config)
        .run(|seen| seen.count(Counter::ConnectionsClosed) >= seen.peers);
}

#[test]
fn connections_come_and_go() {
    Bout::new("connection-churn", config())
        .run(|seen| seen.count(Counter::ConnectionsClosed) >= 20 * seen.peers);
}

#[test]
fn logins_come_and_go() {
    Bout::new("login-churn", config()).run(|seen| {
        seen.count(Counter::Logins) >= 10 * seen.peers
            && seen.count(Counter::SessionsClosed) >= 5 * seen.peers
    });
}
