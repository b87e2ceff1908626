//! [`Options`]: address, account, limits and timeouts of a client.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Address, account and limits of a client.
///
/// *Shape*: built by its setters, checked by [`Client::new`](super::Client::new). `Debug` hides the
/// password.
///
/// ```
/// use std::time::Duration;
///
/// use epoll_group::client::Options;
///
/// let options = Options::new("127.0.0.1:33660", "root")
///     .password("secret")
///     .connections(2)
///     .request_timeout(Duration::from_secs(30));
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct Options {
    pub(super) address: String,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) connections: usize,
    pub(super) sessions_per_connection: usize,
    pub(super) max_connecting: usize,
    pub(super) max_waiting: usize,
    pub(super) max_pipelined: usize,
    pub(super) max_unsent_bytes: usize,
    pub(super) max_answer_bytes: usize,
    pub(super) window_bytes: usize,
    pub(super) session_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) login_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) probe_interval: Duration,
    pub(super) probe_timeout: Duration,
    pub(super) reconnect_min: Duration,
    pub(super) reconnect_max: Duration,
}

impl Options {
    /// Options for the server at `address` (`host:port`, or `unix:/path`), with a login as `user`
    /// without a password.
    #[must_use]
    pub fn new(address: impl Into<String>, user: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            user: user.into(),
            password: String::new(),
            connections: 4,
            sessions_per_connection: 1024,
            max_connecting: 2,
            max_waiting: 65_536,
            max_pipelined: 64,
            max_unsent_bytes: 16 << 20,
            max_answer_bytes: 128 << 20,
            window_bytes: 1 << 20,
            session_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            login_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(900),
            probe_interval: Duration::from_secs(10),
            probe_timeout: Duration::from_secs(5),
            reconnect_min: Duration::from_millis(50),
            reconnect_max: Duration::from_secs(2),
        }
    }

    /// Password of the account. *Default* none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = password.into();
        self
    }

    /// Most connections. Each session gets its own connection first, before sessions share one.
    /// *Range* 1..=1024. *Default* 4. *Price*: a socket and some KiB each, on both sides.
    #[must_use]
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Most sessions on one connection. Further callers wait. *Range* 1..=1048576. *Default* 1024,
    /// as in the protocol's Java client. *Price*: the server holds a session for each.
    #[must_use]
    pub const fn sessions_per_connection(mut self, sessions: usize) -> Self {
        self.sessions_per_connection = sessions;
        self
    }

    /// Most connections that are made at the same time. *Range* 1..=1024. *Default* 2. *Price*: a
    /// restarted server gets this number of logins at once.
    #[must_use]
    pub const fn max_connecting(mut self, connections: usize) -> Self {
        self.max_connecting = connections;
        self
    }

    /// Most callers that wait for a session. Further callers get an error. *Range* 0..=16777216.
    /// *Default* 65536.
    #[must_use]
    pub const fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = callers;
        self
    }

    /// Most requests of one session on the wire. Further ones wait in the client. *Range* 1..=4096.
    /// *Default* 64, half of what servers accept (`max_queued_messages` 128).
    #[must_use]
    pub const fn max_pipelined(mut self, requests: usize) -> Self {
        self.max_pipelined = requests;
        self
    }

    /// Backlog of a connection, in bytes, above which requests wait in the client. *Range* 64
    /// KiB..=1 GiB. *Default* 16 MiB.
    #[must_use]
    pub const fn max_unsent_bytes(mut self, bytes: usize) -> Self {
        self.max_unsent_bytes = bytes;
        self
    }

    /// Most unread bytes of one answer, for a server that ignores `window_bytes` or cannot use it
    /// (auto-commit statements). A longer answer ends in an error. The same limit holds for the
    /// rows of a chunk, and for columns, warnings and texts together. *Range* 1 MiB..=4 GiB.
    /// *Default* 128 MiB.
    #[must_use]
    pub const fn max_answer_bytes(mut self, bytes: usize) -> Self {
        self.max_answer_bytes = bytes;
        self
    }

    /// Bytes of an answer that the server may send ahead of the reader. Rounded up to KiB. *Range*
    /// 1 KiB..=1 GiB. *Default* 1 MiB. *Price*: each answer that is read slowly may take 2.2 times as
    /// much memory, and a row. A new window is granted when a fifth is left, and another one if the
    /// server stops before it gets that. With less, a fast reader waits for the server more often.
    #[must_use]
    pub const fn window_bytes(mut self, bytes: usize) -> Self {
        self.window_bytes = bytes;
        self
    }

    /// Time that a caller waits for a session, unless it gives another one. *Range* 1 ms..=1 day.
    /// *Default* 5 s.
    #[must_use]
    pub const fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Time in which a connection must be established. *Range* 1 ms..=1 day. *Default* 3 s.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Time in which the login must be answered. *Range* 1 ms..=1 day. *Default* 3 s.
    #[must_use]
    pub const fn login_timeout(mut self, timeout: Duration) -> Self {
        self.login_timeout = timeout;
        self
    }

    /// Time from the call of a request to the end of its answer, unless the request sets another
    /// one. *Range* 1 ms..=365 days. *Default* 900 s.
    #[must_use]
    pub const fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Time without a byte from the server after which the client probes the connection. *Range* 1
    /// ms..=1 day. *Default* 10 s.
    #[must_use]
    pub const fn probe_interval(mut self, interval: Duration) -> Self {
        self.probe_interval = interval;
        self
    }

    /// Time after a probe in which the server must send a byte. Otherwise the client closes the
    /// connection. *Range* 1 ms..=1 day. *Default* 5 s.
    #[must_use]
    pub const fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.probe_timeout = timeout;
        self
    }

    /// Pause after the first failed connection. It doubles with each further failure, and is drawn
    /// at random between half and all of it. *Range* 1 ms..=1 day. *Default* 50 ms.
    #[must_use]
    pub const fn reconnect_min(mut self, wait: Duration) -> Self {
        self.reconnect_min = wait;
        self
    }

    /// Longest pause between two attempts to connect. A connection that ends sooner than that
    /// counts as failed. *Range* 1 ms..=1 day. *Default* 2 s.
    #[must_use]
    pub const fn reconnect_max(mut self, wait: Duration) -> Self {
        self.reconnect_max = wait;
        self
    }

    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let number = |name, value: usize, range: RangeInclusive<usize>| {
            let fits = range.contains(&value);
            let bad = || OptionsError::new(name, value.to_string(), format!("{range:?}"));
            if fits { Ok(()) } else { Err(bad()) }
        };
        let time = |name, value: Duration, max: Duration| {
            let range = Duration::from_millis(1)..=max;
            let bad = || OptionsError::new(name, format!("{value:?}"), format!("{range:?}"));
            if range.contains(&value) { Ok(()) } else { Err(bad()) }
        };
        number("connections", self.connections, 1..=1024)?;
        number("sessions_per_connection", self.sessions_per_connection, 1..=1 << 20)?;
        number("max_connecting", self.max_connecting, 1..=1024)?;
        number("max_waiting", self.max_waiting, 0..=1 << 24)?;
        number("max_pipelined", self.max_pipelined, 1..=4096)?;
        number("max_unsent_bytes", self.max_unsent_bytes, 64 << 10..=1 << 30)?;
        number("max_answer_bytes", self.max_answer_bytes, 1 << 20..=4 << 30)?;
        number("window_bytes", self.window_bytes, 1 << 10..=1 << 30)?;
        let day = Duration::from_secs(86_400);
        time("session_timeout", self.session_timeout, day)?;
        time("connect_timeout", self.connect_timeout, day)?;
        time("login_timeout", self.login_timeout, day)?;
        time("request_timeout", self.request_timeout, 365 * day)?;
        time("probe_interval", self.probe_interval, day)?;
        time("probe_timeout", self.probe_timeout, day)?;
        time("reconnect_min", self.reconnect_min, day)?;
        time("reconnect_max", self.reconnect_max, day)?;
        if self.reconnect_max < self.reconnect_min {
            let (value, min) = (self.reconnect_max, self.reconnect_min);
            let range = format!("reconnect_min {min:?} and more");
            return Err(OptionsError::new("reconnect_max", format!("{value:?}"), range));
        }
        if self.user.is_empty() || self.user.contains('\0') {
            let allowed = "a name without zero bytes".to_owned();
            return Err(OptionsError::new("user", format!("{:?}", self.user), allowed));
        }
        Ok(())
    }

    /// `window_bytes` in KiB, the unit of the protocol.
    pub(super) fn window_kib(&self) -> i32 {
        i32::try_from(self.window_bytes.div_ceil(1024)).unwrap_or(i32::MAX)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All fields but the password.
        f.debug_struct("Options")
            .field("address", &self.address)
            .field("user", &self.user)
            .field("connections", &self.connections)
            .field("sessions_per_connection", &self.sessions_per_connection)
            .field("max_connecting", &self.max_connecting)
            .field("max_waiting", &self.max_waiting)
            .field("max_pipelined", &self.max_pipelined)
            .field("max_unsent_bytes", &self.max_unsent_bytes)
            .field("max_answer_bytes", &self.max_answer_bytes)
            .field("window_bytes", &self.window_bytes)
            .field("session_timeout", &self.session_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("login_timeout", &self.login_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("probe_interval", &self.probe_interval)
            .field("probe_timeout", &self.probe_timeout)
            .field("reconnect_min", &self.reconnect_min)
            .field("reconnect_max", &self.reconnect_max)
            .finish_non_exhaustive()
    }
}

/// Error of an option that is out of its range: name, value and range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError {
    name: &'static str,
    value: String,
    range: String,
}

impl OptionsError {
    pub(super) const fn new(name: &'static str, value: String, range: String) -> Self {
        Self { name, value, range }
    }

    /// Name of the option.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, not in {}", self.name, self.value, self.range)
    }
}

impl Error for OptionsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let good = || Options::new("127.0.0.1:1", "root");
        assert_eq!(good().check(), Ok(()));
        let bad = good().connections(0).check().map_err(|error| error.to_string());
        assert_eq!(bad, Err("connections is 0, not in 1..=1024".into()));
        let bad = good().reconnect_min(Duration::from_secs(3)).check();
        assert_eq!(bad.map_err(|error| error.field()), Err("reconnect_max"));
        let bad = Options::new("127.0.0.1:1", "").check();
        assert_eq!(bad.map_err(|error| error.field()), Err("user"));
    }

    #[test]
    fn the_password_is_not_shown() {
        let shown = format!("{:?}", Options::new("a:1", "root").password("secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
