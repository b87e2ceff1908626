//! How a connection ends on its receiving side: in order, at a deadline, or at once.

use std::io;
use std::mem;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::close::{Close, CloseReason, HalfClose};
use super::conn::{HUNG_UP, READABLE, RESET};
use super::phase::Phase;
use super::receive::Round;
use super::recv_state::{Ending, Next, Recv, Stage};
use crate::runtime::source::{CUT, DRAIN, OVER};
use crate::runtime::{Origin, log_some};
use crate::stats::{self, Counter};
use crate::sync::runner::Marks;
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};
use crate::sys::socket::{self, Received};

impl Round<'_> {
    pub(super) fn end_of_stream(&self, recv: &mut Recv) {
        recv.ended = true;
        if self.end_silence(recv) {
            // No first bytes will come, so the idle time begins.
            let now = clock::now();
            recv.heard_at = Some(now);
            self.arm_idle(recv, now);
        }
        let reason = self.conn.end_layers().err().map(|Close(reason)| reason);
        // A stream that breaks off in a layer is an error, like bytes that a layer cannot decode.
        let is_broken = reason.is_some() && self.conn.origin == Origin::Accepted;
        if recv.stage == Stage::Handshaking || is_broken {
            self.start_closing(recv, reason.unwrap_or(CloseReason::ByPeer));
            return;
        }
        if let Some(reason) = reason {
            self.finish_requests(recv, reason);
            return;
        }
        let Recv { handler, .. } = recv;
        let Some(handler) = handler else { return };
        let ended = || handler.ended(self.connection);
        let result = self.conn.group.guard("ended", ended);
        match result.unwrap_or(Err(Close(CloseReason::Panic))) {
            Ok(HalfClose::KeepOpen) => self.close_if_finished(recv),
            Ok(HalfClose::End) => self.finish_requests(recv, CloseReason::ByPeer),
            Err(close) => self.finish_requests(recv, close.0),
        }
    }

    fn set_closing(&self, recv: &mut Recv, closing: bool) {
        if mem::replace(&mut recv.closing, closing) != closing {
            self.conn.group.usage().closing.change(closing);
        }
    }

    /// Handles the drain. The input that had arrived is received, or as much of it as `next` says.
    pub(super) fn look_at_drain(&self, recv: &mut Recv, next: Next) {
        let has_more = next == Next::Requeue && !self.is_dry(recv, next);
        match recv.stage {
            Stage::Connecting { .. } if self.conn.recv.await_holds() => {
                self.finish(recv, Some(CloseReason::Draining));
            }
            Stage::Handshaking if self.conn.recv.await_holds() => {
                self.start_closing(recv, CloseReason::Draining);
            }
            // A request waits for an answer over this connection.
            Stage::Connecting { .. } | Stage::Handshaking => recv.drain_later = true,
            // The protocol was notified already.
            Stage::Open if recv.awaiting => {}
            // More input must be received before the drain is handled.
            Stage::Open if has_more => self.conn.notify_recv(DRAIN),
            // The rest of the requests waits until the peer has read, or the user reads again.
            Stage::Open if next == Next::Paused && self.input_waits(recv) => {
                recv.drain_later = true;
            }
            // The same holds if the peer has finished, or the protocol has paused in this turn.
            Stage::Open if self.keeps_input(recv) => recv.drain_later = true,
            Stage::Open => self.drain(recv),
            _ => {}
        }
    }

    /// Returns true if this turn of a drain has emptied the socket, or if all that had arrived when the
    /// drain came has been received: a peer may send so much that the socket is never empty.
    pub(super) fn is_dry(&self, recv: &mut Recv, next: Next) -> bool {
        if next != Next::Requeue {
            return next == Next::Rest;
        }
        let left = match recv.drain_left {
            // The number says nothing about bytes behind an urgent one. A stream that has ended is read
            // whole.
            None if recv.hung_up => return false,
            None => socket::unread_bytes(self.conn.fd()),
            Some(left) => left.saturating_sub(self.raw.get()),
        };
        recv.drain_left = Some(left);
        left == 0 && !recv.undecoded
    }

    /// Returns true if unconsumed bytes wait for the user to resume reading.
    pub(super) fn keeps_input(&self, recv: &Recv) -> bool {
        self.conn.is_paused() && !recv.buf.is_empty()
    }

    /// Returns true if input waits that will be received later.
    fn input_waits(&self, recv: &Recv) -> bool {
        !self.conn.is_paused()
            || !recv.buf.is_empty()
            || recv.undecoded
            || socket::has_input(self.conn.fd())
    }

    /// Handles a drain that had to be postponed.
    pub(super) fn drain_if_late(&self, recv: &mut Recv) {
        if mem::take(&mut recv.drain_later) {
            self.conn.notify_recv(DRAIN);
        }
    }

    /// Handles the drop of the last hold, unless a new hold exists.
    pub(super) fn look_at_holds(&self, recv: &mut Recv) {
        let ends = match recv.stage {
            Stage::Connecting { .. } | Stage::Handshaking => recv.drain_later,
            Stage::Open => recv.awaiting,
            Stage::Finishing => true,
            _ => false,
        };
        if !ends || !self.conn.recv.await_holds() {
            return;
        }
        if recv.stage.is_connecting() {
            self.finish(recv, Some(CloseReason::Draining));
        } else {
            let reason = match recv.stage {
                Stage::Handshaking => CloseReason::Draining,
                _ => recv.reason.take().map_or(CloseReason::ByPeer, |reason| *reason),
            };
            self.start_closing(recv, reason);
        }
    }

    /// Notifies the protocol of the drain and ends the connection. All input that had arrived was
    /// delivered, and its work was released. A held connection whose protocol needs input ends with
    /// its last hold.
    fn drain(&self, recv: &mut Recv) {
        let sent_any = self.conn.sent_any.swap(false, Ordering::Relaxed);
        let last_word = recv.handler.as_mut().and_then(|handler| {
            self.conn.group.guard("draining", || handler.draining(self.connection))
        });
        let quiet = !self.conn.sent_any.fetch_or(sent_any, Ordering::Relaxed);
        recv.idle = quiet && !recv.busy && self.conn.pending.load(Ordering::Relaxed) == 0;
        let reason = last_word.map_or(CloseReason::Panic, |()| CloseReason::Draining);
        let reads_on = match self.conn.origin {
            Origin::Outgoing => !recv.ended,
            Origin::Accepted => self.conn.reads_while_held.load(Ordering::Relaxed),
        };
        if reads_on && last_word.is_some() && !self.conn.recv.await_holds() {
            self.await_holds(recv, reason);
        } else {
            self.finish_requests(recv, reason);
        }
    }

    /// Keeps reading until the last hold is dropped.
    fn await_holds(&self, recv: &mut Recv, reason: CloseReason) {
        recv.awaiting = true;
        recv.reason = Some(Box::new(reason));
        recv.idle = false;
        self.set_closing(recv, true);
        // Bytes that arrived after the drain may have used up their edge already.
        self.conn.notify_recv(READABLE);
    }

    /// Closes the connection when no request is held any more, or if the server of an outgoing one has
    /// finished and so answers none.
    pub(super) fn finish_requests(&self, recv: &mut Recv, reason: CloseReason) {
        recv.stage = Stage::Finishing;
        self.end_silence(recv);
        self.end_handshake(recv);
        self.set_closing(recv, true);
        if recv.ended {
            self.conn.end_requests();
        }
        if self.conn.recv.await_holds() {
            self.start_closing(recv, reason);
        } else {
            recv.reason = Some(Box::new(reason));
            if recv.hung_up {
                // A reset may have come while the connection was still to be read.
                self.conn.notify_recv(HUNG_UP);
            }
        }
    }

    /// Starts to close: no new send begins, and bytes sent before leave first. If a `close` has
    /// noted a reason, it replaces this one.
    pub(super) fn start_closing(&self, recv: &mut Recv, reason: CloseReason) {
        let reason = lock(&self.conn.reason).take().unwrap_or_else(|| Box::new(reason));
        if matches!(recv.stage, Stage::Flushing | Stage::Lingering { .. } | Stage::Closed) {
            return;
        }
        if recv.stage.is_connecting() {
            self.finish(recv, Some(*reason));
            return;
        }
        recv.stage = Stage::Flushing;
        // The deadlines of first bytes and handshake would cut off the bytes that were sent before.
        self.end_silence(recv);
        self.end_handshake(recv);
        self.set_closing(recv, true);
        recv.reason = Some(reason);
        self.conn.advance_to_closing();
        // The peer of an aborted connection must not take a part of the stream for the whole.
        if !(self.marks | self.conn.recv.marks()).has(RESET) {
            self.conn.finish_layers();
        }
        // If nothing waits, the mark comes back at once.
        self.conn.tell_when_flushed();
    }

    /// Ends the connection for one of the marks [`ABORT`](super::conn::ABORT), [`RESET`], [`CUT`] and
    /// [`OVER`].
    pub(super) fn end_at_once(&self, recv: &mut Recv, marks: Marks) {
        let noted = lock(&self.conn.reason).take().map(|reason| *reason);
        let reason = match noted {
            _ if marks.has(CUT) => Some(CloseReason::Cut),
            None if marks.has(OVER) => Some(CloseReason::Draining),
            Some(CloseReason::Reset(error) | CloseReason::Io(error))
                if recv.stage.is_connecting() =>
            {
                Some(CloseReason::ConnectFailed(error))
            }
            reason => reason,
        };
        self.finish(recv, reason);
    }

    pub(super) fn flushed(&self, recv: &mut Recv) {
        let config = self.conn.group.config();
        // A layer may report the end of its stream before that of the socket.
        let has_finished = recv.ended && !self.conn.is_layered();
        let nothing_to_lose = has_finished || !self.conn.sent_any.load(Ordering::Relaxed);
        let at_once = nothing_to_lose || config.linger_timeout.is_zero();
        if at_once || socket::shutdown_write(self.conn.fd()).is_err() {
            self.finish(recv, None);
            return;
        }
        let limit = if recv.idle { IDLE_LINGER } else { config.linger_timeout };
        let until = clock::now() + limit.min(config.linger_timeout);
        recv.stage = Stage::Lingering { until, left: config.linger_bytes };
        self.conn.arm(until);
        // Bytes that have arrived may have used up their edge already.
        self.conn.notify_recv(READABLE);
    }

    /// Reads and drops input. Otherwise the close would be a reset, and the peer could lose the
    /// last reply.
    pub(super) fn linger(&self, recv: &mut Recv, scratch: &mut [u8]) {
        let Stage::Lingering { until, mut left } = recv.stage else { return };
        loop {
            match socket::recv(self.conn.fd(), self.conn.family, scratch) {
                Ok(Received { bytes: 0, .. }) => break,
                Ok(received) => match left.checked_sub(received.bytes) {
                    Some(rest) => left = rest,
                    None => break,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    recv.stage = Stage::Lingering { until, left };
                    return;
                }
                Err(_) => break,
            }
        }
        self.finish(recv, None);
    }

    /// Looks for a reset by the peer if the connection is not read, as no read reports it then.
    pub(super) fn look_for_reset(&self, recv: &mut Recv) {
        let rests = recv.ended || recv.aside_until.is_some() || self.conn.is_paused();
        let unread = recv.stage == Stage::Finishing || recv.stage == Stage::Open && rests;
        // A socket that is not broken may have an error that it gets over, such as a lost route.
        if unread
            && let Ok((_, true)) = socket::hang_ups(self.conn.fd())
            && let Ok(Some(error)) = socket::take_error(self.conn.fd())
        {
            recv.ending = Some(Ending::Abort(CloseReason::from_io(error)));
        }
    }

    /// Closes a half-closed connection whose peer has finished too.
    pub(super) fn close_if_finished(&self, recv: &mut Recv) {
        if recv.stage == Stage::Open && recv.ended && self.conn.phase() == Phase::HalfClosed {
            self.finish_requests(recv, CloseReason::ByPeer);
        }
    }

    /// Ends the time for the first bytes: they have come, or none is awaited any more.
    pub(super) fn end_silence(&self, recv: &mut Recv) -> bool {
        let was_silent = recv.silent_until.take().is_some();
        if was_silent {
            self.conn.group.usage().silent.change(false);
        }
        was_silent
    }

    /// Lets the time for the first bytes begin. Without a limit the peer is idle, not silent.
    pub(super) fn await_first_bytes(&self, recv: &mut Recv, now: Instant) {
        if let Some(limit) = self.conn.first_bytes_timeout() {
            if recv.silent_until.replace(now + limit).is_none() {
                self.conn.group.usage().silent.change(true);
            }
            self.conn.arm(now + limit);
        } else if self.end_silence(recv) {
            recv.heard_at = Some(now);
            self.arm_idle(recv, now);
        }
    }

    /// Lets the peer's time for its first bytes, or its idle time, begin anew.
    pub(super) fn renew_silence(&self, recv: &mut Recv, now: Instant) {
        if recv.silent_until.is_some() {
            self.await_first_bytes(recv, now);
        }
        recv.heard_at = recv.heard_at.map(|_| now);
    }

    /// Handles the deadlines that have passed. Returns true if the socket must be read first, to
    /// see whether input has come; then [`look_at_silence`](Self::look_at_silence) follows.
    pub(super) fn look_at_deadlines(&self, recv: &mut Recv) -> bool {
        let config = self.conn.group.config();
        let now = clock::now();
        self.conn.disarm_passed(now);
        if let Stage::Lingering { until, .. } = recv.stage
            && until <= now
        {
            self.finish(recv, None);
            return false;
        }
        if recv.paused || self.conn.is_paused() {
            // The peer is not heard, so its deadlines begin anew.
            self.renew_silence(recv, now);
            recv.frame_until = None;
            if recv.stage == Stage::Open {
                let limit = self.conn.handshake_timeout();
                recv.handshake_until = recv.handshake_until.map(|_| now + limit);
            }
        }
        let idle_until = self.idle_until(recv, now);
        match recv.frame_until {
            // This runtime has not run for a while, so the peer may have been unable to send more.
            Some(until) if recv.frame_excuse.covers(until, now) => self.time_frame(recv, true),
            Some(until) if now >= until => {
                recv.frame_until = None;
                recv.frame_late = true;
                // Bytes that came in time are read first.
                self.conn.notify_recv(READABLE);
            }
            _ => {}
        }
        if recv.shrink_at.is_some_and(|at| at <= now) {
            recv.shrink_at = None;
            let before = recv.buf.capacity();
            recv.buf.shrink(config.tcp_fixed_dealing_buf);
            self.conn.group.usage().buffer_changed(before, recv.buf.capacity());
        }
        let passed = |until: &Instant| *until <= now;
        let Recv { silent_until, handshake_until, frame_until, aside_until, shrink_at, .. } = *recv;
        let looked_at = [silent_until, handshake_until, idle_until, aside_until];
        let overdue = looked_at.iter().flatten().any(passed);
        let others = [frame_until, shrink_at, recv.stage.deadline()];
        let to_come = looked_at.into_iter().chain(others).flatten().filter(|until| !passed(until));
        if let Some(next) = to_come.min() {
            self.conn.arm(next);
        }
        self.conn.check_due();
        overdue
    }

    /// Cuts a peer that has sent nothing in time. The socket was read before.
    pub(super) fn look_at_silence(&self, recv: &mut Recv) {
        let now = clock::now();
        let passed = |until: &Instant| *until <= now;
        let silent = recv.silent_until.filter(passed);
        let handshake = recv.handshake_until.filter(passed);
        if let Some(until) = silent.into_iter().chain(handshake).min() {
            let first_bytes = self.conn.first_bytes_timeout();
            let limit = self.conn.handshake_timeout();
            // If this runtime was late too, the peer had no full chance.
            if !recv.frame_excuse.covers(until, now) {
                // The limit for the first bytes may have been switched off.
                let reason = match (silent.and(first_bytes), handshake) {
                    (Some(limit), _) => Some(CloseReason::FirstBytesTimeout(limit)),
                    (None, Some(_)) => Some(CloseReason::HandshakeTimeout(limit)),
                    (None, None) => None,
                };
                if reason.is_some() {
                    self.finish(recv, reason);
                    return;
                }
            }
            if silent.is_some() {
                self.await_first_bytes(recv, now);
            }
            if handshake.is_some() {
                recv.handshake_until = Some(now + limit);
                self.conn.arm(now + limit);
            }
        }
        match self.idle_until(recv, now) {
            Some(until) if until > now => self.conn.arm(until),
            Some(_) => self.start_closing(recv, CloseReason::IdleTimeout(self.conn.idle_timeout())),
            None => {}
        }
    }

    /// Sets the timer for the idle time-out.
    pub(super) fn arm_idle(&self, recv: &mut Recv, now: Instant) {
        if let Some(until) = self.idle_until(recv, now) {
            self.conn.arm(until);
        }
    }

    /// Returns the time at which an accepted connection counts as idle. If it has passed, the
    /// connection is idle.
    fn idle_until(&self, recv: &mut Recv, now: Instant) -> Option<Instant> {
        let timeout = self.conn.idle_timeout();
        let accepted = self.conn.origin == Origin::Accepted;
        let is_silent = recv.silent_until.is_some() && !self.conn.has_own_idle_timeout();
        if timeout.is_zero() || !accepted || recv.stage != Stage::Open || is_silent {
            return None;
        }
        let sent = self.conn.sent_lately.swap(false, Ordering::Relaxed);
        // The peer may wait for an answer, also if the protocol has no room for its request yet.
        let waits = self.conn.recv.is_held() || recv.aside_until.is_some();
        if sent || waits || self.conn.pending.load(Ordering::Relaxed) > 0 {
            recv.heard_at = Some(now);
        }
        Some(recv.heard_at? + timeout)
    }

    /// Ends the connection, in order or not. `None` takes the reason that was noted when closing
    /// began.
    pub(super) fn finish(&self, recv: &mut Recv, reason: Option<CloseReason>) {
        let reason = reason.or_else(|| recv.reason.take().map(|reason| *reason));
        let reason = reason.unwrap_or(CloseReason::ByPeer);
        // A peer must not take a part of the stream for the whole.
        let is_cut = matches!(reason, CloseReason::Cut) && self.conn.recv.is_held();
        let is_part = is_cut || self.conn.pending.load(Ordering::Relaxed) > 0;
        let breaks = is_part && !self.conn.phase().is_shut() || self.marks.has(RESET);
        let resets = breaks && !recv.stage.is_connecting();
        recv.stage = Stage::Closed;
        self.forget_pause(recv);
        self.end_handshake(recv);
        self.set_closing(recv, false);
        self.conn.advance(Phase::Closed);
        self.conn.discard_backlog();
        self.conn.drop_layers();
        self.conn.count(reason.counter(), 1);
        self.conn.count(Counter::ConnectionsClosed, 1);
        self.end_silence(recv);
        self.conn.group.usage().buffer_changed(recv.buf.capacity(), 0);
        recv.buf.release();
        let (group, id) = (&self.conn.group, self.connection.id());
        let peer = self.conn.client_addr();
        log_some!(group, Closed, DEBUG, debug, %id, %peer, %reason, "connection closed");
        if let Some(handler) = recv.handler.take() {
            let closed = || handler.closed(self.connection, &reason);
            group.guard("closed", || group.timed(stats::Stage::Fin, closed));
        } else if recv.unopened && !self.conn.told.load(Ordering::Relaxed) {
            let failed = || self.conn.protocol().connect_failed(self.connection, &reason);
            self.conn.group.guard("connect_failed", failed);
        }
        self.conn.retire(resets);
    }
}

/// Linger time of an idle connection. No request is in progress, and its replies have left long
/// ago. The time is for a request that the peer sends just now.
const IDLE_LINGER: Duration = Duration::from_millis(50);
