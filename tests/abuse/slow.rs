//! Slow peers and peers that are gone: which timeout cuts them, and service to their neighbours.

use std::time::Duration;

use epoll_group::stats::Counter;
use lab::abuse::bout::Bout;
use lab::engine::config;

const SHORT: Duration = Duration::from_millis(300);
const KIB: u64 = 1 << 10;

#[test]
fn one_byte_writers_get_the_same_answers() {
    let bout = Bout::new("one-byte-writers", config()).bytes_each(8 * KIB);
    let tally = bout.run(|seen| {
        seen.count(Counter::Logins) >= seen.peers && seen.count(Counter::BytesReceived) >= 20_000
    });
    assert_eq!((tally.failed, tally.closed_by_server), (0, 0), "{tally:?}");
    assert!(tally.answered > 0);
}

#[test]
fn who_does_not_finish_the_login_is_closed_however_busy() {
    let config = config().login_timeout(SHORT).first_bytes_timeout(SHORT);
    Bout::new("slowloris", config).bytes_each(8 * KIB).run(|seen| {
        seen.count(Counter::ClosedLoginTimeout) >= seen.peers / 2
            && seen.count(Counter::ClosedFirstBytesTimeout) >= 1
    });
}

#[test]
fn an_unfinished_frame_costs_what_has_come_of_it() {
    let config = config().frame_timeout(SHORT);
    let bout = Bout::new("slowloris-logged-in", config).bytes_each(8 * KIB);
    bout.run(|seen| seen.count(Counter::ClosedFrameTimeout) >= 2 * seen.peers);
}

#[test]
fn slow_readers_hold_bounded_memory_and_no_thread_and_are_cut() {
    let config = config().net_write_timeout(SHORT);
    let tally = Bout::new("slow-readers", config)
        .run(|seen| seen.count(Counter::ClosedWriteTimeout) >= seen.peers);
    assert_eq!(tally.failed, 0, "{tally:?}");
}

#[test]
fn trickle_readers_are_cut_though_they_always_read_something() {
    let config = config().net_write_timeout(SHORT);
    Bout::new("trickle-readers", config)
        .run(|seen| seen.count(Counter::ClosedWriteTimeout) >= 2 * seen.peers);
}

#[test]
fn who_says_nothing_is_closed_and_who_has_logged_in_may_be_silent() {
    let config = config().first_bytes_timeout(SHORT);
    let bout = Bout::new("silent-peers", config).bytes_each(8 * KIB);
    bout.run(|seen| {
        seen.count(Counter::ClosedFirstBytesTimeout) >= seen.peers
            && seen.count(Counter::Logins) >= seen.peers / 2
    });
}

#[test]
fn peers_that_vanish_with_data_in_flight_are_noticed() {
    let config = config().net_write_timeout(SHORT);
    Bout::new("black-holes", config)
        .run(|seen| seen.count(Counter::ClosedWriteTimeout) >= seen.peers);
}

#[test]
fn peers_that_forget_the_connection_are_noticed() {
    let config = config().net_write_timeout(SHORT);
    Bout::new("half-open", config).run(|seen| {
        let gone = [Counter::ClosedReset, Counter::ClosedWriteTimeout, Counter::ClosedIoError];
        gone.iter().map(|&counter| seen.count(counter)).sum::<u64>() >= 2 * seen.peers
    });
}
