//! [`EngineSession`]: what belongs to one session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use epoll_group::codec::message::notice::warning::Level;
use epoll_group::session::{Reply, SessionError};
use rusqlite::types::Value;

use crate::node::functions::Facts;
use crate::node::interrupt::Interrupt;
use crate::node::pool::Lent;
use crate::node::variables::Locals;
use crate::node::write_lock::WriteTurn;

/// One session of the engine.
#[derive(Debug)]
pub(crate) struct EngineSession {
    pub(crate) facts: Arc<Facts>,
    pub(crate) locals: Locals,
    /// User variables, by their names in lower case.
    pub(crate) variables: HashMap<String, Value>,
    pub(crate) transaction: Option<Transaction>,
    /// Of the next transaction alone.
    pub(crate) next_isolation: Option<String>,
    pub(crate) next_read_only: Option<bool>,
    /// Of the last statement.
    pub(crate) warnings: Vec<Warning>,
}

/// What a statement has to say beside its result.
#[derive(Clone, Debug)]
pub(crate) struct Warning {
    pub(crate) level: Level,
    pub(crate) code: u32,
    pub(crate) text: String,
}

/// A transaction from when it was begun until it ends.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) read_only: bool,
    /// What it reads stays as it was at its first read.
    pub(crate) repeatable: bool,
    /// Its connection, in a transaction of SQLite: from the first change on, or the first read of one
    /// that reads repeatably. Dropped, it is rolled back.
    pub(crate) db: Option<Lent>,
    /// The right to write, from the first change on. Behind `db`, so that it outlives it.
    pub(crate) turn: Option<WriteTurn>,
    /// Names, and what they are called in SQLite.
    pub(crate) savepoints: Vec<(String, String)>,
    pub(crate) savepoints_set: u64,
    pub(crate) xa: Option<XaBranch>,
    /// All that it did is undone, which its client may not know: nothing but its end goes well.
    pub(crate) lost: bool,
}

/// How far a distributed transaction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct XaBranch {
    pub(crate) name: String,
    pub(crate) state: XaState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XaState {
    Active,
    Idle,
    Prepared,
}

/// More warnings are not kept.
const MOST_WARNINGS: usize = 64;

impl EngineSession {
    pub(crate) fn new(number: u32, user: &str, schema: &str) -> Self {
        let facts = Facts {
            number,
            user: user.to_owned(),
            schema: schema.to_owned(),
            interrupt: Arc::new(Interrupt::default()),
            last_insert_id: Mutex::default(),
            row_count: Mutex::new(-1),
        };
        Self {
            facts: Arc::new(facts),
            locals: Locals::default(),
            variables: HashMap::new(),
            transaction: None,
            next_isolation: None,
            next_read_only: None,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn interrupt(&self) -> &Arc<Interrupt> {
        &self.facts.interrupt
    }

    /// Tells the client, and keeps it for `show warnings`.
    pub(crate) fn warn(&mut self, reply: &mut Reply<'_>, warning: Warning) {
        reply.warning(warning.level, warning.code, warning.text.as_str());
        self.keep(warning);
    }

    /// An error is the only thing that `show warnings` then shows of its statement.
    pub(crate) fn failed(&mut self, error: &SessionError) {
        let text = String::from_utf8_lossy(error.message()).into_owned();
        self.keep(Warning { level: Level::Error, code: error.code(), text });
        self.changed(-1, 0);
    }

    fn keep(&mut self, warning: Warning) {
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push(warning);
        }
    }

    /// Remembers what a statement has changed, for the functions that tell it.
    pub(crate) fn changed(&self, rows: i64, last_insert_id: u64) {
        *self.facts.row_count.lock().unwrap_or_else(PoisonError::into_inner) = rows;
        if last_insert_id > 0 {
            let id = &self.facts.last_insert_id;
            *id.lock().unwrap_or_else(PoisonError::into_inner) = last_insert_id;
        }
    }
}
