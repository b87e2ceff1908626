//! `select 1` before three architectures: the library, threads for sessions, threads for clients.

use std::error::Error;

use serde_json::json;

use super::Suite;
use super::expect::{self, Bound, Expectation};
use super::grid::{Contender, Found, Grid};
use crate::experiment::{Plan, Progress};
use crate::report::{Block, Section};
use crate::server::{Architecture, EngineName, Server, Sql};
use crate::sessions::{Question, Shape};
use crate::workload::Workload;

pub(crate) const SUITE: Suite = Suite {
    name: "select1",
    question: "What does an architecture cost a database, when the statement is nothing?",
    seconds: |plan| {
        let grids = [with_sqlite(plan), without_database(plan), over_one_connection(plan)];
        grids.iter().map(|grid| grid.seconds(plan)).sum()
    },
    run,
};

const OURS: &str = "epoll-group";
const OURS_EACH: &str = "epoll-group, a connection each";
const OLD: &str = "old";
const JDBC: &str = "jdbc";
const EXAMPLE: &str = "select1";

/// What clients with many sessions open.
const CONNECTIONS: usize = 16;
/// No statement of these looks at a row: so that the servers start soon.
const ROWS: u32 = 1000;
const LOAD_THREADS: usize = 2;
/// Where the others were expected to be.
const CROWD: usize = 1024;

const EXPECTATIONS: [Expectation; 3] = [
    Expectation { contender: OLD, bound: Bound::AtLeast(1.8), from: CROWD, to: CROWD },
    Expectation::from(OLD, Bound::AtLeast(1.0), 0),
    Expectation::from(JDBC, Bound::AtLeast(1.0), 0),
];

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let sqlite = with_sqlite(plan).run(plan, progress)?;
    let constant = without_database(plan).run(plan, progress)?;
    let one = over_one_connection(plan).run(plan, progress)?;
    let text = |text: &str| Block::Text(text.to_owned());
    let mut blocks = vec![text(
        "Each session asks `select 1` as soon as it has its answer. All servers speak the same \
         protocol with the same codec, before the same engine, SQLite.\n\n\
         - **epoll-group**: the library; the sessions share 16 connections. What the sessions of a \
         connection ask at the same time comes in one write, as the Java client does it.\n\
         - **epoll-group, a connection each**: likewise, but each session has a connection of its \
         own, to compare with `jdbc` like with like.\n\
         - **old**: a thread that reads for each of the 16 connections, a thread for each session, a \
         queue with mutex and condition variable between.\n\
         - **jdbc**: a connection and a thread for each session, as classic MySQL serves JDBC.",
    )];
    blocks.extend(sqlite.blocks(CROWD));
    blocks.push(text("### System calls of the server per request"));
    blocks.push(Block::Table(sqlite.syscalls()));
    blocks
        .push(text("### Context switches of the server per request\n\nTo wait, and to make room."));
    blocks.push(Block::Table(sqlite.switches()));
    blocks.push(text("### As expected?"));
    blocks.push(Block::Table(expect::table(&sqlite, &EXPECTATIONS)));
    blocks.push(text(
        "### Without the database\n\nThe same before an engine that answers at once: what is left is \
         the architecture. Beside them `select1`, the example of a whole data node, which reads \
         MySQL's dialect before it asks SQLite.",
    ));
    blocks.extend(numbers(&constant));
    blocks.push(text(
        "### All sessions over one connection\n\nSQLite again. A connection is read by one thread at \
         a time, in both architectures; what its sessions ask is worked off by all.",
    ));
    blocks.extend(numbers(&one));
    let found = [&sqlite, &constant, &one];
    let other = found.iter().map(|found| found.other_cpus()).fold(0.0, f64::max);
    blocks.push(Block::other_work(other));
    let raw = json!({
        "sqlite": sqlite.raw(), "constant": constant.raw(), "one_connection": one.raw(),
    });
    Ok(Section { name: SUITE.name, title: "select 1".to_owned(), blocks, raw })
}

/// Short: for loads that are not the main ones.
fn numbers(found: &Found) -> [Block; 7] {
    let text = |text: &str| Block::Text(text.to_owned());
    [
        text("Requests per second:"),
        Block::Table(found.throughput()),
        text("CPU time of the server per request, and its ratio to epoll-group:"),
        Block::Table(found.cpu()),
        Block::Table(found.cpu_ratios()),
        text("p99:"),
        Block::Table(found.p99()),
    ]
}

fn with_sqlite(plan: &Plan) -> Grid {
    let loads = match plan.quick {
        true => vec![16, CROWD],
        false => (1..=12).map(|power| 1 << power).collect(),
    };
    grid(contenders(EngineName::Sqlite), loads, shared)
}

fn without_database(plan: &Plan) -> Grid {
    let mut contenders = contenders(EngineName::Constant);
    contenders.push(Contender::new(EXAMPLE, Server::Sql(Sql::Select1(None), ROWS)));
    grid(contenders, if plan.quick { vec![CROWD] } else { vec![64, CROWD] }, shared)
}

fn over_one_connection(plan: &Plan) -> Grid {
    let mut contenders = contenders(EngineName::Sqlite);
    contenders.retain(|contender| [OURS, OLD].contains(&contender.name.as_str()));
    let loads = if plan.quick { vec![64] } else { vec![64, CROWD] };
    grid(contenders, loads, |sessions| asking(1, sessions))
}

fn grid(contenders: Vec<Contender>, loads: Vec<usize>, workload: fn(usize) -> Workload) -> Grid {
    Grid { contenders, ours: 0, loads, unit: "sessions", workload }
}

fn contenders(engine: EngineName) -> Vec<Contender> {
    let server = |architecture| Server::Sql(Sql::Ours(architecture, engine), ROWS);
    vec![
        Contender::new(OURS, server(Architecture::New)),
        Contender::new(OURS_EACH, server(Architecture::New)).under(alone),
        Contender::new(OLD, server(Architecture::Old)),
        Contender::new(JDBC, server(Architecture::Jdbc)).under(alone),
    ]
}

fn shared(sessions: usize) -> Workload {
    asking(CONNECTIONS, sessions)
}

fn alone(sessions: usize) -> Workload {
    asking(sessions, sessions)
}

/// So many sessions that ask `select 1` over so many connections.
pub(super) fn asking(connections: usize, sessions: usize) -> Workload {
    Workload::Sessions(Shape {
        connections,
        sessions,
        question: Question::SelectOne,
        rows: ROWS,
        threads: LOAD_THREADS,
    })
}
