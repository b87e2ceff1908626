//! Timers of the user: set through a [`Handle`](super::Handle), cancelled through a [`Timer`].

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::Group;
use super::class::Class;
use super::task::Due;
use super::timer::TimerId;
use crate::stats::Counter;
use crate::sync::shim::atomic::{AtomicBool, Ordering};
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};

/// A timer's callback and its state.
struct Callback {
    class: Class,
    /// True until the callback ran as a one-shot or was cancelled.
    live: AtomicBool,
    /// Interval of a repeating timer.
    every: Option<Duration>,
    /// Taken while it runs, so that a slow callback never overlaps itself.
    code: Mutex<Option<Code>>,
    /// Last entry in the heap, until the callback runs. To cancel an entry that has left the heap does
    /// nothing.
    entry: Mutex<Option<TimerId>>,
}

enum Code {
    Once(Box<dyn FnOnce() + Send>),
    Every(Box<dyn FnMut() + Send>),
}

/// Owner of a timer that was set. Dropping it [cancels](Self::cancel) the timer.
#[must_use = "dropped, it cancels the timer"]
pub struct Timer {
    callback: Weak<Callback>,
    group: Weak<Group>,
}

impl Timer {
    /// Prevents each run that has not begun. Returns false if a one-shot timer has run or is
    /// running, or the timer was cancelled before.
    pub fn cancel(&self) -> bool {
        let Some(callback) = self.callback.upgrade() else { return false };
        if !callback.live.swap(false, Ordering::AcqRel) {
            return false;
        }
        if let Some(group) = self.group.upgrade() {
            group.count(Counter::TimersCancelled, 1);
            let entry = lock(&callback.entry).take();
            if let Some(id) = entry {
                drop(group.cancel_due(id));
            }
        }
        // Dropped here, on the caller's thread, unless it is running.
        let code = lock(&callback.code).take();
        drop(code);
        true
    }

    /// Leaves the timer to the runtime. It runs until the runtime ends, or once.
    pub fn detach(mut self) {
        self.callback = Weak::new();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

/// Returns true if the deadline `due` is handled so late that the process must have been stopped,
/// or had no CPU. All other deadlines were late too then, so a peer is not to blame for missing its
/// own.
pub(crate) fn is_late(due: Instant, now: Instant) -> bool {
    now.duration_since(due) > LATE
}

/// Excuse of a peer for a deadline that was handled late. It is given once: at a second miss the
/// peer had another whole period. If much work is queued, for example because many peers send
/// without pause, each deadline is handled late, and without this limit each peer would be excused
/// for ever.
#[derive(Debug, Default)]
pub(crate) struct Excuse {
    given: bool,
}

impl Excuse {
    /// Returns true if the period starts again because the deadline is handled only now.
    pub(crate) fn covers(&mut self, due: Instant, now: Instant) -> bool {
        is_late(due, now) && !mem::replace(&mut self.given, true)
    }
}

/// Lateness above which a deadline counts as late: twenty times the 5 ms that timers promise.
const LATE: Duration = Duration::from_millis(100);

pub(crate) fn after(
    group: &Arc<Group>,
    class: Class,
    delay: Duration,
    code: Box<dyn FnOnce() + Send>,
) -> Timer {
    set(group, class, delay, None, Code::Once(code))
}

pub(crate) fn every(
    group: &Arc<Group>,
    class: Class,
    interval: Duration,
    code: Box<dyn FnMut() + Send>,
) -> Timer {
    let interval = interval.max(SHORTEST_INTERVAL);
    set(group, class, interval, Some(interval), Code::Every(code))
}

/// Shortest interval of a repeating timer.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

fn set(
    group: &Arc<Group>,
    class: Class,
    delay: Duration,
    every: Option<Duration>,
    code: Code,
) -> Timer {
    let callback = Arc::new(Callback {
        class,
        live: AtomicBool::new(true),
        every,
        code: Mutex::new(Some(code)),
        entry: Mutex::new(None),
    });
    let timer = Timer { callback: Arc::downgrade(&callback), group: Arc::downgrade(group) };
    group.count(Counter::TimersSet, 1);
    callback.insert(group, delay);
    timer
}

impl Callback {
    fn insert(self: Arc<Self>, group: &Group, delay: Duration) {
        let now = clock::now();
        let deadline = now + delay;
        let (callback, group_2) = (Arc::clone(&self), Weak::clone(&group.me));
        let run = Box::new(move || callback.run(&group_2));
        // Held until the entry is known, so that a cancellation finds it.
        let mut entry = lock(&self.entry);
        if self.live.load(Ordering::Acquire) {
            *entry = Some(group.insert_due(deadline, now, Due::Callback(self.class, run)));
        }
    }

    fn run(self: Arc<Self>, group: &Weak<Group>) {
        *lock(&self.entry) = None;
        let code = lock(&self.code).take();
        let Some(group) = group.upgrade() else { return };
        match code {
            Some(Code::Once(code)) if self.live.swap(false, Ordering::AcqRel) => {
                group.count(Counter::TimersFired, 1);
                code();
            }
            Some(Code::Every(code)) if self.live.load(Ordering::Acquire) => {
                group.count(Counter::TimersFired, 1);
                self.run_repeating(&group, code);
            }
            _ => {}
        }
    }

    /// Runs the callback, and sets the next deadline even if it panics.
    fn run_repeating(self: Arc<Self>, group: &Group, mut code: Box<dyn FnMut() + Send>) {
        group.guard("timer", &mut code);
        *lock(&self.code) = Some(Code::Every(code));
        if !self.live.load(Ordering::Acquire) {
            let code = lock(&self.code).take();
            drop(code);
        } else if let Some(interval) = self.every {
            self.insert(group, interval);
        }
    }
}
