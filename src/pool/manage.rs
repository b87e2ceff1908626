//! [`Manage`]: makes and checks connections.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::time;

/// Error of a manager, or of the pool in its place.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Makes connections and checks them.
///
/// *Shape*: one per pool. Several threads call it at a time: those that get and return connections, and
/// those of the [host](super::Host). No lock of the pool is held meanwhile, so a slow call delays only
/// its caller. A panic counts as a failure.
pub trait Manage: Send + Sync + 'static {
    /// Name of a backend.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// A connection to a backend. The pool closes it by dropping it.
    type Connection: Send + 'static;
    /// Reason for which a connection cannot be made, or cannot be used any more: an error type, a
    /// text, or a box of either.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// Makes a connection to this version of this backend, before the deadline.
    ///
    /// If a worker of a runtime makes the call, the pool announces it as a stall.
    ///
    /// # Errors
    ///
    /// The connection cannot be made. Callers go on waiting, and the pool tries again after a pause
    /// ([`Limits::backoff`](super::Limits::backoff)), unless the error
    /// [is permanent](Self::is_permanent). The last error is the source of the
    /// [`GetError`](super::GetError).
    fn connect(
        &self,
        target: &Target<'_, Self::Key>,
        deadline: time::Instant,
    ) -> Result<Self::Connection, Self::Error>;

    /// Returns true if the next connects would fail with the same error, for example because the backend
    /// does not know the user. *Default* false.
    ///
    /// All callers that wait for the backend get such an error at once, as
    /// [`GetError::ConnectFailed`](super::GetError::ConnectFailed). Callers that come during the pause
    /// after it get it too, unless a connection is idle. The first caller after the pause tries again.
    fn is_permanent(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }

    /// Checks a connection that was idle for [`check_after`](super::Limits::check_after), before it is
    /// handed out. May ask the backend: the pool announces the call like [`connect`](Self::connect).
    ///
    /// The call must limit its own waits, for example by a timeout of the socket. The pool cannot
    /// interrupt it, so the deadline of a `get` passes unnoticed meanwhile.
    ///
    /// # Errors
    ///
    /// The connection does not work any more. The pool closes it and takes another one.
    fn is_valid(
        &self,
        target: &Target<'_, Self::Key>,
        conn: &mut Self::Connection,
    ) -> Result<(), Self::Error> {
        let _ = (target, conn);
        Ok(())
    }

    /// Clears the state that the last user left, on the thread that returns the connection.
    ///
    /// A connection that a worker serves receives nothing while one of its callbacks runs. So if a reset
    /// awaits an answer, no callback of the connection may return it. Let another task return it, or reset
    /// it as a part of the protocol before the return.
    ///
    /// # Errors
    ///
    /// The state cannot be cleared. The pool closes the connection.
    fn reset(
        &self,
        target: &Target<'_, Self::Key>,
        conn: &mut Self::Connection,
    ) -> Result<(), Self::Error> {
        let _ = (target, conn);
        Ok(())
    }

    /// Returns true if the connection is known to be broken. Called when a connection is returned, before
    /// it is handed out and in [`remove_broken`](super::Pool::remove_broken), so it should not ask the
    /// backend.
    fn has_broken(&self, target: &Target<'_, Self::Key>, conn: &mut Self::Connection) -> bool {
        let _ = (target, conn);
        false
    }
}

/// Key of a backend, and its version.
#[derive(Debug)]
#[non_exhaustive]
pub struct Target<'a, K> {
    /// Key of the backend.
    pub key: &'a K,
    /// Number of fail-overs of the backend. [`connect`](Manage::connect) chooses the server by it.
    pub version: Version,
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

/// Number of [fail-overs](super::Pool::fail_over) of a backend. *Default* 0: none yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub struct Version(
    /// The number.
    pub u64,
);

impl Version {
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
