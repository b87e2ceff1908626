//! Engines behind a server: SQLite, and a constant.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use baselines::statements::{Answer, Engine, Outcome};
use epoll_group::codec::error::GENERAL_STATE;
use epoll_group::codec::row::{Column, ColumnType};
use epoll_group::codec::value::Value;
use epoll_group::session::SessionError;
use epoll_group::sync;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Rows, Statement};

/// Knows `select 1` and point selects by their text, and takes no time, so that the server's cost is left.
#[derive(Debug)]
pub struct Constant;

/// SQLite. A statement borrows a connection with its prepared statements from a pool.
///
/// The first change of a transaction waits for the right to write, and opens the transaction of SQLite.
#[derive(Debug)]
pub struct Sqlite {
    database: PathBuf,
    pool: Mutex<Vec<Connection>>,
    write_lock: Arc<WriteLock>,
}

/// Transaction of a session.
#[derive(Debug, Default)]
pub struct Transaction {
    begun: bool,
    /// Present from the first change on.
    writer: Option<Writer>,
}

/// Connection with an open transaction of SQLite. If dropped, it closes before others may write.
#[derive(Debug)]
struct Writer {
    connection: Connection,
    _turn: Turn,
}

/// The right to write. SQLite has one writer, for whose end others would poll.
#[derive(Debug, Default)]
struct WriteLock {
    queue: sync::Mutex<Queue>,
    handed_over: sync::Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    held: bool,
    waiting: usize,
    /// Turns granted to sessions that still sleep.
    granted: usize,
}

/// The right to write, until it is dropped.
#[derive(Debug)]
struct Turn(Arc<WriteLock>);

/// MySQL's numbers.
const SYNTAX_ERROR: u32 = 1064;
const UNKNOWN_ERROR: u32 = 1105;
const SYNTAX_STATE: &[u8; 5] = b"42000";

/// utf8mb4, up to 120 characters of four bytes.
const COLLATION: u64 = 45;
const TEXT_BYTES: u32 = 480;

/// Idle connections that are kept. Threads can lose their CPU inside a statement, so with a thread for each
/// session all of them may be in use.
const POOLED: usize = 4096;
/// Prepared statements of a connection. The texts of point selects push each other out.
const STATEMENTS: usize = 128;
/// Groups of eleven digits in the column `c` of sysbench, with a `-` between.
const GROUPS: i64 = 10;

impl Engine for Constant {
    type Session = ();

    // Not inlined, so that profiles of all architectures show it as the engine.
    #[inline(never)]
    fn execute(
        &self,
        (): &mut (),
        sql: &[u8],
        out: &mut impl Answer,
    ) -> Result<Outcome, SessionError> {
        let point = sql.strip_prefix(b"select id, c from sbtest1 where id = ");
        let id = point.and_then(|id| std::str::from_utf8(id).ok()?.parse::<i64>().ok());
        match (sql, id) {
            (b"select 1", _) => {
                out.columns(&[Column::signed("1").not_null().length(2)])?;
                out.row([Ok(Value::Signed(1))].into_iter())?;
            }
            (_, Some(id)) => {
                out.columns(&[
                    Column::signed("id").not_null().primary_key(),
                    Column::text("c", COLLATION, TEXT_BYTES).not_null(),
                ])?;
                out.row([Ok(Value::Signed(id)), Ok(Value::Bytes(b"constant"))].into_iter())?;
            }
            _ => return Err(SessionError::new(SYNTAX_ERROR, SYNTAX_STATE, "not known here")),
        }
        Ok(Outcome::Result)
    }
}

impl Sqlite {
    /// Opens the file and makes `sbtest1` with this many rows, unless it is there.
    pub fn open(database: &Path, rows: u32) -> Result<Self, Box<dyn Error>> {
        Self::open_shard(database, rows, (0, 1))
    }

    /// The same, with the rows of one node of several: those whose id, divided by the number of nodes, leaves
    /// this rest.
    pub fn open_shard(
        database: &Path,
        rows: u32,
        (rest, nodes): (i64, i64),
    ) -> Result<Self, Box<dyn Error>> {
        let engine = Self {
            database: database.to_owned(),
            pool: Mutex::default(),
            write_lock: Arc::default(),
        };
        let mut connection = engine.connect()?;
        fill(&mut connection, rows, |id| id % nodes == rest)?;
        engine.give_back(connection);
        Ok(engine)
    }

    fn borrow(&self) -> Result<Connection, rusqlite::Error> {
        let pooled = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        pooled.map_or_else(|| self.connect(), Ok)
    }

    fn connect(&self) -> Result<Connection, rusqlite::Error> {
        let connection = Connection::open(&self.database)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connection.pragma_update(None, "journal_mode", "wal")?;
        // As the data node has it.
        connection.pragma_update(None, "synchronous", "normal")?;
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < POOLED {
            pool.push(connection);
        }
    }
}

impl Engine for Sqlite {
    type Session = Transaction;

    fn execute(
        &self,
        session: &mut Transaction,
        sql: &[u8],
        out: &mut impl Answer,
    ) -> Result<Outcome, SessionError> {
        match sql {
            b"begin" => {
                session.begun = true;
                return Ok(Outcome::Changed(0));
            }
            b"commit" => {
                session.begun = false;
                if let Some(Writer { connection, _turn }) = session.writer.take() {
                    connection.execute_batch("commit").map_err(failed)?;
                    self.give_back(connection);
                }
                return Ok(Outcome::Changed(0));
            }
            _ => {}
        }
        if let Some(Writer { connection, .. }) = &session.writer {
            return run(connection, sql, out);
        }
        let turn = (!sql.starts_with(b"select")).then(|| self.write_lock.acquire());
        let connection = self.borrow().map_err(failed)?;
        match turn {
            Some(_turn) if session.begun => {
                connection.execute_batch("begin immediate").map_err(failed)?;
                let Writer { connection, .. } = session.writer.insert(Writer { connection, _turn });
                run(connection, sql, out)
            }
            _ => {
                let result = run(&connection, sql, out);
                self.give_back(connection);
                result
            }
        }
    }

    fn holds_lock(session: &Transaction) -> bool {
        session.writer.is_some()
    }
}

impl WriteLock {
    /// Waits for the right to write, which is handed over from one session to the next.
    fn acquire(self: &Arc<Self>) -> Turn {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.held {
            queue.waiting += 1;
            let granted = self.handed_over.wait_while(queue, |queue| queue.granted == 0);
            granted.unwrap_or_else(PoisonError::into_inner).granted -= 1;
        } else {
            queue.held = true;
        }
        Turn(Arc::clone(self))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.waiting == 0 {
            queue.held = false;
            return;
        }
        queue.waiting -= 1;
        queue.granted += 1;
        drop(queue);
        self.0.handed_over.notify_one();
    }
}

fn run(
    connection: &Connection,
    sql: &[u8],
    out: &mut impl Answer,
) -> Result<Outcome, SessionError> {
    let sql = str::from_utf8(sql).map_err(|error| failed(rusqlite::Error::Utf8Error(0, error)))?;
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    if statement.column_count() == 0 {
        let rows = statement.execute([]).map_err(failed)?;
        return Ok(Outcome::Changed(rows as u64));
    }
    let names: Vec<String> = column_names(&statement);
    send_rows(&names, statement.query([]).map_err(failed)?, out)?;
    Ok(Outcome::Result)
}

fn column_names(statement: &Statement<'_>) -> Vec<String> {
    statement.column_names().map(str::to_owned).collect()
}

/// Columns have the types of the first row's values, which is enough for a benchmark.
fn send_rows(
    names: &[String],
    mut rows: Rows<'_>,
    out: &mut impl Answer,
) -> Result<(), SessionError> {
    let Some(first) = rows.next().map_err(failed)? else {
        let columns = names.iter().map(|name| Column::text(name, COLLATION, TEXT_BYTES));
        return out.columns(&columns.collect::<Vec<_>>());
    };
    let described = names.iter().enumerate().map(|(place, name)| {
        Ok(match first.get_ref(place).map_err(failed)? {
            ValueRef::Integer(_) => Column::signed(name),
            ValueRef::Real(_) => Column::new(name, ColumnType::Double),
            _ => Column::text(name, COLLATION, TEXT_BYTES),
        })
    });
    out.columns(&described.collect::<Result<Vec<_>, SessionError>>()?)?;
    let mut next = Some(first);
    while let Some(row) = next {
        out.row((0..names.len()).map(|place| {
            Ok(match row.get_ref(place).map_err(failed)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(value) => Value::Signed(value),
                ValueRef::Real(value) => Value::Double(value),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::Bytes(bytes),
            })
        }))?;
        next = rows.next().map_err(failed)?;
    }
    Ok(())
}

fn failed(error: rusqlite::Error) -> SessionError {
    SessionError::new(UNKNOWN_ERROR, GENERAL_STATE, error.to_string())
}

/// Makes the table of sysbench, with the same rows each time, as far as they belong there.
fn fill(
    connection: &mut Connection,
    rows: u32,
    belongs: impl Fn(i64) -> bool,
) -> Result<(), rusqlite::Error> {
    if connection.table_exists(None, "sbtest1")? {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "create table sbtest1 (id integer primary key, k integer not null default 0,
            c char(120) not null default '', pad char(60) not null default '');
         create index k_1 on sbtest1 (k);",
    )?;
    let mut insert = transaction.prepare("insert into sbtest1 values (?, ?, ?, ?)")?;
    for id in (1..=i64::from(rows)).filter(|id| belongs(*id)) {
        let k = id * 7919 % i64::from(rows) + 1;
        insert.execute((id, k, digits(id, GROUPS), digits(k, GROUPS / 2)))?;
    }
    drop(insert);
    transaction.commit()
}

fn digits(seed: i64, groups: i64) -> String {
    let group = |place| format!("{:011}", (seed + place) * 7_368_787 % 100_000_000_000);
    (0..groups).map(group).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    #![expect(single_use_lifetimes, reason = "`impl Trait` takes no other on stable")]

    use std::thread;

    use super::*;

    /// Number of rows of an answer.
    struct Rows(usize);

    impl Answer for Rows {
        fn columns(&mut self, _: &[Column<'_>]) -> Result<(), SessionError> {
            Ok(())
        }

        fn row<'v>(
            &mut self,
            _: impl Iterator<Item = Result<Value<'v>, SessionError>>,
        ) -> Result<(), SessionError> {
            self.0 += 1;
            Ok(())
        }
    }

    fn rows(engine: &Sqlite, session: &mut Transaction, sql: &str) -> usize {
        let mut rows = Rows(0);
        engine.execute(session, sql.as_bytes(), &mut rows).unwrap();
        rows.0
    }

    #[test]
    fn transactions_write_one_after_the_other_and_end_with_their_session() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Sqlite::open_shard(&folder.path().join("test.db"), 100, (3, 4)).unwrap();
        let mut first = Transaction::default();
        rows(&engine, &mut first, "begin");
        assert_eq!(rows(&engine, &mut first, "select id from sbtest1"), 25);
        rows(&engine, &mut first, "delete from sbtest1 where id = 3");
        let mut lost = Transaction::default();
        rows(&engine, &mut lost, "begin");
        thread::scope(|scope| {
            // The second writer waits, and readers do not.
            let second = scope.spawn(|| rows(&engine, &mut lost, "delete from sbtest1"));
            let mut reader = Transaction::default();
            assert_eq!(rows(&engine, &mut reader, "select id from sbtest1"), 25);
            assert!(!second.is_finished());
            rows(&engine, &mut first, "commit");
        });
        assert!(Sqlite::holds_lock(&lost) && !Sqlite::holds_lock(&first));
        drop(lost);
        rows(&engine, &mut first, "delete from sbtest1 where id = 7");
        assert_eq!(rows(&engine, &mut first, "select id from sbtest1"), 23);
    }
}
