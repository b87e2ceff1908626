//! The reserve: threads that stand by until no other thread of the group is free. Then they run
//! urgent work only. Part of the [`ThreadSet`].

use std::time::Duration;

use super::thread_set::{State, ThreadSet};
use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::Ordering;
use crate::sync::shim::{lock, wait_while};

/// Reason why a reserve thread no longer stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum StoodBy {
    Called,
    /// The group stops.
    Stopped,
    /// There are too many reserve threads.
    Surplus,
}

impl ThreadSet {
    /// If no ordinary thread and no reserve thread is free, calls a reserve thread that stands by. If
    /// none does, counts a new one, which the caller must start, and returns true.
    ///
    /// All existing reserve threads wait in urgent work then. So their number exceeds that of waiting
    /// urgent work by one at most.
    #[must_use]
    pub(super) fn call_reserve(&self) -> bool {
        if self.free() > 0 {
            return false;
        }
        let mut state = lock(&self.state);
        if self.free() > 0 || self.free_reserve() > 0 {
            return false;
        }
        if state.standby > state.calls {
            mutant!(state.calls += 1, CallUncounted => ());
            self.counts.active.fetch_add(1, Ordering::SeqCst);
            self.called.notify_one();
            return false;
        }
        self.expect_reserve();
        true
    }

    /// Counts a reserve thread that is about to start. It is active until it stands by.
    pub(super) fn expect_reserve(&self) {
        self.counts.reserve.fetch_add(1, Ordering::SeqCst);
        self.counts.active.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends the count of a reserve thread that could not be started.
    pub(super) fn forget_reserve(&self) {
        self.counts.active.fetch_sub(1, Ordering::SeqCst);
        self.counts.reserve.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns true if a reserve thread must continue. It must not while a worker rests: it could
    /// take a wake-up meant for work that only that worker may do.
    pub(super) fn reserve_is_needed(&self) -> bool {
        self.free() == 0 && !mutant!(self.any_rests(), ReserveIgnoresRest => false)
    }

    /// Stands by until called. `limits` returns the number of reserve threads that may stand by for
    /// ever, and the time after which one more leaves.
    pub(super) fn stand_by(
        &self,
        stops: impl Fn() -> bool,
        limits: impl Fn() -> (usize, Duration),
    ) -> StoodBy {
        let counts = &self.counts;
        let mut state = lock(&self.state);
        if !stops() && mutant!(self.reserve_is_needed(), StandByWithoutLook => false) {
            // The last free thread has just begun to wait, and saw this one as active.
            return StoodBy::Called;
        }
        counts.active.fetch_sub(1, Ordering::SeqCst);
        state.standby += 1;
        let mut quiet = false;
        let end = loop {
            if stops() {
                break StoodBy::Stopped;
            }
            if state.calls > 0 {
                // The caller has raised `active`.
                state.calls -= 1;
                state.standby -= 1;
                return StoodBy::Called;
            }
            let (most, shrink_time) = limits();
            let surplus = counts.reserve.load(Ordering::SeqCst) > most;
            if surplus && quiet {
                break StoodBy::Surplus;
            }
            let limit = surplus.then_some(shrink_time);
            let uncalled = |state: &mut State| state.calls == 0 && !stops();
            (state, quiet) = wait_while(&self.called, state, limit, uncalled);
        };
        state.standby -= 1;
        counts.reserve.fetch_sub(1, Ordering::SeqCst);
        end
    }

    /// Returns true if the reserve may run one more login. At most `most` run at a time.
    pub(super) fn has_place_for_login(&self, most: usize) -> bool {
        self.counts.logins.load(Ordering::Relaxed) < most.max(1)
    }

    /// Notes that a reserve thread runs a login. If two threads see the same place free, both may
    /// run one.
    pub(super) fn begin_login(&self) {
        self.counts.logins.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_login(&self) {
        self.counts.logins.fetch_sub(1, Ordering::Relaxed);
    }
}
