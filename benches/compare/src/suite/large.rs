//! Large results and mixed load: scans of a whole table, and transactions that read and write.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use epoll_group::codec::chunk::{BlockKind, ChunkFrame};
use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, Notice, ServerKind, ServerMessage};
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::row::cells;
use epoll_group::codec::value::Value;
use lab::load::{Answer, Conversation, Report, session_id};
use lab::sessions::{self, PASSWORD, USER};
use lab::table::markdown;
use lab::xrpc::{Client, Datum, request};
use serde_json::json;

use super::select1::CONNECTIONS;
use super::{Suite, blocks};
use crate::experiment::{Experiment, Lane, Plan};
use crate::measured::Measured;
use crate::report::Section;
use crate::server::{Server, SqlServer};
use crate::sharding::NODES;
use crate::table::{
    CPU_EACH, CPU_RATIO, P50, P99_EACH, P99_RATIO, PEAK, REQUESTS, REQUESTS_RATIO, SWITCHES,
    THROUGHPUT, or_dash,
};
use crate::workload::{Load, Workload};

pub const SUITE: Suite = Suite {
    name: "large",
    question: "Is the library no worse under large results and in transactions?",
    run,
};

const TEXT: &str = "\
A scan is `select id, k, c, pad from sbtest1`, 100 000 rows of 200 bytes, as rows or as chunks. A transaction has the \
20 statements of sysbench's `oltp_read_write`, one after the other: begin, 10 point selects, 4 ranges of 100 rows \
(plain, sum, ordered, distinct), 2 updates, a delete and an insert of one id, commit. It counts as one request. Each \
statement is checked for its number of rows and of changes, each scan for the sum of ids, and the table for both \
before its server ends.

- **old**: a thread for each session, a thread that reads for each of 16 connections;
- **new**: the library before the same engine, over 16 connections;
- **jdbc**: a connection and a thread for each session, before the same engine;
- **select1**: the example of a whole data node.

The engine is SQLite. A session waits for the right to write from its first change to its commit, in all designs. \
The load offers no credit, so that the socket alone slows a server down. Databases are in the temporary folder: set \
`TMPDIR` to memory.

Through the sharding proxy, four nodes have a quarter of the rows each, and all are one process. Before `jdbc` the \
proxy cannot sit, because it has many sessions on a connection. It keeps a transaction on one node, so there the \
ranges come before `begin`, and the other statements have ids of one node. It answers a scan of several nodes as rows.

Ratios are to *old*.";

/// Load of one cell.
#[derive(Clone, Copy, Debug)]
struct Job {
    name: &'static str,
    /// Its statements, in parts.
    parts: &'static [&'static [Statement]],
    in_chunks: bool,
    /// Nodes that share the rows. The ids of a transaction are those of one node.
    nodes: i64,
    /// Ratio of the throughput, new over old, that must be reached.
    goal: f64,
}

/// A text with places for values, the number of its rows, and that of rows that it changes.
type Statement = (&'static str, i64, i64);

/// Number of rows of a scan: all.
const ALL: i64 = -1;
/// Rows of a range.
const RANGE: i64 = 100;
const SCAN: Statement = ("select id, k, c, pad from sbtest1", ALL, 0);
const BEGIN: Statement = ("begin", 0, 0);
const POINT: Statement = ("select c from sbtest1 where id = {id}", 1, 0);
const RANGES: &[Statement] = &[
    ("select c from sbtest1 where {range}", RANGE, 0),
    ("select sum(k) from sbtest1 where {range}", 1, 0),
    ("select c from sbtest1 where {range} order by c", RANGE, 0),
    ("select distinct c from sbtest1 where {range} order by c", RANGE, 0),
];
const WRITES: &[Statement] = &[
    ("update sbtest1 set k = k + 1 where id = {id}", 0, 1),
    ("update sbtest1 set c = '{text}' where id = {id}", 0, 1),
    ("delete from sbtest1 where id = {own}", 0, 1),
    ("insert into sbtest1 (id, k, c, pad) values ({own}, {id}, '{text}', '{text}')", 0, 1),
    ("commit", 0, 0),
];

const ROWS_SCAN: Job =
    Job { name: "scan as rows", parts: &[&[SCAN]], in_chunks: false, nodes: 1, goal: 0.95 };
const CHUNKS_SCAN: Job = Job { name: "scan as chunks", in_chunks: true, ..ROWS_SCAN };
const TRANSACTION: Job = Job {
    name: "transactions",
    parts: &[&[BEGIN], &[POINT; 10], RANGES, WRITES],
    goal: 1.0,
    ..ROWS_SCAN
};
const PROXY_SCAN: Job = Job { name: "proxy, scan as rows", nodes: NODES, ..ROWS_SCAN };
const PROXY_TRANSACTION: Job = Job {
    name: "proxy, transactions",
    parts: &[RANGES, &[BEGIN], &[POINT; 10], WRITES],
    nodes: NODES,
    ..TRANSACTION
};

/// Loads, and their numbers of sessions.
const CELLS: [(Job, &[usize]); 5] = [
    (ROWS_SCAN, &[1, 4]),
    (CHUNKS_SCAN, &[1, 4]),
    (TRANSACTION, &[1, 4, 16, 64]),
    (PROXY_SCAN, &[1, 4]),
    (PROXY_TRANSACTION, &[4, 16]),
];
const DIRECT: &[(&str, SqlServer, usize)] = &[
    ("old", SqlServer::OldSqlite, CONNECTIONS),
    ("new", SqlServer::NewSqlite, CONNECTIONS),
    ("jdbc", SqlServer::JdbcSqlite, usize::MAX),
    ("select1", SqlServer::Select1, CONNECTIONS),
];
const BEHIND_PROXY: &[(&str, SqlServer, usize)] = &[
    ("old", SqlServer::ProxyOldSqlite, CONNECTIONS),
    ("new", SqlServer::ProxyNewSqlite, CONNECTIONS),
    ("select1", SqlServer::ProxySelect1, CONNECTIONS),
];
/// Lanes of the goals.
const OLD: usize = 0;
const NEW: usize = 1;
/// Threads of the load.
const THREADS: usize = 2;

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let plan = Plan { counts_syscalls: false, ..*plan };
    let rows = if plan.quick { 10_000 } else { 100_000 };
    let (mut found, mut goals) = (Vec::new(), Vec::new());
    for (job, all_sessions) in CELLS {
        let lanes = if job.nodes == 1 { DIRECT } else { BEHIND_PROXY };
        for &sessions in all_sessions.iter().filter(|&&sessions| !plan.quick || sessions == 4) {
            let lanes = lanes.iter().map(|&(name, server, connections)| Lane {
                name: name.to_owned(),
                server: Server::Sql(server, rows),
                workload: job.workload(connections, sessions, rows),
            });
            found.push(
                Experiment::new(format!("{}, {sessions} sessions", job.name), lanes).run(&plan)?,
            );
            goals.push(job.goal);
        }
    }
    let columns =
        [REQUESTS, REQUESTS_RATIO, CPU_EACH, CPU_RATIO, P50, P99_EACH, P99_RATIO, SWITCHES, PEAK];
    let mut all = vec![TEXT.to_owned(), goals_table(&found, &goals)];
    all.extend(blocks(&found, &columns));
    Ok(Section::new("Large results and mixed load", all, json!({ "experiments": found })))
}

/// A row for each cell: throughput of new over old, and the goal.
fn goals_table(found: &[Measured], goals: &[f64]) -> String {
    let mut table = markdown(&["cell", "new over old", "goal", "reached"]);
    for (measured, goal) in found.iter().zip(goals) {
        let spread = measured.ratio(NEW, OLD, THROUGHPUT);
        let reached = spread.as_ref().map(|spread| spread.median >= *goal);
        table.add_row([
            measured.name.clone(),
            or_dash(spread.map(|spread| spread.ratio().to_string())),
            format!("{goal:.2}"),
            or_dash(reached.map(|reached| if reached { "yes" } else { "no" }.to_owned())),
        ]);
    }
    table.to_string()
}

impl Job {
    fn workload(self, connections: usize, sessions: usize, rows: u32) -> Workload {
        let connections = connections.min(sessions);
        let label = format!("{}, {sessions} sessions over {connections}", self.name);
        Workload::new(label, move |address| {
            let shape = (connections, sessions, THREADS);
            let load = sessions::Load::connect_with(address, shape, |connection, sessions| {
                Statements::new(self, rows, connection, sessions)
            })?;
            Ok(Checked { load, address, rows: rows.into() })
        })
    }
}

/// A load after whose end the table must have the rows that it had.
struct Checked {
    load: sessions::Load<Statements>,
    address: SocketAddr,
    rows: i64,
}

impl Load for Checked {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        Load::run_for(&mut self.load, time)
    }

    fn answers_total(&self) -> u64 {
        Load::answers_total(&self.load)
    }

    fn finish(self: Box<Self>) -> Result<u64, Box<dyn Error>> {
        let Self { load, address, rows } = *self;
        let answers = load.answers_total();
        drop(load);
        let mut client = Client::logged_in(address, USER, PASSWORD);
        client.new_session(1);
        let reply = client.execute(1, "select count(*), sum(id) from sbtest1");
        let expected = [rows, sum_of_ids(rows)].map(Datum::Signed);
        let same = |row: &Vec<Datum>| row.iter().zip(&expected).filter(|(a, b)| a.same(b)).count();
        match &reply.rows[..] {
            [row] if same(row) == expected.len() => Ok(answers),
            found => Err(format!("the table has {found:?}, {:?}", reply.error).into()),
        }
    }
}

/// Statements of the sessions of one connection, and the check of their answers.
struct Statements {
    job: Job,
    statements: Vec<Statement>,
    rows: i64,
    connection: usize,
    decoder: Decoder,
    random: fastrand::Rng,
    sessions: Vec<Session>,
}

#[derive(Clone, Debug, Default)]
struct Session {
    /// Number of its statement in the job.
    step: usize,
    /// Id that its transaction deletes and inserts.
    own: i64,
    expected: Counts,
    seen: Counts,
}

/// Counts of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    rows: i64,
    changed: i64,
    /// Sum of the first column, of scans alone.
    sum: i64,
}

impl Statements {
    fn new(job: Job, rows: u32, connection: usize, sessions: usize) -> Self {
        Self {
            job,
            statements: job.parts.concat(),
            rows: rows.into(),
            connection,
            decoder: Decoder::new(Limits::default()),
            // Connections ask for different rows.
            random: fastrand::Rng::with_seed(connection as u64),
            sessions: vec![Session::default(); sessions],
        }
    }

    /// Writes the statement that a session has come to.
    fn write(&mut self, place: u32, out: &mut Vec<u8>) {
        let (job, rows) = (self.job, self.rows);
        let session = &mut self.sessions[place as usize];
        let own = session.own;
        let id = self.random.i64(0..rows / job.nodes) * job.nodes + 1 + (own - 1) % job.nodes;
        let first = self.random.i64(1..=rows - RANGE + 1);
        let range = format!("id between {first} and {}", first + RANGE - 1);
        let text = format!("{:011}-{:011}", self.random.u64(..1 << 36), self.random.u64(..1 << 36));
        let (template, rows, changed) = self.statements[session.step];
        let expected = match rows {
            ALL => Counts { rows: self.rows, changed, sum: sum_of_ids(self.rows) },
            _ => Counts { rows, changed, sum: 0 },
        };
        let sql = template.replace("{id}", &id.to_string()).replace("{own}", &own.to_string());
        let sql = sql.replace("{range}", &range).replace("{text}", &text);
        (session.expected, session.seen) = (expected, Counts::default());
        let chunk_result = job.in_chunks.then_some(true);
        let message = ClientMessage::ExecSql(StmtExecute { chunk_result, ..request::update(&sql) });
        let id = session_id(self.connection, place);
        message.encode(Dialect::Legacy, id, out).expect("requests are small");
    }
}

impl Conversation for Statements {
    fn ask(&mut self, session: u32, out: &mut Vec<u8>) {
        let own = self.random.i64(1..=self.rows);
        self.sessions[session as usize] = Session { own, ..Session::default() };
        self.write(session, out);
    }

    fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), String> {
        self.decoder.feed(bytes);
        while let Some(frame) = self.decoder.next_frame().map_err(text)? {
            let place = frame.session() as u32;
            let known = self.sessions.get_mut(place as usize);
            let known = known.filter(|_| frame.session() == session_id(self.connection, place));
            let session = known.ok_or_else(|| format!("session {:#x}", frame.session()))?;
            let seen = &mut session.seen;
            let is_scan = session.expected.rows == self.rows;
            match (ServerKind::from_number_or_alias(frame.kind()), self.job.in_chunks) {
                (Some(ServerKind::ColumnMetaData | ServerKind::FetchDone), _) => {}
                (Some(ServerKind::Row), false) => {
                    seen.rows += 1;
                    if is_scan {
                        let first = cells(frame.body()).next().ok_or("a row without cells")?;
                        seen.sum += first.map_err(text)?.signed().map_err(text)?.unwrap_or(0);
                    }
                }
                (Some(ServerKind::Chunk), true) => {
                    let chunk = ChunkFrame::parse(frame.body()).map_err(text)?;
                    let first = chunk.columns().next().ok_or("a chunk without columns")?;
                    let count = chunk.row_count();
                    seen.rows += i64::from(count);
                    let mut values = first.values(BlockKind::Signed, count, 0).map_err(text)?;
                    while let Some(value) = values.next_value().map_err(text)? {
                        let Value::Signed(id) = value else { return Err("no id".to_owned()) };
                        seen.sum += id;
                    }
                }
                (Some(ServerKind::StmtExecuteOk), _) if *seen == session.expected => {
                    session.step += 1;
                    if session.step == self.statements.len() {
                        answers.push(Answer { session: place, wrong: None });
                    } else {
                        self.write(place, out);
                    }
                }
                _ => match frame.server_message(&Limits::default()).map_err(text)? {
                    ServerMessage::Notice(notice) => {
                        if let Notice::RowsAffected(count) =
                            Notice::read(&notice, &Limits::default()).map_err(text)?
                        {
                            seen.changed = count as i64;
                        }
                    }
                    other => {
                        let (sql, ..) = self.statements[session.step];
                        return Err(format!("{other:?} to {sql}: {session:?}"));
                    }
                },
            }
        }
        Ok(())
    }
}

fn sum_of_ids(rows: i64) -> i64 {
    rows * (rows + 1) / 2
}

fn text(error: impl Error) -> String {
    error.to_string()
}
