//! Decides when a group gets more threads and when they leave. Pure: it takes numbers and times, and
//! returns numbers of threads.
//!
//! There are three grades, from certain need to possible need:
//!
//! 1. *instant*: a handler announces that it waits. If too many handlers wait, a worker is added
//!    ([`Scale::on_stall`]);
//! 2. *soon*: the watchdog finds that every thread is inside a handler and that no handler was
//!    completed since its last check. It adds 1, 2, 4 … workers while that lasts ([`Scale::on_check`]);
//! 3. *backlog*: the watchdog finds the queue long, although handlers complete and the CPUs have time
//!    to spare. It adds workers too.
//!
//! Added workers leave if fewer were needed for a whole `dynamic_threads_shrink_time`. The need is
//! remembered as a peak over that time. So a wait that switches on and off keeps the threads that it
//! needs: they do not come and go. And one busy moment does not keep all threads.

use crate::sys::clock::Instant;
use std::time::Duration;

/// Threads of a group, and the work that they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Permanent threads.
    pub(super) base: usize,
    /// Base threads and added workers.
    pub(super) workers: usize,
    /// Workers whose handler has announced a wait.
    pub(super) stalled: usize,
    /// Workers that the watchdog found in the same handler twice.
    pub(super) stuck: usize,
    /// Everything that could use a thread of its own: registered sources, sessions, and closures in
    /// progress.
    pub(super) sessions: usize,
    /// Tasks in the queue.
    pub(super) queued: usize,
    /// Places in the queue.
    pub(super) capacity: usize,
}

impl Load {
    /// Number of threads that run or could run a task.
    pub(super) const fn free(&self) -> usize {
        self.workers.saturating_sub(self.stalled + self.stuck)
    }

    /// Number of workers that may be added before each session, or each thread that waits, has a thread
    /// beyond the base. A session may have several that wait: one for each call of `released`.
    fn room(&self) -> usize {
        let users = self.sessions.max(self.stalled + self.stuck);
        (users + self.base).saturating_sub(self.workers)
    }
}

/// Tunables for these decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// `thread_scale_thresh`.
    pub(super) thresh: usize,
    /// `dynamic_threads`.
    pub(super) dynamic_threads: usize,
    /// `dynamic_threads_shrink_time`.
    pub(super) shrink_time: Duration,
    /// `tasker_multiply`; `None` if taskers are not enabled.
    pub(super) tasker_multiply: Option<usize>,
    /// `tasker_extend_step`.
    pub(super) tasker_extend_step: usize,
}

impl Rules {
    /// Number of waiting threads for which no worker is added. At least one base thread must not wait.
    fn tolerated(&self, base: usize) -> usize {
        self.thresh.min(base.saturating_sub(1))
    }

    fn preferred(&self, base: usize) -> usize {
        base + self.dynamic_threads
    }
}

/// State of a group, as the watchdog saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// A handler or task was completed since the last check.
    pub(super) progress: bool,
    /// Every thread is inside a handler, so no worker serves the queue or waits in epoll.
    pub(super) all_inside: bool,
    /// The process uses about all the CPU time that it can get.
    pub(super) saturated: bool,
}

/// Number of workers to add, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct Growth {
    /// No handler completes.
    pub(super) stuck: usize,
    /// The queue is long.
    pub(super) backlog: usize,
}

/// State from which a group decides about its threads.
#[derive(Debug)]
pub(super) struct Scale {
    /// Number of workers to add at the next check without progress.
    next_step: usize,
    /// Workers beyond the base that were needed at once.
    added: Peak,
}

impl Scale {
    pub(super) const fn new(now: Instant) -> Self {
        Self { next_step: 1, added: Peak::new(now) }
    }

    /// Returns true if a stall may need more workers. It needs only the counts of threads, so that most
    /// stalls take no lock.
    pub(super) fn concerns(load: &Load, rules: &Rules) -> bool {
        load.stalled + load.base > load.workers + rules.tolerated(load.base)
            || rules.dynamic_threads > 0 && load.workers < rules.preferred(load.base)
    }

    /// Notes the need of `stalled` threads that waited at once, whether or not there were enough
    /// workers.
    pub(super) fn note_stalled(
        &mut self,
        now: Instant,
        stalled: usize,
        base: usize,
        rules: &Rules,
    ) {
        let needed = stalled.saturating_sub(rules.tolerated(base));
        self.added.note(now, rules.shrink_time, needed);
    }

    /// Returns the number of workers to add after a handler has announced a wait. `load` includes that
    /// wait.
    pub(super) fn on_stall(&mut self, now: Instant, load: &Load, rules: &Rules) -> usize {
        self.note_stalled(now, load.stalled, load.base, rules);
        let mut wanted = load.base + load.stalled.saturating_sub(rules.tolerated(load.base));
        // If there are enough workers for the waits, but more than a quarter of the workers wait,
        // the group grows to the preferred number at once.
        if load.workers >= wanted && load.stalled > load.workers / 4 {
            wanted = rules.preferred(load.base);
        }
        wanted.saturating_sub(load.workers).min(load.room())
    }

    /// Starts a series of checks, after all workers rested.
    pub(super) fn begin_looking(&mut self) {
        self.next_step = 1;
    }

    /// Returns the number of workers to add at a check of the watchdog.
    pub(super) fn on_check(
        &mut self,
        now: Instant,
        load: &Load,
        seen: Seen,
        rules: &Rules,
    ) -> Growth {
        self.note_stalled(now, load.stalled + load.stuck, load.base, rules);
        if seen.progress {
            self.next_step = 1;
        }
        if seen.all_inside && !seen.progress {
            let step = self.next_step;
            self.next_step = (step * 2).min(LARGEST_STEP);
            return Growth { stuck: step.min(load.room()), backlog: 0 };
        }
        Growth { stuck: 0, backlog: self.for_backlog(now, load, seen, rules) }
    }

    fn for_backlog(&mut self, now: Instant, load: &Load, seen: Seen, rules: &Rules) -> usize {
        let Some(multiply) = rules.tasker_multiply else { return 0 };
        let half_full = load.queued * 2 > load.capacity;
        let long = half_full || load.queued > multiply * load.workers;
        let useful = load.workers < load.sessions && load.workers < load.queued;
        // If all CPUs are busy, another thread would only take turns with the others.
        let added = if long && useful && !seen.saturated {
            ((load.queued - load.workers) / multiply).clamp(1, rules.tasker_extend_step)
        } else {
            0
        };
        // A queue half as long keeps the present workers, so that they do not come and go.
        if half_full || load.queued > (multiply / 2).max(1) * load.workers {
            let needed = (load.workers + added).saturating_sub(load.base);
            self.added.note(now, rules.shrink_time, needed);
        }
        added
    }

    /// Returns true if the group has more added workers than it needs and another worker is free.
    pub(super) fn may_leave(&mut self, now: Instant, load: &Load, rules: &Rules) -> bool {
        let needed = self.added.needed(now, rules.shrink_time).max(rules.dynamic_threads);
        load.workers > load.base + needed && load.free() > 1
    }
}

/// Limits the growth at one check. Growth must help soon, but a hundred threads must not start where
/// one would have been enough.
const LARGEST_STEP: usize = 64;

/// Largest value noted recently: in the current window or in the one before.
#[derive(Debug)]
struct Peak {
    since: Instant,
    before: usize,
    current: usize,
}

impl Peak {
    const fn new(now: Instant) -> Self {
        Self { since: now, before: 0, current: 0 }
    }

    fn note(&mut self, now: Instant, window: Duration, value: usize) {
        self.turn(now, window);
        self.current = self.current.max(value);
    }

    fn needed(&mut self, now: Instant, window: Duration) -> usize {
        self.turn(now, window);
        self.before.max(self.current)
    }

    fn turn(&mut self, now: Instant, window: Duration) {
        let elapsed = now.duration_since(self.since);
        if elapsed >= window {
            self.before = if elapsed < window * 2 { self.current } else { 0 };
            self.current = 0;
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        thresh: 2,
        dynamic_threads: 0,
        shrink_time: Duration::from_secs(10),
        tasker_multiply: Some(3),
        tasker_extend_step: 2,
    };

    const LOAD: Load = Load {
        base: 4,
        workers: 4,
        stalled: 0,
        stuck: 0,
        sessions: 1000,
        queued: 0,
        capacity: 256,
    };

    const STUCK: Seen = Seen { progress: false, all_inside: true, saturated: false };
    const BUSY: Seen = Seen { progress: true, all_inside: true, saturated: false };

    #[test]
    fn stalls_beyond_the_threshold_get_a_worker_each() {
        // Base, threshold, workers, stalled, sessions, dynamic_threads: workers to add.
        let table = [
            (4, 2, 4, 1, 1000, 0, 0),
            (4, 2, 4, 2, 1000, 0, 0),
            (4, 2, 4, 3, 1000, 0, 1),
            (4, 2, 5, 3, 1000, 0, 0),
            (4, 2, 5, 4, 1000, 0, 1),
            // Whatever the threshold, one thread stays free.
            (4, 100, 4, 4, 1000, 0, 1),
            (1, 2, 1, 1, 1000, 0, 1),
            (4, 0, 4, 1, 1000, 0, 1),
            // A worker was refused before. It is added now.
            (4, 2, 4, 5, 1000, 0, 3),
            // More threads than sessions and base together are of no use, unless all wait.
            (4, 2, 6, 4, 2, 0, 0),
            (4, 2, 6, 6, 2, 0, 2),
            // Growth goes to the preferred number at once.
            (4, 2, 4, 1, 1000, 3, 0),
            (4, 2, 4, 2, 1000, 3, 3),
            (4, 2, 7, 4, 1000, 3, 0),
        ];
        for (base, thresh, workers, stalled, sessions, dynamic_threads, expected) in table {
            let now = Instant::now();
            let load = Load { base, workers, stalled, sessions, ..LOAD };
            let rules = Rules { thresh, dynamic_threads, ..RULES };
            let added = Scale::new(now).on_stall(now, &load, &rules);
            assert_eq!(added, expected, "{load:?} {rules:?}");
            assert!(added == 0 || Scale::concerns(&load, &rules), "{load:?} {rules:?}");
        }
    }

    #[test]
    fn without_progress_growth_doubles_and_with_it_starts_again() {
        let now = Instant::now();
        let mut scale = Scale::new(now);
        let mut steps = Vec::new();
        for _ in 0..5 {
            steps.push(scale.on_check(now, &LOAD, STUCK, &RULES).stuck);
        }
        assert_eq!(steps, [1, 2, 4, 8, 16]);
        assert_eq!(scale.on_check(now, &LOAD, BUSY, &RULES), Growth::default());
        assert_eq!(scale.on_check(now, &LOAD, STUCK, &RULES).stuck, 1);
    }

    #[test]
    fn sixteen_sleepers_on_four_threads_take_five_checks() {
        let now = Instant::now();
        let mut scale = Scale::new(now);
        let mut workers = 4;
        let mut checks = 0;
        while workers <= 16 {
            checks += 1;
            let load = Load { workers, sessions: 18, ..LOAD };
            workers += scale.on_check(now, &load, STUCK, &RULES).stuck;
        }
        assert!(checks <= 5, "{checks} checks");
    }

    #[test]
    fn growth_ends_at_sessions_and_base_unless_more_threads_wait() {
        let now = Instant::now();
        let load = Load { workers: 6, sessions: 2, ..LOAD };
        assert_eq!(Scale::new(now).on_check(now, &load, STUCK, &RULES).stuck, 0);
        let load = Load { stuck: 6, ..load };
        assert_eq!(Scale::new(now).on_check(now, &load, STUCK, &RULES).stuck, 1);
    }

    #[test]
    fn a_long_queue_gets_threads() {
        let seen = Seen { progress: true, ..Seen::default() };
        let saturated = Seen { saturated: true, ..seen };
        // Queued, workers, sessions, seen: workers to add.
        let table = [
            (12, 4, 1000, seen, 0),
            (13, 4, 1000, seen, 2),
            (13, 4, 1000, saturated, 0),
            (13, 5, 1000, seen, 0),
            (129, 60, 1000, seen, 2),
            // No more workers than sessions.
            (13, 4, 4, seen, 0),
            (17, 5, 1000, seen, 2),
        ];
        for (queued, workers, sessions, seen, expected) in table {
            let now = Instant::now();
            let load = Load { queued, workers, sessions, ..LOAD };
            let growth = Scale::new(now).on_check(now, &load, seen, &RULES);
            assert_eq!(growth, Growth { stuck: 0, backlog: expected }, "{load:?} {seen:?}");
        }
        let now = Instant::now();
        let rules = Rules { tasker_multiply: None, ..RULES };
        let load = Load { queued: 200, ..LOAD };
        assert_eq!(Scale::new(now).on_check(now, &load, seen, &rules), Growth::default());
    }

    #[test]
    fn a_worker_leaves_when_for_the_shrink_time_fewer_were_needed() {
        let start = Instant::now();
        let mut scale = Scale::new(start);
        let stalled = Load { stalled: 6, ..LOAD };
        assert_eq!(scale.on_stall(start, &stalled, &RULES), 4);
        let calm = Load { workers: 8, ..LOAD };
        let shrink = RULES.shrink_time;
        assert!(!scale.may_leave(start + shrink / 2, &calm, &RULES));
        assert!(!scale.may_leave(start + shrink, &calm, &RULES), "the last window counts");
        assert!(scale.may_leave(start + shrink * 2, &calm, &RULES));
        let base = Load { workers: 4, ..LOAD };
        assert!(!scale.may_leave(start + shrink * 2, &base, &RULES), "the base stays");
        let rules = Rules { dynamic_threads: 4, ..RULES };
        assert!(!scale.may_leave(start + shrink * 2, &calm, &rules), "they are preferred");
    }

    #[test]
    fn one_busy_moment_keeps_only_the_threads_it_needed() {
        let start = Instant::now();
        let mut scale = Scale::new(start);
        let _ = scale.on_stall(start, &Load { stalled: 20, ..LOAD }, &RULES);
        let later = start + RULES.shrink_time + Duration::from_secs(1);
        let _ = scale.on_stall(later, &Load { stalled: 3, workers: 22, ..LOAD }, &RULES);
        let still_later = later + RULES.shrink_time;
        let load = |workers| Load { workers, ..LOAD };
        assert!(scale.may_leave(still_later, &load(22), &RULES));
        assert!(scale.may_leave(still_later, &load(6), &RULES));
        assert!(!scale.may_leave(still_later, &load(5), &RULES));
    }

    #[test]
    fn a_wait_that_comes_and_goes_makes_nobody_leave() {
        let mut now = Instant::now();
        let mut scale = Scale::new(now);
        let mut workers = 4;
        let mut started = 0;
        for round in 0..1000 {
            now += Duration::from_millis(100);
            let stalled = if round % 2 == 0 { 8 } else { 0 };
            let load = Load { workers, stalled, ..LOAD };
            let added = scale.on_stall(now, &load, &RULES);
            workers += added;
            started += added;
            assert!(!scale.may_leave(now, &Load { workers, ..load }, &RULES));
        }
        assert_eq!(started, 6);
    }

    #[test]
    fn the_last_free_thread_does_not_leave() {
        let start = Instant::now();
        let later = start + RULES.shrink_time * 3;
        let mut scale = Scale::new(start);
        let load = Load { workers: 6, stalled: 5, ..LOAD };
        assert!(!scale.may_leave(later, &load, &RULES));
    }

    #[test]
    fn workers_leave_when_the_queue_was_short_for_the_shrink_time() {
        let start = Instant::now();
        let mut scale = Scale::new(start);
        let load = |workers, queued| Load { workers, queued, ..LOAD };
        let seen = Seen { progress: true, ..Seen::default() };
        assert_eq!(scale.on_check(start, &load(4, 13), seen, &RULES).backlog, 2);
        // Too short for more workers, too long for fewer.
        let half = start + RULES.shrink_time;
        assert_eq!(scale.on_check(half, &load(6, 7), seen, &RULES), Growth::default());
        let short = half + RULES.shrink_time;
        assert!(!scale.may_leave(short, &load(6, 0), &RULES));
        assert_eq!(scale.on_check(short, &load(6, 6), seen, &RULES), Growth::default());
        assert!(scale.may_leave(half + RULES.shrink_time * 2, &load(6, 0), &RULES));
        assert!(!scale.may_leave(half + RULES.shrink_time * 2, &load(4, 0), &RULES), "the base");
    }
}
