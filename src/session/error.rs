//! Errors that the server answers requests and logins with.

use std::error::Error;
use std::fmt;

use crate::codec::chunk::ChunkWriteError;
use crate::codec::encoder::Encoder;
use crate::codec::error::{EncodeError, GENERAL_STATE, INTERRUPTED_STATE, Scope, code};
use crate::codec::message::{PlanError, ScalarError};
use crate::codec::proto::generic::ErrorReply;
use crate::codec::proto::generic::Severity;
use crate::codec::value::ValueError;
use crate::stats::Counter;

/// Error that answers a request: number, SQL state and text, as in MySQL.
///
/// *Shape*: owns its text, which may be any bytes. The client gets the first 2 048 of them.
///
/// ```
/// use epoll_group::codec::proto::generic::Severity;
/// use epoll_group::session::SessionError;
///
/// let error = SessionError::new(1146, b"42S02", "Table 'test.t' doesn't exist");
/// assert_eq!(error.to_string(), "error 1146 (42S02): Table 'test.t' doesn't exist");
/// assert_eq!(error.severity, Severity::Error);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionError {
    /// Severity, and so the scope: fatal errors end the session, others the request.
    pub severity: Severity,
    /// Number of the error.
    pub code: u32,
    /// SQL state.
    pub state: [u8; 5],
    /// Text of the error.
    pub message: Vec<u8>,
}

impl SessionError {
    /// Creates an error that ends the request. Its session continues.
    #[must_use]
    pub fn new(code: u32, state: &[u8; 5], message: impl Into<Vec<u8>>) -> Self {
        Self { severity: Severity::Error, code, state: *state, message: message.into() }
    }

    /// Creates an error that ends the session, with all its waiting requests.
    #[must_use]
    pub fn fatal(code: u32, state: &[u8; 5], message: impl Into<Vec<u8>>) -> Self {
        Self { severity: Severity::Fatal, ..Self::new(code, state, message) }
    }

    /// Creates the error of a cancelled request: 1317 (70100).
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(code::INTERRUPTED, INTERRUPTED_STATE, "Query execution was interrupted")
    }

    /// Creates the error of an unsupported request: 8001 (HY000).
    #[must_use]
    pub fn unsupported(message: impl Into<Vec<u8>>) -> Self {
        Self::new(code::SERVER, GENERAL_STATE, message)
    }

    /// Scope of the error: the request, or its session if the error is fatal.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        match self.severity {
            Severity::Error => Scope::Request,
            Severity::Fatal => Scope::Session,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Fatal => "fatal error",
        };
        let state = self.state.escape_ascii();
        write!(f, "{severity} {} ({state}): ", self.code)?;
        f.write_str(&String::from_utf8_lossy(&self.message))
    }
}

impl Error for SessionError {}

/// Error of another server, passed on unchanged.
impl From<ErrorReply> for SessionError {
    /// A state that does not have five characters becomes HY000.
    fn from(reply: ErrorReply) -> Self {
        let state = reply.sql_state.as_slice().try_into().unwrap_or(*GENERAL_STATE);
        Self {
            severity: reply.severity.unwrap_or_default(),
            ..Self::new(reply.code, &state, reply.msg)
        }
    }
}

/// Lets a service use `?` on errors of the codec: each becomes 8001 (HY000) with its text, and ends
/// the request.
macro_rules! from_codec {
    ($($error:ty)+) => {
        $(impl From<$error> for SessionError {
            /// Error 8001 (HY000) with the text of `error`.
            fn from(error: $error) -> Self {
                Self::unsupported(error.to_string())
            }
        })+
    };
}

from_codec! { EncodeError ChunkWriteError PlanError ScalarError ValueError }

/// Reason why a login is refused. The SQL state is always HY000. The error is never fatal: the
/// client may try again, up to `max_login_attempts`.
///
/// Every error but [`Denied`](Self::Denied) reveals that the account exists. So a service returns
/// the others only after a correct password.
///
/// ```
/// use epoll_group::session::AuthError;
///
/// assert_eq!(AuthError::Denied.to_string(), "error 1045 (HY000): Invalid user or password");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthError {
    /// Unknown account or wrong password: 1045.
    Denied,
    /// Locked account: 3118.
    Locked,
    /// Expired password: 1862.
    Expired,
    /// Server that accepts only administrators: 3032.
    Offline,
    /// Database that the account may not use: 1046.
    Schema,
    /// Any other error.
    Other {
        /// Number of the error.
        code: u32,
        /// Text of the error.
        message: Vec<u8>,
    },
}

impl AuthError {
    /// Scope of the error: the login.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }

    /// Violation of the protocol.
    pub(super) fn protocol(message: &str) -> Self {
        Self::Other { code: code::SERVER, message: message.into() }
    }

    /// Number and text of the error.
    fn parts(&self) -> (u32, &[u8]) {
        let (code, text) = match self {
            Self::Denied => (code::ACCESS_DENIED, "Invalid user or password"),
            Self::Locked => (LOCKED, "Account is locked"),
            Self::Expired => (EXPIRED, "Your password has expired"),
            Self::Offline => (OFFLINE, "The server is currently in offline mode"),
            Self::Schema => (NO_DATABASE, "Could not set database"),
            Self::Other { code, message } => return (*code, message.as_slice()),
        };
        (code, text.as_bytes())
    }

    /// Message with the error.
    pub(super) fn to_reply(&self) -> ErrorReply {
        let (code, message) = self.parts();
        ErrorReply::error(code, GENERAL_STATE, message)
    }
}

/// Numbers of MySQL for the state of an account.
const NO_DATABASE: u32 = 1046;
const EXPIRED: u32 = 1862;
const OFFLINE: u32 = 3032;
const LOCKED: u32 = 3118;

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, message) = self.parts();
        write!(f, "error {code} ({}): ", GENERAL_STATE.escape_ascii())?;
        f.write_str(&String::from_utf8_lossy(message))
    }
}

impl Error for AuthError {}

// ---- errors that the layer itself answers with ----

impl SessionError {
    pub(super) const fn is_fatal(&self) -> bool {
        matches!(self.severity, Severity::Fatal)
    }

    pub(super) const fn is_interrupted(&self) -> bool {
        self.code == code::INTERRUPTED
    }

    /// Makes the error fatal for the session.
    pub(super) fn into_fatal(self) -> Self {
        Self { severity: Severity::Fatal, ..self }
    }

    /// Cuts the text to the length that clients receive, to bound what a session stores.
    pub(super) fn shortened(self) -> Self {
        match self.message.get(..LONGEST_TEXT) {
            Some(short) => Self { message: short.to_vec(), ..self },
            None => self,
        }
    }

    /// Answer for a session id without an open session.
    pub(super) fn not_found() -> Self {
        Self::fatal(code::SERVER, GENERAL_STATE, "Session not found.")
    }

    /// Answer to a deferred request whose handle was dropped. It may have been executed, so clients must
    /// not take it for refused.
    pub(super) fn dropped() -> Self {
        let text = "The request was dropped without an answer.";
        Self::new(code::INTERRUPTED, INTERRUPTED_STATE, text)
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
                code::TIMED_OUT,
                GENERAL_STATE,
                "Query execution was interrupted, maximum statement execution time exceeded",
            ),
            CancelReason::Session | CancelReason::Connection => Self::killed(),
        }
    }
}

/// Reason why a request is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The client interrupts the statement. The session continues.
    Query,
    /// The session ends: its client kills it, or its requests exceed a limit.
    Session,
    /// `request_timeout` has passed, or more than `max_waiting_writers` handlers wait for clients.
    Deadline,
    /// The connection or the runtime has ended.
    Connection,
}

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
    let SessionError { severity, code, state, message } = error;
    let short = &message[..message.len().min(LONGEST_TEXT)];
    encoder.error(*severity, *code, state, short).expect("it is short");
}

/// Longest text of an error or a warning, in bytes. Any peer accepts frames of this size.
pub(super) const LONGEST_TEXT: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_codec_keeps_its_text_and_spoils_the_request_alone() {
        let codec = [
            (
                SessionError::from(EncodeError::TooLong { length: 9, limit: 8 }),
                "length 9 exceeds 8",
            ),
            (ChunkWriteError::TooManyRows.into(), "rows exceed 32 bits"),
            (PlanError::Name { kind: 3 }.into(), "value of type 3 is no name"),
            (ValueError::NotUtf8.into(), &ValueError::NotUtf8.to_string()),
        ];
        for (error, text) in codec {
            assert_eq!(error, SessionError::new(8001, b"HY000", text));
        }
    }

    #[test]
    fn what_is_interrupted_says_so_as_mysql_does() {
        let expected = SessionError::new(1317, b"70100", "Query execution was interrupted");
        assert_eq!(SessionError::interrupted(), expected);
    }

    #[test]
    fn a_fatal_error_takes_the_session_along() {
        let error = SessionError::fatal(1153, b"S1000", *b"\xff");
        assert_eq!((error.scope(), error.severity), (Scope::Session, Severity::Fatal));
        assert_eq!(error.to_string(), "fatal error 1153 (S1000): \u{fffd}");
    }

    #[test]
    fn the_error_of_another_server_is_passed_on_as_it_is() {
        let reply = ErrorReply::error(1062, b"23000", *b"Duplicate \xff");
        let expected = SessionError::new(1062, b"23000", *b"Duplicate \xff");
        assert_eq!(SessionError::from(reply), expected);
        let reply = ErrorReply::fatal(1053, b"08S01", "server shutdown");
        let expected = SessionError::fatal(1053, b"08S01", "server shutdown");
        assert_eq!(SessionError::from(reply), expected);
        let odd = ErrorReply { sql_state: b"42".into(), ..ErrorReply::error(1, b"HY000", "odd") };
        assert_eq!(SessionError::from(odd), SessionError::new(1, b"HY000", "odd"));
    }

    #[test]
    fn a_refused_login_has_the_number_of_its_cause() {
        let causes = [
            (AuthError::Denied, 1045, "Invalid user or password"),
            (AuthError::Locked, 3118, "Account is locked"),
            (AuthError::Expired, 1862, "Your password has expired"),
            (AuthError::Offline, 3032, "The server is currently in offline mode"),
            (AuthError::Schema, 1046, "Could not set database"),
            (AuthError::Other { code: 1449, message: b"No definer".into() }, 1449, "No definer"),
        ];
        for (error, code, text) in causes {
            assert_eq!(error.to_string(), format!("error {code} (HY000): {text}"));
            assert_eq!(error.to_reply(), ErrorReply::error(code, b"HY000", text));
            assert_eq!((error.scope(), error.to_reply().scope()), (Scope::Request, Scope::Request));
        }
    }
}
