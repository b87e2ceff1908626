//! [`Stalls`]: steps of a worker when its handler announces a wait.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::cost::note_waited;
use super::group::Group;
use super::schedule::Schedule;
use super::worker_slot::{SharedSlot, ThreadKind, WorkerSlot};
use crate::stall::{self, Announce};
use crate::stats::Counter;
use crate::sys::clock::{self, Instant};

/// State of one worker, used only on its own thread.
pub(super) struct Stalls {
    group: Arc<Group>,
    slot: SharedSlot,
    kind: ThreadKind,
    /// Set while the group is open because of this worker's handler, which is known to be slow.
    slow: Cell<bool>,
    /// Set if `slow` was set when the handler began to wait.
    was_slow: Cell<bool>,
    /// Start of the wait, while the worker counts as stalled.
    began: Cell<Option<Instant>>,
}

/// Guard. Until it is dropped, the waits of the thread are announced to its worker.
pub(super) struct Installed(Rc<Stalls>);

impl Stalls {
    pub(super) fn new(group: Arc<Group>, slot: SharedSlot, kind: ThreadKind) -> Rc<Self> {
        let (slow, was_slow) = (Cell::default(), Cell::default());
        Rc::new(Self { group, slot, kind, slow, was_slow, began: Cell::default() })
    }

    pub(super) fn install(self: &Rc<Self>) -> Installed {
        let announce: Rc<Self> = Rc::clone(self);
        stall::install(Some(announce));
        Installed(Rc::clone(self))
    }

    /// Notes that a handler begins that is known to be slow.
    pub(super) fn begin_slow(&self) {
        self.group.mode.begin_slow();
        self.slow.set(true);
    }

    /// Notes that a handler has ended, slow or not. If the handler has kept the guard of its wait, the
    /// wait counts until the guard is dropped.
    pub(super) fn end_run(&self, now: Instant) {
        if self.slow.take() {
            self.group.mode.end_slow(now);
        }
        self.was_slow.set(false);
    }

    fn slot(&self) -> &WorkerSlot {
        &self.slot
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        stall::install(None);
        // Another thread soon takes over the slot.
        if self.0.began.take().is_some() {
            self.0.group.thread_set.end_stall(self.0.kind);
        }
    }
}

impl Announce for Stalls {
    fn begin(&self) {
        let now = clock::now();
        self.began.set(Some(now));
        self.group.count(Counter::Stalls, 1);
        self.group.begin_stall(self.kind, self.slot(), || {
            if self.slow.take() {
                self.group.mode.end_slow(now);
                self.was_slow.set(true);
            }
            self.group.queue_batch(self.slot(), Counter::BatchEventsQueued);
            self.group.queue_stealable(self.slot());
            self.group.mode.demand(now)
        });
        self.group.see_to_stall(self.kind);
    }

    fn end(&self) {
        // The worker may have left.
        let Some(began) = self.began.take() else { return };
        self.group.thread_set.end_stall(self.kind);
        self.group.thread_set.go_on(self.slot());
        if self.was_slow.take() {
            self.begin_slow();
        }
        note_waited(clock::now().nanos_since(began));
    }

    fn uncounted(&self) {
        self.group.count(Counter::StallsUncounted, 1);
    }
}
