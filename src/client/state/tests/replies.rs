//! Assignment of frames to requests, and ends of requests and sessions.

use super::bench::{Bench, Sent, TIMEOUT, answer, encoded, frames, options, row, text};
use crate::client::error::{Error, ErrorKind, Fate};
use crate::client::request::{Request, Wire};
use crate::client::slot::Asked;
use crate::codec::error::code::{CACHE_MISS, INTERRUPTED};
use crate::codec::message::{Notice, ServerKind, ServerMessage};
use crate::codec::proto::generic::ErrorReply;
use crate::codec::proto::tso::Operation;
use crate::codec::row::Column;

#[test]
fn a_session_is_opened_with_its_first_request_and_closed_behind_its_last() {
    let mut bench = Bench::ready();
    let session = bench.state.try_open().expect("it is ready");
    assert_eq!(bench.sent(), []);
    let (a, b) = (bench.ask(session, "a"), bench.ask(session, "b"));
    assert_eq!(bench.sent(), [Sent::New(session), text(session, "a"), text(session, "b")]);
    bench.close(session);
    assert_eq!(bench.sent(), [Sent::Close(session)]);
    bench.ok(session);
    bench.input(&[answer(session, "a"), answer(session, "b")].concat());
    bench.ok(session);
    bench.good(session, b, "b");
    bench.good(session, a, "a");
    bench.is_empty();
}

#[test]
fn one_that_was_not_used_is_not_closed_either() {
    let mut bench = Bench::ready();
    let session = bench.state.try_open().expect("it is ready");
    assert_eq!(bench.state.open_sessions(), 1);
    bench.close(session);
    assert!(bench.state.take_freed());
    assert_eq!(bench.sent(), []);
    bench.is_empty();
}

#[test]
fn what_stands_behind_an_opening_that_is_refused_is_refused() {
    let mut bench = Bench::ready_with(options().max_pipelined(2));
    let session = bench.state.try_open().expect("it is ready");
    let (sent, held) = (bench.ask(session, "sent"), bench.ask(session, "held"));
    assert_eq!(bench.sent(), [Sent::New(session), text(session, "sent")]);
    bench.fatal(session, 8001);
    assert!(bench.state.take_freed());
    assert_eq!(bench.state.open_sessions(), 0);
    bench.fails(session, sent, 8001, Fate::Refused);
    bench.fails(session, held, 8001, Fate::Refused);
    assert!(!bench.state.is_alive(session));
    // The server answers the requests behind it too late.
    bench.fatal(session, 8001);
    bench.close(session);
    assert_eq!(bench.sent(), []);
    bench.is_empty();
}

#[test]
fn while_the_socket_is_full_requests_are_held() {
    let mut bench = Bench::ready();
    let (one, other) = (bench.session(), bench.session());
    bench.state.set_full(true);
    let (a, b) = (bench.ask(one, "a"), bench.ask(other, "b"));
    let c = bench.ask(one, "c");
    assert_eq!(bench.sent(), []);
    bench.state.set_full(false);
    assert_eq!(bench.sent(), [text(one, "a"), text(one, "c"), text(other, "b")]);
    bench.answer(one, "a");
    bench.answer(one, "c");
    bench.answer(other, "b");
    bench.good(one, a, "a");
    bench.good(one, c, "c");
    bench.good(other, b, "b");
}

#[test]
fn one_more_request_than_may_be_outstanding_is_refused_and_not_sent() {
    let mut bench = Bench::ready_with(options().max_outstanding(2).max_pipelined(1));
    let session = bench.session();
    let [a, _held] = ["a", "held"].map(|text| bench.ask(session, text));
    let error = bench.request(session, Request::sql("more")).expect_err("two are outstanding");
    assert!(matches!(error.kind(), ErrorKind::TooManyOutstanding(2)), "{error}");
    assert_eq!(error.fate(), Fate::NotSent);
    // Other sessions have limits of their own, and a taken answer makes room.
    bench.session();
    bench.answer(session, "a");
    bench.request(session, Request::sql("more")).expect_err("the answer is not taken");
    bench.good(session, a, "a");
    bench.ask(session, "b");
}

#[test]
fn the_opening_of_a_session_is_no_outstanding_request() {
    let mut bench = Bench::ready_with(options().max_outstanding(2));
    let session = bench.state.try_open().expect("it is ready");
    let _asked = ["a", "b"].map(|text| bench.ask(session, text));
    bench.request(session, Request::sql("more")).expect_err("two are outstanding");
    bench.ok(session);
    bench.request(session, Request::sql("more")).expect_err("two are outstanding");
}

#[test]
fn dropped_requests_make_room_unless_their_answers_are_to_come() {
    let mut bench = Bench::ready_with(options().max_outstanding(2).max_pipelined(1));
    let session = bench.session();
    let full = |bench: &mut Bench| {
        bench.request(session, Request::sql("more")).expect_err("two are outstanding");
    };
    let a = bench.ask(session, "a");
    for _ in 0..5 {
        let held = bench.ask(session, "held");
        full(&mut bench);
        drop(bench.state.abandon(session, held));
    }
    let b = bench.ask(session, "b");
    bench.answer(session, "a");
    // Request `b` is on the wire now.
    drop(bench.state.abandon(session, b));
    full(&mut bench);
    bench.answer(session, "b");
    let c = bench.ask(session, "c");
    full(&mut bench);
    bench.answer(session, "c");
    bench.good(session, c, "c");
    bench.good(session, a, "a");
}

#[test]
fn answers_taken_in_another_order_make_room() {
    let mut bench = Bench::ready_with(options().max_outstanding(3));
    let session = bench.session();
    let asked = ["a", "b", "c"].map(|text| (text, bench.ask(session, text)));
    asked.iter().for_each(|(text, _)| bench.answer(session, text));
    for (text, seq) in &asked[1..] {
        bench.good(session, *seq, text);
    }
    let later = ["d", "e"].map(|text| (text, bench.ask(session, text)));
    bench.request(session, Request::sql("more")).expect_err("three are outstanding");
    later.iter().for_each(|(text, _)| bench.answer(session, text));
    for (text, seq) in [later[1], asked[0], later[0]] {
        bench.good(session, seq, text);
    }
}

#[test]
fn a_fatal_error_answers_all_that_is_outstanding() {
    let mut bench = Bench::ready_with(options().max_pipelined(2));
    let session = bench.session();
    let [a, b, held] = ["a", "b", "held"].map(|text| bench.ask(session, text));
    let told = [a, b, held].map(|seq| bench.watch(session, seq));
    bench.fatal(session, 1053);
    bench.tell();
    assert!(told.iter().all(|told| told.times() == 1));
    bench.fails(session, a, 1053, Fate::Unknown);
    bench.fails(session, b, 1053, Fate::Unknown);
    bench.fails(session, held, 1053, Fate::NotSent);
    let error = bench.request(session, Request::sql("more")).expect_err("it is dead");
    assert!(matches!(error.kind(), ErrorKind::SessionEnded));
    bench.close(session);
    bench.is_empty();
}

#[test]
fn sessions_that_were_not_open_any_more_end_without_being_counted_again() {
    let mut bench = Bench::ready();
    let [closing, open] = [bench.session(), bench.session()];
    let (once, _) = bench.ask_once("once");
    bench.close(closing);
    assert_eq!(bench.state.open_sessions(), 1);
    bench.fatal(once, 1053);
    assert_eq!(bench.state.open_sessions(), 1);
    bench.fatal(closing, 1053);
    assert_eq!(bench.state.open_sessions(), 1);
    bench.fatal(open, 1053);
    assert_eq!(bench.state.open_sessions(), 0);
}

#[test]
fn an_error_that_answers_nothing_ends_the_session_if_it_is_fatal() {
    let mut bench = Bench::ready();
    let session = bench.session();
    bench.error(session, 8001);
    assert!(bench.state.is_session_idle(session));
    assert_eq!(bench.state.stray_errors(), 1);
    bench.fatal(session, 1053);
    assert!(!bench.state.is_alive(session));
    assert!(bench.state.take_freed());
    assert_eq!(bench.state.stray_errors(), 1);
}

#[test]
fn frames_of_sessions_that_are_gone_or_never_were_are_nobodys() {
    let mut bench = Bench::ready();
    let session = bench.session();
    bench.fatal(session, 1053);
    for session in [session, 77, 1 << 63 | 5] {
        bench.answer(session, "late");
        bench.ok(session);
        bench.fatal(session, 8001);
        bench.frames(session, |encoder| encoder.token_done());
    }
    assert!(bench.state.lost().is_none());
    assert_eq!(bench.sent(), []);
}

#[test]
fn a_frame_that_must_not_come_ends_the_session_alone() {
    let illegal: [fn(u64) -> Vec<u8>; 6] = [
        |session| frames(session, |encoder| encoder.ok(None)),
        |session| frames(session, |encoder| encoder.fetch_done()),
        |session| frames(session, |encoder| encoder.timestamps(5)),
        |session| frames(session, |encoder| encoder.token_done()),
        |session| frames(session, |encoder| encoder.row(|row| row.int(1)).expect("short")),
        |session| frames(session, |encoder| encoder.frame(99, &[]).expect("short")),
    ];
    for frame in illegal {
        let mut bench = Bench::ready();
        let (one, other) = (bench.session(), bench.session());
        let (seq, good) = (bench.ask(one, "a"), bench.ask(other, "b"));
        let _ = bench.sent();
        bench.input(&frame(one));
        let error = bench.bad(one, seq);
        assert!(matches!(error.kind(), ErrorKind::Protocol(_)), "{error}");
        assert_eq!(error.fate(), Fate::Unknown);
        assert_eq!(bench.sent(), [Sent::KillSession(one), Sent::Close(one)]);
        bench.answer(other, "b");
        bench.good(other, good, "b");
        assert_eq!(bench.state.open_sessions(), 1);
    }
}

#[test]
fn a_chunk_may_come_where_it_was_asked_for() {
    for asked in [false, true] {
        let mut bench = Bench::ready();
        let session = bench.session();
        let request = Request::sql("a");
        let request = if asked { request.chunks() } else { request };
        bench.request(session, request).expect("it lives");
        let _ = bench.sent();
        bench.frames(session, |encoder| {
            encoder.column(&Column::signed("n")).expect("it is short");
            encoder.frame(ServerKind::Chunk.number(), &[&[8, 0]]).expect("it is short");
        });
        assert_eq!(bench.state.is_alive(session), asked);
        assert_eq!(bench.sent().is_empty(), asked);
    }
}

#[test]
fn notices_in_front_of_timestamps_are_not_kept() {
    let mut bench = Bench::ready();
    let wire = Request::sql("not looked at").into_wire(None);
    let wire = Wire { asked: Asked::Timestamps, ..wire };
    let asked = bench.state.ask_once(wire, bench.now + TIMEOUT);
    let (session, seq) = asked.expect("it lives");
    let warning = encoded(session, &ServerMessage::Notice(Notice::RowsAffected(1).to_frame()));
    for _ in 0..1000 {
        bench.input(&warning);
        bench.open(session, seq);
    }
    bench.frames(session, |encoder| encoder.timestamps(5));
    let taken = bench.take(session, seq);
    assert!((1..100).contains(&taken.bytes.len()) && matches!(taken.result, Some(Ok(()))));
    bench.is_empty();
}

#[test]
fn an_answer_to_nothing_ends_the_session() {
    let mut bench = Bench::ready();
    let session = bench.session();
    bench.answer(session, "nobody asked");
    assert!(!bench.state.is_alive(session));
    assert_eq!(bench.sent(), [Sent::KillSession(session), Sent::Close(session)]);
}

#[test]
fn a_header_that_is_none_ends_the_connection() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.ask(session, "a");
    let told = bench.watch(session, seq);
    // A length of 0, with arbitrary bytes behind it.
    let mut bytes = answer(session, "before");
    bytes.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 110, 1, 2, 3]);
    let next = bench.ask(session, "b");
    bench.input(&bytes);
    assert!(matches!(bench.lost(), ErrorKind::Protocol(_)));
    bench.tell();
    assert_eq!(told.times(), 1);
    bench.good(session, seq, "before");
    assert_eq!(bench.bad(session, next).fate(), Fate::Unknown);
    let error = bench.request(session, Request::sql("c")).expect_err("it is lost");
    assert_eq!(error.fate(), Fate::NotSent);
    assert_eq!(bench.state.try_open(), None);
    bench.close(session);
    bench.is_empty();
}

#[test]
fn what_was_sent_is_not_said_to_be_unsent_when_the_client_is_closed() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.ask(session, "a");
    bench.state.lose(&Error::not_sent(ErrorKind::Closed));
    assert_eq!(bench.bad(session, seq).fate(), Fate::Unknown);
}

#[test]
fn what_the_server_does_not_know_by_its_digest_is_sent_again() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.request(session, Request::sql("often").cached()).expect("it lives");
    assert_eq!(bench.sent(), [Sent::Digest(session)]);
    bench.error(session, CACHE_MISS);
    assert_eq!(bench.sent(), [text(session, "often")]);
    bench.open(session, seq);
    // The request is sent again only once.
    bench.error(session, CACHE_MISS);
    bench.fails(session, seq, CACHE_MISS, Fate::Refused);
    assert_eq!(bench.sent(), []);
}

#[test]
fn after_a_miss_the_text_waits_while_the_backlog_is_long() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.request(session, Request::sql("often").cached()).expect("it lives");
    assert_eq!(bench.sent(), [Sent::Digest(session)]);
    bench.state.set_full(true);
    bench.error(session, CACHE_MISS);
    let next = bench.ask(session, "next");
    assert_eq!(bench.sent(), []);
    bench.state.set_full(false);
    assert_eq!(bench.sent(), [text(session, "often"), text(session, "next")]);
    bench.answer(session, "often");
    bench.answer(session, "next");
    bench.good(session, seq, "often");
    bench.good(session, next, "next");

    // A request that is cancelled meanwhile never runs, also if its digest was sent.
    for is_full_before in [false, true] {
        bench.state.set_full(is_full_before);
        let seq = bench.request(session, Request::sql("gone").cached()).expect("it lives");
        if !is_full_before {
            bench.sent();
            bench.state.set_full(true);
            bench.error(session, CACHE_MISS);
        }
        bench.state.cancel(session);
        bench.fails(session, seq, INTERRUPTED, Fate::NotSent);
        bench.state.set_full(false);
        assert_eq!(bench.sent(), []);
        assert!(bench.state.is_session_idle(session));
    }

    // No caller waits for this one any more.
    let seq = bench.request(session, Request::sql("left").cached()).expect("it lives");
    bench.sent();
    bench.state.set_full(true);
    bench.error(session, CACHE_MISS);
    drop(bench.state.abandon(session, seq));
    bench.state.set_full(false);
    assert_eq!(bench.sent(), []);
    assert!(bench.state.is_session_idle(session));
}

#[test]
fn with_others_behind_it_a_miss_is_an_error() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let a = bench.request(session, Request::sql("a").cached()).expect("it lives");
    bench.state.set_full(true);
    let b = bench.ask(session, "b");
    drop(bench.state.abandon(session, b));
    bench.state.set_full(false);
    let c = bench.ask(session, "c");
    assert_eq!(bench.sent(), [Sent::Digest(session), text(session, "c")]);
    // If the first request were sent again, it would be answered behind the last one.
    bench.error(session, CACHE_MISS);
    assert_eq!(bench.sent(), []);
    bench.answer(session, "c");
    bench.fails(session, a, CACHE_MISS, Fate::Refused);
    bench.good(session, c, "c");
}

#[test]
fn what_nobody_wants_any_more_or_was_cancelled_is_not_sent_again() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.request(session, Request::sql("a").cached()).expect("it lives");
    drop(bench.state.abandon(session, seq));
    assert_eq!(bench.sent(), [Sent::Digest(session), Sent::KillQuery(session)]);
    bench.error(session, CACHE_MISS);
    assert_eq!(bench.sent(), []);
    assert!(bench.state.is_session_idle(session));
    let seq = bench.request(session, Request::sql("a").cached()).expect("it lives");
    bench.state.cancel(session);
    assert_eq!(bench.sent(), [Sent::Digest(session), Sent::KillQuery(session)]);
    bench.error(session, CACHE_MISS);
    assert_eq!(bench.sent(), []);
    bench.fails(session, seq, INTERRUPTED, Fate::Refused);
}

#[test]
fn a_savepoint_is_answered_by_ok() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let savepoint = bench.request(session, Request::savepoint(Operation::Set, "a"));
    let savepoint = savepoint.expect("it lives");
    bench.ok(session);
    assert!(matches!(bench.take(session, savepoint).result, Some(Ok(()))));
    bench.close(session);
    bench.ok(session);
    bench.is_empty();
}

#[test]
fn a_statement_without_a_session_leaves_nothing_behind() {
    let mut bench = Bench::ready();
    let (good, a) = bench.ask_once("a");
    let (left, b) = bench.ask_once("b");
    let (late, c) = bench.ask_once("c");
    assert!(good & left & late & 1 << 63 != 0);
    bench.answer(good, "a");
    bench.good(good, a, "a");
    drop(bench.state.abandon(left, b));
    bench.pass(TIMEOUT);
    assert!(bench.bad(late, c).is_timeout());
    for session in [left, late] {
        bench.answer(session, "late");
    }
    let wire = Request::sql(vec![b'x'; 65 << 20]).into_wire(None);
    let error = bench.state.ask_once(wire, bench.now);
    assert!(matches!(error.expect_err("too long").kind(), ErrorKind::TooLong { .. }));
    bench.is_empty();
}

#[test]
fn a_stop_where_no_window_was_granted_is_an_error() {
    let mut bench = Bench::ready();
    let (session, seq) = bench.ask_once("a");
    bench.frames(session, |encoder| {
        row(encoder, "a");
        encoder.token_done();
    });
    assert!(matches!(bench.bad(session, seq).kind(), ErrorKind::Protocol(_)));
    bench.is_empty();
}

#[test]
fn who_watched_an_answer_that_is_dropped_is_handed_back_to_be_dropped() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.ask(session, "a");
    let first = bench.watch(session, seq);
    let second = bench.watch(session, seq);
    assert_eq!(bench.replaced.len(), 1);
    assert!(bench.state.abandon(session, seq).is_some());
    bench.answer(session, "a");
    bench.tell();
    assert_eq!((first.times(), second.times()), (0, 0));
}

#[test]
fn the_connection_dies_of_a_fatal_error_about_itself() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.ask(session, "a");
    bench.error(0, 1234);
    assert!(bench.state.lost().is_none());
    assert_eq!(bench.state.stray_errors(), 1);
    bench.fatal(0, 1053);
    assert!(matches!(bench.lost(), ErrorKind::Lost(_)));
    assert_eq!(bench.bad(session, seq).fate(), Fate::Unknown);
}

#[test]
fn however_the_input_is_cut_the_outcome_is_the_same() {
    let outcome = |cut: usize| {
        let mut bench = Bench::ready();
        let session = bench.session();
        let seqs = ["a", "b", "c"].map(|text| bench.ask(session, text));
        let other = bench.session();
        let mut bytes = answer(session, "a");
        bytes.extend(answer(session, "b"));
        let error = ErrorReply::error(1234, b"HY000", "it failed");
        bytes.extend(encoded(session, &ServerMessage::Error(error)));
        bytes.extend(answer(other, "nobody asked"));
        let cut = cut.min(bytes.len());
        let (taken, need) = bench.state.handle_input(&bytes[..cut], bench.now);
        assert!(taken <= cut && need.is_none_or(|need| taken + need > cut));
        bench.input(&bytes[taken..]);
        bench.good(session, seqs[0], "a");
        bench.good(session, seqs[1], "b");
        bench.fails(session, seqs[2], 1234, Fate::Refused);
        assert!(!bench.state.is_alive(other));
        bytes.len()
    };
    (0..outcome(0)).for_each(|cut| assert!(outcome(cut) > cut));
}

#[test]
fn a_connection_whose_server_shuts_down_takes_no_session_and_ends_with_its_last_one() {
    let mut bench = Bench::ready();
    let [told, busy] = [(); 2].map(|()| bench.session());
    let unused = bench.state.try_open().expect("it is ready");
    let [_, asked] = [told, busy].map(|session| bench.ask(session, "a"));
    bench.fatal(told, 1053);
    assert!(bench.state.is_leaving());
    assert_eq!(bench.state.try_open(), None);
    let error = bench.request(unused, Request::sql("b")).expect_err("it would not be opened");
    assert_eq!(error.fate(), Fate::NotSent);
    bench.answer(busy, "a");
    bench.good(busy, asked, "a");
    bench.state.end_if_done();
    assert!(bench.state.lost().is_none(), "a session is left");
    bench.close(busy);
    bench.ok(busy);
    bench.state.end_if_done();
    assert!(matches!(bench.lost(), ErrorKind::Lost(_)));
}

#[test]
fn a_shutdown_that_answers_a_single_statement_lets_waiting_callers_look_for_another_connection() {
    let mut bench = Bench::ready();
    let (session, _) = bench.ask_once("a");
    assert!(!bench.state.take_freed());
    bench.fatal(session, 1053);
    assert!(bench.state.is_leaving() && bench.state.take_freed());
}

#[test]
fn an_error_behind_the_end_of_a_session_is_ignored_although_an_answer_is_not_taken() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let seq = bench.ask(session, "a");
    bench.close(session);
    bench.answer(session, "a");
    bench.ok(session);
    bench.error(session, 8001);
    assert_eq!(bench.state.stray_errors(), 0);
    bench.good(session, seq, "a");
    bench.is_empty();
}

#[test]
fn a_lost_connection_keeps_only_answers_that_are_not_taken() {
    let mut bench = Bench::ready();
    let (idle, busy) = (bench.session(), bench.session());
    let seq = bench.ask(busy, "a");
    bench.state.lose(&Error::unknown(ErrorKind::Closed));
    assert_eq!(bench.state.exchanges.keys().collect::<Vec<_>>(), [&busy]);
    assert!(!bench.state.is_alive(idle));
    assert_eq!(bench.bad(busy, seq).fate(), Fate::Unknown);
}

#[test]
fn a_session_that_is_dropped_behind_a_digest_is_closed_behind_its_answer() {
    for miss in [false, true] {
        let mut bench = Bench::ready();
        let session = bench.session();
        let seq = bench.request(session, Request::sql("often").cached()).expect("it lives");
        bench.close(session);
        assert_eq!(bench.sent(), [Sent::Digest(session)]);
        if miss {
            bench.error(session, CACHE_MISS);
            assert_eq!(bench.sent(), [text(session, "often"), Sent::Close(session)]);
            bench.answer(session, "often");
        } else {
            bench.answer(session, "often");
            assert_eq!(bench.sent(), [Sent::Close(session)]);
        }
        bench.ok(session);
        bench.good(session, seq, "often");
        bench.is_empty();
    }
}

#[test]
fn a_cancelled_digest_does_not_delay_the_close_of_its_session() {
    let mut bench = Bench::ready();
    let session = bench.session();
    let _asked = bench.request(session, Request::sql("a").cached()).expect("it lives");
    bench.close(session);
    bench.state.cancel(session);
    let sent = [Sent::Digest(session), Sent::KillQuery(session), Sent::Close(session)];
    assert_eq!(bench.sent(), sent);
}

#[test]
fn held_requests_are_sent_up_to_the_limit_and_no_session_waits_for_ever() {
    const LIMIT: usize = 64 << 10;
    let mut bench = Bench::ready_with(options().max_unsent_bytes(LIMIT));
    let sessions = [(); 3].map(|()| bench.session());
    let long = "x".repeat(LIMIT);
    let mut sent = Vec::new();
    for _ in 0..6 {
        // Sessions ask again while others wait.
        for session in sessions {
            bench.state.set_full(true);
            bench.ask(session, &long);
        }
        bench.state.set_full(false);
        let [Sent::Text(session, _)] = &bench.sent()[..] else { panic!("one is sent") };
        sent.push(*session);
        assert!(bench.state.is_full());
    }
    assert_eq!(sent, [sessions, sessions].concat());
}

/// A procedure may have written before its last statement failed.
#[test]
fn an_error_behind_a_result_does_not_say_that_nothing_was_executed() {
    for (has_result, fate) in [(false, Fate::Refused), (true, Fate::Unknown)] {
        let mut bench = Bench::ready();
        let session = bench.session();
        let seq = bench.ask(session, "call p()");
        bench.frames(session, |encoder| {
            row(encoder, "a");
            if has_result {
                encoder.fetch_done_more_resultsets();
            }
        });
        bench.error(session, 1062);
        bench.fails(session, seq, 1062, fate);
    }
}

#[test]
fn the_mark_between_results_may_stand_before_or_behind_the_columns_of_the_next() {
    for order in ["crmcrf", "crcmrmf", "cmcrf", "crmmf", "crmcmcrf", "crcmrcmrf", "crm"] {
        let mut bench = Bench::ready();
        let session = bench.session();
        let seq = bench.ask(session, "a");
        bench.frames(session, |encoder| {
            for frame in order.chars() {
                match frame {
                    'c' => encoder.column(&Column::signed("n")).expect("it is short"),
                    'r' => encoder.row(|row| row.int(1)).expect("it is short"),
                    'm' => encoder.fetch_done_more_resultsets(),
                    _ => encoder.fetch_done(),
                }
            }
            encoder.execute_ok();
        });
        assert!(matches!(bench.take(session, seq).result, Some(Ok(()))), "{order}");
    }
}
