//! [`Branches`]: prepared branches of distributed transactions.
//!
//! A branch that is prepared belongs to no session any more: its own goes on with other work, or ends,
//! and any session of its account may commit it or roll it back. It keeps its connection and, if it has
//! changed something, the right to write. SQLite cannot store it, so the end of the server rolls it back.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::row::Column;
use epoll_group::session::{Reply, SessionError};

use crate::node::columns::TEXT_COLLATION;
use crate::node::dialect::{Access, Xa, Xid};
use crate::node::engine::Engine;
use crate::node::errors::{
    invalid_branch, known_branch, outside_of_branch, too_many_branches, unknown_branch,
    wrong_branch_state,
};
use crate::node::state::{EngineSession, Transaction, Warning, XaBranch};

/// Prepared branches by their names.
#[derive(Debug, Default)]
pub struct Branches(Mutex<BTreeMap<Xid, Transaction>>);

/// Prepared branches that may wait for their end. Each may keep a connection.
const MOST: usize = 64;

impl Branches {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Xid, Transaction>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, xid: &Xid) -> bool {
        self.all().contains_key(xid)
    }

    fn add(&self, xid: &Xid, transaction: Transaction) {
        self.all().insert(xid.clone(), transaction);
    }

    fn take(&self, xid: &Xid) -> Option<Transaction> {
        self.all().remove(xid)
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
                if session.transaction.is_none() && self.branches.has(xid) {
                    return Err(invalid_branch());
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
            Xa::Recover { in_hex } => self.list_branches(*in_hex, reply),
        }
    }

    fn start_branch(&self, session: &mut EngineSession, xid: &Xid) -> Result<(), SessionError> {
        match &session.transaction {
            Some(Transaction { xa: Some(_), .. }) => return Err(wrong_branch_state()),
            Some(_) => return Err(outside_of_branch()),
            None if self.branches.has(xid) => return Err(known_branch()),
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
        self.begin_if_needed(session)?;
        // One lock for both looks and the insertion: another session may prepare one, too.
        let mut all = self.branches.all();
        if all.contains_key(xid) {
            return Err(known_branch());
        }
        if all.len() >= MOST {
            return Err(too_many_branches(MOST));
        }
        all.extend(session.transaction.take().map(|transaction| (xid.clone(), transaction)));
        drop(all);
        let text = "the end of the server rolls back what is prepared".to_owned();
        session.warn(reply, Warning { level: Level::Warning, code: 1105, text });
        Ok(())
    }

    /// Ends a prepared branch. If that fails and the branch is still whole, it stays.
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
        let transaction = self.branches.take(xid).ok_or_else(unknown_branch)?;
        let Some(db) = transaction.db.take() else { return Ok(()) };
        let ended = db.execute_batch(how).map_err(|error| session.sqlite(&error));
        if ended.is_err() && !db.is_autocommit() {
            let mut db = db;
            db.go_back_to(&transaction.db);
            drop(db);
            self.branches.add(xid, transaction);
            return ended;
        }
        // First the connection and then the turn: see `Engine::writing`.
        drop(db);
        drop(transaction);
        ended
    }

    fn list_branches(&self, in_hex: bool, reply: &mut Reply<'_>) -> Result<(), SessionError> {
        let [format, transaction, branch] =
            ["formatID", "gtrid_length", "bqual_length"].map(Column::signed);
        let data = Column::text("data", TEXT_COLLATION, 128 * 4);
        reply.columns(&[format, transaction, branch, data])?;
        let names: Vec<_> = self.branches.all().keys().cloned().collect();
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
