//! [`Request`]: the requests that a client sends to a session.

use crate::codec::proto::plan::{AnyPlan, ExecPlan};
use crate::codec::proto::sql::StmtExecute;
use crate::codec::proto::tso::AutoSp;
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
pub struct Sql<'a> {
    pub(super) text: &'a [u8],
    pub(super) message: &'a StmtExecute,
}

impl<'a> Sql<'a> {
    /// Text of the statement, in the character set of the session. It may come from the cache.
    #[must_use]
    pub const fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Values for the `?` marks of the text, in order. The engine binds them, so no value can
    /// become syntax.
    #[must_use]
    pub fn args(&self) -> &'a [Any] {
        &self.message.args
    }

    /// Hint that belongs in front of the text; often empty.
    #[must_use]
    pub fn hint(&self) -> &'a [u8] {
        self.message.hint.as_deref().unwrap_or_default()
    }

    /// Database to change to before the statement.
    #[must_use]
    pub fn schema(&self) -> Option<&'a [u8]> {
        self.message.schema_name.as_deref()
    }

    /// Key under which the client knows the text.
    #[must_use]
    pub fn digest(&self) -> Option<&'a [u8]> {
        self.message.stmt_digest.as_deref()
    }

    /// Timestamps at which the statement reads and commits.
    #[must_use]
    pub fn timestamps(&self) -> Timestamps {
        let message = self.message;
        Timestamps {
            snapshot: message.snapshot_seq,
            commit: message.commit_seq,
            current_snapshot: message.use_cts_transaction.unwrap_or_default(),
        }
    }

    /// The whole message, for rarely used fields.
    #[must_use]
    pub const fn message(&self) -> &'a StmtExecute {
        self.message
    }
}

/// Execution plan.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub(super) plan: &'a AnyPlan,
    pub(super) audit: &'a [u8],
    pub(super) message: &'a ExecPlan,
}

impl<'a> Plan<'a> {
    /// The plan. It may come from the cache.
    #[must_use]
    pub const fn plan(&self) -> &'a AnyPlan {
        self.plan
    }

    /// Values for the placeholders of the plan, from 0.
    #[must_use]
    pub fn parameters(&self) -> &'a [Scalar] {
        &self.message.parameters
    }

    /// Text of the plan for an audit log, sent with the plan.
    #[must_use]
    pub const fn audit(&self) -> &'a [u8] {
        self.audit
    }

    /// Key under which the client knows the plan.
    #[must_use]
    pub fn digest(&self) -> Option<&'a [u8]> {
        self.message.plan_digest.as_deref()
    }

    /// Timestamps at which the plan reads and commits.
    #[must_use]
    pub fn timestamps(&self) -> Timestamps {
        let message = self.message;
        Timestamps {
            snapshot: message.snapshot_seq,
            commit: message.commit_seq,
            current_snapshot: message.use_cts_transaction.unwrap_or_default(),
        }
    }

    /// The message, for rarely used fields, and to [resolve](ExecPlan::resolve) placeholders. It
    /// has no plan if the plan came from the cache: see [`plan`](Self::plan).
    #[must_use]
    pub const fn message(&self) -> &'a ExecPlan {
        self.message
    }
}

/// Timestamps of a distributed transaction, set by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timestamps {
    /// Snapshot to read at: later commits are not visible.
    pub snapshot: Option<u64>,
    /// Timestamp of the commit.
    pub commit: Option<u64>,
    /// Set if the statement reads at the current snapshot.
    pub current_snapshot: bool,
}

/// Action on a savepoint.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint<'a> {
    pub(super) action: SavepointAction,
    pub(super) message: &'a AutoSp,
}

/// Kind of an action on a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavepointAction {
    /// Sets the savepoint.
    Set,
    /// Forgets the savepoint.
    Release,
    /// Undoes the changes since the savepoint.
    RollBack,
}

impl<'a> Savepoint<'a> {
    pub(super) const fn new(message: &'a AutoSp) -> Self {
        let action = match message.op {
            Operation::Set => SavepointAction::Set,
            Operation::Release => SavepointAction::Release,
            Operation::Rollback => SavepointAction::RollBack,
        };
        Self { action, message }
    }

    /// The action.
    #[must_use]
    pub const fn action(&self) -> SavepointAction {
        self.action
    }

    /// Name of the savepoint.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        &self.message.sp_name
    }
}
