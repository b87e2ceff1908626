//! [`Kv`]: a session of the store, with types.
//!
//! ```no_run
//! use epoll_group::Runtime;
//! use epoll_group::client::{Client, Options};
//! use txn_kv::client::Kv;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().start()?;
//! let options = Options::new("127.0.0.1:33670", "root").password("secret");
//! let client = Client::new(&runtime.handle(), options)?;
//!
//! let mut kv = Kv::new(client.session()?);
//! let revision = kv.put(b"answer", b"42")?;
//! let entry = kv.get(b"answer")?.ok_or("it is there")?;
//! assert_eq!(entry.revision.main, revision);
//! # Ok(())
//! # }
//! ```

mod answer;
mod error;

use std::fmt;

use epoll_group::client::{Request, Session};

pub use answer::Reply;
pub use error::KvError;

use crate::statement::{Encoded, Statement};
use crate::txn::{Entry, Found, KeyRange, Txn};

/// A session of the store.
///
/// Each request has a form that waits for its answer. Some have a second form, which calls `code`
/// with the answer while no thread waits; [`Session::execute_then`] tells on which thread. Requests
/// of the second form may follow one another without waiting, and are executed in that order.
pub struct Kv {
    session: Session,
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Revision of the transaction; if it wrote nothing, the revision that it has seen.
    pub revision: u64,
    /// True if the comparisons held.
    pub succeeded: bool,
    /// Number of keys that it wrote and deleted.
    pub affected: u64,
    /// Keys that it found, each with the number of its operation in the branch, from 0.
    pub found: Vec<(usize, Entry)>,
}

impl Kv {
    /// Asks through this session.
    #[must_use]
    pub const fn new(session: Session) -> Self {
        Self { session }
    }

    /// Writes a key. Returns the revision of the write.
    ///
    /// # Errors
    ///
    /// The server refused the request, or no answer came; [`KvError::fate`] tells if it may have
    /// been executed. Likewise for all requests here.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError> {
        self.ask(Encoded::put(key, value), Reply::put)
    }

    /// The same; calls `code`.
    pub fn put_then(
        &mut self,
        key: &[u8],
        value: &[u8],
        code: impl FnOnce(Result<u64, KvError>) + Send + 'static,
    ) {
        self.ask_then(Encoded::put(key, value), Reply::put, code);
    }

    /// Deletes keys. Returns the revision of the deletion and the number of keys. If there were
    /// none, the revision is the newest that the request has seen.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn delete(&mut self, range: &KeyRange) -> Result<(u64, u64), KvError> {
        self.ask(Encoded::delete(range), Reply::delete)
    }

    /// Reads one key, as it is now.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Entry>, KvError> {
        let found = self.read(&KeyRange::One(key.into()), None, usize::MAX)?;
        Ok(found.entries.into_iter().next())
    }

    /// Reads keys, at most `limit` and at most as many as the store returns at once, as of a revision; of
    /// the newest if there is none given.
    ///
    /// The place of a write in its transaction is not known to the client: `sub` of a revision is
    /// 0.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn read(
        &mut self,
        range: &KeyRange,
        at: Option<u64>,
        limit: usize,
    ) -> Result<Found, KvError> {
        self.ask(without_names(Encoded::read(range, limit, at)), Reply::read)
    }

    /// The same; calls `code`. If the answer is larger than 64 KiB, the thread that calls `code`
    /// waits for the rest first.
    pub fn read_then(
        &mut self,
        range: &KeyRange,
        at: Option<u64>,
        limit: usize,
        code: impl FnOnce(Result<Found, KvError>) + Send + 'static,
    ) {
        self.ask_then(without_names(Encoded::read(range, limit, at)), Reply::read, code);
    }

    /// Does a transaction.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn txn(&mut self, txn: &Txn) -> Result<Done, KvError> {
        self.ask(without_names(Encoded::txn(txn)), Reply::txn)
    }

    /// The same; calls `code`, as [`read_then`](Self::read_then) does.
    pub fn txn_then(
        &mut self,
        txn: &Txn,
        code: impl FnOnce(Result<Done, KvError>) + Send + 'static,
    ) {
        self.ask_then(without_names(Encoded::txn(txn)), Reply::txn, code);
    }

    /// Forgets what was overwritten or deleted up to a revision. Returns how many records that were.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn compact(&mut self, at: u64) -> Result<u64, KvError> {
        self.ask(Encoded::compact(at), |reply| Ok(reply.affected()))
    }

    /// Returns names and values of the server's state.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn status(&mut self) -> Result<Vec<(String, String)>, KvError> {
        let answer = self.session.execute(Encoded::from(&Statement::Status))?;
        answer::pairs(answer)
    }

    /// True if the session can be used, see [`Session::is_alive`].
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.session.is_alive()
    }

    fn ask<T>(
        &mut self,
        request: impl Into<Request>,
        read: fn(Reply) -> Result<T, KvError>,
    ) -> Result<T, KvError> {
        let answer = self.session.execute(request)?;
        read(Reply::of(answer)?)
    }

    fn ask_then<T: 'static>(
        &mut self,
        request: impl Into<Request>,
        read: fn(Reply) -> Result<T, KvError>,
        code: impl FnOnce(Result<T, KvError>) + Send + 'static,
    ) {
        self.session.execute_then(request, move |answer| {
            code(answer.map_err(KvError::from).and_then(Reply::of).and_then(read));
        });
    }
}

/// Returns a request whose answer has no names of columns: both sides know them.
fn without_names(encoded: Encoded) -> Request {
    Request::from(encoded).compact()
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("session", &self.session).finish()
    }
}
