//! One CPU, two, and so on up to all of the machine; and the same CPUs in more or fewer groups.
//!
//! A server is bound to the first CPUs of the machine (`sched_setaffinity`, which its threads
//! inherit, and from which it chooses how many of them to start). Where there are four CPUs or more,
//! half of them are left to the load, with as many threads; where there are fewer, server and load
//! share them, and throughput says as much of the load as of the server: then CPU time per request
//! is what counts.

use std::error::Error;

use serde_json::json;

use super::Suite;
use crate::affinity;
use crate::experiment::{
    self, Experiment, Lane, Measured, Plan, Processes, Progress, Shape, Window,
};
use crate::report::{Axis, Block, Chart, Scale, Section, Series};
use crate::server::Server;
use crate::spread::Ratio;
use crate::table::{Table, or_dash, time};
use crate::workload::Workload;

pub(crate) const SUITE: Suite = Suite {
    name: "scaling",
    question: "What does each further CPU bring, and each further group?",
    seconds: |plan| Scaling::usual(plan).seconds(plan),
    run: |plan, progress| Scaling::usual(plan).run(plan, progress),
};

/// What is measured.
#[derive(Debug)]
struct Scaling {
    servers: Vec<&'static str>,
    /// Settings of ours to be compared on all CPUs of the server; the first is the base.
    groupings: Vec<&'static str>,
    machine: Machine,
    connections: Vec<usize>,
}

/// How the CPUs are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Machine {
    cpus: usize,
    server_most: usize,
    /// Threads of the load on CPUs of their own; 0: it shares those of the server.
    load_threads: usize,
}

/// So many CPUs for the server, and what was seen with them.
#[derive(Debug)]
struct Step {
    cpus: usize,
    connections: usize,
    /// Lanes are the servers on one CPU, then, with more CPUs than that, the servers on these.
    measured: Measured,
}

type Metric = fn(&Window) -> f64;

const THROUGHPUT: Metric = |window| window.requests_per_second;
const CPU: Metric = |window| window.server_cpu_per_request;
const P99: Metric = |window| window.p99 as f64;
/// CPUs that the server has kept busy.
const BUSY: Metric = |window| window.server_cpu_per_request * window.requests_per_second / 1e9;

const SHARED_BELOW: usize = 4;
const OURS: &str = "epoll-group";

impl Scaling {
    fn usual(plan: &Plan) -> Self {
        let machine = Machine::of(affinity::allowed().map_or(1, |cpus| cpus.len()));
        let mut scaling = Self {
            servers: vec!["limit", "easy-sync", OURS],
            groupings: vec![OURS, "epoll-group:groups=2", "epoll-group:groups=4"],
            machine,
            connections: vec![256],
        };
        if !plan.quick {
            scaling.servers.extend(["easy-async", "tokio"]);
            scaling.groupings.extend([
                "epoll-group:1",
                "epoll-group:2",
                "epoll-group:8",
                "epoll-group:1:groups=4",
            ]);
            scaling.connections.push(1_024.max(32 * machine.server_most));
        }
        scaling
    }

    fn seconds(&self, plan: &Plan) -> f64 {
        let experiments = self.experiments();
        let lanes = experiments.iter().map(|(_, _, experiment)| experiment.lanes.len());
        let lanes = (lanes.sum::<usize>() + self.groupings.len()) as f64;
        lanes * plan.seconds_of_lane(0.4)
    }

    fn run(&self, plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
        // System calls are counted by other suites.
        let plan = &Plan { counts_syscalls: false, ..*plan };
        let experiments = self.experiments();
        let groups = self.grouping();
        let windows = experiments.iter().map(|(_, _, experiment)| experiment.windows());
        progress.expect((windows.sum::<usize>() + groups.windows()) * plan.cycles);
        let mut steps = Vec::new();
        for (connections, cpus, experiment) in experiments {
            let measured = experiment::run(&experiment, plan, progress)?;
            steps.push(Step { cpus, connections, measured });
        }
        let groups = experiment::run(&groups, plan, progress)?;
        Ok(self.section(&steps, &groups))
    }

    /// Connections, CPUs and what is run with them.
    fn experiments(&self) -> Vec<(usize, usize, Experiment)> {
        let mut experiments = Vec::new();
        for &connections in &self.connections {
            for cpus in self.machine.steps() {
                let mut lanes = self.lanes(connections, 1);
                if cpus > 1 {
                    lanes.extend(self.lanes(connections, cpus));
                }
                let name = format!("{connections} connections, {cpus} CPUs");
                experiments.push((connections, cpus, in_turn(name, lanes)));
            }
        }
        experiments
    }

    fn lanes(&self, connections: usize, cpus: usize) -> Vec<Lane> {
        let lane = |server: &&str| self.lane(server, connections, cpus);
        self.servers.iter().map(lane).collect()
    }

    fn grouping(&self) -> Experiment {
        let connections = self.connections[self.connections.len() - 1];
        let lane = |server: &&str| self.lane(server, connections, self.machine.server_most);
        let lanes = self.groupings.iter().map(lane).collect();
        in_turn(format!("groups, {connections} connections"), lanes)
    }

    fn lane(&self, server: &str, connections: usize, cpus: usize) -> Lane {
        let spec = format!("{server}:cpus={cpus}");
        let spec = spec.parse().expect("a server that is written down here");
        let shape = Shape::plain(connections);
        let workload = match self.machine.load_threads {
            0 => Workload::Frames(shape),
            threads => Workload::Crowd(shape, threads),
        };
        Lane { server: Server::Echo(spec), workload }
    }

    fn section(&self, steps: &[Step], groups: &Measured) -> Section {
        let mut blocks = vec![Block::Text(self.machine.to_string())];
        for &connections in &self.connections {
            let steps: Vec<_> =
                steps.iter().filter(|step| step.connections == connections).collect();
            blocks.push(Block::Text(format!("### {connections} connections")));
            blocks.push(Block::Table(self.table(&steps)));
            if connections == self.connections[0] {
                blocks.extend(self.charts(&steps).map(Block::Chart));
            }
        }
        blocks.push(Block::Text(format!(
            "### Groups and threads\n\nThe same {} CPUs; ratios are to {}. \
             `epoll-group:N:groups=M` has M groups of N threads; what is not set is the default: 4 \
             threads for each group, and a group for 4 CPUs.",
            self.machine.server_most, self.groupings[0]
        )));
        blocks.push(Block::Table(self.groupings_table(groups)));
        let seen = steps.iter().map(|step| &step.measured).chain([groups]);
        let raw = json!({
            "cpus": self.machine.cpus,
            "server_most": self.machine.server_most,
            "load_threads": self.machine.load_threads,
            "experiments": seen.collect::<Vec<_>>(),
        });
        Section { name: SUITE.name, title: "Scaling".to_owned(), blocks, raw }
    }

    /// Of one number of connections: a row for each server on each number of CPUs.
    fn table(&self, steps: &[&Step]) -> Table {
        let mut table = Table::new(&[
            "server",
            "CPUs",
            "requests/s",
            "to 1 CPU",
            "CPUs busy",
            "CPU/request",
            "to 1 CPU",
            "requests per CPU second",
            "p99",
            "to 1 CPU",
        ]);
        for (place, server) in self.servers.iter().enumerate() {
            for (cpus, step) in self.rows(steps) {
                let lane = if cpus == 1 { place } else { self.servers.len() + place };
                let median = |metric| median(&step.measured, lane, metric);
                let ratio = |metric| match cpus {
                    1 => "1".to_owned(),
                    _ => shown(ratio(&step.measured, lane, place, metric)),
                };
                table.row(vec![
                    (*server).to_owned(),
                    cpus.to_string(),
                    format!("{:.0}", median(THROUGHPUT)),
                    ratio(THROUGHPUT),
                    format!("{:.2}", median(BUSY)),
                    time(median(CPU)),
                    ratio(CPU),
                    format!("{:.0}", 1e9 / median(CPU)),
                    time(median(P99)),
                    ratio(P99),
                ]);
            }
        }
        table
    }

    /// One CPU as it was seen in the first step, then each step.
    fn rows<'a>(&self, steps: &[&'a Step]) -> Vec<(usize, &'a Step)> {
        let mut rows: Vec<_> = steps.iter().map(|step| (step.cpus, *step)).collect();
        if let Some(&(cpus, first)) = rows.first()
            && cpus > 1
        {
            rows.insert(0, (1, first));
        }
        rows
    }

    fn groupings_table(&self, groups: &Measured) -> Table {
        let mut table =
            Table::new(&["server", "requests/s", "ratio", "CPU/request", "ratio", "p99", "ratio"]);
        for (lane, server) in self.groupings.iter().enumerate() {
            let ratio = |metric| match lane {
                0 => "1".to_owned(),
                _ => shown(ratio(groups, lane, 0, metric)),
            };
            table.row(vec![
                (*server).to_owned(),
                format!("{:.0}", median(groups, lane, THROUGHPUT)),
                ratio(THROUGHPUT),
                time(median(groups, lane, CPU)),
                ratio(CPU),
                time(median(groups, lane, P99)),
                ratio(P99),
            ]);
        }
        table
    }

    fn charts(&self, steps: &[&Step]) -> [Chart; 2] {
        let chart = |name, title: &str, label, metric: Metric, unit: f64| {
            let series = self.servers.iter().enumerate().map(|(place, server)| {
                let point = |(cpus, step): (usize, &Step)| {
                    let lane = if cpus == 1 { place } else { self.servers.len() + place };
                    (cpus as f64, median(&step.measured, lane, metric) / unit)
                };
                let points = self.rows(steps).into_iter().map(point).collect();
                Series { name: (*server).to_owned(), points }
            });
            Chart {
                name,
                title: title.to_owned(),
                x: Axis { label: "CPUs of the server", scale: Scale::Linear },
                y: Axis { label, scale: Scale::Linear },
                series: series.collect(),
            }
        };
        [
            chart("throughput", "Throughput", "requests per second", THROUGHPUT, 1.0),
            chart("cpu", "CPU time of the server per request", "µs", CPU, 1e3),
        ]
    }
}

impl Machine {
    fn of(cpus: usize) -> Self {
        let load_threads = if cpus < SHARED_BELOW { 0 } else { cpus / 2 };
        Self { cpus, server_most: cpus - load_threads, load_threads }
    }

    /// Numbers of CPUs beside which one CPU is measured: 2, 4, 8 … and all.
    fn steps(&self) -> Vec<usize> {
        let powers = (1..).map(|power| 1 << power);
        let mut steps: Vec<_> = powers.take_while(|cpus| *cpus < self.server_most).collect();
        steps.push(self.server_most);
        steps
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cpus, server_most, load_threads } = *self;
        writeln!(
            f,
            "A server is bound to the first 1 … {server_most} of {cpus} CPUs, and starts as many \
             threads as it does on a machine of that size. Beside each number of CPUs one CPU is \
             measured, in the same rounds."
        )?;
        match load_threads {
            0 => write!(
                f,
                "\n**The load shares the CPUs with the server.** It is one thread that may run on \
                 any of them and takes about as much time per request: on all CPUs throughput is \
                 what both reach together. The measure that survives this is the server's CPU time \
                 per request."
            ),
            _ => write!(f, "\nThe load has the last {load_threads} CPUs, and as many threads."),
        }
    }
}

fn in_turn(name: String, lanes: Vec<Lane>) -> Experiment {
    let groups = vec![(0..lanes.len()).collect()];
    Experiment { name, lanes, groups, processes: Processes::OneEach }
}

fn median(measured: &Measured, lane: usize, metric: Metric) -> f64 {
    measured.values(lane, metric).map_or(f64::NAN, |spread| spread.median)
}

fn ratio(measured: &Measured, lane: usize, base: usize, metric: Metric) -> Option<Ratio> {
    Some(measured.ratio(lane, base, metric)?.ratio())
}

fn shown(ratio: Option<Ratio>) -> String {
    or_dash(ratio.map(|ratio| ratio.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_machines_give_half_of_their_cpus_to_the_load() {
        assert_eq!(Machine::of(1), Machine { cpus: 1, server_most: 1, load_threads: 0 });
        assert_eq!(Machine::of(2).steps(), [2]);
        assert_eq!(Machine::of(3), Machine { cpus: 3, server_most: 3, load_threads: 0 });
        assert_eq!(Machine::of(104), Machine { cpus: 104, server_most: 52, load_threads: 52 });
        assert_eq!(Machine::of(104).steps(), [2, 4, 8, 16, 32, 52]);
    }
}
