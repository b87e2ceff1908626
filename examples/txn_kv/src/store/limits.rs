//! [`Limits`]: how large things may be.

use crate::error::StoreError;
use crate::txn::{KeyRange, Op, Target, Txn};

/// Limits of requests and queues.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a key; 1 KiB.
    pub key_bytes: usize,
    /// Bytes of a value; 1 MiB.
    pub value_bytes: usize,
    /// Comparisons and operations of a transaction, together; 128.
    pub operations: usize,
    /// Bytes of transactions that wait to be written, with the results of their reads; 64 MiB.
    /// While there are more, the store refuses transactions.
    pub waiting_bytes: usize,
    /// Bytes that are written with one flush, and bytes of the records that it removes; 4 MiB each. One
    /// transaction and one record at least.
    pub flush_bytes: usize,
    /// Keys that one read returns, the rest being left out, or that one transaction deletes; 10 000.
    pub found: usize,
    /// Bytes that one read returns, or all reads of a transaction; 64 MiB.
    pub found_bytes: usize,
    /// Bytes of results that clients of a server have not read yet; 256 MiB. While there are more, the
    /// server refuses reads. While a connection has more than a quarter of the limit, the server refuses
    /// the reads of that connection.
    pub unread_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes: 1 << 10,
            value_bytes: 1 << 20,
            operations: 128,
            waiting_bytes: 64 << 20,
            flush_bytes: 4 << 20,
            found: 10_000,
            found_bytes: 64 << 20,
            unread_bytes: 256 << 20,
        }
    }
}

impl Limits {
    pub(super) fn check(&self, txn: &Txn) -> Result<(), StoreError> {
        let size = txn.compares.len() + txn.then.len() + txn.otherwise.len();
        within("operations of a transaction", size, self.operations)?;
        for compare in &txn.compares {
            self.check_key(&compare.key)?;
            if let Target::Value(value) = &compare.target {
                within("bytes of a value", value.len(), self.value_bytes)?;
            }
        }
        for operation in txn.then.iter().chain(&txn.otherwise) {
            match operation {
                Op::Put { key, value } => {
                    self.check_key(key)?;
                    within("bytes of a value", value.len(), self.value_bytes)?;
                }
                Op::Delete(range) | Op::Get { range, .. } => self.check_range(range)?,
            }
        }
        Ok(())
    }

    /// Adds one more record that a read returns.
    pub(crate) fn count_found(&self, sum: &mut usize, bytes: usize) -> Result<(), StoreError> {
        *sum += bytes;
        within("bytes that are found", *sum, self.found_bytes)
    }

    /// Adds keys that a transaction deletes.
    pub(crate) fn count_deleted(&self, sum: &mut usize, keys: usize) -> Result<(), StoreError> {
        *sum += keys;
        within("keys that are deleted", *sum, self.found)
    }

    fn check_range(&self, range: &KeyRange) -> Result<(), StoreError> {
        match range {
            KeyRange::One(key) => self.check_key(key),
            KeyRange::Span(from, to) => {
                let to = to.as_ref().map_or(0, |to| to.len());
                within("bytes of a key", from.len().max(to), self.key_bytes)
            }
        }
    }

    fn check_key(&self, key: &[u8]) -> Result<(), StoreError> {
        if key.is_empty() {
            return Err(StoreError::EmptyKey);
        }
        within("bytes of a key", key.len(), self.key_bytes)
    }
}

fn within(what: &'static str, size: usize, limit: usize) -> Result<(), StoreError> {
    if size > limit { Err(StoreError::TooLarge { what, size, limit }) } else { Ok(()) }
}
