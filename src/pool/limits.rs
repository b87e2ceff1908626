//! [`Limits`]: how many connections a backend may have, and how long what may take.

use std::fmt;
use std::time::Duration;

/// How many connections a backend may have, and how long what may take.
///
/// Given to the [builder](super::Builder::limits) for all backends, and at any time to
/// [`Pool::set_limits`](super::Pool::set_limits) for all or
/// [`Pool::set_limits_of`](super::Pool::set_limits_of) for one.
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

/// Of what counts connections; a slot has a number of 32 bits.
const MOST: usize = 1 << 20;

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
    /// The most connections of a backend: idle, in use, and being made together. Default 20, from 1 to
    /// 2²⁰.
    ///
    /// Those of a version that was [failed over](super::Pool::fail_over) do not count: they are on
    /// their way out, and the next version has to serve meanwhile.
    #[must_use]
    pub const fn max(mut self, connections: usize) -> Self {
        self.max = connections;
        self
    }

    /// So many are kept idle, also when nobody asks. Default 0, at most [`max`](Self::max).
    ///
    /// They are made ahead by the [host](super::Host), and go when the backend is not used for
    /// [`unused_after`](Self::unused_after).
    #[must_use]
    pub const fn min_idle(mut self, connections: usize) -> Self {
        self.min_idle = connections;
        self
    }

    /// The most connects to a backend at a time. Default 4, at least 1.
    ///
    /// After a connect has failed it is one at a time, until one succeeds.
    #[must_use]
    pub const fn max_connecting(mut self, connects: usize) -> Self {
        self.max_connecting = connects;
        self
    }

    /// The most that wait for one backend; who comes then is refused. Default 65 536.
    #[must_use]
    pub const fn max_waiting(mut self, waiters: usize) -> Self {
        self.max_waiting = waiters;
        self
    }

    /// How long [`get`](super::Pool::get) waits for a connection. Default 5 s.
    #[must_use]
    pub const fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.wait_timeout = timeout;
        self
    }

    /// How long a connect may take: the deadline that [`connect`](super::Manage::connect) is told.
    /// Default 3 s.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// A connection that was idle for so long is closed, unless it is one of
    /// [`min_idle`](Self::min_idle). Default 10 min; [`Duration::MAX`] for never.
    ///
    /// Each connection has its own, up to a tenth shorter, so that not all go at once.
    #[must_use]
    pub const fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// A connection of this age is closed as soon as nobody uses it. Default 30 min;
    /// [`Duration::MAX`] for never. Up to a tenth shorter, like [`idle_timeout`](Self::idle_timeout).
    #[must_use]
    pub const fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// A connection that was idle for so long is asked [`is_valid`](super::Manage::is_valid) before
    /// it is handed out. Default 500 ms: who uses a connection often does not pay for a look at it.
    #[must_use]
    pub const fn check_after(mut self, idle: Duration) -> Self {
        self.check_after = idle;
        self
    }

    /// How long nobody connects after a connect failed. Default 50 ms; it doubles with each further
    /// failure up to the second value, default 1 s. Each pause is up to half shorter, by chance.
    #[must_use]
    pub const fn backoff(mut self, initial: Duration, max: Duration) -> Self {
        self.backoff_initial = initial;
        self.backoff_max = max;
        self
    }

    /// A backend that nobody asked for so long, and of which nothing is in use, vanishes with its idle
    /// connections. Default 5 min; [`Duration::MAX`] for never.
    ///
    /// One that was failed over, paused, disabled or given limits of its own stays, without
    /// connections, because that would be forgotten with it.
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
                return Err(LimitsError { field, value, least, most });
            }
        }
        Ok(())
    }
}

/// A limit that is out of its range; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsError {
    field: &'static str,
    value: usize,
    least: usize,
    most: usize,
}

impl LimitsError {
    /// The name of the limit.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, least, most } = self;
        write!(f, "{field} {value} is outside {least}..={most}")
    }
}

impl std::error::Error for LimitsError {}
