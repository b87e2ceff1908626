//! The reserve: threads that stand by until no other one of the group is free, and then run urgent work
//! alone. Part of the [`Crew`](super::crew).

use std::sync::atomic::Ordering;

use super::crew::State;
use super::end::RUN;
use super::group::Group;
use super::threads::ThreadKind;
use crate::stats::Counter;
use crate::sync::shim::{lock, wait_while};

impl Group {
    /// When no ordinary thread is free and no reserve thread either, another one of these. All that
    /// there are wait in something urgent then: so there are never more than of that, and one.
    pub(super) fn call_reserve_if_needed(&self) {
        if self.free() > 0 || self.config().reserve_threads_per_group == 0 {
            return;
        }
        let counts = &self.crew.counts;
        {
            let mut state = lock(&self.crew.state);
            if self.free() > 0 || self.crew.free_reserve() > 0 {
                return;
            }
            if state.standby > state.calls {
                state.calls += 1;
                counts.active.fetch_add(1, Ordering::SeqCst);
                self.crew.called.notify_one();
                return;
            }
            counts.reserve.fetch_add(1, Ordering::SeqCst);
            counts.active.fetch_add(1, Ordering::SeqCst);
        }
        if self.start_thread(ThreadKind::Reserve, Counter::ThreadsStartedReserve).is_err() {
            counts.active.fetch_sub(1, Ordering::SeqCst);
            counts.reserve.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Counts a reserve thread that is started to stand by.
    pub(super) fn expect_standby(&self) {
        self.crew.counts.reserve.fetch_add(1, Ordering::SeqCst);
        // Until it stands by: it does so first of all.
        self.crew.counts.active.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a reserve thread has to go on. Not while somebody rests: it could take a wake-up that
    /// is meant for work that only the other one may do.
    pub(super) fn reserve_is_needed(&self) -> bool {
        self.free() == 0 && !self.crew.somebody_rests()
    }

    /// Stands by until called. `false`: to leave, because the group stops or there are too many.
    pub(super) fn stand_by(&self) -> bool {
        let counts = &self.crew.counts;
        let mut state = lock(&self.crew.state);
        if self.stopping() == RUN && self.reserve_is_needed() {
            // The last free one began to wait at this moment, and saw that this one was still there.
            return true;
        }
        counts.active.fetch_sub(1, Ordering::SeqCst);
        state.standby += 1;
        let mut quiet = false;
        let one_too_many = loop {
            if self.stopping() != RUN {
                break false;
            }
            if state.calls > 0 {
                // `active` was raised with the call.
                state.calls -= 1;
                state.standby -= 1;
                return true;
            }
            let surplus =
                counts.reserve.load(Ordering::SeqCst) > self.config().reserve_threads_per_group;
            if surplus && quiet {
                break true;
            }
            let limit = surplus.then(|| self.config().dynamic_threads_shrink_time);
            let uncalled = |state: &mut State| state.calls == 0 && self.stopping() == RUN;
            (state, quiet) = wait_while(&self.crew.called, state, limit, uncalled);
        };
        state.standby -= 1;
        counts.reserve.fetch_sub(1, Ordering::SeqCst);
        drop(state);
        if one_too_many {
            self.count(Counter::ThreadsLeft, 1);
        }
        false
    }

    /// Whether the reserve may run one more login: not too many of them at a time.
    pub(super) fn has_place_for_login(&self) -> bool {
        let most = self.config().reserve_threads_per_group.max(1);
        self.crew.counts.logins.load(Ordering::Relaxed) < most
    }

    /// A reserve thread runs a login. Two that saw the same place free may both do.
    pub(super) fn begin_login(&self) {
        self.crew.counts.logins.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_login(&self) {
        self.crew.counts.logins.fetch_sub(1, Ordering::Relaxed);
    }
}
