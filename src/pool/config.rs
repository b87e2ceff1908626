//! [`Limits`] and [`Builder`]: how a pool is configured.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::host::{Host, Observer};
use super::manage::Manage;
use super::{Owner, Pool, Shared};

/// Number of connections of a backend, and time limits.
///
/// Given to the [builder](Builder::limits) for all backends, and at any time to
/// [`Pool::set_limits`] for all or [`Pool::set_limits_of`] for one.
///
/// ```
/// use std::time::Duration;
/// use epoll_group::pool::Limits;
///
/// let limits = Limits::default().max(50).min_idle(5).wait_timeout(Duration::from_secs(2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(super) max: usize,
    pub(super) min_idle: usize,
    pub(super) max_connecting: usize,
    pub(super) max_waiting: usize,
    pub(super) wait_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) max_age: Duration,
    pub(super) check_after: Duration,
    pub(super) backoff_initial: Duration,
    pub(super) backoff_max: Duration,
    pub(super) unused_after: Duration,
}

/// Largest value of a limit that counts.
const MOST: usize = 1 << 20;

/// Smallest value of a time limit that may not be zero.
const LEAST_TIME: Duration = Duration::from_millis(1);

impl Default for Limits {
    fn default() -> Self {
        Self {
            max: 20,
            min_idle: 0,
            max_connecting: 4,
            max_waiting: 65_536,
            wait_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(600),
            max_age: Duration::from_secs(1800),
            check_after: Duration::from_millis(500),
            backoff_initial: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            unused_after: Duration::from_secs(300),
        }
    }
}

impl Limits {
    /// Most connections of a backend: idle, in use and connecting together.
    ///
    /// *Range* 1..=2²⁰. *Default* 20. Connections of a version that was [failed over](Pool::fail_over)
    /// do not count: they end, and the next version has to serve meanwhile.
    #[must_use]
    pub const fn max(mut self, connections: usize) -> Self {
        self.max = connections;
        self
    }

    /// Idle connections that are kept although no caller needs them.
    ///
    /// *Range* 0..=[`max`](Self::max). *Default* 0. The [host](super::Host) makes them ahead. They go
    /// when the backend is not used for [`unused_after`](Self::unused_after).
    #[must_use]
    pub const fn min_idle(mut self, connections: usize) -> Self {
        self.min_idle = connections;
        self
    }

    /// Most connects to a backend at a time.
    ///
    /// *Range* 1..=2²⁰. *Default* 4. After a failure it is one at a time, until a connect succeeds.
    #[must_use]
    pub const fn max_connecting(mut self, connects: usize) -> Self {
        self.max_connecting = connects;
        self
    }

    /// Most callers that wait for one backend. A further caller is refused, unless a connect can begin
    /// for it.
    ///
    /// *Range* 0..=2²⁰. *Default* 65 536.
    #[must_use]
    pub const fn max_waiting(mut self, waiters: usize) -> Self {
        self.max_waiting = waiters;
        self
    }

    /// Longest wait of [`Pool::get`] for a connection.
    ///
    /// *Range* at least 1 ms. *Default* 5 s; [`Duration::MAX`] for no end. A caller that must not wait
    /// calls [`try_get`](super::Backend::try_get).
    #[must_use]
    pub const fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.wait_timeout = timeout;
        self
    }

    /// Longest time of a connect: the deadline that [`connect`](super::Manage::connect) gets.
    ///
    /// *Range* at least 1 ms. *Default* 3 s.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Idle time after which a connection is closed, unless it is one of [`min_idle`](Self::min_idle).
    ///
    /// *Range* from zero. *Default* 10 min; [`Duration::MAX`] for never. The time of each connection is
    /// up to a tenth shorter, by chance, so that not all close at once.
    #[must_use]
    pub const fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Age at which a connection is closed, as soon as it is not in use.
    ///
    /// *Range* at least 1 ms. *Default* 30 min; [`Duration::MAX`] for never. Up to a tenth shorter, like
    /// [`idle_timeout`](Self::idle_timeout).
    #[must_use]
    pub const fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Idle time after which [`is_valid`](super::Manage::is_valid) checks a connection before it is
    /// handed out.
    ///
    /// *Range* from zero, which is a check each time. *Default* 500 ms, so that a connection that is used often costs no
    /// check.
    #[must_use]
    pub const fn check_after(mut self, idle: Duration) -> Self {
        self.check_after = idle;
        self
    }

    /// Pause without connects after a connect has failed.
    ///
    /// *Range* from zero, for both times. *Default* 50 ms. It doubles with each further failure up to the second value,
    /// 1 s by default. Each pause is up to half shorter, by chance, but not below 1 ms.
    #[must_use]
    pub const fn backoff(mut self, initial: Duration, max: Duration) -> Self {
        self.backoff_initial = initial;
        self.backoff_max = max;
        self
    }

    /// Time after which a backend without callers and without connections in use vanishes with its idle
    /// connections.
    ///
    /// *Range* from zero. *Default* 5 min; [`Duration::MAX`] for never. A backend that was failed over,
    /// paused, disabled or given limits of its own stays, because that would be forgotten with it.
    #[must_use]
    pub const fn unused_after(mut self, unused: Duration) -> Self {
        self.unused_after = unused;
        self
    }

    pub(super) fn check(&self) -> Result<(), LimitsError> {
        let checks = [
            ("max", self.max, 1, MOST),
            ("min_idle", self.min_idle, 0, self.max),
            ("max_connecting", self.max_connecting, 1, MOST),
            ("max_waiting", self.max_waiting, 0, MOST),
        ];
        for (field, value, least, most) in checks {
            if value < least || value > most {
                return Err(LimitsError { field, range: Range::Count { value, least, most } });
            }
        }
        let times = [
            ("wait_timeout", self.wait_timeout),
            ("connect_timeout", self.connect_timeout),
            ("max_age", self.max_age),
        ];
        for (field, value) in times {
            if value < LEAST_TIME {
                return Err(LimitsError { field, range: Range::Time { value } });
            }
        }
        Ok(())
    }
}

/// Error for a limit outside its range. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsError {
    field: &'static str,
    range: Range,
}

/// Value of a limit, and the range that it is outside of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Range {
    Count { value: usize, least: usize, most: usize },
    Time { value: Duration },
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field;
        match self.range {
            Range::Count { value, least, most } => {
                write!(f, "{field} {value} is outside {least}..={most}")
            }
            Range::Time { value } => write!(f, "{field} {value:?} is below {LEAST_TIME:?}"),
        }
    }
}

impl std::error::Error for LimitsError {}

/// Makes a [`Pool`].
#[must_use]
pub struct Builder<M: Manage> {
    manage: M,
    limits: Limits,
    observer: Option<Box<dyn Observer<M::Key>>>,
    host: Option<Arc<dyn Host>>,
}

impl<M: Manage> Builder<M> {
    pub(super) fn new(manage: M) -> Self {
        Self { manage, limits: Limits::default(), observer: None, host: None }
    }

    /// Sets the limits of each backend.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the observer, which receives the events of the pool.
    pub fn observer(mut self, observer: impl Observer<M::Key>) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Sets the host, which runs the code that needs another thread than a caller's. Without it the
    /// pool has a thread of its own.
    pub fn maintained_by(mut self, host: impl Host) -> Self {
        self.host = Some(Arc::new(host));
        self
    }

    /// Makes the pool. Nothing is connected.
    ///
    /// # Errors
    ///
    /// A limit is outside its range, or the thread of the pool cannot be started.
    pub fn build(self) -> Result<Pool<M>, BuildError> {
        self.limits.check().map_err(BuildError::Limits)?;
        let host = match self.host {
            Some(host) => host,
            None => own_host().map_err(BuildError::Thread)?,
        };
        let shared = Shared::new(self.manage, host, self.observer, self.limits);
        Ok(Pool { owner: Arc::new(Owner { shared: Arc::new(shared) }) })
    }
}

#[cfg(not(loom))]
fn own_host() -> io::Result<Arc<dyn Host>> {
    Ok(Arc::new(super::host::OwnThread::start()?))
}

/// A model has a host of its own.
#[cfg(loom)]
fn own_host() -> io::Result<Arc<dyn Host>> {
    Err(io::Error::other("a model has its own host"))
}

impl<M: Manage> fmt::Debug for Builder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Reason for which a pool was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit is outside its range.
    Limits(LimitsError),
    /// The thread of the pool cannot be started.
    Thread(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "thread of the pool: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Limits(_) => None,
            Self::Thread(error) => Some(error),
        }
    }
}
