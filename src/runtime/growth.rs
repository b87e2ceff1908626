//! How a group gets more threads, and lets added ones leave.

use std::sync::atomic::Ordering;

use super::group::Group;
use super::noise::{log, log_some};
use super::scale::{Load, Rules, Scale, Seen};
use super::threads::{Refusal, ThreadReason};
use super::worker_slot::ThreadKind;
use crate::stats::Counter;
use crate::sync::shim::atomic::AtomicUsize;
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};

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

    /// Passes on the largest number of threads that waited at once since the last call. If a wait finds
    /// enough free threads, it adds none and only raises that number. Threads that such waits need do
    /// not leave, because their number is noted here.
    fn note_peak(&self, scale: &mut Scale, now: Instant) {
        let peak = self.thread_set.take_peak_stalled();
        scale.note_stalled(now, peak, self.config().epoll_threads_per_group, &self.rules());
    }

    /// Starts or calls other threads if they are needed in place of a worker that is about to wait.
    pub(super) fn see_to_stall(&self, kind: ThreadKind) {
        if kind != ThreadKind::Reserve && Scale::concerns(&self.threads_load(), &self.rules()) {
            self.grow_for_stalls();
        }
        self.call_reserve_if_needed();
    }

    fn call_reserve_if_needed(&self) {
        if self.config().reserve_threads_per_group == 0 || !self.thread_set.call_reserve() {
            return;
        }
        let forget = || self.thread_set.forget_reserve();
        self.start_thread(ThreadKind::Reserve, ThreadReason::Reserve, forget);
    }

    fn grow_for_stalls(&self) {
        let added = {
            let mut state = lock(&self.thread_set.state);
            let added = state.scale.on_stall(clock::now(), &self.load(), &self.rules());
            self.thread_set.counts.workers.fetch_add(added, Ordering::SeqCst);
            added
        };
        self.start_claimed(added, ThreadReason::Stall);
    }

    // ---- the watchdog's part ----

    /// Starts a series of checks. The watchdog has woken, and compares later checks with this moment.
    pub(super) fn begin_looking(&self) {
        lock(&self.thread_set.state).scale.begin_looking();
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
        self.start_claimed(growth.stuck, ThreadReason::Watchdog);
        self.start_claimed(growth.backlog, ThreadReason::Backlog);
        self.call_reserve_if_needed();
    }

    /// Starts workers that are already counted.
    fn start_claimed(&self, count: usize, reason: ThreadReason) {
        for started in 0..count {
            let workers = &self.thread_set.counts.workers;
            let forget = || {
                workers.fetch_sub(count - started, Ordering::SeqCst);
            };
            if !self.start_thread(ThreadKind::Worker, reason, forget) {
                return;
            }
        }
    }

    /// Starts a thread that is already counted. Returns false if it was refused. `forget` then takes it from
    /// the count, before the counter of refusals rises: a wait that begins after that finds the thread missing.
    fn start_thread(&self, kind: ThreadKind, reason: ThreadReason, forget: impl FnOnce()) -> bool {
        let started = match self.me.upgrade() {
            Some(group) => self.threads.start_added(&group, kind, reason),
            None => Err(Refusal::Ended),
        };
        if started.is_err() {
            forget();
        }
        let logs = self.config().enable_thread_pool_log;
        match &started {
            Ok(name) => {
                if let Some(counter) = reason.counter() {
                    self.count(counter, 1);
                }
                if logs {
                    log!(debug, group = self.index(), name, %reason, "thread");
                }
            }
            Err(Refusal::Limited) => self.count(Counter::ThreadsLimited, 1),
            Err(Refusal::Ended) => {}
            Err(Refusal::Failed(error)) => {
                self.count(Counter::ThreadStartFailed, 1);
                if logs {
                    log_some!(self, Thread, DEBUG, debug, group = self.index(), %error, "no thread");
                }
            }
        }
        started.is_ok()
    }

    /// Returns true if an added worker must leave. It is no longer counted then.
    pub(super) fn may_leave(&self, now: Instant) -> bool {
        let mut state = lock(&self.thread_set.state);
        self.note_peak(&mut state.scale, now);
        state.scale.may_leave(now, &self.load(), &self.rules())
            && self.thread_set.may_leave(|| !self.run_queues.is_empty())
    }
}
