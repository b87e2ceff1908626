//! `select 1` before three architectures: the library, threads for sessions, threads for clients.

use std::error::Error;

use lab::sessions::Question;

use super::{Suite, section};
use crate::experiment::{Experiment, Lane, Plan};
use crate::report::Section;
use crate::server::{Server, SqlServer};
use crate::table::USUAL;
use crate::workload::Workload;

pub const SUITE: Suite = Suite {
    name: "select1",
    question: "What does an architecture cost a database, when the statement is nothing?",
    run,
};

/// Connections that clients with many sessions open.
pub const CONNECTIONS: usize = 16;
/// `select 1` looks at no row, so few of them let the servers start soon.
pub const ROWS: u32 = 1000;
const CROWD: usize = 1024;

const TEXT: &str = "\
Each session asks `select 1` as soon as it has its answer. All servers speak the same protocol with the same \
codec, before the same engine: SQLite, or one that answers at once, which leaves the architecture alone.

- **epoll-group**: the library; the sessions share 16 connections. Requests that the sessions of a connection \
make at the same time come in one write, as the Java client does it.
- **epoll-group, a connection each**: the library with a connection for each session, to compare with `jdbc` \
like with like.
- **old**: a thread that reads for each of the 16 connections, a thread for each session, a queue with mutex \
and condition variable between.
- **jdbc**: a connection and a thread for each session, as classic MySQL serves JDBC.
- **select1**: the example of a whole data node, which reads MySQL's dialect before it asks SQLite.

A connection is read by one thread at a time in both architectures that share connections; all threads run \
what its sessions ask.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    use SqlServer::{
        JdbcConstant, JdbcSqlite, NewConstant, NewSqlite, OldConstant, OldSqlite, Select1,
    };
    let ours = [("epoll-group", NewSqlite, CONNECTIONS), ("old", OldSqlite, CONNECTIONS)];
    let each = [
        ("epoll-group, a connection each", NewSqlite, usize::MAX),
        ("jdbc", JdbcSqlite, usize::MAX),
    ];
    let constant = [
        ("epoll-group", NewConstant, CONNECTIONS),
        ("epoll-group, a connection each", NewConstant, usize::MAX),
        ("old", OldConstant, CONNECTIONS),
        ("jdbc", JdbcConstant, usize::MAX),
        ("select1", Select1, CONNECTIONS),
    ];
    let one = ours.map(|(name, server, _)| (name, server, 1));
    let few: &[usize] = if plan.quick { &[CROWD] } else { &[64, CROWD] };
    let many: Vec<usize> = match plan.quick {
        true => vec![16, CROWD],
        false => (1..=12).map(|power| 1 << power).collect(),
    };
    let mut found = Vec::new();
    for (what, servers, loads) in [
        ("SQLite", &[ours, each].concat()[..], &many[..]),
        ("without a database", &constant[..], few),
        ("SQLite, all over one connection", &one[..], few),
    ] {
        for &sessions in loads {
            let lanes = servers.iter().map(|&(name, server, connections)| Lane {
                name: name.to_owned(),
                server: Server::Sql(server, ROWS),
                workload: asking(connections, sessions),
            });
            found.push(Experiment::new(format!("{sessions} sessions, {what}"), lanes).run(plan)?);
        }
    }
    Ok(section("select 1", TEXT, &found, &USUAL))
}

/// Sessions that ask `select 1`.
pub fn asking(connections: usize, sessions: usize) -> Workload {
    super::sessions(connections, sessions, Question::SelectOne, ROWS)
}
