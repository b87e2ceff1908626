//! Where the CPU time goes: what a flame graph would show, as a table.

use std::error::Error;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::Suite;
use super::select1::asking;
use crate::experiment::{Plan, Progress};
use crate::meter::Usage;
use crate::process::Helper;
use crate::profile::{self, Part};
use crate::report::{Block, Section};
use crate::server::{Architecture, EngineName, Server, Sql};
use crate::table::{Table, time};
use crate::workload::Load;

pub(crate) const SUITE: Suite = Suite {
    name: "share",
    question: "How much of the server's CPU time goes to queues, locks and wake-ups?",
    seconds: |plan| lanes(plan).len() as f64 * (plan.window.as_secs_f64() * windows(plan) + AROUND),
    run,
};

const SERVERS: [(&str, Architecture); 2] =
    [("epoll-group", Architecture::New), ("old", Architecture::Old)];
const CONNECTIONS: usize = 16;
const ROWS: u32 = 1000;
const WARM_UP: Duration = Duration::from_millis(200);
/// Seconds that `perf` takes to begin, to end, and to name what it has seen.
const AROUND: f64 = 8.0;

/// One server under one load, from samples.
#[derive(Debug, Serialize)]
struct Profile {
    server: &'static str,
    sessions: usize,
    samples: usize,
    /// In the order of [`Part::ALL`].
    counts: Vec<usize>,
    /// Nanoseconds.
    cpu_per_request: f64,
}

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let lanes = lanes(plan);
    progress.expect(lanes.len());
    let mut profiles = Vec::new();
    for &(sessions, name, architecture) in &lanes {
        profiles.extend(profile(sessions, (name, architecture), plan)?);
        progress.window_done(format_args!("{sessions} sessions: {name}"));
    }
    let mut blocks = vec![Block::Text(INTRODUCTION.to_owned())];
    if profiles.is_empty() {
        blocks.push(Block::Text("Not measured: `perf` is missing or not allowed to.".to_owned()));
    }
    for sessions in counts(plan) {
        let of_load: Vec<_> = profiles.iter().filter(|found| found.sessions == sessions).collect();
        if !of_load.is_empty() {
            blocks.push(Block::Text(format!("### {sessions} sessions")));
            blocks.push(Block::Table(table(&of_load)));
        }
    }
    let raw = json!({ "parts": Part::ALL.map(Part::name), "profiles": profiles });
    let title = "Where the CPU time goes".to_owned();
    Ok(Section { name: SUITE.name, title, blocks, raw })
}

const INTRODUCTION: &str = "\
`select 1` before an engine that answers at once, sessions over 16 connections. While a server is \
loaded, `perf record -a -g -e cpu-clock -F 999` looks where its threads are; what a sample is about \
is told by the name of the innermost function:

- **kernel**, by the calls that it was entered by: *waking and waiting for threads* is what is \
below a futex, an eventfd or a yield, all else is *sockets and the rest*, epoll included;
- **handler**: the engine, which is a function of its own here, whoever calls it;
- **codec**: frames, messages, rows;
- **sessions**: login, routing, the order of requests and answers; in the old architecture all that \
is inlined into the body of a thread;
- **queues, locks, wake-ups, runtime**: the library below sessions, the mailboxes of the old \
architecture, locks, the C library's functions for threads and sockets;
- **allocator**: malloc, free and their kin; **other**: copying memory, hashing, reading the clock, \
and what has no name.

A function that is inlined counts for the one it stands in: the cells of a row for the handler, \
a short lock for who takes it. So the parts are right to some hundredths, their sum is \
exact. Shares have the 95 % interval that so many samples allow. A share alone would mislead, since \
the whole is not the same: beside it stands what it is of one request. Servers are looked at one \
after the other, once each, and being looked at costs them something: how their CPU times per \
request compare is told by `select 1`, not by this table.";

/// Sessions, and who serves them.
fn lanes(plan: &Plan) -> Vec<(usize, &'static str, Architecture)> {
    let servers = |sessions| SERVERS.map(|(name, architecture)| (sessions, name, architecture));
    counts(plan).into_iter().flat_map(servers).collect()
}

fn counts(plan: &Plan) -> Vec<usize> {
    if plan.quick { vec![1024] } else { vec![64, 1024] }
}

/// As many windows as of other suites, one after the other.
fn windows(plan: &Plan) -> f64 {
    plan.cycles as f64
}

/// `None`: nothing could look.
fn profile(
    sessions: usize,
    (server, architecture): (&'static str, Architecture),
    plan: &Plan,
) -> Result<Option<Profile>, Box<dyn Error>> {
    let sql = Sql::Ours(architecture, EngineName::Constant);
    let (helper, address) = Server::Sql(sql, ROWS).start()?;
    let mut load = asking(CONNECTIONS, sessions).connect(address)?;
    load.run_for(WARM_UP)?;
    let time = plan.window.mul_f64(windows(plan));
    let mut cpu_per_request = f64::NAN;
    let samples = profile::record(helper.pid(), || {
        cpu_per_request = loaded(&helper, &mut load, time)?;
        Ok(())
    })?;
    drop(load);
    helper.finish()?;
    Ok(samples.map(|samples| {
        let count = |part| samples.iter().filter(|sample| Part::of(sample) == part).count();
        let counts = Part::ALL.map(count).into();
        Profile { server, sessions, samples: samples.len(), counts, cpu_per_request }
    }))
}

/// CPU time of the server per request, in nanoseconds.
fn loaded(server: &Helper, load: &mut Load, time: Duration) -> Result<f64, Box<dyn Error>> {
    let before = Usage::of(server.pid())?;
    let report = load.run_for(time)?;
    let used = Usage::of(server.pid())?.since(&before);
    Ok(used.cpu.as_nanos() as f64 / report.requests.max(1) as f64)
}

impl Profile {
    /// `12.3 % ± 0.8, 140 ns`: of the parts that are wanted.
    fn cell(&self, wanted: impl Fn(Part) -> bool) -> String {
        let parts = Part::ALL.iter().zip(&self.counts);
        let count: usize = parts.filter(|(part, _)| wanted(**part)).map(|(_, count)| count).sum();
        let samples = self.samples.max(1) as f64;
        let share = count as f64 / samples;
        let error = 1.96 * (share * (1.0 - share) / samples).sqrt();
        let cost = time(share * self.cpu_per_request);
        format!("{:.1} % ± {:.1}, {cost}", share * 100.0, error * 100.0)
    }
}

/// A row for each part, a column for each server.
fn table(profiles: &[&Profile]) -> Table {
    let mut heading = vec!["CPU time per request"];
    heading.extend(profiles.iter().map(|profile| profile.server));
    let mut table = Table::new(&heading);
    let mut row = |name: &str, wanted: &dyn Fn(Part) -> bool| {
        let mut row = vec![name.to_owned()];
        row.extend(profiles.iter().map(|profile| profile.cell(wanted)));
        table.row(row);
    };
    for part in Part::ALL {
        row(part.name(), &|other| other == part);
    }
    row("**outside of handler and kernel**", &|part| !part.is_kernel() && part != Part::Handler);
    row("**queues, locks, wake-ups, kernel included**", &|part| part.is_hand_over());
    row("all", &|_| true);
    table
}
