//! Statements through the sharding proxy, beside the same ones to a data node.

use std::error::Error;

use lab::sessions::Question;

use super::{Suite, section, select1, sessions};
use crate::experiment::{Experiment, Lane, Plan};
use crate::report::Section;
use crate::server::{Server, SqlServer};
use crate::table::USUAL;

pub const SUITE: Suite =
    Suite { name: "sharded", question: "What does the sharding proxy add to a statement?", run };

const QUESTIONS: [(&str, Question); 3] = [
    ("select 1", Question::SelectOne),
    ("one row, SQL text", Question::Text),
    ("one row, a cached statement", Question::Digest),
];
const ROWS: u32 = 10_000;
const CROWD: usize = 1024;

const TEXT: &str = "\
The examples `select1`, a data node, and `proxy`. *Through the proxy*, four nodes have a quarter of the rows each, and \
all are one process, whose CPU time is that of proxy and nodes. So a CPU time of 2 times the first says that the proxy \
adds as much as a node takes. Sessions share 16 connections. One session alone shows the time that is added to a \
statement.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let servers =
        [("data node", SqlServer::Select1), ("through the proxy", SqlServer::ProxySelect1)];
    let mut found = Vec::new();
    for sessions_total in if plan.quick { vec![CROWD] } else { vec![1, CROWD] } {
        for (what, question) in QUESTIONS {
            let workload = sessions(select1::CONNECTIONS, sessions_total, question, ROWS);
            let lanes = servers.map(|(name, server)| Lane {
                name: name.to_owned(),
                server: Server::Sql(server, ROWS),
                workload: workload.clone(),
            });
            let name = format!("{what}, {sessions_total} sessions");
            found.push(Experiment::new(name, lanes).run(plan)?);
        }
    }
    Ok(section("Through the sharding proxy", TEXT, &found, &USUAL))
}
