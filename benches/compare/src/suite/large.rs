//! Large results and mixed load: scans of a whole table, and transactions that read and write.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, Notice, ServerKind, ServerMessage};
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::row::RowReader;
use lab::load::{Answer, Conversation, Report, session_id};
use lab::ratio::Spread;
use lab::sessions;
use lab::table::markdown;
use lab::xrpc::{Datum, request};
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

mod check;

use check::{RANGE, Right, Seen, Table, connect};

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
and of a scan the sums of ids and of lengths. The sum of a range may exceed the first one by the increments of `k` \
that were sent. Before its server ends, the table must have all rows, all increments, and the sums of lengths that \
the written texts make.

- **old**: a thread for each session, a thread that reads for each of 16 connections;
- **new**: the library before the same engine, over 16 connections;
- **jdbc**: a connection and a thread for each session, before the same engine;
- **select1**: the example of a whole data node.

The engine is SQLite. A session waits for the right to write from its first change to its commit, in all designs. \
From `begin` on, `select1` reads inside of a transaction of SQLite. The others read outside of it until their first \
change. The load offers no credit, so that the socket alone slows a server down. Databases are in the temporary \
folder: set `TMPDIR` to memory.

Through the sharding proxy, four nodes have a quarter of the rows each, and all are one process. The proxy \
cannot be placed before `jdbc`, because it has many sessions on a connection. It keeps a transaction on one node, so \
there the ranges come before `begin`, and the other statements have ids of one node. It answers a scan of several \
nodes as rows. It offers credit to the nodes, which `new` and `select1` obey and `old` ignores.

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
            match (ServerKind::from_number(frame.kind()), self.job.in_chunks) {
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

fn text(error: impl Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    #![expect(single_use_lifetimes, reason = "`impl Trait` takes no other on stable")]

    use baselines::statements::{self, Account, Engine, Outcome};
    use baselines::thread_per_session;
    use epoll_group::codec::row::Column;
    use epoll_group::codec::value::Value;
    use epoll_group::session::SessionError;
    use lab::ratio::Spread;
    use lab::sessions::{PASSWORD, USER};

    use super::*;
    use crate::engine::{Sqlite, Transaction};
    use crate::server::any;

    #[derive(Clone, Copy, Debug)]
    enum Fault {
        /// Statements that begin like this change nothing.
        Loses(&'static [&'static str]),
        CutsTexts,
        /// Replaces the first text by the second in each statement.
        Replaces(&'static str, &'static str),
    }

    struct Faulty(Fault, Sqlite);

    struct Cutting<'a, A>(&'a mut A);

    impl Engine for Faulty {
        type Session = Transaction;

        fn execute(
            &self,
            session: &mut Transaction,
            sql: &[u8],
            out: &mut impl statements::Answer,
        ) -> Result<Outcome, SessionError> {
            match self.0 {
                Fault::Loses(lost) if lost.iter().any(|lost| sql.starts_with(lost.as_bytes())) => {
                    Ok(Outcome::Changed(1))
                }
                Fault::Loses(_) => self.1.execute(session, sql, out),
                Fault::CutsTexts => self.1.execute(session, sql, &mut Cutting(out)),
                Fault::Replaces(from, to) => {
                    let sql = String::from_utf8_lossy(sql).replace(from, to);
                    self.1.execute(session, sql.as_bytes(), out)
                }
            }
        }
    }

    impl<A: statements::Answer> statements::Answer for Cutting<'_, A> {
        fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError> {
            self.0.columns(columns)
        }

        fn row<'v>(
            &mut self,
            values: impl Iterator<Item = Result<Value<'v>, SessionError>>,
        ) -> Result<(), SessionError> {
            self.0.row(values.map(|value| match value? {
                Value::Bytes(text) => Ok(Value::Bytes(&text[..11])),
                other => Ok(other),
            }))
        }
    }

    fn measure(job: Job, fault: Fault) -> Result<u64, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let engine = Sqlite::open(&folder.path().join("test.db"), 1000)?;
        let account = Account::new(USER, PASSWORD);
        let address = thread_per_session::start(any(), account, Faulty(fault, engine))?;
        let mut load = (job.workload(2, 2, 1000).connect)(address)?;
        load.run_for(Duration::from_millis(50))?;
        load.finish()
    }

    #[test]
    fn lost_changes_and_wrong_answers_are_found() {
        let all = &["update", "delete", "insert"];
        for lost in [&all[..], &["update sbtest1 set k"], &["update sbtest1 set c"], &all[1..]] {
            let error = measure(TRANSACTION, Fault::Loses(lost)).unwrap_err().to_string();
            assert!(error.starts_with("the table has"), "{lost:?}: {error}");
        }
        for job in [ROWS_SCAN, CHUNKS_SCAN, TRANSACTION] {
            assert!(measure(job, Fault::Loses(&[])).unwrap() > 0);
            assert_answer_is_wrong(job, Fault::CutsTexts);
        }
        assert_answer_is_wrong(TRANSACTION, Fault::Replaces("order by c", "order by c desc"));
        assert_answer_is_wrong(TRANSACTION, Fault::Replaces("sum(k)", "sum(k) - 1"));
    }

    fn assert_answer_is_wrong(job: Job, fault: Fault) {
        let error = measure(job, fault).unwrap_err().to_string();
        assert!(error.contains("StmtExecuteOk"), "{}, {fault:?}: {error}", job.name);
    }

    #[test]
    fn goal_inside_of_the_interval_is_open() {
        let spread = Spread::of(vec![0.96, 0.98, 1.0, 1.02, 1.04]).unwrap();
        assert_eq!([0.95, 1.0, 1.05].map(|goal| reached(&spread, goal)), ["yes", "open", "no"]);
    }
}
