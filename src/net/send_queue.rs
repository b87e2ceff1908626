//! The sending side of a connection: straight to the socket, else to the backlog.
//!
//! A [`Runner`](crate::sync::runner::Runner) guards it: send, append to the backlog and noting that
//! the socket is full are one critical section. A sender that finds another one at work leaves its
//! bytes in the inbox and a mark; a writable edge leaves a mark. So no sender waits for the system
//! call of another one, and nothing is sent past the backlog. A sender that finds new marks after
//! each of many turns leaves the rest to a task, [`SendOn`].
//!
//! The phase [`Shut`](Phase::Shut) is the end. Backlog and inbox are empty then, or the socket has
//! failed. A sender that had found the connection open and comes later is refused.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::close::CloseReason;
use super::conn::{ABORT, Conn, FLUSHED, Phase, RESUME, WRITABLE};
use super::cork;
use super::pieces::{Chunk, Pieces};
use crate::runtime::{Excuse, leaves_room};
use crate::stats::Counter;
use crate::sync::runner::{Ended, Marks, ROUNDS, Running};
use crate::sync::shim::lock;
use crate::sys::clock;
use crate::sys::epoll::Interest;
use crate::sys::socket::{self, Family};

/// What became of the bytes of a [`send`](super::Connection::send).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sent {
    /// The socket has them, and nothing waits before them.
    Sent,
    /// They wait in the backlog, which has so many bytes. They leave later, unless the connection
    /// fails first.
    Queued(usize),
    /// They were dropped, or what the socket had not taken of them: the connection has ended, or is
    /// about to.
    Closed,
}

/// What only one sender at a time may touch.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    backlog: Backlog,
    /// The socket took less than it was given; a writable edge will come.
    blocked: bool,
    /// Bytes that the socket has taken in all.
    sent_bytes: u64,
    /// By when how many bytes must have been sent in all.
    due: Option<(Instant, u64)>,
    /// For those bytes.
    excuse: Excuse,
    /// The backlog has been above the high watermark, or a reader found it so with what was in the
    /// inbox; and it has not been at the low one since.
    was_high: bool,
    /// Room is watched for, see `Conn::watch_for_room`.
    watched: bool,
    /// The receiving side waits for the backlog to be empty.
    closer_waits: bool,
}

/// There is something in the inbox.
const INBOX: Marks = Marks::bit(12);
/// Tell the receiving side when the backlog is at the low watermark.
const READER_WAITS: Marks = Marks::bit(13);
/// Tell the receiving side when the backlog is empty.
const CLOSER_WAITS: Marks = Marks::bit(14);
/// Look whether the peer has drained enough.
const CHECK_DUE: Marks = Marks::bit(15);
/// The connection is over: drop everything.
const DISCARD: Marks = Marks::bit(11);

impl Conn {
    /// Sends it, or leaves it in the inbox while this thread holds a cork.
    pub(super) fn send_or_hold(conn: &Arc<Self>, pieces: Pieces<'_>) -> Sent {
        if !cork::is_corked() || pieces.len() > LARGE {
            return conn.send(pieces);
        }
        if conn.phase() >= Phase::Closing {
            return Sent::Closed;
        }
        if pieces.is_empty() {
            return Sent::Sent;
        }
        let Some(waiting) = conn.leave_in_inbox(pieces, true) else { return Sent::Closed };
        cork::hold(conn);
        conn.answer(waiting)
    }

    /// What was left in the inbox leaves.
    pub(super) fn flush_inbox(self: &Arc<Self>) {
        if self.corked.load(Ordering::Relaxed) {
            self.mark_send(INBOX);
        }
    }

    fn send(self: &Arc<Self>, pieces: Pieces<'_>) -> Sent {
        if self.phase() >= Phase::Closing {
            return Sent::Closed;
        }
        if pieces.is_empty() {
            return Sent::Sent;
        }
        // The connection may be closed by now.
        let first = if let Some(running) = self.send.notify(Marks::NONE) {
            self.run_send(running, pieces)
        } else if let Some(waiting) = self.leave_in_inbox(pieces, false) {
            self.mark_send(INBOX);
            Sent::Queued(waiting)
        } else {
            Sent::Closed
        };
        match first {
            Sent::Sent => self.answer(0),
            Sent::Queued(waiting) => self.answer(waiting),
            Sent::Closed => Sent::Closed,
        }
    }

    /// Answer to a sender whose bytes the socket has taken, or which were among `waiting` bytes.
    fn answer(&self, waiting: usize) -> Sent {
        // Acquire: pairs with `note_pending`. Bytes that were dropped are not counted any more, but the
        // phase was `Shut` before that.
        match self.pending.load(Ordering::Acquire) {
            0 if waiting == 0 || self.phase() < Phase::Shut => Sent::Sent,
            0 => Sent::Queued(waiting),
            bytes => Sent::Queued(bytes),
        }
    }

    /// Leaves bytes to the next turn. Returns how many wait then, or `None` if there will be no turn.
    fn leave_in_inbox(&self, pieces: Pieces<'_>, corked: bool) -> Option<usize> {
        let (waiting, total) = {
            let mut inbox = lock(&self.inbox);
            // Under this lock, as in `tell_waiting`: what is left before the end is sent before it.
            if self.phase() >= Phase::Shut {
                return None;
            }
            if corked {
                // Release: pairs with the Acquire in `send_turn`, so that a later sender sends behind it.
                self.corked.store(true, Ordering::Release);
            }
            pieces.iter().for_each(|piece| inbox.extend_from_slice(piece));
            let total = self.note_pending(0, pieces.len());
            (self.pending.load(Ordering::Relaxed), total)
        };
        self.keep_budget(total);
        Some(waiting)
    }

    /// The receiving side has paused, because of the backlog or of what is in the inbox: [`RESUME`]
    /// comes when the backlog is at the low watermark.
    pub(super) fn resume_when_low(self: &Arc<Self>) {
        self.mark_send(READER_WAITS);
    }

    /// [`FLUSHED`] comes when the backlog is empty.
    pub(super) fn tell_when_flushed(self: &Arc<Self>) {
        self.mark_send(CLOSER_WAITS);
    }

    /// A deadline of the connection has passed, perhaps this one.
    pub(super) fn check_due(self: &Arc<Self>) {
        self.mark_send(CHECK_DUE);
    }

    /// The connection is over.
    pub(super) fn discard_backlog(self: &Arc<Self>) {
        self.mark_send(DISCARD);
    }

    pub(super) fn mark_send(self: &Arc<Self>, marks: Marks) {
        if let Some(running) = self.send.notify(marks) {
            self.run_send(running, Pieces::NONE);
        }
    }

    /// Does what the marks say, with `pieces` to send behind everything that is there. Returns what the
    /// first turn did with them.
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

    /// Unix sockets report room each time the peer reads, whether anybody wants to know or not. So
    /// they are watched for it only while something is blocked.
    fn watch_for_room(&self, out: &mut Outbound) {
        if self.family == Family::Unix && out.blocked != out.watched {
            out.watched = out.blocked;
            let interest = if out.blocked { Interest::STREAM } else { Interest::INPUT };
            self.rewatch(interest);
        }
    }

    fn send_turn(&self, out: &mut Outbound, marks: Marks, mut pieces: Pieces<'_>) -> Sent {
        let before = out.backlog.len();
        if marks.has(DISCARD) || self.phase() >= Phase::Shut {
            self.drop_backlog(out);
            return Sent::Closed;
        }
        // Acquire: pairs with the Release in `leave_in_inbox`. Held bytes leave before later ones.
        let corked = self.corked.load(Ordering::Acquire);
        if corked || marks.has(INBOX) {
            let mut inbox = lock(&self.inbox);
            self.corked.store(false, Ordering::Relaxed);
            // Its bytes are counted as pending already.
            out.backlog.append(&inbox);
            inbox.clear();
            inbox.shrink_to(KEPT_INBOX);
        }
        self.note_height(out);
        // Before time is held against the peer, the socket is looked at: it may have room, and the edge
        // that tells of it is still under way.
        let overdue = marks.has(CHECK_DUE) && out.is_overdue(clock::now());
        out.blocked &= !(marks.has(WRITABLE) || overdue);
        let inboxed = out.backlog.len() - before;
        let mut result = Ok(());
        if !out.blocked {
            result = self.flush(out);
            if result.is_ok() && out.backlog.is_empty() {
                result = self.send_now(out, &mut pieces);
            }
        }
        if let Err(error) = result {
            // Behind a gap nothing may follow.
            self.advance(Phase::Shut);
            self.change_pending(before + inboxed, 0);
            out.backlog.clear();
            self.begin_close(CloseReason::from_io(error), ABORT);
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
        self.keep_time(out, marks);
        self.tell_waiting(out, marks);
        sent
    }

    /// Notes that the backlog has been above the high watermark, where a reader pauses.
    fn note_height(&self, out: &mut Outbound) {
        out.was_high |= out.backlog.len() > self.group.config().write_high_watermark_bytes;
    }

    /// Sends the backlog as far as the socket takes it.
    fn flush(&self, out: &mut Outbound) -> io::Result<()> {
        while !out.blocked && !out.backlog.is_empty() {
            let front = Chunk::One(out.backlog.front());
            let sent = self.send_some(front, &mut out.blocked)?;
            out.sent_bytes += sent as u64;
            out.backlog.consume(sent);
        }
        Ok(())
    }

    /// Sends bytes that nothing waits before.
    fn send_now(&self, out: &mut Outbound, pieces: &mut Pieces<'_>) -> io::Result<()> {
        while !out.blocked && !pieces.is_empty() {
            let sent = self.send_some(pieces.chunk(), &mut out.blocked)?;
            out.sent_bytes += sent as u64;
            pieces.consume(sent);
        }
        Ok(())
    }

    fn send_some(&self, chunk: Chunk<'_>, blocked: &mut bool) -> io::Result<usize> {
        self.count(Counter::SendCalls, 1);
        let sent = match chunk {
            Chunk::One(bytes) => socket::send(self.fd(), bytes),
            Chunk::Several(slices) => socket::send_slices(self.fd(), slices),
        };
        match sent {
            Ok(sent) => {
                self.count(Counter::BytesSent, sent as u64);
                for flag in [&self.sent_any, &self.sent_lately] {
                    // Written as seldom as can be: others read what lies beside it.
                    if !flag.load(Ordering::Relaxed) {
                        flag.store(true, Ordering::Relaxed);
                    }
                }
                // The kernel notes that somebody waits for room also when it took a part.
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

    /// In every `net_write_timeout` the peer has to take what waited at its beginning, or as much of
    /// it as the high watermark.
    fn keep_time(&self, out: &mut Outbound, marks: Marks) {
        let taken = |(_, target): (Instant, u64)| out.sent_bytes >= target;
        if out.backlog.is_empty() || out.due.is_some_and(taken) {
            out.due = None;
            out.excuse = Excuse::default();
        }
        if out.backlog.is_empty() {
            return;
        }
        let config = self.group.config();
        let now = clock::now();
        match out.due {
            // The peer could not be served either.
            Some((due, _)) if out.excuse.covers(due, now) => out.due = None,
            Some((due, _)) if due <= now => {
                let reason = CloseReason::WriteTimeout(config.net_write_timeout);
                self.begin_close(reason, ABORT);
                return;
            }
            Some((due, _)) if marks.has(CHECK_DUE) => self.arm(due),
            Some(_) => {}
            None => {}
        }
        if out.due.is_none() {
            let due = now + config.net_write_timeout;
            let share = out.backlog.len().min(config.write_high_watermark_bytes);
            out.due = Some((due, out.sent_bytes + share as u64));
            self.arm(due);
        }
    }

    /// Tells the receiving side what it may wait for.
    fn tell_waiting(&self, out: &mut Outbound, marks: Marks) {
        out.was_high |= marks.has(READER_WAITS);
        if out.was_high && out.backlog.len() <= self.group.config().write_low_watermark_bytes {
            out.was_high = false;
            self.count(Counter::ReadsResumed, 1);
            self.notify_recv(RESUME);
        }
        out.closer_waits |= marks.has(CLOSER_WAITS);
        if out.closer_waits && out.backlog.is_empty() && self.shut_if_empty() {
            out.closer_waits = false;
            self.notify_recv(FLUSHED);
        }
    }

    /// Refuses late senders from here on, unless one of them has left something. That sender's mark,
    /// or the end of its cork, leads to another turn.
    fn shut_if_empty(&self) -> bool {
        let inbox = lock(&self.inbox);
        if inbox.is_empty() {
            self.advance(Phase::Shut);
        }
        inbox.is_empty()
    }

    fn drop_backlog(&self, out: &mut Outbound) {
        let mut inbox = lock(&self.inbox);
        let dropped = out.backlog.len() + inbox.len();
        *inbox = Vec::new();
        out.backlog.clear();
        out.due = None;
        out.blocked = false;
        self.change_pending(dropped, 0);
    }

    /// Keeps the sums, and the runtime's budget.
    fn change_pending(&self, before: usize, after: usize) {
        let total = self.note_pending(before, after);
        if after > before {
            self.keep_budget(total);
        }
    }

    /// Keeps the sums, and returns what the runtime buffers in all.
    fn note_pending(&self, before: usize, after: usize) -> usize {
        // Release: pairs with `answer`.
        self.pending.fetch_add(after.wrapping_sub(before), Ordering::Release);
        self.group.usage().buffer_changed(before, after)
    }

    /// Past its share of the runtime's budget the connection is ended. Not to be called under a lock.
    fn keep_budget(&self, bytes: usize) {
        let limit = self.group.config().max_buffered_bytes;
        let own = self.pending.load(Ordering::Relaxed);
        if !leaves_room(own, bytes, limit) {
            self.begin_close(CloseReason::MemoryBudget { own, bytes, limit }, ABORT);
        }
    }
}

impl Outbound {
    fn is_overdue(&self, now: Instant) -> bool {
        self.due.is_some_and(|(due, _)| due <= now)
    }
}

/// Right to send that a sender has given to the queue. A worker drops it, or the sweep of a group that
/// ends, and either of them goes on sending.
struct SendOn(Arc<Conn>);

impl Drop for SendOn {
    fn drop(&mut self) {
        if let Some(running) = self.0.send.resume() {
            self.0.run_send(running, Pieces::NONE);
        }
    }
}

/// Bytes that are worth a call of their own.
const LARGE: usize = 16 << 10;
/// Capacity that an emptied inbox keeps.
const KEPT_INBOX: usize = 4096;

/// Bytes that wait for the socket, in chunks, so that memory goes as they leave.
#[derive(Debug, Default)]
struct Backlog {
    chunks: VecDeque<Vec<u8>>,
    /// Sent bytes of the first chunk.
    start: usize,
    len: usize,
}

/// Chunks are filled up to this; a larger piece is a chunk of its own.
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

    /// The first piece that waits.
    fn front(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| &chunk[self.start..])
    }

    /// Drops `count` bytes of the first piece.
    fn consume(&mut self, count: usize) {
        self.len -= count;
        self.start += count;
        if self.chunks.front().is_some_and(|chunk| chunk.len() == self.start) {
            self.chunks.pop_front();
            self.start = 0;
        }
        if self.is_empty() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

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
}
