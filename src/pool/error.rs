//! Why nobody got a connection.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why there was no connection to be had.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GetError {
    /// The deadline passed.
    Timeout {
        /// How long it was waited for.
        waited: Duration,
        /// What was in the way when it passed.
        cause: Cause,
    },
    /// Too many wait already: this is [`max_waiting`](super::Limits::max_waiting).
    TooManyWaiting {
        /// The limit.
        max: usize,
    },
    /// The backend is [disabled](super::Pool::disable).
    Disabled,
    /// The pool is closed, or the backend was [retired](super::Pool::retire).
    Closed,
}

/// What was in the way when a deadline passed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// All connections that there may be are in use.
    AllBusy {
        /// So many are.
        in_use: usize,
        /// So many there may be.
        max: usize,
    },
    /// Connects were under way, and none of them was done.
    Connecting {
        /// So many.
        connecting: usize,
    },
    /// Connects fail.
    ConnectFails {
        /// So many since one succeeded.
        failures: u32,
        /// What the last one said.
        last_error: Arc<dyn Error + Send + Sync>,
    },
    /// The backend is [paused](super::Pool::pause).
    Paused,
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { waited, cause } => {
                write!(f, "no connection within {waited:.3?}: {cause}")
            }
            Self::TooManyWaiting { max } => write!(f, "{max} wait for a connection already"),
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
                write!(f, "{failures} connects in a row have failed")
            }
            Self::Paused => f.write_str("the backend is paused"),
        }
    }
}
