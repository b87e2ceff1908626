//! [`Alarm`]: the deadlines of a group and the one timer of the kernel that stands for them.
//!
//! The kernel's timer is armed for the earliest deadline and wakes exactly one worker, which calls
//! [`Alarm::take_due`]. Because no second worker competes with it, a plain lock is cheaper than
//! a try-lock with its recheck. Setting or cancelling a timer holds the lock for some hundred
//! nanoseconds. Taking expired timers holds it for at most [`BATCH`] of them. Callbacks never run
//! under it.
//!
//! Invariant, restored by each lock holder: if there is a deadline, the kernel's timer is armed at most
//! [`SLACK`] after it.

use std::time::Duration;

use super::timer::{TimerHeap, TimerId};
use crate::sync::mutant::mutant;
use crate::sync::shim::{Mutex, MutexGuard, lock};
use crate::sys::clock::Instant;
#[cfg(not(loom))]
use crate::sys::timerfd::TimerFd;

/// A deadline that is earlier than the armed one by no more than this waits for it: moving the
/// kernel's timer costs a system call, and timers promise 5 ms.
pub(crate) const SLACK: Duration = Duration::from_millis(1);

/// Number of expired timers that are taken under one lock. It bounds how long a thread that sets or
/// cancels a timer waits for the lock.
const BATCH: usize = 256;

/// Sets the kernel's timer. The model replaces it, as it has no kernel.
pub(crate) trait Arm {
    fn arm(&self, delay: Duration);
}

#[cfg(not(loom))]
impl Arm for TimerFd {
    fn arm(&self, delay: Duration) {
        if let Err(error) = Self::arm(self, delay) {
            // Only an invalid descriptor or time could fail, and both are made here.
            debug_assert!(false, "timerfd_settime: {error}");
        }
    }
}

/// Deadlines, each with its item.
#[derive(Debug)]
pub(crate) struct Alarm<T, A> {
    state: Mutex<State<T>>,
    armer: A,
}

#[derive(Debug)]
struct State<T> {
    heap: TimerHeap<T>,
    /// Time at which the kernel's timer expires. `None` once it has expired.
    armed: Option<Instant>,
}

/// Tells if the kernel's timer had to be set, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    Set,
    Kept,
}

impl<T, A: Arm> Alarm<T, A> {
    pub(crate) fn new(armer: A) -> Self {
        Self { state: Mutex::new(State { heap: TimerHeap::new(), armed: None }), armer }
    }

    pub(crate) fn insert(&self, deadline: Instant, now: Instant, due: T) -> (TimerId, Armed) {
        let mut state = lock(&self.state);
        let id = state.heap.insert(deadline, due);
        (id, self.rearm(state, now))
    }

    /// Removes a timer that was not due yet. The kernel's timer may then expire without a due
    /// timer.
    pub(crate) fn cancel(&self, id: TimerId) -> Option<T> {
        lock(&self.state).heap.cancel(id)
    }

    /// Takes the timers that are due, each with its deadline, after the kernel's timer expired. If more
    /// than [`BATCH`] are due, it takes the earliest, and the kernel's timer expires again at once for
    /// the rest.
    pub(crate) fn take_due(&self, now: Instant, due: &mut Vec<(Instant, T)>) -> Armed {
        let mut state = lock(&self.state);
        state.armed = state.armed.filter(|armed| mutant!(*armed > now, ArmedIsKept => true));
        for _ in 0..BATCH {
            let Some(deadline) = state.heap.next_deadline() else { break };
            let Some((_, item)) = state.heap.pop_due(now) else { break };
            due.push((deadline, item));
        }
        self.rearm(state, now)
    }

    /// Removes all timers, due or not. The caller drops them outside the lock.
    pub(crate) fn take_all(&self) -> TimerHeap<T> {
        std::mem::replace(&mut lock(&self.state).heap, TimerHeap::new())
    }

    /// Earliest pending deadline.
    #[cfg(all(not(loom), feature = "internal"))]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        lock(&self.state).heap.next_deadline()
    }

    /// Number of pending deadlines.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).heap.len()
    }

    fn rearm(&self, mut state: MutexGuard<'_, State<T>>, now: Instant) -> Armed {
        let Some(earliest) = state.heap.next_deadline() else { return Armed::Kept };
        let soon_enough = |armed: Instant| {
            let later = armed.duration_since(earliest);
            mutant!(later <= SLACK, LaterIsKept => true)
        };
        if state.armed.is_some_and(soon_enough) {
            return Armed::Kept;
        }
        state.armed = Some(earliest);
        // Under the lock, so that the kernel's timer is set in the order in which `armed` changes.
        let _lock = mutant!(Some(state), ArmAfterUnlock => { drop(state); None });
        self.armer.arm(earliest.duration_since(now));
        Armed::Set
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Last delay for which the timer was armed.
    #[derive(Default)]
    struct Told(Cell<Option<Duration>>);

    impl Arm for Told {
        fn arm(&self, delay: Duration) {
            self.0.set(Some(delay));
        }
    }

    #[test]
    fn timers_that_are_due_together_are_taken_in_batches() {
        let alarm = Alarm::new(Told::default());
        let start = Instant::now();
        let timers = 4 * BATCH + 1;
        for number in 0..timers {
            alarm.insert(start, start, number);
        }
        let mut due = Vec::new();
        for _ in 0..4 {
            let before = due.len();
            alarm.armer.0.set(None);
            assert_eq!(alarm.take_due(start, &mut due), Armed::Set, "the rest is waited for");
            assert_eq!(due.len() - before, BATCH, "timers taken under one lock");
            assert_eq!(alarm.armer.0.get(), Some(Duration::ZERO), "the rest is due");
        }
        assert_eq!(alarm.take_due(start, &mut due), Armed::Kept);
        assert!(due.iter().map(|&(_, number)| number).eq(0..timers), "each once, in order");
    }
}

#[cfg(all(test, loom))]
mod model;
