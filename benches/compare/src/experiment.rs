//! Servers side by side, loaded in short windows in turn.
//!
//! 1. Start the server of every lane and open its connections; one short window warms each up.
//! 2. In each cycle, load the lanes of every group one after the other: forwards and backwards in
//!    turn when a group is a pair (A B B A …), in random order when it is larger.
//! 3. After some cycles, start all over with new processes and connections: how connections fall
//!    to threads, and where memory lies, would otherwise be one throw of the dice for all windows.
//! 4. Before each fresh start, look at the memory of each server, then one more window for each lane
//!    while `perf` counts its system calls.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

use super::load::{Heavy, Options, Target};
use super::meter::{Usage, machine_busy, peak_resident_bytes, resident_bytes, threads};
use super::process::Helper;
use super::server::Server;
use super::syscalls;
use super::workload::{Load, Workload};

mod measured;

pub(crate) use super::progress::Progress;
pub(crate) use measured::{Measured, MeasuredLane, Quantiles, Round, Window};

/// One server under one kind of load.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) server: Server,
    pub(crate) workload: Workload,
}

/// What a server that echoes is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    pub(crate) sessions: usize,
    pub(crate) pipeline: usize,
    pub(crate) frame_bytes: usize,
    pub(crate) think: Duration,
    pub(crate) heavy: Option<Heavy>,
}

/// Lanes, and which of them are loaded one right after the other.
#[derive(Debug)]
pub(crate) struct Experiment {
    pub(crate) name: String,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) groups: Vec<Vec<usize>>,
    pub(crate) processes: Processes,
}

/// Whose process a lane loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processes {
    /// Each lane its own.
    OneEach,
    /// Lanes of the same server that follow one another, one together: they differ in their load.
    OneForEqual,
}

/// How long and how often.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) cycles: usize,
    #[serde(rename = "window_ms", serialize_with = "millis")]
    pub(crate) window: Duration,
    /// Cycles between two fresh starts.
    pub(crate) fresh_every: usize,
    pub(crate) counts_syscalls: bool,
    /// A first look: fewer loads and servers where that saves time.
    pub(crate) quick: bool,
}

impl Plan {
    /// Roughly how many seconds the windows of one lane take, all of them together, when starting its
    /// server and opening its connections takes `start`.
    pub(crate) fn seconds_of_lane(&self, start: f64) -> f64 {
        let starts = self.cycles.div_ceil(self.fresh_every) as f64;
        self.cycles as f64 * (self.window.as_secs_f64() + AROUND_WINDOW) + starts * start
    }
}

/// Seconds beside the window of a lane: the pause after it, and starting the next one.
pub(crate) const AROUND_WINDOW: f64 = 0.02;

/// A lane whose server runs and whose connections are open.
struct Live {
    /// Ended by the last lane that loads it.
    server: Rc<Helper>,
    load: Load,
    counts_answers: bool,
    /// Of the server, before the first connection.
    resident_before: u64,
}

/// Throws of the dice, the same ones each time.
struct Dice(u64);

const WARM_UP: Duration = Duration::from_millis(100);
/// After a window: threads that have nothing to do leave their CPU, and their time is written up.
const SETTLE: Duration = Duration::from_millis(5);

/// Runs it to the end.
///
/// # Errors
/// A server that does not start, and any connection on which anything but the right answer came.
pub(crate) fn run(
    experiment: &Experiment,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<Measured, Box<dyn Error>> {
    let lanes = experiment.lanes.iter().map(MeasuredLane::new);
    let mut measured = Measured {
        name: experiment.name.clone(),
        lanes: lanes.collect::<Result<_, _>>()?,
        rounds: Vec::new(),
    };
    let mut dice = Dice(1);
    for first in (0..plan.cycles).step_by(plan.fresh_every) {
        let mut live = experiment.start()?;
        let end = (first + plan.fresh_every).min(plan.cycles);
        for cycle in first..end {
            for group in &experiment.groups {
                let mut windows = Vec::new();
                for lane in dice.order(group, cycle) {
                    windows.push((lane, measured.window(lane, &mut live[lane], plan)?));
                    let (name, server) = (&measured.name, &measured.lanes[lane].server);
                    progress.window_done(format_args!("{name}: {server}"));
                }
                measured.rounds.push(Round { cycle, windows });
            }
        }
        for (lane, live) in live.iter_mut().enumerate() {
            let resident = resident_bytes(live.server.pid())?;
            let peak = peak_resident_bytes(live.server.pid())?;
            measured.lanes[lane].resident_bytes.push(resident);
            measured.lanes[lane].resident_bytes_before.push(live.resident_before);
            measured.lanes[lane].peak_resident_bytes.push(peak);
            if plan.counts_syscalls {
                live.count(plan.window, &mut measured.lanes[lane])?;
            }
        }
        for (live, lane) in live.into_iter().zip(&measured.lanes) {
            live.finish().map_err(|error| format!("{}: {error}", lane.server))?;
        }
    }
    measured.lanes.iter_mut().for_each(MeasuredLane::summarize);
    progress.step_done(format_args!("{}: {} rounds", measured.name, measured.rounds.len()));
    Ok(measured)
}

impl Experiment {
    /// Windows in one cycle.
    pub(crate) fn windows(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }

    /// Starts the servers and opens all connections.
    fn start(&self) -> Result<Vec<Live>, Box<dyn Error>> {
        let mut live: Vec<Live> = Vec::new();
        let shares = self.processes == Processes::OneForEqual;
        let mut started: Option<(&Server, Rc<Helper>, SocketAddr)> = None;
        for lane in &self.lanes {
            let (server, address) = match started.take() {
                Some((known, server, address)) if shares && *known == lane.server => {
                    (server, address)
                }
                _ => {
                    let (server, address) = lane.server.start()?;
                    (Rc::new(server), address)
                }
            };
            started = Some((&lane.server, Rc::clone(&server), address));
            let resident_before = resident_bytes(server.pid())?;
            let connected = lane.workload.connect(address);
            let load = connected.map_err(|error| format!("{}: {error}", lane.server))?;
            let counts_answers = lane.server.counts_answers();
            live.push(Live { server, load, counts_answers, resident_before });
        }
        for (live, lane) in live.iter_mut().zip(&self.lanes) {
            let warmed_up = live.window(WARM_UP, &mut Histogram::new(3)?);
            warmed_up.map_err(|error| format!("{}: {error}", lane.server))?;
        }
        Ok(live)
    }
}

impl Shape {
    /// So many connections with one request of 64 bytes in flight each.
    pub(crate) fn plain(connections: usize) -> Self {
        Self {
            connections,
            sessions: 1,
            pipeline: 1,
            frame_bytes: 64,
            think: Duration::ZERO,
            heavy: None,
        }
    }

    pub(crate) fn options(&self, target: Target) -> Options {
        Options {
            connections: self.connections,
            sessions_per_connection: self.sessions,
            pipeline: self.pipeline,
            frame_bytes: self.frame_bytes,
            think: self.think,
            heavy: self.heavy,
            ..Options::new(target)
        }
    }
}

impl Measured {
    fn window(
        &mut self,
        lane: usize,
        live: &mut Live,
        plan: &Plan,
    ) -> Result<Window, Box<dyn Error>> {
        let hist = &mut self.lanes[lane].hist;
        live.window(plan.window, hist).map_err(|error| {
            let lane = &self.lanes[lane];
            format!("{} with {}: {error}", lane.server, lane.load).into()
        })
    }
}

impl Live {
    /// Loads it for so long; its latencies are added to `hist`.
    fn window(
        &mut self,
        time: Duration,
        hist: &mut Histogram<u64>,
    ) -> Result<Window, Box<dyn Error>> {
        let before = Usage::of(self.server.pid())?;
        // Inside the readings of the server: they cost something where there are many threads.
        let busy_before = machine_busy()?;
        let report = self.load.run_for(time)?;
        let threads = threads(self.server.pid())?;
        thread::sleep(SETTLE);
        let busy = machine_busy()?.saturating_sub(busy_before).as_secs_f64();
        let used = Usage::of(self.server.pid())?.since(&before);
        hist.add(&report.hist)?;
        let answers = (report.requests + report.heavy_requests).max(1) as f64;
        let quantiles = Quantiles::of(&report.hist);
        Ok(Window {
            requests: report.requests,
            heavy_requests: report.heavy_requests,
            seconds: report.seconds,
            requests_per_second: report.requests as f64 / report.seconds,
            p50: quantiles.p50,
            p99: quantiles.p99,
            p999: quantiles.p999,
            max: quantiles.max,
            server_cpu_per_request: used.cpu.as_nanos() as f64 / answers,
            voluntary_switches_per_request: used.voluntary_switches as f64 / answers,
            involuntary_switches_per_request: used.involuntary_switches as f64 / answers,
            client_cpu_per_request: report.client_cpu.as_nanos() as f64 / answers,
            threads,
            other_cpu_seconds: busy - (used.cpu + report.client_cpu).as_secs_f64(),
        })
    }

    /// Loads it for so long while its system calls and wake-ups are counted.
    fn count(&mut self, time: Duration, lane: &mut MeasuredLane) -> Result<(), Box<dyn Error>> {
        let before = self.load.answers_total();
        let load = &mut self.load;
        let counts = syscalls::count(self.server.pid(), || load.run_for(time).map(drop))?;
        let answers = (self.load.answers_total() - before).max(1) as f64;
        if let Some(counts) = counts {
            lane.syscalls_per_request.push(counts.syscalls as f64 / answers);
            let wakeups = counts.wakeups.map(|wakeups| wakeups as f64 / answers);
            lane.wakeups_per_request.extend(wakeups);
        }
        Ok(())
    }

    /// Ends both sides; a server that counts its answers has to come to the same number.
    fn finish(self) -> Result<(), Box<dyn Error>> {
        let received = self.load.finish()?;
        let Ok(server) = Rc::try_unwrap(self.server) else {
            return Ok(());
        };
        let text = server.finish()?;
        if !self.counts_answers {
            return Ok(());
        }
        let sent = text.lines().find_map(|line| line.strip_prefix("answered "));
        if sent.is_some_and(|sent| sent.parse() == Ok(received)) {
            Ok(())
        } else {
            Err(format!("{received} answers were received, but the server says: {text}").into())
        }
    }
}

impl Dice {
    fn order(&mut self, group: &[usize], cycle: usize) -> Vec<usize> {
        let mut order = group.to_vec();
        if let [first, second] = *group {
            if !cycle.is_multiple_of(2) {
                order = vec![second, first];
            }
        } else {
            for end in (1..order.len()).rev() {
                order.swap(end, self.throw(end + 1));
            }
        }
        order
    }

    /// A number below `sides` (xorshift).
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(time.as_millis())
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.connections)?;
        if self.sessions > 1 {
            write!(f, " x {} sessions", self.sessions)?;
        }
        write!(f, " x {}", self.pipeline)?;
        if self.frame_bytes != 64 {
            write!(f, ", {} bytes", self.frame_bytes)?;
        }
        if !self.think.is_zero() {
            write!(f, ", think {} µs", self.think.as_micros())?;
        }
        if let Some(heavy) = self.heavy {
            let (connections, micros) = (heavy.connections, heavy.burn.as_micros());
            write!(f, ", heavy {connections}:{micros}")?;
            if heavy.pipeline > 1 {
                write!(f, " x {}", heavy.pipeline)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_alternate_and_larger_groups_keep_their_members() {
        let mut dice = Dice(1);
        assert_eq!(dice.order(&[0, 2], 0), [0, 2]);
        assert_eq!(dice.order(&[0, 2], 1), [2, 0]);
        let mut firsts = [false; 3];
        for cycle in 0..50 {
            let mut order = dice.order(&[0, 1, 2], cycle);
            firsts[order[0]] = true;
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2]);
        }
        assert_eq!(firsts, [true; 3]);
    }
}
