//! [`Status`]: state of a client, for its operator.

use std::time::Duration;

use super::error::Error;
use super::link::Link;
use crate::sys::clock;

/// State of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// State of each connection in the order of their making, and of each that may be made.
    pub connections: Vec<ConnectionStatus>,
    /// Number of callers that wait for a session.
    pub waiting: usize,
    /// Number of callers refused because [`max_waiting`](super::Options::max_waiting) callers waited.
    pub refused: u64,
    /// Number of connections whose login succeeded.
    pub connected: u64,
    /// Number of failed attempts to connect.
    pub failed: u64,
    /// Error of the last failed attempt.
    pub last_error: Option<Error>,
}

/// State of one connection of a client.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Phase of the connection.
    pub phase: ConnectionPhase,
    /// Number of its sessions.
    pub sessions: usize,
    /// Number of its unanswered requests, openings and closings of sessions included.
    /// [`max_outstanding`](super::Options::max_outstanding) also counts answers that were not taken.
    pub outstanding: usize,
    /// Errors of the server that answer no request and end no session. Causes are late credit, and
    /// a probe that an old server does not know.
    pub stray_errors: u64,
    /// Time since the attempt to connect began.
    pub age: Option<Duration>,
}

impl ConnectionStatus {
    pub(super) fn of(link: &Link) -> Self {
        let age = Some(clock::since(link.since));
        link.look_at(|state| Self {
            phase: match state.is_leaving() {
                true => ConnectionPhase::Leaving,
                false => ConnectionPhase::Ready,
            },
            sessions: state.open_sessions(),
            outstanding: state.outstanding(),
            stray_errors: state.stray_errors(),
            age,
        })
    }
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionPhase {
    /// The connection is not needed, or the last attempt failed.
    #[default]
    Absent,
    /// The connection is being established or logs in.
    Connecting,
    /// The connection carries sessions.
    Ready,
    /// The server shuts down. The connection ends with its last session.
    Leaving,
}
