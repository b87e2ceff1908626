//! [`Options`]: address, account, limits and timeouts of a client.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::codec::frame::Dialect;
use crate::config::ConfigError;
use crate::net::{MakeLayer, Makers};

/// Makes the struct with its defaults, setters and checks, from the table.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct Options {
            $($(#[$doc:meta])* $name:ident: $type:ty = $default:expr, $range:expr;)+
        }
    ) => {
        $(#[$meta])*
        pub struct Options {
            pub(super) address: String,
            pub(super) user: String,
            pub(super) password: Secret,
            pub(super) layers: Makers,
            pub(super) dialect: Dialect,
            $(pub(super) $name: $type,)+
        }

        impl Options {
            /// Options for the server at `address` (`host:port`, or `unix:/path`), with a login as
            /// `user` without a password.
            #[must_use]
            pub fn new(address: impl Into<String>, user: impl Into<String>) -> Self {
                Self {
                    address: address.into(),
                    user: user.into(),
                    password: Secret(String::new()),
                    layers: Makers::default(),
                    dialect: Dialect::Legacy,
                    $($name: $default,)+
                }
            }

            $($(#[$doc])* #[must_use] pub const fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            })+

            fn check_ranges(&self) -> Result<(), ConfigError> {
                $(within(stringify!($name), self.$name, $range)?;)+
                Ok(())
            }
        }
    };
}

options! {
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
    #[derive(Clone, Debug)]
    pub struct Options {
        /// Most connections. While there are fewer connections than sessions, more are made for
        /// later sessions. A session goes to the ready connection with the fewest sessions. *Range*
        /// 1..=1024. *Default* 4. *Price*: a socket and some KiB each, on both sides.
        connections: usize = 4, 1..=1024;

        /// Most sessions on one connection. Further callers wait. *Range* 1..=1048576. *Default*
        /// 1024, as in the protocol's Java client. *Price*: the server holds a session for each.
        sessions_per_connection: usize = 1024, 1..=1 << 20;

        /// Most connections that are made at the same time. *Range* 1..=1024. *Default* 2. *Price*:
        /// a restarted server gets this number of logins at once.
        max_connecting: usize = 2, 1..=1024;

        /// Most callers that wait for a session. Further callers get an error. *Range*
        /// 0..=16777216. *Default* 65536.
        max_waiting: usize = 65_536, 0..=1 << 24;

        /// Most outstanding requests of a session: held in the client, on the wire, or answered and
        /// not taken. A further one gets an error. *Range* 1..=16777216. *Default* 4096. *Price*: the
        /// client holds the text of each request, and up to `window_bytes` of each answer that was not
        /// taken.
        max_outstanding: usize = 4096, 1..=1 << 24;

        /// Most requests of one session on the wire. Further ones wait in the client. *Range*
        /// 1..=4096. *Default* 64, half of what servers accept (`max_queued_messages` 128).
        max_pipelined: usize = 64, 1..=4096;

        /// Backlog of a connection, in bytes, above which requests wait in the client. *Range* 64
        /// KiB..=1 GiB. *Default* 16 MiB.
        max_unsent_bytes: usize = 16 << 20, 64 << 10..=1 << 30;

        /// Most unread bytes of one answer, for a server that ignores `window_bytes` or cannot use
        /// it (auto-commit statements). A longer answer ends in an error. The same limit holds for
        /// the rows of a chunk, and for columns, warnings and texts together. *Range* 1 MiB..=4
        /// GiB. *Default* 128 MiB.
        max_answer_bytes: usize = 128 << 20, 1 << 20..=4 << 30;

        /// Bytes of an answer that the server may send ahead of the reader. Rounded up to KiB.
        /// *Range* 1 KiB..=1 GiB. *Default* 1 MiB. *Price*: each answer that is read slowly may
        /// take 2.2 times as much memory, and a row. A new window is granted when a fifth is left,
        /// and another one if the server stops before it gets the grant. With a smaller window, a
        /// fast reader waits for the server more often.
        window_bytes: usize = 1 << 20, 1 << 10..=1 << 30;

        /// Time that a caller waits for a session, unless it gives another one. *Range* 1 ms..=1
        /// day. *Default* 5 s.
        session_timeout: Duration = 5 * SECOND, MILLISECOND..=DAY;

        /// Time in which a connection must be established. If the name of the server has several
        /// addresses, each gets an equal share of the time that is left. *Range* 1 ms..=1 day.
        /// *Default* 3 s.
        connect_timeout: Duration = 3 * SECOND, MILLISECOND..=DAY;

        /// Time in which the login must be answered. *Range* 1 ms..=1 day. *Default* 3 s.
        login_timeout: Duration = 3 * SECOND, MILLISECOND..=DAY;

        /// Time from the call of a request to the end of its answer, unless the request sets
        /// another one. *Range* 1 ms..=365 days. *Default* 900 s.
        request_timeout: Duration = 900 * SECOND, MILLISECOND..=365 * DAY;

        /// Time without a byte from the server after which the client probes the connection.
        /// *Range* 1 ms..=1 day. *Default* 10 s.
        probe_interval: Duration = 10 * SECOND, MILLISECOND..=DAY;

        /// Time after a probe in which the server must send a byte. Otherwise the client closes the
        /// connection. *Range* 1 ms..=1 day. *Default* 5 s.
        probe_timeout: Duration = 5 * SECOND, MILLISECOND..=DAY;

        /// Pause after the first failed connection. It doubles with each further failure, and is
        /// drawn at random between half and all of it. *Range* 1 ms..=1 day. *Default* 50 ms.
        reconnect_min: Duration = 50 * MILLISECOND, MILLISECOND..=DAY;

        /// Longest pause between two attempts to connect. A connection that ends sooner than that
        /// lengthens the pauses as a failed one does. *Range* 1 ms..=1 day. *Default* 2 s.
        reconnect_max: Duration = 2 * SECOND, MILLISECOND..=DAY;
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

impl Options {
    /// Password of the account. *Default* none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Secret(password.into());
        self
    }

    /// Form of the headers and of the columns, which must be that of the server
    /// (`galaxy_protocol`). The bytes of the server do not show the form. Frames of
    /// [`Answer::try_frame`](super::Answer::try_frame) have the same form. *Range* versions
    /// 0..=127. *Default* [`Dialect::Legacy`].
    #[must_use]
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Adds a [`Layer`](crate::net::Layer) to each connection, above those added before.
    #[must_use]
    pub fn layer(mut self, maker: impl MakeLayer) -> Self {
        self.layers.push(maker);
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.check_ranges()?;
        if let Dialect::Galaxy { version } = self.dialect {
            within("dialect", version, 0..=127)?;
        }
        within("reconnect_max", self.reconnect_max, self.reconnect_min..=DAY)?;
        if self.user.is_empty() || self.user.contains('\0') {
            let allowed = "non-empty names without zero bytes".into();
            return Err(ConfigError::out_of_range("user", &self.user, allowed));
        }
        Ok(())
    }

    /// `window_bytes` in KiB, the unit of the protocol.
    pub(super) fn window_kib(&self) -> i32 {
        i32::try_from(self.window_bytes.div_ceil(1024)).unwrap_or(i32::MAX)
    }
}

/// Text that `Debug` hides.
#[derive(Clone)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

fn within<T: PartialOrd + fmt::Debug>(
    name: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ConfigError::out_of_range(name, value, format!("{range:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let good = || Options::new("127.0.0.1:1", "root");
        assert_eq!(good().check(), Ok(()));
        let bad = good().connections(0).check().map_err(|error| error.to_string());
        assert_eq!(bad, Err("connections 0 is outside 1..=1024".into()));
        let bad = good().reconnect_min(Duration::from_secs(3)).check();
        assert_eq!(bad.map_err(|error| error.field), Err("reconnect_max"));
        let bad = good().dialect(Dialect::Galaxy { version: 128 }).check();
        assert_eq!(
            bad.map_err(|error| error.to_string()),
            Err("dialect 128 is outside 0..=127".into())
        );
        let bad = Options::new("127.0.0.1:1", "").check();
        assert_eq!(bad.map_err(|error| error.field), Err("user"));
    }

    #[test]
    fn the_password_is_not_shown() {
        let shown = format!("{:?}", Options::new("a:1", "root").password("secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
