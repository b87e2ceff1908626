//! [`Record`]: what is stored at a [`Revision`].

use std::fmt;
use std::sync::Arc;

/// A key: any bytes, one at least.
pub type Key = Arc<[u8]>;

/// Time of a write: the number of the transaction, from 1, and the place of the write in the
/// transaction, from 0.
///
/// All writes of a transaction share `main`; no two transactions do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// The transaction.
    pub main: u64,
    /// The write in it.
    pub sub: u32,
}

/// One write to one key: a value, or that it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Key,
    /// The transaction that created the key, or created it again after it was deleted; 0 for a
    /// deletion.
    pub created: u64,
    /// Number of writes to the key since it was created, with this one; 0 for a deletion.
    pub version: u64,
    /// The value; `None` for a deletion.
    pub value: Option<Box<[u8]>>,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.main, self.sub)
    }
}

impl Record {
    /// About how much memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |value| value.len()) + size_of::<Self>()
    }
}
