//! [`Branches`]: prepared branches of distributed transactions.
//!
//! A prepared branch belongs to no session any more. Its session may do something else, or end. Any session
//! of the same account commits the branch or rolls it back. A branch that has changed something keeps its
//! connection and the right to write. SQLite cannot store it, so the end of the server rolls it back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::row::Column;
use epoll_group::session::{Reply, SessionError};

use crate::node::columns::TEXT_COLLATION;
use crate::node::database::Database;
use crate::node::dialect::{Access, Xa, Xid};
use crate::node::engine::Engine;
use crate::node::errors::{
    invalid_branch, known_branch, lost_transaction, outside_of_branch, too_many_branches,
    unknown_branch, unsupported, wrong_branch_state,
};
use crate::node::state::{EngineSession, Transaction, Warning, XaBranch};

/// Prepared branches by their accounts and names.
#[derive(Debug, Default)]
pub struct Branches(Mutex<BTreeMap<(String, Xid), Prepared>>);

#[derive(Debug)]
struct Prepared {
    database: Arc<Database>,
    /// `None` while a session ends the branch.
    transaction: Option<Transaction>,
}

/// Prepared branches of an account. Each may keep a connection.
const MOST: usize = 64;

impl Branches {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, Xid), Prepared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, key: &(String, Xid)) -> bool {
        self.all().contains_key(key)
    }

    /// The number of branches.
    pub fn number(&self) -> usize {
        self.all().len()
    }
}

impl Engine {
    /// Does a step of a branch of a distributed transaction.
    pub fn xa(
        &self,
        session: &mut EngineSession,
        step: &Xa,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match step {
            Xa::Start(xid) => self.start_branch(session, xid),
            Xa::End(xid) => {
                let branch = own_branch(session, xid)?;
                if branch.ended {
                    return Err(wrong_branch_state());
                }
                branch.ended = true;
                Ok(())
            }
            Xa::Prepare(xid) => self.prepare_branch(session, xid, reply),
            Xa::Commit { xid, one_phase: true } => {
                if session.transaction.is_none() && self.branches.has(&key(session, xid)) {
                    return Err(invalid_branch("a prepared branch is not committed in one phase"));
                }
                ended_branch(session, xid)?;
                self.end(session, "commit")
            }
            Xa::Commit { xid, one_phase: false } => self.end_prepared(session, xid, "commit"),
            Xa::RollBack(xid) if session.transaction.is_some() => {
                ended_branch(session, xid)?;
                self.end(session, "rollback")
            }
            Xa::RollBack(xid) => self.end_prepared(session, xid, "rollback"),
            Xa::Recover { in_hex } => self.list_branches(session, *in_hex, reply),
        }
    }

    fn start_branch(&self, session: &mut EngineSession, xid: &Xid) -> Result<(), SessionError> {
        if session.is_of_one_statement() {
            return Err(unsupported("XA START outside of a session"));
        }
        match &session.transaction {
            Some(Transaction { xa: Some(_), .. }) => return Err(wrong_branch_state()),
            Some(_) => return Err(outside_of_branch()),
            None if self.branches.has(&key(session, xid)) => return Err(known_branch()),
            None => self.begin(session, Access::default())?,
        }
        if let Some(transaction) = &mut session.transaction {
            transaction.xa = Some(XaBranch { xid: xid.clone(), ended: false });
        }
        Ok(())
    }

    fn prepare_branch(
        &self,
        session: &mut EngineSession,
        xid: &Xid,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        ended_branch(session, xid)?;
        if session.transaction.as_ref().is_some_and(|transaction| transaction.lost) {
            return Err(lost_transaction());
        }
        let key = key(session, xid);
        {
            // Held until the branch is there: other sessions may prepare branches meanwhile.
            let mut all = self.branches.all();
            if all.contains_key(&key) {
                return Err(known_branch());
            }
            if all.keys().filter(|(user, _)| *user == key.0).count() >= MOST {
                return Err(too_many_branches(MOST));
            }
            let transaction = session.transaction.take();
            if let Some(Transaction { turn: None, db, .. }) = &transaction {
                // It has changed nothing. Its snapshot would keep SQLite's log from being reset.
                drop(db.take());
            }
            all.insert(key, Prepared { database: Arc::clone(&session.database), transaction });
        }
        let text = "the end of the server rolls back what is prepared".to_owned();
        session.warn(reply, Warning { level: Level::Warning, code: 1105, text });
        Ok(())
    }

    /// Ends a prepared branch. If that fails and SQLite has not rolled it back, it stays.
    fn end_prepared(
        &self,
        session: &EngineSession,
        xid: &Xid,
        how: &str,
    ) -> Result<(), SessionError> {
        match &session.transaction {
            Some(Transaction { xa: Some(branch), .. }) if branch.xid != *xid => {
                return Err(unknown_branch());
            }
            Some(Transaction { xa: Some(_), .. }) => return Err(wrong_branch_state()),
            Some(_) => return Err(outside_of_branch()),
            None => {}
        }
        let key = key(session, xid);
        let taken = self.branches.all().get_mut(&key).and_then(|prepared| {
            let transaction = prepared.transaction.take()?;
            Some((transaction, Arc::clone(&prepared.database)))
        });
        let (transaction, database) = taken.ok_or_else(unknown_branch)?;
        let mut ended = Ok(());
        if let Some(mut db) = transaction.db.take() {
            ended = db.execute_batch(how).map_err(|error| database.error(&error));
            if ended.is_err() && !db.is_autocommit() {
                db.go_back_to(&transaction.db);
                drop(db);
                if let Some(prepared) = self.branches.all().get_mut(&key) {
                    prepared.transaction = Some(transaction);
                }
                return ended;
            }
            // First the connection and then the turn: see `Engine::writing`.
        }
        drop(transaction);
        self.branches.all().remove(&key);
        ended
    }

    /// Lists the branches of the session's account.
    fn list_branches(
        &self,
        session: &EngineSession,
        in_hex: bool,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let [format, transaction, branch] =
            ["formatID", "gtrid_length", "bqual_length"].map(Column::signed);
        let data = Column::text("data", TEXT_COLLATION, 128 * 4);
        reply.columns(&[format, transaction, branch, data])?;
        let all = self.branches.all();
        let own = all.keys().filter(|(user, _)| *user == session.user.name);
        let names: Vec<Xid> = own.map(|(_, xid)| xid.clone()).collect();
        drop(all);
        for Xid { transaction, branch, format } in names {
            let data = [&transaction[..], &branch[..]].concat();
            reply.row(|row| {
                row.int(format.into());
                row.int(transaction.len() as i64);
                row.int(branch.len() as i64);
                if in_hex {
                    let digits: String = data.iter().map(|byte| format!("{byte:02X}")).collect();
                    row.text(format!("0x{digits}"));
                } else {
                    row.text(data);
                }
            })?;
        }
        Ok(())
    }
}

fn key(session: &EngineSession, xid: &Xid) -> (String, Xid) {
    (session.user.name.clone(), xid.clone())
}

/// The branch of the session, if that is its name.
fn own_branch<'s>(
    session: &'s mut EngineSession,
    xid: &Xid,
) -> Result<&'s mut XaBranch, SessionError> {
    let branch = session.transaction.as_mut().and_then(|transaction| transaction.xa.as_mut());
    branch.filter(|branch| branch.xid == *xid).ok_or_else(unknown_branch)
}

/// Refuses unless the session is in that branch and has ended its statements.
fn ended_branch(session: &mut EngineSession, xid: &Xid) -> Result<(), SessionError> {
    if own_branch(session, xid)?.ended { Ok(()) } else { Err(wrong_branch_state()) }
}
