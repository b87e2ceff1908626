//! Failing logins without pause: they are checked within limits, and other peers can log in.

use epoll_group::Config;
use epoll_group::stats::Counter;
use lab::abuse::bout::Bout;
use lab::engine;

const KIB: u64 = 1 << 10;

fn config() -> Config {
    engine::config().max_login_failures_per_address(10)
}

/// Asserts that logins of an address are refused unchecked after its ten failures.
fn are_not_looked_at(name: &str) {
    let tally = Bout::new(name, config())
        .bytes_each(8 * KIB)
        .run(|seen| seen.count(Counter::LoginsRefused) >= 10 * seen.peers);
    assert!(tally.failed >= 10, "{tally:?}");
}

#[test]
fn passwords_are_tried() {
    are_not_looked_at("wrong-passwords");
}

#[test]
fn names_are_tried() {
    are_not_looked_at("unknown-users");
}

#[test]
fn proofs_of_other_challenges() {
    are_not_looked_at("replayed-proofs");
}

#[test]
fn proofs_that_are_cut_or_bent() {
    Bout::new("truncated-proofs", config()).bytes_each(8 * KIB).run(|seen| {
        seen.count(Counter::LoginsFailed) >= 10 && seen.count(Counter::LoginsRefused) >= seen.peers
    });
}

#[test]
fn names_and_proofs_of_any_size() {
    Bout::new("huge-login-fields", config()).bytes_each(8 * KIB).run(|seen| {
        // Fields that are too large make the message malformed.
        seen.count(Counter::ProtocolErrors) >= seen.peers
            && seen.count(Counter::LoginsFailed) + seen.count(Counter::LoginsRefused) >= seen.peers
    });
}

#[test]
fn passwords_are_tried_from_many_addresses() {
    // Each address has ten failures of its own. The attempts of each connection are limited, too.
    Bout::new("wrong-passwords-scattered", config()).bytes_each(8 * KIB).run(|seen| {
        seen.count(Counter::LoginsFailed) >= 10 * seen.peers
            && seen.count(Counter::LoginsRefused) >= seen.peers
    });
}
