//! Recordings played to themselves.

use std::collections::VecDeque;

use epoll_group::codec::frame::Dialect;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};
use epoll_group::codec::proto::resultset::TokenDone;

use super::servers::{Frames, with_recording, with_toy};
use lab::xrpc::conversation::{Act, Line};
use lab::xrpc::{Chop, Conversation, Target, Transcript, What, conversations, play};

fn play_to_itself(conversation: &Conversation, lines: &[Line], chop: Chop) -> Transcript {
    let mut transcript = None;
    // The toy that was recorded does not answer the end of a session, so it cannot be waited for.
    let name = conversation.name.clone();
    let script = Conversation { name, lines: without_ends(&conversation.lines) };
    with_recording(&without_ends(lines), |addr| {
        let target = Target { addr, user: "someone", password: "anything" };
        transcript = Some(play(&target, &script, chop));
    });
    transcript.expect("it was played")
}

fn without_ends(lines: &[Line]) -> Vec<Line> {
    let is_close = |line: &Line| line.act == Act::Client && line.frame().kind() == 7;
    lines.iter().filter(|line| !is_close(line)).cloned().collect()
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    for conversation in conversations() {
        for chop in [Chop::Whole, Chop::random()] {
            let transcript = play_to_itself(&conversation, &conversation.lines, chop);
            assert_eq!(transcript.differences(), [], "{conversation:?}, {chop:?}");
            assert!(transcript.pairs.iter().all(|pair| pair.live.done));
            assert!(transcript.pairs.len() > 5, "{conversation:?}");
        }
    }
}

/// Returns the only difference that is found if the last frame of this kind has `to` in place of
/// `from`.
fn difference(name: &str, kind: u8, from: &[u8], to: &[u8]) -> What {
    let conversation = Conversation::named(name);
    let mut lines = conversation.lines.clone();
    let is = |line: &&mut Line| line.act == Act::Server && line.bytes[12] == kind;
    let line = lines.iter_mut().rfind(is).expect("a frame of this kind");
    let at = line.bytes.windows(from.len()).position(|bytes| bytes == from).expect("the bytes");
    line.bytes[at..at + to.len()].copy_from_slice(to);
    let transcript = play_to_itself(&conversation, &lines, Chop::Whole);
    let differences = transcript.differences();
    assert_eq!(differences.len(), 1, "{differences:?}");
    differences[0].what
}

#[test]
fn other_values_are_differences() {
    assert_eq!(difference("jdbc", 13, b"\x0a\x01\x02", b"\x0a\x01\x04"), What::Rows);
    assert_eq!(difference("jdbc", 12, b"\x1a\x011", b"\x1a\x012"), What::Labels);
    assert_eq!(difference("plan", 13, b"seven", b"eight"), What::Rows);
    assert_eq!(difference("update", 11, b"\x18\x03", b"\x18\x04"), What::Affected);
    assert_eq!(difference("abandon", 1, b"70100", b"42000"), What::Error);
    assert_eq!(difference("tso", 20, b"\x8c\x80", b"\x81\x80"), What::Timestamp);
}

#[test]
fn the_servers_own_affairs_are_no_differences() {
    let conversation = Conversation::named("setup");
    let mut lines = conversation.lines.clone();
    for line in &mut lines {
        let at = line.bytes.windows(6).position(|bytes| bytes == b"8.0.32");
        if let (Act::Server, Some(at)) = (line.act, at) {
            line.bytes[at..at + 6].copy_from_slice(b"5.7.14");
        }
    }
    assert_ne!(lines, conversation.lines);
    let transcript = play_to_itself(&conversation, &lines, Chop::Whole);
    assert_eq!(transcript.differences(), []);
    assert_eq!(transcript.statements("show variables").count(), 1);
}

#[test]
fn a_server_that_asks_for_more_offers_gets_them() {
    let conversation = Conversation::named("token");
    let is_offer = |line: &Line| line.act == Act::Client && line.frame().kind() == 112;
    let mut replies: VecDeque<Frames> = VecDeque::new();
    for line in conversation.lines.iter().filter(|line| !is_offer(line)) {
        match line.act {
            Act::Client => replies.push_back(Frames::new()),
            Act::Server => {
                let frame = line.frame();
                let message = frame.server_message(&Limits::default()).expect("recorded");
                let reply = replies.back_mut().expect("the client speaks first");
                reply.push((frame.session(), message));
            }
            Act::Close => {}
        }
    }
    // The rows come in portions of seven, one portion for each offer. An offer that comes before is
    // lost.
    let mut held = Frames::new();
    let mut portions = 0;
    let answer = |session: u64, message: ClientMessage| {
        if !matches!(message, ClientMessage::TokenOffer(_)) {
            held = replies.pop_front().expect("the same requests");
            held.retain(|(_, message)| !matches!(message, ServerMessage::TokenDone(_)));
        } else if held.is_empty() {
            return Some(held.clone());
        }
        let is_long = held.len() > 20;
        let mut frames: Frames = held.drain(..if is_long { 7 } else { held.len() }).collect();
        if is_long {
            portions += 1;
            frames.push((session, ServerMessage::TokenDone(TokenDone::default())));
        }
        Some(frames)
    };
    with_toy(Dialect::Legacy, answer, |addr| {
        let target = Target { addr, user: "someone", password: "anything" };
        let transcript = play(&target, &conversation, Chop::random());
        assert_eq!(transcript.differences(), []);
    });
    assert!(portions > 8, "more than were recorded: {portions}");
}
