//! [`Queued`]: a command in the mailbox of a session.

use std::time::Instant;

use super::accounts::Place;
use super::error::{CancelReason, SessionError};
use crate::codec::proto::expect;
use crate::codec::proto::plan::ExecPlan;
use crate::codec::proto::sql::StmtExecute;
use crate::codec::proto::tso::AutoSp;

/// Command that a session executes in order with its others.
#[derive(Debug)]
pub(super) struct Queued {
    /// Bytes that count against the limits of queued requests.
    pub(super) bytes: usize,
    pub(super) command: SessionCommand,
    /// Time of arrival.
    pub(super) arrived: Instant,
    /// Set when the request was cancelled before it began.
    pub(super) cancelled: Option<CancelReason>,
    /// Its place among the requests of its account.
    pub(super) place: Option<Place>,
}

#[derive(Debug)]
pub(super) enum SessionCommand {
    Open,
    Sql(Box<StmtExecute>),
    Plan(Box<ExecPlan>),
    Savepoint(AutoSp),
    ExpectOpen(expect::Open),
    ExpectClose,
    /// Message beyond the limits of the codec.
    Broken(SessionError),
    /// Transfer of files, which is not supported.
    File,
    Close,
}

impl Queued {
    /// `memory_bytes`: memory of the message beside its own size.
    pub(super) const fn new(
        command: SessionCommand,
        memory_bytes: usize,
        arrived: Instant,
    ) -> Self {
        let bytes = memory_bytes + size_of::<Self>() + size_of::<StmtExecute>();
        Self { bytes, command, arrived, cancelled: None, place: None }
    }

    /// Returns true for a statement, plan or savepoint. A client may cancel these, and they have a
    /// deadline.
    pub(super) const fn is_request(&self) -> bool {
        matches!(
            self.command,
            SessionCommand::Sql(_) | SessionCommand::Plan(_) | SessionCommand::Savepoint(_)
        )
    }
}
