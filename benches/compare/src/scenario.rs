//! What is compared with what, and the number that each comparison has to reach.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::COMMAND;
use super::args::{Length, Measure, Scenario};
use super::environment::Environment;
use super::experiment::{
    self, Experiment, Lane, Measured, Plan, Processes, Progress, Shape, Window,
};
use super::idle::Idle;
use super::load::{Heavy, raise_descriptor_limit};
use super::server::Server;
use super::spec::{Kind, Spec};
use super::spread::Spread;
use super::workload::Workload;

mod sessions;
mod tables;

pub(crate) use sessions::run as sessions;

use tables::{check_table, idle_table, measured_table};

/// All that a run has to say; the raw numbers go to a file, the rest is printed as well.
#[derive(Debug, Serialize)]
struct Outcome {
    environment: Environment,
    plan: Plan,
    checks: Vec<Check>,
    idle: Vec<Idle>,
    experiments: Vec<Measured>,
}

/// A number beside its target.
#[derive(Debug, Serialize)]
struct Check {
    what: String,
    /// `None`: could not be measured. The median is what counts.
    found: Option<Spread>,
    /// The same between the base and its own twin.
    floor: Option<Spread>,
    target: Target,
}

#[derive(Clone, Copy, Debug, Serialize)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// None: to be seen beside the others.
    Seen,
}

/// Lanes 0 and 1 of a comparison, and the twin of lane 0 that shows what the rig cannot tell.
const BASE: usize = 0;
const SUBJECT: usize = 1;
const CPU_TWIN: usize = 2;

const CPU_CONNECTIONS: [usize; 4] = [32, 128, 512, 1024];
const IDLE_CONNECTIONS: usize = 10_000;
/// Even, so that each start sees as many pairs forwards as backwards.
const FRESH_EVERY: usize = 8;

/// Measures, prints, and writes the raw numbers down.
pub(crate) fn run(args: &Measure, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let mut outcome = Outcome::new(&args.length);
    // Burning CPU time is mostly asking for the time: calls that say nothing of the server.
    outcome.plan.counts_syscalls = args.scenario != Scenario::Heavy && args.shape.heavy.is_none();
    match args.scenario {
        Scenario::Cpu => cpu(args, &mut outcome)?,
        Scenario::Heavy => heavy(args, &mut outcome)?,
        Scenario::Pipeline => pipeline(args, &mut outcome)?,
        Scenario::Idle => idle(args, &mut outcome)?,
        Scenario::Servers => servers(args, &mut outcome)?,
    }
    outcome.print(args.scenario.name().unwrap_or("servers"), out)?;
    match (&args.json, args.scenario.name()) {
        (Some(file), _) => outcome.write_down(file, out),
        (None, Some(name)) => {
            let file = PathBuf::from(format!("target/compare/{name}.json"));
            outcome.write_down(&file, out)
        }
        (None, None) => Ok(()),
    }
}

/// CPU time, throughput, latency and system calls per request over the numbers of connections.
fn cpu(args: &Measure, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
    let [base, subject] = compared(args, [Kind::Limit, Kind::EpollGroup])?;
    let counts = args.connections.as_deref().unwrap_or(&CPU_CONNECTIONS);
    let experiments = counts.iter().map(|&count| {
        let lane = |spec: &Spec| lane(spec, Shape::plain(count));
        Experiment {
            name: format!("{count} connections"),
            lanes: vec![lane(&base), lane(&subject), lane(&base)],
            groups: vec![vec![BASE, SUBJECT], vec![BASE, CPU_TWIN]],
            processes: Processes::OneEach,
        }
    });
    outcome.measure(&experiments.collect::<Vec<_>>())?;

    let mut checks = vec![median_of_ratios(&outcome.experiments)];
    for (&count, measured) in counts.iter().zip(&outcome.experiments) {
        let ratio = |what: &str, metric: fn(&Window) -> f64, target| {
            let what = format!("{what}, {count} connections: ratio");
            Check::ratio(what, measured, (SUBJECT, BASE, Some(CPU_TWIN)), metric, target)
        };
        let throughput: fn(&Window) -> f64 = |window| window.requests_per_second;
        checks.push(ratio("requests/s", throughput, Target::AtLeast(0.9)));
        let p99_limit = match count {
            32 => Some(0.6),
            128 => Some(0.8),
            _ => None,
        };
        if let Some(limit) = p99_limit {
            checks.push(ratio("p99", |window| window.p99 as f64, Target::AtMost(limit)));
        }
        let more_syscalls = match count {
            32 => Some(0.1),
            512.. => Some(0.45),
            _ => None,
        };
        if let Some(limit) = more_syscalls {
            checks.push(Check {
                what: format!("system calls per request, {count} connections: difference"),
                found: more_calls(measured, SUBJECT),
                floor: more_calls(measured, CPU_TWIN),
                target: Target::AtMost(limit),
            });
        }
    }
    outcome.checks = checks;
    Ok(())
}

/// The four ratios of CPU time as one number.
fn median_of_ratios(experiments: &[Measured]) -> Check {
    let metric = |window: &Window| window.server_cpu_per_request;
    let over_all = |lane: usize| {
        let ratios = experiments.iter().filter_map(|measured| measured.ratio(lane, BASE, metric));
        Spread::of(ratios.map(|ratio| ratio.median).collect())
    };
    Check {
        what: "server CPU per request, median over the numbers of connections: ratio".to_owned(),
        found: over_all(SUBJECT),
        floor: over_all(CPU_TWIN),
        target: Target::AtMost(1.10),
    }
}

/// System calls per request beyond those of the base, start by start.
fn more_calls(measured: &Measured, lane: usize) -> Option<Spread> {
    let calls = |lane: usize| &measured.lanes[lane].syscalls_per_request;
    let both = calls(lane).iter().zip(calls(BASE));
    Spread::of(both.map(|(ours, base)| ours - base).collect())
}

/// Light connections beside one whose handler burns CPU without pause.
fn heavy(args: &Measure, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
    let kinds = [Kind::Limit, Kind::ThreadPerConnection, Kind::EpollGroup];
    let [limit, threads, subject] = compared(args, kinds)?;
    let shape = Shape {
        think: Duration::from_micros(6400),
        heavy: Some(Heavy { connections: 1, burn: Duration::from_millis(5), pipeline: 1 }),
        ..Shape::plain(64)
    };
    let specs = [&limit, &threads, &subject, &limit, &threads];
    let lanes = specs.map(|spec| lane(spec, shape));
    let (limit, threads, subject, limit_twin, threads_twin) = (0, 1, 2, 3, 4);
    outcome.measure(&[Experiment {
        name: "heavy".to_owned(),
        lanes: lanes.into(),
        groups: vec![(0..specs.len()).collect()],
        processes: Processes::OneEach,
    }])?;
    let measured = &outcome.experiments[0];
    let against_limit = (subject, limit, Some(limit_twin));
    let against_threads = (subject, threads, Some(threads_twin));
    let check = |what: &str, lanes, metric: fn(&Window) -> f64, limit| {
        Check::ratio(what.to_owned(), measured, lanes, metric, Target::AtMost(limit))
    };
    let p99: fn(&Window) -> f64 = |window| window.p99 as f64;
    let p999: fn(&Window) -> f64 = |window| window.p999 as f64;
    outcome.checks = vec![
        check("p99 of the light ones: ratio to the limit", against_limit, p99, 0.25),
        check("p99 of the light ones: ratio to a thread each", against_threads, p99, 1.1),
        check("p99.9 of the light ones: ratio to the limit", against_limit, p999, 0.4),
    ];
    Ok(())
}

/// As many requests in flight on few connections as on many.
fn pipeline(args: &Measure, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
    let [base, subject] = compared(args, [Kind::Limit, Kind::EpollGroup])?;
    let deep = Shape { pipeline: 32, ..Shape::plain(16) };
    let (wide, twin) = (2, 3);
    outcome.measure(&[Experiment {
        name: "pipeline".to_owned(),
        lanes: vec![
            lane(&base, deep),
            lane(&subject, deep),
            lane(&subject, Shape::plain(512)),
            lane(&base, deep),
        ],
        groups: vec![vec![BASE, SUBJECT], vec![SUBJECT, wide], vec![BASE, twin]],
        processes: Processes::OneEach,
    }])?;
    let measured = &outcome.experiments[0];
    let check = |what: &str, lanes, limit| {
        let metric = |window: &Window| window.server_cpu_per_request;
        Check::ratio(what.to_owned(), measured, lanes, metric, Target::AtMost(limit))
    };
    outcome.checks = vec![
        check(
            "server CPU per request, 16 x 32: ratio to the limit",
            (SUBJECT, BASE, Some(twin)),
            1.25,
        ),
        check(
            "server CPU per request, 16 x 32: ratio to our own 512 x 1",
            (SUBJECT, wide, None),
            0.1,
        ),
    ];
    Ok(())
}

/// Resident memory of connections that do nothing.
fn idle(args: &Measure, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
    let specs = compared(args, [Kind::Limit, Kind::EpollGroup])?;
    let counts = args.connections.as_deref().unwrap_or(&[IDLE_CONNECTIONS]);
    for &count in counts {
        for spec in &specs {
            outcome.idle.push(Idle::measure(spec, count)?);
        }
    }
    let subject = specs[SUBJECT].to_string();
    let ours = outcome.idle.iter().filter(|idle| idle.server == subject);
    let checks = ours.map(|idle| Check {
        what: format!("resident bytes per idle connection, {} of them", idle.connections),
        found: Spread::of(vec![idle.bytes_per_connection()]),
        floor: None,
        target: Target::AtMost(1024.0),
    });
    outcome.checks = checks.collect();
    Ok(())
}

/// The servers and the load of the command line.
fn servers(args: &Measure, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
    let specs = args.servers.as_deref().unwrap_or_default();
    let counts = args.connections.as_deref().unwrap_or(&CPU_CONNECTIONS);
    let experiments = counts.iter().map(|&connections| {
        let shape = Shape { connections, ..args.shape };
        let lane = |spec: &Spec| lane(spec, shape);
        Experiment {
            name: shape.to_string(),
            lanes: specs.iter().map(lane).collect(),
            groups: vec![(0..specs.len()).collect()],
            processes: Processes::OneEach,
        }
    });
    outcome.measure(&experiments.collect::<Vec<_>>())
}

fn lane(spec: &Spec, shape: Shape) -> Lane {
    Lane { server: Server::Echo(spec.clone()), workload: Workload::Frames(shape) }
}

/// The servers to compare: those of the command line, or these as they come.
fn compared<const N: usize>(args: &Measure, kinds: [Kind; N]) -> Result<[Spec; N], String> {
    match &args.servers {
        None => Ok(kinds.map(Spec::plain)),
        Some(specs) => <[Spec; N]>::try_from(specs.clone())
            .map_err(|specs| format!("--servers names {} servers, not {N}", specs.len())),
    }
}

impl Outcome {
    fn new(length: &Length) -> Self {
        Self {
            environment: Environment::of(COMMAND),
            plan: Plan {
                cycles: length.pairs(),
                window: length.window(),
                fresh_every: FRESH_EVERY,
                counts_syscalls: true,
                quick: length.is_quick(),
            },
            checks: Vec::new(),
            idle: Vec::new(),
            experiments: Vec::new(),
        }
    }

    fn measure(&mut self, experiments: &[Experiment]) -> Result<(), Box<dyn Error>> {
        let windows: usize = experiments.iter().map(Experiment::windows).sum();
        let mut progress = Progress::new(windows * self.plan.cycles);
        for experiment in experiments {
            let measured = experiment::run(experiment, &self.plan, &mut progress)?;
            self.experiments.push(measured);
        }
        Ok(())
    }

    fn print(&self, title: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
        writeln!(out, "# {title}\n")?;
        writeln!(out, "{}", self.environment)?;
        if !self.experiments.is_empty() {
            writeln!(out, "{}", measured_table(&self.experiments))?;
            let (pairs, millis) = (self.plan.cycles, self.plan.window.as_millis());
            writeln!(
                out,
                "Medians of {pairs} rounds of {millis} ms windows; [quartiles]; ratios are those \
                 of neighbouring windows to the first server.\n"
            )?;
            let others = self.experiments.iter().map(Measured::other_cpus);
            writeln!(
                out,
                "Other work took up to {:.2} of {} CPUs meanwhile.\n",
                others.fold(0.0, f64::max),
                self.environment.cpus
            )?;
            let lanes = self.experiments.iter().flat_map(|measured| &measured.lanes);
            if self.plan.counts_syscalls && lanes.clone().any(|lane| lane.syscalls().is_none()) {
                writeln!(out, "System calls: perf is missing or not allowed to count them.\n")?;
            }
        }
        if !self.idle.is_empty() {
            writeln!(out, "{}", idle_table(&self.idle))?;
        }
        if !self.checks.is_empty() {
            writeln!(out, "{}", check_table(&self.checks))?;
        }
        Ok(())
    }

    fn write_down(&self, file: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, serde_json::to_string(self)? + "\n")
            .map_err(|error| format!("{}: {error}", file.display()))?;
        writeln!(out, "Raw numbers: {}", file.display())?;
        Ok(())
    }
}

impl Check {
    /// The ratio of one lane to another, beside the ratio of the other to its twin.
    fn ratio(
        what: String,
        measured: &Measured,
        (lane, base, twin): (usize, usize, Option<usize>),
        metric: impl Fn(&Window) -> f64,
        target: Target,
    ) -> Self {
        Self {
            what,
            found: measured.ratio(lane, base, &metric),
            floor: twin.and_then(|twin| measured.ratio(twin, base, &metric)),
            target,
        }
    }

    fn is_met(&self) -> Option<bool> {
        let found = self.found?.median;
        match self.target {
            Target::AtMost(limit) => Some(found <= limit),
            Target::AtLeast(limit) => Some(found >= limit),
            Target::Seen => None,
        }
    }
}
