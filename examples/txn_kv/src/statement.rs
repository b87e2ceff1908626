//! [`Statement`]: what a request says, as a text with arguments.
//!
//! ```text
//! put KEY VALUE
//! get KEY [limit N] [at REVISION]
//! range FROM [TO] [limit N] [at REVISION]                 without TO: to the last key
//! delete KEY
//! delete range FROM [TO]
//! txn [if COMPARE [and COMPARE]...] then OPS [else OPS]
//! compact REVISION
//! status
//!
//! OPS       nothing, or OP [, OP]...
//! OP        put, get, range, delete as above, without `at`
//! COMPARE   value KEY REL VALUE | version KEY REL N | created KEY REL N | modified KEY REL N
//! REL       = != < >
//! KEY VALUE FROM TO     ?, 'text' (a quote in it is doubled), x'hex'
//! N REVISION            ?, digits
//! ```
//!
//! Words are in any case. Each `?` stands for the next argument of the request: a string or
//! octets for keys and values, an integer for numbers. So no value can become syntax, and the text of a
//! request is the same for all values.

mod encode;
mod error;
mod parser;
#[cfg(test)]
mod tests;
mod tokens;

use epoll_group::codec::proto::value::Any;

pub use encode::Encoded;
pub use error::StatementError;

use crate::txn::{KeyRange, Txn};

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Statement {
    /// A transaction; a single put or delete is one.
    Txn(Txn),
    /// Keys as of a revision; of the newest if there is none given. `usize::MAX` is no limit.
    Read { range: KeyRange, limit: usize, at: Option<u64> },
    /// Forgets what was overwritten up to a revision.
    Compact(u64),
    /// Asks how the store is.
    Status,
}

/// Most comparisons and operations of one text. The limit bounds the memory of a parsed text. The
/// store has a lower limit of its own.
const MOST_OPERATIONS: usize = 4096;

impl Statement {
    /// Reads a text. Copies keys and values once.
    ///
    /// # Errors
    ///
    /// It makes no sense, or its arguments are not those that it needs.
    pub fn parse(text: &[u8], arguments: &[Any]) -> Result<Self, StatementError> {
        parser::parse(text, arguments)
    }
}
