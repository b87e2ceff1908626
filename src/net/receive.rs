//! The receiving side of a connection: from readiness to the protocol.

use std::cell::Cell;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::close::{Close, CloseReason};
use super::conn::{
    ABORT, AT_ONCE, CLOSE, Conn, FLUSHED, HOLDS_DONE, HUNG_UP, NOTIFIED, READABLE, RESUME, UNPAUSED,
};
use super::connection::Connection;
use super::handler::Handler;
use super::options::FullBacklog;
use super::phase::Phase;
use super::read_buf::{Input, Outcome, ReadBuf};
use super::read_more::Reader;
use super::recv_state::{Ending, Next, Recv, Stage};
use crate::runtime::source::{DRAIN, TIMER, Turn, WorkerContext};
use crate::runtime::{Excuse, Pace, in_span, leaves_room};
use crate::stats::Counter;
use crate::sync::runner::{Marks, Running};
use crate::sys::clock::{self, Instant};
use crate::sys::socket::{self, Received};

/// Time after which a connection that keeps receiving goes to the back of the queue.
const TURN: Duration = Duration::from_micros(250);

/// Number of times in a row that the receiving side takes new marks and handles them. After that,
/// other connections have their turn.
const ROUNDS: u32 = 16;

/// Runs the receiving side until it has no work or its budget is spent.
pub(super) fn run<'a>(
    connection: &'a Connection,
    mut running: Running<'a, Recv>,
    context: &mut WorkerContext<'_>,
) {
    let conn = &connection.0;
    let mut round = Round {
        connection,
        conn,
        marks: Marks::NONE,
        received: 0,
        raw: Cell::new(0),
        timed: false,
        first: false,
        observed: conn.group.note_scheduled(context),
        first_at: None,
    };
    for rounds in 1.. {
        let marks = running.take_marks();
        let next = round.turn(&mut running, marks, context);
        let over = rounds >= ROUNDS || round.received >= conn.group.config().read_budget_bytes;
        if next == Next::Requeue {
            round.hold();
            running.mark(READABLE);
            conn.count(Counter::TurnsRequeued, 1);
            if round.received > 0 {
                // `released` follows.
                conn.schedule_spent(running);
            } else {
                conn.requeue(running);
            }
            break;
        }
        if let Next::Release(marks) = next {
            running.mark(marks);
            // The right to run is kept meanwhile, so no other worker ends the connection.
            round.release(Turn { ending: true, ..context.turn });
            // If more input waits, other connections have their turn first.
            if over || marks.has(READABLE) {
                conn.schedule(running);
                break;
            }
            continue;
        }
        let finished =
            if round.received > 0 { running.finish_and_hold() } else { running.finish() };
        match finished {
            None => break,
            Some(again) if over => {
                round.hold();
                conn.count(Counter::TurnsRequeued, 1);
                conn.schedule_spent(again);
                break;
            }
            Some(again) => running = again,
        }
    }
    let held = round.received > 0;
    round.release(context.turn);
    if held {
        conn.end_hold();
    }
    if round.timed {
        context.charge(conn.cost());
        if round.first {
            conn.protocol().first_cost().follow(conn.cost());
        }
        conn.group.note_run(round.first_at, context);
    }
}

/// One period in which a worker owns the Runner.
pub(super) struct Round<'a> {
    pub(super) connection: &'a Connection,
    pub(super) conn: &'a Arc<Conn>,
    /// Marks that the turn has taken.
    pub(super) marks: Marks,
    /// Bytes delivered to the protocol.
    pub(super) received: usize,
    /// Bytes received from the socket.
    pub(super) raw: Cell<usize>,
    /// Set when bytes were received, or a layer or a callback with input was called. Then the time
    /// of this run is a valid sample.
    pub(super) timed: bool,
    /// Set when the peer has sent its first bytes.
    first: bool,
    /// True if histograms are on.
    observed: bool,
    /// Time of the first receive, taken only if histograms are on.
    first_at: Option<Instant>,
}

impl Round<'_> {
    /// Takes a hold before the Runner is given up. Another worker may then receive, even the end of
    /// the stream. The end must wait until the bytes received here have been released.
    fn hold(&self) {
        if self.received > 0 {
            self.conn.recv.hold();
        }
    }

    /// Calls `released` of the protocol, once for all bytes received in this run.
    fn release(&mut self, turn: Turn) {
        if mem::take(&mut self.received) > 0 {
            let released = || self.conn.protocol().released(self.connection, turn);
            if self.conn.group.guard("released", released).is_none() {
                self.conn.begin_close(CloseReason::Panic, ABORT);
            }
        }
    }

    /// Handles the marks once. An end takes effect only if all received bytes have been released.
    fn turn(&mut self, recv: &mut Recv, marks: Marks, context: &mut WorkerContext<'_>) -> Next {
        self.marks = marks;
        // Usually bytes have arrived, and nothing else is to be done.
        if marks != READABLE || self.received > 0 || !recv.is_plain() {
            return self.whole_turn(recv, marks, context);
        }
        let next = self.receive(recv, context);
        self.note_pause(recv, next);
        match (&recv.ending, next) {
            (None, next) => next,
            (Some(_), Next::Requeue) => Next::Release(READABLE),
            (Some(_), _) => Next::Release(Marks::NONE),
        }
    }

    #[inline(never)]
    fn whole_turn(
        &mut self,
        recv: &mut Recv,
        mut marks: Marks,
        context: &mut WorkerContext<'_>,
    ) -> Next {
        recv.hung_up |= marks.has(HUNG_UP);
        if recv.stage == Stage::Closed {
            return Next::Rest;
        }
        // Nothing may end the connection before the received bytes have been released.
        if self.received > 0 && (marks.has(ENDING) || recv.ending.is_some()) {
            recv.busy |= marks.has(DRAIN);
            return Next::Release(marks);
        }
        match recv.ending.take() {
            None => {}
            Some(Ending::EndOfStream) => {
                self.end_of_stream(recv);
                // A reset may have come with the end, in one event.
                if recv.hung_up {
                    self.look_for_reset(recv);
                }
            }
            Some(Ending::Close(reason)) => self.start_closing(recv, reason),
            Some(Ending::Abort(reason)) => {
                self.finish(recv, Some(reason));
                return Next::Rest;
            }
        }
        if marks.has(AT_ONCE) {
            self.end_at_once(recv, marks);
            return Next::Rest;
        }
        // Before more is received: a peer that never stops sending would keep the holds from ever being
        // looked at.
        if marks.has(HOLDS_DONE) && recv.awaiting && self.received == 0 {
            self.look_at_holds(recv);
        }
        let overdue = marks.has(TIMER) && self.look_at_deadlines(recv);
        if recv.stage.is_connecting() {
            self.establish(recv, marks);
        }
        if recv.stage == Stage::New {
            self.begin(recv);
        }
        if marks.has(HUNG_UP) {
            self.look_for_reset(recv);
        }
        marks = recv.due(marks);
        if marks.has(RESUME) {
            self.room_again(recv);
        }
        if marks.has(UNPAUSED) && !self.conn.is_paused() && recv.ending.is_none() {
            self.unpaused(recv);
        }
        if marks.has(NOTIFIED) && recv.ending.is_none() {
            self.notified(recv);
        }
        let mut next = Next::Rest;
        // A peer that answers each reply with a request would keep the socket from staying dry. So a
        // drain reads until it is dry once, or all that had arrived is received. Bytes that a pause has
        // kept are delivered before the drain ends the connection.
        let kept = recv.again || self.keeps_input(recv);
        let served = marks.has(DRAIN) && recv.dry && !recv.awaiting && !kept;
        let wanted = recv.stage.reads() && !recv.ended && !served && !marks.has(CLOSE);
        // If the bytes came in time and were not read in time, the fault is ours. So the socket is
        // read before the deadline counts against the peer.
        if wanted && (marks.has(READABLE | HUNG_UP | RESUME | UNPAUSED | DRAIN) || overdue) {
            next = if self.defers(recv, overdue || marks.has(DRAIN)) {
                Next::Requeue
            } else if recv.is_aside(marks) {
                Next::Paused
            } else {
                self.receive(recv, context)
            };
            self.note_pause(recv, next);
            if next == Next::Paused && recv.hung_up && recv.ending.is_none() {
                self.look_for_reset(recv);
            }
            if next == Next::Rest && recv.frame_late && recv.ending.is_none() {
                let limit = self.conn.frame_timeout();
                recv.ending = Some(Ending::Close(CloseReason::FrameTimeout(limit)));
            }
        }
        if overdue && self.received == 0 && recv.ending.is_none() {
            self.look_at_silence(recv);
        }
        if recv.ending.is_some() || self.received > 0 && marks.has(ENDING) {
            recv.busy |= marks.has(DRAIN);
            recv.dry |= marks.has(DRAIN) && self.is_dry(recv, next);
            let more = if next == Next::Requeue { READABLE } else { Marks::NONE };
            return Next::Release(marks.only(ENDING) | more);
        }
        if marks.has(CLOSE) {
            self.start_closing(recv, CloseReason::ByPeer);
        }
        if marks.has(DRAIN) {
            self.look_at_drain(recv, next);
        }
        if marks.has(HOLDS_DONE) {
            self.look_at_holds(recv);
        }
        if marks.has(FLUSHED) {
            self.close_if_finished(recv);
            if recv.stage == Stage::Flushing {
                self.flushed(recv);
            }
        }
        if let Stage::Lingering { .. } = recv.stage
            && marks.has(READABLE | HUNG_UP)
        {
            self.linger(recv, context.read_buf);
        }
        next
    }

    /// Returns true if the backlog is above the high watermark, or has been and is not yet at the low
    /// one. A peer that does not read is not read from either.
    pub(super) fn is_full(&self, recv: &Recv) -> bool {
        let pending = self.conn.pending.load(Ordering::Relaxed);
        if pending == 0 {
            return false;
        }
        let config = self.conn.group.config();
        let most = if recv.full {
            config.write_low_watermark_bytes
        } else {
            config.write_high_watermark_bytes
        };
        pending > most && self.conn.protocol().options().full_backlog == FullBacklog::PauseReads
    }

    /// Receives and delivers until the socket is empty, the budget or the time is spent, or the
    /// backlog is high.
    fn receive(&mut self, recv: &mut Recv, context: &mut WorkerContext<'_>) -> Next {
        // A connection that counted as quick has other work queued after it.
        let in_pieces = self.in_pieces(context);
        let quick = in_pieces && self.conn.cost().pace() == Pace::Cheap;
        let turn = if quick { TURN / 4 } else { TURN };
        loop {
            // A callback, or the user, has closed the connection: what is left of the input is dropped.
            if self.conn.phase() >= Phase::Closing {
                return Next::Rest;
            }
            // A handshake goes on: without its end, the user could not resume, and bytes that were sent
            // meanwhile could not leave.
            if self.conn.is_paused() && recv.stage == Stage::Open {
                self.set_paused(recv, true);
                return Next::Paused;
            }
            if self.is_full(recv) && recv.stage == Stage::Open && recv.handshake_until.is_none() {
                recv.full = true;
                // If the backlog is low again already, the mark comes back at once.
                self.set_paused(recv, true);
                self.conn.resume_when_low();
                return Next::Paused;
            }
            let again = recv.aside_until.take().is_some()
                || recv.stage == Stage::Open && mem::take(&mut recv.again);
            if again && recv.ending.is_none() {
                if !recv.buf.is_empty() {
                    self.deliver_again(recv, received);
                }
                // A drain that waited for this is checked again, whatever the protocol did.
                self.drain_if_late(recv);
            }
            if let Some(next) = recv.stops() {
                return next;
            }
            if self.is_spent(self.received, turn, context) {
                return Next::Requeue;
            }
            let most = if in_pieces { recv.piece() } else { usize::MAX };
            let began = in_pieces.then(clock::now);
            let arrived = if self.conn.is_layered() {
                if self.is_spent(self.raw.get(), turn, context) {
                    return Next::Requeue;
                }
                let arrived = self.recv_and_decode(recv, context, most);
                if !recv.stage.reads() {
                    return Next::Rest;
                }
                arrived
            } else {
                self.recv_and_deliver(recv, context, most)
            };
            let (asked, received) = match arrived {
                Ok(counts) => counts,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Rest,
                Err(error) => {
                    recv.ending = Some(Ending::Abort(CloseReason::from_io(error)));
                    return Next::Rest;
                }
            };
            if let Some(next) = recv.stops() {
                return next;
            }
            let full = received.bytes >= most;
            if let Some(began) = began
                && (full || recv.doublings > 0)
            {
                recv.note_piece(clock::since(began), full, context.read_buf.len());
            }
            if received.bytes == 0 {
                if self.conn.is_paused() && recv.stage == Stage::Open {
                    // The protocol has paused again, perhaps with input left. The end comes after it.
                    continue;
                }
                recv.ending = Some(Ending::EndOfStream);
                return Next::Rest;
            }
            // If fewer bytes came than asked for, the socket is empty and the next arrival is an
            // edge. Not so if the socket has hung up: that edge may have been the one handled now.
            // Nor if something else cut the receive short.
            if received.bytes < asked && !received.cut && !recv.hung_up {
                return Next::Rest;
            }
        }
    }

    /// Returns true if `bytes` received in this turn, or the time since its start, end the turn.
    fn is_spent(&self, bytes: usize, turn: Duration, context: &WorkerContext<'_>) -> bool {
        if bytes == 0 {
            return false;
        }
        // Small requests cost more work than their bytes say, so time limits the turn too.
        bytes >= self.conn.group.config().read_budget_bytes
            || clock::now().duration_since(context.lap.now) >= turn
    }

    /// Returns true if the turn must end in time, whatever arrives.
    fn in_pieces(&self, context: &WorkerContext<'_>) -> bool {
        self.conn.cost().is_long() || self.conn.group.is_crowded(context.lap.now)
    }

    /// Receives once, at most `most` bytes unless it continues a large frame. Calls the protocol
    /// once if bytes came.
    fn recv_and_deliver(
        &mut self,
        recv: &mut Recv,
        context: &mut WorkerContext<'_>,
        most: usize,
    ) -> io::Result<(usize, Received)> {
        let partial = recv.buf.bytes().len();
        // A frame that fits is completed in the worker's buffer, with the bytes that follow it.
        // That needs fewer receives and no growth of the connection's own buffer. A larger frame is
        // received into the connection's own buffer.
        let own =
            recv.buf.needed() > context.read_buf.len() || partial > context.read_buf.len() / 2;
        let (asked, arrived) = if own {
            self.recv_into_own(recv)?
        } else {
            let size = context.read_buf.len().min(partial.saturating_add(most));
            let (front, space) = context.read_buf[..size].split_at_mut(partial);
            front.copy_from_slice(recv.buf.bytes());
            (space.len(), self.recv_into(space)?)
        };
        let Received { bytes, .. } = arrived;
        if bytes == 0 {
            return Ok((asked, arrived));
        }
        self.heard(recv, context.lap.now);
        self.observe(context);
        self.received += bytes;
        self.deliver(recv, (!own).then(|| &context.read_buf[..partial + bytes]), received);
        Ok((asked, arrived))
    }

    /// Receives once behind the bytes that the connection keeps. Returns the number of bytes asked for. If
    /// memory is short, that is 0, and the connection ends.
    pub(super) fn recv_into_own(&self, recv: &mut Recv) -> io::Result<(usize, Received)> {
        let growth = recv.buf.growth(self.conn.group.config().tcp_fixed_dealing_buf);
        if growth > 0 {
            if !self.reserve(recv, growth) {
                return Ok((0, Received { bytes: 0, cut: false }));
            }
            recv.buf.grow(growth);
        }
        let result = recv.buf.recv(self.conn.fd(), self.conn.family);
        self.count_receive(result.as_ref().map_or(0, |(_, received)| received.bytes));
        result
    }

    /// Receives once, at most as many bytes as there is space for.
    pub(super) fn recv_into(&self, space: &mut [u8]) -> io::Result<Received> {
        let result = socket::recv(self.conn.fd(), self.conn.family, space);
        self.count_receive(result.as_ref().map_or(0, |received| received.bytes));
        result
    }

    fn count_receive(&self, bytes: usize) {
        self.raw.set(self.raw.get() + bytes);
        let bytes = (Counter::BytesReceived, bytes as u64);
        self.conn.group.count_all([(Counter::RecvCalls, 1), bytes]);
    }

    /// Notes that bytes have come from the peer.
    #[inline(always)]
    pub(super) fn heard(&mut self, recv: &mut Recv, now: Instant) {
        recv.heard_at = Some(now);
        if !mem::replace(&mut recv.has_spoken, true) {
            self.first = true;
            self.end_silence(recv);
            self.arm_idle(recv, now);
        }
    }

    /// Notes the time of the first receive of the turn.
    pub(super) fn observe(&mut self, context: &WorkerContext<'_>) {
        if !mem::replace(&mut self.timed, true) && self.observed {
            self.first_at = Some(self.conn.group.note_received(context));
        }
    }

    /// Calls the protocol once with all unconsumed bytes. `elsewhere` has them, if given, the bytes
    /// of the connection's own buffer first. Otherwise they are in that buffer.
    pub(super) fn deliver(
        &mut self,
        recv: &mut Recv,
        elsewhere: Option<&[u8]>,
        call: Call,
    ) -> Outcome {
        let first_size = self.conn.group.config().tcp_fixed_dealing_buf;
        let mut before = recv.buf.capacity();
        let (partial, announced) = (recv.buf.bytes().len(), recv.buf.needed());
        // The callback may read more into the connection's own buffer.
        let own = elsewhere.is_none().then(|| mem::take(&mut recv.buf));
        let bytes = elsewhere.or_else(|| own.as_ref().map(ReadBuf::bytes)).unwrap_or_default();
        let (mut handler, aside_until) = (recv.handler.take(), recv.aside_until);
        let (conn, connection) = (self.conn, self.connection);
        let mut reader = Reader { round: self, recv };
        let mut input = Input::new(bytes, announced, aside_until);
        input.set_more(&mut reader);
        conn.count(Counter::Receives, 1);
        let result = match &mut handler {
            None => Ok(()),
            Some(handler) => {
                let call = || {
                    in_span!(
                        call(&mut **handler, connection, &mut input),
                        "received",
                        connection = conn.id.number,
                        class = conn.class().name()
                    )
                };
                // A panic closes the connection.
                conn.group.guard("received", call).unwrap_or(Err(Close(CloseReason::Panic)))
            }
        };
        let outcome = input.outcome();
        let Outcome { mut consumed, needed, left, cut, .. } = outcome;
        recv.handler = handler;
        recv.aside_until = outcome.aside_until;
        if cut {
            consumed = if outcome.has_read { recv.buf.bytes().len() } else { bytes.len() };
        }
        let total = outcome.consumed_before + consumed;
        if outcome.has_read {
            if let Some(own) = own {
                conn.group.usage().buffer_changed(own.capacity(), 0);
            }
            before = recv.buf.capacity();
            recv.buf.consume(consumed, needed, first_size);
        } else if let Some(own) = own {
            recv.buf = own;
            recv.buf.consume(consumed, needed, first_size);
        } else if consumed == 0 {
            recv.buf.append(&bytes[partial..], needed, first_size);
        } else {
            recv.buf.replace(&bytes[consumed..], needed, first_size);
        }
        self.account(recv, before);
        if cut {
            self.begin_handshake(recv);
            recv.undecoded = true;
            conn.notify_recv(READABLE);
        }
        if total > 0 {
            recv.frame_excuse = Excuse::default();
        }
        self.time_frame(recv, total > 0);
        match (result, recv.aside_until) {
            // The connection broke while the callback waited for bytes.
            (Err(_), _) if matches!(recv.ending, Some(Ending::Abort(_))) => {}
            (Err(close), _) => recv.ending = Some(Ending::Close(close.0)),
            (Ok(()), Some(until)) => self.conn.arm(until),
            // A frame length that was announced before keeps its limit.
            (Ok(()), None) if total == 0 && left.max(needed) <= announced => {}
            (Ok(()), None) => self.check_left_over(recv, left.max(needed)),
        }
        outcome
    }

    pub(super) fn check_left_over(&self, recv: &mut Recv, bytes: usize) {
        let limit = self.conn.group.config().max_allowed_packet;
        if bytes > limit + HEADER_ALLOWANCE {
            recv.ending = Some(Ending::Close(CloseReason::InputTooLong { bytes, limit }));
        }
    }

    /// Takes the growth of a buffer from the runtime's budget. If the budget is spent, this
    /// connection ends.
    fn reserve(&self, recv: &mut Recv, growth: usize) -> bool {
        let usage = self.conn.group.usage();
        let limit = self.conn.group.config().max_buffered_bytes;
        let (own, bytes) = (recv.buf.capacity() + growth, usage.buffer_changed(0, growth));
        let granted = leaves_room(own, bytes, limit);
        if !granted {
            usage.buffer_changed(growth, 0);
            recv.ending = Some(Ending::Abort(CloseReason::MemoryBudget { own, bytes, limit }));
        }
        granted
    }

    /// Sets the deadline of an unconsumed frame. If `begun`, its time begins now.
    #[inline(always)]
    pub(super) fn time_frame(&self, recv: &mut Recv, begun: bool) {
        // Input that was set aside is a whole frame, or follows one. The peer of a paused connection
        // cannot complete a frame.
        if recv.buf.is_empty() && !recv.partial
            || recv.aside_until.is_some()
            || self.conn.is_paused()
        {
            recv.frame_until = None;
            recv.frame_late = false;
        } else if begun || recv.frame_until.is_none() && !recv.frame_late {
            let until = clock::now() + self.conn.frame_timeout();
            recv.frame_until = Some(until);
            recv.frame_late = false;
            self.conn.arm(until);
        }
    }

    /// Updates the sum of buffer sizes and arms the timer that frees a large buffer.
    #[inline(always)]
    pub(super) fn account(&self, recv: &mut Recv, before: usize) {
        let config = self.conn.group.config();
        let after = recv.buf.capacity();
        if before != after {
            let bytes = self.conn.group.usage().buffer_changed(before, after);
            let limit = config.max_buffered_bytes;
            if after > before && !leaves_room(after, bytes, limit) {
                let reason = CloseReason::MemoryBudget { own: after, bytes, limit };
                recv.ending = Some(Ending::Close(reason));
            }
        }
        let used = before != after || !recv.buf.is_empty();
        if after > config.tcp_fixed_dealing_buf && (used || recv.shrink_at.is_none()) {
            let at = clock::now() + config.big_buf_release_after;
            recv.shrink_at = Some(at);
            self.conn.arm(at);
        }
    }
}

/// Callback that gets the unconsumed bytes.
pub(super) type Call = fn(&mut dyn Handler, &Connection, &mut Input<'_>) -> Result<(), Close>;

pub(super) fn received(
    handler: &mut dyn Handler,
    conn: &Connection,
    input: &mut Input<'_>,
) -> Result<(), Close> {
    handler.received(conn, input)
}

/// Marks that may end the connection.
const ENDING: Marks = AT_ONCE.or(CLOSE).or(DRAIN).or(TIMER).or(HOLDS_DONE).or(FLUSHED);

/// Bytes that a frame's header may add to `max_allowed_packet`.
const HEADER_ALLOWANCE: usize = 64;

#[cfg(all(test, feature = "internal"))]
mod tests;
