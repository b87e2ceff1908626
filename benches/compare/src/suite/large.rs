//! Large results and mixed load: scans of a whole table, and transactions that read and write.

use std::collections::HashSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epoll_group::codec::chunk::{BlockKind, ChunkError, ChunkFrame};
use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, Notice, ServerKind, ServerMessage};
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::row::{Row, RowReader};
use epoll_group::codec::value::{Value, ValueError};
use lab::load::{Answer, Conversation, Report, session_id};
use lab::ratio::Spread;
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
(plain, sum, ordered, distinct), 2 updates, a delete and an insert of one id, commit. It counts as one request. \
Updates have ids of the table's lower half, and the delete and the insert one of its upper half.

Each answer is checked: its number of rows and of changes, the length of each text and the order of ordered ones, \
the sum of a range, and of a scan the sums of ids and of lengths. Before its server ends, the table must have its \
rows, each increment of `k`, and each text that was written.

- **old**: a thread for each session, a thread that reads for each of 16 connections;
- **new**: the library before the same engine, over 16 connections;
- **jdbc**: a connection and a thread for each session, before the same engine;
- **select1**: the example of a whole data node.

The engine is SQLite. A session waits for the right to write from its first change to its commit, in all designs. \
In SQLite, `select1` reads inside of the transaction from `begin` on. The others read outside of it until their first \
change. The load offers no credit, so that the socket alone slows a server down. Databases are in the temporary folder: set \
`TMPDIR` to memory.

Through the sharding proxy, four nodes have a quarter of the rows each, and all are one process. The \
proxy cannot be placed before `jdbc`, because it has many sessions on a connection. It keeps a transaction on one \
node, so there the ranges come before `begin`, and the other statements have ids of one node. It answers a scan of \
several nodes as rows. It offers its nodes credit, which `new` and `select1` obey and `old` ignores.

Ratios are to *old*. A goal is *open* if the interval contains it.";

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

/// A text with places for values, and its right answer.
type Statement = (&'static str, Right);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Nothing,
    /// One row is changed.
    Change,
    /// This many texts `c`.
    Texts(i64),
    /// Texts of a range, each above the one before: all texts are different.
    Ascending,
    /// Sum of `k` of a range.
    Sum,
    /// All rows and columns.
    Scan,
}

/// Rows of a range.
const RANGE: i64 = 100;
const SCAN: Statement = ("select id, k, c, pad from sbtest1", Right::Scan);
const BEGIN: Statement = ("begin", Right::Nothing);
const POINT: Statement = ("select c from sbtest1 where id = {id}", Right::Texts(1));
const RANGES: &[Statement] = &[
    ("select c from sbtest1 where {range}", Right::Texts(RANGE)),
    ("select sum(k) from sbtest1 where {range}", Right::Sum),
    ("select c from sbtest1 where {range} order by c", Right::Ascending),
    ("select distinct c from sbtest1 where {range} order by c", Right::Ascending),
];
const INCREMENT: Statement = ("update sbtest1 set k = k + 1 where id = {low}", Right::Change);
const UPDATE: Statement = ("update sbtest1 set c = '{text}' where id = {low}", Right::Change);
const INSERT: Statement =
    ("insert into sbtest1 (id, k, c, pad) values ({own}, {k}, '{text}', '{text}')", Right::Change);
const WRITES: &[Statement] = &[
    INCREMENT,
    UPDATE,
    ("delete from sbtest1 where id = {own}", Right::Change),
    INSERT,
    ("commit", Right::Nothing),
];

/// Bytes of the texts `c` and `pad` of a new table, and of those that a transaction writes.
const C_BYTES: i64 = 119;
const PAD_BYTES: i64 = 59;
const WRITTEN_BYTES: i64 = 23;

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
                Experiment::new(format!("{}, {}", job.name, counted(sessions)), lanes)
                    .run(&plan)?,
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
        let reached = spread.as_ref().map(|spread| reached(spread, *goal).to_owned());
        table.add_row([
            measured.name.clone(),
            or_dash(spread.map(|spread| spread.ratio().to_string())),
            format!("{goal:.2}"),
            or_dash(reached),
        ]);
    }
    table.to_string()
}

fn reached(spread: &Spread, goal: f64) -> &'static str {
    match spread.interval() {
        (low, _) if low >= goal => "yes",
        (_, high) if high < goal => "no",
        _ => "open",
    }
}

fn counted(sessions: usize) -> String {
    format!("{sessions} session{}", if sessions == 1 { "" } else { "s" })
}

impl Job {
    fn workload(self, connections: usize, sessions: usize, rows: u32) -> Workload {
        let connections = connections.min(sessions);
        let label = format!("{}, {} over {connections}", self.name, counted(sessions));
        Workload::new(label, move |address| {
            let shape = (connections, sessions, THREADS);
            let table = Arc::new(Table::read(address, rows.into())?);
            let load = sessions::Load::connect_with(address, shape, |connection, sessions| {
                Statements::new(self, Arc::clone(&table), connection, sessions)
            })?;
            Ok(Checked { load, address, table })
        })
    }
}

/// A load after whose end the table must have its rows and all changes.
struct Checked {
    load: sessions::Load<Statements>,
    address: SocketAddr,
    table: Arc<Table>,
}

impl Load for Checked {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        Load::run_for(&mut self.load, time)
    }

    fn answers_total(&self) -> u64 {
        Load::answers_total(&self.load)
    }

    fn finish(self: Box<Self>) -> Result<u64, Box<dyn Error>> {
        let Self { load, address, table } = *self;
        let answers = load.answers_total();
        drop(load);
        let sums =
            "select count(*), sum(id), sum(k), sum(length(c)), sum(length(pad)) from sbtest1";
        let reply = connect(address).execute(1, sums);
        let expected = table.sums();
        let same = |row: &Vec<Datum>| {
            row.iter().zip(expected).filter(|(a, b)| a.same(&Datum::Signed(*b))).count()
        };
        match &reply.rows[..] {
            [row] if same(row) == expected.len() => Ok(answers),
            found => {
                Err(format!("the table has {found:?}, not {expected:?}; {:?}", reply.error).into())
            }
        }
    }
}

/// The table as it was, and its changes.
#[derive(Debug)]
struct Table {
    /// Values of `k` by id, from 1.
    ks: Vec<i64>,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    /// Number of increments of `k`. All have ids of the lower half.
    increments: i64,
    /// Ids with a text `c` that was written. Those of the upper half have such a `pad` too.
    written: HashSet<i64>,
}

impl Table {
    fn read(address: SocketAddr, rows: i64) -> Result<Self, String> {
        let mut client = connect(address);
        let mut ks = vec![0; rows as usize];
        // In parts, so that no server needs more memory here than in its windows.
        for first in (1..=rows).step_by(1000) {
            let range = format!("where id between {first} and {}", first + 999);
            let reply = client.execute(1, &format!("select id, k from sbtest1 {range}"));
            for row in &reply.rows {
                match row[..] {
                    [Datum::Signed(id), Datum::Signed(k)] if (1..=rows).contains(&id) => {
                        ks[id as usize - 1] = k;
                    }
                    _ => return Err(format!("the table has {row:?}")),
                }
            }
        }
        Ok(Self { ks, changes: Mutex::default() })
    }

    fn rows(&self) -> i64 {
        self.ks.len() as i64
    }

    /// First half of the ids.
    fn half(&self) -> i64 {
        self.rows() / 2
    }

    /// Sum of `k` of a range before all increments.
    fn sum(&self, first: i64) -> i64 {
        self.ks[first as usize - 1..][..RANGE as usize].iter().sum()
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers of rows, and sums of ids, `k`, bytes of `c` and bytes of `pad`, after all changes.
    fn sums(&self) -> [i64; 5] {
        let (rows, changes) = (self.rows(), self.changes());
        let inserted = changes.written.iter().filter(|id| **id > self.half()).count() as i64;
        let written = changes.written.len() as i64;
        [
            rows,
            sum_of_ids(rows),
            self.ks.iter().sum::<i64>() + changes.increments,
            rows * C_BYTES - written * (C_BYTES - WRITTEN_BYTES),
            rows * PAD_BYTES - inserted * (PAD_BYTES - WRITTEN_BYTES),
        ]
    }
}

/// Statements of the sessions of one connection, and the check of their answers.
struct Statements {
    job: Job,
    statements: Vec<Statement>,
    table: Arc<Table>,
    connection: usize,
    decoder: Decoder,
    reader: RowReader,
    random: fastrand::Rng,
    sessions: Vec<Session>,
}

#[derive(Clone, Debug, Default)]
struct Session {
    /// Number of its statement in the job.
    step: usize,
    /// Id that its transaction deletes and inserts.
    own: i64,
    /// First id of its range.
    first: i64,
    seen: Seen,
}

/// What one answer has so far.
#[derive(Clone, Debug, Default)]
struct Seen {
    rows: i64,
    changed: i64,
    /// The sum of `k` of a range, or of the ids of a scan.
    sum: i64,
    /// Bytes of the texts of a scan.
    text_bytes: i64,
    /// Texts of another length, or out of order.
    wrong_texts: i64,
    last_text: Vec<u8>,
}

impl Seen {
    fn row(&mut self, right: Right, row: Row<'_>) -> Result<(), ValueError> {
        self.rows += 1;
        match right {
            Right::Scan => {
                self.value(0, row.cell(0)?.signed()?.map_or(Value::Null, Value::Signed));
                for place in [2, 3] {
                    self.value(place, row.cell(place)?.bytes()?.map_or(Value::Null, Value::Bytes));
                }
            }
            Right::Sum => self.sum = row.cell(0)?.signed()?.unwrap_or(0),
            _ => {
                let c = row.cell(0)?.bytes()?.unwrap_or_default();
                let fits = [C_BYTES, WRITTEN_BYTES].contains(&(c.len() as i64));
                let ascends = right != Right::Ascending || self.last_text.as_slice() < c;
                self.wrong_texts += i64::from(!(fits && ascends));
                self.last_text.clear();
                self.last_text.extend_from_slice(c);
            }
        }
        Ok(())
    }

    /// Adds a value of a scan.
    fn value(&mut self, column: usize, value: Value<'_>) {
        match value {
            Value::Signed(id) if column == 0 => self.sum += id,
            Value::Bytes(text) => self.text_bytes += text.len() as i64,
            _ => {}
        }
    }

    fn chunk(&mut self, body: &[u8]) -> Result<(), ChunkError> {
        let chunk = ChunkFrame::parse(body)?;
        let count = chunk.row_count();
        self.rows += i64::from(count);
        let kinds = [BlockKind::Signed, BlockKind::Signed, BlockKind::Bytes, BlockKind::Bytes];
        for (column, (block, kind)) in chunk.columns().zip(kinds).enumerate() {
            for value in block.values(kind, count, column as u32)? {
                self.value(column, value?);
            }
        }
        Ok(())
    }

    fn is(&self, right: Right, first: i64, table: &Table) -> bool {
        let (rows, changed) = match right {
            Right::Nothing => (0, 0),
            Right::Change => (0, 1),
            Right::Texts(rows) => (rows, 0),
            Right::Ascending => (RANGE, 0),
            Right::Sum => (1, 0),
            Right::Scan => (table.rows(), 0),
        };
        let sums_fit = match right {
            // Other transactions have made some of the increments.
            Right::Sum => (0..=table.changes().increments).contains(&(self.sum - table.sum(first))),
            Right::Scan => {
                let text_bytes = rows * (C_BYTES + PAD_BYTES);
                (self.sum, self.text_bytes) == (sum_of_ids(rows), text_bytes)
            }
            _ => true,
        };
        (self.rows, self.changed, self.wrong_texts) == (rows, changed, 0) && sums_fit
    }
}

impl Statements {
    fn new(job: Job, table: Arc<Table>, connection: usize, sessions: usize) -> Self {
        Self {
            job,
            statements: job.parts.concat(),
            table,
            connection,
            decoder: Decoder::new(Limits::default()),
            reader: RowReader::default(),
            // Connections ask for different rows.
            random: fastrand::Rng::with_seed(connection as u64),
            sessions: vec![Session::default(); sessions],
        }
    }

    /// Writes the statement that a session has come to.
    fn write(&mut self, place: u32, out: &mut Vec<u8>) {
        let (nodes, table) = (self.job.nodes, &self.table);
        let session = &mut self.sessions[place as usize];
        let own = session.own;
        let mut id_below =
            |end: i64| self.random.i64(0..end / nodes) * nodes + 1 + (own - 1) % nodes;
        let (id, low) = (id_below(table.rows()), id_below(table.half()));
        session.first = self.random.i64(1..=table.rows() - RANGE + 1);
        session.seen = Seen::default();
        let range = format!("id between {} and {}", session.first, session.first + RANGE - 1);
        let text = format!("{:011}-{:011}", self.random.u64(..1 << 36), self.random.u64(..1 << 36));
        let statement = self.statements[session.step];
        match statement {
            INCREMENT => table.changes().increments += 1,
            UPDATE => drop(table.changes().written.insert(low)),
            INSERT => drop(table.changes().written.insert(own)),
            _ => {}
        }
        let numbers =
            [("{id}", id), ("{low}", low), ("{own}", own), ("{k}", table.ks[own as usize - 1])];
        let sql = statement.0.replace("{range}", &range).replace("{text}", &text);
        let sql =
            numbers.iter().fold(sql, |sql, (name, number)| sql.replace(name, &number.to_string()));
        let chunk_result = self.job.in_chunks.then_some(true);
        let message = ClientMessage::ExecSql(StmtExecute { chunk_result, ..request::update(&sql) });
        let id = session_id(self.connection, place);
        message.encode(Dialect::Legacy, id, out).expect("requests are small");
    }
}

impl Conversation for Statements {
    fn ask(&mut self, session: u32, out: &mut Vec<u8>) {
        let own = self.random.i64(self.table.half() + 1..=self.table.rows());
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
            let (sql, right) = self.statements[session.step];
            let seen = &mut session.seen;
            match (ServerKind::from_number_or_alias(frame.kind()), self.job.in_chunks) {
                (Some(ServerKind::ColumnMetaData | ServerKind::FetchDone), _) => {}
                (Some(ServerKind::Row), false) => {
                    let row = self.reader.row(frame.body()).map_err(text)?;
                    seen.row(right, row).map_err(text)?;
                }
                (Some(ServerKind::Chunk), true) => seen.chunk(frame.body()).map_err(text)?,
                (Some(ServerKind::StmtExecuteOk), _)
                    if seen.is(right, session.first, &self.table) =>
                {
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
                        return Err(format!("{other:?} to {sql}: {session:?}"));
                    }
                },
            }
        }
        Ok(())
    }
}

fn connect(address: SocketAddr) -> Client {
    let mut client = Client::logged_in(address, USER, PASSWORD);
    client.new_session(1);
    client
}

fn sum_of_ids(rows: i64) -> i64 {
    rows * (rows + 1) / 2
}

fn text(error: impl Error) -> String {
    error.to_string()
}
