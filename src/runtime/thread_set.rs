//! [`ThreadSet`]: the threads of a group, how many of them wait, and when threads start and leave.
//!
//! ```text
//!             base workers      for the life of the group
//!  ordinary ─ added workers     while handlers wait, or the queue is long
//!  reserve                      standing by; called when no ordinary thread is free; runs only urgent
//!                               work, until an ordinary thread is free again
//! ```
//!
//! The counts are atomics, so that an announced stall takes no lock while there are enough threads. If
//! a decision depends on a count, the count changes under the lock of [`State`].

use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::scale::Scale;
use super::worker_slot::{ThreadKind, WorkerSlot, WorkerSlots, WorkerState};
use crate::stats::Snapshot;
use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};
use crate::sys::clock::Instant;

/// Threads of a group; see the module.
#[derive(Debug)]
pub(super) struct ThreadSet {
    pub(super) slots: WorkerSlots,
    pub(super) counts: CachePadded<Counts>,
    pub(super) state: Mutex<State>,
    /// Notified when a reserve thread is called, or when the group stops.
    pub(super) called: Condvar,
}

/// Number of threads. A thread counts from the decision to start it until it has decided to leave.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Base and added workers.
    pub(super) workers: AtomicUsize,
    /// Ordinary threads that announced a wait.
    pub(super) stalled: AtomicUsize,
    /// Largest number of ordinary threads stalled at once, since the
    /// last [`take_peak_stalled`](ThreadSet::take_peak_stalled).
    peak_stalled: AtomicUsize,
    /// Ordinary threads that the watchdog found stuck and that have completed nothing since.
    pub(super) stuck: AtomicUsize,
    /// Reserve threads, whether they stand by or not.
    pub(super) reserve: AtomicUsize,
    /// Reserve threads that were called.
    pub(super) active: AtomicUsize,
    /// Called reserve threads that announced a wait, and those that are stuck.
    reserve_stalled: AtomicUsize,
    reserve_stuck: AtomicUsize,
    /// Called reserve threads that run a login.
    pub(super) logins: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) scale: Scale,
    /// Slots without a thread.
    vacant: Vec<usize>,
    /// Reserve threads that wait to be called.
    pub(super) standby: usize,
    /// Calls that no reserve thread has answered yet.
    pub(super) calls: usize,
}

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
    /// Makes the slots of the permanent threads. They are given out in ascending order.
    pub(super) fn new(permanent: usize, now: Instant) -> Self {
        let vacant = (0..permanent).rev().collect();
        let state = State { scale: Scale::new(now), vacant, standby: 0, calls: 0 };
        Self {
            slots: WorkerSlots::new(permanent),
            counts: CachePadded::default(),
            state: Mutex::new(state),
            called: Condvar::new(),
        }
    }

    fn stalled(&self, kind: ThreadKind) -> &AtomicUsize {
        match kind {
            ThreadKind::Reserve => &self.counts.reserve_stalled,
            ThreadKind::Base | ThreadKind::Worker => &self.counts.stalled,
        }
    }

    fn stuck(&self, kind: ThreadKind) -> &AtomicUsize {
        match kind {
            ThreadKind::Reserve => &self.counts.reserve_stuck,
            ThreadKind::Base | ThreadKind::Worker => &self.counts.stuck,
        }
    }

    /// Gives a slot to a thread that is about to start.
    pub(super) fn occupy(&self, kind: ThreadKind) -> usize {
        let vacant = lock(&self.state).vacant.pop();
        let slot = vacant.unwrap_or_else(|| self.slots.add());
        self.slots[slot].occupy(kind);
        slot
    }

    /// Frees the slot of a thread that has left, or that could not be started.
    pub(super) fn vacate(&self, slot: usize) {
        self.slots[slot].vacate();
        lock(&self.state).vacant.push(slot);
    }

    /// Returns true if an ordinary thread rests. It is free then, even if its wait still counts.
    pub(super) fn any_rests(&self) -> bool {
        let ordinary = |kind| kind != ThreadKind::Reserve;
        self.slots.iter().any(|slot| slot.state.rests() && slot.kind().is_some_and(ordinary))
    }

    /// Number of ordinary threads that run or could run any task.
    pub(super) fn free(&self) -> usize {
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let counts = &self.counts;
        load(&counts.workers).saturating_sub(load(&counts.stalled) + load(&counts.stuck))
    }

    pub(super) fn free_reserve(&self) -> usize {
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        load(&self.counts.active)
            .saturating_sub(load(&self.counts.reserve_stalled) + load(&self.counts.reserve_stuck))
    }

    /// Number of base, added and called threads, whether they rest or not.
    pub(super) fn serving(&self) -> usize {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        load(&self.counts.workers) + load(&self.counts.active)
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        for slot in self.slots.iter() {
            // Counted by slot. `counts` already includes threads that may still be refused.
            let threads = match slot.kind() {
                None => continue,
                Some(ThreadKind::Base) => &mut snapshot.base_threads,
                Some(ThreadKind::Worker) => &mut snapshot.dynamic_threads,
                Some(ThreadKind::Reserve) => &mut snapshot.reserve_threads,
            };
            *threads += 1;
            snapshot.running_threads += u64::from(slot.state.runs());
        }
        snapshot.workers += load(&counts.workers) as u64;
        snapshot.standby_threads += lock(&self.state).standby as u64;
        snapshot.stalled_threads += (load(&counts.stalled) + load(&counts.reserve_stalled)) as u64;
    }

    /// Wakes all reserve threads that stand by. They check if the group stops.
    pub(super) fn stop(&self) {
        drop(lock(&self.state));
        self.called.notify_all();
    }

    // ---- waits ----

    /// Counts a thread of this kind as stalled, until [`end_stall`](Self::end_stall). Returns true if it
    /// had a permit, which the caller must give back.
    pub(super) fn begin_stall(&self, kind: ThreadKind, slot: &WorkerSlot) -> bool {
        // First of all: from now on the watchdog does not count the worker as stuck.
        let before = slot.state.stall();
        let stalled = self.stalled(kind).fetch_add(1, Ordering::SeqCst) + 1;
        let peak = &self.counts.peak_stalled;
        if kind != ThreadKind::Reserve && stalled > peak.load(Ordering::Relaxed) {
            peak.fetch_max(stalled, Ordering::Relaxed);
        }
        // SeqCst: pairs with the fence in `may_leave`. Either the caller, which now looks for a free
        // thread, sees that the other worker leaves, or that worker sees this wait.
        mutant!(fence(Ordering::SeqCst), StallWithoutFence => ());
        self.settle(before)
    }

    pub(super) fn end_stall(&self, kind: ThreadKind) {
        self.stalled(kind).fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns the largest number of ordinary threads that were stalled at once since the last call.
    pub(super) fn take_peak_stalled(&self) -> usize {
        let counts = &self.counts;
        counts.peak_stalled.swap(counts.stalled.load(Ordering::SeqCst), Ordering::Relaxed)
    }

    /// Notes that a worker rests. Returns true if it has a permit.
    pub(super) fn rest(&self, slot: &WorkerSlot) -> bool {
        self.settle(slot.state.rest())
    }

    /// Notes that a worker goes on after a wait or a run.
    pub(super) fn go_on(&self, slot: &WorkerSlot) {
        if let Some(before) = slot.state.go_on() {
            self.settle(before);
        }
    }

    /// Notes that a worker is about to leave the group. Returns true if it had a permit, which the
    /// caller must give back. No other thread may count on a worker that leaves, so it does not rest.
    pub(super) fn leave(&self, slot: &WorkerSlot) -> bool {
        self.settle(slot.state.stall())
    }

    /// Counts a running worker as stuck, until it completes its run, waits or rests.
    ///
    /// It may have completed the run in which the watchdog saw it. Then one later run counts as stuck.
    /// Until that run ends, the reserve may be called, or an added worker may stay, without need.
    pub(super) fn note_stuck(&self, slot: &WorkerSlot, kind: ThreadKind) {
        if slot.state.get() != WorkerState::Running {
            return;
        }
        // Before the state changes, because the worker may lower the count at once.
        self.stuck(kind).fetch_add(1, Ordering::SeqCst);
        if !slot.state.set_stuck(kind) {
            self.stuck(kind).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Ends the count of a worker as stuck, if that was its state before. Returns true if it had a
    /// permit.
    fn settle(&self, before: WorkerState) -> bool {
        if let WorkerState::Stuck(kind) = before {
            self.stuck(kind).fetch_sub(1, Ordering::SeqCst);
        }
        before == WorkerState::Polling
    }

    // ---- coming and leaving ----

    /// Counts a base worker that is about to start.
    pub(super) fn expect_base(&self) {
        self.counts.workers.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts an added worker out, unless no other worker is free or there is a task. Returns true if
    /// the worker must leave.
    pub(super) fn may_leave(&self, has_task: impl FnOnce() -> bool) -> bool {
        self.counts.workers.fetch_sub(1, Ordering::SeqCst);
        // SeqCst: pairs with the fences in `Park::wake` and `begin_stall`. A worker may have pushed a
        // task and then begun to wait, because this thread was still there. Then the look at the queue
        // sees the task.
        fence(Ordering::SeqCst);
        // A waiting event is not in the queue. So another worker must be free to take it: the last
        // other worker may have begun to wait just now, and have counted this one as free.
        let is_last = mutant!(self.free() == 0, LeaveUnseen => false);
        let stays = mutant!(is_last || has_task(), LeaveWithoutLook => false);
        if stays {
            self.counts.workers.fetch_add(1, Ordering::SeqCst);
        }
        !stays
    }

    // ---- the reserve ----

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn free(threads: &ThreadSet, kind: ThreadKind) -> usize {
        match kind {
            ThreadKind::Reserve => threads.free_reserve(),
            ThreadKind::Base | ThreadKind::Worker => threads.free(),
        }
    }

    /// If the watchdog and the wait both counted, one thread too few would be free during the wait.
    #[test]
    fn a_worker_that_is_stuck_and_waits_counts_once() {
        for kind in [ThreadKind::Base, ThreadKind::Worker, ThreadKind::Reserve] {
            let threads = ThreadSet::new(2, Instant::now());
            threads.counts.workers.store(2, Ordering::Relaxed);
            threads.counts.active.store(2, Ordering::Relaxed);
            let slot = &threads.slots[threads.occupy(kind)];
            let stuck = || threads.note_stuck(slot, kind);
            let stall = || assert!(!threads.begin_stall(kind, slot), "it has no permit");
            let steps: [&[&dyn Fn()]; 3] = [&[&stuck, &stall], &[&stall, &stuck], &[&stuck]];
            for steps in steps {
                slot.state.run(false);
                for step in steps {
                    step();
                    assert_eq!(free(&threads, kind), 1, "{kind:?}");
                }
                if slot.state.get() == WorkerState::Stalled {
                    threads.end_stall(kind);
                }
                threads.go_on(slot);
                assert_eq!(free(&threads, kind), 2, "{kind:?}");
            }
        }
    }
}
