//! Floods of whole, small messages. A peer whose messages are of no use is closed, and its
//! neighbours are not harmed.

use std::time::Duration;

use epoll_group::Config;
use epoll_group::stats::Counter;
use lab::abuse::Tally;
use lab::abuse::bout::Bout;
use lab::engine;

const SHORT: Duration = Duration::from_secs(1);

fn config() -> Config {
    engine::config().max_glitches(1000).max_sessions_per_connection(64)
}

/// Asserts that each attacker is closed for its glitches, again and again.
fn ends_by_glitches(name: &str) -> Tally {
    ends_by_so_many_glitches(name, 1000)
}

fn ends_by_so_many_glitches(name: &str, most: usize) -> Tally {
    Bout::new(name, config().max_glitches(most)).run(|seen| {
        seen.count(Counter::ClosedGlitches) >= seen.peers
            && seen.count(Counter::Glitches) >= most as u64 * seen.peers
    })
}

#[test]
fn probes_that_are_not_read_stop_the_reading_and_are_cut() {
    let config = config()
        .net_write_timeout(SHORT)
        .tcp_send_buf(32 << 10)
        .write_high_watermark_bytes(64 << 10)
        .write_low_watermark_bytes(16 << 10);
    Bout::new("ping-flood", config).run(|seen| {
        seen.count(Counter::ReadsPaused) >= seen.peers
            && seen.count(Counter::ClosedWriteTimeout) >= seen.peers
    });
}

#[test]
fn probes_of_strangers_end_with_their_time() {
    let config = config().login_timeout(SHORT).net_write_timeout(SHORT);
    Bout::new("ping-flood-before-login", config).run(|seen| {
        let cut = [Counter::ClosedLoginTimeout, Counter::ClosedWriteTimeout];
        cut.iter().map(|&counter| seen.count(counter)).sum::<u64>() >= seen.peers
    });
}

#[test]
fn probes_that_are_read_take_their_turn() {
    let tally =
        Bout::new("ping-flood-read", config()).run(|seen| seen.count(Counter::TurnsRequeued) >= 10);
    assert_eq!(tally.failed, 0, "{tally:?}");
}

#[test]
fn empty_frames() {
    ends_by_glitches("empty-frames");
}

#[test]
fn offers_to_nobody() {
    ends_by_glitches("offer-flood");
}

#[test]
fn sessions_that_never_were() {
    let tally = ends_by_glitches("unknown-sessions");
    assert!(tally.failed >= 1000, "{tally:?}");
}

#[test]
fn session_ids_without_end() {
    Bout::new("session-id-flood", config()).run(|seen| {
        seen.count(Counter::ClosedGlitches) >= seen.peers
            && seen.count(Counter::SessionsRefusedLimit) >= 900 * seen.peers
    });
}

#[test]
fn the_same_id_again_and_again() {
    ends_by_glitches("duplicate-ids");
}

#[test]
fn sessions_opened_and_closed_unused() {
    ends_by_glitches("open-close-pairs");
}

#[test]
fn sessions_killed_as_soon_as_they_have_something_to_do() {
    ends_by_glitches("rapid-reset");
}

#[test]
fn statements_killed_as_soon_as_they_are_asked() {
    // A kill counts as a glitch only if it comes too late. On a slow machine few do.
    ends_by_so_many_glitches("rapid-cancel", 100);
}

#[test]
fn statements_without_a_session_killed_as_soon_as_they_are_asked() {
    ends_by_glitches("rapid-reset-auto");
}

#[test]
fn one_session_asked_without_end() {
    // The session goes on answering. Requests that do not fit into its queue wait in its
    // connection.
    let config = config().max_queued_messages(16);
    Bout::new("pipelining-flood", config).run(|seen| {
        // The neighbours have up to sixteen requests in progress, all together.
        let most = 16 * (seen.peers + 1);
        assert!(seen.stats.queued_requests <= most, "{}", seen.stats);
        seen.count(Counter::RequestsExecuted) >= 1_000 * seen.peers
    });
}

#[test]
fn kills_that_would_be_logged() {
    ends_by_glitches("log-flood");
}
