//! Which data node a statement is for.
//!
//! ```text
//!   text ──▶ cache.rs ──▶ read.rs   tokens, what is not for a proxy, the kind of statement
//!                           ├──▶ tables.rs    select, insert, update, delete of a sharded table
//!                           │       └─▶ keys.rs   which ids its rows have
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
mod tables;
#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use keys::Ids;
pub use plans::of_plan;
pub use session::changes_reading;

use std::collections::BTreeMap;

use epoll_group::session::SavepointAction;

/// The tables that are spread over the data nodes, by the column that says where a row is.
///
/// A row whose column is `n` is on node `n mod nodes`.
#[derive(Clone, Debug)]
pub struct Catalogue {
    pub schema: String,
    /// Table and column, in lower case.
    pub sharded: BTreeMap<String, String>,
}

/// A statement, as far as the proxy has to know it.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Any node can answer it.
    Anywhere,
    /// Rows of a sharded table.
    Rows(Rows),
    /// Every node has to do it: a definition of a table.
    Everywhere,
    /// The session of the client is enough, or its state changes.
    Own(Own),
}

/// A statement about the client's session.
#[derive(Clone, Debug, PartialEq)]
pub enum Own {
    /// The proxy knows the answer.
    Told(Vec<Told>),
    /// `show warnings`.
    Warnings,
    Begin,
    Commit,
    Rollback,
    Savepoint(String, SavepointAction),
    Autocommit(bool),
    /// It changes nothing that a data node has to know.
    Nothing,
    /// For the next transaction alone.
    NextTransaction,
    /// It changes these variables of the session.
    Set(Vec<String>),
}

/// A statement about rows of a sharded table.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub table: String,
    /// `None`: of any id.
    pub ids: Option<Ids>,
    pub effect: Effect,
    /// How the answers of several nodes become one; empty if they do not.
    pub merge: Vec<Merge>,
}

/// Effect of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It can be done twice.
    Read,
    /// It must not.
    Write,
}

/// How one column of a merged result comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Counts and sums are added; NULL is nothing.
    Sum,
    Min,
    Max,
}

/// Something about the session that the proxy tells itself: the label of a column, and what it says.
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
