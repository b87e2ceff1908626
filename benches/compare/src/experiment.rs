//! Servers side by side, loaded in short windows in turn.
//!
//! 1. Start the server of each lane, open its connections, and warm both up in one short window.
//! 2. In each round, load the lanes one after the other in random order.
//! 3. After some rounds, start all over with new processes and connections, because the assignment of
//!    connections to threads, and of memory to addresses, is chance that lasts.
//! 4. Before each fresh start, look at the memory of each server, then load each lane once more while
//!    `perf` counts its system calls.

use std::error::Error;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use lab::helper::Helper;
use lab::meter::{Usage, machine_busy};
use serde::{Serialize, Serializer};

use crate::measured::{AGAIN, Measured, MeasuredLane, Memory, Round, Window};
use crate::perf;
use crate::server::Server;
use crate::workload::{Load, Workload};

/// One server under one load.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Name on the page.
    pub name: String,
    pub server: Server,
    pub workload: Workload,
}

/// Lanes that are loaded in turn.
#[derive(Debug)]
pub struct Experiment {
    pub name: String,
    pub lanes: Vec<Lane>,
}

/// Number and length of the windows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Plan {
    pub cycles: usize,
    #[serde(rename = "window_ms", serialize_with = "millis")]
    pub window: Duration,
    /// Rounds between two fresh starts.
    pub fresh_every: usize,
    pub counts_syscalls: bool,
    /// The first server of each experiment takes part twice, which shows the noise.
    pub repeats_first: bool,
    /// A first look: fewer loads and servers where that saves time.
    pub quick: bool,
}

/// A lane whose server runs and whose connections are open.
struct Live {
    server: Helper,
    /// Process that serves.
    pid: u32,
    load: Box<dyn Load>,
    counts_answers: bool,
    /// Resident bytes of the server before the first connection.
    resident_before: u64,
}

const WARM_UP: Duration = Duration::from_millis(100);
/// Time after a window in which idle threads leave their CPU, so that the kernel adds up their time.
const SETTLE: Duration = Duration::from_millis(5);

impl Lane {
    /// A server that echoes frames, by its name.
    ///
    /// # Panics
    /// There is none of this name.
    pub fn echo(spec: &str, workload: Workload) -> Self {
        let server = Server::Echo(spec.parse().expect("a server that is written down here"));
        Self { name: spec.to_owned(), server, workload }
    }
}

impl Experiment {
    pub fn new(name: impl Into<String>, lanes: impl IntoIterator<Item = Lane>) -> Self {
        Self { name: name.into(), lanes: lanes.into_iter().collect() }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// A server that does not start, and a connection with anything but the right answers.
    pub fn run(mut self, plan: &Plan) -> Result<Measured, Box<dyn Error>> {
        if let Some(first) = self.lanes.first().filter(|_| plan.repeats_first).cloned() {
            self.lanes.push(Lane { name: first.name + AGAIN, ..first });
        }
        let lane = |lane: &Lane| MeasuredLane::new(&lane.name, &lane.workload.to_string());
        let mut lanes: Vec<_> = self.lanes.iter().map(lane).collect();
        let mut rounds = Vec::new();
        let bar = progress(plan.cycles * lanes.len());
        let mut random = fastrand::Rng::with_seed(1);
        for first in (0..plan.cycles).step_by(plan.fresh_every) {
            let mut live = self.start()?;
            for cycle in first..(first + plan.fresh_every).min(plan.cycles) {
                let mut order: Vec<_> = (0..lanes.len()).collect();
                random.shuffle(&mut order);
                let mut windows = Vec::new();
                for lane in order {
                    bar.set_message(format!("{}: {}", self.name, lanes[lane].server));
                    let window = live[lane].window(plan.window, &mut lanes[lane].hist);
                    windows.push((lane, window.map_err(|error| self.error(lane, &*error))?));
                    bar.inc(1);
                }
                rounds.push(Round { cycle, windows });
            }
            for (live, lane) in live.iter_mut().zip(&mut lanes) {
                let usage = Usage::of(live.pid)?;
                let (resident, peak) = (usage.resident_bytes, usage.peak_resident_bytes);
                lane.memory.push(Memory { before: live.resident_before, resident, peak });
                if plan.counts_syscalls {
                    live.count(plan.window, lane)?;
                }
            }
            for (lane, live) in live.into_iter().enumerate() {
                live.finish().map_err(|error| self.error(lane, &*error))?;
            }
        }
        bar.finish_and_clear();
        lanes.iter_mut().for_each(MeasuredLane::summarize);
        Ok(Measured { name: self.name, lanes, rounds })
    }

    /// Starts the servers and opens all connections.
    fn start(&self) -> Result<Vec<Live>, Box<dyn Error>> {
        let mut all = Vec::new();
        for (place, lane) in self.lanes.iter().enumerate() {
            let (server, address, pid) = lane.server.start()?;
            let resident_before = Usage::of(pid)?.resident_bytes;
            let load = (lane.workload.connect)(address);
            let load = load.map_err(|error| self.error(place, &*error))?;
            let counts_answers = lane.server.counts_answers();
            let mut live = Live { server, pid, load, counts_answers, resident_before };
            // At once, because a server may close connections that have said nothing for long.
            let warmed_up = live.window(WARM_UP, &mut Histogram::new(3)?);
            warmed_up.map_err(|error| self.error(place, &*error))?;
            all.push(live);
        }
        Ok(all)
    }

    fn error(&self, lane: usize, error: &dyn Error) -> String {
        let lane = &self.lanes[lane];
        format!("{} with {}: {error}", lane.name, lane.workload)
    }
}

/// Progress over this many windows.
pub fn progress(windows: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}, window {pos} of {len}, {eta} left");
    ProgressBar::new(windows as u64).with_style(style.expect("the template is a constant"))
}

impl Live {
    /// Loads the server for this long. Adds its latencies to `hist`.
    fn window(
        &mut self,
        time: Duration,
        hist: &mut Histogram<u64>,
    ) -> Result<Window, Box<dyn Error>> {
        self.load.prepare()?;
        let before = Usage::of(self.pid)?;
        // Inside the readings of the server, which take time if it has many threads.
        let busy_before = machine_busy()?;
        let report = self.load.run_for(time)?;
        thread::sleep(SETTLE);
        let busy = machine_busy()?.saturating_sub(busy_before).as_secs_f64();
        let used = Usage::of(self.pid)?.since(&before);
        hist.add(&report.hist)?;
        let answers = (report.requests + report.heavy_requests).max(1) as f64;
        Ok(Window {
            requests: report.requests,
            heavy_requests: report.heavy_requests,
            seconds: report.seconds,
            requests_per_second: report.rate(),
            p50: report.hist.value_at_quantile(0.5),
            p99: report.hist.value_at_quantile(0.99),
            p999: report.hist.value_at_quantile(0.999),
            max: report.hist.max(),
            server_cpu_per_request: used.cpu.as_nanos() as f64 / answers,
            voluntary_switches_per_request: used.voluntary_switches as f64 / answers,
            involuntary_switches_per_request: used.involuntary_switches as f64 / answers,
            client_cpu_per_request: report.client_cpu.as_nanos() as f64 / answers,
            threads: used.threads,
            other_cpu_seconds: busy - (used.cpu + report.client_cpu).as_secs_f64(),
        })
    }

    /// Loads the server for this long while its system calls and wake-ups are counted.
    fn count(&mut self, time: Duration, lane: &mut MeasuredLane) -> Result<(), Box<dyn Error>> {
        let before = self.load.answers_total();
        let counts = perf::count(self.pid, || self.load.run_for(time).map(drop))?;
        let answers = (self.load.answers_total() - before).max(1) as f64;
        if let Some((syscalls, wakeups)) = counts {
            lane.syscalls_per_request.push(syscalls as f64 / answers);
            lane.wakeups_per_request.extend(wakeups.map(|wakeups| wakeups as f64 / answers));
        }
        Ok(())
    }

    /// Ends both sides. A server that counts its answers must have the same number.
    fn finish(self) -> Result<(), Box<dyn Error>> {
        let received = self.load.finish()?;
        let text = self.server.finish()?;
        if self.counts_answers && text.trim() != format!("answered {received}") {
            return Err(format!("{received} answers were received, the server says {text}").into());
        }
        Ok(())
    }
}

fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(time.as_millis())
}
