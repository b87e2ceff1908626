//! [`StoreError`]: reasons why the store refused or failed a request.

use std::error::Error;
use std::fmt;

use crate::engine::EngineError;
use crate::record::Revision;

/// Reason why the store refused or failed a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The request: a part of it exceeds its limit.
    TooLarge {
        /// Name of the part.
        what: &'static str,
        /// Size of the part: bytes, or a number of operations.
        size: usize,
        /// Largest size.
        limit: usize,
    },
    /// The request: a key without bytes.
    EmptyKey,
    /// The request: two operations of one transaction write the same key.
    WrittenTwice {
        /// The key.
        key: Vec<u8>,
    },
    /// The request: revisions before this one were compacted.
    Compacted {
        /// Revision of the request.
        asked: u64,
        /// The first that can be read.
        compacted: u64,
    },
    /// The request: there is no such revision yet.
    Future {
        /// Revision of the request.
        asked: u64,
        /// The newest.
        newest: u64,
    },
    /// A limit of the server: too much waits to be written, or to be read by clients.
    Busy {
        /// Name of what waits.
        what: &'static str,
        /// Bytes that wait.
        bytes: usize,
        /// Bytes that may wait.
        limit: usize,
    },
    /// The engine could not write. The transaction is not visible; after a crash of the server it may be.
    Write(EngineError),
    /// The engine could not read.
    Read(EngineError),
    /// The index names a revision that the engine does not have: a bug, or a damaged file.
    Lost(Revision),
    /// The engine has a revision that the index does not name: a bug.
    Unknown(Revision),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { what, size, limit } => write!(f, "{what}: {size} exceeds {limit}"),
            Self::EmptyKey => f.write_str("a key has one byte at least"),
            Self::WrittenTwice { key } => {
                write!(f, "key {} is written twice in one transaction", key.escape_ascii())
            }
            Self::Compacted { asked, compacted } => {
                write!(f, "revision {asked}: what comes before {compacted} was compacted")
            }
            Self::Future { asked, newest } => {
                write!(f, "revision {asked} is in the future: the newest is {newest}")
            }
            Self::Busy { what, bytes, limit } => write!(f, "{what}: {bytes} exceed {limit}"),
            Self::Write(error) => write!(f, "not written: {error}"),
            Self::Read(error) => write!(f, "not read: {error}"),
            Self::Lost(revision) => write!(f, "revision {revision} has no data"),
            Self::Unknown(revision) => write!(f, "revision {revision} is not in the index"),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Write(error) | Self::Read(error) => Some(error),
            _ => None,
        }
    }
}
