//! [`Request`]: the requests that a client sends to a session.

use crate::codec::proto::plan::{AnyPlan, ExecPlan};
use crate::codec::proto::sql::StmtExecute;
use crate::codec::proto::tso::Operation;
use crate::codec::proto::value::{Any, Scalar};

/// Request of a client to a session.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Request<'a> {
    /// A statement in text form, with arguments.
    Sql(Sql<'a>),
    /// An execution plan, with parameters.
    Plan(Plan<'a>),
    /// An action on a savepoint.
    Savepoint(Savepoint<'a>),
}

/// Statement in text form.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Sql<'a> {
    /// Text of the statement, in the character set of the session. It may come from the cache.
    pub text: &'a [u8],
    /// Values for the `?` marks of the text, in order. The engine binds them, so no value can
    /// become syntax.
    pub args: &'a [Any],
    /// Hint that belongs in front of the text; often empty.
    pub hint: &'a [u8],
    /// Database to change to before the statement.
    pub schema: Option<&'a [u8]>,
    /// The whole message, for rarely used fields: timestamps of a distributed transaction, and the
    /// digest under which the client knows the text.
    pub message: &'a StmtExecute,
}

/// Execution plan.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Plan<'a> {
    /// The plan. It may come from the cache.
    pub plan: &'a AnyPlan,
    /// Values for the placeholders of the plan, from 0.
    pub parameters: &'a [Scalar],
    /// Text of the plan for an audit log, sent with the plan.
    pub audit: &'a [u8],
    /// The message, for rarely used fields, and to [resolve](ExecPlan::resolve) placeholders. It
    /// has no plan if the plan came from the cache: see [`plan`](Plan::plan).
    pub message: &'a ExecPlan,
}

/// Action on a savepoint.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Savepoint<'a> {
    /// Action: sets the savepoint, releases (forgets) it, or undoes the changes since it.
    pub action: Operation,
    /// Name of the savepoint.
    pub name: &'a [u8],
}
