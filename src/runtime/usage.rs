//! What a runtime has in use, against its limits, and the flag that says it is ending.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, Weak};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::Group;
use super::slots::Token;
use super::source::TIMER;
use crate::sync::shim::{lock, wait_while};
use crate::sys::clock;

/// Who began a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The peer: a listener of ours accepted it.
    Accepted,
    /// We did.
    Outgoing,
}

/// Shared by all groups of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    accepted: AtomicUsize,
    outgoing: AtomicUsize,
    silent: AtomicUsize,
    buffered_bytes: AtomicUsize,
    /// Connections above the high watermark, which are not read, and connections that end.
    paused: AtomicUsize,
    closing: AtomicUsize,
    /// Connections that have not logged in, and sessions.
    unauthenticated: AtomicUsize,
    sessions: AtomicUsize,
    /// Requests that wait for their turn, and their bytes.
    queued_requests: AtomicUsize,
    queued_bytes: AtomicUsize,
    /// Requests that are answered later, and handlers that wait for their peer.
    deferred: AtomicUsize,
    waiting_writers: AtomicUsize,
    /// Connections and closures of an urgent class, of all groups.
    urgent_units: CachePadded<AtomicUsize>,
    next_connection_id: AtomicU64,
    draining: AtomicBool,
    /// No accepted connection is left: the outgoing ones drain, too.
    draining_outgoing: AtomicBool,
    /// Listeners that are open.
    listeners: AtomicUsize,
    /// Listeners that ran out of descriptors, to be told when one is closed.
    starved: Mutex<Vec<(Weak<Group>, Token)>>,
    /// `starved` is not empty.
    any_starved: AtomicBool,
    /// Changes are announced here while the runtime drains.
    changed: Condvar,
    changes: Mutex<()>,
}

impl Usage {
    pub(crate) fn connection_opened(&self, origin: Origin) {
        self.connections_count(origin).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self, origin: Origin) {
        self.connections_count(origin).fetch_sub(1, Ordering::AcqRel);
        self.announce();
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections_of(Origin::Accepted) + self.connections_of(Origin::Outgoing)
    }

    pub(crate) fn connections_of(&self, origin: Origin) -> usize {
        self.connections_count(origin).load(Ordering::Acquire)
    }

    const fn connections_count(&self, origin: Origin) -> &AtomicUsize {
        match origin {
            Origin::Accepted => &self.accepted,
            Origin::Outgoing => &self.outgoing,
        }
    }

    pub(crate) fn silent_opened(&self) {
        self.silent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn silent_spoke(&self) {
        self.silent.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn silent(&self) -> usize {
        self.silent.load(Ordering::Relaxed)
    }

    /// A connection is not read any more for a while, or is again.
    pub(crate) fn pause_changed(&self, paused: bool) {
        change(&self.paused, paused);
    }

    pub(crate) fn paused(&self) -> usize {
        self.paused.load(Ordering::Relaxed)
    }

    /// A connection begins to end, or has ended.
    pub(crate) fn closing_changed(&self, closing: bool) {
        change(&self.closing, closing);
    }

    pub(crate) fn closing(&self) -> usize {
        self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn urgent_unit_began(&self) {
        self.urgent_units.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn urgent_unit_ended(&self) {
        self.urgent_units.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn urgent_units(&self) -> usize {
        // Of two threads that change a class to and fro, the second may be counted first.
        usize::try_from(self.urgent_units.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    pub(crate) fn listener_opened(&self) {
        self.listeners.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn listener_closed(&self) {
        self.listeners.fetch_sub(1, Ordering::AcqRel);
        self.announce();
    }

    pub(crate) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Acquire)
    }

    pub(crate) fn next_connection_id(&self) -> u64 {
        self.next_connection_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a buffer's size changed, and returns the new sum.
    pub(crate) fn buffer_changed(&self, before: usize, after: usize) -> usize {
        let change = after.wrapping_sub(before);
        self.buffered_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn start_draining(&self) -> bool {
        let first = !self.draining.swap(true, Ordering::AcqRel);
        // SeqCst: pairs with the fence in `announce`. Either the change is announced, or it is seen
        // by the look that follows this.
        fence(Ordering::SeqCst);
        first
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// From here on outgoing connections drain.
    pub(crate) fn start_draining_outgoing(&self) {
        self.draining_outgoing.store(true, Ordering::Release);
        // SeqCst: pairs with the fence in `Group::drains`.
        fence(Ordering::SeqCst);
    }

    /// Whether connections of this origin drain.
    pub(crate) fn drains(&self, origin: Origin) -> bool {
        match origin {
            Origin::Accepted => self.is_draining(),
            Origin::Outgoing => self.draining_outgoing.load(Ordering::Acquire),
        }
    }

    /// Waits until `done` holds or the deadline has passed; says which. Looked at again after each
    /// change that [`announce`](Self::announce) tells.
    pub(crate) fn wait_until(&self, deadline: Instant, mut done: impl FnMut() -> bool) -> bool {
        let left = deadline.saturating_duration_since(clock::now());
        !wait_while(&self.changed, lock(&self.changes), Some(left), |()| !done()).1
    }

    /// Something changed that a drain may wait for.
    pub(crate) fn announce(&self) {
        // SeqCst: pairs with the fence in `start_draining`.
        fence(Ordering::SeqCst);
        if self.is_draining() {
            drop(lock(&self.changes));
            self.changed.notify_all();
        }
    }

    /// The listener wants to know when a descriptor is closed.
    pub(crate) fn starve(&self, group: Weak<Group>, listener: Token) {
        let mut starved = lock(&self.starved);
        if !starved.iter().any(|(_, token)| *token == listener) {
            starved.push((group, listener));
        }
        self.any_starved.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `descriptor_closed`. The caller tries to accept once more
        // after this: either that succeeds, or the close sees the flag.
        fence(Ordering::SeqCst);
    }

    /// A descriptor was closed: whoever starves may try again.
    pub(crate) fn descriptor_closed(&self) {
        // SeqCst: pairs with the fence in `starve`.
        fence(Ordering::SeqCst);
        if !self.any_starved.load(Ordering::Relaxed) {
            return;
        }
        let starved = {
            let mut starved = lock(&self.starved);
            self.any_starved.store(false, Ordering::Relaxed);
            std::mem::take(&mut *starved)
        };
        for (group, listener) in starved {
            if let Some(group) = group.upgrade() {
                group.notify_source(listener, TIMER);
            }
        }
    }
}

/// What sessions use.
impl Usage {
    /// A connection is to log in, or has, or has ended before it did.
    pub(crate) fn unauthenticated_changed(&self, waits: bool) {
        change(&self.unauthenticated, waits);
    }

    pub(crate) fn unauthenticated(&self) -> usize {
        self.unauthenticated.load(Ordering::Relaxed)
    }

    /// Counts one session more, unless there are `most` already; says whether it did.
    pub(crate) fn session_opens(&self, most: usize) -> bool {
        let opened = self.sessions.fetch_add(1, Ordering::Relaxed) < most;
        if !opened {
            self.session_closed();
        }
        opened
    }

    pub(crate) fn session_closed(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Counts a waiting request, unless all of them would then have more than `most` bytes; says
    /// whether it did.
    pub(crate) fn request_queues(&self, bytes: usize, most: usize) -> bool {
        let sum = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        self.queued_requests.fetch_add(1, Ordering::Relaxed);
        let queued = sum <= most;
        if !queued {
            self.request_taken(bytes);
        }
        queued
    }

    /// A request does not wait any more: it runs, or it is dropped.
    pub(crate) fn request_taken(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.queued_requests.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn queued_requests(&self) -> usize {
        self.queued_requests.load(Ordering::Relaxed)
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// A request is deferred, or answered.
    pub(crate) fn deferred_changed(&self, deferred: bool) {
        change(&self.deferred, deferred);
    }

    pub(crate) fn deferred(&self) -> usize {
        self.deferred.load(Ordering::Relaxed)
    }

    /// A handler begins to wait for its peer, or goes on.
    pub(crate) fn waiting_writers_changed(&self, waits: bool) {
        change(&self.waiting_writers, waits);
    }

    pub(crate) fn waiting_writers(&self) -> usize {
        self.waiting_writers.load(Ordering::Relaxed)
    }
}

fn change(count: &AtomicUsize, up: bool) {
    if up {
        count.fetch_add(1, Ordering::Relaxed);
    } else {
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_limit_is_not_counted() {
        let usage = Usage::default();
        assert!(usage.session_opens(2) && usage.session_opens(2));
        assert!(!usage.session_opens(2));
        assert_eq!(usage.sessions(), 2);
        usage.session_closed();
        assert!(usage.session_opens(2));

        assert!(usage.request_queues(60, 100) && usage.request_queues(40, 100));
        assert!(!usage.request_queues(1, 100));
        assert_eq!((usage.queued_requests(), usage.queued_bytes()), (2, 100));
        assert!(usage.request_queues(0, 100));
        usage.request_taken(60);
        assert!(!usage.request_queues(61, 100));
        assert_eq!((usage.queued_requests(), usage.queued_bytes()), (2, 40));
    }
}
