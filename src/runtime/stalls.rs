//! [`Stalls`]: what a worker does when its handler announces that it waits.

use std::cell::Cell;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::group::Group;
use super::seats::Seat;
use super::threads::ThreadKind;
use crate::stats::Counter;
use crate::sync::stall::{self, Announce};
use crate::sys::clock;

/// Of one worker, on its own thread.
pub(super) struct Stalls {
    group: Arc<Group>,
    seat: usize,
    kind: ThreadKind,
    /// The group is open because of the handler, which is known to be slow.
    slow: Cell<bool>,
    /// It was, until the handler began to wait.
    was_slow: Cell<bool>,
    /// Since when it waits, as long as it is counted among those that do.
    began: Cell<Option<Instant>>,
}

thread_local! {
    /// How long what ran on this thread has waited, and said so.
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Times what runs on a thread, one lap after the other. Waits that were announced are left out: such a
/// one has given everything back that others could want.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    /// When it began, and the one before it ended.
    pub(crate) now: Instant,
    waited: Duration,
}

impl Lap {
    /// From `now` on, on this thread.
    pub(crate) fn from(now: Instant) -> Self {
        Self { now, waited: WAITED.get() }
    }

    /// Ends it, and begins the next; says how long it was.
    pub(crate) fn end(&mut self) -> Duration {
        let before = mem::replace(self, Self::from(clock::now()));
        let waited = self.waited.saturating_sub(before.waited);
        self.now.saturating_duration_since(before.now).saturating_sub(waited)
    }
}

/// Until this is dropped the waits of the thread are announced to its worker.
pub(super) struct Installed(Rc<Stalls>);

impl Stalls {
    pub(super) fn new(group: Arc<Group>, seat: usize, kind: ThreadKind) -> Rc<Self> {
        let (slow, was_slow) = (Cell::default(), Cell::default());
        Rc::new(Self { group, seat, kind, slow, was_slow, began: Cell::default() })
    }

    pub(super) fn install(self: &Rc<Self>) -> Installed {
        let announce: Rc<Self> = Rc::clone(self);
        stall::install(Some(announce));
        Installed(Rc::clone(self))
    }

    /// A handler begins that is known to be slow.
    pub(super) fn begin_slow(&self) {
        self.group.mode.begin_slow();
        self.slow.set(true);
    }

    /// A handler has ended, slow or not. Its wait has not, if it has kept the guard: it counts until
    /// that is dropped, but here something else goes on.
    pub(super) fn end_run(&self, now: Instant) {
        if self.slow.take() {
            self.group.mode.end_slow(now);
        }
        self.was_slow.set(false);
        self.seat().state.go_on();
    }

    fn seat(&self) -> &Seat {
        &self.group.crew.seats[self.seat]
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        stall::install(None);
        // The seat is somebody else's before long.
        if self.0.began.take().is_some() {
            self.0.group.end_stall(self.0.kind);
        }
    }
}

impl Announce for Stalls {
    fn begin(&self) {
        let now = clock::now();
        self.began.set(Some(now));
        // First of all: from now on the watchdog does not count it among the stuck.
        let has_permit = self.seat().state.stall();
        self.group.begin_stall(self.kind, self.seat());
        if self.slow.take() {
            self.group.mode.end_slow(now);
            self.was_slow.set(true);
        }
        // What only this thread could do goes to the others: its permit, its batch, and what is aside.
        if has_permit {
            self.group.park.give_permit();
        }
        self.group.queue_batch(self.seat(), Counter::BatchEventsQueued);
        self.group.queue_aside(self.seat());
        // Whoever is there goes on at once; a thread that has to come first takes its time.
        self.group.wake_for_what_waits(self.group.mode.demand(now));
        self.group.see_to_stall(self.kind);
    }

    fn end(&self) {
        // Its worker may have left.
        let Some(began) = self.began.take() else { return };
        self.group.end_stall(self.kind);
        self.seat().state.go_on();
        if self.was_slow.take() {
            self.begin_slow();
        }
        WAITED.set(WAITED.get() + clock::now().saturating_duration_since(began));
    }

    fn uncounted(&self) {
        self.group.count(Counter::StallsUncounted, 1);
    }
}
