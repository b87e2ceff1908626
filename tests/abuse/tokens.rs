//! Invalid credit of every kind, for results that wait for credit.

use std::time::Duration;

use epoll_group::Config;
use epoll_group::stats::Counter;
use lab::abuse::bout::Bout;
use lab::engine;

/// A result that waits for credit ends at its deadline.
fn config() -> Config {
    engine::config().request_timeout(Duration::from_secs(1))
}

const KIB: u64 = 1 << 10;

#[test]
fn who_never_grants_holds_nothing_and_is_expired() {
    let tally = Bout::new("never-grants", config()).bytes_each(64 * KIB).run(|seen| {
        seen.count(Counter::TokenWaits) >= 16 * seen.peers
            && seen.count(Counter::RequestsExpired) >= 16 * seen.peers
    });
    assert_eq!(tally.closed_by_server, 0, "{tally:?}");
    assert!(tally.failed >= 1, "{tally:?}");
}

#[test]
fn who_grants_nothing_is_expired() {
    Bout::new("token-zero", config())
        .bytes_each(64 * KIB)
        .run(|seen| seen.count(Counter::RequestsExpired) >= 16 * seen.peers);
}

#[test]
fn who_grants_everything_gets_it_and_no_more_is_kept_for_it() {
    Bout::new("token-huge", engine::config())
        .run(|seen| seen.count(Counter::BytesSent) >= (4 << 20) * seen.peers);
}

#[test]
fn who_grants_less_than_nothing_is_expired_and_closed() {
    Bout::new("token-negative", config().max_glitches(100)).bytes_each(64 * KIB).run(|seen| {
        seen.count(Counter::RequestsExpired) >= seen.peers
            && seen.count(Counter::ClosedGlitches) >= seen.peers
    });
}
