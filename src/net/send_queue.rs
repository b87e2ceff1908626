//! The sending side of a connection: bytes go straight to the socket, or to the backlog if the
//! socket is full.
//!
//! A [`Runner`](crate::sync::runner::Runner) guards it. To send, to append to the backlog and to
//! note that the socket is full are one critical section. If another sender is at work, a sender
//! leaves its bytes in the inbox and sets a mark. A writable edge sets a mark too. So no sender
//! waits for the system call of another, and no bytes overtake the backlog. If a sender finds new
//! marks after each of many turns, it leaves the rest to a task, [`SendOn`].
//!
//! The phase [`Shut`](Phase::Shut) is the end: backlog and inbox are empty, or the socket has
//! failed. A sender that found the connection open before is then refused.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::close::CloseReason;
use super::conn::{ABORT, Conn, FLUSHED, RESUME, WRITABLE};
use super::connection::Connection;
use super::cork;
use super::phase::Phase;
use super::pieces::{Chunk, Pieces};
use crate::runtime::{Excuse, leaves_room};
use crate::stats::Counter;
use crate::sync::mutant::mutant;
use crate::sync::runner::{Ended, Marks, ROUNDS, Running};
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};
use crate::sys::epoll::Interest;
use crate::sys::socket::{self, Family};

/// Result of a [`send`](super::Connection::send).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sent {
    /// The socket has taken the bytes, and no other bytes wait before them.
    Sent,
    /// The bytes wait in the backlog, which holds this number of bytes. They leave later, unless
    /// the connection fails first.
    Queued(usize),
    /// The connection has ended, is about to, or was half-closed by
    /// [`shutdown_write`](super::Connection::shutdown_write). Those bytes of this call that the
    /// socket has not taken are dropped.
    Closed,
}

/// State that only one sender at a time may touch.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// Set until an outgoing connection is established. Its bytes wait: a send would take the error of a
    /// failed attempt from the socket.
    connecting: bool,
    backlog: Backlog,
    /// Set when the socket took less than it was given. A writable edge will follow.
    blocked: bool,
    /// Total number of bytes that the socket has taken.
    sent_bytes: u64,
    due: Option<Due>,
    /// Excuse of a peer that has missed `due`, if this runtime was late too.
    excuse: Excuse,
    /// Set when the backlog rose above the high watermark, or a reader paused for the backlog and
    /// the inbox. Cleared at the low watermark.
    was_high: bool,
    /// Set while the socket is watched for room; see `Conn::watch_for_room`.
    watched: bool,
    /// Set while the receiving side waits for the backlog to be empty.
    closer_waits: bool,
}

/// Time at which the deadline of the peer is looked at.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    /// Total number of bytes that must have been sent by then. `None` until the backlog has settled.
    sent: Option<u64>,
}

/// Bytes that wait after a sender has left some in the inbox.
pub(super) struct Left {
    /// Length of the inbox.
    len: usize,
    /// Length of backlog and inbox.
    pending: usize,
    /// Bytes that the runtime buffers for all connections.
    total: usize,
}

/// Room in a new inbox for some small sends, in bytes.
const SMALL_SENDS: usize = 512;

/// The inbox has bytes.
pub(super) const INBOX: Marks = Marks::bit(12);
/// Notify the receiving side when the backlog is at the low watermark.
const READER_WAITS: Marks = Marks::bit(13);
/// Notify the receiving side when the backlog is empty.
const CLOSER_WAITS: Marks = Marks::bit(14);
/// Check whether the peer has taken enough bytes in time.
const CHECK_DUE: Marks = Marks::bit(15);
/// The connection is established.
const ESTABLISHED: Marks = Marks::bit(10);
/// The connection has ended: drop all bytes.
const DISCARD: Marks = Marks::bit(11);

/// Divides `net_write_timeout`: after this part of it the backlog counts as settled.
const SETTLING: u32 = 10;

impl Outbound {
    /// State of a connection that is not established.
    pub(super) fn connecting() -> Self {
        Self { connecting: true, ..Self::default() }
    }
}

impl Conn {
    /// Sends the bytes, or leaves them in the inbox while this thread holds a cork.
    pub(super) fn send_or_hold(conn: &Arc<Self>, pieces: Pieces<'_>) -> Sent {
        if !cork::is_corked() || pieces.len() >= cork::FULL {
            return conn.send(pieces);
        }
        if !conn.phase().sends() {
            return Sent::Closed;
        }
        if pieces.is_empty() {
            return Sent::Sent;
        }
        conn.leave_in_inbox(pieces, true).map_or(Sent::Closed, |left| conn.send_inbox(left))
    }

    /// Sends the inbox, or holds it while this thread holds a cork.
    pub(super) fn send_inbox(self: &Arc<Self>, left: Left) -> Sent {
        // Held bytes that exceed the connection's share of the budget leave first: only the rest
        // may end the connection.
        if !cork::is_corked() || left.len >= cork::FULL || self.over_budget(left.total).is_some() {
            self.mark_send(INBOX);
            self.keep_budget(self.group.usage().buffered_bytes());
        } else {
            cork::hold(self);
        }
        self.answer(left.pending)
    }

    /// Sends the bytes that a cork left in the inbox.
    pub(super) fn flush_inbox(self: &Arc<Self>) {
        if self.corked.load(Ordering::Relaxed) {
            self.mark_send(INBOX);
        }
    }

    fn send(self: &Arc<Self>, pieces: Pieces<'_>) -> Sent {
        if !self.phase().sends() {
            return Sent::Closed;
        }
        if pieces.is_empty() {
            return Sent::Sent;
        }
        // The connection may have closed since the check above; then the send returns `Closed`.
        let first = if let Some(running) = self.send.notify(Marks::NONE) {
            self.send_at_once(running, pieces)
        } else if let Some(inbox) = self.leave_in_inbox(pieces, false) {
            self.keep_budget(inbox.total);
            self.mark_send(INBOX);
            Sent::Queued(inbox.pending)
        } else {
            Sent::Closed
        };
        match first {
            Sent::Sent => self.answer(0),
            Sent::Queued(waiting) => self.answer(waiting),
            Sent::Closed => Sent::Closed,
        }
    }

    /// Sends the pieces. Usually the socket takes them all, and no other thread is to be told.
    fn send_at_once(
        self: &Arc<Self>,
        mut running: Running<'_, Outbound>,
        mut pieces: Pieces<'_>,
    ) -> Sent {
        if !running.is_idle() || !self.may_send_now(&mut running) {
            return self.run_send(running, pieces);
        }
        match self.send_now(&mut running, &mut pieces) {
            Ok(()) if pieces.is_empty() => {
                if let Some(again) = running.finish() {
                    self.run_send(again, Pieces::NONE);
                }
                return Sent::Sent;
            }
            Ok(()) => self.append_rest(&mut running, pieces),
            Err(error) => self.note_failed(&mut running, 0, error),
        }
        match self.run_send(running, Pieces::NONE) {
            Sent::Closed => Sent::Closed,
            Sent::Sent | Sent::Queued(_) => Sent::Queued(pieces.len()),
        }
    }

    /// Result for a sender whose bytes the socket has taken, or whose bytes were among `waiting`
    /// bytes.
    pub(super) fn answer(&self, waiting: usize) -> Sent {
        // Acquire: pairs with `note_pending`. Dropped bytes are no longer counted, but then the
        // phase was already `Shut`.
        match self.pending.load(Ordering::Acquire) {
            0 if waiting == 0 || self.phase() < Phase::Shut => Sent::Sent,
            0 => Sent::Queued(waiting),
            bytes => Sent::Queued(bytes),
        }
    }

    /// Leaves bytes to the next turn. Returns `None` if no turn will follow.
    fn leave_in_inbox(&self, pieces: Pieces<'_>, corked: bool) -> Option<Left> {
        self.leave(pieces.len(), corked, |inbox| {
            if inbox.capacity() == 0 {
                inbox.reserve(pieces.len().max(SMALL_SENDS));
            }
            pieces.iter().for_each(|piece| inbox.extend_from_slice(piece));
        })
    }

    /// Like `leave_in_inbox`, for bytes that all later senders must find.
    pub(super) fn leave_chunk_in_inbox(&self, chunk: Vec<u8>) -> Option<Left> {
        self.leave(chunk.len(), true, |inbox| {
            if inbox.is_empty() {
                *inbox = chunk;
            } else {
                inbox.extend_from_slice(&chunk);
            }
        })
    }

    fn leave(&self, len: usize, corked: bool, add: impl FnOnce(&mut Vec<u8>)) -> Option<Left> {
        let mut inbox = lock(&self.inbox);
        // Checked under the lock, as in `shut_if_empty`: bytes left before the end are sent before
        // it.
        if mutant!(self.phase().is_shut(), LeaveAfterShut => false) {
            return None;
        }
        if corked {
            // Release: pairs with the Acquire in `send_turn`, so a later sender sends after these
            // bytes.
            self.corked.store(true, Ordering::Release);
        }
        add(&mut inbox);
        let total = self.note_pending(0, len);
        Some(Left { len: inbox.len(), pending: self.pending.load(Ordering::Relaxed), total })
    }

    /// Asks for [`RESUME`] when backlog and inbox are at the low watermark.
    pub(super) fn resume_when_low(self: &Arc<Self>) {
        self.mark_send(READER_WAITS);
    }

    /// Asks for [`FLUSHED`] when the backlog is empty.
    pub(super) fn tell_when_flushed(self: &Arc<Self>) {
        self.mark_send(CLOSER_WAITS);
    }

    /// Called when a deadline of the connection has passed. It may be the one for sending.
    pub(super) fn check_due(self: &Arc<Self>) {
        self.mark_send(CHECK_DUE);
    }

    /// Sends the bytes that waited until the connection was established.
    pub(super) fn send_early(self: &Arc<Self>) {
        self.mark_send(ESTABLISHED);
    }

    /// Drops all bytes at the end of the connection.
    pub(super) fn discard_backlog(self: &Arc<Self>) {
        self.mark_send(DISCARD);
    }

    pub(super) fn mark_send(self: &Arc<Self>, marks: Marks) {
        if let Some(running) = self.send.notify(marks) {
            self.run_send(running, Pieces::NONE);
        }
    }

    /// Handles the marks and sends `pieces` after all bytes that wait. Returns what the first turn
    /// did with the pieces.
    fn run_send(self: &Arc<Self>, running: Running<'_, Outbound>, mut pieces: Pieces<'_>) -> Sent {
        let mut first_sent = None;
        let ended = running.run(ROUNDS, |running, marks| {
            let turn = self.send_turn(running, marks, mem::replace(&mut pieces, Pieces::NONE));
            first_sent.get_or_insert(turn);
            self.watch_for_room(running);
            running.set_flag(running.blocked);
            ControlFlow::Continue(())
        });
        if ended == Ended::Queued {
            self.group.queue_drop(SendOn(Arc::clone(self)));
        }
        // A run has at least one turn.
        first_sent.unwrap_or(Sent::Closed)
    }

    /// Unix sockets report room each time the peer reads. So they are watched for room only while a
    /// send is blocked.
    fn watch_for_room(&self, out: &mut Outbound) {
        if self.family == Family::Unix && out.blocked != out.watched {
            out.watched = out.blocked;
            let interest = if out.blocked { Interest::STREAM } else { Interest::INPUT };
            self.rewatch(interest);
        }
    }

    fn send_turn(
        self: &Arc<Self>,
        out: &mut Outbound,
        marks: Marks,
        mut pieces: Pieces<'_>,
    ) -> Sent {
        let before = out.backlog.len();
        let phase = self.phase();
        if marks.has(DISCARD) || mutant!(phase.is_shut(), SendAfterShut => false) {
            self.drop_backlog(out);
            if phase < Phase::Closed {
                self.tell_waiting(out, marks);
            }
            return Sent::Closed;
        }
        // Acquire: pairs with the Release in `leave`. Corked bytes leave before later ones.
        let corked = self.corked.load(Ordering::Acquire);
        if corked || marks.has(INBOX) {
            let mut inbox = lock(&self.inbox);
            self.corked.store(false, Ordering::Relaxed);
            // The bytes of the inbox are counted as pending already.
            out.backlog.append_chunk(mem::take(&mut inbox));
        }
        self.note_height(out);
        // Before the backlog counts against the peer, the socket is tried. It may have room although
        // no edge came: one comes only when much of its buffer is free.
        let now = out.due.map(|_| clock::now());
        let overdue = now.is_some_and(|now| out.is_overdue(now));
        out.connecting &= !marks.has(ESTABLISHED);
        out.blocked &= !(marks.has(WRITABLE | ESTABLISHED) || overdue);
        out.blocked |= out.connecting;
        let inboxed = out.backlog.len() - before;
        // If bytes are left in the backlog, the socket is full, and `send_now` sends nothing.
        let result = self.flush(out).and_then(|()| self.send_now(out, &mut pieces));
        if let Err(error) = result {
            self.note_failed(out, before + inboxed, error);
            return Sent::Closed;
        }
        let mut sent = Sent::Sent;
        if !pieces.is_empty() {
            self.count(Counter::BacklogBytesQueued, pieces.len() as u64);
            pieces.iter().for_each(|piece| out.backlog.append(piece));
            sent = Sent::Queued(out.backlog.len());
        }
        let after = out.backlog.len();
        if before + inboxed != after {
            self.change_pending(before + inboxed, after);
        }
        self.note_height(out);
        self.keep_time(out, marks, now);
        self.tell_waiting(out, marks);
        sent
    }

    /// Returns true if a turn without marks has nothing to do but to send.
    fn may_send_now(&self, running: &mut Running<'_, Outbound>) -> bool {
        let marks = running.take_marks();
        running.mark(marks);
        // Acquire: as in `send_turn`.
        marks.is_empty()
            && !self.corked.load(Ordering::Acquire)
            && !mutant!(self.phase().is_shut(), SendNowAfterShut => false)
    }

    /// Appends the rest of a send to the empty backlog. What others have left in the inbox since its
    /// beginning comes behind it.
    fn append_rest(self: &Arc<Self>, out: &mut Outbound, rest: Pieces<'_>) {
        self.count(Counter::BacklogBytesQueued, rest.len() as u64);
        rest.iter().for_each(|piece| out.backlog.append(piece));
        self.change_pending(0, rest.len());
    }

    /// Ends the connection when the socket has failed. `waiting` is the number of bytes that were counted
    /// as pending.
    #[cold]
    fn note_failed(self: &Arc<Self>, out: &mut Outbound, waiting: usize, error: io::Error) {
        // A part of the stream is lost, so no later bytes may be sent.
        self.advance(Phase::Shut);
        self.change_pending(waiting, 0);
        out.backlog.clear();
        self.break_off(CloseReason::from_io(error), ABORT);
    }

    /// Notes that the backlog has been above the high watermark, where a reader pauses.
    fn note_height(&self, out: &mut Outbound) {
        out.was_high |= out.backlog.len() > self.group.config().write_high_watermark_bytes;
    }

    /// Sends as much of the backlog as the socket takes.
    fn flush(&self, out: &mut Outbound) -> io::Result<()> {
        while !out.blocked && !out.backlog.is_empty() {
            let front = Chunk::One(out.backlog.front());
            let sent = self.send_some(front, &mut out.blocked)?;
            out.sent_bytes += sent as u64;
            out.backlog.consume(sent);
        }
        Ok(())
    }

    /// Sends bytes when no other bytes wait before them.
    fn send_now(&self, out: &mut Outbound, pieces: &mut Pieces<'_>) -> io::Result<()> {
        while !out.blocked && !pieces.is_empty() {
            let sent = self.send_some(pieces.chunk(), &mut out.blocked)?;
            out.sent_bytes += sent as u64;
            pieces.consume(sent);
        }
        Ok(())
    }

    fn send_some(&self, chunk: Chunk<'_>, blocked: &mut bool) -> io::Result<usize> {
        // Before the call, so that a peer that has its answer finds it counted.
        self.count(Counter::SendCalls, 1);
        let sent = match chunk {
            Chunk::One(bytes) => socket::send(self.fd(), bytes),
            Chunk::Several(slices) => socket::send_slices(self.fd(), slices),
        };
        match sent {
            Ok(sent) => {
                self.count(Counter::BytesSent, sent as u64);
                for flag in [&self.sent_any, &self.sent_lately] {
                    // Written only if it changes: other threads read the cache line.
                    if !flag.load(Ordering::Relaxed) {
                        flag.store(true, Ordering::Relaxed);
                    }
                }
                // The kernel reports room after a partial send too, so no send has to fail first.
                *blocked = sent < chunk.len();
                Ok(sent)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                *blocked = true;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends the connection when its peer has not taken its share within `net_write_timeout`.
    ///
    /// The share is the backlog after a tenth of that time, at most `write_high_watermark_bytes`.
    /// It is not the backlog at the beginning: that is often a few bytes, for which the kernel
    /// still has room, and which would give a dead peer a second period.
    fn keep_time(self: &Arc<Self>, out: &mut Outbound, marks: Marks, now: Option<Instant>) {
        let is_met = out.due.and_then(|due| due.sent).is_some_and(|sent| out.sent_bytes >= sent);
        if out.backlog.is_empty() || is_met {
            out.due = None;
            out.excuse = Excuse::default();
        }
        // Without a connection there is no peer that could take bytes.
        if out.backlog.is_empty() || out.connecting {
            return;
        }
        let (limit, now) = (self.net_write_timeout(), now.unwrap_or_else(clock::now));
        let settling = limit / SETTLING;
        let due = match out.due {
            None => Due { at: now + settling, sent: None },
            Some(due) if due.at > now && marks.has(CHECK_DUE) => due,
            Some(due) if due.at > now => return,
            // If this runtime was late too, the peer had no full chance.
            Some(due) if due.sent.is_none() || out.excuse.covers(due.at, now) => {
                let most = self.group.config().write_high_watermark_bytes;
                let share = out.backlog.len().min(most) as u64;
                Due { at: now + (limit - settling), sent: Some(out.sent_bytes + share) }
            }
            Some(_) => {
                self.break_off(CloseReason::WriteTimeout(limit), ABORT);
                return;
            }
        };
        out.due = Some(due);
        self.arm(due.at);
    }

    /// Notifies the receiving side of the states that it waits for.
    fn tell_waiting(self: &Arc<Self>, out: &mut Outbound, marks: Marks) {
        out.was_high |= marks.has(READER_WAITS);
        // Bytes that wait for a handshake count too.
        let waiting = self.pending.load(Ordering::Relaxed);
        if out.was_high && waiting <= self.group.config().write_low_watermark_bytes {
            out.was_high = false;
            self.notify_recv_and_callback(RESUME);
        }
        out.closer_waits |= marks.has(CLOSER_WAITS);
        let has_left = mutant!(out.backlog.is_empty(), ShutBeforeBacklog => true);
        if out.closer_waits && has_left && self.shut_if_empty() {
            out.closer_waits = false;
            if self.phase() == Phase::HalfClosed {
                // An error means that the peer is gone, which the receiving side notices.
                let _ = socket::shutdown_write(self.fd());
            }
            self.notify_recv(FLUSHED);
        }
    }

    /// Refuses late senders from now on, unless a sender has left bytes in the inbox. The mark of
    /// that sender, or the end of its cork, leads to another turn.
    fn shut_if_empty(&self) -> bool {
        let inbox = lock(&self.inbox);
        let is_empty = mutant!(inbox.is_empty(), ShutWithoutLook => true);
        if is_empty {
            self.advance_to_shut();
        }
        is_empty
    }

    fn drop_backlog(self: &Arc<Self>, out: &mut Outbound) {
        let mut inbox = lock(&self.inbox);
        let dropped = out.backlog.len() + inbox.len();
        *inbox = Vec::new();
        out.backlog.clear();
        out.due = None;
        out.blocked = false;
        self.change_pending(dropped, 0);
    }

    /// Updates the sums and enforces the budget of the runtime.
    fn change_pending(self: &Arc<Self>, before: usize, after: usize) {
        let total = self.note_pending(before, after);
        if after > before {
            self.keep_budget(total);
        }
    }

    /// Updates the sums. Returns the number of bytes that the runtime buffers in total.
    pub(super) fn note_pending(&self, before: usize, after: usize) -> usize {
        // Release: pairs with `answer`.
        self.pending.fetch_add(after.wrapping_sub(before), Ordering::Release);
        self.group.usage().buffer_changed(before, after)
    }

    /// Ends the connection if it exceeds its share of the runtime's budget. Must not be called
    /// under a lock.
    pub(super) fn keep_budget(self: &Arc<Self>, bytes: usize) {
        if let Some(reason) = self.over_budget(bytes) {
            self.break_off(reason, ABORT);
        }
    }

    fn over_budget(&self, bytes: usize) -> Option<CloseReason> {
        let limit = self.group.config().max_buffered_bytes;
        let own = self.pending.load(Ordering::Relaxed);
        let over = !leaves_room(own, bytes, limit);
        over.then_some(CloseReason::MemoryBudget { own, bytes, limit })
    }
}

impl Outbound {
    /// Returns true if no bytes wait, and nothing waits for the end of a backlog.
    const fn is_idle(&self) -> bool {
        let waits = self.connecting | self.blocked | self.was_high | self.closer_waits;
        self.backlog.is_empty() && !waits
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due.at <= now)
    }
}

/// Right to send that a sender has given to the queue. When a worker or the sweep of an ending
/// group drops it, the sending continues.
struct SendOn(Arc<Conn>);

impl Drop for SendOn {
    fn drop(&mut self) {
        if let Some(running) = self.0.send.resume() {
            self.0.run_send(running, Pieces::NONE);
        }
    }
}

/// Call of `drained` beside a callback that runs. A worker or the sweep of an ending group makes it when
/// it drops this.
pub(super) struct TellDrained(pub(super) Arc<Conn>);

impl Drop for TellDrained {
    fn drop(&mut self) {
        let conn = &self.0;
        // Acquire: pairs with the Release in `open`.
        if conn.has_opened.load(Ordering::Acquire) && conn.phase() < Phase::Closed {
            let connection = Connection(Arc::clone(conn));
            let drained = || conn.protocol().drained(&connection);
            if conn.group.guard("drained", drained).is_none() {
                conn.begin_close(CloseReason::Panic, ABORT);
            }
        }
    }
}

/// Bytes that wait for the socket. They are kept in chunks, so that memory is freed as they leave.
#[derive(Debug, Default)]
struct Backlog {
    chunks: VecDeque<Vec<u8>>,
    /// Sent bytes of the first chunk.
    start: usize,
    len: usize,
}

/// Size up to which a chunk is filled. A larger piece becomes its own chunk.
const CHUNK: usize = 64 * 1024;

impl Backlog {
    const fn len(&self) -> usize {
        self.len
    }

    const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn append(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.len += bytes.len();
        match self.chunks.back_mut() {
            Some(last) if last.len() + bytes.len() <= CHUNK => last.extend_from_slice(bytes),
            _ => self.chunks.push_back(bytes.to_vec()),
        }
    }

    fn append_chunk(&mut self, bytes: Vec<u8>) {
        if self.is_empty() && !bytes.is_empty() {
            self.len = bytes.len();
            self.chunks.push_back(bytes);
        } else {
            self.append(&bytes);
        }
    }

    /// Returns the unsent part of the first chunk.
    fn front(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| &chunk[self.start..])
    }

    /// Drops `count` bytes of the first chunk.
    fn consume(&mut self, count: usize) {
        self.len -= count;
        self.start += count;
        if let Some(front) = self.chunks.front_mut() {
            if self.start == front.len() {
                self.chunks.pop_front();
                self.start = 0;
            } else if self.start >= CHUNK && self.start >= front.len() / 2 {
                // Only unsent bytes are counted, so the memory of the others must not stay.
                *front = front.split_off(self.start);
                self.start = 0;
            }
        }
        if self.is_empty() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(all(test, loom))]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_keeps_order_and_gives_memory_back() {
        let mut backlog = Backlog::default();
        let mut expected = Vec::new();
        for size in [10, CHUNK, 1, 3 * CHUNK, 5] {
            let piece: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            backlog.append(&piece);
            expected.extend_from_slice(&piece);
        }
        assert_eq!(backlog.len(), expected.len());
        let mut seen = Vec::new();
        while !backlog.is_empty() {
            let front = backlog.front();
            let take = front.len().min(1000);
            seen.extend_from_slice(&front[..take]);
            backlog.consume(take);
        }
        assert!(seen == expected);
        assert_eq!(backlog.chunks.capacity(), 0);
    }

    #[test]
    fn a_long_piece_keeps_at_most_twice_the_memory_of_its_unsent_bytes() {
        let mut backlog = Backlog::default();
        let piece: Vec<u8> = (0..40 * CHUNK).map(|n| (n % 251) as u8).collect();
        backlog.append(&piece);
        for sent in (1000..piece.len()).step_by(1000) {
            backlog.consume(1000);
            assert!(backlog.front() == &piece[sent..]);
            let memory: usize = backlog.chunks.iter().map(Vec::capacity).sum();
            assert!(memory <= (2 * backlog.len()).max(backlog.len() + CHUNK), "{memory}");
        }
    }

    /// An empty chunk at the front would look like bytes that the socket does not take.
    #[test]
    fn an_empty_inbox_adds_no_chunk() {
        let mut backlog = Backlog::default();
        backlog.append_chunk(Vec::new());
        backlog.append(&[7; CHUNK]);
        assert_eq!(backlog.front().len(), CHUNK);
    }
}
