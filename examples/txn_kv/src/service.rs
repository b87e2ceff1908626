//! [`KvService`]: the store behind sessions.
//!
//! Reads are answered on the thread that executes the request. Transactions are deferred: the
//! session waits for the flush, and no thread does but the one that leads the flush. A compaction
//! waits for its flushes on the thread that executes it, as an announced stall. Rows are handed
//! over as a [source](epoll_group::session::RowSource), so that a client that reads slowly holds up
//! neither the thread that flushes nor the answers of others.

mod answer;
mod errors;
mod unread;

use std::fmt;

use epoll_group::codec::auth::StoredPassword;
use epoll_group::net::ConnectionId;
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Service, SessionError, SessionId,
};

pub use errors::code;

use crate::statement::Statement;
use crate::store::Store;
use crate::txn::{KeyRange, Op, Txn};
use unread::Unread;

/// Statements over a [`Store`], for one account.
pub struct KvService {
    store: Store,
    user: String,
    password: StoredPassword,
    notes: Vec<(&'static str, String)>,
    unread: Unread,
}

impl KvService {
    /// Serves the store to clients that log in as this user.
    #[must_use]
    pub fn new(store: Store, user: &str, password: &str) -> Self {
        let password = StoredPassword::of(password.as_bytes());
        let unread = Unread::new(store.limits().unread_bytes);
        Self { store, user: user.to_owned(), password, notes: Vec::new(), unread }
    }

    /// One more line of what `status` tells.
    #[must_use]
    pub fn note(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.notes.push((name, value.to_string()));
        self
    }

    fn txn(
        &self,
        txn: Txn,
        connection: ConnectionId,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let unread = self.unread.share(connection);
        let mut operations = txn.then.iter().chain(&txn.otherwise);
        if operations.any(|operation| matches!(operation, Op::Get { .. })) {
            unread.check().map_err(errors::of_store)?;
        }
        let asks = !txn.compares.is_empty();
        let later = reply.defer();
        self.store.txn(txn, move |outcome| {
            later.finish(|reply| {
                answer::txn(reply, outcome.map_err(errors::of_store)?, asks, &unread)
            });
        });
        Ok(())
    }

    fn read(
        &self,
        range: &KeyRange,
        limit: usize,
        at: Option<u64>,
        connection: ConnectionId,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let unread = self.unread.share(connection);
        unread.check().map_err(errors::of_store)?;
        let found = self.store.read(range, at, limit).map_err(errors::of_store)?;
        answer::found(reply, found, &unread)
    }
}

impl Service for KvService {
    type Session = ConnectionId;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        let known = login.user == self.user.as_bytes();
        login.check(known.then_some(&self.password))?;
        Ok(Account::new(&self.user))
    }

    fn open(&self, peer: &Peer, _: SessionId) -> Result<(ConnectionId, Cancel), SessionError> {
        Ok((peer.connection, Cancel::default()))
    }

    fn execute(
        &self,
        connection: &mut ConnectionId,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let Request::Sql(sql) = request else {
            return Err(SessionError::unsupported("only statements are served"));
        };
        match Statement::parse(sql.text, sql.args).map_err(errors::of_statement)? {
            Statement::Txn(txn) => self.txn(txn, *connection, reply)?,
            Statement::Read { range, limit, at } => {
                self.read(&range, limit, at, *connection, reply)?
            }
            Statement::Compact(at) => {
                reply.ending().affected = self.store.compact(at).map_err(errors::of_store)?;
            }
            Statement::Status => answer::status(reply, &self.store, &self.unread, &self.notes)?,
        }
        Ok(())
    }
}

impl fmt::Debug for KvService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvService").field("user", &self.user).finish_non_exhaustive()
    }
}
