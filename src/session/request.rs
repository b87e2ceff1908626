//! [`Request`]: what a client asks a session to do.

use crate::codec::message::plan::{AnyPlan, ExecPlan};
use crate::codec::message::sql::StmtExecute;
use crate::codec::message::tso::{AutoSp, auto_sp::Operation};
use crate::codec::message::value::{Any, Scalar};

/// What a client asks a session to do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Request<'a> {
    /// A statement in text form, with arguments.
    Sql(Sql<'a>),
    /// An execution plan, with parameters.
    Plan(Plan<'a>),
    /// A savepoint is set, released or gone back to.
    Savepoint(Savepoint<'a>),
}

/// A statement in text form.
#[derive(Clone, Copy, Debug)]
pub struct Sql<'a> {
    pub(super) text: &'a [u8],
    pub(super) message: &'a StmtExecute,
}

impl<'a> Sql<'a> {
    /// The statement, in the character set of the session. May have come from the cache.
    #[must_use]
    pub const fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Values for its `?` marks, in order. The layer does not put them into the text: binding them is
    /// the engine's, so that no value can become syntax.
    #[must_use]
    pub fn args(&self) -> &'a [Any] {
        &self.message.args
    }

    /// A hint that belongs in front of the text; often empty.
    #[must_use]
    pub fn hint(&self) -> &'a [u8] {
        self.message.hint.as_deref().unwrap_or_default()
    }

    /// The database to change to first.
    #[must_use]
    pub fn schema(&self) -> Option<&'a [u8]> {
        self.message.schema_name.as_deref()
    }

    /// The key under which the client knows the text, if it said one.
    #[must_use]
    pub fn digest(&self) -> Option<&'a [u8]> {
        self.message.stmt_digest.as_deref()
    }

    /// When the statement is to read and to commit.
    #[must_use]
    pub fn timestamps(&self) -> Timestamps {
        let message = self.message;
        Timestamps {
            snapshot: message.snapshot_seq,
            commit: message.commit_seq,
            current_snapshot: message.use_cts_transaction(),
        }
    }

    /// The whole message, for what is rare.
    #[must_use]
    pub const fn message(&self) -> &'a StmtExecute {
        self.message
    }
}

/// An execution plan.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub(super) plan: &'a AnyPlan,
    pub(super) audit: &'a [u8],
    pub(super) message: &'a ExecPlan,
}

impl<'a> Plan<'a> {
    /// The plan. May have come from the cache.
    #[must_use]
    pub const fn plan(&self) -> &'a AnyPlan {
        self.plan
    }

    /// Values for its placeholders, from 0.
    #[must_use]
    pub fn parameters(&self) -> &'a [Scalar] {
        &self.message.parameters
    }

    /// The plan as a text for an audit log, which came with it.
    #[must_use]
    pub const fn audit(&self) -> &'a [u8] {
        self.audit
    }

    /// The key under which the client knows the plan, if it said one.
    #[must_use]
    pub fn digest(&self) -> Option<&'a [u8]> {
        self.message.plan_digest.as_deref()
    }

    /// When the plan is to read and to commit.
    #[must_use]
    pub fn timestamps(&self) -> Timestamps {
        let message = self.message;
        Timestamps {
            snapshot: message.snapshot_seq,
            commit: message.commit_seq,
            current_snapshot: message.use_cts_transaction(),
        }
    }

    /// The message, for what is rare, and to [resolve](ExecPlan::resolve) placeholders. Its own plan
    /// may be missing: see [`plan`](Self::plan).
    #[must_use]
    pub const fn message(&self) -> &'a ExecPlan {
        self.message
    }
}

/// Timestamps of a distributed transaction, as the client gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timestamps {
    /// What was committed after it is not seen.
    pub snapshot: Option<u64>,
    /// The time of the commit.
    pub commit: Option<u64>,
    /// Read at the current snapshot.
    pub current_snapshot: bool,
}

/// A savepoint.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint<'a> {
    pub(super) action: SavepointAction,
    pub(super) message: &'a AutoSp,
}

/// What is done to a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavepointAction {
    /// It is set.
    Set,
    /// It is forgotten.
    Release,
    /// What was done since is undone.
    RollBack,
}

impl<'a> Savepoint<'a> {
    pub(super) fn new(message: &'a AutoSp) -> Option<Self> {
        let action = match Operation::try_from(message.op).ok()? {
            Operation::Set => SavepointAction::Set,
            Operation::Release => SavepointAction::Release,
            Operation::Rollback => SavepointAction::RollBack,
        };
        Some(Self { action, message })
    }

    /// What is to be done.
    #[must_use]
    pub const fn action(&self) -> SavepointAction {
        self.action
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        &self.message.sp_name
    }
}
