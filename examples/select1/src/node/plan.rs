//! Execution plans on SQLite: what a client asks for without a word of SQL.
//!
//! ```text
//!  PROJECT       stages.rs   nodes above the table, row by row
//!  FILTER        expr.rs     expressions: typed once, computed as in MySQL
//!  AGGR          aggregate.rs
//!     │
//!  TABLE_PROJECT shape.rs    bottom of the plan without its values: key of the cache below
//!  GET           access.rs   prepared statements and the columns of their results
//!  TABLE_SCAN    catalogue.rs  read only for a new shape
//!  RANGE_SCAN    keys.rs     bounds of keys
//! ```
//!
//! Names in a plan are looked up in the catalogue and quoted, values are bound: no text of the client
//! gets into a statement.

mod access;
mod aggregate;
mod catalogue;
mod eval;
mod exact;
mod expr;
mod infer;
mod keys;
mod shape;
mod stages;
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::fmt;

use epoll_group::codec::message::{Node, PlanError};
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan};
use epoll_group::session::SessionError;

use crate::node::pool::Lent;

pub use access::Cache;
use shape::Asked;
pub use stages::PlanRows;
pub(super) use value::leading_number;

/// Plan, read as far as possible without a table.
#[derive(Debug)]
pub struct PlanRequest<'a> {
    message: &'a ExecPlan,
    /// Nodes above the table, from the top down.
    above: Vec<Node<'a>>,
    asked: Asked<'a>,
}

impl<'a> PlanRequest<'a> {
    /// Reads `plan`, whose parameters stand in `message`, which may lack the plan itself.
    ///
    /// # Errors
    ///
    /// 8001 with a text that says which node could not do what.
    pub fn read(message: &'a ExecPlan, plan: &'a AnyPlan) -> Result<Self, SessionError> {
        let mut above = Vec::new();
        let mut at = plan;
        let base = loop {
            let node = at.node().map_err(malformed)?;
            let Some(input) = node.input() else { break node };
            above.push(node);
            at = input;
        };
        let wanted = match above.last() {
            Some(&Node::TableProject(project)) => {
                above.pop();
                Some(project)
            }
            _ => None,
        };
        let asked = Asked::of(message, base, wanted)?;
        Ok(Self { message, above, asked })
    }

    /// Name of the database, empty if the plan names none.
    pub fn schema(&self) -> &'a str {
        self.asked.schema()
    }

    /// Runs the plan.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read); interrupted, if it was. The rows may have the same errors.
    pub fn run(&self, db: Lent) -> Result<PlanRows, SessionError> {
        let (access, cursor) = access::open(db, &self.asked)?;
        PlanRows::new(self.message, access, cursor, &self.above)
    }
}

/// Returns the error for a plan that cannot be run.
fn refuse(text: impl fmt::Display) -> SessionError {
    SessionError::unsupported(format!("Executor error: {text}"))
}

fn malformed(error: PlanError) -> SessionError {
    refuse(error)
}

/// Returns SQLite's error for the client.
fn sqlite(error: rusqlite::Error) -> SessionError {
    match error {
        rusqlite::Error::SqliteFailure(code, text) => {
            if code.code == rusqlite::ErrorCode::OperationInterrupted {
                return SessionError::interrupted();
            }
            refuse(text.unwrap_or_else(|| code.to_string()))
        }
        // The whole text of this error would quote the statement.
        rusqlite::Error::SqlInputError { msg, .. } => refuse(msg),
        other => refuse(other),
    }
}
