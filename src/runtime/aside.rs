//! [`Aside`]: what stands behind what a worker runs, where others can take it over.
//!
//! A worker that has found several things to run, all of them quick as far as known, runs them one
//! after the other, because to wake somebody would take longer. The rest of them it sets aside: if
//! what it runs takes long after all, they go to the queue.
//!
//! What is aside needs somebody on the lookout. So whoever sets something aside looks, behind a fence,
//! who rests; and whoever changes that looks, behind a fence, for what is aside:
//!
//! ```text
//!  who rests                           set aside                 came to rest, or gave up the lookout
//!  somebody is on the lookout          stays aside               stays aside
//!  somebody sleeps, nobody looks out   wakes a sleeper           wakes a sleeper
//!  somebody waits in epoll alone       left to the watchdog      left to the watchdog
//!  nobody                              left to the watchdog      (is there no more)
//! ```
//!
//! One of the two sees the other, so nothing stays aside behind a worker that is stuck while somebody
//! sleeps.

use std::fmt;

use crate::sync::shim::atomic::{AtomicBool, Ordering};
use crate::sync::shim::{Mutex, lock};

/// A place for one thing, of one worker. Who takes it out has it.
pub(crate) struct Aside<T> {
    /// Whether there is something, written under the lock. For its worker that is so until it is
    /// taken; for others it is a hint, which the fences of those who look make good.
    there: AtomicBool,
    item: Mutex<Option<T>>,
}

impl<T> Aside<T> {
    pub(crate) fn new() -> Self {
        Self { there: AtomicBool::new(false), item: Mutex::new(None) }
    }

    /// Sets something aside, and returns what was there. For its worker alone, who then looks who
    /// rests.
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
