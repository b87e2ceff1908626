//! Which data node a statement is for.
//!
//! ```text
//!   text ──▶ cache.rs ──▶ read.rs   tokens, what is not for a proxy, the kind of statement
//!                           ├──▶ tables.rs    select, insert, update, delete of a sharded table
//!                           │       ├─▶ keys.rs   which ids its rows have
//!                           │       └─▶ spread.rs   a select over several nodes
//!                           └──▶ session.rs   set, transactions, show
//!   plan ─────────────────────▶ plans.rs
//! ```
//!
//! A statement is parsed once and kept by its text. Only then its arguments are looked at: a
//! [`Statement`] with its [`Ids`] gives the node. What is not understood is refused, so that no
//! statement reaches a node on which it would see a part of what it asks for.
#![forbid(unsafe_code)]

mod cache;
mod keys;
mod plans;
mod read;
mod session;
mod spread;
mod tables;
#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use keys::Ids;
use keys::Scalars;
pub use plans::of_plan;
pub use session::check_mode;

use std::collections::BTreeMap;
use std::sync::Arc;

use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::{Any, Scalar};
use epoll_group::session::SessionError;

use crate::refuse::wrong_arguments;

/// The tables that the proxy knows.
#[derive(Clone, Debug)]
pub struct Catalogue {
    pub schema: String,
    /// By names in lower case.
    pub tables: BTreeMap<String, Home>,
    /// All data nodes order texts by their bytes.
    pub texts_by_bytes: bool,
}

/// Where the rows of a table are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// A row whose column of this name, in lower case, is `n` is on node `n mod nodes`.
    Sharded(String),
    /// All rows are on this node.
    Node(usize),
    /// All nodes have all rows. The proxy only reads them.
    Copies,
}

/// A statement, as far as the proxy has to know it.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// One node does it; `None`: any.
    At(Option<usize>, Effect),
    /// Rows of a sharded table.
    Rows(Rows),
    /// A definition of a table, on this node; `None`: on every node.
    Define(Option<usize>),
    /// A statement that the proxy answers itself, or that is about the state of the client's
    /// session.
    Own(Own),
}

/// A statement about the client's session.
#[derive(Clone, Debug, PartialEq)]
pub enum Own {
    /// The proxy knows the answer.
    Told(Vec<Told>),
    /// `show warnings` and `show errors`: those from this level on.
    Warnings(Level),
    Begin,
    Commit,
    Rollback,
    Savepoint(String, Operation),
    Autocommit(bool),
    /// It changes nothing that a data node has to know.
    Nothing,
    /// A setting of the next transaction alone.
    NextTransaction,
    /// It changes these variables of the session. `mode` is the number of the argument that gives
    /// `sql_mode` its value. If `is_default`, each session of a data node begins with these values.
    /// `is_utf8` says whether results are in UTF-8 from now on, if it changes that.
    Set {
        names: Vec<String>,
        mode: Option<usize>,
        is_default: bool,
        is_utf8: Option<bool>,
    },
}

/// A statement about rows of a sharded table.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub table: String,
    /// `None`: of any id.
    pub ids: Option<Ids>,
    pub effect: Effect,
    /// Rule by which the answers of several nodes become one, or the reason why they cannot.
    pub merge: Result<Arc<Merge>, String>,
}

/// Effect of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It can be done twice.
    Read,
    /// It must not be done twice.
    Write,
}

/// Rule by which the answers of several nodes to a select become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// Text for the nodes, without LIMIT.
    pub text: String,
    /// Number of columns at the end of each row that the client does not see.
    pub hidden: usize,
    /// Order in which each node sends its rows.
    pub order: Vec<Key>,
    /// Rule for rows with equal keys, for each column that the client sees. `None`: rows stay
    /// as they are.
    pub combine: Option<Vec<Combine>>,
    pub limit: Option<Limit>,
    /// Texts are ordered by their bytes. Otherwise their order is unknown.
    pub texts_by_bytes: bool,
}

/// A column that rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub column: Place,
    pub is_descending: bool,
}

/// A column of the nodes' rows. The number of columns behind a `*` is known with the answer only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// From 0.
    FromStart(usize),
    /// The last one is 1.
    FromEnd(usize),
}

/// Rule for one column of the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// All rows of the group have the same value.
    Key,
    /// Counts and sums are added; NULL is nothing.
    Sum,
    Least,
    Greatest,
    /// The quotient of the sums of these columns.
    Average {
        sum: Place,
        count: Place,
    },
}

/// LIMIT of a select: rows that the client wants, and rows before them that it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub rows: Amount,
    pub skip: Amount,
}

/// Rows of a merged result that the client gets: `rows` of them, behind the first `skip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRange {
    pub skip: u64,
    pub rows: u64,
}

/// A number in the text, or the argument at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Number(u64),
    Argument(usize),
}

/// A fact about the session that the proxy tells without a data node, and the label of its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub label: String,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    ConnectionId,
    LastInsertId,
    RowCount,
    /// 1 if statements commit by themselves, else 0.
    Autocommit,
    Database,
    User,
}

impl Merge {
    /// The rows that the client wants.
    pub fn range<S: Scalars + ?Sized>(&self, arguments: &S) -> Result<RowRange, SessionError> {
        let Some(Limit { rows, skip }) = self.limit else {
            return Ok(RowRange { skip: 0, rows: u64::MAX });
        };
        Ok(RowRange { skip: skip.number(arguments)?, rows: rows.number(arguments)? })
    }

    /// The text for the nodes. Each may have all the rows before the end of the range.
    pub fn text_for_nodes(&self, range: RowRange) -> String {
        match self.limit {
            None => self.text.clone(),
            Some(limit) if limit.marks() > 0 => format!("{} limit ?", self.text),
            Some(_) => format!("{} limit {}", self.text, range.end()),
        }
    }

    /// Replaces the arguments of LIMIT, which are the last ones, by that of the text for the nodes.
    pub fn limit_arguments(&self, range: RowRange, arguments: &mut Vec<Any>) {
        let marks = self.limit.map_or(0, Limit::marks);
        if marks > 0 {
            arguments.truncate(arguments.len().saturating_sub(marks));
            arguments.push(Any::from(Scalar::unsigned(range.end())));
        }
    }
}

impl RowRange {
    /// Number of rows before the end of the range, at most `i64::MAX`. Data nodes take no greater
    /// number.
    const fn end(self) -> u64 {
        let end = self.skip.saturating_add(self.rows);
        if end > i64::MAX as u64 { i64::MAX as u64 } else { end }
    }
}

impl Limit {
    fn marks(self) -> usize {
        let is_mark = |amount: &Amount| matches!(amount, Amount::Argument(_));
        [self.rows, self.skip].iter().filter(|amount| is_mark(amount)).count()
    }
}

impl Amount {
    fn number<S: Scalars + ?Sized>(self, arguments: &S) -> Result<u64, SessionError> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Argument(at) => {
                let number = keys::number_of(arguments.scalar(at)?).ok().flatten();
                let number = number.and_then(|number| u64::try_from(number).ok());
                number.ok_or_else(|| wrong_arguments("that of LIMIT is no number from 0 on"))
            }
        }
    }
}
