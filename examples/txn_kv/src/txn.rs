//! [`Txn`]: operations that are done all or not at all, and their [`Outcome`].

use std::sync::Arc;

use crate::record::{Key, Record, Revision};

/// A transaction: if all comparisons hold, one list of operations is done, else the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Comparisons that decide between the branches.
    pub compares: Vec<Compare>,
    /// Operations in order if all comparisons hold. No two of them write the same key.
    pub then: Vec<Op>,
    /// Operations in order if one comparison does not hold.
    pub otherwise: Vec<Op>,
}

/// A condition on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: Key,
    /// Relation of the key's own value to `target`.
    pub relation: Relation,
    /// Property of the key, and the value that it is compared with.
    pub target: Target,
}

/// Relation between two values, with the key's own to the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    Greater,
}

/// Property of a key and the value to compare it with. Of a key that is not there all numbers are
/// 0, and comparisons of its value do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Its value.
    Value(Box<[u8]>),
    /// Number of writes since it was created.
    Version(u64),
    /// The transaction that created it.
    Created(u64),
    /// The transaction that wrote it last.
    Modified(u64),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Op {
    Put { key: Key, value: Box<[u8]> },
    Delete(KeyRange),
    Get { range: KeyRange, limit: usize },
}

/// One key, or a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRange {
    /// This one.
    One(Key),
    /// From the first on, up to and without the second; without end if there is none.
    Span(Key, Option<Key>),
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Revision of the transaction; if it wrote nothing, the revision that it has seen.
    pub revision: u64,
    /// True if the comparisons held.
    pub succeeded: bool,
    /// Result of each operation of the branch.
    pub results: Vec<OpResult>,
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// It wrote one key.
    Put,
    /// It deleted so many keys.
    Deleted(u64),
    /// It found these.
    Found(Vec<Entry>),
}

/// A key that was found, at the revision of its last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was written.
    pub revision: Revision,
    /// The record; never a deletion.
    pub record: Arc<Record>,
}

/// Keys that were found by a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The transaction up to which the read has seen all, and nothing later.
    pub revision: u64,
    /// In the order of keys.
    pub entries: Vec<Entry>,
}

impl Txn {
    /// True if one of the branches has a put or a deletion.
    pub(crate) fn writes(&self) -> bool {
        let mut operations = self.then.iter().chain(&self.otherwise);
        operations.any(|operation| !matches!(operation, Op::Get { .. }))
    }
}

impl Op {
    /// The one key that it touches; none if it has a range of them.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put { key, .. } | Self::Delete(KeyRange::One(key)) => Some(key),
            Self::Get { range: KeyRange::One(key), .. } => Some(key),
            Self::Delete(KeyRange::Span(..)) | Self::Get { .. } => None,
        }
    }
}

impl KeyRange {
    /// True if the range has this key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => **one == *key,
            Self::Span(from, to) => **from <= *key && to.as_ref().is_none_or(|to| *key < **to),
        }
    }
}

impl Relation {
    /// True if the relation holds.
    #[must_use]
    pub fn holds<T: Ord + ?Sized>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::Greater => left > right,
        }
    }
}
