//! Sum of all counters, as a plain value.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::counter::{COUNTERS, Counter, Counters};
use super::histogram::{Histogram, STAGES, Stage};

/// Name, value and meaning of one public field of [`Snapshot`].
pub(super) struct Gauge {
    pub(super) name: &'static str,
    pub(super) value: Value,
    pub(super) help: &'static str,
}

pub(super) enum Value {
    Number(u64),
    Time(Duration),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

/// Declares [`Snapshot`] from one table, so that no gauge is forgotten in a text form.
macro_rules! snapshot {
    ($($name:ident: $type:ty, $help:literal;)+) => {
        /// Counters and gauges of a runtime at the time when it was taken.
        ///
        /// *Shape*: a plain value of about 1 100 bytes, without locks or references, and another 95
        /// KiB on the heap if histograms have ever been on. Counters rise for the life of the
        /// runtime; [`since`](Self::since) subtracts two snapshots for a rate. The public fields
        /// are gauges: they go up and down. Over all groups they are sums, unless their
        /// documentation differs.
        ///
        /// `Display` prints one aligned line for each gauge and each counter that is not zero, and
        /// then each histogram.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Snapshot {
            $(#[doc = concat!("Gauge: ", $help, ".")] pub $name: $type,)+
            pub(super) counters: [u64; COUNTERS],
            /// Histograms by stage. None until they are on for the first time.
            pub(super) histograms: Option<Box<[Histogram; STAGES]>>,
        }

        impl Snapshot {
            /// Every public field.
            pub(super) fn gauges(&self) -> impl Iterator<Item = Gauge> + use<> {
                [$(Gauge { name: stringify!($name), value: self.$name.into(), help: $help }),+]
                    .into_iter()
            }
        }

        impl Default for Snapshot {
            /// Creates a snapshot with all values zero, without histograms.
            fn default() -> Self {
                Self {
                    $($name: Default::default(),)+
                    counters: [0; COUNTERS],
                    histograms: None,
                }
            }
        }
    };
}

snapshot! {
    groups: u64, "epoll groups";

    workers: u64, "base and dynamic threads";
    base_threads: u64, "base threads, which are there from the start";
    dynamic_threads: u64, "threads added while handlers wait or the queue is long";
    reserve_threads: u64, "threads for urgent work alone, called when all others wait";
    running_threads: u64, "threads inside a handler, a task or a timer";
    stalled_threads: u64, "threads whose handler announced that it waits";
    parked: u64, "workers asleep";
    standby_threads: u64, "reserve threads that wait to be called";

    queue_len: u64, "tasks in the queues, up to their capacity";
    urgent_queue_len: u64, "queued tasks of work in progress, logins and administration";
    overflow_len: u64, "tasks in the queues beyond their capacity";
    queue_high_water: u64, "length of the longest queue that any group ever had";
    oldest_task_age: Duration, "age of the task that has waited longest of all groups";
    tasks_in_progress: u64, "closures accepted and not ended";

    connections: u64, "connections open";
    listeners: u64, "listening sockets";
    silent_connections: u64, "accepted, no first bytes yet, within first_bytes_timeout";
    handshakes: u64, "accepted connections whose layers are not ready yet";
    paused_connections: u64, "not read: their backlog is long, or pause_reads was called";
    closing_connections: u64, "about to end, after their requests or last bytes";
    slots_allocated: u64, "slots for connection contexts, used and free";
    slots_free: u64, "slots that wait for a connection";
    buffered_bytes: u64, "bytes in read buffers, backlogs and layers";

    unauthenticated_connections: u64, "accepted, not logged in yet";
    sessions: u64, "sessions open";
    queued_requests: u64, "requests that wait for their turn in their session";
    queued_request_bytes: u64, "bytes of those requests";
    deferred_requests: u64, "requests whose answer comes later, on no thread";
    waiting_writers: u64, "handlers that wait until their peer grants room";

    timers_pending: u64, "timers that have not fired yet, and deadlines of connections and listeners";
}

impl Snapshot {
    /// Value of one counter.
    #[must_use]
    pub const fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Durations of one stage. None if histograms have never been on.
    #[must_use]
    pub fn histogram(&self, stage: Stage) -> Option<&Histogram> {
        self.histograms.as_ref().map(|histograms| &histograms[stage as usize])
    }

    /// Difference between two snapshots of one runtime. Counters and histograms are subtracted;
    /// gauges are those of the later one, which is `self`. Divided by the time between them, that
    /// is a rate.
    ///
    /// If histograms were reset in between, the result holds the samples after the reset. There is
    /// one exception: if every bucket has since been filled beyond its earlier count, the reset
    /// cannot be detected.
    ///
    /// ```
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// use epoll_group::Runtime;
    /// use epoll_group::stats::Counter;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder().start()?;
    /// let earlier = runtime.stats();
    /// # for _ in 0..3 { runtime.handle().spawn_wait(|| ())?; }
    /// thread::sleep(Duration::from_millis(10));
    /// let recent = runtime.stats().since(&earlier);
    /// println!("{} tasks per second", recent.get(Counter::TasksRun) * 100);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        for (count, before) in difference.counters.iter_mut().zip(&earlier.counters) {
            *count = count.saturating_sub(*before);
        }
        if let (Some(later), Some(earlier)) = (&mut difference.histograms, &earlier.histograms) {
            for (histogram, before) in later.iter_mut().zip(earlier.iter()) {
                *histogram = histogram.since(before);
            }
        }
        difference
    }

    /// Adds the counts of one block.
    pub(crate) fn absorb(&mut self, block: &Counters) {
        for (sum, value) in self.counters.iter_mut().zip(&block.values) {
            *sum = sum.wrapping_add(value.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::stats::Histograms;

    #[test]
    fn a_snapshot_sums_the_blocks() {
        let (own, shared) = (Counters::new(), Counters::new());
        own.bump(Counter::TasksRun, 2);
        own.bump(Counter::TasksRun, 3);
        shared.add(Counter::TasksRun, 10);
        shared.add(Counter::Reclaimed, 1);
        let mut snapshot = Snapshot::default();
        snapshot.absorb(&own);
        snapshot.absorb(&shared);
        assert_eq!(snapshot.get(Counter::TasksRun), 15);
        assert_eq!(snapshot.get(Counter::Reclaimed), 1);
        assert_eq!(snapshot.get(Counter::Panics), 0);
        assert_eq!(own.get(Counter::TasksRun), 5);
        assert_eq!(format!("{own:?}"), r#"{"tasks_run": 5}"#);
    }

    #[test]
    fn a_snapshot_is_as_small_as_it_says() {
        let size = size_of::<Snapshot>();
        assert!((1000..=1100).contains(&size), "{size}");
    }

    #[test]
    fn a_difference_subtracts_what_rises_and_keeps_what_goes_up_and_down() {
        let (counters, histograms) = (Counters::new(), Histograms::new());
        histograms.switch(true);
        let take = |connections| {
            let mut snapshot = Snapshot { connections, ..Snapshot::default() };
            snapshot.absorb(&counters);
            histograms.add_to(&mut snapshot);
            snapshot
        };
        counters.add(Counter::TasksRun, 5);
        histograms.record(Stage::Run, Duration::from_millis(1));
        let earlier = take(9);
        counters.add(Counter::TasksRun, 2);
        counters.add(Counter::Panics, 1);
        histograms.record(Stage::Run, Duration::from_millis(1));
        histograms.record(Stage::Timer, Duration::from_secs(1));
        let later = take(4);

        let recent = later.since(&earlier);
        assert_eq!(recent.connections, 4);
        assert_eq!(recent.get(Counter::TasksRun), 2);
        assert_eq!(recent.get(Counter::Panics), 1);
        let count = |stage| recent.histogram(stage).expect("on").count();
        assert_eq!(Stage::ALL.iter().map(|&stage| count(stage)).sum::<u64>(), 2);
        assert_eq!((count(Stage::Run), count(Stage::Timer)), (1, 1));

        assert_eq!(later.since(&Snapshot::default()), later);
        let nothing = later.since(&later);
        assert_eq!(nothing.get(Counter::TasksRun), 0);
        assert_eq!(nothing.histogram(Stage::Run), Some(&Histogram::default()));
        assert_eq!(Snapshot::default().since(&later), Snapshot::default());
    }

    #[test]
    fn a_difference_over_a_reset_has_what_came_after_it() {
        let histograms = Histograms::new();
        histograms.switch(true);
        let take = || {
            let mut snapshot = Snapshot::default();
            histograms.add_to(&mut snapshot);
            snapshot
        };
        histograms.record(Stage::Run, Duration::from_millis(1));
        let earlier = take();
        histograms.reset();
        histograms.record(Stage::Run, Duration::from_secs(1));
        let later = take();
        assert_eq!(later.since(&earlier), later);
    }

    proptest! {
        #[test]
        fn the_difference_of_two_snapshots_is_what_was_added(
            before in vec((0..COUNTERS, 0_u64..1 << 40), 0..50),
            after in vec((0..COUNTERS, 0_u64..1 << 40), 0..50),
        ) {
            let add = |to: &Counters, counts: &[(usize, u64)]| {
                counts.iter().for_each(|&(position, n)| to.add(Counter::ALL[position], n));
            };
            let (all, only) = (Counters::new(), Counters::new());
            add(&all, &before);
            let (mut earlier, mut later, mut difference) = Default::default();
            Snapshot::absorb(&mut earlier, &all);
            add(&all, &after);
            add(&only, &after);
            Snapshot::absorb(&mut later, &all);
            Snapshot::absorb(&mut difference, &only);
            prop_assert_eq!(later.since(&earlier), difference);
        }
    }
}
