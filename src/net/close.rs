//! Reasons for the end of a connection.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::stats::Counter;

/// A handler's decision to end the connection because it cannot go on, made from the reason:
/// `return Err("this is not HTTP".into())`. The reason goes to the log and to
/// [`Protocol::closed`](super::Protocol::closed).
///
/// Bytes sent before leave first. To end a connection in the ordinary way, for example after a
/// `QUIT`, call [`Connection::close`](super::Connection::close) and return `Ok`.
#[derive(Clone, Debug)]
pub struct Close(pub(super) CloseReason);

impl Close {
    /// Ends the connection because of an error: `parse(bytes).map_err(Close::error)?`.
    pub fn error(error: impl std::error::Error) -> Self {
        error.to_string().into()
    }
}

impl From<&'static str> for Close {
    fn from(reason: &'static str) -> Self {
        Self(CloseReason::ByHandler(reason.into()))
    }
}

impl From<String> for Close {
    fn from(reason: String) -> Self {
        Self(CloseReason::ByHandler(reason.into()))
    }
}

/// For `?` on other files and sockets of a handler. The runtime handles errors of sending and
/// receiving itself; `read_more` reports them as [`ReadMoreError`](super::ReadMoreError).
impl From<io::Error> for Close {
    fn from(error: io::Error) -> Self {
        Self::error(error)
    }
}

/// Fate of a connection whose peer has finished sending, see
/// [`Protocol::ended`](super::Protocol::ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
pub enum HalfClose {
    /// The connection ends. Before that, the sent bytes leave and, if it was accepted, the requests that
    /// are [held](super::Connection::hold) end.
    End,
    /// The connection stays open for sending, until
    /// [`shutdown_write`](super::Connection::shutdown_write), [`close`](super::Connection::close) or a
    /// drain.
    KeepOpen,
}

/// Reason for the end of a connection. Each has a counter; `Io` and `ConnectFailed` share one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer finished sending.
    ByPeer,
    /// The handler returned a [`Close`], or a thread called `close` or `abort`.
    ByHandler(Cow<'static, str>),
    /// The peer reset the connection, or is no longer there.
    Reset(Arc<io::Error>),
    /// Another failure of the socket.
    Io(Arc<io::Error>),
    /// An outgoing connection could not be made.
    ConnectFailed(Arc<io::Error>),
    /// The peer did not take the waiting bytes within this time (`net_write_timeout`).
    WriteTimeout(Duration),
    /// The peer did not send anything within this time after it connected
    /// (`first_bytes_timeout`).
    FirstBytesTimeout(Duration),
    /// The layers of the connection were not ready within this time (`handshake_timeout`).
    HandshakeTimeout(Duration),
    /// A [`Layer`](super::Layer) could not use the peer's bytes, or encode bytes that were sent.
    ByLayer(Cow<'static, str>),
    /// Nothing was received or sent, and nothing was in progress, for this time (`idle_timeout`).
    IdleTimeout(Duration),
    /// A frame that had begun was not complete within this time (`frame_timeout`).
    FrameTimeout(Duration),
    /// The protocol left more input unconsumed than `max_allowed_packet` allows.
    InputTooLong {
        /// Unconsumed bytes, or the size that the protocol has announced.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The connection's buffers would have grown beyond their share of `max_buffered_bytes`.
    MemoryBudget {
        /// Bytes of the connection, its growth included.
        own: usize,
        /// Bytes of all connections, the growth included.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The handler panicked.
    Panic,
    /// The runtime drained. All received requests have been answered, and an outgoing connection
    /// awaited no answer any more.
    Draining,
    /// The drain of the runtime reached its deadline.
    Cut,
}

impl CloseReason {
    /// Splits the errors of a socket by cause: the peer, or this side.
    pub(super) fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::TimedOut => Self::Reset(Arc::new(error)),
            _ => Self::Io(Arc::new(error)),
        }
    }

    /// Attributes a reason to the layer that has given it.
    pub(super) fn of_layer(self) -> Self {
        match self {
            Self::ByHandler(reason) => Self::ByLayer(reason),
            reason => reason,
        }
    }

    pub(super) const fn counter(&self) -> Counter {
        match self {
            Self::ByPeer => Counter::ClosedByPeer,
            Self::ByHandler(_) => Counter::ClosedByHandler,
            Self::Reset(_) => Counter::ClosedReset,
            Self::Io(_) | Self::ConnectFailed(_) => Counter::ClosedIoError,
            Self::WriteTimeout(_) => Counter::ClosedWriteTimeout,
            Self::FirstBytesTimeout(_) => Counter::ClosedFirstBytesTimeout,
            Self::HandshakeTimeout(_) => Counter::ClosedHandshakeTimeout,
            Self::ByLayer(_) => Counter::ClosedByLayer,
            Self::IdleTimeout(_) => Counter::ClosedIdleTimeout,
            Self::FrameTimeout(_) => Counter::ClosedFrameTimeout,
            Self::InputTooLong { .. } => Counter::ClosedFrameTooLong,
            Self::MemoryBudget { .. } => Counter::ClosedMemoryBudget,
            Self::Panic => Counter::ClosedPanic,
            Self::Draining => Counter::ClosedDraining,
            Self::Cut => Counter::ClosedCut,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPeer => f.write_str("the peer finished"),
            Self::ByHandler(reason) | Self::ByLayer(reason) => f.write_str(reason),
            Self::Reset(error) => write!(f, "the peer is gone: {error}"),
            Self::Io(error) => write!(f, "socket failed: {error}"),
            Self::ConnectFailed(error) => write!(f, "connect failed: {error}"),
            Self::WriteTimeout(limit) => {
                write!(f, "the peer did not read within net_write_timeout {limit:?}")
            }
            Self::FirstBytesTimeout(limit) => {
                write!(f, "the peer sent nothing within first_bytes_timeout {limit:?}")
            }
            Self::HandshakeTimeout(limit) => {
                write!(f, "the handshake was not complete within handshake_timeout {limit:?}")
            }
            Self::IdleTimeout(limit) => write!(f, "idle for idle_timeout {limit:?}"),
            Self::FrameTimeout(limit) => {
                write!(f, "the peer did not complete a frame within frame_timeout {limit:?}")
            }
            Self::InputTooLong { bytes, limit } => {
                write!(f, "{bytes} input bytes exceed max_allowed_packet {limit}")
            }
            Self::MemoryBudget { own, bytes, limit } => write!(
                f,
                "{own} of {bytes} buffered bytes would leave too little of max_buffered_bytes {limit}"
            ),
            Self::Panic => f.write_str("the handler panicked"),
            Self::Draining => f.write_str("the runtime drained"),
            Self::Cut => f.write_str("cut at the deadline of the drain"),
        }
    }
}

impl std::error::Error for CloseReason {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Reset(error) | Self::Io(error) | Self::ConnectFailed(error) => Some(&**error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    fn reads_a_file() -> Result<(), Close> {
        Err(io::Error::from(io::ErrorKind::NotFound))?;
        Ok(())
    }

    #[test]
    fn an_io_error_of_a_handler_closes_with_its_text() {
        let Close(reason) = reads_a_file().expect_err("there is no file");
        assert!(matches!(&reason, CloseReason::ByHandler(text) if text == "entity not found"));
        assert!(reason.source().is_none(), "the socket has no error");
    }

    #[test]
    fn a_reason_is_an_error_that_can_be_kept() {
        let reason = CloseReason::from_io(io::Error::from(io::ErrorKind::ConnectionReset));
        let kept: Box<dyn Error + Send + Sync> = Box::new(reason.clone());
        assert_eq!(kept.to_string(), reason.to_string());
        let source = kept.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::ConnectionReset));
    }
}
