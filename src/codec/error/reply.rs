//! Errors in a server's answers: numbers, SQL states, and scope.

use std::error::Error;
use std::fmt;

use crate::codec::error::Scope;
use crate::codec::proto::generic::{ErrorReply, Severity};

/// Numbers of errors that belong to the protocol and its server, not to a statement. All others
/// are MySQL's, passed on unchanged.
pub mod code {
    /// The digest is not in the cache: send the text too. Older servers give this error another
    /// number. [`ErrorReply::is_cache_miss`](super::ErrorReply::is_cache_miss) knows both.
    pub const CACHE_MISS: u32 = 8000;
    /// Error of the server itself without a number of its own.
    pub const SERVER: u32 = 8001;
    /// Wrong user or password.
    pub const ACCESS_DENIED: u32 = 1045;
    /// The server shuts down.
    pub const SHUTDOWN: u32 = 1053;
    /// A frame is longer than the server accepts.
    pub const PACKET_TOO_LARGE: u32 = 1153;
    /// The statement was interrupted.
    pub const INTERRUPTED: u32 = 1317;
    /// The statement was interrupted because it took too long.
    pub const TIMED_OUT: u32 = 3024;
    /// A request closes an expect block that was not opened.
    pub const EXPECT_NOT_OPEN: u32 = 5158;
    /// A condition of the expect block does not hold.
    pub const EXPECT_FAILED: u32 = 5159;
    /// A condition of an expect block is not known.
    pub const EXPECT_BAD_CONDITION: u32 = 5160;
}

/// SQL state of errors that have no other.
pub const GENERAL_STATE: &[u8; 5] = b"HY000";

/// SQL state of an interrupted statement.
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub(crate) const INTERRUPTED_STATE: &[u8; 5] = b"70100";

/// Number of [`code::CACHE_MISS`] in older servers.
const CACHE_MISS_OLD: u32 = 6000;

impl ErrorReply {
    /// Creates an error that ends only the statement.
    #[must_use]
    pub fn error(code: u32, sql_state: &[u8; 5], msg: impl Into<Vec<u8>>) -> Self {
        Self::with(Severity::Error, code, sql_state, msg.into())
    }

    /// Creates an error that ends the session; on session 0, the connection.
    #[must_use]
    pub fn fatal(code: u32, sql_state: &[u8; 5], msg: impl Into<Vec<u8>>) -> Self {
        Self::with(Severity::Fatal, code, sql_state, msg.into())
    }

    fn with(severity: Severity, code: u32, sql_state: &[u8; 5], msg: Vec<u8>) -> Self {
        Self { severity: Some(severity), code, msg, sql_state: sql_state.to_vec() }
    }

    /// Returns true if the digest of the request is not in the server's cache. Then the client
    /// sends the request again with its text. The session is unchanged.
    #[must_use]
    pub const fn is_cache_miss(&self) -> bool {
        matches!(self.code, code::CACHE_MISS | CACHE_MISS_OLD)
    }

    /// Scope of the error: the request, or for a fatal error its session.
    ///
    /// A fatal error about the connection comes on session 0, before the server closes it. A reader
    /// of frames sees that session in their header.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match self.severity.unwrap_or_default() {
            Severity::Error => Scope::Request,
            Severity::Fatal => Scope::Session,
        }
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity.unwrap_or_default() {
            Severity::Error => "error",
            Severity::Fatal => "fatal error",
        };
        let state = self.sql_state.escape_ascii();
        write!(f, "{severity} {} ({state}): ", self.code)?;
        f.write_str(&String::from_utf8_lossy(&self.msg))
    }
}

impl Error for ErrorReply {}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test may panic on its own mistakes")]
mod tests {
    use super::*;
    use crate::codec::frame::Dialect;
    use crate::codec::message::ServerMessage;

    #[test]
    fn known_bytes() {
        let error = ErrorReply::fatal(code::SERVER, b"70100", "Session is killing.");
        let mut out = Vec::new();
        let message = ServerMessage::Error(error);
        message.encode(Dialect::Legacy, 2, &mut out).expect("it is small");
        let body = b"\x08\x01\x10\xc1\x3e\x1a\x13Session is killing.\x22\x0570100";
        assert_eq!(out, [b"\x02\0\0\0\0\0\0\0\x22\0\0\0\x01".as_slice(), body].concat());
    }

    #[test]
    fn the_severity_says_what_dies() {
        let error = ErrorReply::error(code::CACHE_MISS, GENERAL_STATE, "do not exist query!");
        assert_eq!((error.scope(), error.is_cache_miss()), (Scope::Request, true));
        assert_eq!(error.to_string(), "error 8000 (HY000): do not exist query!");
        let fatal = ErrorReply::fatal(code::PACKET_TOO_LARGE, b"S1000", *b"\xff");
        assert_eq!((fatal.scope(), fatal.is_cache_miss()), (Scope::Session, false));
        assert_eq!(fatal.to_string(), "fatal error 1153 (S1000): \u{fffd}");
        let absent = ErrorReply { severity: None, ..fatal };
        assert_eq!(absent.scope(), Scope::Request);
    }
}
