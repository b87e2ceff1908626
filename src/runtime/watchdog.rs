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
use std::time::Duration;

use super::binding::Binding;
use super::class::Class;
use super::group::Group;
use super::noise::{log, log_some};
use super::scale::Seen;
use super::watch::{Watch, Woke};
use super::worker_slot::ThreadKind;
use super::worker_slot::WorkerSlot;
use crate::config::Settings;
use crate::stats::Counter;
use crate::sys::clock::{self, Instant};
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
    /// By number of the worker slot.
    stays: Vec<Stay>,
}

/// Time between two ticks.
#[derive(Clone, Copy, Debug)]
struct Pace {
    tick: Duration,
    /// Time since a worker held something.
    quiet: Duration,
}

/// Stay of a worker in its current run or wait.
#[derive(Default)]
struct Stay {
    /// Time of the first look that found the worker there. `None` if it rested at the last look, or
    /// the slot was vacant.
    since: Option<Instant>,
    /// Number of completed runs at the last look.
    progress: u64,
    reported: bool,
    /// Number of completed runs at the last check.
    checked: u64,
    /// True if the worker ran at the last check. False if it waited or rested.
    ran: bool,
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
/// Part of the CPUs' time. A process that uses at least this part has no CPU time to spare.
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
            Watched { group, stays: Vec::new() }
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
            let next_check = (checked_at + interval).duration_since(clock::now());
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
                Woke::TimeOut => now.duration_since(checked_at) >= interval,
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
            group.guard("watchdog", || any_holds |= watched.tick(now));
        }
        self.pace.note(any_holds);
    }

    fn check(&mut self, now: Instant, first: bool) {
        let saturated = self.saturated(now);
        self.groups[0].group.guard("watchdog", || {
            if let Err(error) = self.binding.follow_mask() {
                log!(debug, %error, "the mask of the process");
            }
        });
        for watched in &mut self.groups {
            let group = Arc::clone(&watched.group);
            group.guard("watchdog", || watched.check(now, saturated, first));
        }
    }

    /// Returns true if the process used about all the CPU time that there was since the last check.
    fn saturated(&mut self, now: Instant) -> bool {
        let Some(used) = sched::process_cpu_time() else { return false };
        let before = self.cpu_time.replace((now, used));
        before.is_some_and(|(then, before)| {
            let elapsed = now.duration_since(then).as_secs_f64();
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
        let patience = if self.group.park.resting() > 0 { SHORTEST_TICK } else { PREEMPTED };
        let mut any_holds = false;
        for (index, slot) in self.group.thread_set.slots.iter().enumerate() {
            let stayed = stay_at(&mut self.stays, index).look(slot, now);
            if slot.holds() {
                any_holds = true;
                if stayed >= patience {
                    self.group.relieve(slot, demand);
                }
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
            let stay = stay_at(&mut self.stays, index);
            if first {
                // All workers have rested since the last look.
                (stay.since, stay.ran) = (None, false);
            }
            let stayed = stay.look(slot, now);
            let (kind, runs) = (slot.kind(), slot.state.runs());
            let completed = mem::replace(&mut stay.checked, stay.progress) != stay.progress;
            let ran = mem::replace(&mut stay.ran, runs);
            if kind != Some(ThreadKind::Reserve) {
                progress |= completed;
                resting += usize::from(kind.is_some() && slot.state.rests());
            }
            if let Some(kind) = kind
                && (ran && runs && !completed)
            {
                // If the worker still has its permit, the next tick takes it, and the next check
                // counts the worker.
                group.thread_set.note_stuck(slot, kind);
            }
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
    /// Compares the worker with the last look. Returns the time since the first look that found it in
    /// its current run or wait.
    ///
    /// A rest between two looks goes unseen if the worker was between two runs at the first look. Then
    /// its current run seems to be as long as the time between the looks. The consequence is small:
    /// after a tick, others take over early what the worker holds. After a check, that run counts as
    /// stuck.
    fn look(&mut self, slot: &WorkerSlot, now: Instant) -> Duration {
        let progress = slot.progress.load(Ordering::Relaxed);
        let is_inside = slot.kind().is_some() && !slot.state.rests();
        if !is_inside || self.since.is_none() || self.progress != progress {
            self.since = is_inside.then_some(now);
            self.progress = progress;
            self.reported = false;
        }
        self.since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }
}

fn stay_at(stays: &mut Vec<Stay>, index: usize) -> &mut Stay {
    if index == stays.len() {
        stays.push(Stay::default());
    }
    &mut stays[index]
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
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::config::Config;
    use crate::runtime::park::Rest;
    use crate::runtime::{Builder, Runtime};

    /// Returns a runtime of two workers without threads, its watchdog, and the slots of the workers.
    fn two_workers() -> (Runtime, Watchdog, [usize; 2]) {
        let config = Config::default()
            .epoll_groups(1)
            .epoll_threads_per_group(2)
            .max_threads(2)
            .reserve_threads_per_group(0)
            .thread_deadlock_check_interval(Duration::from_millis(50));
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
            let (mut now, mut ticks) = (clock::now(), 0);
            while !watchdog.pace.is_quiet() {
                watchdog.tick(now);
                now += watchdog.pace.tick;
                ticks += 1;
                assert!(ticks < 10, "a worker with nothing to take keeps the watchdog awake");
            }
            assert!(!blocked.has_permit());
        }
    }

    #[test]
    fn beside_a_handler_that_holds_nothing_the_watchdog_wakes_only_for_its_checks() {
        const CHECKS: usize = 5;
        let (runtime, mut watchdog, slots) = two_workers();
        let group = Arc::clone(&runtime.handle.shared.groups[0]);
        let _ = group.park.rest(false, group.mode.demand(clock::now()));
        group.thread_set.slots[slots[0]].state.run(false);
        while !watchdog.pace.is_quiet() {
            watchdog.pace.note(false);
        }
        // Looks at the clock by the number of checks before. There are two in a turn of the loop.
        let looks = Arc::new([const { AtomicUsize::new(0) }; CHECKS + 1]);
        let (looks_2, handle) = (Arc::clone(&looks), runtime.handle.clone());
        clock::at_each_look(move || {
            let checks = handle.stats().get(Counter::WatchdogChecks) as usize;
            looks_2[checks].fetch_add(1, Ordering::Relaxed);
            if checks == CHECKS {
                handle.shared.watch.stop();
            }
        });
        watchdog.run();
        clock::at_each_look(|| ());
        let looks = looks.each_ref().map(|looks| looks.load(Ordering::Relaxed));
        assert_eq!(looks[1..CHECKS], [2; CHECKS - 1], "the watchdog wakes between two checks");
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
            blocked.progress.store(blocked.progress.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
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

    #[test]
    fn a_run_after_a_long_rest_is_not_a_long_run() {
        let (runtime, mut watchdog, slots) = two_workers();
        let group = Arc::clone(&runtime.handle.shared.groups[0]);
        let state = &group.thread_set.slots[slots[0]].state;
        let reports = || runtime.stats().get(Counter::HandlersReported);
        let now = clock::now();
        let later = now + group.config().handler_report_after;
        // At the last look before the rest, the worker is between two runs.
        state.run(false);
        watchdog.check(now, true);
        let _ = state.rest();
        state.run(false);
        watchdog.check(later, true);
        assert_eq!(reports(), 0, "the rest counts as a run");
        watchdog.check(later + group.config().handler_report_after, false);
        assert_eq!(reports(), 1);
    }
}
