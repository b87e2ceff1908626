//! Listeners of the user, and outgoing connections.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use super::Protocol;
use super::accept::{Acceptor, Part, Refused, Shared, remove_stale, serve, tuning};
use super::address::{Address, ToAddress, nowhere};
use super::admissions::{Admissions, ListenerStats};
use super::conn::Conn;
use super::connection::{ConnectError, Connection};
use super::handler::{Erased, Typed};
use super::options::{ConnOptions, ConnectOptions, ListenOptions};
use super::recv_state::Recv;
use super::route::{Attempt, Route};
use crate::config::ConfigError;
use crate::runtime::Handle;
use crate::stats::Counter;
use crate::sys::socket::{self, Options, Prepare};

/// Owner of an open listener. Dropping it stops the listener: connections in its backlog are still
/// accepted and served, so no peer is reset. Then it closes. Its connections and other listeners
/// continue. The end of the runtime closes the listener too.
#[derive(Debug)]
#[must_use = "dropped, it stops the listener"]
pub struct Listener {
    local: Address,
    parts: Vec<Part>,
    /// Gone when all sockets are closed.
    shared: Weak<Shared>,
    admissions: Arc<Admissions>,
}

impl Listener {
    /// Returns the address on which it listens. If port 0 was asked for, this has the real port.
    #[must_use]
    pub const fn local_addr(&self) -> &Address {
        &self.local
    }

    /// Returns the number of its connections: open, accepted, refused.
    #[must_use]
    pub fn stats(&self) -> ListenerStats {
        self.admissions.stats()
    }

    /// Returns a function that reads [`stats`](Self::stats), also when the listener is gone.
    #[cfg(feature = "status")]
    pub(crate) fn stats_reader(&self) -> impl Fn() -> ListenerStats + use<> {
        let admissions = Arc::clone(&self.admissions);
        move || admissions.stats()
    }

    /// Returns duplicates of the descriptors of the listening sockets, to pass them to a successor,
    /// which can serve them by [`listen_on`](Handle::listen_on). When the successor listens, drop this
    /// listener. The connections in the backlog are then left to the successor, and so is the file of a
    /// Unix socket. This is so from this call on, also if the successor fails. The example `handover`
    /// loses no request that way.
    ///
    /// # Errors
    ///
    /// If the listener is closed, or descriptors run out.
    pub fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        let sockets = self.parts.iter().map(Part::duplicate).collect::<Result<_, _>>()?;
        if let Some(shared) = self.shared.upgrade() {
            shared.pass_on();
        }
        Ok(sockets)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for part in &self.parts {
            part.stop();
        }
    }
}

/// Reason why a listener could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// The text is not an address, or its name does not resolve.
    Address(io::Error),
    /// The system returned an error, for example because the port is in use.
    Bind {
        /// Address to bind.
        address: Address,
        /// Error of the system.
        source: io::Error,
    },
    /// An option is out of its range.
    Options(ConfigError),
    /// A ready listener could not be taken over, or a listener could not be watched.
    Watch(io::Error),
    /// The runtime drains.
    Draining,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => write!(f, "listen address: {error}"),
            Self::Bind { address, source } => write!(f, "listen on {address}: {source}"),
            Self::Watch(error) => write!(f, "listener: {error}"),
            Self::Options(error) => write!(f, "listen: {error}"),
            Self::Draining => f.write_str("listen: the runtime drains"),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Address(error) | Self::Watch(error) | Self::Bind { source: error, .. } => {
                Some(error)
            }
            Self::Options(error) => Some(error),
            Self::Draining => None,
        }
    }
}

impl Handle {
    /// Serves connections to an address (`"127.0.0.1:3306"`, `"unix:/run/db.sock"`, a `SocketAddr`,
    /// a `Path`), until the returned value is dropped. A TCP address gets one socket per group, so that
    /// the kernel spreads the connections.
    ///
    /// A listener on `[::]` also serves IPv4 peers, unless `net.ipv6.bindv6only` is set. Their
    /// [`peer_addr`](Connection::peer_addr) is a mapped one, such as `[::ffff:127.0.0.1]:4711`.
    ///
    /// # Errors
    ///
    /// See [`ListenError`]. The runtime continues.
    pub fn listen<P: Protocol>(
        &self,
        at: impl ToAddress,
        protocol: P,
    ) -> Result<Listener, ListenError> {
        self.listen_with(at, ListenOptions::new(), protocol)
    }

    /// [`listen`](Self::listen) with options.
    ///
    /// # Errors
    ///
    /// See [`ListenError`]. The runtime continues.
    pub fn listen_with<P: Protocol>(
        &self,
        at: impl ToAddress,
        options: ListenOptions,
        protocol: P,
    ) -> Result<Listener, ListenError> {
        options.conn.check().map_err(ListenError::Options)?;
        let first = at.to_addresses().map(|addresses| addresses.into_iter().next());
        let address = first.and_then(|first| first.ok_or_else(nowhere));
        self.serve(ListenAt::Address(address.map_err(ListenError::Address)?), options, protocol)
    }

    /// Serves connections of listening sockets that the host made, such as a `TcpListener`, or has
    /// taken over from another process. A `TcpListener` keeps its own `IPV6_V6ONLY`.
    ///
    /// If there is one socket for each group, each group watches its own. Otherwise each is watched by
    /// one group, which deals its connections to the groups in turn.
    ///
    /// # Errors
    ///
    /// See [`ListenError`]. The runtime continues.
    pub fn listen_on<P: Protocol>(
        &self,
        sockets: impl IntoIterator<Item = impl Into<OwnedFd>>,
        options: ListenOptions,
        protocol: P,
    ) -> Result<Listener, ListenError> {
        options.conn.check().map_err(ListenError::Options)?;
        let sockets = sockets.into_iter().map(Into::into).collect();
        self.serve(ListenAt::Sockets(sockets), options, protocol)
    }

    fn serve<P: Protocol>(
        &self,
        at: ListenAt,
        options: ListenOptions,
        protocol: P,
    ) -> Result<Listener, ListenError> {
        if self.usage().is_draining() {
            return Err(ListenError::Draining);
        }
        let socket_options = socket_options(self, options.prepare.clone());
        let (sockets, file) = open_sockets(self, at, &options, &socket_options)?;
        let admissions = Arc::new(Admissions::new(&options));
        let conn = ConnOptions { admissions: Some(Arc::clone(&admissions)), ..options.conn };
        let protocol: Arc<dyn Erased> = Arc::new(Typed::new(protocol, conn));
        let shared = Arc::new(Shared::new(file, socket_options.tuning));
        let local = sockets.first().map(|socket| socket::local_addr(socket.as_fd()));
        let local = local.unwrap_or_else(|| Err(io::Error::other("the list of sockets is empty")));
        let local = Address::from_raw(&local.map_err(ListenError::Watch)?);
        let per_group = sockets.len() == self.groups().len();
        let mut listener =
            Listener { local, parts: Vec::new(), shared: Arc::downgrade(&shared), admissions };
        for (index, socket) in sockets.into_iter().enumerate() {
            let group = if per_group { &self.groups()[index] } else { self.next_group() };
            let deal = if per_group { None } else { Some(self.clone()) };
            let protocol = Arc::clone(&protocol);
            let part =
                Acceptor::start(group, socket, deal, protocol, self.class(), Arc::clone(&shared));
            match part {
                Ok(part) => listener.parts.push(part),
                // The parts that were started stop.
                Err(error) => return Err(ListenError::Watch(error)),
            }
        }
        Ok(listener)
    }

    /// Starts an outgoing connection, served by the workers like an accepted one. Returns at once,
    /// unless it has to resolve a name. [`Protocol::opened`] is called when the connection is
    /// established. Bytes sent before that wait. Calls of the protocol may begin before this
    /// returns. So `protocol` must already have all that the calls need. Each connection may have a
    /// value of its own.
    ///
    /// If a name has several addresses, they are tried one after the other. With a
    /// [`connect_timeout`](ConnectOptions::connect_timeout) each has an equal share of the time
    /// that is left. Without it each has the kernel's limit (about two minutes for a host that does
    /// not answer); `close` gives up earlier. If the last one fails, only
    /// [`Protocol::connect_failed`] is called. If the backlog of a Unix socket is full, the
    /// connection fails at once.
    ///
    /// A worker's connection is served by its own group. On other threads the groups take turns. In a
    /// [drain](crate::Runtime::drain) outgoing connections end after the accepted ones.
    ///
    /// # Errors
    ///
    /// If the connection cannot be started.
    pub fn connect<P: Protocol>(
        &self,
        to: impl ToAddress,
        protocol: P,
    ) -> Result<Connection, ConnectError> {
        self.connect_with(to, ConnectOptions::new(), protocol)
    }

    /// [`connect`](Self::connect) with options.
    ///
    /// # Errors
    ///
    /// If the connection cannot be started.
    pub fn connect_with<P: Protocol>(
        &self,
        to: impl ToAddress,
        options: ConnectOptions,
        protocol: P,
    ) -> Result<Connection, ConnectError> {
        options.conn.check().map_err(ConnectError::Options)?;
        let to = to.to_addresses().map_err(ConnectError::Address)?;
        self.connect_to(to, options, protocol)
    }

    /// Like [`connect_with`](Self::connect_with), with addresses that were looked up.
    pub(crate) fn connect_to<P: Protocol>(
        &self,
        to: Vec<Address>,
        options: ConnectOptions,
        protocol: P,
    ) -> Result<Connection, ConnectError> {
        if self.usage().is_draining() {
            return Err(ConnectError::Draining);
        }
        let limit = self.settings().max_connections;
        if self.usage().connections() >= limit {
            return Err(ConnectError::Limit(limit));
        }
        let ConnectOptions { conn, connect_timeout, local_addr, prepare } = options;
        let unix = to.iter().find(|to| matches!(to, Address::Unix(_)));
        let tcp = to.iter().find(|to| matches!(to, Address::Tcp(_)));
        let mixed = match (unix, tcp, local_addr) {
            (Some(unix), Some(tcp), _) => {
                Some(format!("{unix} is a Unix socket and {tcp} is not: a list has one kind only"))
            }
            (Some(unix), None, Some(_)) => {
                Some(format!("local_addr is of TCP, but {unix} is a Unix socket"))
            }
            _ => None,
        };
        if let Some(text) = mixed {
            return Err(ConnectError::Address(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let socket_options = socket_options(self, prepare);
        let mut route = Route::new(to, local_addr, socket_options, connect_timeout);
        let Attempt { address, socket, until } =
            route.go_on(nowhere()).map_err(ConnectError::Io)?;
        let recv = Recv::outgoing(until, route);
        let protocol = Arc::new(Typed::new(protocol, conn));
        let group = Arc::clone(self.group_here());
        Conn::start(group, socket, address, protocol, self.class(), recv).map_err(ConnectError::Io)
    }

    /// Serves a connected stream socket that the host accepted or was passed, as if a listener had
    /// accepted it. Sets `O_NONBLOCK`, also for duplicates of the descriptor that the host keeps.
    ///
    /// # Errors
    ///
    /// [`Io`](ConnectError::Io) if the socket is no connected stream, cannot be watched, or
    /// `max_silent_connections` is reached; [`Limit`](ConnectError::Limit) or
    /// [`Draining`](ConnectError::Draining) if no connection may be added. The socket is closed then.
    pub fn adopt<P: Protocol>(
        &self,
        socket: impl Into<OwnedFd>,
        protocol: P,
    ) -> Result<Connection, ConnectError> {
        let socket = socket.into();
        if self.usage().is_draining() {
            return Err(ConnectError::Draining);
        }
        let peer = socket::adopt_stream(socket.as_fd(), &socket_options(self, None))
            .map_err(ConnectError::Io)?;
        let peer = Address::from_raw(&peer);
        let protocol: Arc<dyn Erased> = Arc::new(Typed::new(protocol, ConnOptions::default()));
        serve(self.group_here(), socket, peer, &protocol, self.class()).map_err(|refused| {
            match refused {
                Refused::Limit { counter: Counter::ConnectionsRefusedSilentLimit, limit } => {
                    let text = format!("max_silent_connections {limit} is reached");
                    ConnectError::Io(io::Error::other(text))
                }
                Refused::Limit { limit, .. } => ConnectError::Limit(limit),
                Refused::Watch(error) => ConnectError::Io(error),
            }
        })
    }
}

fn socket_options(handle: &Handle, prepare: Option<Prepare>) -> Options {
    Options { tuning: tuning(handle.settings()), prepare }
}

/// Address to bind, or listening sockets of the host.
enum ListenAt {
    Address(Address),
    Sockets(Vec<OwnedFd>),
}

/// Opens the sockets. Returns them with the file to remove when the last of them is closed.
fn open_sockets(
    handle: &Handle,
    at: ListenAt,
    options: &ListenOptions,
    socket_options: &Options,
) -> Result<(Vec<OwnedFd>, Option<PathBuf>), ListenError> {
    let backlog = match handle.settings().tcp_listen_queue {
        // The kernel lowers it to its own limit.
        0 => i32::MAX,
        connections => connections.cast_signed(),
    };
    match at {
        ListenAt::Sockets(sockets) => {
            for socket in &sockets {
                socket::adopt_listener(socket.as_fd(), socket_options)
                    .map_err(ListenError::Watch)?;
            }
            Ok((sockets, None))
        }
        ListenAt::Address(address) => {
            let sockets = match &address {
                Address::Tcp(addr) => {
                    let (count, shared) = (handle.groups().len(), options.reuse_port);
                    socket::listen_tcp(*addr, count, shared, backlog, socket_options)
                        .map(|sockets| (sockets, None))
                }
                Address::Unix(path) => {
                    let bind = || {
                        let raw = address.to_raw()?;
                        socket::listen_unix(&raw, backlog, socket_options)
                    };
                    let mut bound = bind();
                    let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
                    if options.replace_stale_file
                        && bound.as_ref().is_err_and(in_use)
                        && remove_stale(path).unwrap_or(false)
                    {
                        bound = bind();
                    }
                    let file = (!address.is_abstract()).then(|| path.clone());
                    bound.map(|socket| (vec![socket], file))
                }
            };
            sockets.map_err(|source| ListenError::Bind { address, source })
        }
    }
}
