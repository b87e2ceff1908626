//! [`Crew`]: the threads of a group, how many of them wait, and who comes and goes.
//!
//! ```text
//!             base workers      for life
//!  ordinary ─ added workers     while handlers wait, or the queue is long
//!  reserve                      standing by; called when no ordinary thread is free, for urgent
//!                               work alone, until one is free again
//! ```
//!
//! Counts are atomics, so that an announced stall costs no lock while there are threads enough. They
//! change under the lock of [`State`] where a decision hangs on them.

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
pub(super) struct Crew {
    pub(super) seats: Seats,
    pub(super) counts: CachePadded<Counts>,
    pub(super) state: Mutex<State>,
    /// For the reserve that stands by: it is called, or the group stops.
    pub(super) called: Condvar,
}

/// Threads count from the decision to start them until they have decided to leave.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Base and added workers.
    workers: AtomicUsize,
    /// Ordinary threads that announced a wait.
    stalled: AtomicUsize,
    /// The most that did so at once, since somebody last took a note of it.
    peak_stalled: AtomicUsize,
    /// Ordinary threads that the watchdog found stuck, and that have not got any further since.
    stuck: AtomicUsize,
    /// Reserve threads, standing by or not.
    pub(super) reserve: AtomicUsize,
    /// Those that were called.
    pub(super) active: AtomicUsize,
    /// Of these, those that wait, and those that are stuck.
    reserve_stalled: AtomicUsize,
    reserve_stuck: AtomicUsize,
    /// Of these, those that run a login.
    pub(super) logins: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct State {
    scale: Scale,
    /// Seats that nobody sits on.
    vacant: Vec<usize>,
    /// Reserve threads that wait to be called.
    pub(super) standby: usize,
    /// Calls that nobody has answered yet.
    pub(super) calls: usize,
}

impl Crew {
    /// With seats for so many threads that are there for life, in this order.
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

    /// A seat for a thread that is about to start.
    pub(super) fn sit(&self, kind: ThreadKind) -> usize {
        let vacant = lock(&self.state).vacant.pop();
        let seat = vacant.unwrap_or_else(|| self.seats.add());
        self.seats[seat].sit(kind);
        seat
    }

    /// The thread is gone, or never came.
    pub(super) fn vacate(&self, seat: usize) {
        self.seats[seat].vacate();
        lock(&self.state).vacant.push(seat);
    }

    /// Returns true if an ordinary thread is at rest, and so free even if its wait still counts.
    pub(super) fn somebody_rests(&self) -> bool {
        let ordinary = |kind| kind != ThreadKind::Reserve;
        self.seats.iter().any(|seat| seat.state.rests() && seat.kind().is_some_and(ordinary))
    }

    pub(super) fn free_reserve(&self) -> usize {
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        load(&self.counts.active)
            .saturating_sub(load(&self.counts.reserve_stalled) + load(&self.counts.reserve_stuck))
    }

    /// Threads that would serve the group if they were not at rest.
    pub(super) fn serving(&self) -> usize {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        load(&self.counts.workers) + load(&self.counts.active)
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        for seat in self.seats.iter() {
            // By seat, and not as they are counted: that is before it is known whether they may come.
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

    /// Everybody who stands by looks whether the group stops.
    pub(super) fn stop(&self) {
        drop(lock(&self.state));
        self.called.notify_all();
    }
}

impl Group {
    fn load(&self) -> Load {
        Load {
            sessions: self.sessions(),
            queued: self.lanes.len(),
            capacity: self.config().epoll_work_queue_capacity,
            ..self.threads_load()
        }
    }

    /// The part of it that takes no lock.
    fn threads_load(&self) -> Load {
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let (config, counts) = (self.config(), &self.crew.counts);
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

    /// Ordinary threads that run or could run whatever comes.
    pub(super) fn free(&self) -> usize {
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let counts = &self.crew.counts;
        load(&counts.workers).saturating_sub(load(&counts.stalled) + load(&counts.stuck))
    }

    /// Takes note of how many waited at once since the last time. Most waits that find threads
    /// enough do nothing but raise that number; no thread they needed leaves because of it.
    fn note_peak(&self, scale: &mut Scale, now: Instant) {
        let counts = &self.crew.counts;
        let peak =
            counts.peak_stalled.swap(counts.stalled.load(Ordering::SeqCst), Ordering::Relaxed);
        scale.note_stalled(now, peak, self.config().epoll_threads_per_group, &self.rules());
    }

    // ---- stalls ----

    /// Counts a thread of this kind that waits from now on, until [`end_stall`](Self::end_stall). Its seat
    /// shows that already, so that it is not counted among the stuck too.
    pub(super) fn begin_stall(&self, kind: ThreadKind, seat: &Seat) {
        self.count(Counter::Stalls, 1);
        let stalled = self.crew.stalled(kind).fetch_add(1, Ordering::SeqCst) + 1;
        let peak = &self.crew.counts.peak_stalled;
        if kind != ThreadKind::Reserve && stalled > peak.load(Ordering::Relaxed) {
            peak.fetch_max(stalled, Ordering::Relaxed);
        }
        // SeqCst: pairs with the fence in `note_stuck`. Either this look sees that the worker is counted
        // among the stuck, or the watchdog sees that it waits.
        fence(Ordering::SeqCst);
        self.end_stuck(seat);
    }

    /// Sees to it that others go on in place of one that is about to wait.
    pub(super) fn see_to_stall(&self, kind: ThreadKind) {
        if kind != ThreadKind::Reserve && Scale::concerns(&self.threads_load(), &self.rules()) {
            self.grow_for_stalls();
        }
        self.call_reserve_if_needed();
    }

    pub(super) fn end_stall(&self, kind: ThreadKind) {
        self.crew.stalled(kind).fetch_sub(1, Ordering::SeqCst);
    }

    fn grow_for_stalls(&self) {
        let added = {
            let mut state = lock(&self.crew.state);
            let added = state.scale.on_stall(clock::now(), &self.load(), &self.rules());
            self.crew.counts.workers.fetch_add(added, Ordering::SeqCst);
            added
        };
        self.start_claimed(added, Counter::ThreadsStartedStall);
    }

    // ---- the watchdog's part ----

    /// The watchdog has woken: what it sees from now on counts.
    pub(super) fn begin_looking(&self) {
        lock(&self.crew.state).scale.begin_looking();
    }

    /// The worker on this seat has been in the same run since the watchdog looked last, when that run
    /// was at this beat.
    pub(super) fn note_stuck(&self, seat: &Seat, kind: ThreadKind, beat: u64) {
        if seat.is_stuck() {
            return;
        }
        self.crew.stuck(kind).fetch_add(1, Ordering::SeqCst);
        seat.set_stuck(kind);
        // SeqCst: pairs with the fence in `Park::rest`. Either a worker that comes to rest sees that it
        // is counted, or this look sees that it has got further.
        fence(Ordering::SeqCst);
        if seat.beat.load(Ordering::Relaxed) != beat || !seat.state.runs() {
            self.end_stuck(seat);
        }
    }

    /// The worker on this seat has got further, or waits, or is gone.
    pub(super) fn end_stuck(&self, seat: &Seat) {
        if seat.is_stuck()
            && let Some(kind) = seat.take_stuck()
        {
            self.crew.stuck(kind).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// What the watchdog found decides who is added.
    pub(super) fn look_after(&self, now: Instant, seen: Seen) {
        let counts = &self.crew.counts;
        let growth = {
            let mut state = lock(&self.crew.state);
            self.note_peak(&mut state.scale, now);
            let growth = state.scale.on_check(now, &self.load(), seen, &self.rules());
            counts.workers.fetch_add(growth.stuck + growth.backlog, Ordering::SeqCst);
            growth
        };
        self.start_claimed(growth.stuck, Counter::ThreadsStartedWatchdog);
        self.start_claimed(growth.backlog, Counter::ThreadsStartedBacklog);
        self.call_reserve_if_needed();
    }

    /// Starts workers that are counted already.
    fn start_claimed(&self, count: usize, reason: Counter) {
        for started in 0..count {
            if self.start_thread(ThreadKind::Worker, reason).is_err() {
                self.crew.counts.workers.fetch_sub(count - started, Ordering::SeqCst);
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
        self.crew.counts.workers.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns true if an added worker is to leave; it is not counted any more then.
    pub(super) fn may_leave(&self, now: Instant) -> bool {
        let mut state = lock(&self.crew.state);
        self.note_peak(&mut state.scale, now);
        if !state.scale.may_leave(now, &self.load(), &self.rules()) {
            return false;
        }
        self.crew.counts.workers.fetch_sub(1, Ordering::SeqCst);
        // SeqCst: pairs with the fence in `Park::wake`. Whoever pushed something and then began to wait
        // because this thread was there, is seen by the look at the queue that follows.
        fence(Ordering::SeqCst);
        if self.free() == 0 {
            // The last other one began to wait at this moment, and saw that this one was still there.
            self.stay();
            return false;
        }
        true
    }

    /// It stays after all.
    pub(super) fn stay(&self) {
        self.crew.counts.workers.fetch_add(1, Ordering::SeqCst);
    }
}
