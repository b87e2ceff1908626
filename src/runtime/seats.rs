//! [`Seats`]: what the workers of a group show of themselves, found by number without a lock.

use std::ops::Index;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::aside::Aside;
use super::batch::{Event, MOST_EVENTS};
use super::class::Class;
use super::seat::SeatState;
use super::threads::ThreadKind;
use super::work::Work;
use crate::stats::Counters;

/// What a worker shows of itself to the others. Used again by another thread when that one has left.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) counters: Counters,
    /// Changes when the worker completes something and when it begins after a rest. Written by it alone.
    pub(super) beat: AtomicU64,
    /// Counts what the worker has completed. Written by it alone.
    pub(super) completed: AtomicU64,
    /// At rest, waiting, or running with a poll permit or without.
    pub(super) state: SeatState,
    /// Events that the worker has taken and not begun.
    pub(super) batch: [Event; MOST_EVENTS],
    /// Work that stands behind what the worker runs.
    pub(super) aside: Aside<Arc<dyn Work>>,
    /// [`Class`] of what it runs, for the watchdog's report.
    pub(super) class: AtomicU8,
    /// [`ThreadKind`] of who sits here, or [`NONE`].
    kind: AtomicU8,
    /// The kind as which the worker is counted among the stuck, or [`NONE`]. Set by the watchdog; who
    /// takes it back counts it down.
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
            aside: Aside::new(),
            class: AtomicU8::new(Class::Ordinary as u8),
            kind: AtomicU8::new(NONE),
            stuck: AtomicU8::new(NONE),
        }
    }

    /// Kind of the thread that sits here, if any does.
    pub(super) fn kind(&self) -> Option<ThreadKind> {
        ThreadKind::from_u8(self.kind.load(Ordering::Acquire))
    }

    /// It runs with a permit, with something set aside, or with events that it has not begun.
    pub(super) fn holds(&self) -> bool {
        self.state.has_permit()
            || !self.aside.is_empty()
            || self.batch.iter().any(|event| !event.is_empty())
    }

    pub(super) fn sit(&self, kind: ThreadKind) {
        // At rest until it begins.
        let _ = self.state.rest();
        self.kind.store(kind as u8, Ordering::Release);
    }

    pub(super) fn vacate(&self) {
        self.kind.store(NONE, Ordering::Release);
    }

    /// Whether it is counted among the stuck.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed) != NONE
    }

    /// It has been counted among the stuck of this kind.
    pub(super) fn set_stuck(&self, kind: ThreadKind) {
        // Release: pairs with the Acquire of `take_stuck`, who then counts it down.
        self.stuck.store(kind as u8, Ordering::Release);
    }

    /// The kind under which it is to be counted down, for one caller.
    pub(super) fn take_stuck(&self) -> Option<ThreadKind> {
        ThreadKind::from_u8(self.stuck.swap(NONE, Ordering::Acquire))
    }
}

/// Those for the threads that are there for life lie in an array, because they are looked at several
/// times for each request; those for threads that come and go are appended behind it. None is ever
/// taken away while the group lives.
#[derive(Debug)]
pub(super) struct Seats {
    permanent: Box<[CachePadded<Seat>]>,
    added: boxcar::Vec<CachePadded<Seat>>,
}

impl Seats {
    pub(super) fn new(permanent: usize) -> Self {
        let permanent = (0..permanent).map(|_| CachePadded::new(Seat::new())).collect();
        Self { permanent, added: boxcar::Vec::new() }
    }

    /// One more; its number.
    pub(super) fn add(&self) -> usize {
        self.permanent.len() + self.added.push(CachePadded::new(Seat::new()))
    }

    pub(super) fn count(&self) -> usize {
        self.permanent.len() + self.added.count()
    }

    /// In the order of their numbers. What is added meanwhile may be missing.
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
