//! [`Post`]: what waits in a mailbox.

use std::time::Instant;

use super::error::SessionError;
use super::service::CancelReason;
use crate::codec::message::expect;
use crate::codec::message::plan::ExecPlan;
use crate::codec::message::sql::StmtExecute;
use crate::codec::message::tso::AutoSp;

/// One thing to be done by a session, in order with the others.
#[derive(Debug)]
pub(super) struct Post {
    /// What it takes of the queues' limits.
    pub(super) bytes: usize,
    pub(super) errand: Errand,
    /// When it came.
    pub(super) came: Instant,
    /// It was cancelled before it began.
    pub(super) cancelled: Option<CancelReason>,
}

#[derive(Debug)]
pub(super) enum Errand {
    /// The session is to be opened.
    Open,
    Sql(Box<StmtExecute>),
    Plan(Box<ExecPlan>),
    Savepoint(AutoSp),
    ExpectOpen(expect::Open),
    ExpectClose,
    /// A message beyond the limits of the codec.
    Broken(SessionError),
    /// Transfer of files, which is left out.
    File,
    /// The session is to be closed.
    Close,
}

impl Post {
    /// Of a message that takes so many bytes beyond itself.
    pub(super) const fn new(errand: Errand, memory_bytes: usize, came: Instant) -> Self {
        // The message, and its place in the queue.
        let bytes = memory_bytes + size_of::<Self>() + size_of::<StmtExecute>();
        Self { bytes, errand, came, cancelled: None }
    }

    /// Whether a client may cancel it by itself.
    pub(super) const fn is_request(&self) -> bool {
        matches!(self.errand, Errand::Sql(_) | Errand::Plan(_) | Errand::Savepoint(_))
    }
}
