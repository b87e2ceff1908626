//! [`Workload`]: the kinds of requests of a load.

use std::fmt;

use lab::drive::Until;

use super::question::Shape;

/// Requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Transactions of puts to keys in a row, from a random one on.
    Put {
        /// Puts of each transaction.
        operations: u64,
    },
    /// Reads of a random key.
    Get,
    /// Reads of keys in a row, from a random one on.
    Range {
        /// Keys of each read.
        limit: u64,
    },
    /// Reads and puts of one key each.
    Mixed {
        /// Reads among 100 requests, on average.
        reads_per_100: u64,
    },
    /// One put to every key, so that reads find it.
    Fill {
        /// Puts of each transaction.
        operations: u64,
    },
}

/// Size of a transaction of a fill.
const FILL_BYTES: u64 = 64 * 1024;
const FILL_OPERATIONS: u64 = 100;

impl Workload {
    /// Returns the fill for this shape, and its end.
    pub(super) fn fill(shape: &Shape) -> (Self, Until) {
        let each = (shape.keys.bytes() + shape.value_bytes) as u64;
        let operations = (FILL_BYTES / each).clamp(1, FILL_OPERATIONS);
        let requests = shape.keys.count().div_ceil(operations);
        (Self::Fill { operations }, Until::Requests(requests))
    }

    /// True if its requests read keys, which a fill writes.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Put { .. } | Self::Fill { .. })
    }

    /// # Errors
    ///
    /// The load does not fit this shape.
    pub(super) fn check(self, shape: &Shape) -> Result<(), String> {
        match self {
            // No two operations of a transaction write the same key.
            Self::Put { operations } if operations > shape.keys.count() => {
                Err(format!("{operations} puts of a transaction to {} keys", shape.keys.count()))
            }
            Self::Put { operations: 0 } | Self::Range { limit: 0 } => {
                Err("requests for no key".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Put { .. } => "txn-put",
            Self::Get => "get",
            Self::Range { .. } => "range",
            Self::Mixed { .. } => "mixed",
            Self::Fill { .. } => "fill",
        })
    }
}
