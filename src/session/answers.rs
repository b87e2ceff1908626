//! The errors that the layer itself answers with, under the numbers and texts that clients know.

use super::error::SessionError;
use super::service::CancelReason;
use crate::codec::encoder::{Encoder, Severity};
use crate::codec::reply::{GENERAL_STATE, INTERRUPTED_STATE, code};
use crate::stats::Counter;

impl SessionError {
    pub(super) const fn is_fatal(&self) -> bool {
        matches!(self.severity(), Severity::Fatal)
    }

    pub(super) const fn is_interrupted(&self) -> bool {
        self.code() == code::INTERRUPTED
    }

    /// The same, but the session dies of it.
    pub(super) fn into_fatal(self) -> Self {
        Self::fatal(self.code(), self.state(), self.message())
    }

    /// The same, with as much of the text as a client gets to see: to be kept.
    pub(super) fn shortened(self) -> Self {
        if self.message().len() <= LONGEST_TEXT {
            return self;
        }
        let short = &self.message()[..LONGEST_TEXT];
        match self.severity() {
            Severity::Error => Self::new(self.code(), self.state(), short),
            Severity::Fatal => Self::fatal(self.code(), self.state(), short),
        }
    }

    /// There is no such session, or not any more.
    pub(super) fn not_found() -> Self {
        Self::fatal(code::SERVER, GENERAL_STATE, "Session not found.")
    }

    /// The client has killed it.
    pub(super) fn killed() -> Self {
        Self::fatal(code::SERVER, INTERRUPTED_STATE, "Session is killing.")
    }

    /// Its handler panicked.
    pub(super) fn panicked() -> Self {
        Self::fatal(code::SERVER, GENERAL_STATE, "Session unexpected killed.")
    }

    /// The server shuts down.
    pub(super) fn shutdown() -> Self {
        Self::fatal(code::SHUTDOWN, GENERAL_STATE, "server shutdown")
    }

    /// Nothing is kept under the digest.
    pub(super) fn cache_miss(text: &str) -> Self {
        Self::new(code::CACHE_MISS, GENERAL_STATE, text)
    }

    /// A request that was cancelled.
    pub(super) fn cancelled(reason: CancelReason) -> Self {
        match reason {
            CancelReason::Query => Self::interrupted(),
            CancelReason::Deadline => Self::new(
                TIMED_OUT,
                GENERAL_STATE,
                "Query execution was interrupted, maximum statement execution time exceeded",
            ),
            CancelReason::Session | CancelReason::Connection => Self::killed(),
        }
    }
}

/// MySQL's number for a statement that took too long.
const TIMED_OUT: u32 = 3024;

impl CancelReason {
    pub(super) const fn counter(self) -> Option<Counter> {
        match self {
            Self::Query => Some(Counter::RequestsCancelled),
            Self::Deadline => Some(Counter::RequestsExpired),
            Self::Session | Self::Connection => None,
        }
    }
}

/// An error as the client sees it.
pub(super) fn put_error(encoder: &mut Encoder<'_>, error: &SessionError) {
    let text = error.message();
    let short = &text[..text.len().min(LONGEST_TEXT)];
    encoder.error(error.severity(), error.code(), error.state(), short).expect("it is short");
}

/// Longer texts are cut: any peer takes frames of this size.
const LONGEST_TEXT: usize = 2048;
