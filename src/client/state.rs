//! [`State`]: one connection of a client, without I/O.
//!
//! Inputs are bytes ([`handle_input`](State::handle_input)), time
//! ([`handle_timeout`](State::handle_timeout)) and requests ([`ask`](State::ask)). Outputs are
//! bytes ([`take_out`](State::take_out)) and callers to notify
//! ([`take_events`](State::take_events)). It knows no socket, clock or thread.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{Error, ErrorKind, Stage};
use super::exchange::{Exchange, Shared, Taken};
use super::login::{self, Login};
use super::options::Options;
use super::request::Wire;
use super::slot::{Asked, Slot, Watcher};
use crate::codec::error::Scope;
use crate::codec::frame::{Dialect, Frame};
use crate::codec::message::{ClientMessage, ServerMessage};
use crate::sys::clock::Instant;

/// Stage of the connection.
#[derive(Debug)]
enum Lifecycle {
    Connecting {
        due: Instant,
    },
    LoggingIn {
        login: Login,
        due: Instant,
    },
    Ready,
    /// The server shuts down. It answers requests in progress and refuses others.
    Leaving,
    Lost(Error),
}

/// State of one connection.
pub(super) struct State {
    shared: Shared,
    lifecycle: Lifecycle,
    exchanges: HashMap<u64, Exchange>,
    next_session: u64,
    /// Last session whose held requests were sent because the backlog was low.
    served: u64,
    /// Time of the last input.
    heard: Instant,
    /// Deadline of the answer to a probe.
    probe_due: Option<Instant>,
}

/// Bit of a session id that marks a session of one statement.
const AUTO_COMMIT: u64 = 1 << 63;
/// Session of the login and of probes.
const CONNECTION: u64 = 0;
/// Older servers of the Galaxy dialect answer a login in this session.
const GALAXY_LOGIN: u64 = 1;
/// First session id that the client uses. 1 is reserved.
const FIRST_SESSION: u64 = 2;

impl State {
    pub(super) fn new(options: Arc<Options>, now: Instant) -> Self {
        let due = now + options.connect_timeout;
        Self {
            shared: Shared::new(options),
            lifecycle: Lifecycle::Connecting { due },
            exchanges: HashMap::new(),
            next_session: FIRST_SESSION,
            served: 0,
            heard: now,
            probe_due: None,
        }
    }

    /// Limits the frames that are sent and received.
    pub(super) fn limit_frames(&mut self, bytes: usize) {
        self.shared.limits.frame_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    // ---- events of the connection ----

    /// Begins the login on the established connection.
    pub(super) fn handle_connected(&mut self, now: Instant) {
        if let Lifecycle::Connecting { .. } = self.lifecycle {
            let (login, first) = Login::start(&self.shared.options);
            self.lifecycle =
                Lifecycle::LoggingIn { login, due: now + self.shared.options.login_timeout };
            self.heard = now;
            self.shared.send(CONNECTION, &first);
        }
    }

    /// Ends the connection, which was not established in time.
    pub(super) fn handle_connect_timeout(&mut self) {
        let stage = Stage::Connect(self.shared.options.connect_timeout);
        self.lose(&Error::not_sent(ErrorKind::Deadline(stage)));
    }

    /// Takes whole frames from the start of `input`. Returns their length, and the length of the
    /// incomplete frame behind them if its header is known.
    pub(super) fn handle_input(&mut self, input: &[u8], now: Instant) -> (usize, Option<usize>) {
        let dialect = self.shared.options.dialect;
        let mut at = 0;
        self.heard = now;
        self.probe_due = None;
        let need = loop {
            if self.lost().is_some() {
                at = input.len();
                break None;
            }
            let rest = &input[at..];
            match Frame::parse(rest, dialect, &self.shared.limits) {
                Ok(Some((frame, bytes))) if is_connection(frame.session(), dialect) => {
                    self.handle_connection_frame(&frame, now);
                    at += bytes;
                }
                Ok(Some((frame, bytes))) => at += self.handle_frames(frame, bytes, rest),
                Ok(None) => {
                    let header = dialect.parse(rest, self.shared.limits.frame_bytes).ok().flatten();
                    break header.map(|header| dialect.frame_bytes(&header));
                }
                Err(error) => self.lose(&Error::malformed(error)),
            }
        };
        (at, need)
    }

    /// Ends the connection with this error.
    pub(super) fn lose(&mut self, error: &Error) {
        if self.lost().is_some() {
            return;
        }
        self.lifecycle = Lifecycle::Lost(error.clone());
        self.shared.out = Vec::new();
        for session in self.sessions() {
            self.session(session, |exchange, shared| exchange.die(error, shared));
        }
    }

    /// Error that ended the connection.
    pub(super) const fn lost(&self) -> Option<&Error> {
        match &self.lifecycle {
            Lifecycle::Lost(error) => Some(error),
            _ => None,
        }
    }

    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Ready)
    }

    /// Returns true if the server shuts down. The connection then serves only requests in progress.
    pub(super) const fn is_leaving(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Leaving)
    }

    /// Ends a connection whose server shuts down, if it has no session and no unanswered request. A
    /// proxy may report the shutdown of another server, and would keep the connection open.
    pub(super) fn end_if_done(&mut self) {
        if self.is_leaving() && self.shared.open == 0 && self.shared.unanswered == 0 {
            self.lose(&Error::unknown(ErrorKind::Lost("the server shuts down".into())));
        }
    }

    /// Number of sessions that the server holds, or will open.
    pub(super) const fn open_sessions(&self) -> usize {
        self.shared.open
    }

    /// Number of unanswered requests.
    pub(super) const fn outstanding(&self) -> usize {
        self.shared.unanswered
    }

    /// Number of errors that answer no request and end no session.
    pub(super) const fn stray_errors(&self) -> u64 {
        self.shared.stray_errors
    }

    /// Returns true if no session keeps any data.
    #[cfg(any(test, feature = "internal"))]
    pub(super) fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    // ---- actions for the caller ----

    pub(super) fn take_out(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.shared.out)
    }

    pub(super) fn take_events(&mut self) -> Vec<Watcher> {
        std::mem::take(&mut self.shared.events)
    }

    /// Returns true if a session ended or the server began to shut down since the last call.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.shared.freed)
    }

    /// Latest time of the next call of [`handle_timeout`](Self::handle_timeout).
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let own = match self.lifecycle {
            Lifecycle::Connecting { due } | Lifecycle::LoggingIn { due, .. } => due,
            Lifecycle::Ready | Lifecycle::Leaving => {
                self.probe_due.unwrap_or(self.heard + self.shared.options.probe_interval)
            }
            Lifecycle::Lost(_) => return None,
        };
        Some(self.shared.next_due.map_or(own, |due| due.min(own)))
    }

    /// Handles passed deadlines. `unsent` is the size of the output in the backlog, in bytes.
    pub(super) fn handle_timeout(&mut self, now: Instant, unsent: usize) {
        match self.lifecycle {
            Lifecycle::Connecting { due } if due <= now => self.handle_connect_timeout(),
            Lifecycle::LoggingIn { due, .. } if due <= now => {
                let stage = Stage::Login(self.shared.options.login_timeout);
                self.lose(&Error::not_sent(ErrorKind::Deadline(stage)));
            }
            Lifecycle::Ready | Lifecycle::Leaving => self.probe(now, unsent),
            _ => {}
        }
        if self.shared.next_due.is_some_and(|due| due <= now) {
            let is_late = |slot: &Slot| slot.deadline.is_some_and(|due| due <= now);
            let sessions = self.sessions().into_iter();
            let next_due = sessions.filter_map(|session| self.expire(session, is_late)).min();
            self.shared.next_due = next_due;
        }
    }

    fn probe(&mut self, now: Instant, unsent: usize) {
        match self.probe_due {
            // The probe may stand behind a long upload. `net_write_timeout` ends the connection if
            // the server takes nothing of it.
            Some(due) if due <= now && unsent > 0 => {
                self.probe_due = Some(now + self.shared.options.probe_timeout);
            }
            Some(due) if due <= now => {
                let silent = now.duration_since(self.heard);
                let reason = format!("no answer to a probe, silent for {silent:?} (probe_timeout)");
                self.lose(&Error::unknown(ErrorKind::Lost(reason.into())));
            }
            None if self.heard + self.shared.options.probe_interval <= now => {
                self.probe_due = Some(now + self.shared.options.probe_timeout);
                self.shared.send(CONNECTION, &ClientMessage::CapabilitiesGet);
            }
            _ => {}
        }
    }

    // ---- sessions and requests ----

    /// Changes a session. Removes it if that was its end. Returns `None` if it is not known.
    fn session<R>(
        &mut self,
        session: u64,
        code: impl FnOnce(&mut Exchange, &mut Shared) -> R,
    ) -> Option<R> {
        let exchange = self.exchanges.get_mut(&session)?;
        let result = code(exchange, &mut self.shared);
        if exchange.is_done() {
            self.exchanges.remove(&session);
        }
        if std::mem::take(&mut self.shared.shutdown) {
            self.leave();
        }
        Some(result)
    }

    /// Known sessions, in order.
    fn sessions(&self) -> Vec<u64> {
        let mut sessions: Vec<u64> = self.exchanges.keys().copied().collect();
        sessions.sort_unstable();
        sessions
    }

    /// Opens a session, unless the connection is not ready. The server learns of it with the first
    /// request.
    pub(super) fn try_open(&mut self) -> Option<u64> {
        if !self.is_ready() {
            return None;
        }
        let session = self.next();
        self.exchanges.insert(session, Exchange::open(session, &mut self.shared));
        Some(session)
    }

    fn next(&mut self) -> u64 {
        let session = self.next_session;
        self.next_session += 1;
        session
    }

    /// Sends a request, or holds it until it may be sent. Returns its number.
    pub(super) fn ask(
        &mut self,
        session: u64,
        wire: Wire,
        deadline: Instant,
    ) -> Result<u64, Error> {
        if let Some(lost) = self.lost() {
            return Err(Error::not_sent(lost.kind().clone()));
        }
        self.session(session, |exchange, shared| exchange.ask(wire, deadline, shared))
            .unwrap_or_else(|| Err(Error::not_sent(ErrorKind::SessionEnded)))
    }

    /// Sends a request in a session of its own. Returns its session and number.
    pub(super) fn ask_once(&mut self, wire: Wire, deadline: Instant) -> Result<(u64, u64), Error> {
        let number = self.next();
        let session = if wire.asked == Asked::Statement { number | AUTO_COMMIT } else { number };
        if self.lost().is_none() {
            self.exchanges.insert(session, Exchange::once(session));
        }
        self.ask(session, wire, deadline).map(|seq| (session, seq))
    }

    /// Bytes of unsent output above which new requests are held back.
    pub(super) fn max_unsent_bytes(&self) -> usize {
        self.shared.options.max_unsent_bytes
    }

    /// Returns true if the backlog, or output that is not sent yet, is above the limit.
    pub(super) fn is_full(&self) -> bool {
        self.shared.full
    }

    /// Sets whether the backlog is above the limit. Below it, offers and held requests are sent, up
    /// to the limit. The next call goes on behind the last session.
    pub(super) fn set_full(&mut self, full: bool) {
        if std::mem::replace(&mut self.shared.full, full) && !full {
            let mut sessions = self.sessions();
            let done = sessions.partition_point(|&session| session <= self.served);
            sessions.rotate_left(done);
            for session in sessions {
                if self.shared.full {
                    break;
                }
                self.served = session;
                self.session(session, |exchange, shared| {
                    exchange.offer_current(shared);
                    exchange.send_held(shared);
                });
            }
        }
    }

    /// See [`Exchange::make_cancellable`].
    pub(super) fn make_cancellable(&mut self, session: u64) {
        self.session(session, |exchange, _| exchange.make_cancellable());
    }

    /// See [`Exchange::cancel`].
    pub(super) fn cancel(&mut self, session: u64) {
        self.session(session, Exchange::cancel);
    }

    /// See [`Exchange::close`].
    pub(super) fn close(&mut self, session: u64, now: Instant) {
        self.session(session, |exchange, shared| exchange.close(now, shared));
    }

    /// Returns true if the session is usable and has no unanswered request.
    pub(super) fn is_session_idle(&self, session: u64) -> bool {
        self.exchanges.get(&session).is_some_and(Exchange::is_idle)
    }

    /// Returns true if the session is usable, now or later.
    pub(super) fn is_alive(&self, session: u64) -> bool {
        self.exchanges.get(&session).is_some_and(Exchange::is_alive)
    }

    /// See [`Exchange::take`].
    pub(super) fn take(&mut self, session: u64, seq: u64) -> Taken {
        self.session(session, |exchange, shared| exchange.take(seq, shared))
            .unwrap_or_else(Taken::ended)
    }

    /// Notifies `watcher` when `least` bytes or the result are there, perhaps at once. Returns the
    /// previous watcher, which is not notified. The caller drops it without a lock, because it is a
    /// foreign value.
    #[must_use]
    pub(super) fn watch(
        &mut self,
        session: u64,
        seq: u64,
        least: usize,
        watcher: Watcher,
    ) -> Option<Watcher> {
        let slot = self.exchanges.get_mut(&session).and_then(|exchange| exchange.slot(seq));
        match slot {
            Some(slot) if !slot.is_ready(least) => slot.watch(least, watcher),
            _ => {
                self.shared.events.push(watcher);
                None
            }
        }
    }

    /// See [`Exchange::abandon`].
    #[must_use]
    pub(super) fn abandon(&mut self, session: u64, seq: u64) -> Option<Watcher> {
        self.session(session, |exchange, shared| exchange.abandon(seq, shared)).flatten()
    }

    /// See [`Exchange::expire`].
    pub(super) fn expire(
        &mut self,
        session: u64,
        is_late: impl Fn(&Slot) -> bool,
    ) -> Option<Instant> {
        self.session(session, |exchange, shared| exchange.expire(is_late, shared)).flatten()
    }

    // ---- frames ----

    /// Handles the frame of a session at the start of `input`, which has `length` bytes, and those of
    /// the same session behind it. Returns their length in bytes.
    fn handle_frames(&mut self, first: Frame<'_>, length: usize, input: &[u8]) -> usize {
        let (session, mut at) = (first.session(), length);
        self.session(session, |exchange, shared| {
            exchange.handle_frame(&first, shared);
            while let Ok(Some((frame, bytes))) =
                Frame::parse(&input[at..], shared.options.dialect, &shared.limits)
                && frame.session() == session
            {
                exchange.handle_frame(&frame, shared);
                at += bytes;
            }
        });
        // A late frame of a session that was removed is ignored.
        at
    }

    fn handle_connection_frame(&mut self, frame: &Frame<'_>, now: Instant) {
        let message = match frame.server_message(&self.shared.limits) {
            Ok(message) => message,
            Err(error) => return self.lose(&Error::malformed(error)),
        };
        if let Lifecycle::LoggingIn { login, .. } = &mut self.lifecycle {
            match login.handle(message, &self.shared.options) {
                login::Step::Wait => {}
                login::Step::Send(message) => self.shared.send(CONNECTION, &message),
                login::Step::Done => {
                    self.lifecycle = Lifecycle::Ready;
                    self.heard = now;
                }
                login::Step::Failed(error) => self.lose(&error),
            }
            return;
        }
        match message {
            ServerMessage::Error(error) if error.scope() == Scope::Session => {
                self.lose(&Error::unknown(ErrorKind::Lost(error.to_string().into())));
            }
            ServerMessage::Error(_) => self.shared.stray_errors += 1,
            _ => {}
        }
    }

    /// Notes that the server shuts down. Sessions that it does not know yet end, because it would not
    /// open them.
    fn leave(&mut self) {
        if !self.is_ready() {
            return;
        }
        self.lifecycle = Lifecycle::Leaving;
        // Callers that wait for a session of this connection need another one.
        self.shared.freed = true;
        for session in self.sessions() {
            self.session(session, |exchange, shared| {
                if exchange.is_unopened() {
                    exchange.die(&Error::not_sent(ErrorKind::SessionEnded), shared);
                }
            });
        }
    }
}

/// Returns true if frames of this session are about the whole connection.
const fn is_connection(session: u64, dialect: Dialect) -> bool {
    session == CONNECTION || (session == GALAXY_LOGIN && matches!(dialect, Dialect::Galaxy { .. }))
}

/// A state against hand-made frames, without a socket or a clock.
#[cfg(test)]
mod tests {
    mod bench;
    mod deadlines;
    mod login;
    mod replies;
    mod windows;
}
