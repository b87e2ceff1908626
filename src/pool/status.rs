//! Numbers and states for operators: [`BackendStatus`], [`Held`], reasons to close a connection.

use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::manage::Version;

/// Reason for which a connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Discard {
    /// [`has_broken`](super::Manage::has_broken) returned true.
    Broken,
    /// [`is_valid`](super::Manage::is_valid) failed or panicked.
    Invalid,
    /// [`reset`](super::Manage::reset) failed.
    NotReset,
    /// Its user panicked, or [`has_broken`](super::Manage::has_broken) or
    /// [`reset`](super::Manage::reset) did.
    Panicked,
    /// Its user [discarded](super::Pooled::discard) it.
    Unwanted,
    /// It reached [`max_age`](super::Limits::max_age).
    TooOld,
    /// It was idle for [`idle_timeout`](super::Limits::idle_timeout).
    Idle,
    /// The limit was lowered.
    Resized,
    /// Its version was failed over.
    FailedOver,
    /// The backend is paused.
    Paused,
    /// The backend is disabled.
    Disabled,
    /// The pool is closed, or the backend was retired or was unused for long.
    Closed,
}

/// Counts since the backend appeared.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Totals {
    /// Connections that were taken for a caller. Some were found unfit then, and closed.
    pub handed_out: u64,
    /// Connections that were handed to a caller that waited for their return.
    pub waited: u64,
    /// Callers whose deadline passed.
    pub timed_out: u64,
    /// Callers refused because too many waited.
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

/// State and numbers of a backend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackendStatus<K> {
    /// Key of the backend.
    pub key: K,
    /// Present version.
    pub version: Version,
    /// State that operators change.
    pub state: BackendState,
    /// Idle connections.
    pub idle: usize,
    /// Connections in use.
    pub in_use: usize,
    /// Connects that have begun.
    pub connecting: usize,
    /// Limit of idle, used and connecting ones together.
    pub max: usize,
    /// Callers that wait.
    pub waiting: usize,
    /// Rounds of failed connects since a connect succeeded. Connects that begin before the first of them
    /// fails are one round.
    pub failures: u32,
    /// Error of the last connect that failed.
    pub last_error: Option<Arc<dyn Error + Send + Sync>>,
    /// Connections of old versions.
    pub leaving: Vec<Leaving>,
    /// Counts since the backend appeared.
    pub totals: Totals,
}

/// Connections that are left of an old version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Leaving {
    /// The version.
    pub version: Version,
    /// Connections in use. They are closed when they are returned.
    pub in_use: usize,
    /// Connects that have begun. Their connections will be closed.
    pub connecting: usize,
}

/// State of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BackendState {
    /// Connections are handed out.
    Open,
    /// Callers wait.
    Paused,
    /// Callers are refused.
    Disabled,
    /// The backend was retired, or the pool is closed. This state is final.
    Closed,
}

impl BackendState {
    /// Reason to close a connection that its user returns while the backend is in this state.
    pub(super) const fn discard(self) -> Discard {
        match self {
            Self::Open | Self::Paused => Discard::Paused,
            Self::Disabled => Discard::Disabled,
            Self::Closed => Discard::Closed,
        }
    }
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
            write!(f, ": rounds of connects that failed: {}: {error}", self.failures)?;
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

/// A connection in use, and its user.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Held<K> {
    /// Key of its backend.
    pub key: K,
    /// Version of its backend when it was made.
    pub version: Version,
    /// Time since it was handed out.
    pub held_for: Duration,
    /// Call that asked for it.
    pub location: &'static Location<'static>,
    /// Name of the thread that asked for it.
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

/// Connections that were left when a pool was [closed](super::Pool::close).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CloseReport<K> {
    /// Connections that were still in use at the deadline. They are closed when they are returned.
    pub held: Vec<Held<K>>,
    /// Connects that had not ended.
    pub connecting: usize,
}

/// Reason for which a backend was not quiet at the end of a [pause](super::Pool::pause).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PauseError<K> {
    /// These connections were not returned before the deadline. The backend is paused.
    StillHeld(Vec<Held<K>>),
    /// The backend was resumed, disabled or closed meanwhile.
    Interrupted,
}

impl<K: fmt::Display> fmt::Display for PauseError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StillHeld(held) => {
                write!(f, "{} connections are still in use", held.len())?;
                held.iter().try_for_each(|held| write!(f, "\n  {held}"))
            }
            Self::Interrupted => {
                f.write_str("the backend was resumed, disabled or closed meanwhile")
            }
        }
    }
}

impl<K: fmt::Debug + fmt::Display> Error for PauseError<K> {}
