//! [`Engine`]: store of the records, in memory or on disk.
//!
//! An engine knows revisions and records, and neither keys nor transactions. The
//! [`Index`](crate::index::Index) tells which record of a key is the newest.

mod disk;
mod memory;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

pub use disk::{Disk, DiskOptions};
pub use memory::Memory;

use crate::record::{Record, Revision};

/// Keeps records by revision.
pub trait Engine: Send + Sync + 'static {
    /// Writes all of the batch, or nothing. When it returns, what it wrote survives a crash and is in
    /// every later snapshot. Called by one thread at a time; waits for the disk as an announced stall.
    ///
    /// # Errors
    ///
    /// The system refused a write. Nothing of the batch is in any later snapshot; after a crash all of
    /// it may be there. The engine can be used again: the next commit may succeed.
    fn commit(&self, batch: &Batch) -> Result<(), EngineError>;

    /// The records at this moment. Later commits do not change what it shows. Cheap; in memory it keeps
    /// commits from beginning, so it is not to be held for long.
    ///
    /// # Errors
    ///
    /// The system refused a read.
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError>;
}

/// The records at one moment.
pub trait Snapshot {
    /// The record of a revision. Waits for the disk as an announced stall.
    ///
    /// # Errors
    ///
    /// The system refused a read, or what it read makes no sense.
    fn get(&self, revision: Revision) -> Result<Option<Arc<Record>>, EngineError>;

    /// Returns the head of the store.
    ///
    /// # Errors
    ///
    /// As of [`get`](Self::get).
    fn head(&self) -> Result<Head, EngineError>;

    /// Shows every record, in the order of revisions.
    ///
    /// # Errors
    ///
    /// As of [`get`](Self::get).
    fn scan(&self, visit: &mut dyn FnMut(Revision, Record)) -> Result<(), EngineError>;
}

/// Records that one commit writes and removes.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// New records, in the order of their revisions.
    pub records: Vec<(Revision, Arc<Record>)>,
    /// Records that are forgotten.
    pub removed: Vec<Revision>,
    /// Head of the store after the commit. Its revision is at least that of the newest record.
    pub head: Head,
}

/// Newest and oldest transaction that a store keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The newest transaction that wrote something; 0 for none.
    pub revision: u64,
    /// Transaction up to which overwritten records need not be kept.
    pub compacted: u64,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {}, compacted up to {}", self.revision, self.compacted)
    }
}

/// An engine could not read or write.
#[derive(Clone, Debug)]
pub struct EngineError {
    action: &'static str,
    source: Arc<dyn Error + Send + Sync>,
}

impl EngineError {
    /// An error of this action, and its cause.
    pub fn new(action: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { action, source: source.into().into() }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.source)
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
