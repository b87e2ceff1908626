//! [`connection`]: a connection against arbitrary input of a server, for fuzzers.

use std::sync::Arc;
use std::time::Duration;

use super::options::Options;
use super::request::{Request, Wire};
use super::slot::{Asked, Watcher};
use super::state::State;
use crate::codec::frame::{Dialect, Frame, Header};
use crate::codec::limits::Limits;
use crate::codec::message::{ClientMessage, ServerMessage};
use crate::codec::proto::session::{AuthenticateContinue, AuthenticateOk};
use crate::sys::clock::Instant;

/// Plays `input`: requests, passing time, and bytes of the server, raw or as frames.
///
/// # Panics
///
/// Panics if a request has no result or several, if the output is not a sequence of frames, if too
/// much is kept, or if requests are left at the end.
pub fn connection(input: &[u8]) {
    let options = Options::new("unix:/", "root").window_bytes(1024).max_answer_bytes(1 << 20);
    let now = Instant::now();
    let state = State::new(Arc::new(options.max_pipelined(2)), now);
    let mut fuzzed =
        Fuzzed { state, now, received: Vec::new(), asked: Vec::new(), opened: Vec::new() };
    fuzzed.state.handle_connected(now);
    let mut rest = input.iter().copied();
    if rest.next().is_some_and(|first| first % 8 > 0) {
        fuzzed.log_in();
    }
    while let Some(op) = rest.next() {
        fuzzed.act(op, &mut rest);
        fuzzed.look();
    }
    fuzzed.finish();
}

struct Fuzzed {
    state: State,
    now: Instant,
    /// Received bytes that were not taken yet.
    received: Vec<u8>,
    /// Session and number of requests without a result.
    asked: Vec<(u64, u64)>,
    opened: Vec<u64>,
}

impl Fuzzed {
    fn log_in(&mut self) {
        let challenge = AuthenticateContinue { auth_data: vec![7; 20] };
        let accepted = AuthenticateOk::default();
        for message in [
            ServerMessage::AuthenticateContinue(challenge),
            ServerMessage::AuthenticateOk(accepted),
        ] {
            let encoded = message.encode(Dialect::Legacy, 0, &mut self.received);
            encoded.expect("it is short");
        }
        self.receive();
        assert!(self.state.is_ready(), "the login is good");
    }

    fn receive(&mut self) {
        let (taken, need) = self.state.handle_input(&self.received, self.now);
        assert!(taken <= self.received.len(), "no more than there is");
        self.received.drain(..taken);
        assert!(need.is_none_or(|need| need > self.received.len()), "whole frames are taken");
    }

    fn act(&mut self, op: u8, rest: &mut impl Iterator<Item = u8>) {
        let mut byte = || rest.next().unwrap_or(0);
        let some = usize::from(byte());
        let session = self.opened.get(some % self.opened.len().max(1)).copied();
        let asked = if self.asked.is_empty() { None } else { Some(some % self.asked.len()) };
        match (op % 16, session, asked) {
            (0, ..) => self.opened.extend(self.state.try_open()),
            (1 | 2, Some(session), _) => {
                let request = Request::sql("select 1");
                let request = if some > 127 { request.cached() } else { request };
                let wire = request.into_wire(Some(1));
                let due = self.now + Duration::from_millis(u64::from(byte()) * 10);
                let seq = self.state.ask(session, wire, due);
                self.asked.extend(seq.ok().map(|seq| (session, seq)));
            }
            (3, ..) => {
                let wire = Request::sql("select 1").into_wire(None);
                let asked = if some > 127 { Asked::Statement } else { Asked::Timestamps };
                let due = self.now + Duration::from_secs(1);
                self.asked.extend(self.state.ask_once(Wire { asked, ..wire }, due));
            }
            (4, _, Some(index)) => self.take(index),
            (5, _, Some(index)) => {
                let (session, seq) = self.asked.swap_remove(index);
                drop(self.state.abandon(session, seq));
            }
            (6, _, Some(index)) => {
                let (session, seq) = self.asked[index];
                let watcher = Watcher::Call(Box::new(|| ()));
                drop(self.state.watch(session, seq, some, watcher));
            }
            (7, Some(session), _) => self.state.cancel(session),
            (8, Some(session), _) => {
                self.opened.retain(|&opened| opened != session);
                self.state.close(session, self.now);
            }
            (9, ..) => self.state.set_full(some > 127),
            (10, ..) => {
                self.now += Duration::from_millis(some as u64 * 10);
                self.state.handle_timeout(self.now, 0);
            }
            (11, ..) => {
                self.received.extend((0..some).map(|_| byte()));
                self.receive();
            }
            _ => {
                // Most frames belong to an existing session.
                let session =
                    session.or_else(|| asked.map(|index| self.asked[index].0)).unwrap_or(0);
                let (kind, length) = (byte() % 32, byte() % 32);
                self.received.extend(Header::new(session, kind, length.into()).encode());
                self.received.extend((0..length).map(|_| byte()));
                self.receive();
            }
        }
    }

    fn take(&mut self, index: usize) {
        let (session, seq) = self.asked[index];
        let taken = self.state.take(session, seq);
        assert!(taken.bytes.len() <= (1 << 20) + 64, "what nobody reads is bounded");
        if taken.result.is_some() {
            self.asked.swap_remove(index);
        }
    }

    fn look(&mut self) {
        drop(self.state.take_events());
        let (out, limits) = (self.state.take_out(), Limits::default());
        let mut rest = &out[..];
        while let Some((frame, bytes)) =
            Frame::parse(rest, Dialect::Legacy, &limits).expect("frames are sent")
        {
            let message = frame.client_message(&limits).expect("of a client");
            let own = matches!(message, ClientMessage::CapabilitiesGet);
            let login = (4..=5).contains(&frame.kind());
            assert!((frame.session() == 0) == (own || login), "each to its session");
            rest = &rest[bytes..];
        }
        assert!(rest.is_empty(), "whole frames are sent");
    }

    fn finish(mut self) {
        let error = super::Error::unknown(super::ErrorKind::Closed);
        self.state.lose(&error);
        for (session, seq) in std::mem::take(&mut self.asked) {
            assert!(self.state.take(session, seq).result.is_some(), "each has an outcome");
        }
        for session in std::mem::take(&mut self.opened) {
            self.state.close(session, self.now);
        }
        assert_eq!(self.state.outstanding(), 0, "nothing is waited for");
        assert!(self.state.is_empty(), "nothing is left");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn each_request_has_an_outcome_whatever_comes(
            input in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            connection(&input);
        }
    }
}
