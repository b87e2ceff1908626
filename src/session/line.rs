//! [`Line`]: what the sessions of one connection share, whatever their service.

use std::fmt;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

use super::channel::Channel;
use super::kept::{Owner, is_dead};
use super::writers::Writers;
use crate::codec::buffer::{OutBuffer, PagePool};
use crate::codec::dialect::Dialect;
use crate::codec::encoder::Encoder;
use crate::config::Config;
use crate::net::{Connection, Sent};
use crate::runtime::{Class, Group};
use crate::stats::Counter;
use crate::sync::shim::lock;

pub(super) struct Line {
    pub(super) conn: Connection,
    /// [`Class::Admin`] if the listener is of that class, otherwise ordinary. The connection has it again
    /// after the login, and its sessions have it outside of transactions.
    pub(super) class: Class,
    pub(super) dialect: Dialect,
    pub(super) pages: PagePool,
    pub(super) writers: Arc<Writers>,
    /// Bytes of requests that wait in mailboxes. Statistics, and a bound.
    queued_bytes: AtomicUsize,
    /// Who sends reads; who ends a session writes, so that nothing of it is sent after its end was told.
    gate: RwLock<()>,
    /// Sessions whose work is urgent.
    urgent: Mutex<usize>,
    /// The peer sends nothing any more: no credit, too.
    finished: AtomicBool,
    /// The server drains. Read under the lock of a session's mail; who writes it takes that afterwards.
    draining: AtomicBool,
    /// Those that wait for the peer to read.
    waiting: Mutex<Vec<Weak<Channel>>>,
}

impl Line {
    pub(super) fn new(
        conn: Connection,
        dialect: Dialect,
        pages: PagePool,
        writers: Arc<Writers>,
    ) -> Self {
        Self {
            class: if conn.class() == Class::Admin { Class::Admin } else { Class::Ordinary },
            conn,
            dialect,
            pages,
            writers,
            queued_bytes: AtomicUsize::new(0),
            gate: RwLock::new(()),
            urgent: Mutex::new(0),
            finished: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            waiting: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn group(&self) -> &Arc<Group> {
        self.conn.group()
    }

    pub(super) fn config(&self) -> &Config {
        self.group().config()
    }

    pub(super) fn count(&self, counter: Counter) {
        self.group().count(counter, 1);
    }

    /// Held while something is sent, which does not wait.
    pub(super) fn sending(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what `owner` has written, unless that is dead.
    pub(super) fn send_of(&self, owner: &Owner, buffer: &OutBuffer) -> Sent {
        let _sending = self.sending();
        if is_dead(owner) {
            self.count(Counter::FramesOfDeadSessionsDropped);
            return Sent::Sent;
        }
        let mut slices = buffer.slices();
        match (slices.next(), slices.next()) {
            (Some(only), None) => self.conn.send(only),
            _ => {
                let slices: Vec<_> = buffer.slices().map(IoSlice::new).collect();
                self.conn.send_slices(&slices)
            }
        }
    }

    /// Writes frames of a session and sends them at once: answers that no request is run for.
    pub(super) fn answer<R>(&self, session: u64, write: impl FnOnce(&mut Encoder<'_>) -> R) {
        let mut answer = Vec::new();
        self.put_answer(session, write, &mut answer);
        self.conn.send(answer);
    }

    /// The same, but they go behind what is in `answers`.
    pub(super) fn put_answer<R>(
        &self,
        session: u64,
        write: impl FnOnce(&mut Encoder<'_>) -> R,
        answers: &mut Vec<u8>,
    ) {
        let mut buffer = OutBuffer::new(&self.pages);
        write(&mut Encoder::with_dialect(&mut buffer, self.dialect, session));
        buffer.slices().for_each(|slice| answers.extend_from_slice(slice));
    }

    /// Runs `end` while nobody sends.
    pub(super) fn between_sends(&self, end: impl FnOnce()) {
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        end();
    }

    /// Takes room for a request, unless there is none for this connection; then the limit comes back.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), usize> {
        let config = self.config();
        let limit = config.max_queued_bytes_per_connection;
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if queued > limit {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(limit);
        }
        if !self.group().usage().request_queues(bytes, queued, config.max_queued_bytes) {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(config.max_queued_bytes);
        }
        Ok(())
    }

    /// Gives back what a request took.
    pub(super) fn release(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.group().usage().request_taken(bytes);
    }

    /// The peer has not read enough for more to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.conn.pending_bytes() > self.config().write_high_watermark_bytes
    }

    /// There is room for more; or nobody will take it, which its sender has to see.
    pub(super) fn has_room(&self) -> bool {
        self.conn.pending_bytes() <= self.config().write_low_watermark_bytes
            || self.conn.is_closed()
    }

    /// A session changes its class. While a session is urgent, the connection is urgent too. Otherwise
    /// no thread would read the requests of a session that all threads wait for.
    pub(super) fn note_class(&self, before: Class, after: Class) {
        self.group().note_urgent(before, after);
        if before.is_urgent() == after.is_urgent() {
            return;
        }
        let mut urgent = lock(&self.urgent);
        if after.is_urgent() {
            *urgent += 1;
        } else {
            *urgent -= 1;
        }
        let class = if *urgent == 0 { self.class } else { self.class.or(Class::InProgress) };
        if class != self.conn.class() {
            self.conn.set_class(class);
        }
    }

    /// The peer sends nothing any more. Who waits for credit is to be woken.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Credit that has not come will not come.
    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// The server drains: no credit comes, and whoever has nothing more to do ends.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.finish();
    }

    /// A session ends when it becomes idle.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// `channel` is woken when there is room, at once if there is.
    pub(super) fn wake_when_room(&self, channel: &Arc<Channel>) {
        if !channel.waits_for_room.swap(true, Ordering::AcqRel) {
            lock(&self.waiting).push(Arc::downgrade(channel));
            self.conn.tell_when_low();
        }
    }

    /// There is room: wakes all who wait for it.
    pub(super) fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for channel in waiting.iter().filter_map(Weak::upgrade) {
            // Before it looks: if there is no room then, it comes back here.
            channel.waits_for_room.store(false, Ordering::Release);
            channel.wake();
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("conn", &self.conn).finish_non_exhaustive()
    }
}
