//! Frames that come back as they are: what the architecture costs, and nothing else.

use std::error::Error;

use serde_json::json;

use super::Suite;
use super::expect::{self, Bound, Expectation};
use super::grid::{CPU, Contender, Found, Grid};
use crate::experiment::{Plan, Progress, Shape};
use crate::report::{Block, Section};
use crate::table::{Table, or_dash};
use crate::workload::Workload;

pub(crate) const SUITE: Suite = Suite {
    name: "echo",
    question: "What does each architecture cost per request, when the work is nothing?",
    seconds: |plan| servers(plan).seconds(plan) + limits(plan).seconds(plan),
    run,
};

const SERVERS: [&str; 12] = [
    OURS,
    "limit",
    "easy-sync",
    "easy-async",
    "easy-async:16:workers=64",
    "uv",
    "percona",
    "grpc-cq",
    "grpc-cq-repaired",
    "thread-per-connection",
    "thread-per-session",
    "tokio",
];
const OURS: &str = "epoll-group";

/// The first of them is the base.
const LIMITS: [&str; 3] = ["limit", TWIN, "mio"];
const TWIN: &str = "limit, its twin";
/// CPU time of one writing of the limit to the other.
const LIMITS_DIFFER_BY: f64 = 0.10;

/// Where the distribution of latencies is shown, and what a quick report has too.
const LATENCIES_AT: usize = 256;

const EXPECTATIONS: [Expectation; 7] = [
    Expectation::from("easy-sync", Bound::AtLeast(1.05), 256),
    Expectation::from("easy-async", Bound::AtLeast(1.5), 0),
    Expectation::from("percona", Bound::AtLeast(1.2), 0),
    Expectation::from("grpc-cq", Bound::AtLeast(1.5), 0),
    Expectation::from("thread-per-connection", Bound::AtLeast(1.5), 512),
    Expectation::from("limit", Bound::AtMost(1.1), 0),
    Expectation::from("tokio", Bound::AtLeast(1.0), 0),
];

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let servers = servers(plan).run(plan, progress)?;
    let limits = limits(plan).run(plan, progress)?;
    let mut blocks = vec![Block::Text(
        "Frames of 64 bytes, one in flight on each connection, sent and checked by one thread of \
         another process, on the same CPUs: requests per second are those of server and load \
         together, CPU time is the server's alone. The server only finds where a frame ends and \
         sends it back.\n\n\
         Each server has the threads that it has by default. Those with loops, pollers, io threads, \
         workers or thread groups have one of them for each CPU; `epoll-group` has 4 threads for \
         each group, and a group for 4 CPUs."
            .to_owned(),
    )];
    blocks.extend(servers.blocks(LATENCIES_AT));
    blocks.extend(wakeups(&servers));
    blocks.push(Block::Text(
        "### As expected?\n\nConfirmed is what holds under every load named; shown is the load that \
         comes off worst. *Yes*: the whole interval reaches the bound. *By the median*: the median \
         does, the interval contains the bound. *Not told apart*: the median misses it, the interval \
         contains it."
            .to_owned(),
    ));
    blocks.push(Block::Table(expect::table(&servers, &EXPECTATIONS)));
    blocks.extend(limit(&limits));
    let other = servers.other_cpus().max(limits.other_cpus());
    blocks.push(Block::other_work(other));
    let raw = json!({ "servers": servers.raw(), "limits": limits.raw() });
    Ok(Section { name: SUITE.name, title: "Echo".to_owned(), blocks, raw })
}

fn servers(plan: &Plan) -> Grid {
    let loads = match plan.quick {
        true => vec![32, LATENCIES_AT],
        false => (1..=10).map(|power| 1 << power).collect(),
    };
    grid(SERVERS.map(Contender::echo).into(), loads)
}

fn limits(plan: &Plan) -> Grid {
    let loads = if plan.quick { vec![LATENCIES_AT] } else { vec![32, 256, 1024] };
    let contender = |name| match name {
        TWIN => Contender { name: TWIN.to_owned(), ..Contender::echo("limit") },
        name => Contender::echo(name),
    };
    grid(LIMITS.map(contender).into(), loads)
}

fn grid(contenders: Vec<Contender>, loads: Vec<usize>) -> Grid {
    let workload = |connections| Workload::Frames(Shape::plain(connections));
    Grid { contenders, ours: 0, loads, unit: "connections", workload }
}

/// What the scheduler has to do, from the same windows.
fn wakeups(found: &Found) -> [Block; 8] {
    let text = |text: &str| Block::Text(text.to_owned());
    [
        text(
            "### Wake-ups and scheduling cost\n\nHow often a thread of the server leaves its CPU, \
             per request: because it has nothing more to do, which is how often one has to be woken, \
             and because another one wants the CPU.",
        ),
        Block::Chart(found.switches_chart()),
        Block::Table(found.switches()),
        text(
            "Wake-ups that the threads of the server make, per request: of each other, and of the \
             load generator where it sleeps. What a server makes beyond `limit` are hand-offs from \
             thread to thread.",
        ),
        Block::Table(found.wakeups()),
        text("System calls per request."),
        Block::Table(found.syscalls()),
        text(
            "Wake-ups and system calls are counted by `perf` in windows of their own, one for each \
             start; a dash: nothing was allowed to count them.",
        ),
    ]
}

/// One writing of the limit beside another, and beside itself.
fn limit(found: &Found) -> [Block; 2] {
    let base = found.grid.ours;
    let mut table = Table::new(&["connections", TWIN, "mio", "within 10 %"]);
    for &load in &found.grid.loads {
        let ratio = |name| found.ratio((found.place(name)?, base), load, CPU);
        let shown = |name| or_dash(ratio(name).map(|ratio| ratio.to_string()));
        let within = ratio("mio").map(|ratio| (ratio.median - 1.0).abs() <= LIMITS_DIFFER_BY);
        let within = match within {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "not measured",
        };
        table.row(vec![load.to_string(), shown(TWIN), shown("mio"), within.to_owned()]);
    }
    [
        Block::Text(
            "### Is the limit one?\n\nCPU time per request to that of `limit`: of a second writing of \
             it over `mio`, and of another process of `limit` itself. What differs from 1 in the latter \
             is what this rig cannot tell apart."
                .to_owned(),
        ),
        Block::Table(table),
    ]
}
