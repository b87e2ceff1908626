//! Loom models of a send beside a close. The receiving side is the model's own: it takes the steps of
//! [`Round`](crate::net::receive) that concern the end. If its last mark is lost, it waits for ever,
//! which loom calls a deadlock.
//!
//! Left out: a socket that fails by itself, and the calls of the protocol.

use loom::thread;

use super::super::conn::CLOSE;
use super::*;
use crate::sync::mutant::{explore_up_to, mutants};

/// Receives for the connection until the end of the stream is sent. Returns the reason.
fn receive(conn: &Arc<Conn>) -> CloseReason {
    let mut reason = None;
    loop {
        let marks = conn.next_marks();
        assert!(!marks.has(ABORT), "the close was broken off");
        let noted = lock(&conn.reason).take();
        if marks.has(CLOSE) && reason.is_none() {
            reason = noted;
            conn.advance_to_closing();
            conn.tell_when_flushed();
        }
        if marks.has(FLUSHED) {
            socket::shutdown_write(conn.fd()).expect("open");
            return *reason.expect("the close came first");
        }
    }
}

/// Runs `sends` on one thread beside the receiving side. Another thread closes twice and reads as the
/// peer. The peer gets the bytes whose send did not answer `Closed`, and no others.
fn beside_a_close(fill: fn(&Conn), sends: fn(&Arc<Conn>) -> Vec<(Sent, &'static [u8])>) {
    // With three preemptions a full socket takes more than 400 s.
    explore_up_to(2, move || {
        let conn = Conn::open();
        fill(&conn);
        let here = Arc::clone(&conn);
        let sender = thread::spawn(move || sends(&here));
        let here = Arc::clone(&conn);
        let closer = thread::spawn(move || {
            here.begin_close(CloseReason::ByHandler("first".into()), CLOSE);
            here.begin_close(CloseReason::ByHandler("second".into()), CLOSE);
            let arrived = here.arrived();
            if here.send.is_owned_or_flagged() {
                here.mark_send(WRITABLE);
            }
            arrived
        });
        let reason = receive(&conn);
        // The connection lingers.
        let mut arrived = closer.join().expect("no panic");
        let answers = sender.join().expect("no panic");
        assert!(!conn.left_marks().has(ABORT), "the close was broken off");
        assert_eq!(reason.to_string(), CloseReason::ByHandler("first".into()).to_string());
        arrived.extend(conn.arrived());
        arrived.retain(|byte| *byte > 0);
        let accepted = answers.iter().filter(|(answer, _)| *answer != Sent::Closed);
        let accepted: Vec<u8> = accepted.flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        assert_eq!(arrived, accepted, "bytes at the peer, by {answers:?}");
        conn.advance(Phase::Closed);
        conn.discard_backlog();
        assert_eq!(conn.pending.load(Ordering::Relaxed), 0, "bytes that count as pending");
    });
}

fn send_twice(conn: &Arc<Conn>) -> Vec<(Sent, &'static [u8])> {
    [&b"ab"[..], b"c"].map(|bytes| (conn.send(Pieces::one(bytes)), bytes)).into()
}

fn sends_to_a_socket_with_room() {
    beside_a_close(|_| (), send_twice);
}

fn sends_to_a_full_socket() {
    beside_a_close(Conn::fill, send_twice);
}

fn corked_bytes() {
    beside_a_close(
        |_| (),
        |conn| {
            let bytes: &[u8] = b"ab";
            let left = conn.leave_in_inbox(Pieces::one(bytes), true);
            let answer = left.map_or(Sent::Closed, |left| Sent::Queued(left.pending));
            conn.flush_inbox();
            vec![(answer, bytes)]
        },
    );
}

#[test]
fn a_send_beside_a_close_arrives_or_is_refused() {
    sends_to_a_socket_with_room();
}

#[test]
fn a_backlog_arrives_before_the_end() {
    sends_to_a_full_socket();
}

#[test]
fn corked_bytes_beside_a_close_arrive_or_are_refused() {
    corked_bytes();
}

mutants! {
    send_after_the_end: SendAfterShut, sends_to_a_socket_with_room(), "broken off";
    send_at_once_after_the_end: SendNowAfterShut, sends_to_a_socket_with_room(), "broken off";
    leave_after_the_end: LeaveAfterShut, corked_bytes(), "bytes at the peer";
    end_without_a_look_at_the_inbox: ShutWithoutLook, corked_bytes(), "bytes at the peer";
    end_before_the_backlog: ShutBeforeBacklog, sends_to_a_full_socket(), "bytes at the peer";
    last_reason: LastReasonCounts, sends_to_a_socket_with_room(), "second";
}
