//! [`Holds`]: counts the requests in progress beyond `received`. The receiving side can wait for
//! their end.
#![forbid(unsafe_code)]

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Count of requests in progress. Once the receiving side has called `are_none`, the request that
/// brings the count to zero must notify it.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Raised when a request begins, lowered when it ends.
    count: AtomicUsize,
    /// Set by the receiving side when it waits for holds only. It stays set.
    finishing: AtomicBool,
}

impl Holds {
    /// Notes that a request is in progress.
    pub(super) fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the end of a request. Returns true if it was the last one and the receiving side waits
    /// for that.
    #[must_use]
    pub(super) fn end(&self) -> bool {
        let last = self.count.fetch_sub(1, Ordering::AcqRel) == 1;
        // SeqCst: pairs with the fence in `are_none`. Either this thread sees that the receiving
        // side waits, or the receiving side sees a count of zero.
        mutant!(fence(Ordering::SeqCst), HoldEndsWithoutFence => ());
        last && self.finishing.load(Ordering::Relaxed)
    }

    /// Returns true if no request is in progress. Asks for no notification.
    pub(super) fn is_zero(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns true if no request is in progress. From now on the last request to end notifies the
    /// receiving side.
    pub(super) fn are_none(&self) -> bool {
        self.finishing.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `end`.
        mutant!(fence(Ordering::SeqCst), HoldsAskedWithoutFence => ());
        // Acquire: pairs with the AcqRel in `end`, so the writes of the requests are visible.
        self.count.load(mutant!(Ordering::Acquire, HoldsAskedRelaxed => Ordering::Relaxed)) == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_only_looks_is_not_told_of_the_end() {
        let holds = Holds::default();
        assert!(holds.is_zero());
        holds.begin();
        assert!(!holds.is_zero());
        assert!(!holds.end(), "nobody waits for it");
        holds.begin();
        assert!(!holds.are_none());
        assert!(holds.end(), "somebody does");
    }
}

#[cfg(all(test, loom))]
mod model {
    //! Two requests end on two threads while the receiving side asks. Left out: requests that begin
    //! meanwhile. Only the receiving side or the holder of another request begins one.

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::Holds;
    use crate::sync::mutant::{explore, mutants};

    fn the_end_of_the_last_is_seen() {
        explore(|| {
            let holds = Arc::new((Holds::default(), [UnsafeCell::new(0), UnsafeCell::new(0)]));
            holds.0.begin();
            holds.0.begin();
            let requests = [0, 1].map(|n| {
                let holds = Arc::clone(&holds);
                thread::spawn(move || {
                    holds.1[n].with_mut(|_| ());
                    holds.0.end()
                })
            });
            let none = holds.0.are_none();
            if none {
                // The writes of the requests are visible.
                holds.1.iter().for_each(|cell| cell.with_mut(|_| ()));
            }
            let told = requests.map(|request| request.join().expect("no panic"));
            let told = told.into_iter().filter(|told| *told).count();
            assert!(none || told == 1, "nobody says that the last one has ended");
            assert!(told <= 1, "said once");
        });
    }

    #[test]
    fn holds() {
        the_end_of_the_last_is_seen();
    }

    mutants! {
        hold_that_ends_without_fence: HoldEndsWithoutFence, the_end_of_the_last_is_seen(), "nobody says";
        holds_asked_without_fence: HoldsAskedWithoutFence, the_end_of_the_last_is_seen(), "nobody says";
        holds_asked_without_acquire: HoldsAskedRelaxed, the_end_of_the_last_is_seen(), "Causality violation";
    }
}
