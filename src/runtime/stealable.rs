//! Events and work behind the current run of a worker, which other threads can take over: [`Event`] and
//! [`Stealable`].
//!
//! A worker may have several things to run, one after the other, because waking another worker would
//! take longer. The current run is expected to be quick. Meanwhile the others are stealable: if it takes
//! long after all, they go to the queue.
//!
//! The watchdog looks for stealable work behind a stuck worker, and queues it.

use std::fmt;

use super::slots::Token;
use crate::sync::shim::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::shim::{Mutex, lock};
use crate::sys::epoll::Readiness;

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

impl<T> fmt::Debug for Stealable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stealable").field("there", &!self.is_empty()).finish_non_exhaustive()
    }
}

/// Event of a batch, with token and readiness in one word. The thread that swaps the word out owns the
/// event and its reference to the slot.
///
/// It is one word because the owner may put its next event here while another thread takes the last
/// one.
#[derive(Debug, Default)]
pub(crate) struct Event(AtomicU64);

impl Event {
    pub(super) fn put(&self, token: Token, readiness: Readiness) {
        // Release: pairs with the Acquire of `take`.
        self.0.store(token.encode_with(readiness.condensed()), Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    pub(super) fn take(&self) -> Option<(Token, Readiness)> {
        let word = self.0.swap(0, Ordering::AcqRel);
        let (token, condensed) = Token::decode_with(word);
        (word != 0).then(|| (token, Readiness::from_condensed(condensed)))
    }
}

/// Upper end of the range of `epoll_events_per_thread`.
pub(crate) const MOST_EVENTS: usize = if cfg!(loom) { 1 } else { 16 };
