//! Errors of requests, and the fate of the failed request.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::codec::error::{Scope, code};
use crate::codec::proto::generic::ErrorReply;

/// Fate of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there is no fourth")]
pub enum Fate {
    /// No byte of the request was sent. It can be tried again anywhere.
    NotSent,
    /// The server answered that it did not execute the request.
    Refused,
    /// The request was sent. Its answer did not arrive completely, broke the protocol or a limit,
    /// or is error 1317 or 3024 (interrupted), a fatal error, or an error behind a first result.
    /// The server may have executed it, so a second try may execute it twice.
    Unknown,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "not sent",
            Self::Refused => "refused",
            Self::Unknown => "outcome unknown",
        })
    }
}

/// Kind of an error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server answered with an error. Its text is in the character set of the session.
    Server(Arc<ErrorReply>),
    /// A deadline passed in this stage.
    Deadline(Stage),
    /// No connection could be made. The text is the last reason.
    Connect(Arc<str>),
    /// The server refused the login.
    Login(Arc<ErrorReply>),
    /// The connection ended for this reason.
    Lost(Arc<str>),
    /// The server violated the protocol.
    Protocol(Cow<'static, str>),
    /// The session had ended: its server ended it or shuts down, or the client ended it because an
    /// answer broke the protocol or a limit.
    SessionEnded,
    /// The client was closed.
    Closed,
    /// The request exceeds the size of a frame.
    TooLong {
        /// Size of the request in bytes.
        bytes: usize,
        /// Limit of a frame in bytes.
        limit: usize,
    },
    /// The request was for this number of timestamps. The most at once are 2 147 483 647.
    TooManyTimestamps(u32),
    /// `max_waiting` callers wait for a session already.
    TooManyWait(usize),
    /// `max_outstanding` requests of the session are outstanding already: their results were not
    /// taken.
    TooManyOutstanding(usize),
    /// The unread part of an answer, or its rows, columns and warnings, exceed `max_answer_bytes`.
    TooMuch {
        /// Size in bytes.
        bytes: usize,
        /// Limit in bytes.
        limit: usize,
    },
}

/// Stage of a request in which a deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// No connection had room for a session within this time.
    Session(Duration),
    /// The connection was not established in time (`connect_timeout`).
    Connect(Duration),
    /// The login was not answered in time (`login_timeout`).
    Login(Duration),
    /// The request was not sent in time.
    Enqueue,
    /// The answer was not complete in time.
    Reply,
}

/// Error of a request, with the fate of the request. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    fate: Fate,
}

impl Error {
    pub(super) const fn new(fate: Fate, kind: ErrorKind) -> Self {
        Self { kind, fate }
    }

    pub(super) const fn not_sent(kind: ErrorKind) -> Self {
        Self::new(Fate::NotSent, kind)
    }

    pub(super) const fn unknown(kind: ErrorKind) -> Self {
        Self::new(Fate::Unknown, kind)
    }

    /// Error answered by a server. A fatal error may arrive after the request has begun, and the
    /// server may finish an interrupted request, so their fate is unknown.
    pub(super) fn server(error: ErrorReply) -> Self {
        let ends_session = error.scope() == Scope::Session;
        let is_interrupted = matches!(error.code, code::INTERRUPTED | code::TIMED_OUT);
        let fate = if ends_session || is_interrupted { Fate::Unknown } else { Fate::Refused };
        Self::new(fate, ErrorKind::Server(Arc::new(error)))
    }

    pub(super) fn protocol(what: impl Into<Cow<'static, str>>) -> Self {
        Self::unknown(ErrorKind::Protocol(what.into()))
    }

    /// Answer that cannot be decoded.
    pub(super) fn malformed(why: impl fmt::Display) -> Self {
        Self::protocol(why.to_string())
    }

    /// Kind of the error.
    #[must_use]
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Fate of the request.
    #[must_use]
    pub const fn fate(&self) -> Fate {
        self.fate
    }

    /// Error of the server, if the server answered with one.
    #[must_use]
    pub fn server_error(&self) -> Option<&ErrorReply> {
        match &self.kind {
            ErrorKind::Server(error) | ErrorKind::Login(error) => Some(error),
            _ => None,
        }
    }

    /// Returns true if a deadline passed.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self.kind, ErrorKind::Deadline(_))
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(limit) => write!(f, "no session within {limit:?}"),
            Self::Connect(limit) => write!(f, "not connected within connect_timeout {limit:?}"),
            Self::Login(limit) => write!(f, "not logged in within login_timeout {limit:?}"),
            Self::Enqueue => f.write_str("the deadline passed before the request was sent"),
            Self::Reply => f.write_str("the deadline passed before the answer was complete"),
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            Self::Deadline(stage) => stage.fmt(f),
            Self::Connect(reason) => write!(f, "no connection: {reason}"),
            Self::Login(error) => write!(f, "the login was refused: {error}"),
            Self::Lost(reason) => write!(f, "the connection ended: {reason}"),
            Self::Protocol(what) => write!(f, "the server broke the protocol: {what}"),
            Self::SessionEnded => f.write_str("the session has ended"),
            Self::Closed => f.write_str("the client is closed"),
            Self::TooLong { bytes, limit } => {
                write!(
                    f,
                    "the request has {bytes} bytes, a frame at most {limit} (max_allowed_packet)"
                )
            }
            Self::TooManyTimestamps(count) => {
                write!(f, "{count} timestamps at once, at most {} are allowed", i32::MAX)
            }
            Self::TooManyWait(limit) => {
                write!(f, "{limit} callers wait for a session already (max_waiting)")
            }
            Self::TooManyOutstanding(limit) => write!(
                f,
                "{limit} requests of the session are outstanding already (max_outstanding)"
            ),
            Self::TooMuch { bytes, limit } => {
                write!(f, "{bytes} bytes of an answer exceed {limit} (max_answer_bytes)")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fate {
            // The text of the server says that it refused.
            Fate::Refused => self.kind.fmt(f),
            fate => write!(f, "{} ({fate})", self.kind),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.server_error().map(|error| error as _)
    }
}
