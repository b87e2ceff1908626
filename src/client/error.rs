//! Why a request has no answer, and what became of it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::codec::message::generic::ErrorReply;
use crate::codec::message::generic::error_reply::Severity;

/// What became of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there is no fourth")]
pub enum Fate {
    /// No byte of it was sent: it can be tried again, anywhere.
    NotSent,
    /// The server answered that it did not do it.
    Refused,
    /// It was sent and the answer did not come, or not whole: perhaps it was executed. Whoever tries
    /// it again may do it twice.
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

/// The error that a server answered with.
///
/// *Shape*: owns its text, which is in the character set of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    code: u32,
    state: Vec<u8>,
    message: Vec<u8>,
    fatal: bool,
}

impl ServerError {
    pub(super) fn new(reply: ErrorReply) -> Self {
        let fatal = reply.severity() == Severity::Fatal;
        Self { code: reply.code, state: reply.sql_state, message: reply.msg, fatal }
    }

    /// The number: MySQL's, or one of [`code`](crate::codec::reply::code).
    #[must_use]
    pub const fn code(&self) -> u32 {
        self.code
    }

    /// The SQL state, five characters.
    #[must_use]
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// The text.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Whether the session, or on a login the connection, died of it.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        self.fatal
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, text) =
            (String::from_utf8_lossy(&self.state), String::from_utf8_lossy(&self.message));
        write!(f, "error {} ({state}): {text}", self.code)
    }
}

impl StdError for ServerError {}

/// What went wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server answered with an error.
    Server(Arc<ServerError>),
    /// The time for it is over.
    Deadline(Stage),
    /// No connection could be made; the text is the last reason.
    Connect(Arc<str>),
    /// The server refused the login.
    Login(Arc<ServerError>),
    /// The connection ended, for this reason.
    Lost(Arc<str>),
    /// The server sent what no server may send here.
    Protocol(Cow<'static, str>),
    /// The session ended before: its server closed it, or its connection is gone.
    SessionEnded,
    /// The client was closed.
    Closed,
    /// The request is longer than a frame may be.
    TooLong {
        /// Bytes that it would have.
        bytes: usize,
        /// The largest frame.
        limit: usize,
    },
    /// Too many wait for a session already (`max_waiting`).
    TooManyWait(usize),
    /// More of an answer waits to be read, or its rows, columns and warnings take more, than is kept
    /// (`max_answer_bytes`).
    TooMuch {
        /// Bytes that it would be.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// What a deadline passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// No connection was ready with room for a session, within this time.
    Session(Duration),
    /// The connection was not established (`connect_timeout`).
    Connect(Duration),
    /// The login was not answered (`login_timeout`).
    Login(Duration),
    /// The request waited to be sent.
    Enqueue,
    /// The answer had not come, or not whole.
    Reply,
}

/// Why a request failed, and what became of it. Cheap to clone.
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

    /// The answer of a server. One that its session dies of may come when the request has begun.
    pub(super) fn server(error: Arc<ServerError>) -> Self {
        let fate = if error.is_fatal() { Fate::Unknown } else { Fate::Refused };
        Self::new(fate, ErrorKind::Server(error))
    }

    pub(super) fn protocol(what: impl Into<Cow<'static, str>>) -> Self {
        Self::unknown(ErrorKind::Protocol(what.into()))
    }

    /// What the server sent cannot be read.
    pub(super) fn malformed(why: impl fmt::Display) -> Self {
        Self::protocol(why.to_string())
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// What became of the request.
    #[must_use]
    pub const fn fate(&self) -> Fate {
        self.fate
    }

    /// The server's error, if that is what it is.
    #[must_use]
    pub fn server_error(&self) -> Option<&ServerError> {
        match &self.kind {
            ErrorKind::Server(error) | ErrorKind::Login(error) => Some(error),
            _ => None,
        }
    }

    /// Whether a deadline passed.
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
            Self::Enqueue => {
                f.write_str("the time is over, and the request still waited to be sent")
            }
            Self::Reply => f.write_str("the time is over, and the answer has not come"),
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
                write!(f, "the request has {bytes} bytes, a frame at most {limit}")
            }
            Self::TooManyWait(limit) => {
                write!(f, "{limit} wait for a session already (max_waiting)")
            }
            Self::TooMuch { bytes, limit } => {
                write!(
                    f,
                    "{bytes} bytes of an answer are to be kept, above {limit} (max_answer_bytes)"
                )
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fate {
            // The server's own words say it.
            Fate::Refused => self.kind.fmt(f),
            fate => write!(f, "{} ({fate})", self.kind),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            ErrorKind::Server(error) | ErrorKind::Login(error) => Some(error),
            _ => None,
        }
    }
}
