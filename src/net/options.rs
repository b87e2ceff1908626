//! Options of one listener, and of one outgoing connection.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::admissions::Admissions;
use super::layer::{MakeLayer, Makers};
use super::proxy_protocol::{AcceptHeaders, Network, ProxyHeader, ProxyVersion, SendHeader};
use crate::config::{Config, ConfigError};
use crate::sys::socket::Prepare;

/// Effect of a backlog above `write_high_watermark_bytes`, that is, of a peer that does not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FullBacklog {
    /// The connection is not read until its backlog is at `write_low_watermark_bytes`. This suits a
    /// server, whose replies are the answers to that input.
    #[default]
    PauseReads,
    /// The connection is read on. This suits a proxy, which instead
    /// [pauses](super::Connection::pause_reads) the connection from which the bytes come. The backlog
    /// of a protocol that does not do so grows up to its share of `max_buffered_bytes`, and then the
    /// connection is closed.
    Notify,
}

/// Options that a connection has from its listener, or from the call that connected it. A time-out
/// that is `None` is the one of the configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnOptions {
    pub(super) full_backlog: FullBacklog,
    pub(super) first_bytes_timeout: Option<Duration>,
    pub(super) frame_timeout: Option<Duration>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) net_write_timeout: Option<Duration>,
    pub(super) handshake_timeout: Option<Duration>,
    pub(super) layers: Makers,
    /// Present if a listener accepted the connection.
    pub(super) admissions: Option<Arc<Admissions>>,
}

impl ConnOptions {
    /// Checks that each time-out is in the range of the tunable with its name.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let mut config = Config::default();
        if let Some(limit) = self.first_bytes_timeout {
            config = config.first_bytes_timeout(limit);
        }
        if let Some(limit) = self.frame_timeout {
            config = config.frame_timeout(limit);
        }
        if let Some(limit) = self.idle_timeout {
            config = config.idle_timeout(limit);
        }
        if let Some(limit) = self.net_write_timeout {
            config = config.net_write_timeout(limit);
        }
        if let Some(limit) = self.handshake_timeout {
            config = config.handshake_timeout(limit);
        }
        config.validate()
    }

    /// Returns the time for the first bytes, unless it has no limit.
    pub(super) fn time_for_first_bytes(&self, config: &Config) -> Option<Duration> {
        let limit = self.first_bytes_timeout.unwrap_or(config.first_bytes_timeout);
        (!limit.is_zero()).then_some(limit)
    }
}

/// Options of one listener and its connections, for [`listen_with`](crate::Handle::listen_with). An
/// option that is not set has the value in the [`Config`]. A time-out has the range of the tunable
/// with its name.
///
/// ```
/// # use std::time::Duration;
/// # use epoll_group::net::ListenOptions;
/// let public = ListenOptions::new()
///     .max_connections(10_000)
///     .max_connections_per_address(100)
///     .idle_timeout(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    pub(super) conn: ConnOptions,
    pub(super) max_connections: Option<usize>,
    pub(super) max_connections_per_address: Option<usize>,
    /// Set if clients, and not peers, are limited by address.
    pub(super) by_client: bool,
    pub(super) reuse_port: bool,
    pub(super) replace_stale_file: bool,
    pub(super) prepare: Option<Prepare>,
}

impl ListenOptions {
    /// Creates the options of [`listen`](crate::Handle::listen).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the effect of a full backlog. [`FullBacklog::PauseReads`] by default.
    #[must_use]
    pub const fn full_backlog(mut self, effect: FullBacklog) -> Self {
        self.conn.full_backlog = effect;
        self
    }

    /// Limits the connections of this listener. Further ones are closed at once. A connection counts
    /// until it has ended, so a peer that comes again at once may be refused. `max_connections` of the
    /// configuration, which counts the connections of all listeners, stays in force.
    #[must_use]
    pub const fn max_connections(mut self, most: usize) -> Self {
        self.max_connections = Some(most);
        self
    }

    /// Limits the connections from one address, counted as for
    /// [`max_connections`](Self::max_connections). Further ones are closed at once. IPv6 addresses
    /// with the same first 64 bits count as one, and so do all peers of a Unix socket.
    #[must_use]
    pub const fn max_connections_per_address(mut self, most: usize) -> Self {
        self.max_connections_per_address = Some(most);
        self
    }

    /// Sets the time within which a peer must send its first bytes. Zero switches it off.
    #[must_use]
    pub const fn first_bytes_timeout(mut self, limit: Duration) -> Self {
        self.conn.first_bytes_timeout = Some(limit);
        self
    }

    /// Sets the time within which a frame that has begun must be complete.
    #[must_use]
    pub const fn frame_timeout(mut self, limit: Duration) -> Self {
        self.conn.frame_timeout = Some(limit);
        self
    }

    /// Sets the time after which a connection is closed if nothing is received or sent and nothing is
    /// in progress, as in [`Config::idle_timeout`](crate::Config::idle_timeout). It begins with the first
    /// received bytes; before, [`first_bytes_timeout`](Self::first_bytes_timeout) counts if it is not
    /// zero. Zero switches it off. [`Connection::set_idle_timeout`] changes it later.
    ///
    /// [`Connection::set_idle_timeout`]: super::Connection::set_idle_timeout
    #[must_use]
    pub const fn idle_timeout(mut self, limit: Duration) -> Self {
        self.conn.idle_timeout = Some(limit);
        self
    }

    /// Sets the time within which a peer must take the bytes that wait for it.
    #[must_use]
    pub const fn net_write_timeout(mut self, limit: Duration) -> Self {
        self.conn.net_write_timeout = Some(limit);
        self
    }

    /// Adds a [`Layer`](super::Layer) to each connection, above those added before.
    #[must_use]
    pub fn layer(mut self, maker: impl MakeLayer) -> Self {
        self.conn.layers.push(maker);
        self
    }

    /// Sets the time within which the layers must be ready.
    #[must_use]
    pub const fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.conn.handshake_timeout = Some(limit);
        self
    }

    /// Expects a PROXY header of version 1 or 2 at the beginning of each connection, and ends connections
    /// from addresses outside of the trusted networks, and those that begin otherwise. The peers of a Unix
    /// socket are trusted, because the permissions of its file limit them. An abstract name has no file.
    ///
    /// The address in the header is the [`client_addr`](super::Connection::client_addr) of the connection,
    /// for which [`max_connections_per_address`](Self::max_connections_per_address) counts. The header
    /// itself is an [extension](super::Connection::extension). It must arrive within
    /// [`handshake_timeout`](Self::handshake_timeout). Further fields of version 2 (TLV) are skipped. If
    /// there are further [layers](Self::layer), such as TLS, call this first.
    #[must_use]
    pub fn proxy_protocol(mut self, trusted: impl IntoIterator<Item = Network>) -> Self {
        self.by_client = true;
        self.layer(AcceptHeaders::new(trusted))
    }

    /// Shares the TCP port with other processes of the same user (`SO_REUSEPORT`). The kernel spreads
    /// new connections over all of them. The first listener must set this too, unless its runtime has
    /// several groups, which share the port in the same way. A process that ends resets the
    /// connections that it has not accepted; to pass listeners on without that, see
    /// [`Listener::sockets`](super::Listener::sockets). Unix sockets and ready ones have no such option.
    #[must_use]
    pub const fn reuse_port(mut self, shared: bool) -> Self {
        self.reuse_port = shared;
        self
    }

    /// Replaces the file of a Unix socket on which no process listens, as a killed process leaves it
    /// behind. Otherwise the address counts as in use. Two processes that start at the same time may
    /// each replace the file of the other one. TCP addresses and abstract names have no file.
    #[must_use]
    pub const fn replace_stale_file(mut self, replace: bool) -> Self {
        self.replace_stale_file = replace;
        self
    }

    /// Calls this for each listening socket before it is bound, to set options for which there is no
    /// setter, such as `IP_TRANSPARENT` or `SO_MARK`. Accepted TCP sockets inherit most of them, Unix sockets
    /// none. For a ready listener it is called when it is taken over.
    #[must_use]
    pub fn prepare_socket<F>(mut self, code: F) -> Self
    where
        F: Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync + 'static,
    {
        self.prepare = Some(Prepare::new(code));
        self
    }
}

/// Options of an outgoing connection, for [`connect_with`](crate::Handle::connect_with). An option that
/// is not set has the value in the [`Config`]. A time-out has the range of the tunable with its name.
///
/// Nothing limits the time for an answer. A protocol that awaits one sets a timer with
/// [`Handle::after`](crate::Handle::after), and then closes the connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    pub(super) conn: ConnOptions,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) local_addr: Option<SocketAddr>,
    pub(super) prepare: Option<Prepare>,
}

impl ConnectOptions {
    /// Creates the options of [`connect`](crate::Handle::connect).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the effect of a full backlog. [`FullBacklog::PauseReads`] by default.
    #[must_use]
    pub const fn full_backlog(mut self, effect: FullBacklog) -> Self {
        self.conn.full_backlog = effect;
        self
    }

    /// Sets the time within which the connection must be established. Without it each address has
    /// the kernel's limit, about two minutes.
    #[must_use]
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = Some(limit);
        self
    }

    /// Sets the local address of a TCP connection. Port 0 lets the kernel choose a port, of which there
    /// are about 28 000 for all connections from that address. If
    /// [`prepare_socket`](Self::prepare_socket) sets `IP_BIND_ADDRESS_NO_PORT`, there are as many for
    /// each server.
    #[must_use]
    pub const fn local_addr(mut self, addr: SocketAddr) -> Self {
        self.local_addr = Some(addr);
        self
    }

    /// Sets the time within which a frame that has begun must be complete.
    #[must_use]
    pub const fn frame_timeout(mut self, limit: Duration) -> Self {
        self.conn.frame_timeout = Some(limit);
        self
    }

    /// Sets the time within which the peer must take the bytes that wait for it.
    #[must_use]
    pub const fn net_write_timeout(mut self, limit: Duration) -> Self {
        self.conn.net_write_timeout = Some(limit);
        self
    }

    #[cfg(feature = "client")]
    pub(crate) fn layers(mut self, makers: Makers) -> Self {
        self.conn.layers = makers;
        self
    }

    /// Adds a [`Layer`](super::Layer) to the connection, above those added before.
    #[must_use]
    pub fn layer(mut self, maker: impl MakeLayer) -> Self {
        self.conn.layers.push(maker);
        self
    }

    /// Sends a PROXY header before the first bytes, to a server that expects one. If there are further
    /// [layers](Self::layer), such as TLS, call this first.
    #[must_use]
    pub fn proxy_header(self, version: ProxyVersion, header: &ProxyHeader) -> Self {
        self.layer(SendHeader::new(version, header))
    }

    /// Sets the time within which the layers must be ready.
    #[must_use]
    pub const fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.conn.handshake_timeout = Some(limit);
        self
    }

    /// Calls this for the socket before it is bound and connected, to set options for which there is no
    /// setter, such as `IP_TRANSPARENT` or `SO_MARK`.
    #[must_use]
    pub fn prepare_socket<F>(mut self, code: F) -> Self
    where
        F: Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync + 'static,
    {
        self.prepare = Some(Prepare::new(code));
        self
    }
}
