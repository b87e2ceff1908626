//! [`Connection`]: a client's connection without a socket, a clock or a thread, for simulations.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::error::{Error, ErrorKind};
use super::options::Options;
use super::request::{Request, Wire};
use super::slot::{Asked, Watcher};
use super::state::State;
use crate::codec::message::ClientMessage;
use crate::codec::proto::expect;
use crate::codec::proto::tso::GetTso;

/// Connection of a client. Input: bytes, time and requests. Output: bytes and answers.
pub struct Connection {
    options: Arc<Options>,
    state: State,
}

/// Request that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asking {
    /// Session of the request.
    pub session: u64,
    /// Number of the request in its session.
    pub seq: u64,
}

impl Connection {
    /// Creates a connection that is being established.
    #[must_use]
    pub fn new(options: Options, now: Instant) -> Self {
        let options = Arc::new(options);
        Self { state: State::new(Arc::clone(&options), now.into()), options }
    }

    /// Notes that the connection is established.
    pub fn connected(&mut self, now: Instant) {
        self.state.handle_connected(now.into());
    }

    /// Takes whole frames from the start of `input`. Returns their length in bytes.
    pub fn input(&mut self, input: &[u8], now: Instant) -> usize {
        self.state.handle_input(input, now.into()).0
    }

    /// Takes the output.
    pub fn out(&mut self) -> Vec<u8> {
        let mut out = self.state.take_out();
        while self.state.is_full() {
            self.state.set_full(false);
            out.append(&mut self.state.take_out());
        }
        out
    }

    /// Ends the connection for this reason.
    pub fn end(&mut self, reason: &str) {
        self.state.lose(&Error::unknown(ErrorKind::Lost(reason.into())));
    }

    /// Error that ended the connection.
    #[must_use]
    pub fn lost(&self) -> Option<Error> {
        self.state.lost().cloned()
    }

    /// Returns true if the connection accepts new sessions: it has logged in, has not ended, and
    /// the server does not shut down.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.is_ready()
    }

    /// Latest time of the next call of [`timeout`](Self::timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.state.poll_timeout().map(Into::into)
    }

    /// Handles the deadlines that have passed.
    pub fn timeout(&mut self, now: Instant) {
        self.state.handle_timeout(now.into(), 0);
    }

    /// Opens a session. Returns `None` if the connection is not ready.
    pub fn open(&mut self) -> Option<u64> {
        self.state.try_open()
    }

    /// Makes a request in a session.
    ///
    /// # Errors
    ///
    /// Returns an error if the request was not sent.
    pub fn ask(&mut self, session: u64, request: Request, due: Instant) -> Result<Asking, Error> {
        let wire = request.into_wire(Some(self.options.window_kib()));
        let seq = self.state.ask(session, wire, due.into())?;
        Ok(Asking { session, seq })
    }

    /// Opens an expect block in a session, or closes the innermost one.
    ///
    /// # Errors
    ///
    /// Returns an error if the request was not sent.
    pub fn ask_expect(
        &mut self,
        session: u64,
        open: Option<expect::Open>,
        due: Instant,
    ) -> Result<Asking, Error> {
        let message = open.map_or(ClientMessage::ExpectClose, ClientMessage::ExpectOpen);
        let seq = self.state.ask(session, Wire::new(Asked::Plain, message), due.into())?;
        Ok(Asking { session, seq })
    }

    /// Makes a request in a session of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the request was not sent.
    pub fn ask_once(&mut self, request: Request, due: Instant) -> Result<Asking, Error> {
        let (session, seq) = self.state.ask_once(request.into_wire(None), due.into())?;
        Ok(Asking { session, seq })
    }

    /// Requests timestamps.
    ///
    /// # Errors
    ///
    /// Returns an error if the request was not sent.
    pub fn ask_time(&mut self, count: i32, due: Instant) -> Result<Asking, Error> {
        let question = GetTso { leader_name: Vec::new(), batch_count: count };
        let message = ClientMessage::GetTso(question);
        let (session, seq) =
            self.state.ask_once(Wire::new(Asked::Timestamps, message), due.into())?;
        Ok(Asking { session, seq })
    }

    /// Takes the received frames of an answer, and its result if it has one.
    pub fn take(&mut self, asking: Asking) -> (Vec<u8>, Option<Result<(), Error>>) {
        let taken = self.state.take(asking.session, asking.seq);
        (taken.bytes, taken.result)
    }

    /// Calls `code` when `least` bytes of the answer, or its result, are there.
    pub fn watch(&mut self, asking: Asking, least: usize, code: impl FnOnce() + Send + 'static) {
        let watcher = Watcher::Call(Box::new(code));
        drop(self.state.watch(asking.session, asking.seq, least, watcher));
    }

    /// Runs due callbacks.
    pub fn tell(&mut self) {
        for event in self.state.take_events() {
            if let Watcher::Call(code) = event {
                code();
            }
        }
    }

    /// Abandons the answer.
    pub fn abandon(&mut self, asking: Asking) {
        drop(self.state.abandon(asking.session, asking.seq));
    }

    /// Interrupts the statement of the session.
    pub fn cancel(&mut self, session: u64) {
        self.state.cancel(session);
    }

    /// Closes the session.
    pub fn close(&mut self, session: u64, now: Instant) {
        self.state.close(session, now.into());
    }

    /// Sets whether the backlog is above the limit.
    pub fn set_full(&mut self, full: bool) {
        self.state.set_full(full);
    }

    /// Returns true if a session is usable, now or later.
    #[must_use]
    pub fn is_alive(&self, session: u64) -> bool {
        self.state.is_alive(session)
    }

    /// Number of open sessions, and of unanswered requests.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.state.open_sessions(), self.state.outstanding())
    }

    /// Returns true if no session keeps any data.
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
