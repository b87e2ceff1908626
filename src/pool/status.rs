//! How things stand: [`BackendStatus`], [`Held`], and why connections are closed.

use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::manage::Version;

/// Why a connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Discard {
    /// [`has_broken`](super::Manage::has_broken) said so.
    Broken,
    /// [`is_valid`](super::Manage::is_valid) failed.
    Invalid,
    /// [`reset`](super::Manage::reset) failed.
    NotReset,
    /// Its user panicked while it had it, or the manager did while it looked at it.
    Panicked,
    /// Its user [discarded](super::Pooled::discard) it.
    Unwanted,
    /// It reached [`max_age`](super::Limits::max_age).
    TooOld,
    /// It was idle for [`idle_timeout`](super::Limits::idle_timeout).
    Idle,
    /// There are fewer allowed than there are.
    Resized,
    /// It is of an old version.
    FailedOver,
    /// The backend is paused.
    Paused,
    /// The backend is disabled.
    Disabled,
    /// The pool is closed, or the backend was retired or is not used any more.
    Closed,
}

/// What happened since the backend appeared.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Totals {
    /// Connections that were handed out.
    pub handed_out: u64,
    /// Of these, to somebody who had to wait until another gave it back.
    pub waited: u64,
    /// Callers whose deadline passed.
    pub timed_out: u64,
    /// Callers that were refused because too many waited.
    pub refused: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Connects that failed.
    pub connect_failures: u64,
    /// Connections that were closed, or taken out of the pool.
    pub discarded: u64,
    /// Changes of version.
    pub failed_over: u64,
}

/// How a backend stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackendStatus<K> {
    /// Its key.
    pub key: K,
    /// Its version.
    pub version: Version,
    /// Whether connections are to be had.
    pub state: BackendState,
    /// Connections that nobody uses.
    pub idle: usize,
    /// Connections in use.
    pub in_use: usize,
    /// Connections that are being made.
    pub connecting: usize,
    /// The most of the three together.
    pub max: usize,
    /// How many wait for one.
    pub waiting: usize,
    /// Connects that failed since one succeeded.
    pub failures: u32,
    /// What the last connect that failed said.
    pub last_error: Option<Arc<dyn Error + Send + Sync>>,
    /// What is left of old versions.
    pub leaving: Vec<Leaving>,
    /// What happened so far.
    pub totals: Totals,
}

/// What is left of an old version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Leaving {
    /// The version.
    pub version: Version,
    /// Connections in use, to be closed as they come back.
    pub in_use: usize,
    /// Connects under way, to be closed when they are done.
    pub connecting: usize,
}

/// Whether a backend gives out connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BackendState {
    /// It does.
    Open,
    /// Who asks waits.
    Paused,
    /// Who asks is refused.
    Disabled,
    /// It was retired, or the pool is closed.
    Closed,
}

impl fmt::Display for BackendState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::Closed => "closed",
        })
    }
}

/// A line for the backend, and one for each old version: `SPT0#0 (leaving, 3 in use)`.
impl<K: fmt::Display> fmt::Display for BackendStatus<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, version, state, idle, in_use, connecting, max, waiting, .. } = self;
        write!(f, "{key}#{version} ({state}, {in_use} in use, {idle} idle")?;
        write!(f, ", {connecting} connecting, at most {max}; {waiting} waiting)")?;
        if let Some(error) = self.last_error.as_ref().filter(|_| self.failures > 0) {
            write!(f, ": {} connects have failed: {error}", self.failures)?;
        }
        for Leaving { version, in_use, connecting } in &self.leaving {
            write!(f, "\n{key}#{version} (leaving, {in_use} in use")?;
            if *connecting > 0 {
                write!(f, ", {connecting} connecting")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

/// A connection in use, and who has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Held<K> {
    /// The key of its backend.
    pub key: K,
    /// The version of its backend.
    pub version: Version,
    /// How long it has been in use.
    pub held_for: Duration,
    /// Where it was asked for.
    pub location: &'static Location<'static>,
    /// The name of the thread that asked for it.
    pub thread: Option<String>,
}

/// `SPT0#1 for 12.0s, from src/route.rs:80:14 on worker-3`
impl<K: fmt::Display> fmt::Display for Held<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, version, held_for, location, thread } = self;
        let thread = thread.as_deref().unwrap_or("a thread without a name");
        write!(f, "{key}#{version} for {held_for:.1?}, from {location} on {thread}")
    }
}
