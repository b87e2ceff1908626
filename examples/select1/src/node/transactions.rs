//! Connections for the statements of a session, and the state of a transaction.
//!
//! Reads outside of a transaction borrow any connection. The first change of a transaction waits
//! for the right to write and opens a transaction of SQLite, for which other writers then wait. So
//! a row is never outdated when its reader changes it. Only a transaction that reads repeatably
//! opens the transaction of SQLite at its first read. It gets a deadlock error if it changes the
//! database after others have.

use std::sync::Arc;

use epoll_group::session::SessionError;

use crate::node::database::Database;
use crate::node::dialect::Access;
use crate::node::engine::Engine;
use crate::node::errors::{
    lost_transaction, no_savepoint, read_only_transaction, unsupported, wrong_branch_state,
};
use crate::node::pool::Lent;
use crate::node::state::{EngineSession, Transaction};

/// Savepoints of a transaction. Each one slows down every change behind it.
const MOST_SAVEPOINTS: usize = 1024;
/// Most characters of the name of a savepoint.
const LONGEST_NAME: usize = 64;
/// Limit of SQLite's savepoints in a transaction, including those whose name was set again.
const MOST_IN_SQLITE: usize = 8192;

impl Engine {
    /// True if statements outside of a transaction commit by themselves.
    pub fn commits_itself(&self, session: &EngineSession) -> bool {
        session.locals.is_on("autocommit")
    }

    /// A connection for a statement that only reads: that of the transaction, or any.
    pub fn reader(&self, session: &mut EngineSession) -> Result<Lent, SessionError> {
        self.begin_if_needed(session)?;
        match &session.transaction {
            Some(transaction)
                if transaction.repeatable || transaction.db.with(|_| ()).is_some() =>
            {
                self.own(session, "begin")
            }
            _ => self.borrow(session),
        }
    }

    /// A connection for a select. In autocommit the select is a transaction of its own, so it uses
    /// up the settings of the next transaction.
    pub fn selecting(&self, session: &mut EngineSession) -> Result<Lent, SessionError> {
        let lent = self.reader(session)?;
        if session.transaction.is_none() {
            self.take_next_read_only(session);
        }
        Ok(lent)
    }

    /// A connection for a plan, which may name another database than that of the session, or none.
    pub fn reader_of(
        &self,
        session: &mut EngineSession,
        name: &[u8],
    ) -> Result<Lent, SessionError> {
        let database = self.database(session, name)?;
        if Arc::ptr_eq(&database, &session.database) {
            return self.reader(session);
        }
        if session.transaction.is_some() {
            return Err(unsupported("a plan in another database in a transaction"));
        }
        database.lend_to(session)
    }

    /// Runs a change when the session has the right to write.
    pub fn writing<T>(
        &self,
        session: &mut EngineSession,
        code: impl FnOnce(&mut EngineSession, Lent) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        self.begin_if_needed(session)?;
        let limit = self.lock_wait_timeout(session);
        let Some(transaction) = &session.transaction else {
            if self.take_next_read_only(session) {
                return Err(read_only_transaction());
            }
            let turn = session.database.writing.acquire(session.interrupt(), limit)?;
            let db = self.borrow(session)?;
            let done = code(session, db);
            // The change is committed, and so SQLite's lock is free.
            drop(turn);
            return done;
        };
        if transaction.read_only {
            return Err(read_only_transaction());
        }
        if transaction.turn.is_none() {
            let turn = session.database.writing.acquire(session.interrupt(), limit)?;
            if let Some(transaction) = &mut session.transaction {
                transaction.turn = Some(turn);
            }
        }
        let db = self.own(session, "begin immediate")?;
        let done = code(session, db);
        if done.as_ref().is_err_and(|error| error.code == 1213) {
            // Nothing but its end can help, as the client knows by the number of the error. A branch
            // ends by its own statements.
            session.lose_transaction();
        }
        done
    }

    /// Commits, and runs a definition of tables, which is outside of any transaction.
    pub fn defining<T>(
        &self,
        session: &mut EngineSession,
        code: impl FnOnce(&mut EngineSession, &Lent) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let read_only = match &session.transaction {
            Some(transaction) => transaction.read_only,
            None => self.take_next_read_only(session),
        };
        if read_only {
            return Err(read_only_transaction());
        }
        self.commit(session)?;
        let turn = session
            .database
            .writing
            .acquire(session.interrupt(), self.lock_wait_timeout(session))?;
        let db = self.borrow(session)?;
        let database = Arc::clone(&session.database);
        let sqlite = |error| database.error(&error);
        db.execute_batch("begin immediate").map_err(sqlite)?;
        let done = code(session, &db);
        let end = if done.is_ok() { "commit" } else { "rollback" };
        let ended = db.execute_batch(end).map_err(sqlite);
        drop(db);
        drop(turn);
        done.and_then(|done| ended.map(|()| done))
    }

    /// The transaction's connection. If there is none yet, a connection is lent and executes
    /// `begin`. It goes back by itself.
    fn own(&self, session: &EngineSession, begin: &str) -> Result<Lent, SessionError> {
        let database = Arc::clone(&session.database);
        let sqlite = |error| database.error(&error);
        let Some(transaction) = &session.transaction else { return Err(wrong_branch_state()) };
        let mut db = match transaction.db.take() {
            Some(db) => db,
            None => {
                let db = session.database.pool.lend()?;
                db.execute_batch(begin).map_err(sqlite)?;
                for number in 0..transaction.savepoints.len() {
                    db.execute_batch(&format!("savepoint s{number}")).map_err(sqlite)?;
                }
                db
            }
        };
        db.go_back_to(&transaction.db);
        db.run_for(session);
        Ok(db)
    }

    /// Begins a transaction before a statement if the session is in none and does not commit by itself.
    ///
    /// # Errors
    /// The transaction takes no more statements.
    fn begin_if_needed(&self, session: &mut EngineSession) -> Result<(), SessionError> {
        match &session.transaction {
            None if self.commits_itself(session) => Ok(()),
            None => self.begin(session, Access::default()),
            Some(transaction) => takes_statements(transaction),
        }
    }

    /// Takes the settings of the next transaction. Returns true if it is read only.
    fn take_next_read_only(&self, session: &mut EngineSession) -> bool {
        session.next_isolation = None;
        let next = session.next_read_only.take();
        next.unwrap_or_else(|| session.locals.is_on("transaction_read_only"))
    }

    pub fn begin(&self, session: &mut EngineSession, access: Access) -> Result<(), SessionError> {
        self.commit(session)?;
        let next = session.next_isolation.take();
        let isolation = next.as_deref().or_else(|| session.locals.get("transaction_isolation"));
        let repeats = |level: &str| matches!(level, "REPEATABLE-READ" | "SERIALIZABLE");
        let repeatable = access.snapshot || isolation.is_some_and(repeats);
        let next = self.take_next_read_only(session);
        let read_only = access.read_only.unwrap_or(next);
        session.transaction = Some(Transaction { read_only, repeatable, ..Transaction::default() });
        let taken = if access.snapshot { self.take_snapshot(session) } else { Ok(()) };
        if taken.is_err() {
            session.transaction = None;
        }
        taken
    }

    /// Opens the transaction of SQLite, and reads in it.
    fn take_snapshot(&self, session: &EngineSession) -> Result<(), SessionError> {
        self.own(session, "begin")?
            .query_row("select count(*) from sqlite_master", [], |_| Ok(()))
            .map_err(|error| session.database.error(&error))
    }

    pub fn commit(&self, session: &mut EngineSession) -> Result<(), SessionError> {
        refuse_in_xa(session)?;
        self.end(session, "commit")
    }

    pub fn roll_back(&self, session: &mut EngineSession) -> Result<(), SessionError> {
        refuse_in_xa(session)?;
        self.end(session, "rollback")
    }

    pub fn end(&self, session: &mut EngineSession, how: &str) -> Result<(), SessionError> {
        let Some(transaction) = session.transaction.take() else { return Ok(()) };
        if transaction.lost && how == "commit" {
            return Err(lost_transaction());
        }
        let Some(db) = transaction.db.take() else { return Ok(()) };
        let ended = db.execute_batch(how).map_err(|error| session.database.error(&error));
        // First the connection and then the turn: see `writing`.
        drop(db);
        drop(transaction);
        ended
    }

    pub fn set_savepoint(
        &self,
        session: &mut EngineSession,
        name: &str,
    ) -> Result<(), SessionError> {
        if name.chars().nth(LONGEST_NAME).is_some() {
            let start: String = name.chars().take(LONGEST_NAME).collect();
            let text = format!("Identifier name '{start}…' is too long");
            return Err(SessionError::new(1059, b"42000", text));
        }
        self.begin_if_needed(session)?;
        // Outside of a transaction a savepoint ends with the statement that sets it.
        let Some(transaction) = &session.transaction else { return Ok(()) };
        if transaction.savepoints.last().is_some_and(|last| is_named(last, name)) {
            self.release_savepoint(session, name)?;
        }
        let Some(transaction) = &mut session.transaction else { return Ok(()) };
        let number = transaction.savepoints.len();
        let others = transaction.savepoints.iter().flatten();
        let others = others.filter(|known| !known.eq_ignore_ascii_case(name)).count();
        for (count, most) in [(others, MOST_SAVEPOINTS), (number, MOST_IN_SQLITE)] {
            if count >= most {
                let text = format!("A transaction has at most {most} savepoints");
                return Err(SessionError::new(1105, b"HY000", text));
            }
        }
        in_sqlite(transaction, &session.database, &format!("savepoint s{number}"))?;
        // An earlier savepoint of this name stays: its release would release those above it.
        if let Some(same) = transaction.savepoints.iter_mut().find(|known| is_named(known, name)) {
            *same = None;
        }
        transaction.savepoints.push(Some(name.to_owned()));
        Ok(())
    }

    pub fn release_savepoint(
        &self,
        session: &mut EngineSession,
        name: &str,
    ) -> Result<(), SessionError> {
        let (transaction, at) = find_savepoint(&mut session.transaction, name)?;
        // Savepoints below it that have lost their names go, too: the last one must have a name.
        let kept = transaction.savepoints[..at].iter().rposition(Option::is_some);
        let kept = kept.map_or(0, |last| last + 1);
        in_sqlite(transaction, &session.database, &format!("release s{kept}"))?;
        transaction.savepoints.truncate(kept);
        Ok(())
    }

    pub fn roll_back_to(
        &self,
        session: &mut EngineSession,
        name: &str,
    ) -> Result<(), SessionError> {
        let (transaction, at) = find_savepoint(&mut session.transaction, name)?;
        in_sqlite(transaction, &session.database, &format!("rollback to s{at}"))?;
        transaction.savepoints.truncate(at + 1);
        Ok(())
    }
}

/// # Errors
/// The transaction takes no more statements.
fn takes_statements(transaction: &Transaction) -> Result<(), SessionError> {
    match transaction {
        Transaction { lost: true, .. } => Err(lost_transaction()),
        Transaction { xa: Some(branch), .. } if branch.ended => Err(wrong_branch_state()),
        _ => Ok(()),
    }
}

/// Returns the transaction, and the number of the savepoint of this name.
fn find_savepoint<'t>(
    transaction: &'t mut Option<Transaction>,
    name: &str,
) -> Result<(&'t mut Transaction, usize), SessionError> {
    let transaction = transaction.as_mut().ok_or_else(|| no_savepoint(name))?;
    takes_statements(transaction)?;
    let at = transaction.savepoints.iter().position(|known| is_named(known, name));
    Ok((transaction, at.ok_or_else(|| no_savepoint(name))?))
}

fn is_named(savepoint: &Option<String>, name: &str) -> bool {
    savepoint.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(name))
}

/// Runs a statement in the transaction of SQLite, if that has begun.
fn in_sqlite(
    transaction: &Transaction,
    database: &Database,
    sql: &str,
) -> Result<(), SessionError> {
    let done = transaction.db.with(|db| db.execute_batch(sql));
    done.unwrap_or(Ok(())).map_err(|error| database.error(&error))
}

/// A branch of a distributed transaction ends by its own statements.
fn refuse_in_xa(session: &EngineSession) -> Result<(), SessionError> {
    let xa = session.transaction.as_ref().is_some_and(|transaction| transaction.xa.is_some());
    if xa { Err(wrong_branch_state()) } else { Ok(()) }
}
