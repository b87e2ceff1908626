//! [`Manage`]: what the user of a pool knows about its connections.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::time::Instant;

/// Why a connection could not be made, or is of no more use.
pub type ManageError = Box<dyn Error + Send + Sync>;

/// What names a backend: anything that can be cloned, compared and hashed.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}

/// Makes connections, and looks at them.
///
/// Called on the threads that get and give back connections, and on those of the
/// [host](super::Host), several at a time; never under a lock of the pool, so that one call holds up
/// nobody else. A panic counts as a failure.
pub trait Manage<K, C>: Send + Sync + 'static {
    /// Makes a connection to this version of this backend, and gives up at the deadline.
    ///
    /// What it waits for is announced as a [stall](crate::stall) by the pool.
    ///
    /// # Errors
    ///
    /// It cannot. Whoever waits goes on waiting, and it is tried again after a pause
    /// ([`Limits::backoff`](super::Limits::backoff)); the last error is the source of the
    /// [`GetError`](super::GetError).
    fn connect(&self, target: &Target<'_, K>, deadline: Instant) -> Result<C, ManageError>;

    /// Whether the connection still serves, asked before it is handed out if it was idle for
    /// [`check_after`](super::Limits::check_after). May ask the backend.
    ///
    /// # Errors
    ///
    /// It does not: it is closed, and another one is taken.
    fn is_valid(&self, target: &Target<'_, K>, conn: &mut C) -> Result<(), ManageError> {
        let _ = (target, conn);
        Ok(())
    }

    /// Clears what the last user left behind, as the connection comes back, on the thread that gives
    /// it back.
    ///
    /// # Errors
    ///
    /// It cannot: the connection is closed.
    fn reset(&self, target: &Target<'_, K>, conn: &mut C) -> Result<(), ManageError> {
        let _ = (target, conn);
        Ok(())
    }

    /// Whether the connection is known to be broken: a quick look, without asking the backend, as it
    /// comes back and before it is handed out.
    fn has_broken(&self, target: &Target<'_, K>, conn: &mut C) -> bool {
        let _ = (target, conn);
        false
    }
}

/// Which connection it is about: the key of a backend, and the version of that backend.
#[derive(Debug)]
pub struct Target<'a, K> {
    pub(super) key: &'a K,
    pub(super) version: Version,
}

impl<'a, K> Target<'a, K> {
    /// The key.
    #[must_use]
    pub const fn key(&self) -> &'a K {
        self.key
    }

    /// How often it was failed over: which of several servers is meant.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }
}

impl<K> Clone for Target<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Target<'_, K> {}

/// `SPT0#1`
impl<K: fmt::Display> fmt::Display for Target<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.key, self.version)
    }
}

/// How often a backend was [failed over](super::Pool::fail_over).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version(u64);

impl Version {
    /// Never.
    pub const FIRST: Self = Self(0);

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
