//! [`Store`]: transactions, reads at a revision, compaction.

use epoll_group::Handle;

use crate::design::Design;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::txn::{Found, KeyRange, Outcome, Txn};

/// How large things may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a key; 1 KiB.
    pub key_bytes: usize,
    /// Bytes of a value; 1 MiB.
    pub value_bytes: usize,
    /// Comparisons and operations of a transaction, together; 128.
    pub operations: usize,
    /// Bytes of transactions that wait to be written; 64 MiB. One that is larger alone still goes.
    pub waiting_bytes: usize,
    /// Bytes that are written with one flush; 4 MiB. One transaction at least.
    pub flush_bytes: usize,
    /// Keys that one read returns; 10 000.
    pub found: usize,
}

/// A multi-version store: every write has a revision, and reads see the state of one.
///
/// *Shape*: cheap to clone, used from any thread.
#[derive(Clone, Debug)]
pub struct Store;

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions that were done, those included that wrote nothing.
    pub transactions: u64,
    /// Batches that were given to the engine: transactions / flushes share one.
    pub flushes: u64,
    /// Flushes that failed.
    pub failed_flushes: u64,
    /// Records that reads found in the index.
    pub indexed: u64,
    /// Records that reads found in the engine: as many, or the promise is broken.
    pub read: u64,
}

impl Store {
    /// Opens what the engine holds and builds the index of it. With a handle, flushes that follow one
    /// another are spread over the workers of its runtime.
    ///
    /// # Errors
    ///
    /// The engine cannot be read, or a compaction that was interrupted cannot be finished.
    pub fn open(
        engine: impl Engine,
        design: Design,
        limits: Limits,
        handle: Option<Handle>,
    ) -> Result<Self, StoreError> {
        let _ = (engine, design, limits, handle);
        todo!()
    }

    /// Does a transaction. `done` is called once, perhaps on another thread and perhaps before this
    /// returns: when what it wrote is durable and visible, or when it failed.
    ///
    /// Waits for rows that other transactions hold, as an announced stall; never for the disk, except
    /// the one transaction that flushes for all.
    pub fn txn(&self, txn: Txn, done: impl FnOnce(Result<Outcome, StoreError>) + Send + 'static) {
        let _ = (txn, done);
        todo!()
    }

    /// Reads keys, at most `limit`, as of a revision; of the newest if there is none given.
    ///
    /// # Errors
    ///
    /// The revision is compacted or in the future, or the engine cannot be read.
    pub fn read(
        &self,
        range: &KeyRange,
        at: Option<u64>,
        limit: usize,
    ) -> Result<Found, StoreError> {
        let _ = (range, at, limit);
        todo!()
    }

    /// Forgets what was overwritten or deleted up to this revision. `done` hears how many records that
    /// were.
    pub fn compact(&self, at: u64, done: impl FnOnce(Result<u64, StoreError>) + Send + 'static) {
        let _ = (at, done);
        todo!()
    }

    /// The newest revision that can be read.
    #[must_use]
    pub fn revision(&self) -> u64 {
        todo!()
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// Compares index and engine, record by record: how many there are, if they agree.
    ///
    /// # Errors
    ///
    /// They do not, or the engine cannot be read.
    pub fn check(&self) -> Result<u64, StoreError> {
        todo!()
    }
}
