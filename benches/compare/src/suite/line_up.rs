//! All servers under one and the same load, and a table with a row for each of them.

use std::error::Error;

use crate::experiment::{self, Experiment, Lane, Measured, Plan, Processes, Progress, Window};
use crate::server::Server;
use crate::spec::Spec;
use crate::spread::Spread;
use crate::table::{Table, or_dash, time};
use crate::workload::Workload;

/// The first is what the others are compared with.
pub(super) const SERVERS: &[&str] = &[
    "epoll-group",
    "limit",
    "easy-sync",
    "easy-async",
    "uv",
    "percona",
    "grpc-cq",
    "grpc-cq-repaired",
    "thread-per-connection",
    "thread-per-session",
    "tokio",
];

/// A column of the table: its heading, and what it says of a lane.
pub(super) type Column<'a> = (&'static str, &'a dyn Fn(&Measured, usize) -> Option<String>);

pub(super) const REQUESTS: Column<'static> =
    ("requests/s", &|measured, lane| number(measured, lane, |window| window.requests_per_second));
pub(super) const P50: Column<'static> =
    ("p50", &|measured, lane| duration(measured, lane, |window| window.p50 as f64));
pub(super) const P99: Column<'static> =
    ("p99", &|measured, lane| duration(measured, lane, |window| window.p99 as f64));
pub(super) const P99_RATIO: Column<'static> =
    ("p99, ratio to ours", &|measured, lane| ratio(measured, lane, |window| window.p99 as f64));
pub(super) const P999: Column<'static> =
    ("p99.9", &|measured, lane| duration(measured, lane, |window| window.p999 as f64));
pub(super) const CPU: Column<'static> = ("CPU/request", &|measured, lane| {
    duration(measured, lane, |window| window.server_cpu_per_request)
});
pub(super) const SWITCHES: Column<'static> = ("switches/request", &|measured, lane| {
    let switches = |window: &Window| {
        window.voluntary_switches_per_request + window.involuntary_switches_per_request
    };
    Some(format!("{:.2}", answered(measured, lane, switches)?.median))
});
pub(super) const THREADS: Column<'static> = ("threads", &|measured, lane| {
    Some(format!("{:.0}", measured.values(lane, |window| window.threads as f64)?.median))
});
pub(super) const PEAK_MIB: Column<'static> = ("most memory, MiB", &|measured, lane| {
    Some(format!("{:.1}", measured.lanes[lane].peak_resident()?.median / MIB))
});

/// In words of a table, for a server that did not answer any more.
pub(super) const HANGS: &str = "hangs";

const MIB: f64 = (1 << 20) as f64;

/// All servers under a load, each a process of its own, loaded in turn.
pub(super) fn run(
    name: String,
    workload: Workload,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<Measured, Box<dyn Error>> {
    run_some(SERVERS, name, workload, plan, progress)
}

/// The same with some of them only; the first is still the one to compare with.
pub(super) fn run_some(
    servers: &[&str],
    name: String,
    workload: Workload,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<Measured, Box<dyn Error>> {
    // What counts here is who waits for whom.
    let plan = Plan { counts_syscalls: false, ..*plan };
    let experiment = Experiment {
        name,
        lanes: servers.iter().map(|spec| Lane { server: server(spec), workload }).collect(),
        groups: vec![(0..servers.len()).collect()],
        processes: Processes::OneEach,
    };
    progress.expect(experiment.windows() * plan.cycles);
    experiment::run(&experiment, &plan, progress)
}

/// Roughly how long [`run`] takes, when starting a server and its connections takes `start`.
pub(super) fn seconds(plan: &Plan, start: f64) -> f64 {
    SERVERS.len() as f64 * plan.seconds_of_lane(start)
}

pub(super) fn server(spec: &str) -> Server {
    let spec: Spec = spec.parse().expect("a server that is written down here");
    Server::Echo(spec)
}

/// A row for each server.
pub(super) fn table(measured: &Measured, columns: &[Column<'_>]) -> Table {
    let mut heading = vec!["server"];
    heading.extend(columns.iter().map(|(heading, _)| *heading));
    let mut table = Table::new(&heading);
    for (lane, found) in measured.lanes.iter().enumerate() {
        let cell = |(_, cell): &Column<'_>| or_dash(cell(measured, lane));
        let mut row = vec![found.server.clone()];
        row.extend(columns.iter().map(cell));
        table.row(row);
    }
    table
}

/// Likewise, of a metric of windows.
pub(super) fn number(
    measured: &Measured,
    lane: usize,
    metric: fn(&Window) -> f64,
) -> Option<String> {
    Some(
        answered(measured, lane, metric)
            .map_or_else(|| HANGS.to_owned(), |spread| format!("{:.0}", spread.median)),
    )
}

fn duration(measured: &Measured, lane: usize, metric: fn(&Window) -> f64) -> Option<String> {
    Some(time(answered(measured, lane, metric)?.median))
}

fn ratio(measured: &Measured, lane: usize, metric: fn(&Window) -> f64) -> Option<String> {
    const OURS: usize = 0;
    answered(measured, OURS, metric)?;
    answered(measured, lane, metric)?;
    match lane {
        OURS => Some("1".to_owned()),
        _ => Some(measured.ratio(lane, OURS, metric)?.ratio().to_string()),
    }
}

/// `None` if there is a window in which nothing was answered.
fn answered(measured: &Measured, lane: usize, metric: fn(&Window) -> f64) -> Option<Spread> {
    let least = measured.values(lane, |window| window.requests as f64)?.min;
    if least > 0.0 { measured.values(lane, metric) } else { None }
}
