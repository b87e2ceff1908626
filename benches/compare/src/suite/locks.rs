//! Locks that are held from one request to the next, as a transaction holds its rows.

use std::error::Error;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::Suite;
use super::line_up::{self, CPU, Column, HANGS, P50, P99, SERVERS, SWITCHES, THREADS};
use crate::experiment::{Measured, Plan, Progress};
use crate::meter;
use crate::report::{Block, Section};
use crate::table::{Table, time};
use crate::workload::Workload;

mod load;

pub(crate) use load::{Load, Shape};

pub(crate) const SUITE: Suite = Suite {
    name: "locks",
    question: "What if requests wait for a lock that only a later request gives back?",
    seconds,
    run,
};

/// All wait for one lock, and the last request gives it back.
#[derive(Debug, Serialize)]
struct Release {
    server: &'static str,
    /// While all wait.
    threads: u64,
    /// From the request that gives the lock back until all have had it; `None`: nothing happened.
    nanos: Option<u64>,
}

const CONNECTIONS: usize = 64;
const LOCKS: [u32; 2] = [1, 16];
/// As many workers as connections. Each has a queue of its own, in which a request that would end a
/// wait can stand behind the one that waits.
const POOLED: &str = "easy-async:16:workers=64";
const REQUESTS: Column<'static> = ("transactions/s", line_up::REQUESTS.1);
const SWITCHES_EACH: Column<'static> = ("switches/transaction", SWITCHES.1);
const CPU_EACH: Column<'static> = ("CPU/transaction", CPU.1);

/// Requests reach the server within it, and find the lock taken.
const ALL_WAIT: Duration = Duration::from_millis(100);

/// Where nothing is answered for so long, nothing ever will be.
fn patience(plan: &Plan) -> Duration {
    (5 * plan.window).clamp(Duration::from_millis(300), Duration::from_secs(2))
}

fn locks(plan: &Plan) -> &'static [u32] {
    if plan.quick { &LOCKS[..1] } else { &LOCKS }
}

fn seconds(plan: &Plan) -> f64 {
    // About half of the servers are expected to hang in all of it, once in each start.
    let start = 0.2 + patience(plan).as_secs_f64() / 2.0;
    locks(plan).len() as f64 * line_up::seconds(plan, start) + SERVERS.len() as f64 * start
}

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let servers: Vec<_> = SERVERS.iter().copied().chain([POOLED]).collect();
    let mut releases = Vec::new();
    for server in &servers {
        releases.push(Release::measure(server, CONNECTIONS, patience(plan))?);
    }
    progress.step_done(format_args!("{CONNECTIONS} waiters of a lock"));
    let mut transactions = Vec::new();
    for &locks in locks(plan) {
        let shape = Shape { connections: CONNECTIONS, locks, patience: patience(plan) };
        let name = format!("locks of {CONNECTIONS} connections: {locks}");
        let workload = Workload::Locks(shape);
        transactions.push(line_up::run_some(&servers, name, workload, plan, progress)?);
    }
    Ok(Section {
        name: SUITE.name,
        title: "Lock waits".to_owned(),
        blocks: blocks(&releases, &transactions),
        raw: json!({ "releases": releases, "experiments": transactions }),
    })
}

fn blocks(releases: &[Release], transactions: &[Measured]) -> Vec<Block> {
    let mut blocks = vec![
        Block::Text(format!(
            "A transaction is two requests: one takes a lock, the next one gives it back. Whoever \
             finds the lock taken waits in its handler, as in any server whose handlers are ordinary \
             blocking code. Where the thread that waits is the one that would read the other \
             connection's request, or the last of a pool, nobody ever gives the lock back: \
             *{HANGS}*. Each server waits as it best can: epoll-group with its own locks, which tell \
             it of the wait; those that have a way to announce a wait, inside that; the others \
             plainly. {POOLED} has 16 threads that read and 64 that run handlers, \
             each from a queue of its own."
        )),
        Block::Text(format!(
            "### {CONNECTIONS} wait for what request {} does\n\nOne connection has the lock and \
             {CONNECTIONS} wait for it; then it gives the lock back, and they take it and give it \
             back one after the other. Each server is tried once: the time is an order of magnitude, \
             what counts is whether it comes to an end. A server that gives the lock to anybody \
             else meanwhile fails the run.",
            CONNECTIONS + 1
        )),
        Block::Table(release_table(releases)),
    ];
    for (locks, measured) in LOCKS.iter().zip(transactions) {
        let locks = if *locks == 1 { "one lock".to_owned() } else { format!("{locks} locks") };
        blocks.push(Block::Text(format!(
            "### Transactions of {CONNECTIONS} connections over {locks}\n\nEach connection begins \
             the next one as soon as one ends. Latencies are those of whole transactions."
        )));
        let columns = [REQUESTS, P50, P99, CPU_EACH, SWITCHES_EACH, THREADS];
        blocks.push(Block::Table(line_up::table(measured, &columns)));
    }
    blocks
}

fn release_table(releases: &[Release]) -> Table {
    let mut table = Table::new(&["server", "until all had it", "threads while they wait"]);
    for release in releases {
        let until = release.nanos.map_or_else(|| HANGS.to_owned(), |nanos| time(nanos as f64));
        table.row(vec![release.server.to_owned(), until, release.threads.to_string()]);
    }
    table
}

impl Release {
    fn measure(
        server: &'static str,
        waiters: usize,
        patience: Duration,
    ) -> Result<Self, Box<dyn Error>> {
        let (process, address) = line_up::server(server).start()?;
        let shape = Shape { connections: waiters + 1, locks: 1, patience };
        let mut load = Load::connect(address, &shape)?;
        let mut threads = Ok(0);
        let took = load.release(|| {
            std::thread::sleep(ALL_WAIT);
            threads = meter::threads(process.pid());
        })?;
        drop(load);
        process.finish()?;
        let nanos = took.map(|took| took.as_nanos() as u64);
        Ok(Self { server, threads: threads?, nanos })
    }
}

#[cfg(test)]
mod tests;
