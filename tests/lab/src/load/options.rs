//! What to load, and how.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What to load, and how.
#[derive(Clone, Debug)]
pub struct Options {
    pub target: Target,
    pub connections: usize,
    pub sessions_per_connection: usize,
    /// Requests in flight for each session.
    pub pipeline: usize,
    /// A whole frame, header included; at least a header.
    pub frame_bytes: usize,
    /// Pause between an answer and the next request of its session.
    pub think: Duration,
    pub heavy: Option<Heavy>,
    /// How long the end of a window, and of connecting, waits for answers.
    pub quiesce: Duration,
}

/// Further connections that ask without pause for frames that burn CPU time in the server.
#[derive(Clone, Copy, Debug)]
pub struct Heavy {
    pub connections: usize,
    pub burn: Duration,
    /// Requests in flight on each.
    pub pipeline: usize,
}

/// Where the server listens.
#[derive(Clone, Debug)]
pub enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Options {
    /// One connection with one request of 64 bytes in flight.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            connections: 1,
            sessions_per_connection: 1,
            pipeline: 1,
            frame_bytes: 64,
            think: Duration::ZERO,
            heavy: None,
            quiesce: Duration::from_secs(10),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    /// Takes `unix:PATH`, or `HOST:PORT` of which the first address counts.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let mut addresses = text.to_socket_addrs().map_err(|error| error.to_string())?;
        addresses.next().map(Self::Tcp).ok_or_else(|| "this name has no address".to_owned())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
