//! [`Connection`]: a client's connection without a socket, a clock or a thread, for simulations.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::error::{Error, ErrorKind};
use super::exchange::{Asked, Watcher};
use super::options::Options;
use super::request::{Request, Wire};
use super::state::State;
use crate::codec::message::ClientMessage;
use crate::codec::message::tso::GetTso;

/// A client's connection: bytes, time and requests go in, bytes and answers come out.
pub struct Connection {
    options: Arc<Options>,
    state: State,
}

/// A request that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asking {
    /// Session that it was made on.
    pub session: u64,
    /// Its number there.
    pub seq: u64,
}

impl Connection {
    /// One that is being established.
    #[must_use]
    pub fn new(options: Options, now: Instant) -> Self {
        let options = Arc::new(options);
        Self { state: State::new(Arc::clone(&options), now), options }
    }

    /// It is established.
    pub fn connected(&mut self, now: Instant) {
        self.state.handle_connected(now);
    }

    /// Takes whole frames from the start of `input`; returns how many bytes they are.
    pub fn input(&mut self, input: &[u8], now: Instant) -> usize {
        self.state.handle_input(input, now).0
    }

    /// What is to be sent.
    pub fn out(&mut self) -> Vec<u8> {
        self.state.take_out()
    }

    /// It has ended, for this reason.
    pub fn end(&mut self, reason: &str) {
        self.state.lose(&Error::unknown(ErrorKind::Lost(reason.into())));
    }

    /// What it ended of.
    #[must_use]
    pub fn lost(&self) -> Option<Error> {
        self.state.lost().cloned()
    }

    /// Logged in, and not at an end.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.is_ready()
    }

    /// When [`timeout`](Self::timeout) is to be called, at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.state.poll_timeout()
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Instant) {
        self.state.handle_timeout(now);
    }

    /// A session, if it is ready.
    pub fn open(&mut self) -> Option<u64> {
        self.state.try_open()
    }

    /// Asks a session.
    ///
    /// # Errors
    ///
    /// Nothing was sent.
    pub fn ask(&mut self, session: u64, request: Request, due: Instant) -> Result<Asking, Error> {
        let is_plain = matches!(request.body, super::request::Body::Savepoint(_));
        let asked = if is_plain { Asked::Plain } else { Asked::Statement };
        let wire = request.into_wire(Some(self.options.window_kib()));
        let seq = self.state.ask(session, asked, wire, due)?;
        Ok(Asking { session, seq })
    }

    /// Asks a session that is there for this statement only.
    ///
    /// # Errors
    ///
    /// Nothing was sent.
    pub fn ask_once(&mut self, request: Request, due: Instant) -> Result<Asking, Error> {
        let session = self.state.open_once(Asked::Statement);
        let wire = request.into_wire(None);
        let seq = self.state.ask(session, Asked::Statement, wire, due)?;
        Ok(Asking { session, seq })
    }

    /// Asks for timestamps.
    ///
    /// # Errors
    ///
    /// Nothing was sent.
    pub fn ask_time(&mut self, count: i32, due: Instant) -> Result<Asking, Error> {
        let session = self.state.open_once(Asked::Timestamps);
        let question = GetTso { leader_name: Vec::new(), batch_count: count };
        let message = ClientMessage::GetTso(question);
        let wire = Wire { message, again: None, has_rows: false };
        let seq = self.state.ask(session, Asked::Timestamps, wire, due)?;
        Ok(Asking { session, seq })
    }

    /// What has come of an answer: whole frames, and how it ended if it has.
    pub fn take(&mut self, asking: Asking) -> (Vec<u8>, Option<Result<(), Error>>) {
        let taken = self.state.take(asking.session, asking.seq);
        (taken.bytes, taken.result)
    }

    /// Calls `code` when there are `least` bytes of the answer, or its end.
    pub fn watch(&mut self, asking: Asking, least: usize, code: impl FnOnce() + Send + 'static) {
        let watcher = Watcher::Call(Box::new(code));
        self.state.watch(asking.session, asking.seq, least, watcher);
    }

    /// Calls those who are to be told, and drops those who are not told any more.
    pub fn tell(&mut self) {
        for event in self.state.take_events() {
            if let Watcher::Call(code) = event {
                code();
            }
        }
        drop(self.state.take_unwanted());
    }

    /// Nobody wants the answer any more.
    pub fn abandon(&mut self, asking: Asking) {
        self.state.abandon(asking.session, asking.seq);
    }

    /// Interrupts what the session runs.
    pub fn cancel(&mut self, session: u64) {
        self.state.cancel(session);
    }

    /// The session is not used any more.
    pub fn close(&mut self, session: u64, now: Instant) {
        self.state.close(session, now);
    }

    /// The socket takes nothing, or does again.
    pub fn set_full(&mut self, full: bool) {
        self.state.set_full(full);
    }

    /// Whether a session can be used, now or later.
    #[must_use]
    pub fn is_alive(&self, session: u64) -> bool {
        self.state.is_alive(session)
    }

    /// Sessions that are open, and requests that are not answered.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.state.open_sessions(), self.state.outstanding())
    }

    /// Nothing is kept of any session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
