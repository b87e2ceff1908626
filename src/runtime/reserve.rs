//! The reserve: threads that stand by until no other thread of the group is free. Then they run
//! urgent work only. Part of the [`ThreadSet`](super::thread_set).

use std::sync::atomic::Ordering;

use super::end::RUN;
use super::group::Group;
use super::thread_set::State;
use super::threads::ThreadKind;
use crate::stats::Counter;
use crate::sync::shim::{lock, wait_while};

impl Group {
    /// If no ordinary thread and no reserve thread is free, calls a reserve thread that stands by,
    /// or starts one. All existing reserve threads wait in urgent work then. So their number
    /// exceeds that of waiting urgent work by one at most.
    pub(super) fn call_reserve_if_needed(&self) {
        if self.free() > 0 || self.config().reserve_threads_per_group == 0 {
            return;
        }
        let counts = &self.thread_set.counts;
        {
            let mut state = lock(&self.thread_set.state);
            if self.free() > 0 || self.thread_set.free_reserve() > 0 {
                return;
            }
            if state.standby > state.calls {
                state.calls += 1;
                counts.active.fetch_add(1, Ordering::SeqCst);
                self.thread_set.called.notify_one();
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
        self.thread_set.counts.reserve.fetch_add(1, Ordering::SeqCst);
        // Counted as active until it stands by, which it does first.
        self.thread_set.counts.active.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns true if a reserve thread must continue. It must not while a worker rests: it could
    /// take a wake-up meant for work that only that worker may do.
    pub(super) fn reserve_is_needed(&self) -> bool {
        self.free() == 0 && !self.thread_set.somebody_rests()
    }

    /// Stands by until called. Returns false if the thread must leave, because the group stops or
    /// there are too many reserve threads.
    pub(super) fn stand_by(&self) -> bool {
        let counts = &self.thread_set.counts;
        let mut state = lock(&self.thread_set.state);
        if self.stopping() == RUN && self.reserve_is_needed() {
            // The last free thread has just begun to wait, and saw this one as active.
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
                // The caller has raised `active`.
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
            (state, quiet) = wait_while(&self.thread_set.called, state, limit, uncalled);
        };
        state.standby -= 1;
        counts.reserve.fetch_sub(1, Ordering::SeqCst);
        drop(state);
        if one_too_many {
            self.count(Counter::ThreadsLeft, 1);
        }
        false
    }

    /// Returns true if the reserve may run one more login. The number of logins at a time is
    /// limited.
    pub(super) fn has_place_for_login(&self) -> bool {
        let most = self.config().reserve_threads_per_group.max(1);
        self.thread_set.counts.logins.load(Ordering::Relaxed) < most
    }

    /// Notes that a reserve thread runs a login. If two threads see the same place free, both may
    /// run one.
    pub(super) fn begin_login(&self) {
        self.thread_set.counts.logins.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_login(&self) {
        self.thread_set.counts.logins.fetch_sub(1, Ordering::Relaxed);
    }
}
