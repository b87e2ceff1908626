//! Point selects: as a text, under a digest, as a plan, and before the old architecture.

use std::error::Error;

use lab::sessions::Question;

use super::{Suite, section, sessions};
use crate::experiment::{Experiment, Lane, Plan};
use crate::report::Section;
use crate::server::{Server, SqlServer};
use crate::table::USUAL;

pub const SUITE: Suite = Suite {
    name: "points",
    question: "What does a client save with a digest of an earlier text, or with a plan?",
    run,
};

const LANES: [(&str, SqlServer, Question); 6] = [
    ("text", SqlServer::Select1, Question::Text),
    ("digest", SqlServer::Select1, Question::Digest),
    ("plan", SqlServer::Select1, Question::Plan),
    ("plan, answered with a chunk", SqlServer::Select1, Question::PlanChunk),
    ("text, epoll-group before a plain engine", SqlServer::NewSqlite, Question::Text),
    ("text, old before the same engine", SqlServer::OldSqlite, Question::Text),
];

const TEXT: &str = "\
1 024 sessions over 16 connections. Each asks for one row of a table of sysbench by its id, again and again, \
another id each time. The first four ask the example `select1`, a data node before SQLite:

- **text**: the id stands in the SQL, so that the server meets each text for the first time;
- **digest**: a text that stays, named by its digest, and the id as an argument;
- **plan**: the same as an execution plan, named by its digest, without SQL;
- **chunk**: likewise, the row in columns.

The last two send the text to an engine that hands it to SQLite as it is: the library, and the old \
architecture with a thread for each session. A ratio below 1 needs less than the text.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    // More than the statements that an engine keeps, so that texts push each other out.
    let rows = if plan.quick { 10_000 } else { 100_000 };
    let lanes = LANES.map(|(name, server, question)| Lane {
        name: name.to_owned(),
        server: Server::Sql(server, rows),
        workload: sessions(16, 1024, question, rows),
    });
    let found = [Experiment::new("1024 sessions", lanes).run(plan)?];
    Ok(section("Point selects", TEXT, &found, &USUAL))
}
