//! What a runtime has in use, against its limits, and the flag that says it is ending.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, Weak};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::Group;
use super::slots::Token;
use super::source::TIMER;
use crate::sync::shim::{lock, wait_while};

/// Shared by all groups of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    connections: AtomicUsize,
    silent: AtomicUsize,
    buffered_bytes: AtomicUsize,
    /// Connections above the high watermark, which are not read, and connections that end.
    paused: AtomicUsize,
    closing: AtomicUsize,
    /// Connections and closures of an urgent class, of all groups.
    urgent_units: CachePadded<AtomicUsize>,
    next_connection_id: AtomicU64,
    draining: AtomicBool,
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
    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
        self.announce();
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
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

    /// Waits until `done` holds or the deadline has passed; says which. Looked at again after each
    /// change that [`announce`](Self::announce) tells.
    pub(crate) fn wait_until(&self, deadline: Instant, mut done: impl FnMut() -> bool) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
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

fn change(count: &AtomicUsize, up: bool) {
    if up {
        count.fetch_add(1, Ordering::Relaxed);
    } else {
        count.fetch_sub(1, Ordering::Relaxed);
    }
}
