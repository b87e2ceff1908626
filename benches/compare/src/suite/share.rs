//! Where the CPU time goes: the content of a flame graph, as a table.

use std::error::Error;
use std::time::Duration;

use lab::meter::Usage;
use lab::table::markdown;
use serde::Serialize;
use serde_json::json;

use super::Suite;
use super::select1::{CONNECTIONS, ROWS, asking};
use crate::experiment::Plan;
use crate::perf::{self, Sample};
use crate::report::Section;
use crate::server::{Server, SqlServer};
use crate::table::time;
use crate::workload::Workload;

mod engine;
mod part;

use part::Part;

pub const SUITE: Suite = Suite {
    name: "share",
    question: "How much of the server's CPU time goes to queues, locks and wake-ups?",
    run,
};

const SERVERS: [(&str, SqlServer); 2] =
    [("epoll-group", SqlServer::NewConstant), ("old", SqlServer::OldConstant)];
const WARM_UP: Duration = Duration::from_millis(200);

/// Samples of one server under one load.
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

/// Samples of a server under a load, and its CPU time of a request in nanoseconds.
struct Taken {
    samples: Vec<Sample>,
    cpu_per_request: f64,
}

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let mut blocks = vec![TEXT.to_owned()];
    let mut all = Vec::new();
    for sessions in if plan.quick { vec![1024] } else { vec![64, 1024] } {
        let mut profiles = Vec::new();
        for (name, server) in SERVERS {
            profiles.extend(Profile::take(sessions, name, server, plan)?);
        }
        blocks.push(match profiles.is_empty() {
            true => "Not measured: `perf` is missing or not allowed to.".to_owned(),
            false => format!("### {sessions} sessions\n\n{}", table(&profiles)),
        });
        all.extend(profiles);
    }
    let engine = engine::measure(plan)?;
    blocks.extend(engine.blocks);
    let parts = Part::ALL.map(Part::name);
    let raw = json!({ "parts": parts, "profiles": all, "point_select": engine.profiles });
    Ok(Section { title: "Where the CPU time goes", blocks, raw, files: engine.files })
}

const TEXT: &str = "\
`select 1` before an engine that answers at once, sessions over 16 connections. While a server is loaded, \
`perf record -a -g -e cpu-clock -F 999` looks where its threads are. The name of the innermost function tells \
what a sample is about:

- **kernel**, by the calls that it was entered by: *waking and waiting for threads* is below a futex, an \
eventfd or a yield, all else is *sockets and the rest*, epoll included;
- **handler**: the engine, which is never inlined;
- **codec**: frames, messages, rows;
- **sessions**: login, routing, the order of requests and answers; in the old architecture all that is inlined \
into the body of a thread;
- **queues, locks, wake-ups, runtime**: the library below sessions, the mailboxes of the old architecture, \
locks, the C library's functions for threads and sockets;
- **allocator**: malloc, free and their kin; **other**: copying memory, hashing, reading the clock, and \
functions without a name.

A function that is inlined counts for its caller. So the parts are right to some hundredths, their sum is \
exact. Shares have the 95 % interval that so many samples allow. Beside a share stands its part of one \
request, because the whole differs between servers. Servers are sampled one after the other, once each, and \
sampling costs them something: `select 1` compares their CPU times, not this table.";

impl Profile {
    /// `None`: `perf` is missing or not allowed.
    fn take(
        sessions: usize,
        server: &'static str,
        sql: SqlServer,
        plan: &Plan,
    ) -> Result<Option<Self>, Box<dyn Error>> {
        let workload = asking(CONNECTIONS, sessions);
        let taken = take(&Server::Sql(sql, ROWS), &workload, plan)?;
        Ok(taken.map(|Taken { samples, cpu_per_request }| {
            let count = |part| samples.iter().filter(|sample| Part::of(sample) == part).count();
            let counts = Part::ALL.map(count).into();
            Self { server, sessions, samples: samples.len(), counts, cpu_per_request }
        }))
    }

    /// Share and time of some parts: `12.3 % ± 0.8, 140 ns`.
    fn cell(&self, wanted: impl Fn(Part) -> bool) -> String {
        let parts = Part::ALL.iter().zip(&self.counts);
        let count: usize = parts.filter(|(part, _)| wanted(**part)).map(|(_, count)| count).sum();
        cell(count, self.samples, self.cpu_per_request)
    }
}

/// Samples a server while it is loaded. `None`: `perf` is missing or not allowed.
fn take(
    server: &Server,
    workload: &Workload,
    plan: &Plan,
) -> Result<Option<Taken>, Box<dyn Error>> {
    let (helper, address, _) = server.start()?;
    let mut load = (workload.connect)(address)?;
    load.run_for(WARM_UP)?;
    let mut cpu_per_request = f64::NAN;
    let samples = perf::samples(helper.pid(), || {
        let before = Usage::of(helper.pid())?;
        let report = load.run_for(plan.window * plan.cycles as u32)?;
        let used = Usage::of(helper.pid())?.since(&before);
        cpu_per_request = used.cpu.as_nanos() as f64 / report.requests.max(1) as f64;
        Ok(())
    })?;
    drop(load);
    helper.finish()?;
    Ok(samples.map(|samples| Taken { samples, cpu_per_request }))
}

/// Share of `count` among `all` samples, and its time: `12.3 % ± 0.8, 140 ns`.
fn cell(count: usize, all: usize, cpu_per_request: f64) -> String {
    let all = all.max(1) as f64;
    let share = count as f64 / all;
    let error = 1.96 * (share * (1.0 - share) / all).sqrt();
    let cost = time(share * cpu_per_request);
    format!("{:.1} % ± {:.1}, {cost}", share * 100.0, error * 100.0)
}

/// A row for each part, a column for each server.
fn table(profiles: &[Profile]) -> String {
    let mut heading = vec!["CPU time per request"];
    heading.extend(profiles.iter().map(|profile| profile.server));
    let mut table = markdown(&heading);
    let mut row = |name: &str, wanted: &dyn Fn(Part) -> bool| {
        let mut row = vec![name.to_owned()];
        row.extend(profiles.iter().map(|profile| profile.cell(wanted)));
        table.add_row(row);
    };
    for part in Part::ALL {
        row(part.name(), &|other| other == part);
    }
    row("**outside of handler and kernel**", &|part| !part.is_kernel() && part != Part::Handler);
    row("**queues, locks, wake-ups, kernel included**", &|part| part.is_hand_over());
    row("all", &|_| true);
    table.to_string()
}
