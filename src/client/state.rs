//! [`State`]: one connection of a client, without I/O.
//!
//! Inputs are bytes ([`handle_input`](State::handle_input)), time
//! ([`handle_timeout`](State::handle_timeout)) and requests ([`ask`](State::ask)). Outputs are
//! bytes ([`take_out`](State::take_out)) and callers to notify
//! ([`take_events`](State::take_events)). It knows no socket, clock or thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::error::{Error, ErrorKind, Fate, ServerError, Stage};
use super::exchange::Exchange;
use super::login::{self, Login};
use super::options::Options;
use super::request::Wire;
use super::slot::{Asked, Place, Slot, Step, Watcher};
use crate::codec::error::{INTERRUPTED_STATE, code};
use crate::codec::frame::{Dialect, Frame};
use crate::codec::limits::Limits;
use crate::codec::message::{ClientMessage, ServerKind, ServerMessage};
use crate::codec::proto::generic::ErrorReply;
use crate::codec::proto::session::{KillSession, kill_session};
use crate::codec::proto::sql::TokenOffer;

/// Stage of the connection.
#[derive(Debug)]
enum Stand {
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

/// Part of an answer that was taken.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Whole frames.
    pub(super) bytes: Vec<u8>,
    /// Result of the request. No more frames follow it.
    pub(super) result: Option<Result<(), Error>>,
}

impl Taken {
    pub(super) const fn is_nothing(&self) -> bool {
        self.bytes.is_empty() && self.result.is_none()
    }
}

/// State of one connection.
pub(super) struct State {
    options: Arc<Options>,
    limits: Limits,
    stand: Stand,
    exchanges: HashMap<u64, Exchange>,
    next_session: u64,
    /// Number of sessions that the server holds, or will open.
    open: usize,
    /// Number of unanswered requests, including openings and closings of sessions.
    unanswered: usize,
    out: Vec<u8>,
    events: Vec<Watcher>,
    /// Watchers that are not notified any more.
    unwanted: Vec<Watcher>,
    /// Set when a session ended, so there may be room for another, or when the server shuts down.
    freed: bool,
    /// Sessions with frames in the current input.
    touched: Vec<u64>,
    /// Time of the last input.
    heard: Instant,
    /// Deadline of the answer to a probe.
    probe_due: Option<Instant>,
    /// Lower bound of the deadlines of all requests.
    next_due: Option<Instant>,
    /// Set while the backlog is above the limit. Requests and offers then wait.
    full: bool,
    /// Number of errors that answer no request and end no session.
    stray_errors: u64,
}

/// Bit of a session id that marks a session of one statement.
const AUTO_COMMIT: u64 = 1 << 63;
/// Session of the login and of probes.
const CONNECTION: u64 = 0;
/// First session id that the client uses. 1 is reserved.
const FIRST_SESSION: u64 = 2;

impl State {
    pub(super) fn new(options: Arc<Options>, now: Instant) -> Self {
        let due = now + options.connect_timeout;
        Self {
            options,
            limits: Limits::default(),
            stand: Stand::Connecting { due },
            exchanges: HashMap::new(),
            next_session: FIRST_SESSION,
            open: 0,
            unanswered: 0,
            out: Vec::new(),
            events: Vec::new(),
            unwanted: Vec::new(),
            freed: false,
            touched: Vec::new(),
            heard: now,
            probe_due: None,
            next_due: None,
            full: false,
            stray_errors: 0,
        }
    }

    // ---- events of the connection ----

    /// Begins the login on the established connection.
    pub(super) fn handle_connected(&mut self, now: Instant) {
        if let Stand::Connecting { .. } = self.stand {
            let (login, first) = Login::start(&self.options);
            self.stand = Stand::LoggingIn { login, due: now + self.options.login_timeout };
            self.heard = now;
            self.put(CONNECTION, &first);
        }
    }

    /// Takes whole frames from the start of `input`. Returns their length, and the length of the
    /// incomplete frame behind them if its header is known.
    pub(super) fn handle_input(&mut self, input: &[u8], now: Instant) -> (usize, Option<usize>) {
        let mut at = 0;
        self.heard = now;
        self.probe_due = None;
        let need = loop {
            if self.lost().is_some() {
                at = input.len();
                break None;
            }
            let rest = &input[at..];
            match Frame::parse(rest, Dialect::Legacy, &self.limits) {
                Ok(Some((frame, bytes))) => {
                    self.handle_frame(&frame, now);
                    at += bytes;
                }
                Ok(None) => {
                    let header =
                        Dialect::Legacy.parse(rest, self.limits.frame_bytes).ok().flatten();
                    break header.map(|header| Dialect::Legacy.frame_bytes(&header));
                }
                Err(error) => self.lose(&Error::protocol(error.to_string())),
            }
        };
        self.tell_touched();
        (at, need)
    }

    /// Ends the connection with this error.
    pub(super) fn lose(&mut self, error: &Error) {
        if self.lost().is_some() {
            return;
        }
        self.stand = Stand::Lost(error.clone());
        self.out = Vec::new();
        let Self { exchanges, events, unanswered, .. } = self;
        let mut ended: Vec<_> = exchanges.iter_mut().collect();
        ended.sort_unstable_by_key(|(session, _)| **session);
        for (_, exchange) in ended {
            end_all(exchange, error, events, unanswered);
        }
        self.open = 0;
        self.exchanges.retain(|_, exchange| !exchange.tidy());
    }

    /// Error that ended the connection.
    pub(super) const fn lost(&self) -> Option<&Error> {
        match &self.stand {
            Stand::Lost(error) => Some(error),
            _ => None,
        }
    }

    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.stand, Stand::Ready)
    }

    /// Returns true if the server shuts down. The connection then serves only requests in progress.
    pub(super) const fn is_leaving(&self) -> bool {
        matches!(self.stand, Stand::Leaving)
    }

    /// Ends a connection whose server shuts down, if it has no session and no unanswered request. A
    /// proxy may report the shutdown of another server, and would keep the connection open.
    pub(super) fn end_if_done(&mut self) {
        if self.is_leaving() && self.open == 0 && self.unanswered == 0 {
            self.lose(&Error::unknown(ErrorKind::Lost("the server shuts down".into())));
        }
    }

    /// Number of sessions that the server holds.
    pub(super) const fn open_sessions(&self) -> usize {
        self.open
    }

    /// Number of unanswered requests.
    pub(super) const fn outstanding(&self) -> usize {
        self.unanswered
    }

    /// Number of errors that answer no request and end no session.
    pub(super) const fn stray_errors(&self) -> u64 {
        self.stray_errors
    }

    /// Returns true if no session keeps any data.
    #[cfg(any(test, feature = "internal"))]
    pub(super) fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    // ---- actions for the caller ----

    pub(super) fn take_out(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn take_events(&mut self) -> Vec<Watcher> {
        std::mem::take(&mut self.events)
    }

    /// Watchers that are not notified any more. The caller drops them without a lock, because they
    /// are foreign values.
    pub(super) fn take_unwanted(&mut self) -> Vec<Watcher> {
        std::mem::take(&mut self.unwanted)
    }

    /// Returns true if a session ended since the last call.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Latest time of the next call of [`handle_timeout`](Self::handle_timeout).
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let own = match self.stand {
            Stand::Connecting { due } | Stand::LoggingIn { due, .. } => due,
            Stand::Ready | Stand::Leaving => {
                self.probe_due.unwrap_or(self.heard + self.options.probe_interval)
            }
            Stand::Lost(_) => return None,
        };
        Some(self.next_due.map_or(own, |due| due.min(own)))
    }

    /// Handles passed deadlines.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self.stand {
            Stand::Connecting { due } if due <= now => {
                let stage = Stage::Connect(self.options.connect_timeout);
                self.lose(&Error::not_sent(ErrorKind::Deadline(stage)));
            }
            Stand::LoggingIn { due, .. } if due <= now => {
                let stage = Stage::Login(self.options.login_timeout);
                self.lose(&Error::not_sent(ErrorKind::Deadline(stage)));
            }
            Stand::Ready | Stand::Leaving => self.probe(now),
            _ => {}
        }
        if self.next_due.is_some_and(|due| due <= now) {
            self.look_for_late(now);
        }
    }

    fn probe(&mut self, now: Instant) {
        match self.probe_due {
            Some(due) if due <= now => {
                let silent = now.saturating_duration_since(self.heard);
                let reason = format!("no answer to a probe, silent for {silent:?} (probe_timeout)");
                self.lose(&Error::unknown(ErrorKind::Lost(reason.into())));
            }
            None if self.heard + self.options.probe_interval <= now => {
                self.probe_due = Some(now + self.options.probe_timeout);
                self.put(CONNECTION, &ClientMessage::CapabilitiesGet);
            }
            _ => {}
        }
    }

    fn look_for_late(&mut self, now: Instant) {
        let mut next: Option<Instant> = None;
        let mut late = Vec::new();
        for (&session, exchange) in &mut self.exchanges {
            let first = exchange.first();
            for (index, slot) in (0_u64..).zip(exchange.slots()) {
                match slot.deadline {
                    Some(due) if slot.result.is_none() && due <= now => {
                        late.push((session, first + index));
                    }
                    Some(due) if slot.result.is_none() => {
                        next = Some(next.map_or(due, |next| next.min(due)));
                    }
                    _ => {}
                }
            }
        }
        self.next_due = next;
        late.sort_unstable();
        for (session, seq) in late {
            self.expire(session, seq);
        }
    }

    // ---- sessions and requests ----

    /// Opens a session. The server learns of it with the first request.
    fn open(&mut self) -> u64 {
        let session = self.next();
        self.exchanges.insert(session, Exchange::new(false));
        self.open += 1;
        session
    }

    /// Opens a session, unless the connection is not ready.
    pub(super) fn try_open(&mut self) -> Option<u64> {
        self.is_ready().then(|| self.open())
    }

    /// Opens a session for one request.
    pub(super) fn open_once(&mut self, asked: Asked) -> u64 {
        let number = self.next();
        let session = if asked == Asked::Statement { number | AUTO_COMMIT } else { number };
        self.exchanges.insert(session, Exchange::new(true));
        session
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
        asked: Asked,
        wire: Wire,
        deadline: Instant,
    ) -> Result<u64, Error> {
        if let Some(lost) = self.lost() {
            let error = Error::not_sent(lost.kind().clone());
            self.tidy(session);
            return Err(error);
        }
        let bytes = wire.again.as_deref().unwrap_or(&wire.message).body_bytes() + 1;
        let limit = usize::try_from(self.limits.frame_bytes).unwrap_or(usize::MAX);
        if bytes > limit {
            self.tidy(session);
            return Err(Error::not_sent(ErrorKind::TooLong { bytes, limit }));
        }
        let Some(exchange) = self.exchanges.get_mut(&session) else {
            return Err(Error::not_sent(ErrorKind::SessionEnded));
        };
        if exchange.dead.is_some() {
            return Err(Error::not_sent(ErrorKind::SessionEnded));
        }
        if !exchange.once && !exchange.opened {
            exchange.opened = true;
            exchange.push(Slot::new(Asked::Open, ClientMessage::SessionNew));
            self.unanswered += 1;
        }
        let mut slot = Slot::new(asked, wire.message);
        slot.again = wire.again;
        slot.left = (wire.has_rows && !exchange.once).then(|| window(&self.options));
        slot.deadline = Some(deadline);
        let seq = exchange.push(slot);
        self.unanswered += 1;
        self.note_due(deadline);
        self.send_held(session);
        Ok(seq)
    }

    fn note_due(&mut self, deadline: Instant) {
        self.next_due = Some(self.next_due.map_or(deadline, |due| due.min(deadline)));
    }

    /// Bytes of unsent output above which new requests are held back.
    pub(super) fn max_unsent_bytes(&self) -> usize {
        self.options.max_unsent_bytes
    }

    /// Sets whether the backlog is above the limit. Below it, held requests and offers are sent.
    pub(super) fn set_full(&mut self, full: bool) {
        if std::mem::replace(&mut self.full, full) && !full {
            let mut sessions: Vec<u64> = self.exchanges.keys().copied().collect();
            sessions.sort_unstable();
            for session in sessions {
                self.offer_current(session);
                self.send_held(session);
            }
        }
    }

    /// Sends held requests, as far as allowed.
    fn send_held(&mut self, session: u64) {
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        let (mut in_flight, left_alone) = exchange.in_flight();
        if left_alone || self.full || exchange.dead.is_some() {
            return;
        }
        while in_flight < self.options.max_pipelined {
            if exchange.cancellable && exchange.slots().any(|slot| slot.is_request_sent()) {
                return;
            }
            let Some(slot) = exchange.first_held() else { return };
            let Place::Held(message) = std::mem::replace(&mut slot.place, Place::Sent) else {
                return;
            };
            encode(&mut self.out, session, &message);
            in_flight += 1;
        }
    }

    /// Sends the requests of a session one at a time from now on, so that each can be cancelled.
    pub(super) fn make_cancellable(&mut self, session: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&session) {
            exchange.cancellable = true;
        }
    }

    /// Interrupts the running statement of the session, if no kill can reach another one.
    ///
    /// A kill names a session and no request, so the server interrupts the oldest unanswered one. A
    /// request that is sent behind the kill is safe, because the server reads in order.
    pub(super) fn cancel(&mut self, session: u64) {
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        if exchange.once || exchange.risks_next() {
            return;
        }
        let mut requests = exchange.slots().filter(|slot| slot.is_request_sent());
        if let Some(slot) = requests.next()
            && slot.asked() == Asked::Statement
        {
            kill(&mut self.out, session, kill_session::Type::Query);
            // If it were sent again, it would run although it was interrupted.
            slot.cancelled |= slot.again.take().is_some();
        }
    }

    /// Closes the session. Its outstanding requests are still answered.
    pub(super) fn close(&mut self, session: u64, now: Instant) {
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        exchange.closing = true;
        if exchange.dead.is_some() {
            return self.tidy(session);
        }
        let opened = exchange.opened;
        self.release();
        if opened && !self.kill_if_left(session) {
            let Some(exchange) = self.exchanges.get_mut(&session) else { return };
            let mut slot = Slot::new(Asked::Close, ClientMessage::SessionClose);
            // Requests in front of the closing may take longer.
            let due = now + self.options.request_timeout;
            let due = exchange.last_deadline().map_or(due, |last| last.max(due));
            slot.deadline = Some(due);
            exchange.push(slot);
            self.unanswered += 1;
            self.note_due(due);
            self.send_held(session);
        }
        self.tidy(session);
    }

    /// Notes that a session has ended.
    fn release(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.freed = true;
    }

    /// Ends a closed session whose requests no caller wants, because they may never end.
    fn kill_if_left(&mut self, session: u64) -> bool {
        let Some(exchange) = self.exchanges.get(&session) else { return false };
        let (_, left_alone) = exchange.in_flight();
        let left = exchange.closing && !exchange.once && left_alone && !exchange.is_wanted();
        if left {
            self.kill_session(session, &Error::unknown(ErrorKind::SessionEnded));
        }
        left
    }

    /// Ends a session at once, here and at the server.
    fn kill_session(&mut self, session: u64, error: &Error) {
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        if exchange.dead.is_some() {
            return;
        }
        if !exchange.once {
            kill(&mut self.out, session, kill_session::Type::Connection);
            encode(&mut self.out, session, &ClientMessage::SessionClose);
        }
        self.die(session, error);
    }

    fn tidy(&mut self, session: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&session)
            && exchange.tidy()
            && exchange.closing
        {
            self.exchanges.remove(&session);
        }
    }

    /// Returns true if the session is usable and has no outstanding request.
    pub(super) fn is_session_idle(&self, session: u64) -> bool {
        let exchange = self.exchanges.get(&session);
        exchange.is_some_and(|exchange| exchange.dead.is_none() && exchange.is_idle())
    }

    /// Returns true if the session is usable, now or later.
    pub(super) fn is_alive(&self, session: u64) -> bool {
        self.exchanges.get(&session).is_some_and(|exchange| exchange.dead.is_none())
    }

    // ---- answers ----

    /// Takes the part of an answer that arrived since the last call.
    pub(super) fn take(&mut self, session: u64, seq: u64) -> Taken {
        let slot = self.exchanges.get_mut(&session).and_then(|exchange| exchange.slot(seq));
        let Some(slot) = slot else {
            let ended = Some(Err(Error::unknown(ErrorKind::SessionEnded)));
            return Taken { bytes: Vec::new(), result: ended };
        };
        let taken = Taken { bytes: std::mem::take(&mut slot.bytes), result: slot.result.clone() };
        if taken.result.is_some() {
            slot.taken = true;
            // A request that exceeded its deadline still gets its answer later.
            let late = slot.is_sent();
            if late {
                self.offer(session, seq);
            }
            self.tidy(session);
        } else {
            self.offer(session, seq);
        }
        taken
    }

    /// Notifies `watcher` when `least` bytes or the result are there, perhaps at once.
    pub(super) fn watch(&mut self, session: u64, seq: u64, least: usize, watcher: Watcher) {
        let slot = self.exchanges.get_mut(&session).and_then(|exchange| exchange.slot(seq));
        match slot {
            Some(slot) if !slot.is_ready(least) => {
                let before = slot.watch(least, watcher);
                self.unwanted.extend(before);
            }
            _ => self.events.push(watcher),
        }
    }

    /// Discards the answer of a request.
    pub(super) fn abandon(&mut self, session: u64, seq: u64) {
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        let once = exchange.once;
        let Some(slot) = exchange.slot(seq) else { return };
        let watcher = slot.forget();
        self.unwanted.extend(watcher);
        if slot.is_held() || once {
            slot.answer(&mut self.unanswered);
        }
        self.interrupt_left(session);
        self.tidy(session);
    }

    /// Ends a request whose deadline has passed.
    pub(super) fn expire(&mut self, session: u64, seq: u64) {
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        let once = exchange.once;
        let Some(slot) = exchange.slot(seq) else { return };
        if slot.result.is_some() {
            return;
        }
        if slot.asked() == Asked::Close {
            // The client closes sessions by itself, so no caller waits for this answer.
            return self.kill_session(session, &Error::unknown(ErrorKind::Deadline(Stage::Reply)));
        }
        if slot.is_held() {
            slot.answer(&mut self.unanswered);
            slot.finish(Err(Error::not_sent(ErrorKind::Deadline(Stage::Enqueue))));
        } else {
            slot.finish(Err(Error::unknown(ErrorKind::Deadline(Stage::Reply))));
            if once {
                slot.answer(&mut self.unanswered);
            }
        }
        let watcher = slot.take_watcher();
        self.events.extend(watcher);
        self.interrupt_left(session);
    }

    /// Interrupts the running statement if no caller wants its answer, because it delays the later
    /// requests of its session. A kill must not reach a wanted request: see [`cancel`](Self::cancel).
    fn interrupt_left(&mut self, session: u64) {
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        if exchange.once || exchange.dead.is_some() || self.kill_if_left(session) {
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        if exchange.risks_next() {
            // The statement needs credit to run to its end.
            return self.offer_current(session);
        }
        if let Some(slot) = exchange.current()
            && slot.is_left()
            && slot.asked() == Asked::Statement
            && !std::mem::replace(&mut slot.killed, true)
        {
            kill(&mut self.out, session, kill_session::Type::Query);
        }
    }

    fn offer_current(&mut self, session: u64) {
        if let Some(exchange) = self.exchanges.get(&session) {
            self.offer(session, exchange.current_seq());
        }
    }

    /// Grants the server more credit for an answer, when little is left or the server has stopped.
    ///
    /// A stop may have crossed the last grant, or the server may have charged bytes that are not of this
    /// answer. The client cannot tell. Without a grant the server might wait for ever, so it gets one.
    fn offer(&mut self, session: u64, seq: u64) {
        if self.full {
            return;
        }
        let size = window(&self.options);
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        let Some(slot) = exchange.slot(seq) else { return };
        let Some(left) = &mut slot.left else { return };
        let unread = i64::try_from(slot.bytes.len()).unwrap_or(i64::MAX);
        if (slot.stopped || *left < size / 5) && unread < size / 5 {
            *left = size;
            slot.stopped = false;
            let offer = TokenOffer { token: Some(self.options.window_kib()) };
            encode(&mut self.out, session, &ClientMessage::TokenOffer(offer));
        }
    }

    // ---- frames ----

    fn handle_frame(&mut self, frame: &Frame<'_>, now: Instant) {
        let session = frame.session();
        if session == CONNECTION {
            return self.handle_connection_frame(frame, now);
        }
        // Late frame of a session that was removed.
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        if exchange.dead.is_some() {
            return;
        }
        let Some(slot) = exchange.current() else {
            // An error without a request, for example about a late offer.
            return self.handle_stray(session, frame);
        };
        match slot.step(ServerKind::from_number(frame.kind())) {
            // Notices, which have no reader here.
            Step::More if slot.asked() == Asked::Timestamps => {}
            Step::More => {
                let bytes = frame.bytes();
                if !slot.taken && slot.result.is_none() {
                    slot.bytes.extend_from_slice(bytes);
                    let (held, limit) = (slot.bytes.len(), self.options.max_answer_bytes);
                    if held > limit {
                        let kind = ErrorKind::TooMuch { bytes: held, limit };
                        return self.kill_session(session, &Error::unknown(kind));
                    }
                }
                if let Some(left) = &mut slot.left {
                    *left -= i64::try_from(bytes.len()).unwrap_or(i64::MAX);
                }
                self.touch(session);
            }
            Step::Stopped if slot.left.is_none() => {
                self.kill_session(session, &Error::protocol("a stop without a window"));
            }
            Step::Stopped => {
                slot.stopped = true;
                self.offer_current(session);
                self.touch(session);
            }
            Step::End => {
                if slot.asked() == Asked::Timestamps {
                    slot.bytes.extend_from_slice(frame.bytes());
                }
                slot.finish(Ok(()));
                self.end_current(session);
            }
            Step::Error => self.handle_error(session, frame),
            Step::Illegal => {
                let what = format!("kind {} in answer to {:?}", frame.kind(), slot.asked());
                self.kill_session(session, &Error::protocol(what));
            }
        }
    }

    /// Completes the current request.
    fn end_current(&mut self, session: u64) {
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        let Some(slot) = exchange.current() else { return };
        slot.answer(&mut self.unanswered);
        slot.left = None;
        if slot.asked() == Asked::Close {
            exchange.dead = Some(Error::not_sent(ErrorKind::SessionEnded));
        }
        self.touch(session);
        self.interrupt_left(session);
        self.send_held(session);
        self.tidy(session);
    }

    fn handle_error(&mut self, session: u64, frame: &Frame<'_>) {
        let Ok(ServerMessage::Error(reply)) = frame.server_message(&self.limits) else {
            return self.kill_session(session, &Error::protocol("a malformed error"));
        };
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        let is_last = exchange.is_current_last();
        let Some(slot) = exchange.current() else { return };
        if reply.is_cache_miss()
            && is_last
            && slot.is_untouched()
            && let Some(message) = slot.again.take()
        {
            encode(&mut self.out, session, &message);
            return;
        }
        let asked = slot.asked();
        // The user does not know of the digest. Without the cancellation the request would have
        // been sent again.
        let reply = if reply.is_cache_miss() && slot.cancelled { interrupted() } else { reply };
        let error = Arc::new(ServerError::new(reply));
        match asked {
            // The server runs no request behind a failed opening.
            Asked::Open => {
                let error = Error::new(Fate::Refused, ErrorKind::Server(error));
                self.die(session, &error);
            }
            _ if error.is_fatal() => {
                let error = Error::server(error);
                self.die(session, &error);
            }
            _ => {
                slot.finish(Err(Error::server(error)));
                self.end_current(session);
            }
        }
    }

    /// Notes that the server shuts down. Sessions that it does not know yet end, because it would not
    /// open them.
    fn leave(&mut self) {
        if !self.is_ready() {
            return;
        }
        self.stand = Stand::Leaving;
        // Callers that wait for a session of this connection need another one.
        self.freed = true;
        let unopened = |exchange: &Exchange| !exchange.once && !exchange.opened;
        let sessions = self.exchanges.iter().filter(|(_, exchange)| unopened(exchange));
        let mut sessions: Vec<u64> = sessions.map(|(&session, _)| session).collect();
        sessions.sort_unstable();
        for session in sessions {
            self.die(session, &Error::not_sent(ErrorKind::SessionEnded));
        }
    }

    /// Ends a session. All its requests get this error.
    fn die(&mut self, session: u64, error: &Error) {
        if let ErrorKind::Server(error) = error.kind()
            && error.is_fatal()
            && error.code() == code::SHUTDOWN
        {
            self.leave();
        }
        let Some(exchange) = self.exchanges.get_mut(&session) else { return };
        end_all(exchange, error, &mut self.events, &mut self.unanswered);
        if !exchange.once && !exchange.closing {
            self.release();
        }
        self.tidy(session);
    }

    /// Handles a frame that answers no request.
    fn handle_stray(&mut self, session: u64, frame: &Frame<'_>) {
        match frame.server_message(&self.limits) {
            Ok(ServerMessage::Notice(_) | ServerMessage::TokenDone(_)) => {}
            Ok(ServerMessage::Error(reply)) => {
                let error = ServerError::new(reply);
                if error.is_fatal() {
                    self.die(session, &Error::server(Arc::new(error)));
                } else {
                    self.stray_errors += 1;
                }
            }
            _ => {
                let what = format!("kind {} in answer to nothing", frame.kind());
                self.kill_session(session, &Error::protocol(what));
            }
        }
    }

    fn handle_connection_frame(&mut self, frame: &Frame<'_>, now: Instant) {
        let message = match frame.server_message(&self.limits) {
            Ok(message) => message,
            Err(error) => return self.lose(&Error::protocol(error.to_string())),
        };
        if let Stand::LoggingIn { login, .. } = &mut self.stand {
            match login.handle(message, &self.options) {
                login::Step::Wait => {}
                login::Step::Send(message) => self.put(CONNECTION, &message),
                login::Step::Done => {
                    self.stand = Stand::Ready;
                    self.heard = now;
                }
                login::Step::Failed(error) => self.lose(&error),
            }
            return;
        }
        if let ServerMessage::Error(error) = message {
            let error = ServerError::new(error);
            if error.is_fatal() {
                self.lose(&Error::unknown(ErrorKind::Lost(error.to_string().into())));
            } else {
                self.stray_errors += 1;
            }
        }
    }

    fn touch(&mut self, session: u64) {
        if self.touched.last() != Some(&session) {
            self.touched.push(session);
        }
    }

    /// Notifies the callers with new frames, after the whole input was handled.
    fn tell_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for session in touched.drain(..) {
            if let Some(exchange) = self.exchanges.get_mut(&session) {
                self.events.extend(exchange.slots().filter_map(Slot::take_watcher));
            }
        }
        self.touched = touched;
    }

    fn put(&mut self, session: u64, message: &ClientMessage) {
        encode(&mut self.out, session, message);
    }
}

/// Ends all requests of a session with this error.
fn end_all(
    exchange: &mut Exchange,
    error: &Error,
    events: &mut Vec<Watcher>,
    unanswered: &mut usize,
) {
    for slot in exchange.slots() {
        if slot.is_answered() {
            continue;
        }
        let error = match (slot.is_held(), error.fate()) {
            (true, Fate::Unknown) => Error::not_sent(error.kind().clone()),
            (false, Fate::NotSent) => Error::unknown(error.kind().clone()),
            _ => error.clone(),
        };
        slot.finish(Err(error));
        slot.answer(unanswered);
        events.extend(slot.take_watcher());
    }
    exchange.dead = Some(error.clone());
}

fn window(options: &Options) -> i64 {
    i64::from(options.window_kib()) * 1024
}

fn kill(out: &mut Vec<u8>, session: u64, what: kill_session::Type) {
    let kill = KillSession { r#type: what.into(), x_session_id: session };
    encode(out, session, &ClientMessage::SessionKill(kill));
}

/// Error of a server for an interrupted statement.
fn interrupted() -> ErrorReply {
    ErrorReply::error(code::INTERRUPTED, INTERRUPTED_STATE, "Query execution was interrupted")
}

fn encode(out: &mut Vec<u8>, session: u64, message: &ClientMessage) {
    let encoded = message.encode(Dialect::Legacy, session, out);
    debug_assert!(encoded.is_ok(), "its length was looked at before");
}

#[cfg(test)]
mod tests;
