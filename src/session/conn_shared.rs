//! [`ConnShared`]: the part of a connection that does not depend on the type of the service.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use super::session_shared::SessionShared;
use crate::codec::encoder::{Encoder, OutBuffer, PagePool};
use crate::codec::frame::Dialect;
use crate::config::Config;
use crate::net::{Connection, Sent};
use crate::runtime::{Class, Group};
use crate::stats::Counter;
use crate::sync::shim::lock;

pub(super) struct ConnShared {
    pub(super) net: Connection,
    /// [`Class::Admin`] if the listener has that class, otherwise ordinary. Class of the connection
    /// after its login, and of its sessions outside of transactions.
    pub(super) class: Class,
    pub(super) dialect: Dialect,
    pub(super) pages: PagePool,
    pub(super) writers: Arc<Writers>,
    /// Bytes of requests in the mailboxes of the connection.
    queued_bytes: AtomicUsize,
    /// Send lock. Senders hold it for reading. The end of a session holds it for writing, so that
    /// no frame of the session is sent after the message about its end.
    send_lock: RwLock<()>,
    /// Number of sessions with an urgent class.
    urgent: Mutex<usize>,
    /// Set when the peer sends no more or the server drains. A request without credit then fails.
    finished: AtomicBool,
    /// Set when the server drains. The writer locks each session's mail afterwards; readers hold
    /// that lock.
    draining: AtomicBool,
    /// Sessions that wait until the peer has read.
    waiting: Mutex<Vec<Weak<SessionShared>>>,
}

impl ConnShared {
    pub(super) fn new(
        net: Connection,
        dialect: Dialect,
        pages: PagePool,
        writers: Arc<Writers>,
    ) -> Self {
        Self {
            class: if net.class() == Class::Admin { Class::Admin } else { Class::Ordinary },
            net,
            dialect,
            pages,
            writers,
            queued_bytes: AtomicUsize::new(0),
            send_lock: RwLock::new(()),
            urgent: Mutex::new(0),
            finished: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Class of the connection until its login. The login of an operator does not wait for others.
    pub(super) fn login_class(&self) -> Class {
        self.class.or(Class::Login)
    }

    pub(super) fn group(&self) -> &Arc<Group> {
        self.net.group()
    }

    pub(super) fn config(&self) -> &Config {
        self.group().config()
    }

    pub(super) fn count(&self, counter: Counter) {
        self.group().count(counter, 1);
    }

    /// Sends the frames of `owner`, or drops them if it is dead.
    pub(super) fn send_frames(&self, owner: Option<&SessionShared>, buffer: &OutBuffer) -> Sent {
        // Held during the send, which does not wait.
        let _sending = self.send_lock.read().unwrap_or_else(PoisonError::into_inner);
        if owner.is_some_and(SessionShared::is_dead) {
            self.count(Counter::FramesOfDeadSessionsDropped);
            return Sent::Sent;
        }
        let mut slices = buffer.slices();
        match (slices.next(), slices.next()) {
            (Some(only), None) => self.net.send(only),
            _ => {
                let slices: Vec<_> = buffer.slices().map(IoSlice::new).collect();
                self.net.send_slices(&slices)
            }
        }
    }

    /// Writes frames of a session and sends them immediately, outside of any run of the session.
    pub(super) fn answer<R>(&self, session: u64, write: impl FnOnce(&mut Encoder<'_>) -> R) {
        let mut answer = Vec::new();
        self.append_answer(session, write, &mut answer);
        self.net.send(answer);
    }

    /// Appends frames of a session to `answers`.
    pub(super) fn append_answer<R>(
        &self,
        session: u64,
        write: impl FnOnce(&mut Encoder<'_>) -> R,
        answers: &mut Vec<u8>,
    ) {
        let mut buffer = OutBuffer::new(&self.pages);
        write(&mut Encoder::with_dialect(&mut buffer, self.dialect, session));
        buffer.slices().for_each(|slice| answers.extend_from_slice(slice));
    }

    /// Runs `end` while no thread sends.
    pub(super) fn exclude_sends(&self, end: impl FnOnce()) {
        let _alone = self.send_lock.write().unwrap_or_else(PoisonError::into_inner);
        end();
    }

    /// Reserves bytes for a request. Returns the exceeded limit if there is no room.
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

    /// Releases the bytes of a request.
    pub(super) fn release(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.group().usage().request_taken(bytes);
    }

    /// Returns true if the backlog is above the high watermark.
    pub(super) fn is_full(&self) -> bool {
        self.net.pending_bytes() > self.config().write_high_watermark_bytes
    }

    /// Returns true if the backlog is at most the low watermark, or the connection is closed. Its
    /// sender then learns of the close.
    pub(super) fn has_room(&self) -> bool {
        self.net.pending_bytes() <= self.config().write_low_watermark_bytes || self.net.is_closed()
    }

    /// Notes that a session changes its class. While a session is urgent, the connection is urgent
    /// too. Otherwise no thread would read the requests of a session that all threads wait for.
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
        if class != self.net.class() {
            self.net.set_class(class);
        }
    }

    /// Notes that the peer sends no more. The caller wakes the sessions that wait for credit.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Returns true if requests must not wait for credit.
    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Begins the drain: idle sessions end, and requests do not wait for credit.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.finish();
    }

    /// Returns true if a session must end as soon as it is idle.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Wakes `shared` when the peer has read enough, or at once if it has already.
    pub(super) fn wake_when_room(&self, shared: &Arc<SessionShared>) {
        if !shared.waits_for_room.swap(true, Ordering::AcqRel) {
            lock(&self.waiting).push(Arc::downgrade(shared));
            self.net.notify_when_drained();
        }
    }

    /// Wakes all sessions that wait for room.
    pub(super) fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for shared in waiting.iter().filter_map(Weak::upgrade) {
            // Cleared before the session looks. If it finds no room, it registers again.
            shared.waits_for_room.store(false, Ordering::Release);
            shared.wake();
        }
    }
}

/// Handlers of one server that write rows and wait for their peers, by group.
///
/// If more than `max_waiting_writers` of a group wait, the longest waiting handler is cancelled. So
/// peers that do not read occupy a bounded number of threads.
#[derive(Debug, Default)]
pub(super) struct Writers(Mutex<HashMap<usize, VecDeque<Weak<SessionShared>>>>);

impl Writers {
    /// Adds a handler. Returns the handler to cancel if more than `limit` wait now.
    pub(super) fn enter(
        &self,
        group: usize,
        shared: &Arc<SessionShared>,
        limit: usize,
    ) -> Option<Arc<SessionShared>> {
        let mut groups = lock(&self.0);
        let waiting = groups.entry(group).or_default();
        waiting.push_back(Arc::downgrade(shared));
        if waiting.len() <= limit {
            return None;
        }
        waiting.pop_front().as_ref().and_then(Weak::upgrade)
    }

    pub(super) fn leave(&self, group: usize, shared: &Arc<SessionShared>) {
        let mut groups = lock(&self.0);
        let waiting = groups.entry(group).or_default();
        if let Some(at) = waiting.iter().position(|one| one.as_ptr() == Arc::as_ptr(shared)) {
            waiting.remove(at);
        }
    }
}
