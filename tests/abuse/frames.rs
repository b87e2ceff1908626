//! Bytes that are no frame, no message, or come at the wrong time: the answer is an error, and the
//! memory in use is what has come.

use epoll_group::stats::Counter;
use lab::abuse::bout::Bout;
use lab::engine::config;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[test]
fn a_declared_length_costs_nothing() {
    let tally = Bout::new("lying-lengths", config())
        .bytes_each(8 * KIB)
        .run(|seen| seen.count(Counter::SessionsOpened) >= seen.peers);
    assert_eq!((tally.failed, tally.closed_by_server), (0, 0), "{tally:?}");
}

#[test]
fn lengths_that_cannot_be_end_the_connection() {
    let tally = Bout::new("bad-lengths", config())
        .bytes_each(8 * KIB)
        .run(|seen| seen.count(Counter::ProtocolErrors) >= 4 * seen.peers);
    assert!(tally.failed >= tally.closed_by_server, "each is told why: {tally:?}");
}

#[test]
fn values_nested_without_end_are_refused() {
    Bout::new("deep-nesting", config())
        .run(|seen| seen.count(Counter::ProtocolErrors) >= 4 * seen.peers);
}

#[test]
fn lists_without_end_are_refused() {
    Bout::new("huge-repeats", config())
        .bytes_each(16 * MIB)
        .run(|seen| seen.count(Counter::ProtocolErrors) >= seen.peers);
}

#[test]
fn texts_that_are_no_texts_are_bytes_or_an_error() {
    let tally = Bout::new("invalid-utf8", config())
        .run(|seen| seen.count(Counter::ConnectionsClosed) >= 20 * seen.peers);
    // Four requests of each peer may be in progress at the end of the bout.
    assert!(5 * tally.cut <= tally.connected, "{tally:?}");
}

#[test]
fn kinds_of_servers_and_of_nobody_end_the_connection() {
    let tally = Bout::new("wrong-direction", config())
        .run(|seen| seen.count(Counter::ProtocolErrors) >= 4 * seen.peers);
    assert!(tally.failed >= 1, "{tally:?}");
}

#[test]
fn messages_out_of_season_are_errors_and_end_when_there_are_too_many() {
    Bout::new("wrong-state", config().max_glitches(100)).run(|seen| {
        seen.count(Counter::LoginsFailed) + seen.count(Counter::ProtocolErrors) >= seen.peers
            && seen.count(Counter::ClosedGlitches) >= seen.peers / 2
    });
}
