//! [`Workload`]: which requests a load consists of.

use std::fmt;
use std::time::Duration;

use super::question::Shape;

/// Which requests a load consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Transactions of so many puts, to keys in a row from a drawn one on.
    Put {
        /// Puts of each.
        operations: u64,
    },
    /// Reads of a drawn key.
    Get,
    /// Reads of keys in a row from a drawn one on.
    Range {
        /// How many of each.
        limit: u64,
    },
    /// Some of both, of one key each.
    Mixed {
        /// How many of 100 requests are reads, on average.
        reads_per_100: u64,
    },
    /// Puts every key once, so that reads find it.
    Fill {
        /// Puts of each transaction.
        operations: u64,
    },
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many requests.
    Requests(u64),
    /// When this has passed. The last requests are waited for.
    Time(Duration),
}

/// A transaction of a fill is about so large.
const FILL_BYTES: u64 = 64 * 1024;
const FILL_OPERATIONS: u64 = 100;

impl Workload {
    /// The fill for this shape, and its end.
    pub(super) fn fill(shape: &Shape) -> (Self, Until) {
        let each = (shape.keys.bytes() + shape.value_bytes) as u64;
        let operations = (FILL_BYTES / each).clamp(1, FILL_OPERATIONS);
        let requests = shape.keys.count().div_ceil(operations);
        (Self::Fill { operations }, Until::Requests(requests))
    }

    /// Whether it reads keys, which have to be there.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Put { .. } | Self::Fill { .. })
    }

    /// # Errors
    ///
    /// It makes no sense for this shape.
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
