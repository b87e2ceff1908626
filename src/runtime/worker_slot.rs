//! [`WorkerSlot`]: what a worker shows to other threads. They find it by number, without a lock.

use std::ops::Index;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::batch::{Event, MOST_EVENTS};
use super::class::Class;
use super::stealable::Stealable;
use super::thread_kind::ThreadKind;
use super::work::Work;
use crate::stats::Counters;
use crate::sync::mutant::mutant;
use crate::sync::shim::AppendVec;
use crate::sync::shim::atomic::{AtomicU8, AtomicU64, Ordering};

/// State that a worker shows to other threads. When its thread has left, another one uses the slot
/// again.
#[derive(Debug)]
pub(super) struct WorkerSlot {
    pub(super) counters: Counters,
    /// Changes when the worker completes a run and when it begins after a rest. Written only by the
    /// worker.
    pub(super) beat: AtomicU64,
    /// Number of runs that the worker has completed. Written only by the worker.
    pub(super) completed: AtomicU64,
    /// State of the worker, and its poll permit.
    pub(super) state: WorkerState,
    /// Events that the worker has taken and not begun.
    pub(super) batch: [Event; MOST_EVENTS],
    /// Work that the worker does after its current run. If the worker gets stuck or announces a wait,
    /// the work is queued for other workers.
    pub(super) stealable: Stealable<Arc<dyn Work>>,
    /// [`Class`] of the current run, for the watchdog's report.
    pub(super) class: AtomicU8,
    /// [`ThreadKind`] of the slot's thread, or [`NONE`].
    kind: AtomicU8,
    /// Kind under which the worker is counted as stuck, or [`NONE`]. Set by the watchdog. The thread
    /// that resets it also lowers the count.
    stuck: AtomicU8,
}

const NONE: u8 = u8::MAX;

const RESTING: u8 = 0;
const RUNNING: u8 = 1;
const RUNNING_WITH_PERMIT: u8 = 2;
const STALLED: u8 = 3;

impl WorkerSlot {
    fn new() -> Self {
        Self {
            counters: Counters::new(),
            beat: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            state: WorkerState::default(),
            batch: Default::default(),
            stealable: Stealable::new(),
            class: AtomicU8::new(Class::Ordinary as u8),
            kind: AtomicU8::new(NONE),
            stuck: AtomicU8::new(NONE),
        }
    }

    /// Kind of the slot's thread, or `None` if the slot is vacant.
    pub(super) fn kind(&self) -> Option<ThreadKind> {
        ThreadKind::from_u8(self.kind.load(Ordering::Acquire))
    }

    /// Returns true if the worker runs with a permit, with stealable work, or with events that it has
    /// not begun: with something that others could do if it got stuck.
    pub(super) fn holds(&self) -> bool {
        let events = || self.batch.iter().any(|event| !event.is_empty());
        self.state.runs() && (self.state.has_permit() || !self.stealable.is_empty() || events())
    }

    pub(super) fn occupy(&self, kind: ThreadKind) {
        // The worker rests until it begins.
        let _ = self.state.rest();
        self.kind.store(kind as u8, Ordering::Release);
    }

    pub(super) fn vacate(&self) {
        self.kind.store(NONE, Ordering::Release);
    }

    /// Returns true if the worker is counted as stuck.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed) != NONE
    }

    /// Notes that the worker has been counted as stuck, under this kind.
    pub(super) fn set_stuck(&self, kind: ThreadKind) {
        // Release: pairs with the Acquire of `take_stuck`, whose caller then lowers the count.
        self.stuck.store(kind as u8, Ordering::Release);
    }

    /// Returns the kind under which the caller must lower the count. Only one caller gets it.
    pub(super) fn take_stuck(&self) -> Option<ThreadKind> {
        ThreadKind::from_u8(self.stuck.swap(NONE, Ordering::Acquire))
    }
}

/// State of a worker. The permit of a running worker may be taken away. A resting worker keeps its
/// permit. A worker whose handler announced a wait has none.
#[derive(Debug, Default)]
pub(crate) struct WorkerState(AtomicU8);

impl WorkerState {
    pub(crate) fn run(&self, with_permit: bool) {
        let state = if with_permit { RUNNING_WITH_PERMIT } else { RUNNING };
        self.0.store(state, Ordering::Release);
    }

    /// Notes a rest. Returns true if the worker still has a permit.
    pub(crate) fn rest(&self) -> bool {
        let resting = mutant!(RESTING, RestingShowsPermit => RUNNING_WITH_PERMIT);
        self.0.swap(resting, Ordering::AcqRel) == RUNNING_WITH_PERMIT
    }

    /// Notes that the handler waits. Returns true if the worker still has a permit, which the caller
    /// must give back.
    pub(crate) fn stall(&self) -> bool {
        let stalled = mutant!(STALLED, StallShowsPermit => RUNNING_WITH_PERMIT);
        self.0.swap(stalled, Ordering::AcqRel) == RUNNING_WITH_PERMIT
    }

    /// Notes that the wait is over, or that the handler that began it has ended.
    pub(crate) fn go_on(&self) {
        // Only the worker itself changes `STALLED`. In any other state it may have a permit, which must
        // stay.
        if self.0.load(Ordering::Relaxed) == STALLED {
            self.run(false);
        }
    }

    pub(crate) fn runs(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), RUNNING | RUNNING_WITH_PERMIT)
    }

    /// Returns true if the worker runs with a permit, which may be taken away.
    pub(crate) fn has_permit(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RUNNING_WITH_PERMIT
    }

    pub(crate) fn rests(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RESTING
    }

    /// Takes the permit of a running worker. Any thread may call it, the worker's own too.
    pub(crate) fn take_permit(&self) -> bool {
        let (from, to) = (RUNNING_WITH_PERMIT, RUNNING);
        // In the usual case this load is enough, and no locked instruction is needed.
        self.0.load(Ordering::Relaxed) == from
            && self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Slots of a group. Those of permanent threads lie in an array, because they are read several times
/// for each request. Those of other threads are appended behind it. No slot is removed while the group
/// lives.
#[derive(Debug)]
pub(super) struct WorkerSlots {
    permanent: Box<[CachePadded<WorkerSlot>]>,
    added: AppendVec<CachePadded<WorkerSlot>>,
}

impl WorkerSlots {
    pub(super) fn new(permanent: usize) -> Self {
        let permanent = (0..permanent).map(|_| CachePadded::new(WorkerSlot::new())).collect();
        Self { permanent, added: AppendVec::new() }
    }

    /// Adds a slot. Returns its number.
    pub(super) fn add(&self) -> usize {
        self.permanent.len() + self.added.push(CachePadded::new(WorkerSlot::new()))
    }

    pub(super) fn count(&self) -> usize {
        self.permanent.len() + self.added.count()
    }

    /// Slots in the order of their numbers. A slot that is added meanwhile may be missing.
    pub(super) fn iter(&self) -> impl Iterator<Item = &WorkerSlot> {
        let added = self.added.iter().map(|(_, slot)| slot);
        self.permanent.iter().chain(added).map(|slot| &**slot)
    }
}

impl Index<usize> for WorkerSlots {
    type Output = WorkerSlot;

    fn index(&self, number: usize) -> &WorkerSlot {
        match self.permanent.get(number) {
            Some(slot) => slot,
            None => &self.added[number - self.permanent.len()],
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_ends_late_takes_no_permit_away() {
        let state = WorkerState::default();
        state.run(true);
        assert!(state.stall(), "the permit is to be given back");
        state.go_on();
        assert!(state.runs() && !state.rest(), "it has none any more");
        state.run(true);
        state.go_on();
        assert!(state.rest(), "it has kept it");
        state.go_on();
        assert!(state.rests());
    }
}
