//! Connections that come, ask once, and go.

use std::error::Error;

use super::{SERVERS, Suite, section};
use crate::experiment::{Experiment, Lane, Plan};
use crate::report::Section;
use crate::table::{
    CPU_EACH, CPU_RATIO, Column, REQUESTS_RATIO, SWITCHES, SYSCALLS, THROUGHPUT, WAKEUPS, number,
};
use crate::workload::Workload;

pub const SUITE: Suite =
    Suite { name: "churn", question: "What does a connection cost that asks once?", run };

const CLIENTS: usize = 64;

const TEXT: &str = "\
64 clients connect, ask for one frame of 64 bytes, take it and close, again and again. A request in the table \
is one such connection. One thread plays all clients, and often is the limit: so compare CPU time rather than \
connections per second.";

const CONNECTIONS: Column<'static> =
    ("connections/s", &|measured, lane| number(measured, lane, THROUGHPUT));

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let lanes = SERVERS.map(|server| Lane::echo(server, Workload::churn(CLIENTS)));
    let found = [Experiment::new(format!("{CLIENTS} clients"), lanes).run(plan)?];
    let columns = [CONNECTIONS, REQUESTS_RATIO, CPU_EACH, CPU_RATIO, SWITCHES, WAKEUPS, SYSCALLS];
    Ok(section("Connections that come and go", TEXT, &found, &columns))
}
