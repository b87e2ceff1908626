//! Deadlines of connecting, of requests and of a silent server; interrupted requests.

use std::time::Duration;

use super::bench::{Bench, Sent, TIMEOUT, options, row, text};
use crate::client::error::{ErrorKind, Fate, Stage};
use crate::client::options::Options;
use crate::client::request::Request;
use crate::client::state::State;
use crate::codec::error::code::INTERRUPTED;

const SECOND: Duration = Duration::from_secs(1);

#[track_caller]
fn stage(kind: &ErrorKind) -> Stage {
    match kind {
        ErrorKind::Deadline(stage) => *stage,
        other => panic!("no deadline: {other:?}"),
    }
}

#[test]
fn connecting_and_logging_in_have_times_of_their_own() {
    let options = options().connect_timeout(SECOND).login_timeout(2 * SECOND);
    let mut bench = Bench::connected(options.clone());
    assert_eq!(bench.state.poll_timeout(), Some(bench.now + 2 * SECOND));
    bench.pass(2 * SECOND - Duration::from_millis(1));
    assert!(bench.state.lost().is_none());
    bench.pass(Duration::from_millis(1));
    assert_eq!(stage(&bench.lost()), Stage::Login(2 * SECOND));
    assert_eq!(bench.state.poll_timeout(), None);

    let now = bench.now;
    let mut state = State::new(options.into(), now);
    assert_eq!(state.poll_timeout(), Some(now + SECOND));
    state.handle_timeout(now + SECOND, 0);
    let lost = state.lost().expect("late");
    assert_eq!((stage(lost.kind()), lost.fate()), (Stage::Connect(SECOND), Fate::NotSent));
    // The connection has ended before.
    state.handle_connected(now + SECOND);
    assert!(state.take_out().is_empty());
}

fn probed() -> Options {
    options().probe_interval(10 * SECOND).probe_timeout(5 * SECOND)
}

#[test]
fn a_silent_server_is_probed_and_then_given_up() {
    let mut bench = Bench::ready_with(probed());
    let session = bench.session();
    let seq = bench.ask(session, "a");
    let _ = bench.sent();
    bench.pass(9 * SECOND);
    assert_eq!(bench.sent(), []);
    bench.pass(SECOND);
    assert_eq!(bench.sent(), [Sent::Probe]);
    bench.pass(4 * SECOND);
    assert_eq!(bench.sent(), []);
    bench.pass(SECOND);
    assert!(matches!(bench.lost(), ErrorKind::Lost(_)));
    assert_eq!(bench.bad(session, seq).fate(), Fate::Unknown);
}

#[test]
fn any_byte_answers_a_probe() {
    let mut bench = Bench::ready_with(probed());
    bench.pass(10 * SECOND);
    assert_eq!(bench.sent(), [Sent::Probe]);
    bench.pass(4 * SECOND);
    // Less than a header.
    let _ = bench.state.handle_input(&[0], bench.now);
    bench.pass(9 * SECOND);
    assert!(bench.state.lost().is_none());
    assert_eq!(bench.sent(), []);
    bench.pass(SECOND);
    assert_eq!(bench.sent(), [Sent::Probe]);
}

#[test]
fn a_request_that_is_late_says_whether_it_was_sent() {
    let mut bench = Bench::ready_with(options().max_pipelined(1).probe_interval(900 * SECOND));
    let session = bench.session();
    let [a, b] = ["a", "b"].map(|text| bench.ask(session, text));
    let told = [a, b].map(|seq| bench.watch(session, seq));
    assert_eq!(bench.state.poll_timeout(), Some(bench.now + TIMEOUT));
    let _ = bench.sent();
    bench.pass(TIMEOUT);
    bench.tell();
    assert!(told.iter().all(|told| told.times() == 1));
    assert_eq!(bench.sent(), [Sent::KillQuery(session)]);
    let (sent, held) = (bench.bad(session, a), bench.bad(session, b));
    assert_eq!((stage(sent.kind()), sent.fate()), (Stage::Reply, Fate::Unknown));
    assert_eq!((stage(held.kind()), held.fate()), (Stage::Enqueue, Fate::NotSent));
    // The next request waits for the abandoned answer.
    let c = bench.ask(session, "c");
    assert_eq!(bench.sent(), [Sent::KillQuery(session)]);
    bench.answer(session, "a");
    assert_eq!(bench.sent(), [text(session, "c")]);
    bench.answer(session, "c");
    bench.good(session, c, "c");
}

#[test]
fn an_answer_that_was_in_time_is_not_late_when_it_is_taken_later() {
    let mut bench = Bench::ready_with(options().probe_interval(900 * SECOND));
    let session = bench.session();
    let seq = bench.ask(session, "a");
    bench.answer(session, "a");
    bench.pass(2 * TIMEOUT);
    bench.expire(session, seq);
    bench.good(session, seq, "a");
}

#[test]
fn what_is_late_is_interrupted_when_it_is_the_oldest_and_not_before() {
    let mut bench = Bench::ready_with(options().probe_interval(900 * SECOND));
    let session = bench.session();
    let a = bench.ask(session, "a");
    let b = bench.request(session, Request::sql("b").timeout(SECOND)).expect("it lives");
    let c = bench.ask(session, "c");
    let _ = bench.sent();
    bench.pass(SECOND);
    assert!(bench.bad(session, b).is_timeout());
    assert_eq!(bench.sent(), [], "it would hit the one before it");
    bench.answer(session, "a");
    assert_eq!(bench.sent(), [], "a kill could reach the one behind");
    drop(bench.state.abandon(session, c));
    assert_eq!(bench.sent(), [Sent::KillQuery(session)]);
    bench.error(session, 1317);
    bench.answer(session, "c");
    bench.good(session, a, "a");
    assert!(bench.state.is_session_idle(session));
}

#[test]
fn a_session_that_is_dropped_with_an_answer_that_nobody_wants_is_killed() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.ask(session, "a");
    let _ = bench.sent();
    bench.frames(session, |encoder| row(encoder, "a"));
    drop(bench.state.abandon(session, seq));
    assert_eq!(bench.sent(), [Sent::KillQuery(session)]);
    bench.close(session);
    assert_eq!(bench.sent(), [Sent::KillSession(session), Sent::Close(session)]);
    bench.is_empty();
    // The same in the other order.
    let session = bench.session();
    let seq = bench.ask(session, "a");
    let _ = bench.sent();
    bench.close(session);
    assert_eq!(bench.sent(), [Sent::Close(session)]);
    drop(bench.state.abandon(session, seq));
    assert_eq!(bench.sent(), [Sent::KillSession(session), Sent::Close(session)]);
    bench.is_empty();
}

#[test]
fn what_is_waited_for_is_answered_though_its_session_was_dropped() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let [a, b] = ["a", "b"].map(|text| bench.ask(session, text));
    let _ = bench.sent();
    drop(bench.state.abandon(session, a));
    bench.close(session);
    assert_eq!(bench.sent(), [], "a kill could reach the wanted one");
    bench.answer(session, "a");
    assert_eq!(bench.sent(), [Sent::Close(session)]);
    bench.answer(session, "b");
    bench.ok(session);
    bench.good(session, b, "b");
    bench.is_empty();
}

#[test]
fn a_close_that_is_never_answered_is_forgotten() {
    let mut bench = Bench::ready_with(options().probe_interval(900 * SECOND));
    let session = bench.session();
    // No deadline is set while the session is idle.
    bench.pass(2 * TIMEOUT);
    bench.close(session);
    assert_eq!(bench.sent(), [Sent::Close(session)]);
    assert_eq!(bench.state.poll_timeout(), Some(bench.now + TIMEOUT));
    bench.pass(TIMEOUT - SECOND);
    assert_eq!(bench.state.outstanding(), 1);
    bench.pass(SECOND);
    // A deadline frees the session if the server does not answer.
    assert_eq!(bench.sent(), [Sent::KillSession(session), Sent::Close(session)]);
    bench.is_empty();
    bench.ok(session);
    bench.fatal(session, 8001);
    assert!(bench.state.lost().is_none());
    assert_eq!(bench.sent(), []);
}

#[test]
fn nothing_is_outstanding_of_a_session_for_one_statement_that_took_too_long() {
    let mut bench = Bench::ready();
    let (once, seq) = bench.ask_once("once");
    let session = bench.session();
    let _kept = bench.ask(session, "a");
    assert_eq!(bench.state.outstanding(), 2);
    bench.expire(once, seq);
    assert_eq!(bench.state.outstanding(), 1);
}

#[test]
fn a_close_waits_as_long_as_what_it_stands_behind() {
    let mut bench = Bench::ready_with(options().probe_interval(900 * SECOND));
    let session = bench.session();
    let request = Request::sql("a").timeout(3 * TIMEOUT);
    let seq = bench.request(session, request).expect("it lives");
    bench.close(session);
    assert_eq!(bench.sent(), [text(session, "a"), Sent::Close(session)]);
    bench.pass(2 * TIMEOUT);
    assert_eq!(bench.sent(), []);
    bench.answer(session, "a");
    bench.good(session, seq, "a");
    bench.pass(TIMEOUT);
    assert_eq!(bench.sent(), [Sent::KillSession(session), Sent::Close(session)]);
    bench.is_empty();
}

#[test]
fn one_that_is_late_with_its_close_has_its_outcome() {
    let mut bench = Bench::ready_with(options().probe_interval(900 * SECOND));
    let session = bench.session();
    let seq = bench.ask(session, "a");
    bench.close(session);
    let _ = bench.sent();
    bench.pass(TIMEOUT);
    assert_eq!(bench.sent(), [Sent::KillSession(session), Sent::Close(session)]);
    assert_eq!(bench.state.outstanding(), 0);
    assert!(bench.bad(session, seq).is_timeout());
    bench.is_empty();
}

#[test]
fn a_cancel_interrupts_what_was_sent_and_nothing_else() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let (once, _) = bench.ask_once("once");
    assert!(!bench.sent().is_empty());
    for idle_once_or_unknown in [session, once, 77] {
        bench.state.cancel(idle_once_or_unknown);
    }
    assert_eq!(bench.sent(), []);
    let seq = bench.ask(session, "a");
    bench.state.cancel(session);
    assert_eq!(bench.sent(), [text(session, "a"), Sent::KillQuery(session)]);
    bench.error(session, 1317);
    bench.fails(session, seq, 1317, Fate::Unknown);
    // The time limit of the server.
    let late = bench.ask(session, "late");
    assert_eq!(bench.sent(), [text(session, "late")]);
    bench.error(session, 3024);
    bench.fails(session, late, 3024, Fate::Unknown);
    bench.state.cancel(session);
    assert_eq!(bench.sent(), []);
}

#[test]
fn a_cancel_that_comes_late_does_not_reach_the_next_statement() {
    let mut bench = Bench::ready();
    let session = bench.session();
    bench.state.make_cancellable(session);
    let [a, b] = ["a", "b"].map(|text| bench.ask(session, text));
    assert_eq!(bench.sent(), [text(session, "a")]);
    // The server may have answered by now. It reads the kill before the next statement.
    bench.state.cancel(session);
    bench.answer(session, "a");
    assert_eq!(bench.sent(), [Sent::KillQuery(session), text(session, "b")]);
    bench.good(session, a, "a");
    bench.answer(session, "b");
    bench.good(session, b, "b");
}

#[test]
fn the_first_statement_can_be_cancelled_before_its_session_is_open() {
    let mut bench = Bench::ready();
    let session = bench.state.try_open().expect("it is ready");
    bench.state.make_cancellable(session);
    let _ = bench.ask(session, "a");
    bench.state.cancel(session);
    let sent = [Sent::New(session), text(session, "a"), Sent::KillQuery(session)];
    assert_eq!(bench.sent(), sent);
}

#[test]
fn nothing_is_killed_while_a_wanted_statement_was_sent_behind_it() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let [a, b] = ["a", "b"].map(|text| bench.ask(session, text));
    let _ = bench.sent();
    bench.state.cancel(session);
    drop(bench.state.abandon(session, a));
    assert_eq!(bench.sent(), [], "a kill could reach the one behind");
    drop(bench.state.abandon(session, b));
    assert_eq!(bench.sent(), [Sent::KillQuery(session)]);
}

#[test]
fn a_server_that_still_takes_an_upload_is_not_given_up() {
    let mut bench = Bench::ready_with(probed());
    bench.unsent = 1;
    bench.pass(10 * SECOND);
    assert_eq!(bench.sent(), [Sent::Probe]);
    for _ in 0..3 {
        bench.pass(5 * SECOND);
        assert_eq!(bench.state.poll_timeout(), Some(bench.now + 5 * SECOND));
    }
    bench.unsent = 0;
    bench.pass(4 * SECOND);
    assert!(bench.state.lost().is_none());
    bench.pass(SECOND);
    assert!(matches!(bench.lost(), ErrorKind::Lost(_)));
    assert_eq!(bench.sent(), []);
}

#[test]
fn a_statement_given_up_is_interrupted_again_when_a_request_waits_for_it() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let a = bench.ask(session, "a");
    drop(bench.state.abandon(session, a));
    assert_eq!(bench.sent(), [text(session, "a"), Sent::KillQuery(session)]);
    // The kill came before the statement ran, so the server goes on.
    let b = bench.ask(session, "b");
    assert_eq!(bench.sent(), [Sent::KillQuery(session)]);
    bench.error(session, INTERRUPTED);
    assert_eq!(bench.sent(), [text(session, "b")]);
    bench.answer(session, "b");
    bench.good(session, b, "b");
}

#[test]
fn a_statement_without_a_session_is_interrupted_when_its_answer_is_not_wanted() {
    let mut bench = Bench::ready_with(options().max_answer_bytes(1 << 20));
    let [dropped, late, expired, long] = ["a", "b", "c", "d"].map(|text| bench.ask_once(text));
    let _ = bench.sent();
    drop(bench.state.abandon(dropped.0, dropped.1));
    assert_eq!(bench.sent(), [Sent::KillQuery(dropped.0)]);
    bench.expire(expired.0, expired.1);
    assert_eq!(bench.sent(), [Sent::KillQuery(expired.0)]);
    bench.frames(long.0, |encoder| row(encoder, &"x".repeat(2 << 20)));
    assert!(matches!(bench.bad(long.0, long.1).kind(), ErrorKind::TooMuch { .. }));
    assert_eq!(bench.sent(), [Sent::KillQuery(long.0)]);
    bench.pass(TIMEOUT);
    assert!(bench.sent().contains(&Sent::KillQuery(late.0)));
    assert!(bench.bad(late.0, late.1).is_timeout());
    assert!(bench.bad(expired.0, expired.1).is_timeout());
    for (session, seq) in [dropped, late, expired, long] {
        // The server has answered before it reads the kill, and does not know the session.
        bench.fatal(session, 8001);
        drop(bench.state.abandon(session, seq));
    }
    assert_eq!(bench.sent(), []);
    bench.is_empty();
}

#[test]
fn a_statement_without_a_session_is_not_interrupted_behind_its_end_or_before_it_is_sent() {
    let mut bench = Bench::ready();
    let (answered, a) = bench.ask_once("a");
    bench.answer(answered, "a");
    bench.state.set_full(true);
    let (held, b) = bench.ask_once("b");
    let _ = bench.sent();
    for (session, seq) in [(answered, a), (held, b)] {
        bench.expire(session, seq);
        drop(bench.state.abandon(session, seq));
    }
    assert_eq!(bench.sent(), []);
    bench.is_empty();
}
