//! Several servers over several loads: what most suites measure, and the tables and charts of it.
//!
//! All servers of one load are alive together and loaded in turn, load after load. The tables have
//! a row for each load and a column for each server.

use std::error::Error;

use serde_json::{Value, json};

use crate::experiment::{self, Experiment, Lane, Measured, Plan, Processes, Progress, Window};
use crate::report::{Axis, Block, Chart, Scale, Series};
use crate::server::Server;
use crate::spec::Spec;
use crate::spread::Ratio;
use crate::table::{Table, or_dash, time};
use crate::workload::Workload;

/// One of the servers.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    /// On the page and in the charts.
    pub(crate) name: String,
    pub(crate) server: Server,
    /// In place of the grid's.
    pub(crate) workload: Option<fn(usize) -> Workload>,
}

/// What is to be measured.
#[derive(Debug)]
pub(crate) struct Grid {
    pub(crate) contenders: Vec<Contender>,
    /// The place of the contender that the others are compared with.
    pub(crate) ours: usize,
    /// Small to large.
    pub(crate) loads: Vec<usize>,
    /// What the loads count: `connections`, `sessions`.
    pub(crate) unit: &'static str,
    pub(crate) workload: fn(usize) -> Workload,
}

/// What came out.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) grid: Grid,
    /// One for each load.
    pub(crate) measured: Vec<Measured>,
}

/// Starting a server and opening its connections, its first window and its counting of system
/// calls, beside the window itself.
const START: f64 = 0.5;

impl Contender {
    /// A server that echoes frames, as the command line names it.
    ///
    /// # Panics
    /// There is none of this name.
    pub(crate) fn echo(spec: &str) -> Self {
        let parsed: Spec = spec.parse().expect("a server that is written down here");
        Self { name: spec.to_owned(), server: Server::Echo(parsed), workload: None }
    }

    pub(crate) fn new(name: &str, server: Server) -> Self {
        Self { name: name.to_owned(), server, workload: None }
    }

    /// The same number of whatever the loads count, in another way.
    pub(crate) fn under(self, workload: fn(usize) -> Workload) -> Self {
        Self { workload: Some(workload), ..self }
    }
}

impl Grid {
    /// Roughly how long it takes.
    pub(crate) fn seconds(&self, plan: &Plan) -> f64 {
        let counted = if plan.counts_syscalls { plan.window.as_secs_f64() } else { 0.0 };
        self.lanes() as f64 * plan.seconds_of_lane(START + counted)
    }

    /// # Errors
    /// Those of [`experiment::run`].
    pub(crate) fn run(self, plan: &Plan, progress: &mut Progress) -> Result<Found, Box<dyn Error>> {
        progress.expect(self.lanes() * plan.cycles);
        let mut measured = Vec::new();
        for &load in &self.loads {
            measured.push(experiment::run(&self.experiment(load), plan, progress)?);
        }
        Ok(Found { grid: self, measured })
    }

    /// Servers to start, all loads together.
    fn lanes(&self) -> usize {
        self.contenders.len() * self.loads.len()
    }

    /// The lanes are in the order of the contenders.
    fn experiment(&self, load: usize) -> Experiment {
        let lane = |contender: &Contender| {
            let workload = contender.workload.unwrap_or(self.workload);
            Lane { server: contender.server.clone(), workload: workload(load) }
        };
        let lanes: Vec<_> = self.contenders.iter().map(lane).collect();
        Experiment {
            name: format!("{load} {}", self.unit),
            groups: vec![(0..lanes.len()).collect()],
            lanes,
            processes: Processes::OneEach,
        }
    }
}

pub(crate) type Metric = fn(&Window) -> f64;

pub(crate) const THROUGHPUT: Metric = |window| window.requests_per_second;
/// Nanoseconds of the server's CPU time per request.
pub(crate) const CPU: Metric = |window| window.server_cpu_per_request;
/// Nanoseconds.
pub(crate) const P99: Metric = |window| window.p99 as f64;
const VOLUNTARY: Metric = |window| window.voluntary_switches_per_request;
const INVOLUNTARY: Metric = |window| window.involuntary_switches_per_request;

const MIB: f64 = (1 << 20) as f64;

impl Found {
    /// The place of a contender.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.grid.contenders.iter().position(|contender| contender.name == name)
    }

    /// Over the windows of one contender under one load; `None`: the grid has no such load.
    pub(crate) fn median(&self, contender: usize, load: usize, metric: Metric) -> Option<f64> {
        Some(self.at(load)?.values(contender, metric)?.median)
    }

    /// One contender to another, round by round.
    pub(crate) fn ratio(
        &self,
        (contender, base): (usize, usize),
        load: usize,
        metric: Metric,
    ) -> Option<Ratio> {
        Some(self.at(load)?.ratio(contender, base, metric)?.ratio())
    }

    /// The usual tables and charts, in the usual order; the distribution of latencies at `load`.
    pub(crate) fn blocks(&self, load: usize) -> Vec<Block> {
        let heading = |text: &str| Block::Text(format!("### {text}"));
        let ours = &self.grid.contenders[self.grid.ours].name;
        vec![
            heading("Requests per second"),
            Block::Chart(self.throughput_chart()),
            Block::Table(self.throughput()),
            heading("CPU time of the server per request"),
            Block::Chart(self.cpu_chart()),
            Block::Table(self.cpu()),
            Block::Text(format!("The same, as a ratio to {ours}; above 1, {ours} needs less.")),
            Block::Table(self.cpu_ratios()),
            heading("p99"),
            Block::Chart(self.p99_chart()),
            Block::Table(self.p99()),
            heading(&format!("Latencies at {load} {}", self.grid.unit)),
            Block::Chart(self.latency_chart(load)),
            heading("Resident memory of the server, MiB"),
            Block::Table(self.resident()),
        ]
    }

    pub(crate) fn throughput(&self) -> Table {
        self.table(|contender, load| {
            Some(format!("{:.0}", self.median(contender, load, THROUGHPUT)?))
        })
    }

    pub(crate) fn cpu(&self) -> Table {
        self.table(|contender, load| Some(time(self.median(contender, load, CPU)?)))
    }

    pub(crate) fn p99(&self) -> Table {
        self.table(|contender, load| Some(time(self.median(contender, load, P99)?)))
    }

    /// CPU time per request of each to ours: above 1, ours needs less.
    pub(crate) fn cpu_ratios(&self) -> Table {
        let ours = self.grid.ours;
        self.table(|contender, load| {
            if contender == ours {
                return Some("1".to_owned());
            }
            Some(self.ratio((contender, ours), load, CPU)?.to_string())
        })
    }

    /// Each costs one run through the scheduler at least: those of a thread that has nothing more
    /// to do, and those of a thread that had to make room.
    pub(crate) fn switches(&self) -> Table {
        self.table(|contender, load| {
            let voluntary = self.median(contender, load, VOLUNTARY)?;
            let involuntary = self.median(contender, load, INVOLUNTARY)?;
            Some(format!("{voluntary:.3} + {involuntary:.3}"))
        })
    }

    pub(crate) fn syscalls(&self) -> Table {
        self.table(|contender, load| {
            Some(format!("{:.2}", self.at(load)?.lanes[contender].syscalls()?.median))
        })
    }

    /// Those that threads of the server make.
    pub(crate) fn wakeups(&self) -> Table {
        self.table(|contender, load| {
            Some(format!("{:.3}", self.at(load)?.lanes[contender].wakeups()?.median))
        })
    }

    /// MiB.
    pub(crate) fn resident(&self) -> Table {
        self.table(|contender, load| {
            Some(format!("{:.1}", self.at(load)?.lanes[contender].resident()?.median / MIB))
        })
    }

    pub(crate) fn throughput_chart(&self) -> Chart {
        let y = Axis { label: "requests per second", scale: Scale::Linear };
        self.chart("throughput", "Throughput", y, |value| value, THROUGHPUT)
    }

    pub(crate) fn cpu_chart(&self) -> Chart {
        let y = Axis { label: "server CPU time per request, µs", scale: Scale::Linear };
        self.chart("cpu", "CPU time of the server per request", y, |nanos| nanos / 1e3, CPU)
    }

    pub(crate) fn switches_chart(&self) -> Chart {
        let y = Axis { label: "context switches per request", scale: Scale::Linear };
        let both: Metric = |window| VOLUNTARY(window) + INVOLUNTARY(window);
        self.chart("switches", "Context switches of the server", y, |count| count, both)
    }

    pub(crate) fn p99_chart(&self) -> Chart {
        let y = Axis { label: "p99, µs", scale: Scale::Logarithmic };
        self.chart("p99", "99 of 100 requests are answered within", y, |nanos| nanos / 1e3, P99)
    }

    /// The whole distribution, all windows of a load together.
    pub(crate) fn latency_chart(&self, load: usize) -> Chart {
        let series = self.grid.contenders.iter().enumerate().filter_map(|(place, contender)| {
            let latencies = self.at(load)?.lanes[place].latencies.iter();
            let points = latencies.filter(|(percentile, _)| *percentile >= 50.0);
            let points = points.map(|&(percentile, nanos)| (percentile, nanos as f64 / 1e3));
            Some(Series { name: contender.name.clone(), points: points.collect() })
        });
        Chart {
            name: "latency",
            title: format!("Latencies at {load} {}", self.grid.unit),
            x: Axis { label: "percentile", scale: Scale::Nines },
            y: Axis { label: "latency, µs", scale: Scale::Logarithmic },
            series: series.collect(),
        }
    }

    pub(crate) fn raw(&self) -> Value {
        let names: Vec<_> = self.grid.contenders.iter().map(|contender| &contender.name).collect();
        json!({
            "servers": names,
            "ours": names[self.grid.ours],
            "loads": self.grid.loads,
            "unit": self.grid.unit,
            "experiments": self.measured,
        })
    }

    /// The largest share of other work in the machine, in CPUs.
    pub(crate) fn other_cpus(&self) -> f64 {
        self.measured.iter().map(Measured::other_cpus).fold(0.0, f64::max)
    }

    fn chart(
        &self,
        name: &'static str,
        title: &str,
        y: Axis,
        unit: fn(f64) -> f64,
        metric: Metric,
    ) -> Chart {
        let series = self.grid.contenders.iter().enumerate().map(|(place, contender)| {
            let point =
                |&load: &usize| Some((load as f64, unit(self.median(place, load, metric)?)));
            let points = self.grid.loads.iter().filter_map(point).collect();
            Series { name: contender.name.clone(), points }
        });
        let series = series.collect();
        let x = Axis { label: self.grid.unit, scale: Scale::Logarithmic };
        Chart { name, title: title.to_owned(), x, y, series }
    }

    /// A row for each load, a column for each contender.
    pub(crate) fn table(&self, cell: impl Fn(usize, usize) -> Option<String>) -> Table {
        let mut heading = vec![self.grid.unit];
        heading.extend(self.grid.contenders.iter().map(|contender| contender.name.as_str()));
        let mut table = Table::new(&heading);
        for &load in &self.grid.loads {
            let cell = |contender| or_dash(cell(contender, load));
            let mut row = vec![load.to_string()];
            row.extend((0..self.grid.contenders.len()).map(cell));
            table.row(row);
        }
        table
    }

    fn at(&self, load: usize) -> Option<&Measured> {
        let place = self.grid.loads.iter().position(|&found| found == load)?;
        self.measured.get(place)
    }
}

#[cfg(test)]
mod tests;
