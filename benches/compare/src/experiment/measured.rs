//! What was seen of an experiment.

use std::error::Error;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

use super::Lane;
use crate::spread::Spread;

/// Where the distribution of latencies is looked at.
const PERCENTILES: [f64; 11] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// One window. Times are nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Window {
    pub(crate) requests: u64,
    pub(crate) heavy_requests: u64,
    #[serde(serialize_with = "rounded")]
    pub(crate) seconds: f64,
    #[serde(serialize_with = "rounded")]
    pub(crate) requests_per_second: f64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
    #[serde(serialize_with = "rounded")]
    pub(crate) server_cpu_per_request: f64,
    #[serde(serialize_with = "rounded")]
    pub(crate) voluntary_switches_per_request: f64,
    #[serde(serialize_with = "rounded")]
    pub(crate) involuntary_switches_per_request: f64,
    #[serde(serialize_with = "rounded")]
    pub(crate) client_cpu_per_request: f64,
    /// Of the server, at the end of the window.
    pub(crate) threads: u64,
    /// CPU seconds that neither the server nor the rig has used: what else the machine did.
    #[serde(serialize_with = "rounded")]
    pub(crate) other_cpu_seconds: f64,
}

/// The lanes of one group, each loaded once, in this order.
#[derive(Debug, Serialize)]
pub(crate) struct Round {
    pub(crate) cycle: usize,
    pub(crate) windows: Vec<(usize, Window)>,
}

/// All that was seen of an experiment.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) lanes: Vec<MeasuredLane>,
    pub(crate) rounds: Vec<Round>,
}

#[derive(Debug, Serialize)]
pub(crate) struct MeasuredLane {
    pub(crate) server: String,
    pub(crate) load: String,
    /// One for each fresh start; none when nothing could count them, see `syscalls.rs`.
    pub(crate) syscalls_per_request: Vec<f64>,
    /// Likewise: how often a thread of the server woke another one, of whichever process.
    pub(crate) wakeups_per_request: Vec<f64>,
    /// Of the server's process after its windows, one for each fresh start; connections open.
    pub(crate) resident_bytes: Vec<u64>,
    /// Likewise before the first connection, and the most it ever was.
    pub(crate) resident_bytes_before: Vec<u64>,
    pub(crate) peak_resident_bytes: Vec<u64>,
    /// Quantiles of all windows together.
    pub(crate) pooled: Quantiles,
    /// The same, closer: percentiles of [`PERCENTILES`] and nanoseconds.
    pub(crate) latencies: Vec<(f64, u64)>,
    #[serde(skip)]
    pub(super) hist: Histogram<u64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

impl Measured {
    /// Ratios of one lane to another over the rounds that both took part in.
    pub(crate) fn ratio(
        &self,
        lane: usize,
        base: usize,
        metric: impl Fn(&Window) -> f64,
    ) -> Option<Spread> {
        let of = |round: &Round, wanted: usize| {
            let mut windows = round.windows.iter();
            let found = windows.find(|(lane, _)| *lane == wanted);
            found.map(|(_, window)| metric(window))
        };
        let rounds = self.rounds.iter();
        let ratios = rounds.filter_map(|round| Some(of(round, lane)? / of(round, base)?));
        Spread::of(ratios.collect())
    }

    /// All windows of one lane.
    pub(crate) fn values(&self, lane: usize, metric: impl Fn(&Window) -> f64) -> Option<Spread> {
        let windows = self.rounds.iter().flat_map(|round| &round.windows);
        let windows = windows.filter(|(found, _)| *found == lane);
        Spread::of(windows.map(|(_, window)| metric(window)).collect())
    }

    /// CPU seconds per second that went to other work than this: above 0.05 or so, the numbers
    /// are those of a machine that was not quiet.
    pub(crate) fn other_cpus(&self) -> f64 {
        let windows = self.rounds.iter().flat_map(|round| &round.windows);
        let sum = |(other, time): (f64, f64), (_, window): &(usize, Window)| {
            (other + window.other_cpu_seconds, time + window.seconds)
        };
        let (other, time) = windows.fold((0.0, 0.0), sum);
        (other / time).max(0.0)
    }
}

impl MeasuredLane {
    pub(crate) fn syscalls(&self) -> Option<Spread> {
        Spread::of(self.syscalls_per_request.clone())
    }

    pub(crate) fn wakeups(&self) -> Option<Spread> {
        Spread::of(self.wakeups_per_request.clone())
    }

    /// Bytes.
    pub(crate) fn resident(&self) -> Option<Spread> {
        bytes(&self.resident_bytes)
    }

    /// Bytes.
    pub(crate) fn peak_resident(&self) -> Option<Spread> {
        bytes(&self.peak_resident_bytes)
    }

    /// Bytes that the connections brought, and the threads that serve them.
    pub(crate) fn resident_growth(&self) -> Option<Spread> {
        let starts = self.resident_bytes.iter().zip(&self.resident_bytes_before);
        Spread::of(starts.map(|(&after, &before)| after as f64 - before as f64).collect())
    }

    /// After the last window.
    pub(super) fn summarize(&mut self) {
        self.pooled = Quantiles::of(&self.hist);
        let at = |percentile: f64| (percentile, self.hist.value_at_quantile(percentile / 100.0));
        self.latencies = PERCENTILES.map(at).into();
    }

    pub(crate) fn new(lane: &Lane) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            server: lane.server.to_string(),
            load: lane.workload.to_string(),
            syscalls_per_request: Vec::new(),
            wakeups_per_request: Vec::new(),
            resident_bytes: Vec::new(),
            resident_bytes_before: Vec::new(),
            peak_resident_bytes: Vec::new(),
            latencies: Vec::new(),
            pooled: Quantiles::default(),
            hist: Histogram::new(3)?,
        })
    }
}

impl Quantiles {
    pub(super) fn of(hist: &Histogram<u64>) -> Self {
        Self {
            p50: hist.value_at_quantile(0.5),
            p99: hist.value_at_quantile(0.99),
            p999: hist.value_at_quantile(0.999),
            max: hist.max(),
        }
    }
}

fn bytes(values: &[u64]) -> Option<Spread> {
    Spread::of(values.iter().map(|&bytes| bytes as f64).collect())
}

/// Five digits after the point: what follows is noise that takes room.
fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e5).round() / 1e5)
}
