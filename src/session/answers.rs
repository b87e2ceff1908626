//! Errors that the layer itself answers with. Clients know these numbers and texts.

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

    /// Makes the error fatal for the session.
    pub(super) fn into_fatal(self) -> Self {
        Self::fatal(self.code(), self.state(), self.message())
    }

    /// Cuts the text to the length that clients receive, to bound what a session stores.
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

    /// Answer for a session id without an open session.
    pub(super) fn not_found() -> Self {
        Self::fatal(code::SERVER, GENERAL_STATE, "Session not found.")
    }

    /// Answer for a session that its client killed.
    pub(super) fn killed() -> Self {
        Self::fatal(code::SERVER, INTERRUPTED_STATE, "Session is killing.")
    }

    /// Answer after a panic of the handler.
    pub(super) fn panicked() -> Self {
        Self::fatal(code::SERVER, GENERAL_STATE, "Session unexpected killed.")
    }

    /// Answer when the server shuts down.
    pub(super) fn shutdown() -> Self {
        Self::fatal(code::SHUTDOWN, GENERAL_STATE, "server shutdown")
    }

    /// Answer for a digest that is not in the cache.
    pub(super) fn cache_miss(text: &str) -> Self {
        Self::new(code::CACHE_MISS, GENERAL_STATE, text)
    }

    /// Answer for a cancelled request.
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

/// Number of MySQL for a statement that exceeded its time.
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

/// Writes an error in the form that clients receive.
pub(super) fn put_error(encoder: &mut Encoder<'_>, error: &SessionError) {
    let text = error.message();
    let short = &text[..text.len().min(LONGEST_TEXT)];
    encoder.error(error.severity(), error.code(), error.state(), short).expect("it is short");
}

/// Longest text of an error, in bytes. Any peer accepts frames of this size.
const LONGEST_TEXT: usize = 2048;
