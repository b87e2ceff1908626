//! [`Cost`]: estimated time of a run. [`Lap`]: how long a run took.

use std::cell::Cell;
use std::mem;
use std::time::Duration;

use crate::sync::shim::atomic::{AtomicU32, Ordering};
use crate::sys::clock::{self, Instant, nanos};
use crate::sys::sched::ThreadUsage;

/// Running estimate of the time that a run takes.
///
/// Each sample moves it by a factor: up by at most four, down by at most two. One sample that
/// preemption has spoilt does not make a quick connection slow. Two slow runs in a row do, and so does
/// a series in which every second run is slow. A cost without samples counts as slow.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Estimate in nanoseconds. It is a statistic, so a lost update does not matter.
    nanos: AtomicU32,
}

/// Expectation of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It ends before another thread would be awake.
    Cheap,
    /// There is no sample yet. Treated like `Dear`.
    Unknown,
    /// It is slow. Nothing may wait behind it.
    Dear,
}

const UNKNOWN: u32 = u32::MAX;
/// Limit below which a run counts as cheap. It is about ten times a receive and a send on loopback.
/// Waking another thread would cost as much.
const CHEAP_NANOS: u32 = 64_000;
/// Limit below which a pause, such as a call of `epoll_wait`, counts as one without sleep. If the
/// thread slept all the same, its next slow run counts as one that waited.
const NO_SLEEP_NANOS: u64 = 10_000;
/// Longest time that counts as CPU time without a reading. Another thread may have had the CPU for all of
/// it, so it is shorter than [`PREEMPTED`].
const MOST_GUESSED_NANOS: u64 = 100_000;
/// Limit from which other sources go first. A quick source stays below it, even after one or two spoilt
/// samples.
const LONG_NANOS: u32 = 500_000;
/// Smallest estimate. From a lower one, too many slow runs would be needed before the cost counts as
/// slow.
const FLOOR_NANOS: u32 = 4_000;

impl Cost {
    pub(crate) fn unknown() -> Self {
        Self { nanos: AtomicU32::new(UNKNOWN) }
    }

    /// Cost that starts with the estimate of another one.
    pub(crate) fn like(other: &Self) -> Self {
        Self { nanos: AtomicU32::new(other.nanos.load(Ordering::Relaxed)) }
    }

    /// Cost of runs that are not measured yet and expected to be quick.
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

    /// The estimate in nanoseconds. `None` before the first sample.
    pub(crate) fn nanos(&self) -> Option<u32> {
        match self.nanos.load(Ordering::Relaxed) {
            UNKNOWN => None,
            nanos => Some(nanos),
        }
    }

    /// Returns true if a run takes so long that other sources go first. That is longer than a turn of
    /// input, because sessions run behind it.
    pub(crate) fn is_long(&self) -> bool {
        self.nanos().is_some_and(|nanos| nanos >= LONG_NANOS)
    }

    /// Adds a sample: nanoseconds of a part of a run, since the end of the part before. See
    /// [`begin_run`].
    pub(crate) fn add(&self, sample: u64) {
        self.add_since(sample, 1, |known| known.part);
    }

    /// Adds a sample: nanoseconds of a whole run that did `things` things of equal cost. Parts of the run
    /// may have been added to other costs.
    pub(crate) fn add_whole(&self, sample: u64, things: u32) {
        self.add_since(sample, things, |known| known.run);
    }

    fn add_since(&self, sample: u64, things: u32, began: impl FnOnce(Known) -> ThreadUsage) {
        // Before the division: the whole run may be preempted, however short each of its `things` is.
        let sample =
            if sample < CHEAP_NANOS.into() { sample } else { without_preemption(sample, began) };
        let sample = if things > 1 { sample / u64::from(things) } else { sample };
        self.note(u32::try_from(sample).unwrap_or(UNKNOWN - 1));
    }

    /// Moves the estimate towards that of another cost, as if it had been measured.
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

/// Resources that a thread has used, as far as they are known.
#[derive(Clone, Copy)]
struct Known {
    /// At the start of the current run.
    run: ThreadUsage,
    /// When a part of the run was last added to a cost.
    part: ThreadUsage,
    /// Nanoseconds since the last reading. They count as CPU time.
    guessed: u64,
}

thread_local! {
    /// Usage of this thread, while it is known.
    static KNOWN: Cell<Option<Known>> = const { Cell::new(None) };
    /// Set while the current run is charged for its CPU time.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// Set if other threads had the CPU during a run.
    static CROWDED: Cell<bool> = const { Cell::new(false) };
}

/// Begins a run on this thread. If `watched` and the run is slow, it is charged for the CPU time that it
/// uses. Otherwise, or if the run waits, it is charged for the time that passes.
///
/// If threads compete for CPUs, a quick run may seem slow because another thread ran in between. To read
/// the usage of a thread takes two system calls. So a reading counts until the thread may have slept, has
/// run slowly, or the reading is old, see [`end_run`] and [`end_pause`]. If a quick run waits meanwhile, a
/// slow one that follows counts as one that waited. If a sandbox forbids the calls, the time that passes
/// counts.
pub(super) fn begin_run(watched: bool) {
    WATCHED.set(watched);
    if watched && KNOWN.get().is_none() {
        let usage = ThreadUsage::now();
        KNOWN.set(usage.map(|usage| Known { run: usage, part: usage, guessed: 0 }));
    }
}

/// Ends a run that lasted `took` nanoseconds. Returns true if it had to share its CPU.
pub(super) fn end_run(took: u64) -> bool {
    guess(took, CHEAP_NANOS.into());
    CROWDED.take()
}

/// Ends a pause of this thread between two runs: a look into epoll, a sleep, or the standing by of
/// a reserve thread.
pub(super) fn end_pause(took: u64) {
    guess(took, NO_SLEEP_NANOS);
}

/// Counts `took` as CPU time if it is less than `limit`, and the sum since the last reading is less
/// than [`MOST_GUESSED_NANOS`]. Otherwise, the usage is not known any more.
fn guess(took: u64, limit: u64) {
    if let Some(Known { run, guessed, .. }) = KNOWN.get() {
        let guessed = guessed + took;
        let usage = run.after(Duration::from_nanos(took));
        let known = took < limit && guessed < MOST_GUESSED_NANOS;
        KNOWN.set(known.then_some(Known { run: usage, part: usage, guessed }));
    }
}

fn without_preemption(elapsed: u64, began: impl FnOnce(Known) -> ThreadUsage) -> u64 {
    let Some(known) = KNOWN.get().filter(|_| WATCHED.get()) else { return elapsed };
    let Some(now) = ThreadUsage::now() else { return elapsed };
    KNOWN.set(Some(Known { part: now, ..known }));
    let (own, crowded) = own_part(Duration::from_nanos(elapsed), began(known), now);
    if crowded {
        CROWDED.set(true);
    }
    nanos(own)
}

/// Returns the time that a run took by itself, and true if other threads had its CPU for the rest.
fn own_part(elapsed: Duration, began: ThreadUsage, ended: ThreadUsage) -> (Duration, bool) {
    if ended.waits != began.waits {
        return (elapsed, false);
    }
    let used = ended.cpu_time.saturating_sub(began.cpu_time);
    (elapsed.min(used), elapsed > used + used / 4 + PREEMPTED)
}

/// A run counts as preempted if it took longer than its CPU time, plus a quarter of that, plus this
/// margin.
const PREEMPTED: Duration = Duration::from_micros(200);

thread_local! {
    /// Nanoseconds of all announced waits on this thread.
    static WAITED: Cell<u64> = const { Cell::new(0) };
}

/// Notes the length of an announced wait of this thread, in nanoseconds.
pub(super) fn note_waited(nanos: u64) {
    WAITED.set(WAITED.get() + nanos);
}

/// Times consecutive runs on a thread. Announced waits are left out: a worker that waits holds nothing
/// that other workers could use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    /// Start of this lap, and end of the one before.
    pub(crate) now: Instant,
    waited: u64,
}

impl Lap {
    /// Starts a lap at `now`, on this thread.
    pub(crate) fn from(now: Instant) -> Self {
        Self { now, waited: WAITED.get() }
    }

    /// Ends this lap and starts the next one. Returns the length of this one, in nanoseconds.
    pub(crate) fn end(&mut self) -> u64 {
        let before = mem::replace(self, Self::from(clock::now()));
        self.now.nanos_since(before.now).saturating_sub(self.waited - before.waited)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(6);
    const SLOW: Duration = Duration::from_millis(5);

    #[test]
    fn unknown_is_dear_and_one_quick_run_makes_it_cheap() {
        let cost = Cost::unknown();
        assert_eq!((cost.pace(), cost.nanos()), (Pace::Unknown, None));
        cost.add(nanos(QUICK));
        assert_eq!((cost.pace(), cost.nanos()), (Pace::Cheap, Some(6_000)));
    }

    #[test]
    fn one_slow_run_is_forgiven_and_two_are_not() {
        let cost = Cost::unknown();
        cost.add(nanos(QUICK));
        cost.add(nanos(SLOW));
        assert_eq!(cost.pace(), Pace::Cheap, "it may have been preempted");
        cost.add(nanos(SLOW));
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
        begin_run(true);
        let cpu_time = || ThreadUsage::now().expect("nobody forbids it").cpu_time;
        let began = cpu_time();
        // Burns CPU time, and returns it as the time that passed, as if no other thread ever ran.
        let burn = |until| {
            while cpu_time() - began < until {}
            cpu_time() - began
        };
        let (part, whole) = (Cost::unknown(), Cost::unknown());
        part.add(nanos(burn(Duration::from_micros(600))));
        whole.add_whole(nanos(burn(Duration::from_micros(700))), 1);
        assert!(!end_run(nanos(Duration::from_millis(2))));
        assert!(part.nanos() >= Some(600_000), "{part:?}");
        assert!(whole.nanos() >= Some(700_000), "{whole:?}");
    }

    #[test]
    fn what_takes_long_is_told_from_what_was_spoilt_twice() {
        let cost = Cost::unknown();
        assert!(!cost.is_long());
        cost.add(nanos(Duration::from_micros(30)));
        cost.add(nanos(SLOW));
        cost.add(nanos(SLOW));
        assert!(!cost.is_long());
        cost.add(nanos(SLOW));
        assert!(cost.is_long());
    }

    #[test]
    fn every_second_run_slow_is_dear_before_long() {
        let cost = Cost::unknown();
        for _ in 0..6 {
            cost.add(nanos(SLOW));
            cost.add(nanos(QUICK));
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
            run.add(nanos(SLOW));
            first.follow(&run);
        }
        assert_eq!((first.pace(), Cost::like(&first).pace()), (Pace::Dear, Pace::Dear));
        for _ in 0..20 {
            let run = Cost::like(&first);
            run.add(nanos(QUICK));
            first.follow(&run);
        }
        assert_eq!(first.pace(), Pace::Cheap);
    }

    #[test]
    fn a_run_of_many_things_is_looked_at_for_preemption_as_a_whole() {
        begin_run(true);
        let before = known();
        while ThreadUsage::now().is_some_and(|now| now.cpu_time == before.part.cpu_time) {}
        let cost = Cost::unknown();
        cost.add_whole(nanos(Duration::from_secs(1)), u32::MAX);
        assert_ne!(known().part.cpu_time, before.part.cpu_time, "nobody looked");
        assert_eq!(cost.pace(), Pace::Cheap);
    }

    fn known() -> Known {
        KNOWN.get().expect("nobody forbids it")
    }

    #[test]
    fn the_usage_is_read_again_after_a_slow_run_or_a_sleep_and_not_before() {
        begin_run(true);
        let first = known().run;
        assert!(!end_run(nanos(QUICK)));
        end_pause(nanos(QUICK));
        begin_run(false);
        assert!(!end_run(nanos(QUICK)));
        begin_run(true);
        assert_eq!(known().run, first.after(3 * QUICK), "nothing was read");
        Cost::unknown().add_whole(nanos(SLOW), 1);
        assert_ne!(known().part, first.after(3 * QUICK));
        end_run(nanos(SLOW));
        assert!(KNOWN.get().is_none(), "others may have run meanwhile");
        begin_run(true);
        end_pause(NO_SLEEP_NANOS);
        assert!(KNOWN.get().is_none(), "it may have slept");
    }

    #[test]
    fn the_usage_is_read_again_before_guesses_add_up_to_a_preemption() {
        begin_run(true);
        let quick_runs = (0..).take_while(|_| {
            end_run(nanos(QUICK));
            KNOWN.get().is_some()
        });
        let guessed = QUICK * u32::try_from(quick_runs.count()).expect("few");
        assert!((PREEMPTED / 3..PREEMPTED / 2).contains(&guessed), "{guessed:?}");
        begin_run(true);
        assert_eq!(known().guessed, 0);
    }

    #[test]
    fn a_run_that_is_not_watched_pays_for_the_time_that_passes() {
        begin_run(true);
        begin_run(false);
        let cost = Cost::unknown();
        cost.add(nanos(SLOW));
        assert_eq!(cost.nanos(), Some(5_000_000));
    }
}
