//! Suites of a report. Each asks one question of several servers.

use std::error::Error;

use lab::sessions::{Question, Shape};
use serde_json::json;

use crate::experiment::{Experiment, Lane, Plan};
use crate::measured::Measured;
use crate::report::Section;
use crate::table::{self, Column};
use crate::workload::Workload;

mod churn;
mod echo;
mod hot;
mod large;
pub mod locks;
pub mod many;
mod model;
mod paced;
mod points;
pub mod published;
mod scaling;
mod select1;
pub mod servers;
mod sharded;
mod share;
mod slow_links;
mod splice;
mod tls;

/// One question, and the way to answer it.
#[derive(Debug)]
pub struct Suite {
    /// Name on the command line, and of the file with the raw numbers.
    pub name: &'static str,
    pub question: &'static str,
    pub run: fn(&Plan) -> Result<Section, Box<dyn Error>>,
}

/// Suites in the order of the report.
pub const SUITES: &[Suite] = &[
    paced::SUITE,
    churn::SUITE,
    echo::SUITE,
    select1::SUITE,
    points::SUITE,
    published::SUITE,
    share::SUITE,
    hot::SUITE,
    large::SUITE,
    sharded::SUITE,
    slow_links::SUITE,
    splice::SUITE,
    tls::SUITE,
    locks::SUITE,
    many::SUITE,
    scaling::SUITE,
    model::SUITE,
];

/// Servers that echo frames. The others are compared with the first.
const SERVERS: [&str; 10] = [
    "epoll-group",
    "limit",
    "easy-sync",
    "easy-async",
    "uv",
    "percona",
    "grpc-cq",
    "thread-per-connection",
    "thread-per-session",
    "tokio",
];

/// All servers under one load, without a count of system calls.
fn line_up(
    name: &str,
    servers: &[&str],
    workload: &Workload,
    plan: &Plan,
) -> Result<Measured, Box<dyn Error>> {
    let lanes = servers.iter().map(|server| Lane::echo(server, workload.clone()));
    Experiment::new(name, lanes).run(&Plan { counts_syscalls: false, ..*plan })
}

/// Sessions that ask this, over so many connections, or one each if there are fewer sessions.
fn sessions(connections: usize, sessions: usize, question: Question, rows: u32) -> Workload {
    let connections = connections.min(sessions);
    Workload::sessions(Shape { connections, sessions, question, rows, threads: 2 })
}

/// A heading and a table for each experiment, and a paragraph on other work.
fn blocks(experiments: &[Measured], columns: &[Column<'_>]) -> Vec<String> {
    let block = |measured: &Measured| {
        format!("### {}\n\n{}", measured.name, table::servers(measured, columns))
    };
    let others = experiments.iter().map(Measured::other_cpus);
    experiments.iter().map(block).chain([Section::other_work(others)]).collect()
}

/// A section of experiments behind a paragraph.
fn section(
    title: &'static str,
    text: impl Into<String>,
    experiments: &[Measured],
    columns: &[Column<'_>],
) -> Section {
    let mut all = vec![text.into()];
    all.extend(blocks(experiments, columns));
    Section::new(title, all, json!({ "experiments": experiments }))
}
