//! Listeners: accepting, also when descriptors run out.
//!
//! What each error of `accept4` means is decided in one table, [`policy`]:
//!
//! | errno | whose | what follows |
//! |---|---|---|
//! | `EAGAIN` | nobody's | the backlog is empty: wait for the next edge |
//! | `EINTR` | nobody's | again, at once (in `sys`) |
//! | `ECONNABORTED`, `EPROTO`, `EPERM`, `ENETDOWN`, `ENOPROTOOPT`, `EHOSTDOWN`, `ENONET`, `EHOSTUNREACH`, `EOPNOTSUPP`, `ENETUNREACH`, `ETIMEDOUT` | the connection's | counted, on to the next |
//! | `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM` | ours | pause, see below |
//! | anything else (`EBADF`, `EINVAL`, `ENOTSOCK`, `EFAULT`) | the listener's | it is broken: logged, closed |
//!
//! **Pause.** An edge-triggered listener hears nothing more about a backlog that it failed to empty,
//! so it looks by itself: after 10 ms, doubling to 1 s, and at once when a descriptor of this runtime
//! is closed. After a second without success, each look gives up a descriptor that was held in
//! reserve, accepts one connection with it and closes it, so that clients learn that there is no
//! room for them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::Protocol;
use super::address::{Address, Listen, ToAddress, ToListen};
use super::conn::{Conn, ConnectError, Connection};
use super::receive::{Erased, Recv, Typed};
use crate::runtime::source::{CUT, DRAIN, FIRST_OWN_MARK, Lent, Source};
use crate::runtime::{Cost, Group, Handle, Readiness, Runtime, TimerId, Token};
use crate::stats::Counter;
use crate::sync::runner::{Marks, Runner, Running};
use crate::sys::epoll::Interest;
use crate::sys::socket::{self, Options};

/// An open listener. Dropping this does not close it: [`stop`](Self::stop) does, or the end of the
/// runtime.
#[derive(Debug)]
pub struct Listener {
    local: Address,
    parts: Vec<Part>,
}

/// One of its sockets.
#[derive(Debug)]
struct Part {
    group: Arc<Group>,
    token: Token,
}

impl Listener {
    /// Where it listens; the port is the real one when 0 was asked for.
    #[must_use]
    pub const fn local_addr(&self) -> &Address {
        &self.local
    }

    /// Stops it: connections that wait in its backlog are still accepted and served, so nobody is
    /// reset; then it closes. Its connections and other listeners go on.
    pub fn stop(&self) {
        for part in &self.parts {
            part.group.notify_source(part.token, STOP);
        }
    }
}

/// Why there is no listener.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// The text is not an address, or its name does not resolve.
    Address(io::Error),
    /// The system refused, for example because the port is in use.
    Bind {
        /// What was to be bound.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// The ready listener could not be taken over or watched.
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
            Self::Draining => None,
        }
    }
}

impl Handle {
    /// Serves connections to an address (`"127.0.0.1:3306"`, `"unix:/run/db.sock"`, a
    /// `SocketAddr`, a `Path`) or of a ready `TcpListener` or `UnixListener`.
    ///
    /// # Errors
    ///
    /// See [`ListenError`]; the runtime goes on.
    pub fn listen<P: Protocol>(
        &self,
        at: impl ToListen,
        protocol: P,
    ) -> Result<Listener, ListenError> {
        if self.usage().is_draining() {
            return Err(ListenError::Draining);
        }
        let at = at.to_listen().map_err(ListenError::Address)?;
        let protocol: Arc<dyn Erased> = Arc::new(Typed(protocol));
        let options = options(self);
        let (sockets, unlink) = open_sockets(self, at, &options)?;
        let local = sockets.first().map(|socket| socket::local_addr(socket.as_fd()));
        let local = local.unwrap_or_else(|| Err(io::Error::other("no listener")));
        let local = Address::from_raw(&local.map_err(ListenError::Watch)?);
        let per_group = sockets.len() == self.groups().len();
        let unlink = unlink.map(|path| Arc::new(Unlink(path)));
        let mut listener = Listener { local, parts: Vec::new() };
        for (index, socket) in sockets.into_iter().enumerate() {
            let group = if per_group { &self.groups()[index] } else { self.next_group() };
            let deal = if per_group { None } else { Some(self.clone()) };
            let part = Acceptor::start(group, socket, deal, Arc::clone(&protocol), unlink.clone());
            match part {
                Ok(part) => listener.parts.push(part),
                Err(error) => {
                    listener.stop();
                    return Err(ListenError::Watch(error));
                }
            }
        }
        Ok(listener)
    }

    /// Begins an outgoing connection, served by the workers like an accepted one. Returns at once;
    /// [`Protocol::opened`] is called when it is established, and what is sent before that waits.
    /// When it fails, the connection is closed and `opened` never called.
    ///
    /// # Errors
    ///
    /// When it cannot even be begun.
    pub fn connect<P: Protocol>(
        &self,
        to: impl ToAddress,
        protocol: P,
    ) -> Result<Connection, ConnectError> {
        if self.usage().is_draining() {
            return Err(ConnectError::Draining);
        }
        let to = to.to_address().map_err(ConnectError::Address)?;
        let raw = to.to_raw().map_err(ConnectError::Address)?;
        let socket = socket::connect(&raw, &options(self)).map_err(ConnectError::Io)?;
        let protocol = Arc::new(Typed(protocol));
        Conn::start(Arc::clone(self.group_here()), socket, to, protocol, Recv::outgoing())
            .map_err(ConnectError::Io)
    }
}

impl Runtime {
    /// See [`Handle::listen`].
    ///
    /// # Errors
    ///
    /// See [`ListenError`]; the runtime goes on.
    pub fn listen<P: Protocol>(
        &self,
        at: impl ToListen,
        protocol: P,
    ) -> Result<Listener, ListenError> {
        self.handle().listen(at, protocol)
    }

    /// See [`Handle::connect`].
    ///
    /// # Errors
    ///
    /// When it cannot even be begun.
    pub fn connect<P: Protocol>(
        &self,
        to: impl ToAddress,
        protocol: P,
    ) -> Result<Connection, ConnectError> {
        self.handle().connect(to, protocol)
    }
}

fn options(handle: &Handle) -> Options {
    let config = handle.config();
    Options {
        keep_alive: config.tcp_keep_alive,
        send_buf: config.tcp_send_buf,
        recv_buf: config.tcp_recv_buf,
        notsent_lowat: config.tcp_notsent_lowat_bytes,
    }
}

/// The sockets, and the file to remove when the last of them is closed.
fn open_sockets(
    handle: &Handle,
    at: Listen,
    options: &Options,
) -> Result<(Vec<OwnedFd>, Option<PathBuf>), ListenError> {
    let backlog = handle.config().tcp_listen_queue;
    match at {
        Listen::Ready(socket) => {
            socket::adopt_listener(socket.as_fd(), options).map_err(ListenError::Watch)?;
            Ok((vec![socket], None))
        }
        Listen::Bind(address) => {
            let sockets = match &address {
                Address::Tcp(addr) => {
                    let sockets =
                        socket::listen_tcp(*addr, handle.groups().len(), backlog, options);
                    sockets.map(|sockets| (sockets, None))
                }
                Address::Unix(path) => socket::listen_unix(path, backlog, options)
                    .map(|socket| (vec![socket], Some(path.clone()))),
            };
            sockets.map_err(|source| ListenError::Bind { address, source })
        }
    }
}

/// Removes the file of a Unix socket that we bound.
#[derive(Debug)]
struct Unlink(PathBuf);

impl Drop for Unlink {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, path = %self.0.display(), "unlink");
        }
    }
}

/// One listening socket, watched by one group. Closed with the last reference to its slot.
struct Acceptor {
    group: Arc<Group>,
    socket: OwnedFd,
    _unlink: Option<Arc<Unlink>>,
    /// Deals connections round the groups; `None` when each group has its own socket.
    deal: Option<Handle>,
    protocol: Arc<dyn Erased>,
    token: OnceLock<Token>,
    accept: Runner<Accept>,
    cost: Cost,
}

/// What only one acceptor at a time may touch.
struct Accept {
    /// Given up to tell a client that there is no room.
    reserve: Option<OwnedFd>,
    /// Accept what waits, then close.
    stopping: bool,
    closed: bool,
    starving: Option<Starving>,
    wake_up: Option<TimerId>,
}

/// Since when and how patiently a listener waits for descriptors.
#[derive(Clone, Copy)]
struct Starving {
    since: Instant,
    pause: Duration,
}

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

const READABLE: Marks = Marks::bit(FIRST_OWN_MARK);
const STOP: Marks = Marks::bit(FIRST_OWN_MARK + 1);

/// What an error of `accept4` calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// The backlog is empty.
    Rest,
    /// It is the connection's fault.
    Next,
    /// Descriptors or memory are short.
    Pause,
    /// The listener cannot be used any more.
    Broken,
}

fn policy(error: &io::Error) -> Policy {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Policy::Rest,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Policy::Pause,
        Some(
            libc::ECONNABORTED
            | libc::EPROTO
            | libc::EPERM
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EHOSTUNREACH
            | libc::EOPNOTSUPP
            | libc::ENETUNREACH
            | libc::ETIMEDOUT,
        ) => Policy::Next,
        _ => Policy::Broken,
    }
}

impl Acceptor {
    /// Watches a listening socket; the group keeps it.
    fn start(
        group: &Arc<Group>,
        socket: OwnedFd,
        deal: Option<Handle>,
        protocol: Arc<dyn Erased>,
        unlink: Option<Arc<Unlink>>,
    ) -> io::Result<Part> {
        let accept = Accept {
            reserve: Some(socket::reserve_descriptor()?),
            stopping: false,
            closed: false,
            starving: None,
            wake_up: None,
        };
        let acceptor = Arc::new(Self {
            group: Arc::clone(group),
            socket,
            _unlink: unlink,
            deal,
            protocol,
            token: OnceLock::new(),
            accept: Runner::new(accept),
            cost: Cost::unknown(),
        });
        let full = || io::Error::other("all slots of the group are in use");
        let source = |token| -> Box<dyn Source> {
            let _ = acceptor.token.set(token);
            group.usage().listener_opened();
            Box::new(Watched(Arc::clone(&acceptor)))
        };
        let token = group.prepare(source).ok_or_else(full)?;
        if let Err(error) = group.watch(acceptor.socket.as_fd(), Interest::READABLE, token) {
            group.usage().listener_closed();
            group.release(token);
            return Err(error);
        }
        if group.is_draining() {
            group.notify_source(token, DRAIN);
        }
        Ok(Part { group: Arc::clone(group), token })
    }

    fn run(&self, mut running: Running<'_, Accept>, lent: &mut Lent<'_>) {
        loop {
            let marks = running.take_marks();
            let more = self.turn(&mut running, marks);
            if more {
                running.mark(READABLE);
                running.queue();
                if !self.token.get().is_some_and(|token| self.group.push_source(*token)) {
                    drop(self.accept.resume());
                }
                break;
            }
            match running.finish() {
                Some(again) => running = again,
                None => break,
            }
        }
        lent.charge(&self.cost);
    }

    /// One round. `true` when the budget was spent before the backlog was empty.
    fn turn(&self, accept: &mut Accept, marks: Marks) -> bool {
        if accept.closed {
            return false;
        }
        if marks.has(CUT) {
            self.close(accept);
            return false;
        }
        accept.stopping |= marks.has(STOP | DRAIN);
        for _ in 0..self.group.config().accept_budget {
            match socket::accept(self.socket.as_fd()) {
                Ok((socket, peer)) => {
                    accept.starving = None;
                    self.admit(socket, Address::from_raw(&peer));
                }
                Err(error) => {
                    if self.failed(accept, &error) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Acts on an error; `true` when that ends the turn.
    fn failed(&self, accept: &mut Accept, error: &io::Error) -> bool {
        match policy(error) {
            Policy::Next => {
                self.group.count(Counter::AcceptErrorsPeer, 1);
                return false;
            }
            Policy::Rest if accept.stopping => self.close(accept),
            Policy::Rest => accept.starving = None,
            Policy::Pause => {
                self.group.count(Counter::AcceptErrorsResources, 1);
                self.pause(accept);
            }
            Policy::Broken => {
                self.group.count(Counter::AcceptErrorsOther, 1);
                tracing::error!(%error, "accept4: the listener is closed");
                self.close(accept);
            }
        }
        true
    }

    /// Serves a connection, or refuses it.
    fn admit(&self, socket: OwnedFd, peer: Address) {
        let config = self.group.config();
        let usage = self.group.usage();
        let refused = if usage.connections() >= config.max_connections {
            Some(Counter::ConnectionsRefusedLimit)
        } else if usage.silent() >= config.max_silent_connections {
            Some(Counter::ConnectionsRefusedSilentLimit)
        } else {
            None
        };
        if let Some(counter) = refused {
            self.group.count(counter, 1);
            return;
        }
        let group = self.deal.as_ref().map_or(&self.group, Handle::next_group);
        let silent_until = Instant::now() + config.first_bytes_timeout;
        usage.silent_opened();
        let protocol = Arc::clone(&self.protocol);
        let recv = Recv::accepted(silent_until);
        match Conn::start(Arc::clone(group), socket, peer, protocol, recv) {
            Ok(_) => self.group.count(Counter::ConnectionsAccepted, 1),
            Err(error) => {
                usage.silent_spoke();
                self.group.count(Counter::AcceptErrorsOther, 1);
                tracing::warn!(%error, "an accepted connection could not be watched");
            }
        }
    }

    /// Looks again in a while, or when a descriptor is closed.
    fn pause(&self, accept: &mut Accept) {
        let Some(token) = self.token.get() else { return };
        self.group.count(Counter::AcceptPauses, 1);
        let now = Instant::now();
        let pause = match &mut accept.starving {
            None => {
                accept.starving = Some(Starving { since: now, pause: FIRST_PAUSE });
                FIRST_PAUSE
            }
            Some(starving) => {
                starving.pause = (starving.pause * 2).min(LONGEST_PAUSE);
                if now.duration_since(starving.since) >= LONGEST_PAUSE {
                    self.turn_one_away(accept);
                }
                accept.starving.map_or(FIRST_PAUSE, |starving| starving.pause)
            }
        };
        if let Some(id) = accept.wake_up.take() {
            self.group.cancel_deadline(id);
        }
        accept.wake_up = Some(self.group.insert_deadline(now + pause, *token));
        self.group.usage().starve(Arc::downgrade(&self.group), *token);
    }

    /// Tells one client that there is no room, by closing its connection.
    fn turn_one_away(&self, accept: &mut Accept) {
        drop(accept.reserve.take());
        if let Ok((socket, _)) = socket::accept(self.socket.as_fd()) {
            self.group.count(Counter::ConnectionsRefusedDescriptors, 1);
            drop(socket);
        }
        // If somebody was quicker, the next look tries again.
        accept.reserve = socket::reserve_descriptor().ok();
    }

    fn close(&self, accept: &mut Accept) {
        accept.closed = true;
        accept.reserve = None;
        if let Some(id) = accept.wake_up.take() {
            self.group.cancel_deadline(id);
        }
        if let Some(token) = self.token.get() {
            self.group.unwatch(self.socket.as_fd(), *token);
        }
        self.group.usage().listener_closed();
    }
}

/// What stands in the slot.
struct Watched(Arc<Acceptor>);

impl Source for Watched {
    fn ready(&self, _: Readiness, lent: &mut Lent<'_>) {
        if let Some(running) = self.0.accept.notify(READABLE) {
            self.0.run(running, lent);
        }
    }

    fn queue_ready(&self, _: Readiness) -> bool {
        self.queue_marks(READABLE)
    }

    fn queue_marks(&self, marks: Marks) -> bool {
        self.0.accept.notify(marks).map(Running::queue).is_some()
    }

    fn resume(&self, lent: &mut Lent<'_>) {
        if let Some(running) = self.0.accept.resume() {
            self.0.run(running, lent);
        }
    }

    fn cost(&self) -> &Cost {
        &self.0.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_of_accept4_has_its_policy() {
        let of = |errno| policy(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::EAGAIN), Policy::Rest);
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
            assert_eq!(of(errno), Policy::Pause);
        }
        for errno in [libc::ECONNABORTED, libc::EPROTO, libc::EPERM, libc::ENETUNREACH] {
            assert_eq!(of(errno), Policy::Next);
        }
        for errno in [libc::EBADF, libc::EINVAL, libc::ENOTSOCK, libc::EFAULT] {
            assert_eq!(of(errno), Policy::Broken);
        }
    }
}
