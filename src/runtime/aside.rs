//! [`Aside`]: what stands behind what a worker runs, where others can take it over.
//!
//! A worker that has found several things to run, all of them quick as far as known, runs them one
//! after the other, because to wake somebody would take longer. The rest of them it sets aside: if
//! what it runs takes long after all, they go to the queue.
//!
//! The watchdog looks for work that is aside behind a stuck worker, and queues it.

use std::fmt;

use crate::sync::shim::atomic::{AtomicBool, Ordering};
use crate::sync::shim::{Mutex, lock};

/// A place for one thing, of one worker. Who takes it out has it.
pub(crate) struct Aside<T> {
    /// Whether there is something, written under the lock. For its worker that is so until it is
    /// taken. For the watchdog it is a hint: it looks again at its next tick.
    there: AtomicBool,
    item: Mutex<Option<T>>,
}

impl<T> Aside<T> {
    pub(crate) fn new() -> Self {
        Self { there: AtomicBool::new(false), item: Mutex::new(None) }
    }

    /// Sets something aside, and returns what was there. For its worker alone, which then alerts the
    /// watchdog.
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

impl<T> Default for Aside<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Aside<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("there", &!self.is_empty()).finish_non_exhaustive()
    }
}
