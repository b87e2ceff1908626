//! [`Exchange`]: the requests of one session, in order.
//!
//! ```text
//!  oldest                                                  newest
//!  ┌──────────┬──────────┬──────────┬─────────────────┐
//!  │ answered │ sent     │ sent     │ held            │
//!  │ not taken│ receiving│ waits    │ not on the wire │
//!  └──────────┴────▲─────┴──────────┴─────────────────┘
//!                  └ next frame of the session belongs to it
//! ```
//!
//! Replies have no number: a reply belongs to the oldest unanswered request. So an abandoned
//! request keeps its place until its answer has arrived. A request is removed when it was answered
//! and its result was taken.

use std::collections::VecDeque;
use std::sync::Arc;

use super::error::{Error, ErrorKind, Fate, Stage};
use super::options::Options;
use super::request::Wire;
use super::slot::{Asked, Place, Slot, Step, Watcher};
use crate::codec::error::{INTERRUPTED_STATE, Scope, code};
use crate::codec::frame::Frame;
use crate::codec::limits::Limits;
use crate::codec::message::{ClientMessage, ServerKind, ServerMessage};
use crate::codec::proto::generic::ErrorReply;
use crate::codec::proto::session::{KillSession, KillSessionType};
use crate::codec::proto::sql::TokenOffer;
use crate::sys::clock::Instant;

/// Requests of one session.
pub(super) struct Exchange {
    session: u64,
    slots: VecDeque<Slot>,
    /// Number of slots at the front that are answered and not taken. Without it each frame would look
    /// at all of them.
    answered: usize,
    /// Number of the next request.
    next_seq: u64,
    /// Set when the session has ended. No more requests are sent.
    dead: bool,
    /// Set if the session serves one request only.
    once: bool,
    /// Set when the server has opened the session or is about to.
    opened: bool,
    /// Set when the session has a canceller. Its requests are then sent one at a time.
    cancellable: bool,
    /// Set if the session is to be removed after its last request: it was closed, or serves one
    /// request only.
    closing: bool,
}

/// Output, notifications and counts that the sessions of a connection share.
pub(super) struct Shared {
    pub(super) options: Arc<Options>,
    pub(super) limits: Limits,
    pub(super) out: Vec<u8>,
    /// Callers to notify.
    pub(super) events: Vec<Watcher>,
    /// Number of sessions that the server holds, or will open.
    pub(super) open: usize,
    /// Number of unanswered requests, including openings and closings of sessions.
    pub(super) unanswered: usize,
    /// Set when a session ended, so there may be room for another, or when the server shuts down.
    pub(super) freed: bool,
    /// Set when an error of the server told that it shuts down.
    pub(super) shutdown: bool,
    /// Lower bound of the deadlines of all requests.
    pub(super) next_due: Option<Instant>,
    /// Set while the backlog or `out` is above the limit. Requests and offers then wait.
    pub(super) full: bool,
    /// Number of errors that answer no request and end no session.
    pub(super) stray_errors: u64,
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

    /// Answer of a request that is not known any more.
    pub(super) const fn ended() -> Self {
        let ended = Some(Err(Error::unknown(ErrorKind::SessionEnded)));
        Self { bytes: Vec::new(), result: ended }
    }
}

impl Shared {
    pub(super) fn new(options: Arc<Options>) -> Self {
        Self {
            options,
            limits: Limits::default(),
            out: Vec::new(),
            events: Vec::new(),
            open: 0,
            unanswered: 0,
            freed: false,
            shutdown: false,
            next_due: None,
            full: false,
            stray_errors: 0,
        }
    }

    pub(super) fn send(&mut self, session: u64, message: &ClientMessage) {
        let encoded = message.encode(self.options.dialect, session, &mut self.out);
        debug_assert!(encoded.is_ok(), "its length was looked at before");
    }

    /// Ends a request, and has its watcher notified. A result that was set before stays.
    fn end(&mut self, slot: &mut Slot, result: Result<(), Error>) {
        slot.finish(result);
        slot.answer(&mut self.unanswered);
        self.events.extend(slot.take_watcher());
    }

    fn kill(&mut self, session: u64, what: KillSessionType) {
        let kill = KillSession { r#type: what, x_session_id: session };
        self.send(session, &ClientMessage::SessionKill(kill));
    }

    /// Interrupts the statement of a session that serves one request only. Its id is not reused. So
    /// a kill behind the end of the statement reaches no other statement, and the answer to the
    /// kill is ignored.
    fn interrupt_once(&mut self, session: u64, slot: &Slot) {
        if slot.is_sent() && slot.asked() == Asked::Statement {
            self.kill(session, KillSessionType::Query);
        }
    }

    /// Notes that a session has ended.
    fn release(&mut self) {
        self.open -= 1;
        self.freed = true;
    }

    /// Credit for one answer, in bytes.
    fn window(&self) -> i64 {
        i64::from(self.options.window_kib()) * 1024
    }
}

impl Exchange {
    /// Opens a session. The server learns of it with the first request.
    pub(super) fn open(session: u64, shared: &mut Shared) -> Self {
        shared.open += 1;
        Self::new(session, false)
    }

    /// Creates a session for one request.
    pub(super) const fn once(session: u64) -> Self {
        Self::new(session, true)
    }

    const fn new(session: u64, once: bool) -> Self {
        Self {
            session,
            slots: VecDeque::new(),
            answered: 0,
            next_seq: 0,
            dead: false,
            once,
            opened: false,
            cancellable: false,
            closing: once,
        }
    }

    // ---- the caller's side ----

    /// Sends a request, or holds it until it may be sent. Returns its number.
    pub(super) fn ask(
        &mut self,
        wire: Wire,
        deadline: Instant,
        shared: &mut Shared,
    ) -> Result<u64, Error> {
        let bytes = wire.again.as_deref().unwrap_or(&wire.message).body_bytes() + 1;
        let limit = usize::try_from(shared.limits.frame_bytes).unwrap_or(usize::MAX);
        if bytes > limit {
            return Err(Error::not_sent(ErrorKind::TooLong { bytes, limit }));
        }
        if self.dead {
            return Err(Error::not_sent(ErrorKind::SessionEnded));
        }
        let limit = shared.options.max_outstanding;
        // The opening is the first of all requests. The user did not make it, so it does not count.
        let opening = self.slots.front().is_some_and(|slot| slot.asked() == Asked::Open);
        if self.slots.len() - usize::from(opening) >= limit {
            return Err(Error::not_sent(ErrorKind::TooManyOutstanding(limit)));
        }
        if !self.once && !self.opened {
            self.opened = true;
            self.push(Slot::new(Asked::Open, ClientMessage::SessionNew), shared);
        }
        // The kill of an unwanted statement may have reached the server before the statement ran.
        if self.current().is_some_and(|slot| std::mem::take(&mut slot.killed)) {
            self.interrupt_left(shared);
        }
        let has_window = wire.asked == Asked::Statement && !self.once;
        let mut slot = Slot::new(wire.asked, wire.message);
        slot.again = wire.again;
        slot.left = has_window.then(|| shared.window());
        slot.deadline = Some(deadline);
        let seq = self.push(slot, shared);
        self.send_held(shared);
        Ok(seq)
    }

    fn push(&mut self, mut slot: Slot, shared: &mut Shared) -> u64 {
        shared.next_due = shared.next_due.into_iter().chain(slot.deadline).min();
        shared.unanswered += 1;
        let seq = self.next_seq;
        self.next_seq += 1;
        slot.seq = seq;
        self.slots.push_back(slot);
        seq
    }

    /// Sends held requests, as far as allowed.
    pub(super) fn send_held(&mut self, shared: &mut Shared) {
        if self.dead {
            return;
        }
        let (mut in_flight, mut is_request_sent, mut may_repeat) = (0, false, false);
        for slot in self.slots.range_mut(self.answered..).filter(|slot| !slot.is_answered()) {
            // An interrupt for an answer that no caller wants must not reach a later request.
            let must_wait = in_flight == shared.options.max_pipelined
                || self.cancellable && is_request_sent
                || slot.is_left()
                || shared.full
                || slot.asked() == Asked::Close && may_repeat;
            if must_wait {
                return;
            }
            if let Place::Held(message) = std::mem::replace(&mut slot.place, Place::Sent) {
                shared.send(self.session, &message);
                shared.full = shared.out.len() > shared.options.max_unsent_bytes;
            }
            may_repeat |= slot.again.is_some();
            in_flight += 1;
            is_request_sent |= slot.is_request_sent();
        }
    }

    /// Sends the requests one at a time from now on, so that each can be cancelled.
    pub(super) const fn make_cancellable(&mut self) {
        self.cancellable = true;
    }

    /// Interrupts the running statement, if no kill can reach another one. A statement that waits for the
    /// backlog ends without being sent.
    ///
    /// A kill names a session and no request, so the server interrupts the oldest unanswered one. A
    /// request that is sent behind the kill is safe, because the server reads in order.
    pub(super) fn cancel(&mut self, shared: &mut Shared) {
        if self.once || self.risks_next() {
            return;
        }
        let first = self
            .slots
            .range_mut(self.answered..)
            .find(|slot| !slot.is_answered() && slot.asked() != Asked::Open);
        if let Some(slot) = first.filter(|slot| slot.asked() == Asked::Statement) {
            if slot.is_held() {
                let kind = ErrorKind::Server(Arc::new(interrupted()));
                shared.end(slot, Err(Error::not_sent(kind)));
            } else {
                shared.kill(self.session, KillSessionType::Query);
                // If it were sent again, it would run although it was interrupted.
                slot.cancelled |= slot.again.take().is_some();
            }
        }
        self.send_held(shared);
    }

    /// Closes the session. Its unanswered requests are still answered, if a caller wants any.
    pub(super) fn close(&mut self, now: Instant, shared: &mut Shared) {
        self.closing = true;
        if self.dead {
            return;
        }
        shared.release();
        if self.opened && !self.kill_if_left(shared) {
            let mut slot = Slot::new(Asked::Close, ClientMessage::SessionClose);
            // Requests in front of the closing may take longer.
            let due = now + shared.options.request_timeout;
            let unanswered = self.slots.iter().filter(|slot| !slot.is_answered());
            slot.deadline = unanswered.filter_map(|slot| slot.deadline).chain([due]).max();
            self.push(slot, shared);
            self.send_held(shared);
        }
    }

    /// Takes the part of an answer that arrived since the last call.
    pub(super) fn take(&mut self, seq: u64, shared: &mut Shared) -> Taken {
        let Some(slot) = self.slot(seq) else { return Taken::ended() };
        let taken = Taken { bytes: std::mem::take(&mut slot.bytes), result: slot.result.clone() };
        slot.taken |= taken.result.is_some();
        // A request that exceeded its deadline still gets its answer later.
        self.offer(seq, shared);
        self.remove_if_done(seq);
        taken
    }

    /// Discards the answer of a request. Returns its watcher. The caller drops it without a lock.
    #[must_use]
    pub(super) fn abandon(&mut self, seq: u64, shared: &mut Shared) -> Option<Watcher> {
        let (once, session) = (self.once, self.session);
        let slot = self.slot(seq)?;
        let watcher = slot.forget();
        if once {
            shared.interrupt_once(session, slot);
        }
        if slot.is_held() || once {
            slot.answer(&mut shared.unanswered);
        }
        self.remove_if_done(seq);
        self.interrupt_left(shared);
        watcher
    }

    /// Ends the late requests. Returns the earliest deadline of the others.
    pub(super) fn expire(
        &mut self,
        is_late: impl Fn(&Slot) -> bool,
        shared: &mut Shared,
    ) -> Option<Instant> {
        let mut next_due = None;
        let mut close_is_late = false;
        for slot in self.slots.iter_mut().filter(|slot| slot.result.is_none()) {
            if !is_late(slot) {
                next_due = next_due.into_iter().chain(slot.deadline).min();
                continue;
            }
            if slot.asked() == Asked::Close {
                close_is_late = true;
            } else if slot.is_held() {
                slot.answer(&mut shared.unanswered);
                slot.finish(Err(Error::not_sent(ErrorKind::Deadline(Stage::Enqueue))));
            } else {
                slot.finish(Err(Error::unknown(ErrorKind::Deadline(Stage::Reply))));
                if self.once {
                    shared.interrupt_once(self.session, slot);
                    slot.answer(&mut shared.unanswered);
                }
            }
            shared.events.extend(slot.take_watcher());
        }
        if close_is_late {
            // The client closes sessions by itself, so no caller waits for this answer.
            self.kill(&Error::unknown(ErrorKind::Deadline(Stage::Reply)), shared);
        } else {
            self.interrupt_left(shared);
        }
        next_due
    }

    /// Interrupts the running statement if no caller wants its answer, because it delays the later
    /// requests of its session. A kill must not reach a wanted request: see [`cancel`](Self::cancel).
    fn interrupt_left(&mut self, shared: &mut Shared) {
        if self.once || self.dead || self.kill_if_left(shared) {
            return;
        }
        if self.risks_next() {
            // The statement needs credit to run to its end.
            return self.offer_current(shared);
        }
        let session = self.session;
        if let Some(slot) = self.current()
            && slot.is_left()
            && slot.asked() == Asked::Statement
            && !std::mem::replace(&mut slot.killed, true)
        {
            shared.kill(session, KillSessionType::Query);
        }
    }

    /// Ends a closed session whose requests no caller wants, because they may never end.
    fn kill_if_left(&mut self, shared: &mut Shared) -> bool {
        let left = self.closing
            && !self.once
            && self.slots.range(self.answered..).any(Slot::is_left)
            && !self.slots.range(self.answered..).any(Slot::is_wanted);
        if left {
            self.kill(&Error::unknown(ErrorKind::SessionEnded), shared);
        }
        left
    }

    /// Ends the session at once, here and at the server.
    fn kill(&mut self, error: &Error, shared: &mut Shared) {
        if self.once {
            self.slots.iter().for_each(|slot| shared.interrupt_once(self.session, slot));
        } else {
            shared.kill(self.session, KillSessionType::Connection);
            shared.send(self.session, &ClientMessage::SessionClose);
        }
        self.die(error, shared);
    }

    /// Ends the session. All its requests get this error.
    pub(super) fn die(&mut self, error: &Error, shared: &mut Shared) {
        if std::mem::replace(&mut self.dead, true) {
            return;
        }
        if let ErrorKind::Server(error) = error.kind() {
            shared.shutdown |= error.scope() == Scope::Session && error.code == code::SHUTDOWN;
        }
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_answered()) {
            let error = match (slot.is_held(), error.fate()) {
                (true, Fate::Unknown) => Error::not_sent(error.kind().clone()),
                (false, Fate::NotSent) => Error::unknown(error.kind().clone()),
                _ => error.clone(),
            };
            shared.end(slot, Err(error));
        }
        self.slots.retain(|slot| !slot.is_done());
        self.answered = self.slots.len();
        if !self.once && !self.closing {
            shared.release();
        }
    }

    /// Grants the server more credit for the answer that it sends.
    pub(super) fn offer_current(&mut self, shared: &mut Shared) {
        if let Some(seq) = self.current().map(|slot| slot.seq) {
            self.offer(seq, shared);
        }
    }

    /// Grants the server more credit for an answer, if it needs some and can be told.
    fn offer(&mut self, seq: u64, shared: &mut Shared) {
        let (window, full) = (shared.window(), shared.full);
        let granted = self.slot(seq).is_some_and(|slot| !full && slot.grant(window));
        if granted {
            let offer = TokenOffer { token: Some(shared.options.window_kib()) };
            shared.send(self.session, &ClientMessage::TokenOffer(offer));
        }
    }

    // ---- the server's side ----

    pub(super) fn handle_frame(&mut self, frame: &Frame<'_>, shared: &mut Shared) {
        if self.dead {
            return;
        }
        let Some(slot) = self.current() else {
            // An error without a request, for example about a late offer.
            return self.handle_stray(frame, shared);
        };
        match slot.step(ServerKind::from_number(frame.kind())) {
            // Notices, which have no reader here.
            Step::More if slot.asked() == Asked::Timestamps => {}
            Step::More => {
                let limit = shared.options.max_answer_bytes;
                if let Err(bytes) = slot.receive(frame.bytes(), limit) {
                    let kind = ErrorKind::TooMuch { bytes, limit };
                    return self.kill(&Error::unknown(kind), shared);
                }
                shared.events.extend(slot.take_watcher());
            }
            Step::Stopped if slot.left.is_none() => {
                self.kill(&Error::protocol("a stop without a window"), shared);
            }
            Step::Stopped => {
                slot.stopped = true;
                self.offer_current(shared);
                shared.events.extend(self.current().and_then(Slot::take_watcher));
            }
            Step::End => {
                if slot.asked() == Asked::Timestamps {
                    slot.bytes.extend_from_slice(frame.bytes());
                }
                self.end_current(Ok(()), shared);
            }
            Step::Error => self.handle_error(frame, shared),
            Step::Illegal => {
                let what = format!("kind {} in answer to {:?}", frame.kind(), slot.asked());
                self.kill(&Error::protocol(what), shared);
            }
        }
    }

    /// Completes the current request.
    fn end_current(&mut self, result: Result<(), Error>, shared: &mut Shared) {
        let Some(slot) = self.current() else { return };
        shared.end(slot, result);
        let seq = slot.seq;
        self.dead |= slot.asked() == Asked::Close;
        self.remove_if_done(seq);
        self.interrupt_left(shared);
        self.send_held(shared);
    }

    fn handle_error(&mut self, frame: &Frame<'_>, shared: &mut Shared) {
        let Ok(ServerMessage::Error(reply)) = frame.server_message(&shared.limits) else {
            return self.kill(&Error::protocol("a malformed error"), shared);
        };
        let is_last = self.sent().nth(1).is_none();
        let Some(slot) = self.current() else { return };
        if reply.is_cache_miss()
            && is_last
            && slot.is_untouched()
            && let Some(message) = slot.again.take()
        {
            // The text waits like any request while the backlog is long.
            slot.place = Place::Held(message);
            return self.send_held(shared);
        }
        let asked = slot.asked();
        // The user does not know of the digest. Without the cancellation the request would have
        // been sent again.
        let is_unsent = reply.is_cache_miss() && slot.cancelled;
        let has_result = slot.has_result();
        match asked {
            _ if is_unsent => {
                let kind = ErrorKind::Server(Arc::new(interrupted()));
                self.end_current(Err(Error::new(Fate::Refused, kind)), shared);
            }
            // The server runs no request behind a failed opening.
            Asked::Open => {
                let kind = ErrorKind::Server(Arc::new(reply));
                self.die(&Error::new(Fate::Refused, kind), shared);
            }
            _ if reply.scope() == Scope::Session => self.die(&Error::server(reply), shared),
            _ if has_result => {
                let kind = ErrorKind::Server(Arc::new(reply));
                self.end_current(Err(Error::unknown(kind)), shared);
            }
            _ => self.end_current(Err(Error::server(reply)), shared),
        }
    }

    /// Handles a frame that answers no request.
    fn handle_stray(&mut self, frame: &Frame<'_>, shared: &mut Shared) {
        match frame.server_message(&shared.limits) {
            Ok(ServerMessage::Notice(_) | ServerMessage::TokenDone(_)) => {}
            Ok(ServerMessage::Error(error)) if error.scope() == Scope::Session => {
                self.die(&Error::server(error), shared);
            }
            Ok(ServerMessage::Error(_)) => shared.stray_errors += 1,
            _ => {
                let what = format!("kind {} in answer to nothing", frame.kind());
                self.kill(&Error::protocol(what), shared);
            }
        }
    }

    // ---- the requests ----

    pub(super) fn slot(&mut self, seq: u64) -> Option<&mut Slot> {
        let index = self.index(seq)?;
        self.slots.get_mut(index)
    }

    fn index(&self, seq: u64) -> Option<usize> {
        self.slots.binary_search_by_key(&seq, |slot| slot.seq).ok()
    }

    /// Removes a request that was answered and taken.
    fn remove_if_done(&mut self, seq: u64) {
        if let Some(index) = self.index(seq)
            && self.slots[index].is_done()
        {
            self.slots.remove(index);
            self.answered -= usize::from(index < self.answered);
        }
    }

    /// Requests on the wire, in order. All held ones are behind them.
    fn sent(&mut self) -> impl Iterator<Item = &mut Slot> {
        while self.slots.get(self.answered).is_some_and(Slot::is_answered) {
            self.answered += 1;
        }
        debug_assert!(self.slots.range(..self.answered).all(Slot::is_answered), "in order");
        let begun = self.slots.range_mut(self.answered..).take_while(|slot| !slot.is_held());
        begun.filter(|slot| slot.is_sent())
    }

    /// Request to which the next frame belongs.
    fn current(&mut self) -> Option<&mut Slot> {
        self.sent().next()
    }

    /// Returns true if a wanted request was sent behind the current one. A late kill would reach it.
    fn risks_next(&mut self) -> bool {
        self.sent().filter(|slot| slot.is_request_sent()).skip(1).any(|slot| slot.is_wanted())
    }

    /// Returns true if the session can be removed.
    pub(super) fn is_done(&self) -> bool {
        self.slots.is_empty() && (self.closing || self.dead)
    }

    /// Returns true if the server does not know the session yet.
    pub(super) const fn is_unopened(&self) -> bool {
        !self.once && !self.opened
    }

    /// Returns true if the session is usable, now or later.
    pub(super) const fn is_alive(&self) -> bool {
        !self.dead
    }

    /// Returns true if the session is usable and has no unanswered request.
    pub(super) fn is_idle(&self) -> bool {
        !self.dead && self.slots.iter().all(Slot::is_answered)
    }
}

/// Error of a server for an interrupted statement.
fn interrupted() -> ErrorReply {
    ErrorReply::error(code::INTERRUPTED, INTERRUPTED_STATE, "Query execution was interrupted")
}
