//! [`EngineSession`]: state of one session.

use std::sync::{Arc, Mutex, PoisonError};

use epoll_group::codec::proto::notice::Level;
use epoll_group::session::{Reply, SessionError};

use crate::node::database::{Database, User};
use crate::node::dialect::Xid;
use crate::node::errors::unsupported;
use crate::node::functions::Facts;
use crate::node::interrupt::Interrupt;
use crate::node::pool::Home;
use crate::node::variables::{Locals, UserVariables};
use crate::node::write_lock::WriteTurn;

/// One session of the engine.
#[derive(Debug)]
pub struct EngineSession {
    pub facts: Arc<Facts>,
    pub user: Arc<User>,
    pub database: Arc<Database>,
    pub locals: Locals,
    pub variables: UserVariables,
    pub transaction: Option<Transaction>,
    /// Isolation of the next transaction alone; likewise below.
    pub next_isolation: Option<String>,
    pub next_read_only: Option<bool>,
    /// Warnings of the last statement.
    pub warnings: Vec<Warning>,
    /// Counts the session; `None` for a session of one statement.
    counted: Option<Arc<()>>,
}

/// A note or warning of a statement.
#[derive(Clone, Debug)]
pub struct Warning {
    pub level: Level,
    pub code: u32,
    pub text: String,
}

/// A transaction from when it was begun until it ends.
#[derive(Debug, Default)]
pub struct Transaction {
    pub read_only: bool,
    /// All its reads see the state of the first one.
    pub repeatable: bool,
    /// Its connection, in a transaction of SQLite. Present from the first change on, or from the
    /// first read if `repeatable`. A drop rolls the transaction back.
    pub db: Arc<Home>,
    /// The right to write, from the first change on. Declared after `db`: dropped after it.
    pub turn: Option<WriteTurn>,
    /// Names of the savepoints, by their numbers in SQLite. A savepoint loses its name to a later one of
    /// the same name. The last savepoint always has a name.
    pub savepoints: Vec<Option<String>>,
    pub xa: Option<XaBranch>,
    /// It was rolled back, and its client may not know: all but its end is refused.
    pub lost: bool,
}

/// Branch of a distributed transaction that a session is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XaBranch {
    pub xid: Xid,
    /// No more statements run in it.
    pub ended: bool,
}

/// More warnings are not kept.
const MOST_WARNINGS: usize = 64;
/// Bytes that are kept of the text of a warning.
const LONGEST_WARNING: usize = 2048;

impl EngineSession {
    pub fn new(number: u32, user: Arc<User>, locals: Locals, counted: Option<Arc<()>>) -> Self {
        let database = Arc::clone(&user.databases()[0]);
        let facts = Facts {
            number,
            user: user.name.clone(),
            schema: Mutex::new(Arc::clone(&database.schema)),
            interrupt: Arc::new(Interrupt::default()),
            last_insert_id: Mutex::default(),
            row_count: Mutex::new(-1),
            source_end: Mutex::default(),
        };
        Self {
            facts: Arc::new(facts),
            user,
            database,
            locals,
            variables: UserVariables::default(),
            transaction: None,
            next_isolation: None,
            next_read_only: None,
            warnings: Vec::new(),
            counted,
        }
    }

    pub fn interrupt(&self) -> &Arc<Interrupt> {
        &self.facts.interrupt
    }

    /// Runs its statements in this database from now on.
    ///
    /// # Errors
    /// A transaction is open.
    pub fn change_database(&mut self, database: Arc<Database>) -> Result<(), SessionError> {
        if Arc::ptr_eq(&database, &self.database) {
            return Ok(());
        }
        if self.transaction.is_some() {
            return Err(unsupported("USE of another database in a transaction"));
        }
        let schema = Arc::clone(&database.schema);
        *self.facts.schema.lock().unwrap_or_else(PoisonError::into_inner) = schema;
        self.database = database;
        Ok(())
    }

    /// True if the session ends with its only statement.
    pub fn is_of_one_statement(&self) -> bool {
        self.counted.is_none()
    }

    /// Notes how the last request has ended, if a source gave its rows.
    pub fn note_end_of_source(&mut self) {
        let end = self.facts.source_end.lock().unwrap_or_else(PoisonError::into_inner).take();
        match end {
            Some(Ok(())) => self.changed(0, 0),
            Some(Err(error)) => self.failed(&error),
            None => return,
        }
        self.look_at_transaction();
    }

    /// Notes that SQLite has rolled the transaction back, which it does when a change is interrupted.
    pub fn look_at_transaction(&mut self) {
        let Some(transaction) = &self.transaction else { return };
        if transaction.db.with(|db| db.is_autocommit()) == Some(true) {
            self.lose();
        }
    }

    /// Ends a transaction that can only be rolled back. A branch stays until its client ends it.
    pub fn lose_transaction(&mut self) {
        match &self.transaction {
            Some(Transaction { xa: Some(_), .. }) => self.lose(),
            _ => self.transaction = None,
        }
    }

    /// Puts a lost transaction in place of the open one.
    fn lose(&mut self) {
        let xa = self.transaction.take().and_then(|transaction| transaction.xa);
        self.transaction = Some(Transaction { lost: true, xa, ..Transaction::default() });
    }

    /// Sends the warning to the client, and keeps it for `show warnings`.
    pub fn warn(&mut self, reply: &mut Reply<'_>, warning: Warning) {
        reply.ending().warning(warning.level, warning.code, warning.text.as_str());
        self.keep(warning);
    }

    /// Notes an error, which `show warnings` then shows alone.
    pub fn failed(&mut self, error: &SessionError) {
        let text = String::from_utf8_lossy(&error.message).into_owned();
        self.warnings.clear();
        self.keep(Warning { level: Level::Error, code: error.code, text });
        self.changed(-1, 0);
    }

    fn keep(&mut self, mut warning: Warning) {
        if self.warnings.len() < MOST_WARNINGS {
            let end = (0..=LONGEST_WARNING).rfind(|&at| warning.text.is_char_boundary(at));
            warning.text.truncate(end.unwrap_or(0));
            warning.text.shrink_to_fit();
            self.warnings.push(warning);
        }
    }

    /// Remembers what a statement has changed, for `row_count()` and its like.
    pub fn changed(&self, rows: i64, last_insert_id: u64) {
        *self.facts.row_count.lock().unwrap_or_else(PoisonError::into_inner) = rows;
        if last_insert_id > 0 {
            let id = &self.facts.last_insert_id;
            *id.lock().unwrap_or_else(PoisonError::into_inner) = last_insert_id;
        }
    }
}
