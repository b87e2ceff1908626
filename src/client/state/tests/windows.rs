//! Credit granted to a server, and memory of an answer that is not read.

use super::bench::{Bench, Sent, options, row};
use crate::client::error::{ErrorKind, Fate};

const WINDOW: usize = 10 << 10;

/// Bench with a running statement whose first row was read.
fn bench() -> (Bench, u64, u64) {
    let mut bench = Bench::ready_with(options().window_bytes(WINDOW).max_answer_bytes(1 << 20));
    let session = bench.session();
    let seq = bench.ask(session, "a");
    let _ = bench.sent();
    bench.frames(session, |encoder| row(encoder, "a"));
    assert!(!bench.take(session, seq).is_nothing());
    (bench, session, seq)
}

/// Sends rows of about this many bytes in all.
fn rows(bench: &mut Bench, session: u64, bytes: usize) {
    let text = "x".repeat(100);
    bench.frames(session, |encoder| {
        (0..bytes / 117).for_each(|_| encoder.row(|row| row.text(&text)).expect("it is short"));
    });
}

fn stop(bench: &mut Bench, session: u64) {
    bench.frames(session, |encoder| encoder.token_done());
}

#[test]
fn more_is_granted_when_little_is_left_and_what_came_was_read() {
    let (mut bench, session, seq) = bench();
    rows(&mut bench, session, WINDOW / 2);
    bench.take(session, seq);
    assert_eq!(bench.sent(), [], "half of it is left");
    rows(&mut bench, session, WINDOW * 2 / 5);
    assert_eq!(bench.sent(), [], "nothing was read");
    bench.take(session, seq);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
    bench.take(session, seq);
    assert_eq!(bench.sent(), [], "once");
}

#[test]
fn a_server_that_stopped_goes_on_when_what_came_was_read() {
    let (mut bench, session, seq) = bench();
    rows(&mut bench, session, WINDOW);
    stop(&mut bench, session);
    assert_eq!(bench.sent(), []);
    bench.take(session, seq);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
    // The server stops early, and gets an offer at once.
    rows(&mut bench, session, WINDOW / 10);
    stop(&mut bench, session);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
}

/// At most 2.2 windows are unread then.
#[test]
fn a_stop_that_crosses_a_grant_is_answered_with_another_window() {
    let (mut bench, session, seq) = bench();
    rows(&mut bench, session, WINDOW * 17 / 20);
    bench.take(session, seq);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
    // The server stops before it gets the offer.
    rows(&mut bench, session, WINDOW * 3 / 20);
    stop(&mut bench, session);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
    rows(&mut bench, session, 2 * WINDOW);
    stop(&mut bench, session);
    assert_eq!(bench.sent(), [], "nothing was read");
    let unread = bench.take(session, seq).bytes.len();
    assert!((2 * WINDOW..=WINDOW * 11 / 5).contains(&unread), "{unread} bytes");
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
}

#[test]
fn who_watches_for_more_than_a_window_is_told_of_a_stop() {
    let (mut bench, session, seq) = bench();
    rows(&mut bench, session, WINDOW);
    let told = bench.watch(session, seq);
    bench.tell();
    assert_eq!(told.times(), 0);
    stop(&mut bench, session);
    bench.tell();
    assert_eq!(told.times(), 1);
}

#[test]
fn an_answer_that_is_thrown_away_is_granted_what_it_needs_to_end() {
    let (mut bench, session, seq) = bench();
    drop(bench.state.abandon(session, seq));
    assert_eq!(bench.sent(), [Sent::KillQuery(session)]);
    rows(&mut bench, session, WINDOW);
    stop(&mut bench, session);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
    bench.error(session, 1317);
    assert!(bench.state.is_session_idle(session));
}

#[test]
fn a_late_answer_whose_server_has_stopped_goes_on() {
    let (mut bench, session, seq) = bench();
    rows(&mut bench, session, WINDOW);
    bench.expire(session, seq);
    assert_eq!(bench.sent(), [Sent::KillQuery(session)]);
    stop(&mut bench, session);
    assert!(bench.bad(session, seq).is_timeout());
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
}

#[test]
fn a_server_that_stops_without_end_and_does_not_read_is_offered_no_more() {
    let (mut bench, session, seq) = bench();
    for _ in 0..3 {
        stop(&mut bench, session);
    }
    assert_eq!(bench.sent().len(), 3, "it reads");
    bench.state.set_full(true);
    for _ in 0..1000 {
        stop(&mut bench, session);
    }
    bench.open(session, seq);
    assert_eq!(bench.sent(), []);
    // No byte is there to take, so a notified caller would only wait again.
    let told = bench.watch(session, seq);
    bench.tell();
    assert_eq!(told.times(), 0);
    bench.state.set_full(false);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
    bench.state.set_full(false);
    assert_eq!(bench.sent(), [], "once");
}

#[test]
fn what_was_read_meanwhile_is_granted_when_the_server_reads_again() {
    let (mut bench, session, seq) = bench();
    rows(&mut bench, session, WINDOW);
    bench.state.set_full(true);
    stop(&mut bench, session);
    let told = bench.watch(session, seq);
    bench.tell();
    assert_eq!(told.times(), 1, "there is something to read");
    assert!(!bench.take(session, seq).is_nothing());
    assert_eq!(bench.sent(), []);
    bench.state.set_full(false);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
}

#[test]
fn nothing_is_granted_to_what_has_ended() {
    let (mut bench, session, seq) = bench();
    rows(&mut bench, session, WINDOW);
    stop(&mut bench, session);
    bench.fatal(session, 1053);
    let taken = bench.take(session, seq);
    assert!(taken.bytes.len() > WINDOW / 2 && taken.result.is_some());
    stop(&mut bench, session);
    assert_eq!(bench.sent(), []);
    let (mut bench, session, seq) = self::bench();
    rows(&mut bench, session, WINDOW);
    bench.frames(session, |encoder| {
        encoder.fetch_done();
        encoder.execute_ok();
    });
    bench.take(session, seq);
    stop(&mut bench, session);
    assert_eq!(bench.sent(), []);
}

#[test]
fn who_does_not_keep_to_the_window_is_cut() {
    let (mut bench, session, seq) = bench();
    let other = bench.session();
    for _ in 0..110 {
        rows(&mut bench, session, WINDOW);
    }
    assert_eq!(bench.sent(), [Sent::KillSession(session), Sent::Close(session)]);
    let taken = bench.take(session, seq);
    assert!(taken.bytes.len() <= (1 << 20) + 200);
    let error = taken.result.expect("an outcome").expect_err("too much");
    assert!(matches!(error.kind(), ErrorKind::TooMuch { .. }), "{error}");
    assert_eq!(error.fate(), Fate::Unknown);
    assert!(!bench.state.is_alive(session) && bench.state.is_alive(other));
}

#[test]
fn an_answer_given_up_is_granted_its_rows_if_a_wanted_statement_was_sent_behind_it() {
    let (mut bench, session, seq) = bench();
    let behind = bench.ask(session, "b");
    let _ = bench.sent();
    rows(&mut bench, session, WINDOW);
    stop(&mut bench, session);
    drop(bench.state.abandon(session, seq));
    assert_eq!(bench.sent(), [Sent::Offer(session)], "a kill could reach the one behind");
    rows(&mut bench, session, WINDOW);
    stop(&mut bench, session);
    assert_eq!(bench.sent(), [Sent::Offer(session)]);
    bench.frames(session, |encoder| {
        encoder.fetch_done();
        encoder.execute_ok();
    });
    bench.answer(session, "b");
    bench.good(session, behind, "b");
}
