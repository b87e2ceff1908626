//! How long things took: recorded by many, read as a plain value.
//!
//! Buckets are those of an H2 histogram: 32 for each power of two, exact below 64 ns. So the
//! memory is fixed, a sample costs one addition, and what is read back is wrong by 1/32 at most.

use std::ops::{Add, AddAssign};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{array, iter};

use ::histogram::{AtomicHistogram, Bucket, Config, Histogram as Buckets};

use super::snapshot::Snapshot;
use super::table::named;

named! {
    /// A part of the way of an event or a task that has a [`Histogram`] of its own.
    Stage;

    WorkQueue "work_queue" "time that a task waited in the queue",
    RecvFirst "recv_first" "from the return of epoll_wait to the end of an event's first receive",
    RecvAll "recv_all"
        "from the return of epoll_wait until everything received was handed to the protocol",
    Schedule "schedule" "from when something was made runnable until a worker began with it",
    Run "run" "time in the handler",
    Timer "timer" "how late a timer fired",
}

pub(super) const STAGES: usize = Stage::ALL.len();

/// Exponent of the number of buckets for each power of two: 2^5 = 32, an error of 3.1 %.
const GROUPING_POWER: u8 = 5;
/// 2^42 ns are 73 minutes.
const MAX_VALUE_POWER: u8 = 42;

const CONFIG: Config = match Config::new(GROUPING_POWER, MAX_VALUE_POWER) {
    Ok(config) => config,
    Err(_) => panic!("5 is less than 42, and 42 at most 64"),
};

const LONGEST_NS: u64 = (1 << MAX_VALUE_POWER) - 1;

/// One histogram per stage, to be recorded into from any thread.
///
/// *Shape*: 24 bytes until it is first switched on, from then on 57 KiB more (6 stages of 1216
/// buckets of 8 bytes), kept until it is dropped so that nobody ever waits for a recorder. Each
/// group owns one.
///
/// Off, as at first, it costs its users one relaxed load:
///
/// ```text
/// let from = histograms.is_on().then(Instant::now);
/// work();
/// if let Some(from) = from { histograms.record(Stage::Run, from.elapsed()) }
/// ```
#[derive(Debug)]
pub(crate) struct Histograms {
    /// Written by `switch`, read by everybody. Relaxed: a recorder that sees it before the
    /// buckets loses its sample.
    on: AtomicBool,
    /// Set once, by the first `switch(true)`.
    stages: OnceLock<Box<[AtomicHistogram; STAGES]>>,
}

impl Histograms {
    pub(crate) const fn new() -> Self {
        Self { on: AtomicBool::new(false), stages: OnceLock::new() }
    }

    /// To be asked before the time is taken.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Counts a sample, from any thread, unless this is off. What is longer than 73 minutes counts
    /// as that.
    #[cold]
    #[inline(never)]
    pub(crate) fn record(&self, stage: Stage, took: Duration) {
        if self.is_on()
            && let Some(stages) = self.stages.get()
        {
            let counted = stages[stage as usize].increment(in_range(took));
            debug_assert!(counted.is_ok(), "{took:?}");
        }
    }

    /// Starts or stops recording. What was recorded stays.
    pub(crate) fn switch(&self, on: bool) {
        if on {
            self.stages.get_or_init(|| {
                Box::new(array::from_fn(|_| AtomicHistogram::with_config(&CONFIG)))
            });
        }
        self.on.store(on, Ordering::Relaxed);
    }

    /// Forgets what was recorded, and keeps the memory. Bucket after bucket goes to zero in one
    /// step: a sample that another thread records meanwhile is either forgotten as well or stays,
    /// whole.
    pub(crate) fn reset(&self) {
        let Some(stages) = self.stages.get() else { return };
        let mut forgotten = Buckets::with_config(&CONFIG);
        for stage in stages.iter() {
            stage.drain_into(&mut forgotten).expect("both have CONFIG");
        }
    }

    /// Adds what was recorded, if this was ever on.
    pub(crate) fn add_to(&self, snapshot: &mut Snapshot) {
        let Some(stages) = self.stages.get() else { return };
        let sums = snapshot.histograms.get_or_insert_default();
        for (sum, stage) in sums.iter_mut().zip(stages.iter()) {
            *sum += &Histogram { buckets: stage.load() };
        }
    }
}

/// `Duration` cannot be made of more than 2^64 seconds, which no sum of these reaches.
fn from_nanos(nanoseconds: u128) -> Duration {
    let seconds = u64::try_from(nanoseconds / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, (nanoseconds % 1_000_000_000) as u32)
}

fn in_range(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).map_or(LONGEST_NS, |nanoseconds| nanoseconds.min(LONGEST_NS))
}

/// How long something took, over many samples.
///
/// *Shape*: a plain value with 9.5 KiB on the heap, however many samples it holds.
///
/// *Units*: samples are kept in nanoseconds up to 73 minutes; longer ones count as that. Durations
/// that are read back are rounded to a bucket, and are exact below 64 ns and wrong by at most
/// 1/32 (3.1 %) above.
///
/// `Display` prints a line of the usual quantiles, and one line for each power of two between the
/// fastest and the slowest sample: how many there were, their share, the share of those that were
/// slower still, and a bar. Bars are logarithmic, so that a single slow sample among millions shows.
///
/// ```
/// use std::time::Duration;
///
/// use epoll_group::stats::Histogram;
///
/// let fast = (0..9_999).map(|_| Duration::from_micros(3));
/// let all: Histogram = fast.chain([Duration::from_millis(5)]).collect();
/// assert_eq!(all.count(), 10_000);
/// assert!(all.quantile(0.999) < Some(Duration::from_micros(4)));
/// assert!(all.max() > Some(Duration::from_millis(4)));
/// println!("{all}");
/// ```
///
/// prints
///
/// ```text
#[doc = include_str!("histogram/example.txt")]
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Buckets,
}

impl Histogram {
    /// Number of samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.as_slice().iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Sum of the samples, each taken for the middle of its bucket.
    #[must_use]
    pub fn sum(&self) -> Duration {
        from_nanos(self.sum_ns())
    }

    /// Average of the samples. It hides what the quantiles show.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        self.sum_ns().checked_div(self.count().into()).map(from_nanos)
    }

    fn sum_ns(&self) -> u128 {
        let twice =
            |bucket: Bucket| u128::from(bucket.start() + bucket.end()) * u128::from(bucket.count());
        self.buckets.iter().map(twice).sum::<u128>() / 2
    }

    /// The time within which this part of the samples (0.99: 99 % of them) was done, rounded up to
    /// the end of its bucket. None if there are no samples, or if `part` is not in 0 to 1.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let bucket = self.buckets.quantile_bucket(part).ok()??;
        Some(Duration::from_nanos(bucket.end()))
    }

    /// The shortest sample, rounded down to the start of its bucket. None if there is none.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        let bucket = self.buckets.quantile_bucket(0.0).ok()??;
        Some(Duration::from_nanos(bucket.start()))
    }

    /// The longest sample, rounded up to the end of its bucket. None if there is none.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        self.quantile(1.0)
    }

    /// The samples by powers of two, from the shortest to the longest one, empty ones between them
    /// too: the end of the bucket, and how many samples were below it, but not below its half.
    ///
    /// The first possible bucket (2 ns) also counts samples of 0 ns, the last one (2^42 ns) also
    /// those that were longer.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut counts = [0_u64; MAX_VALUE_POWER as usize];
        for bucket in self.buckets.iter() {
            counts[bucket.end().max(1).ilog2() as usize] += bucket.count();
        }
        let from = counts.iter().position(|&count| count != 0).unwrap_or(0);
        let to = counts.iter().rposition(|&count| count != 0).map_or(0, |last| last + 1);
        let ends = iter::successors(Some(2_u64), |end| Some(end * 2)).map(Duration::from_nanos);
        ends.zip(counts).take(to).skip(from)
    }

    /// Samples that came after `earlier`, as far as that can be known: if any bucket has fewer
    /// samples now, there was a reset in between, and all of these are later.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut later = self.clone();
        let counts = later.buckets.as_mut_slice().iter_mut();
        for (count, before) in counts.zip(earlier.buckets.as_slice()) {
            match count.checked_sub(*before) {
                Some(difference) => *count = difference,
                None => return self.clone(),
            }
        }
        later
    }
}

impl Default for Histogram {
    /// Without samples.
    fn default() -> Self {
        Self { buckets: Buckets::with_config(&CONFIG) }
    }
}

impl FromIterator<Duration> for Histogram {
    fn from_iter<T: IntoIterator<Item = Duration>>(samples: T) -> Self {
        let mut histogram = Self::default();
        for sample in samples {
            histogram.buckets.increment(in_range(sample)).expect("in_range");
        }
        histogram
    }
}

impl AddAssign<&Self> for Histogram {
    /// As if every sample of the other had been recorded here.
    fn add_assign(&mut self, other: &Self) {
        let counts = self.buckets.as_mut_slice().iter_mut();
        for (count, more) in counts.zip(other.buckets.as_slice()) {
            *count = count.saturating_add(*more);
        }
    }
}

impl Add<&Self> for Histogram {
    type Output = Self;

    fn add(mut self, other: &Self) -> Self {
        self += other;
        self
    }
}

#[cfg(test)]
mod tests;
