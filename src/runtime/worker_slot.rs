//! [`WorkerSlot`]: what a worker shows to other threads. They find it by number, without a lock.

use std::ops::Index;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::class::Class;
use super::stealable::{Event, MOST_EVENTS, Stealable};
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
    /// Number of runs that workers in this slot have completed. Written only by the worker.
    pub(super) progress: AtomicU64,
    /// State of the worker, and its poll permit.
    pub(super) state: AtomicState,
    /// Events that the worker has taken and not begun.
    pub(super) batch: [Event; MOST_EVENTS],
    /// Work that the worker does after its current run. If the worker gets stuck or announces a wait,
    /// the work is queued for other workers.
    pub(super) stealable: Stealable<Arc<dyn Work>>,
    /// [`Class`] of the current run, for the watchdog's report.
    pub(super) class: AtomicU8,
    /// [`ThreadKind`] of the slot's thread, or [`NONE`].
    kind: AtomicU8,
}

const NONE: u8 = u8::MAX;

impl WorkerSlot {
    fn shared() -> SharedSlot {
        Arc::new(CachePadded::new(Self {
            counters: Counters::new(),
            progress: AtomicU64::new(0),
            state: AtomicState::new(),
            batch: Default::default(),
            stealable: Stealable::new(),
            class: AtomicU8::new(Class::Ordinary as u8),
            kind: AtomicU8::new(NONE),
        }))
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
}

/// Purpose of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadKind {
    /// Worker for the life of the runtime.
    Base,
    /// Worker that was added because handlers wait or seem to, or because the queue is long.
    Worker,
    /// Thread that stands by until all others wait, and then runs only urgent work.
    Reserve,
}

impl ThreadKind {
    pub(super) const fn from_u8(kind: u8) -> Option<Self> {
        match kind {
            0 => Some(Self::Base),
            1 => Some(Self::Worker),
            2 => Some(Self::Reserve),
            _ => None,
        }
    }

    /// Letter before the number in the thread's name.
    pub(super) const fn letter(self) -> &'static str {
        match self {
            Self::Base => "",
            Self::Worker => "w",
            Self::Reserve => "r",
        }
    }
}

/// State of a worker, in an atomic.
#[derive(Debug)]
pub(crate) struct AtomicState(AtomicU8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerState {
    /// The worker keeps its permit if it waits in epoll.
    Resting,
    Running,
    /// Runs with a poll permit, which other threads may take away.
    Polling,
    /// The handler announced a wait. The worker has no permit.
    Stalled,
    /// Runs, and the watchdog counts it as a stuck thread of this kind. The worker has no permit.
    Stuck(ThreadKind),
}

impl WorkerState {
    const fn bits(self) -> u8 {
        match self {
            Self::Resting => 0,
            Self::Running => 1,
            Self::Polling => 2,
            Self::Stalled => 3,
            Self::Stuck(kind) => STUCK + kind as u8,
        }
    }

    const fn from_bits(bits: u8) -> Self {
        match (bits, ThreadKind::from_u8(bits.wrapping_sub(STUCK))) {
            (_, Some(kind)) => Self::Stuck(kind),
            (1, None) => Self::Running,
            (2, None) => Self::Polling,
            (3, None) => Self::Stalled,
            (_, None) => Self::Resting,
        }
    }
}

const STUCK: u8 = 4;

impl AtomicState {
    fn new() -> Self {
        Self(AtomicU8::new(WorkerState::Resting.bits()))
    }

    pub(crate) fn get(&self) -> WorkerState {
        WorkerState::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn run(&self, with_permit: bool) {
        let state = if with_permit { WorkerState::Polling } else { WorkerState::Running };
        self.0.store(state.bits(), Ordering::Release);
    }

    /// Notes a rest. Returns the state before.
    pub(crate) fn rest(&self) -> WorkerState {
        self.end(mutant!(WorkerState::Resting, RestingShowsPermit => WorkerState::Polling))
    }

    /// Notes that the handler waits. Returns the state before.
    pub(crate) fn stall(&self) -> WorkerState {
        self.end(mutant!(WorkerState::Stalled, StallShowsPermit => WorkerState::Polling))
    }

    fn end(&self, next: WorkerState) -> WorkerState {
        // AcqRel: pairs with `take_permit` and `set_stuck`, which other threads call.
        WorkerState::from_bits(self.0.swap(next.bits(), Ordering::AcqRel))
    }

    /// Notes that a wait is over or a run has ended. Returns the state before if the worker counted as
    /// stalled or stuck.
    pub(crate) fn go_on(&self) -> Option<WorkerState> {
        // Acquire: pairs with `set_stuck`. The caller lowers the count that was raised before it.
        let before = self.0.load(Ordering::Acquire);
        // No other thread changes these two states. In any other one the worker may have a permit,
        // which must stay.
        if before < WorkerState::Stalled.bits() {
            return None;
        }
        self.run(false);
        Some(WorkerState::from_bits(before))
    }

    pub(crate) fn runs(&self) -> bool {
        matches!(self.get(), WorkerState::Running | WorkerState::Polling | WorkerState::Stuck(_))
    }

    /// Returns true if the worker runs with a permit, which may be taken away.
    pub(crate) fn has_permit(&self) -> bool {
        self.get() == WorkerState::Polling
    }

    pub(crate) fn rests(&self) -> bool {
        self.get() == WorkerState::Resting
    }

    /// Takes the permit of a running worker. Any thread may call it, the worker's own too.
    pub(crate) fn take_permit(&self) -> bool {
        self.change(WorkerState::Polling, WorkerState::Running)
    }

    /// Notes that the watchdog counts a worker as stuck that runs without a permit. Only the worker
    /// ends this state.
    pub(crate) fn set_stuck(&self, kind: ThreadKind) -> bool {
        let stuck = WorkerState::Stuck(kind);
        mutant!(self.change(WorkerState::Running, stuck), StuckUnchecked => {
            let _ = self.end(stuck);
            true
        })
    }

    fn change(&self, from: WorkerState, to: WorkerState) -> bool {
        let (from, to) = (from.bits(), to.bits());
        // In the usual case this load is enough, and no locked instruction is needed.
        self.0.load(Ordering::Relaxed) == from
            && self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Slots of a group. Those of permanent threads are found in an array, because each count looks for one.
/// Those of other threads are appended behind it. No slot is removed while the group lives.
#[derive(Debug)]
pub(super) struct WorkerSlots {
    permanent: Box<[SharedSlot]>,
    added: AppendVec<SharedSlot>,
}

/// Slot that its worker and the group share.
pub(super) type SharedSlot = Arc<CachePadded<WorkerSlot>>;

impl WorkerSlots {
    pub(super) fn new(permanent: usize) -> Self {
        let permanent = (0..permanent).map(|_| WorkerSlot::shared()).collect();
        Self { permanent, added: AppendVec::new() }
    }

    /// Adds a slot. Returns its number.
    pub(super) fn add(&self) -> usize {
        self.permanent.len() + self.added.push(WorkerSlot::shared())
    }

    pub(super) fn count(&self) -> usize {
        self.permanent.len() + self.added.count()
    }

    /// Slots in the order of their numbers. A slot that is added meanwhile may be missing.
    pub(super) fn iter(&self) -> impl Iterator<Item = &WorkerSlot> {
        let added = self.added.iter().map(|(_, slot)| slot);
        self.permanent.iter().chain(added).map(|slot| &***slot)
    }
}

impl Index<usize> for WorkerSlots {
    type Output = SharedSlot;

    fn index(&self, number: usize) -> &SharedSlot {
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
        let state = AtomicState::new();
        state.run(true);
        assert_eq!(state.stall(), WorkerState::Polling, "the permit is to be given back");
        let _ = state.go_on();
        assert!(state.runs());
        assert_eq!(state.rest(), WorkerState::Running, "it has none any more");
        state.run(true);
        let _ = state.go_on();
        assert_eq!(state.rest(), WorkerState::Polling, "it has kept it");
        let _ = state.go_on();
        assert!(state.rests());
    }

    #[test]
    fn each_state_is_read_as_it_was_written() {
        let stuck =
            [ThreadKind::Base, ThreadKind::Worker, ThreadKind::Reserve].map(WorkerState::Stuck);
        let others = [
            WorkerState::Resting,
            WorkerState::Running,
            WorkerState::Polling,
            WorkerState::Stalled,
        ];
        for state in others.into_iter().chain(stuck) {
            assert_eq!(WorkerState::from_bits(state.bits()), state);
        }
    }
}
