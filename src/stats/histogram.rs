//! Histograms of durations: recorded by many threads, read as a plain value.
//!
//! Buckets are those of an H2 histogram: 32 for each power of two, exact below 64 ns. Thus the
//! memory is fixed, a sample costs one addition, and read values are wrong by 1/32 at most.

use std::ops::AddAssign;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{array, iter};

use ::histogram::{AtomicHistogram, Bucket, Config, Histogram as Buckets};

use super::named;
use super::snapshot::Snapshot;

named! {
    /// Part of the way of an event or a task that has a [`Histogram`] of its own.
    Stage;

    WorkQueue "work_queue" "time that a task waited in the queue",
    RecvFirst "recv_first" "from the return of epoll_wait to the end of an event's first receive",
    RecvAll "recv_all"
        "from the return of epoll_wait until everything received was handed to the protocol",
    Schedule "schedule" "from when something was made runnable until a worker began with it",
    Run "run" "time in the handler",
    Timer "timer" "how late a timer fired",
    Decode "decode" "time to decode a message of a client",
    Auth "auth" "time in the service's check of a login",
    Cleanup "cleanup" "time in the service's end of a session",
    Fin "fin" "time in the protocol's end of a connection",
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

/// One histogram per stage. Any thread may record into it.
///
/// *Shape*: 24 bytes until it is first switched on, from then on 95 KiB more (10 stages of
/// 1216 buckets of 8 bytes). That memory is kept until it is dropped, so that no thread ever waits for a
/// recorder. Each group owns one.
///
/// While it is off, as at first, a use costs one relaxed load:
///
/// ```text
/// let from = histograms.is_on().then(Instant::now);
/// work();
/// if let Some(from) = from { histograms.record(Stage::Run, from.elapsed()) }
/// ```
#[derive(Debug)]
pub(crate) struct Histograms {
    /// Writer: `switch`. Readers: any thread. Relaxed: a recorder that sees the flag before the
    /// buckets loses its sample.
    on: AtomicBool,
    /// Set once, by the first `switch(true)`.
    stages: OnceLock<Box<[AtomicHistogram; STAGES]>>,
}

impl Histograms {
    pub(crate) const fn new() -> Self {
        Self { on: AtomicBool::new(false), stages: OnceLock::new() }
    }

    /// Returns true if samples are recorded. A caller checks it before it reads the clock.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Counts a sample, from any thread, unless this is off. Longer times than 73 minutes count as
    /// 73 minutes.
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

    /// Starts or stops recording. Recorded samples stay.
    pub(crate) fn switch(&self, on: bool) {
        if on {
            self.stages.get_or_init(|| {
                Box::new(array::from_fn(|_| AtomicHistogram::with_config(&CONFIG)))
            });
        }
        self.on.store(on, Ordering::Relaxed);
    }

    /// Removes all samples, and keeps the memory. Each bucket goes to zero in one step: a sample
    /// that another thread records meanwhile is removed as well or stays, as a whole.
    pub(crate) fn reset(&self) {
        let Some(stages) = self.stages.get() else { return };
        let mut forgotten = Buckets::with_config(&CONFIG);
        for stage in stages.iter() {
            stage.drain_into(&mut forgotten).expect("both have CONFIG");
        }
    }

    /// Adds the recorded samples, if this was ever on.
    pub(crate) fn add_to(&self, snapshot: &mut Snapshot) {
        let Some(stages) = self.stages.get() else { return };
        let sums = snapshot.histograms.get_or_insert_default();
        for (sum, stage) in sums.iter_mut().zip(stages.iter()) {
            *sum += &Histogram { buckets: stage.load() };
        }
    }
}

/// Converts nanoseconds. `Duration` holds at most 2^64 seconds, and these sums stay below.
fn from_nanos(nanoseconds: u128) -> Duration {
    let seconds = u64::try_from(nanoseconds / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, (nanoseconds % 1_000_000_000) as u32)
}

fn in_range(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).map_or(LONGEST_NS, |nanoseconds| nanoseconds.min(LONGEST_NS))
}

/// Distribution of many samples of a duration.
///
/// *Shape*: a plain value with 9.5 KiB on the heap, for any number of samples.
///
/// *Units*: samples are kept in nanoseconds up to 73 minutes; longer ones count as that. Durations
/// that are read back are rounded to a bucket. They are exact below 64 ns and wrong by at most 1/32
/// (3.1 %) above.
///
/// `Display` prints a line of the usual quantiles, and one line for each power of two between the
/// fastest and the slowest sample. A line has the number of samples, their share, the share of
/// slower samples, and a bar. Bars are logarithmic, so that a single slow sample among millions
/// shows.
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

    /// Sum of the samples, each counted as the middle of its bucket.
    #[must_use]
    pub fn sum(&self) -> Duration {
        from_nanos(self.sum_ns())
    }

    /// Average of the samples. It hides differences that the quantiles show.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        self.sum_ns().checked_div(self.count().into()).map(from_nanos)
    }

    fn sum_ns(&self) -> u128 {
        let twice =
            |bucket: Bucket| u128::from(bucket.start() + bucket.end()) * u128::from(bucket.count());
        self.buckets.iter().map(twice).sum::<u128>() / 2
    }

    /// Upper bound of the fastest samples that make up this part (0.99: 99 % of them; 0: the
    /// shortest one), rounded up to the end of its bucket. None if there are no samples, or if
    /// `part` is not in 0 to 1.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let bucket = self.buckets.quantile_bucket(part).ok()??;
        Some(Duration::from_nanos(bucket.end()))
    }

    /// The longest sample, rounded up to the end of its bucket. None if there is none.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        self.quantile(1.0)
    }

    /// Samples by powers of two, from the shortest to the longest one, with the empty ranges
    /// between them. Each item is the end of the bucket, and the number of samples below it but not
    /// below its half.
    ///
    /// The first possible bucket (2 ns) also counts samples of 0 ns. The last one (2^42 ns) also
    /// counts longer samples.
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

    /// Samples that came after `earlier`, as far as that can be known. If any bucket has fewer
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
    /// Creates a histogram without samples.
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
    /// Adds every sample of the other histogram.
    fn add_assign(&mut self, other: &Self) {
        let counts = self.buckets.as_mut_slice().iter_mut();
        for (count, more) in counts.zip(other.buckets.as_slice()) {
            *count = count.saturating_add(*more);
        }
    }
}

#[cfg(test)]
mod tests;
