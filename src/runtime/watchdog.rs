//! The watchdog: one thread of a runtime that looks at all groups, now and then, while anything runs.
//!
//! It compares each worker with what it was at the last look. A worker that is still in the same
//! handler is *stuck*, whatever it does there; a group in which all are, and in which nothing was
//! completed, gets more threads. A handler that stays for `handler_report_after` is reported, once.

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
use super::seats::Seat;
use super::threads::ThreadKind;
use super::watch::{Watch, Woke};
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
}

/// A group, and what it was like at the last look.
struct Watched {
    group: Arc<Group>,
    seats: Vec<Stay>,
}

/// How long a worker has been where it is.
#[derive(Clone, Copy)]
struct Stay {
    beat: u64,
    since: Instant,
    reported: bool,
    /// It ran, and did not wait.
    ran: bool,
    /// What had been completed on its seat, by whoever sat there.
    completed: u64,
}

/// The part of the CPUs' time above which a process has no more to spare.
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
            Watched { group, seats: Vec::new() }
        };
        let groups = groups.iter().map(watched).collect();
        Self { watch, settings, binding, cpus, groups, cpu_time: None }
    }

    /// Looks until the runtime ends.
    pub(super) fn run(mut self) {
        // For the next look to compare with.
        self.look(clock::now(), true);
        loop {
            let interval = self.settings.current().thread_deadlock_check_interval;
            let all_rest = || self.groups.iter().all(|watched| watched.group.rests());
            match self.watch.sleep(interval, all_rest) {
                Woke::Stop => return,
                // What began just now cannot have been completed, and what was queued just now has
                // not waited. This look is what the next one compares with.
                Woke::Roused => self.look(clock::now(), true),
                Woke::Look => self.look(clock::now(), false),
            }
        }
    }

    fn look(&mut self, now: Instant, first: bool) {
        let saturated = self.saturated(now);
        guard(&self.groups[0].group, "watchdog", || {
            if let Err(error) = self.binding.follow_mask() {
                log!(debug, %error, "the mask of the process");
            }
        });
        for watched in &mut self.groups {
            let group = Arc::clone(&watched.group);
            guard(&group, "watchdog", || watched.look(now, saturated, first));
        }
    }

    /// Whether the process used about all the CPU time there was since the last look.
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

impl Watched {
    fn look(&mut self, now: Instant, saturated: bool, first: bool) {
        let group = &self.group;
        group.count(Counter::WatchdogChecks, 1);
        let report_after = group.config().handler_report_after;
        // At rest, others may hear nothing of the network.
        let hears = |kind| match kind {
            ThreadKind::Base | ThreadKind::Worker => true,
            ThreadKind::Tasker => group.config().enable_epoll_in_tasker,
            ThreadKind::Reserve => false,
        };
        let (mut progress, mut resting) = (false, 0);
        for (index, seat) in group.crew.seats.iter().enumerate() {
            let fresh = Stay::of(seat, now);
            let known = index < self.seats.len();
            if !known {
                // Whatever was completed here, was since the last look.
                self.seats.resize(index + 1, Stay { completed: 0, ..fresh });
            }
            let stay = &mut self.seats[index];
            let (kind, rests) = (seat.kind(), seat.state.rests());
            if kind != Some(ThreadKind::Reserve) {
                progress |= stay.completed != fresh.completed;
            }
            resting += usize::from(rests && kind.is_some_and(hears));
            let (Some(kind), true, false) = (kind, known && stay.beat == fresh.beat, rests) else {
                *stay = fresh;
                group.end_stuck(seat);
                continue;
            };
            stay.completed = fresh.completed;
            if mem::replace(&mut stay.ran, fresh.ran) && fresh.ran {
                group.note_stuck(seat, kind, fresh.beat);
                // While the others are too busy to rest, nobody is on the lookout.
                group.relieve(seat);
            }
            let stayed = now.saturating_duration_since(stay.since);
            if stayed >= report_after && !stay.reported {
                stay.reported = true;
                report(group, index, seat, stayed);
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
    /// It is here since now, as far as anybody knows.
    fn of(seat: &Seat, now: Instant) -> Self {
        Self {
            beat: seat.beat.load(Ordering::Relaxed),
            since: now,
            reported: false,
            ran: seat.state.runs(),
            completed: seat.completed.load(Ordering::Relaxed),
        }
    }
}

/// Once for each run of a handler.
fn report(group: &Group, worker: usize, seat: &Seat, stayed: Duration) {
    group.count(Counter::HandlersReported, 1);
    let class = Class::from_u8(seat.class.load(Ordering::Relaxed)).name();
    let waits = !seat.state.runs();
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
