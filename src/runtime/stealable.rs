//! [`Stealable`]: work behind the current run of a worker, which other threads can take over.
//!
//! A worker may have several things to run, all of them expected to be quick. It runs them one after
//! the other, because waking another worker would take longer. Meanwhile the others are stealable: if
//! the current run takes long after all, they go to the queue.
//!
//! The watchdog looks for stealable work behind a stuck worker, and queues it.

use std::fmt;

use crate::sync::shim::atomic::{AtomicBool, Ordering};
use crate::sync::shim::{Mutex, lock};

/// Place of one worker for one item. The thread that takes the item out owns it.
pub(crate) struct Stealable<T> {
    /// Set while there is an item; written under the lock. For the worker itself it is exact until the
    /// item is taken. For the watchdog it is a hint: the watchdog looks again at its next tick.
    there: AtomicBool,
    item: Mutex<Option<T>>,
}

impl<T> Stealable<T> {
    pub(crate) fn new() -> Self {
        Self { there: AtomicBool::new(false), item: Mutex::new(None) }
    }

    /// Makes an item stealable. Returns the item that was there. Called only by the worker, which then
    /// alerts the watchdog.
    pub(crate) fn put(&self, item: T) -> Option<T> {
        let mut place = lock(&self.item);
        self.there.store(true, Ordering::Relaxed);
        place.replace(item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.there.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut place = lock(&self.item);
        self.there.store(false, Ordering::Relaxed);
        place.take()
    }
}

impl<T> Default for Stealable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Stealable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stealable").field("there", &!self.is_empty()).finish_non_exhaustive()
    }
}
