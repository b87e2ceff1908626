//! [`GetError`]: reasons for which a caller got no connection.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Reason for which a caller got no connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GetError {
    /// The deadline passed.
    Timeout {
        /// Time that the caller waited.
        waited: Duration,
        /// Reason at that time why the caller had no connection.
        cause: Cause,
    },
    /// [`max_waiting`](super::Limits::max_waiting) callers wait already.
    TooManyWaiting {
        /// The limit.
        max: usize,
    },
    /// A connect failed with an error that [is permanent](super::Manage::is_permanent).
    ConnectFailed {
        /// The error.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// The backend is [disabled](super::Pool::disable).
    Disabled,
    /// The pool is closed, or the backend was [retired](super::Pool::retire).
    Closed,
}

/// Reason why a caller had no connection when its deadline passed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// All connections of the backend are in use.
    AllBusy {
        /// Connections in use.
        in_use: usize,
        /// [`max`](super::Limits::max).
        max: usize,
    },
    /// Connects had begun and not ended.
    Connecting {
        /// Number of connects.
        connecting: usize,
    },
    /// Connects fail.
    ConnectFails {
        /// Rounds of failed connects since a connect succeeded. Connects that begin before the first of
        /// them fails are one round.
        failures: u32,
        /// Error of the last connect.
        last_error: Arc<dyn Error + Send + Sync>,
    },
    /// No time was left to make a connection: the deadline had passed before, or the check of an idle
    /// connection lasted until then.
    NoTime,
    /// The backend is [paused](super::Pool::pause).
    Paused,
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { waited, cause } => {
                write!(f, "no connection within {waited:.3?}: {cause}")
            }
            Self::TooManyWaiting { max } => {
                write!(f, "max_waiting {max} callers wait for a connection already")
            }
            Self::ConnectFailed { .. } => f.write_str("no connection can be made"),
            Self::Disabled => f.write_str("the backend is disabled"),
            Self::Closed => f.write_str("the pool is closed"),
        }
    }
}

impl Error for GetError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Timeout { cause: Cause::ConnectFails { last_error, .. }, .. } => {
                Some(&**last_error)
            }
            Self::ConnectFailed { error } => Some(&**error),
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllBusy { in_use, max } => write!(f, "{in_use} of {max} connections are in use"),
            Self::Connecting { connecting } => write!(f, "{connecting} connects are not done"),
            Self::ConnectFails { failures, .. } => {
                write!(f, "rounds of connects that failed in a row: {failures}")
            }
            Self::NoTime => f.write_str("no time was left to make one"),
            Self::Paused => f.write_str("the backend is paused"),
        }
    }
}
