//! [`Mode`]: number of workers that a group lets poll at a time.
//!
//! *Calm*: handlers are quick. One worker waits in epoll and serves its events. If batches are long and
//! a trial shows that it helps, workers *share* them ([`Sharing`]): a worker with a long batch wakes
//! another one, and each looks into epoll again before it sleeps.
//!
//! *Open*: a handler is known to be slow. All workers may wait in epoll, for one event at a time. So a
//! worker is always ready to take an event, whatever CPU the slow handler occupies. The guide has the
//! measurements.

use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::park::Demand;
use super::sharing::{Batches, Sharing};
use crate::sync::shim::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::shim::{Mutex, lock};
use crate::sys::clock::{self, AtomicInstant, Instant};

/// State that the workers of a group share. All fields are hints: a stale one costs time, not
/// correctness.
#[derive(Debug)]
pub(crate) struct Mode {
    /// Number of permits when open.
    most: u64,
    /// Number of permits while long batches are shared.
    most_sharing: u64,
    sharing: Mutex<Sharing>,
    state: CachePadded<State>,
}

#[derive(Debug)]
struct State {
    /// Number of slow handlers that run.
    slow: AtomicU32,
    /// Time until which the group stays open.
    open_until: AtomicInstant,
    /// Time until which the threads of the group count as competing for CPUs.
    crowded_until: AtomicInstant,
    /// True while long batches are shared. Written under the lock of `sharing`.
    shares: AtomicBool,
    /// Time until which the sharing is not judged. Written like `shares`.
    judged_until: AtomicInstant,
}

/// Time for which a group stays open after the last slow handler ended, and crowded after the last time
/// a thread was preempted.
const OPEN_FOR: Duration = Duration::from_millis(20);

impl Mode {
    /// Makes the mode of a group. At most `most` workers poll at once; `cpus` is the group's share of
    /// the machine.
    pub(crate) fn new(most: usize, cpus: usize) -> Self {
        let most = most.max(1);
        Self {
            most: most as u64,
            most_sharing: cpus.clamp(1, most) as u64,
            sharing: Mutex::new(Sharing::new(clock::now())),
            state: CachePadded::new(State {
                slow: AtomicU32::new(0),
                open_until: AtomicInstant::default(),
                crowded_until: AtomicInstant::default(),
                shares: AtomicBool::new(false),
                judged_until: AtomicInstant::default(),
            }),
        }
    }

    pub(crate) fn demand(&self, now: Instant) -> Demand {
        if self.is_open(now) {
            return Demand { pollers: self.most, all_wait: true };
        }
        let shares = self.state.shares.load(Ordering::Relaxed);
        Demand { pollers: if shares { self.most_sharing } else { 1 }, all_wait: false }
    }

    fn is_open(&self, now: Instant) -> bool {
        self.state.slow.load(Ordering::Relaxed) > 0 || now < self.state.open_until.get()
    }

    pub(crate) fn begin_slow(&self) {
        self.state.slow.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_slow(&self, now: Instant) {
        self.state.open_until.raise(now + OPEN_FOR);
        self.state.slow.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that a thread had to share its CPU with others.
    pub(crate) fn note_crowded(&self, now: Instant) {
        self.state.crowded_until.raise(now + OPEN_FOR);
    }

    /// Returns true if more threads could run than there are CPUs.
    pub(crate) fn is_crowded(&self, now: Instant) -> bool {
        now < self.state.crowded_until.get()
    }

    /// Judges, at the end of a window, if the workers of a calm group share long batches. Called by a
    /// worker that waited for `batches`. `events` counts the events that all workers have taken.
    pub(crate) fn judge_sharing(
        &self,
        now: Instant,
        batches: &mut Batches,
        events: impl FnOnce() -> u64,
    ) {
        let early = now < self.state.judged_until.get();
        if self.most_sharing == 1 || early {
            return;
        }
        let mut sharing = lock(&self.sharing);
        // Counted under the lock, so that the number never falls. This worker may have waited for the
        // lock while another one judged.
        self.state.shares.store(sharing.judge(now, events(), batches), Ordering::Relaxed);
        self.state.judged_until.set(sharing.window_ends());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_under_the_lock_and_between_two_windows_no_lock_is_taken() {
        let mode = Mode::new(4, 2);
        let now = clock::now() + Duration::from_millis(25);
        let mut counted = false;
        mode.judge_sharing(now, &mut Batches::default(), || {
            counted = mode.sharing.try_lock().is_err();
            1
        });
        assert!(counted, "two workers that judge at once would see the number fall");
        let _locked = lock(&mode.sharing);
        mode.judge_sharing(now + Duration::from_millis(19), &mut Batches::default(), || 2);
    }

    #[test]
    fn crowded_for_a_while_after_it_was_noted() {
        let mode = Mode::new(4, 2);
        let now = clock::now();
        assert!(!mode.is_crowded(now));
        mode.note_crowded(now);
        assert!(mode.is_crowded(now + OPEN_FOR / 2));
        assert!(!mode.is_crowded(now + OPEN_FOR));
    }

    #[test]
    fn open_while_something_slow_runs_and_for_a_while_after() {
        let mode = Mode::new(4, 2);
        let now = clock::now();
        assert!(!mode.demand(now).all_wait);
        mode.begin_slow();
        assert_eq!(mode.demand(now), Demand { pollers: 4, all_wait: true });
        mode.end_slow(now);
        assert!(mode.demand(now + OPEN_FOR / 2).all_wait);
        assert_eq!(mode.demand(now + OPEN_FOR), Demand { pollers: 1, all_wait: false });
    }
}
