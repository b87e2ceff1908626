//! Point selects: as a text, under a digest, as a plan, and before the old architecture.

use std::error::Error;

use serde_json::json;

use super::Suite;
use super::grid::{CPU, Metric, P99, THROUGHPUT};
use crate::experiment::{self, Experiment, Lane, Measured, Plan, Processes, Progress};
use crate::report::{Block, Section};
use crate::server::{Architecture, EngineName, Server, Sql};
use crate::sessions::{Question, Shape};
use crate::table::{Table, or_dash, time};
use crate::workload::Workload;

pub(crate) const SUITE: Suite = Suite {
    name: "points",
    question: "What does a client save that names what it has asked before, or sends a plan?",
    seconds,
    run,
};

/// Lanes, as the page calls them; the first is what the others are compared with.
const LANES: [(&str, Asked); 6] = [
    ("text", Asked::Example(Question::Text)),
    ("digest", Asked::Example(Question::Digest)),
    ("plan", Asked::Example(Question::Plan)),
    ("plan, answered with a chunk", Asked::Example(Question::PlanChunk)),
    ("text, epoll-group before a plain engine", Asked::Plain(Architecture::New)),
    ("text, old before the same engine", Asked::Plain(Architecture::Old)),
];
const TEXT: usize = 0;
const PLAIN: usize = 4;
const OLD: usize = 5;

/// Which server is asked what.
#[derive(Clone, Copy)]
enum Asked {
    /// The data node.
    Example(Question),
    /// A text, before the engine that reads no dialect.
    Plain(Architecture),
}

const SESSIONS: usize = 1024;
const CONNECTIONS: usize = 16;
const LOAD_THREADS: usize = 2;
/// More than the statements that an engine keeps, so that texts do push each other out.
const ROWS: u32 = 100_000;
const QUICK_ROWS: u32 = 10_000;
/// Seconds from the start of a server, which fills its table, to its first window.
const START: f64 = 1.0;

fn seconds(plan: &Plan) -> f64 {
    LANES.len() as f64 * plan.seconds_of_lane(START)
}

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let experiment = experiment(plan);
    progress.expect(experiment.windows() * plan.cycles);
    let measured = experiment::run(&experiment, plan, progress)?;
    let text = |text: &str| Block::Text(text.to_owned());
    let blocks = vec![
        text(
            "1 024 sessions over 16 connections; each asks for one row of a table of sysbench by its \
             id, again and again, another id each time. The first four ask the example `select1`, a \
             data node before SQLite, one and the same process:\n\n\
             - **text**: the id stands in the SQL, so that the server meets each text for the first \
             time;\n\
             - **digest**: a text that stays, named by its digest, and the id as an argument;\n\
             - **plan**: the same as an execution plan, named by its digest: no SQL at all;\n\
             - **chunk**: likewise, the row in columns.\n\n\
             The last two send the text to an engine that hands it to SQLite as it is: the library, \
             and the old architecture with a thread for each session.",
        ),
        Block::Table(table(&measured)),
        Block::Text(before_the_same_engine(&measured)),
        Block::other_work(measured.other_cpus()),
    ];
    Ok(Section {
        name: SUITE.name,
        title: "Point selects".to_owned(),
        blocks,
        raw: json!({ "lanes": LANES.map(|(name, _)| name), "experiment": measured }),
    })
}

fn experiment(plan: &Plan) -> Experiment {
    let rows = if plan.quick { QUICK_ROWS } else { ROWS };
    let lane = |(_, asked): (&str, Asked)| {
        let (server, question) = match asked {
            Asked::Example(question) => (Sql::Select1(None), question),
            Asked::Plain(architecture) => {
                (Sql::Ours(architecture, EngineName::Sqlite), Question::Text)
            }
        };
        Lane {
            server: Server::Sql(server, rows),
            workload: Workload::Sessions(Shape {
                connections: CONNECTIONS,
                sessions: SESSIONS,
                question,
                rows,
                threads: LOAD_THREADS,
            }),
        }
    };
    Experiment {
        name: format!("{SESSIONS} sessions"),
        lanes: LANES.map(lane).into(),
        groups: vec![(0..LANES.len()).collect()],
        processes: Processes::OneForEqual,
    }
}

fn table(measured: &Measured) -> Table {
    let heading =
        ["asked", "requests/s", "CPU/request", "text to it", "p99", "system calls/request"];
    let mut table = Table::new(&heading);
    for (lane, (name, _)) in LANES.iter().enumerate() {
        let median = |metric: Metric| measured.values(lane, metric).map(|spread| spread.median);
        let saved = measured.ratio(TEXT, lane, CPU).map(|spread| spread.ratio());
        let saved = saved.filter(|_| lane != TEXT);
        let calls = measured.lanes[lane].syscalls();
        table.row(vec![
            (*name).to_owned(),
            or_dash(median(THROUGHPUT).map(|value| format!("{value:.0}"))),
            or_dash(median(CPU).map(time)),
            or_dash(saved.map(|ratio| ratio.to_string())),
            or_dash(median(P99).map(time)),
            or_dash(calls.map(|calls| format!("{:.2}", calls.median))),
        ]);
    }
    table
}

fn before_the_same_engine(measured: &Measured) -> String {
    let ratio = measured.ratio(OLD, PLAIN, CPU).map(|spread| spread.ratio().to_string());
    format!(
        "*text to it* is the CPU time per request of the first row in terms of the others: above 1, \
         they need less. Old to epoll-group before the same engine: {} x the CPU time per request.",
        or_dash(ratio)
    )
}
