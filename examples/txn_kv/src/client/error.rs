//! [`KvError`]: why a request has no result, and what became of it.

use std::error::Error;
use std::fmt;

use epoll_group::client::{self, Fate};

use crate::service::code;

/// Why a request has no result, and what became of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KvError {
    /// The server answered with an error, or no answer came.
    Client(client::Error),
    /// The server's answer does not fit the request.
    Malformed(&'static str),
}

impl KvError {
    /// Tells if the request was executed. If the engine could not write, that is unknown: the transaction
    /// is not visible, but after a crash of the server it may be.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match self {
            Self::Client(_) if self.code() == Some(code::WRITE) => Fate::Unknown,
            Self::Client(error) => error.fate(),
            Self::Malformed(_) => Fate::Unknown,
        }
    }

    /// The number of the error that the server answered with, see [`code`].
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Client(error) => error.server_error().map(|error| error.code),
            Self::Malformed(_) => None,
        }
    }
}

impl From<client::Error> for KvError {
    fn from(error: client::Error) -> Self {
        Self::Client(error)
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Malformed(what) => write!(f, "malformed answer: {what}"),
        }
    }
}

impl Error for KvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Malformed(_) => None,
        }
    }
}
