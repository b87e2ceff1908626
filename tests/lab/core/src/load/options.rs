//! What to load, and how.

use std::time::Duration;

pub use crate::address::Address as Target;

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
