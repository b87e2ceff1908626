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

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::group::Group;
use super::noise::log;
use super::scale::{Load, Rules, Scale, Seen};
use super::seats::{Seat, Seats};
use super::threads::{Refusal, ThreadKind};
use crate::stats::{Counter, Snapshot};
use crate::sync::shim::lock;
use crate::sys::clock;

/// See the module.
#[derive(Debug)]
pub(super) struct ThreadSet {
    pub(super) seats: Seats,
    pub(super) counts: CachePadded<Counts>,
    pub(super) state: Mutex<State>,
    /// Notified when a reserve thread is called, or when the group stops.
    pub(super) called: Condvar,
}

/// Number of threads. A thread counts from the decision to start it until it has decided to leave.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Base and added workers.
    workers: AtomicUsize,
    /// Ordinary threads that announced a wait.
    stalled: AtomicUsize,
    /// Largest number of ordinary threads stalled at once, since [`Group::note_peak`] last read it.
    peak_stalled: AtomicUsize,
    /// Ordinary threads that the watchdog found stuck and that have completed nothing since.
    stuck: AtomicUsize,
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
    scale: Scale,
    /// Seats without a thread.
    vacant: Vec<usize>,
    /// Reserve threads that wait to be called.
    pub(super) standby: usize,
    /// Calls that no reserve thread has answered yet.
    pub(super) calls: usize,
}

impl ThreadSet {
    /// Makes the seats of the permanent threads. They are given out in ascending order.
    pub(super) fn new(permanent: usize, now: Instant) -> Self {
        let vacant = (0..permanent).rev().collect();
        let state = State { scale: Scale::new(now), vacant, standby: 0, calls: 0 };
        Self {
            seats: Seats::new(permanent),
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

    /// Gives a seat to a thread that is about to start.
    pub(super) fn sit(&self, kind: ThreadKind) -> usize {
        let vacant = lock(&self.state).vacant.pop();
        let seat = vacant.unwrap_or_else(|| self.seats.add());
        self.seats[seat].sit(kind);
        seat
    }

    /// Frees the seat of a thread that has left, or that could not be started.
    pub(super) fn vacate(&self, seat: usize) {
        self.seats[seat].vacate();
        lock(&self.state).vacant.push(seat);
    }

    /// Returns true if an ordinary thread rests. It is free then, even if its wait still counts.
    pub(super) fn somebody_rests(&self) -> bool {
        let ordinary = |kind| kind != ThreadKind::Reserve;
        self.seats.iter().any(|seat| seat.state.rests() && seat.kind().is_some_and(ordinary))
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
        for seat in self.seats.iter() {
            // Counted by seat. `counts` already includes threads that may still be refused.
            let threads = match seat.kind() {
                None => continue,
                Some(ThreadKind::Base) => &mut snapshot.base_threads,
                Some(ThreadKind::Worker) => &mut snapshot.dynamic_threads,
                Some(ThreadKind::Reserve) => &mut snapshot.reserve_threads,
            };
            *threads += 1;
            snapshot.running_threads += u64::from(seat.state.runs());
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
}

impl Group {
    fn load(&self) -> Load {
        Load {
            sessions: self.sessions(),
            queued: self.run_queues.len(),
            capacity: self.config().epoll_work_queue_capacity,
            ..self.threads_load()
        }
    }

    /// The fields of the load that need no lock.
    fn threads_load(&self) -> Load {
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let (config, counts) = (self.config(), &self.thread_set.counts);
        Load {
            base: config.epoll_threads_per_group,
            workers: load(&counts.workers),
            stalled: load(&counts.stalled),
            stuck: load(&counts.stuck),
            ..Load::default()
        }
    }

    fn rules(&self) -> Rules {
        let config = self.config();
        Rules {
            thresh: config.thread_scale_thresh,
            dynamic_threads: config.dynamic_threads,
            shrink_time: config.dynamic_threads_shrink_time,
            tasker_multiply: config.enable_tasker.then_some(config.tasker_multiply),
            tasker_extend_step: config.tasker_extend_step,
        }
    }

    /// Number of ordinary threads that run or could run any task.
    pub(super) fn free(&self) -> usize {
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let counts = &self.thread_set.counts;
        load(&counts.workers).saturating_sub(load(&counts.stalled) + load(&counts.stuck))
    }

    /// Passes on the largest number of threads that waited at once since the last call. If a wait finds
    /// enough free threads, it adds none and only raises that number. Threads that such waits need do
    /// not leave, because their number is noted here.
    fn note_peak(&self, scale: &mut Scale, now: Instant) {
        let counts = &self.thread_set.counts;
        let peak =
            counts.peak_stalled.swap(counts.stalled.load(Ordering::SeqCst), Ordering::Relaxed);
        scale.note_stalled(now, peak, self.config().epoll_threads_per_group, &self.rules());
    }

    // ---- stalls ----

    /// Counts a thread of this kind as stalled, until [`end_stall`](Self::end_stall). Its seat already
    /// shows the wait, so that the thread is not counted as stuck too.
    pub(super) fn begin_stall(&self, kind: ThreadKind, seat: &Seat) {
        self.count(Counter::Stalls, 1);
        let stalled = self.thread_set.stalled(kind).fetch_add(1, Ordering::SeqCst) + 1;
        let peak = &self.thread_set.counts.peak_stalled;
        if kind != ThreadKind::Reserve && stalled > peak.load(Ordering::Relaxed) {
            peak.fetch_max(stalled, Ordering::Relaxed);
        }
        // SeqCst: pairs with the fence in `note_stuck`. Either this look sees that the worker is
        // counted as stuck, or the watchdog sees that it waits.
        fence(Ordering::SeqCst);
        self.end_stuck(seat);
    }

    /// Starts or calls other threads if they are needed in place of a worker that is about to wait.
    pub(super) fn see_to_stall(&self, kind: ThreadKind) {
        if kind != ThreadKind::Reserve && Scale::concerns(&self.threads_load(), &self.rules()) {
            self.grow_for_stalls();
        }
        self.call_reserve_if_needed();
    }

    pub(super) fn end_stall(&self, kind: ThreadKind) {
        self.thread_set.stalled(kind).fetch_sub(1, Ordering::SeqCst);
    }

    fn grow_for_stalls(&self) {
        let added = {
            let mut state = lock(&self.thread_set.state);
            let added = state.scale.on_stall(clock::now(), &self.load(), &self.rules());
            self.thread_set.counts.workers.fetch_add(added, Ordering::SeqCst);
            added
        };
        self.start_claimed(added, Counter::ThreadsStartedStall);
    }

    // ---- the watchdog's part ----

    /// Starts a series of checks. The watchdog has woken, and compares later checks with this moment.
    pub(super) fn begin_looking(&self) {
        lock(&self.thread_set.state).scale.begin_looking();
    }

    /// Counts the worker on this seat as stuck. At the last check it was already in the run that it is
    /// in now, and its beat was `beat`.
    pub(super) fn note_stuck(&self, seat: &Seat, kind: ThreadKind, beat: u64) {
        if seat.is_stuck() {
            return;
        }
        self.thread_set.stuck(kind).fetch_add(1, Ordering::SeqCst);
        seat.set_stuck(kind);
        // SeqCst: pairs with the fence in `Park::rest`. Either a worker that comes to rest sees that it
        // is counted as stuck, or this look sees that it has completed something.
        fence(Ordering::SeqCst);
        if seat.beat.load(Ordering::Relaxed) != beat || !seat.state.runs() {
            self.end_stuck(seat);
        }
    }

    /// Ends the count of the worker as stuck: it has completed something, waits, or has left.
    pub(super) fn end_stuck(&self, seat: &Seat) {
        if seat.is_stuck()
            && let Some(kind) = seat.take_stuck()
        {
            self.thread_set.stuck(kind).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Adds threads according to what the watchdog saw.
    pub(super) fn look_after(&self, now: Instant, seen: Seen) {
        let counts = &self.thread_set.counts;
        let growth = {
            let mut state = lock(&self.thread_set.state);
            self.note_peak(&mut state.scale, now);
            let growth = state.scale.on_check(now, &self.load(), seen, &self.rules());
            counts.workers.fetch_add(growth.stuck + growth.backlog, Ordering::SeqCst);
            growth
        };
        self.start_claimed(growth.stuck, Counter::ThreadsStartedWatchdog);
        self.start_claimed(growth.backlog, Counter::ThreadsStartedBacklog);
        self.call_reserve_if_needed();
    }

    /// Starts workers that are already counted.
    fn start_claimed(&self, count: usize, reason: Counter) {
        for started in 0..count {
            if self.start_thread(ThreadKind::Worker, reason).is_err() {
                self.thread_set.counts.workers.fetch_sub(count - started, Ordering::SeqCst);
                return;
            }
        }
    }

    pub(super) fn start_thread(&self, kind: ThreadKind, reason: Counter) -> Result<(), Refusal> {
        let Some(group) = self.me.upgrade() else { return Err(Refusal::Ended) };
        match self.threads.start_added(&group, kind) {
            Ok(name) => {
                self.count(reason, 1);
                if self.config().enable_thread_pool_log {
                    log!(debug, group = self.index(), name, reason = reason.name(), "thread");
                }
                Ok(())
            }
            Err(refusal) => {
                match &refusal {
                    Refusal::Limited => self.count(Counter::ThreadsLimited, 1),
                    Refusal::Ended => {}
                    Refusal::Failed(error) => {
                        self.count(Counter::ThreadStartFailed, 1);
                        if self.config().enable_thread_pool_log {
                            log!(debug, group = self.index(), %error, "no thread");
                        }
                    }
                }
                Err(refusal)
            }
        }
    }

    // ---- coming and leaving ----

    /// Counts a base worker that is about to start.
    pub(super) fn expect_base(&self) {
        self.thread_set.counts.workers.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns true if an added worker must leave. It is no longer counted then.
    pub(super) fn may_leave(&self, now: Instant) -> bool {
        let mut state = lock(&self.thread_set.state);
        self.note_peak(&mut state.scale, now);
        if !state.scale.may_leave(now, &self.load(), &self.rules()) {
            return false;
        }
        self.thread_set.counts.workers.fetch_sub(1, Ordering::SeqCst);
        // SeqCst: pairs with the fence in `Park::wake`. A worker may have pushed a task and then begun
        // to wait, because this thread was still there. Then the look at the queue that follows sees
        // the task.
        fence(Ordering::SeqCst);
        if self.free() == 0 {
            // The last other free worker began to wait at this moment, because it saw this one.
            self.stay();
            return false;
        }
        true
    }

    /// Counts a worker again that has decided to stay.
    pub(super) fn stay(&self) {
        self.thread_set.counts.workers.fetch_add(1, Ordering::SeqCst);
    }
}
