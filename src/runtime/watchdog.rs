//! The watchdog: thread of a runtime that watches the workers of all groups while any of them runs.
//!
//! It compares each worker with its state at the last look. A worker that completed nothing in between
//! is *stuck*, whatever it does. The watchdog looks at the workers in two ways:
//!
//! * a *tick* takes over from stuck workers what others could do: the poll permit, events that the
//!   worker has taken and not begun, and stealable work. Ticks are short while a worker holds any of
//!   these. They get longer while none does. If no other worker rests, the worker may just be
//!   preempted. Then it counts as stuck after 10 ms, because what the watchdog takes over goes to the
//!   end of the queue;
//! * a *check*, every `thread_deadlock_check_interval`, adds threads to a group in which all workers
//!   are stuck and nothing was completed, or whose queue is long. It reports a handler that has run for
//!   `handler_report_after`, once.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::binding::Binding;
use super::class::Class;
use super::group::Group;
use super::guard;
use super::noise::{log, log_some};
use super::scale::Seen;
use super::thread_kind::ThreadKind;
use super::watch::{Watch, Woke};
use super::worker_slot::WorkerSlot;
use crate::config::Settings;
use crate::stats::Counter;
use crate::sys::clock;
use crate::sys::sched;

pub(super) struct Watchdog {
    watch: Arc<Watch>,
    settings: Arc<Settings>,
    binding: Arc<Binding>,
    cpus: usize,
    groups: Vec<Watched>,
    cpu_time: Option<(Instant, Duration)>,
    pace: Pace,
}

/// A group, and its state at the last look.
struct Watched {
    group: Arc<Group>,
    /// State of every slot at the last check.
    slots: Vec<Stay>,
    /// Beat of every slot at the last tick, and the time at which it was first seen.
    beats: Vec<(u64, Instant)>,
}

/// Time between two ticks.
#[derive(Clone, Copy, Debug)]
struct Pace {
    tick: Duration,
    /// Time since a worker held something.
    quiet: Duration,
}

/// Time that a worker has spent in its current run or wait.
#[derive(Clone, Copy)]
struct Stay {
    beat: u64,
    since: Instant,
    reported: bool,
    /// True if the worker ran. False if it waited or rested.
    ran: bool,
    /// Number of runs completed on this slot, by all threads that had it.
    completed: u64,
}

/// Time between two ticks while a worker holds something. It doubles while none does.
const SHORTEST_TICK: Duration = Duration::from_micros(500);
const LONGEST_TICK: Duration = Duration::from_millis(10);
/// Time after which a worker counts as stuck if no other worker rests. (At 0.5 ms, the p99 beside a
/// flood of duplicate ids was three times as high: preempted workers lost their batches to a long
/// queue.)
const PREEMPTED: Duration = Duration::from_millis(10);
/// Time without a worker that holds something, after which the watchdog sleeps.
const QUIET: Duration = Duration::from_millis(30);
/// Part of the CPUs' time from which a process has no CPU time to spare.
const SATURATED: f64 = 0.9;

impl Watchdog {
    pub(super) fn new(
        watch: Arc<Watch>,
        settings: Arc<Settings>,
        binding: Arc<Binding>,
        groups: &[Arc<Group>],
        cpus: usize,
    ) -> Self {
        let watched = |group: &Arc<Group>| {
            let group = Arc::clone(group);
            Watched { group, slots: Vec::new(), beats: Vec::new() }
        };
        let groups = groups.iter().map(watched).collect();
        Self { watch, settings, binding, cpus, groups, cpu_time: None, pace: Pace::SHORTEST }
    }

    /// Watches until the runtime ends.
    pub(super) fn run(mut self) {
        // The next check compares with this one.
        let mut checked_at = clock::now();
        self.check(checked_at, true);
        loop {
            let interval = self.settings.current().thread_deadlock_check_interval;
            let next_check = (checked_at + interval).saturating_duration_since(clock::now());
            let all_rest = self.all_rest();
            let woke = if !self.pace.is_quiet() {
                self.watch.nap(self.pace.tick.min(next_check))
            } else if all_rest {
                self.watch.sleep(None, || self.all_rest())
            } else {
                self.watch.sleep(Some(next_check), || !self.any_holds())
            };
            let now = clock::now();
            let due = match woke {
                Woke::Stopped => return,
                Woke::Alerted => {
                    self.pace = Pace::SHORTEST;
                    all_rest
                }
                Woke::TimeOut => now.saturating_duration_since(checked_at) >= interval,
            };
            if due {
                checked_at = now;
                // A run that began just now cannot be complete, and a task that was queued just now has
                // not waited. Such states count only at the next check, which compares with this one.
                self.check(now, woke == Woke::Alerted);
            }
            self.tick(now);
        }
    }

    fn all_rest(&self) -> bool {
        self.groups.iter().all(|watched| watched.group.rests())
    }

    fn any_holds(&self) -> bool {
        self.groups.iter().any(|watched| watched.group.any_holds())
    }

    fn tick(&mut self, now: Instant) {
        let mut any_holds = false;
        for watched in &mut self.groups {
            let group = Arc::clone(&watched.group);
            guard(&group, "watchdog", || any_holds |= watched.tick(now));
        }
        self.pace.note(any_holds);
    }

    fn check(&mut self, now: Instant, first: bool) {
        let saturated = self.saturated(now);
        guard(&self.groups[0].group, "watchdog", || {
            if let Err(error) = self.binding.follow_mask() {
                log!(debug, %error, "the mask of the process");
            }
        });
        for watched in &mut self.groups {
            let group = Arc::clone(&watched.group);
            guard(&group, "watchdog", || watched.check(now, saturated, first));
        }
    }

    /// Returns true if the process used about all the CPU time that there was since the last check.
    fn saturated(&mut self, now: Instant) -> bool {
        let Some(used) = sched::process_cpu_time() else { return false };
        let before = self.cpu_time.replace((now, used));
        before.is_some_and(|(then, before)| {
            let elapsed = now.saturating_duration_since(then).as_secs_f64();
            let used = used.saturating_sub(before).as_secs_f64();
            used >= elapsed * self.cpus as f64 * SATURATED
        })
    }
}

impl Pace {
    const SHORTEST: Self = Self { tick: SHORTEST_TICK, quiet: Duration::ZERO };

    fn note(&mut self, any_holds: bool) {
        if any_holds {
            *self = Self::SHORTEST;
        } else {
            self.quiet += self.tick;
            self.tick = (self.tick * 2).min(LONGEST_TICK);
        }
    }

    fn is_quiet(self) -> bool {
        self.quiet >= QUIET
    }
}

impl Watched {
    /// Relieves workers that completed nothing since the last tick. Returns true if any worker holds
    /// something.
    fn tick(&mut self, now: Instant) -> bool {
        let demand = self.group.mode.demand(now);
        let patience = if self.group.park.resting() > 0 { Duration::ZERO } else { PREEMPTED };
        let mut any_holds = false;
        for (index, slot) in self.group.thread_set.slots.iter().enumerate() {
            let beat = slot.beat.load(Ordering::Relaxed);
            let known = index < self.beats.len();
            if !known {
                self.beats.resize(index + 1, (beat, now));
            }
            let (before, since) = self.beats[index];
            if before != beat {
                self.beats[index] = (beat, now);
            }
            if !slot.holds() {
                continue;
            }
            any_holds = true;
            if known && before == beat && now.saturating_duration_since(since) >= patience {
                self.group.relieve(slot, demand);
            }
        }
        any_holds
    }

    fn check(&mut self, now: Instant, saturated: bool, first: bool) {
        let group = &self.group;
        group.count(Counter::WatchdogChecks, 1);
        let report_after = group.config().handler_report_after;
        let (mut progress, mut resting) = (false, 0);
        for (index, slot) in group.thread_set.slots.iter().enumerate() {
            let fresh = Stay::of(slot, now);
            let known = index < self.slots.len();
            if !known {
                // All runs completed on a new slot count as completed since the last check.
                self.slots.resize(index + 1, Stay { completed: 0, ..fresh });
            }
            let stay = &mut self.slots[index];
            let (kind, rests) = (slot.kind(), slot.state.rests());
            if kind != Some(ThreadKind::Reserve) {
                progress |= stay.completed != fresh.completed;
            }
            resting += usize::from(rests && kind.is_some_and(|kind| kind != ThreadKind::Reserve));
            let (Some(kind), true, false) = (kind, known && stay.beat == fresh.beat, rests) else {
                *stay = fresh;
                group.thread_set.end_stuck(slot);
                continue;
            };
            stay.completed = fresh.completed;
            if mem::replace(&mut stay.ran, fresh.ran) && fresh.ran {
                group.thread_set.note_stuck(slot, kind, fresh.beat);
            }
            let stayed = now.saturating_duration_since(stay.since);
            if stayed >= report_after && !stay.reported {
                stay.reported = true;
                report(group, index, slot, stayed);
            }
        }
        if first {
            group.begin_looking();
        } else {
            let saturated = saturated || group.mode.is_crowded(now);
            group.look_after(now, Seen { progress, all_inside: resting == 0, saturated });
        }
    }
}

impl Stay {
    /// State of a slot from which the watchdog starts to measure, at `now`.
    fn of(slot: &WorkerSlot, now: Instant) -> Self {
        Self {
            beat: slot.beat.load(Ordering::Relaxed),
            since: now,
            reported: false,
            ran: slot.state.runs(),
            completed: slot.completed.load(Ordering::Relaxed),
        }
    }
}

/// Reports a handler that runs long, once for each run.
fn report(group: &Group, worker: usize, slot: &WorkerSlot, stayed: Duration) {
    group.count(Counter::HandlersReported, 1);
    let class = Class::from_u8(slot.class.load(Ordering::Relaxed)).name();
    let waits = !slot.state.runs();
    log_some!(
        group,
        Long,
        WARN,
        warn,
        group = group.index(),
        worker,
        class,
        waits,
        at_least = ?stayed,
        "a handler runs long"
    );
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::runtime::park::Rest;
    use crate::runtime::{Builder, Runtime};

    /// Returns a runtime of two workers without threads, its watchdog, and the slots of the workers.
    fn two_workers() -> (Runtime, Watchdog, [usize; 2]) {
        let config = Config::default().epoll_groups(1).epoll_threads_per_group(2).max_threads(2);
        let config = config.reserve_threads_per_group(0);
        let (runtime, watchdog) =
            Builder::default().config(config).assemble(None).expect("descriptors");
        let group = &runtime.handle.shared.groups[0];
        let slots = [(); 2].map(|()| group.thread_set.occupy(ThreadKind::Base));
        (runtime, watchdog, slots)
    }

    #[test]
    fn the_watchdog_sleeps_beside_a_handler_that_holds_nothing() {
        let (runtime, mut watchdog, slots) = two_workers();
        let group = &runtime.handle.shared.groups[0];
        let _ = group.park.rest(false, group.mode.demand(clock::now()));
        let blocked = &group.thread_set.slots[slots[0]].state;
        for has_permit in [false, true] {
            blocked.run(has_permit);
            watchdog.pace = Pace::SHORTEST;
            let mut ticks = 0;
            while !watchdog.pace.is_quiet() {
                watchdog.tick(clock::now());
                ticks += 1;
                assert!(ticks < 10, "a worker with nothing to take keeps the watchdog awake");
            }
            assert!(!blocked.has_permit());
        }
    }

    #[test]
    fn a_worker_is_relieved_at_once_beside_one_that_rests_and_else_after_ten_milliseconds() {
        let (runtime, mut watchdog, slots) = two_workers();
        let group = &runtime.handle.shared.groups[0];
        let mut now = clock::now();
        // The first worker takes the place in epoll and rises from it. The second worker sleeps.
        let rests = [(); 2].map(|()| group.park.rest(false, group.mode.demand(now)));
        group.park.rise(rests[0]);
        let blocked = &group.thread_set.slots[slots[0]];
        let mut ticks_until_relieved = |watchdog: &mut Watchdog| {
            blocked.state.run(true);
            blocked.beat.store(blocked.beat.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let mut ticks = 0;
            while blocked.state.has_permit() {
                watchdog.tick(now);
                now += SHORTEST_TICK;
                ticks += 1;
            }
            // For the next round.
            let _ = group.park.rest(false, group.mode.demand(now));
            group.park.rise(Rest::Wait);
            ticks
        };
        assert_eq!(ticks_until_relieved(&mut watchdog), 2);
        group.park.rise(rests[1]);
        assert_eq!(ticks_until_relieved(&mut watchdog), 2 + 19);
    }
}
