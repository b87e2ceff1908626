//! Results of an experiment.

use hdrhistogram::Histogram;
use lab::ratio::Spread;
use serde::{Deserialize, Serialize, Serializer};

/// Percentiles of the raw numbers.
const PERCENTILES: [f64; 11] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// End of the name of a server that takes part a second time.
pub const AGAIN: &str = ", again";

/// One window. Times are nanoseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Window {
    pub requests: u64,
    pub heavy_requests: u64,
    #[serde(serialize_with = "rounded")]
    pub seconds: f64,
    #[serde(serialize_with = "rounded")]
    pub requests_per_second: f64,
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
    #[serde(serialize_with = "rounded")]
    pub server_cpu_per_request: f64,
    #[serde(serialize_with = "rounded")]
    pub voluntary_switches_per_request: f64,
    #[serde(serialize_with = "rounded")]
    pub involuntary_switches_per_request: f64,
    #[serde(serialize_with = "rounded")]
    pub client_cpu_per_request: f64,
    /// Threads of the server at the end of the window.
    pub threads: u64,
    /// CPU seconds that neither the server nor the load has used.
    #[serde(serialize_with = "rounded")]
    pub other_cpu_seconds: f64,
}

/// Each lane, loaded once, in this order.
#[derive(Debug, Deserialize, Serialize)]
pub struct Round {
    pub cycle: usize,
    pub windows: Vec<(usize, Window)>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Measured {
    pub name: String,
    pub lanes: Vec<MeasuredLane>,
    pub rounds: Vec<Round>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct MeasuredLane {
    pub server: String,
    pub load: String,
    /// One value for each fresh start; none if nothing could count them, see `perf.rs`.
    pub syscalls_per_request: Vec<f64>,
    /// Wake-ups by threads of the server, of threads of any process.
    pub wakeups_per_request: Vec<f64>,
    /// One value for each fresh start.
    pub memory: Vec<Memory>,
    /// Percentiles and nanoseconds of all windows together.
    pub latencies: Vec<(f64, u64)>,
    #[serde(skip, default = "histogram")]
    pub hist: Histogram<u64>,
}

/// Resident bytes of a server.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Memory {
    /// Before the first connection.
    pub before: u64,
    /// After the windows, connections open.
    pub resident: u64,
    pub peak: u64,
}

impl Measured {
    /// Ratios of one lane to another over the rounds.
    pub fn ratio(
        &self,
        lane: usize,
        base: usize,
        metric: impl Fn(&Window) -> f64,
    ) -> Option<Spread> {
        let of = |round: &Round, wanted: usize| {
            let found = round.windows.iter().find(|(lane, _)| *lane == wanted);
            found.map(|(_, window)| metric(window))
        };
        let ratios = self.rounds.iter();
        let ratios = ratios.filter_map(|round| Some(of(round, lane)? / of(round, base)?));
        Spread::of(ratios.collect())
    }

    /// Ratio of the first server to itself. `None`: it took part once.
    pub fn noise(&self, metric: impl Fn(&Window) -> f64) -> Option<Spread> {
        let last = self.lanes.len().checked_sub(1)?;
        self.lanes[last].server.ends_with(AGAIN).then(|| self.ratio(last, 0, metric))?
    }

    /// All windows of one lane.
    pub fn values(&self, lane: usize, metric: impl Fn(&Window) -> f64) -> Option<Spread> {
        let windows = self.rounds.iter().flat_map(|round| &round.windows);
        let windows = windows.filter(|(found, _)| *found == lane);
        Spread::of(windows.map(|(_, window)| metric(window)).collect())
    }

    /// CPUs that other work took. Above 0.05 or so, the machine was not quiet.
    pub fn other_cpus(&self) -> f64 {
        let windows = self.rounds.iter().flat_map(|round| &round.windows);
        let sum = |(other, time): (f64, f64), (_, window): &(usize, Window)| {
            (other + window.other_cpu_seconds, time + window.seconds)
        };
        let (other, time) = windows.fold((0.0, 0.0), sum);
        (other / time).max(0.0)
    }
}

impl MeasuredLane {
    pub fn new(server: &str, load: &str) -> Self {
        Self {
            server: server.to_owned(),
            load: load.to_owned(),
            syscalls_per_request: Vec::new(),
            wakeups_per_request: Vec::new(),
            memory: Vec::new(),
            latencies: Vec::new(),
            hist: histogram(),
        }
    }

    /// Median over the starts, bytes.
    pub fn memory(&self, of: impl Fn(&Memory) -> u64) -> Option<f64> {
        let values = self.memory.iter().map(|memory| of(memory) as f64);
        Some(Spread::of(values.collect())?.median)
    }

    /// Called after the last window.
    pub fn summarize(&mut self) {
        let at = |percentile: f64| (percentile, self.hist.value_at_quantile(percentile / 100.0));
        self.latencies = PERCENTILES.map(at).into();
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

/// Five digits after the point. Further digits are noise that takes room.
fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e5).round() / 1e5)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Servers `a`, `b`, … that need this many nanoseconds of CPU time in each of five rounds.
    pub fn measured(nanos: &[[f64; 5]]) -> Measured {
        let lane = |place: usize| {
            let mut lane = MeasuredLane::new(["a", "b", "c", "d"][place], "a load");
            lane.syscalls_per_request = vec![2.0, 2.5, 3.0];
            lane
        };
        let round = |round: usize| Round {
            cycle: round,
            windows: nanos.iter().map(|nanos| window(nanos[round])).enumerate().collect(),
        };
        Measured {
            name: "a test".to_owned(),
            lanes: (0..nanos.len()).map(lane).collect(),
            rounds: (0..5).map(round).collect(),
        }
    }

    fn window(nanos: f64) -> Window {
        Window {
            requests: 1000,
            heavy_requests: 0,
            seconds: 0.1,
            threads: 1,
            requests_per_second: 10_000.0,
            p50: 1000,
            p99: 2000,
            p999: 3000,
            max: 4000,
            server_cpu_per_request: nanos,
            voluntary_switches_per_request: 0.25,
            involuntary_switches_per_request: 0.5,
            client_cpu_per_request: 0.0,
            other_cpu_seconds: 0.002,
        }
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let found = measured(&[[1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0]]);
        let ratio = found.ratio(1, 0, |window| window.server_cpu_per_request).unwrap();
        assert_eq!((ratio.min, ratio.max), (2.0, 2.0));
        assert!((found.other_cpus() - 0.02).abs() < 1e-9);
        assert!(found.ratio(2, 0, |window| window.seconds).is_none());
    }
}
