//! [`Cost`]: how long a run of something takes, as far as known.

use std::cell::Cell;
use std::time::Duration;

use crate::sync::shim::atomic::{AtomicU32, Ordering};
use crate::sys::sched::ThreadUsage;

/// Running estimate of how long a run takes.
///
/// Multiplicative, in both directions bounded by the sample: up by at most four, down by at most
/// two. So a single sample that was spoilt by preemption does not make a quick connection dear, but
/// two slow ones in a row do, or every second one. What nobody measured yet is dear.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Nanoseconds; statistics, so a lost update does not matter.
    nanos: AtomicU32,
}

/// What to expect of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It will be over before another thread would be awake.
    Cheap,
    /// Nobody knows yet; treated as if it were dear.
    Unknown,
    /// Nothing may wait behind it.
    Dear,
}

const UNKNOWN: u32 = u32::MAX;
/// Below this a run counts as cheap: about ten times a receive and a send on loopback, and a
/// wake-up of another thread would cost as much.
const CHEAP_NANOS: u32 = 64_000;
/// From here on others go first. More than what was quick seems to take after a sample or two that were
/// spoilt.
const LONG_NANOS: u32 = 500_000;
/// Estimates start here, so that rising by factors cannot take for ever.
const FLOOR_NANOS: u32 = 4_000;

impl Cost {
    pub(crate) fn unknown() -> Self {
        Self { nanos: AtomicU32::new(UNKNOWN) }
    }

    /// A cost that begins with the estimate of another one.
    pub(crate) fn like(other: &Self) -> Self {
        Self { nanos: AtomicU32::new(other.nanos.load(Ordering::Relaxed)) }
    }

    /// Estimate of runs that are not measured yet and expected to be quick.
    pub(crate) fn quick() -> Self {
        Self { nanos: AtomicU32::new(FLOOR_NANOS) }
    }

    pub(crate) fn pace(&self) -> Pace {
        match self.nanos.load(Ordering::Relaxed) {
            UNKNOWN => Pace::Unknown,
            nanos if nanos < CHEAP_NANOS => Pace::Cheap,
            _ => Pace::Dear,
        }
    }

    /// The estimate, once something was measured.
    pub(crate) fn nanos(&self) -> Option<u32> {
        match self.nanos.load(Ordering::Relaxed) {
            UNKNOWN => None,
            nanos => Some(nanos),
        }
    }

    /// Whether it takes most of a turn each time.
    pub(crate) fn is_long(&self) -> bool {
        self.nanos().is_some_and(|nanos| nanos >= LONG_NANOS)
    }

    /// A part of a run took so long, from the end of the one before it; see [`watch_cpu_time`].
    pub(crate) fn add(&self, sample: Duration) {
        self.add_since(sample, 1, |watched| watched.part);
    }

    /// A whole run took so long, and did so many things of equal cost. Parts of it may have been added to
    /// other costs.
    pub(crate) fn add_whole(&self, sample: Duration, things: u32) {
        self.add_since(sample, things, |watched| watched.run);
    }

    fn add_since(&self, sample: Duration, things: u32, began: impl FnOnce(Watched) -> ThreadUsage) {
        // The whole run may be preempted, however short a part of it is.
        let sample = if sample < Duration::from_nanos(u64::from(CHEAP_NANOS)) {
            sample
        } else {
            without_preemption(sample, began)
        };
        let sample = sample / things.max(1);
        self.note(u32::try_from(sample.as_nanos()).unwrap_or(UNKNOWN - 1));
    }

    /// Moves the estimate towards that of another cost, as if this had been measured.
    pub(crate) fn follow(&self, other: &Self) {
        if let Some(nanos) = other.nanos() {
            self.note(nanos);
        }
    }

    fn note(&self, sample: u32) {
        let before = self.nanos.load(Ordering::Relaxed);
        let after = match before {
            UNKNOWN => sample,
            _ if sample > before => sample.min(before.saturating_mul(4)),
            _ => sample.max(before / 2),
        };
        let after = after.max(FLOOR_NANOS);
        if after != before {
            self.nanos.store(after, Ordering::Relaxed);
        }
    }
}

/// What a thread had used.
#[derive(Clone, Copy)]
struct Watched {
    /// When it began to run something.
    run: ThreadUsage,
    /// When a part of that was last added to a cost.
    part: ThreadUsage,
}

thread_local! {
    /// Of what this thread runs, if that is to be known.
    static WATCHED: Cell<Option<Watched>> = const { Cell::new(None) };
    /// Others have had the CPU meanwhile.
    static CROWDED: Cell<bool> = const { Cell::new(false) };
}

/// From now on a run on this thread that takes long, and waits for nothing, costs the CPU time that
/// it uses: where threads compete for CPUs, what was quick seems slow because another thread ran in
/// between. Or not any more, as it takes two system calls for each run. Where these are forbidden it
/// costs the time that passes.
pub(super) fn watch_cpu_time(on: bool) {
    let usage = if on { ThreadUsage::now() } else { None };
    WATCHED.set(usage.map(|now| Watched { run: now, part: now }));
}

/// Whether something that ran on this thread since the last call had to share its CPU with others.
pub(super) fn was_crowded() -> bool {
    CROWDED.take()
}

fn without_preemption(elapsed: Duration, began: impl FnOnce(Watched) -> ThreadUsage) -> Duration {
    let Some(watched) = WATCHED.get() else { return elapsed };
    let Some(now) = ThreadUsage::now() else { return elapsed };
    WATCHED.set(Some(Watched { part: now, ..watched }));
    let (own, crowded) = own_part(elapsed, began(watched), now);
    if crowded {
        CROWDED.set(true);
    }
    own
}

/// What of a run was its own doing, and whether the rest was somebody else's on its CPU.
fn own_part(elapsed: Duration, began: ThreadUsage, ended: ThreadUsage) -> (Duration, bool) {
    if ended.waits != began.waits {
        return (elapsed, false);
    }
    let used = ended.cpu_time.saturating_sub(began.cpu_time);
    (elapsed.min(used), elapsed > used + used / 4 + PREEMPTED)
}

/// So much longer than the CPU time that it used, and a quarter of that, has a run taken that was
/// preempted.
const PREEMPTED: Duration = Duration::from_micros(200);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(6);
    const SLOW: Duration = Duration::from_millis(5);

    #[test]
    fn unknown_is_dear_and_one_quick_run_makes_it_cheap() {
        let cost = Cost::unknown();
        assert_eq!((cost.pace(), cost.nanos()), (Pace::Unknown, None));
        cost.add(QUICK);
        assert_eq!((cost.pace(), cost.nanos()), (Pace::Cheap, Some(6_000)));
    }

    #[test]
    fn one_slow_run_is_forgiven_and_two_are_not() {
        let cost = Cost::unknown();
        cost.add(QUICK);
        cost.add(SLOW);
        assert_eq!(cost.pace(), Pace::Cheap, "it may have been preempted");
        cost.add(SLOW);
        assert_eq!(cost.pace(), Pace::Dear);
    }

    #[test]
    fn who_is_preempted_pays_for_what_he_used_and_who_waits_for_all() {
        let usage = |cpu_time, waits| ThreadUsage { cpu_time, waits };
        let own = |ended| own_part(SLOW, usage(SLOW, 3), ended);
        assert_eq!(own(usage(SLOW + QUICK, 3)), (QUICK, true), "others ran meanwhile");
        assert_eq!(own(usage(SLOW + QUICK, 4)), (SLOW, false), "it waited");
        assert_eq!(own(usage(SLOW * 2, 3)), (SLOW, false), "it had its CPU for itself");
        assert_eq!(own(usage(SLOW * 3, 3)), (SLOW, false), "what ran before it counts not");
    }

    #[test]
    fn a_run_of_which_a_part_was_added_was_not_preempted_for_that() {
        watch_cpu_time(true);
        let cpu_time = || ThreadUsage::now().expect("nobody forbids it").cpu_time;
        let began = cpu_time();
        // All that passes, as if no other thread ever ran.
        let burn = |until| {
            while cpu_time() - began < until {}
            cpu_time() - began
        };
        let (part, whole) = (Cost::unknown(), Cost::unknown());
        part.add(burn(Duration::from_micros(600)));
        whole.add_whole(burn(Duration::from_micros(700)), 1);
        let crowded = was_crowded();
        watch_cpu_time(false);
        assert!(!crowded);
        assert!(part.nanos() >= Some(600_000), "{part:?}");
        assert!(whole.nanos() >= Some(700_000), "{whole:?}");
    }

    #[test]
    fn what_takes_long_is_told_from_what_was_spoilt_twice() {
        let cost = Cost::unknown();
        assert!(!cost.is_long());
        cost.add(Duration::from_micros(30));
        cost.add(SLOW);
        cost.add(SLOW);
        assert!(!cost.is_long());
        cost.add(SLOW);
        assert!(cost.is_long());
    }

    #[test]
    fn every_second_run_slow_is_dear_before_long() {
        let cost = Cost::unknown();
        for _ in 0..6 {
            cost.add(SLOW);
            cost.add(QUICK);
        }
        assert_eq!(cost.pace(), Pace::Dear);
    }

    #[test]
    fn a_cost_that_follows_another_one_rises_after_two_slow_ones_and_falls_again() {
        let (first, unknown) = (Cost::quick(), Cost::unknown());
        first.follow(&unknown);
        assert_eq!(first.pace(), Pace::Cheap, "nothing was measured");
        for _ in 0..3 {
            let run = Cost::like(&first);
            run.add(SLOW);
            first.follow(&run);
        }
        assert_eq!((first.pace(), Cost::like(&first).pace()), (Pace::Dear, Pace::Dear));
        for _ in 0..20 {
            let run = Cost::like(&first);
            run.add(QUICK);
            first.follow(&run);
        }
        assert_eq!(first.pace(), Pace::Cheap);
    }

    #[test]
    fn a_run_of_many_things_is_looked_at_for_preemption_as_a_whole() {
        watch_cpu_time(true);
        let Some(before) = WATCHED.get() else { return };
        while ThreadUsage::now().is_some_and(|now| now.cpu_time == before.part.cpu_time) {}
        let cost = Cost::unknown();
        cost.add_whole(Duration::from_secs(1), u32::MAX);
        let after = WATCHED.get().expect("it is watched");
        watch_cpu_time(false);
        assert_ne!(after.part.cpu_time, before.part.cpu_time, "nobody looked");
        assert_eq!(cost.pace(), Pace::Cheap);
    }
}
