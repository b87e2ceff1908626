//! [`Seats`]: the states that the workers of a group show, found by number without a lock.

use std::ops::Index;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::batch::{Event, MOST_EVENTS};
use super::class::Class;
use super::seat::SeatState;
use super::stealable::Stealable;
use super::thread_kind::ThreadKind;
use super::work::Work;
use crate::stats::Counters;
use crate::sync::shim::AppendVec;
use crate::sync::shim::atomic::{AtomicU8, AtomicU64, Ordering};

/// State that a worker shows to other threads. When its thread has left, another one uses the seat
/// again.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) counters: Counters,
    /// Changes when the worker completes a run and when it begins after a rest. Written only by the
    /// worker.
    pub(super) beat: AtomicU64,
    /// Number of runs that the worker has completed. Written only by the worker.
    pub(super) completed: AtomicU64,
    /// State of the worker, and its poll permit.
    pub(super) state: SeatState,
    /// Events that the worker has taken and not begun.
    pub(super) batch: [Event; MOST_EVENTS],
    /// Work that the worker does after its current run. If the worker gets stuck or announces a wait,
    /// the work is queued for other workers.
    pub(super) stealable: Stealable<Arc<dyn Work>>,
    /// [`Class`] of the current run, for the watchdog's report.
    pub(super) class: AtomicU8,
    /// [`ThreadKind`] of the seat's thread, or [`NONE`].
    kind: AtomicU8,
    /// Kind under which the worker is counted as stuck, or [`NONE`]. Set by the watchdog. The thread
    /// that resets it also lowers the count.
    stuck: AtomicU8,
}

const NONE: u8 = u8::MAX;

impl Seat {
    fn new() -> Self {
        Self {
            counters: Counters::new(),
            beat: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            state: SeatState::default(),
            batch: Default::default(),
            stealable: Stealable::new(),
            class: AtomicU8::new(Class::Ordinary as u8),
            kind: AtomicU8::new(NONE),
            stuck: AtomicU8::new(NONE),
        }
    }

    /// Kind of the seat's thread, or `None` if the seat is vacant.
    pub(super) fn kind(&self) -> Option<ThreadKind> {
        ThreadKind::from_u8(self.kind.load(Ordering::Acquire))
    }

    /// Returns true if the worker runs with a permit, with stealable work, or with events that it has
    /// not begun: with something that others could do if it got stuck.
    pub(super) fn holds(&self) -> bool {
        let events = || self.batch.iter().any(|event| !event.is_empty());
        self.state.runs() && (self.state.has_permit() || !self.stealable.is_empty() || events())
    }

    pub(super) fn sit(&self, kind: ThreadKind) {
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

/// Seats of a group. Seats of permanent threads lie in an array, because they are read several times
/// for each request. Seats of other threads are appended behind it. No seat is removed while the group
/// lives.
#[derive(Debug)]
pub(super) struct Seats {
    permanent: Box<[CachePadded<Seat>]>,
    added: AppendVec<CachePadded<Seat>>,
}

impl Seats {
    pub(super) fn new(permanent: usize) -> Self {
        let permanent = (0..permanent).map(|_| CachePadded::new(Seat::new())).collect();
        Self { permanent, added: AppendVec::new() }
    }

    /// Adds a seat. Returns its number.
    pub(super) fn add(&self) -> usize {
        self.permanent.len() + self.added.push(CachePadded::new(Seat::new()))
    }

    pub(super) fn count(&self) -> usize {
        self.permanent.len() + self.added.count()
    }

    /// Seats in the order of their numbers. A seat that is added meanwhile may be missing.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Seat> {
        let added = self.added.iter().map(|(_, seat)| seat);
        self.permanent.iter().chain(added).map(|seat| &**seat)
    }
}

impl Index<usize> for Seats {
    type Output = Seat;

    fn index(&self, number: usize) -> &Seat {
        match self.permanent.get(number) {
            Some(seat) => seat,
            None => &self.added[number - self.permanent.len()],
        }
    }
}
