//! Accepting connections, also when descriptors run out.
//!
//! One table, [`policy`], decides the meaning of each error of `accept4`:
//!
//! | errno | cause | reaction |
//! |---|---|---|
//! | `EAGAIN` | none | the backlog is empty: wait for the next edge |
//! | `EINTR` | none | again, at once (in `sys`) |
//! | `ECONNABORTED`, `EPROTO`, `EPERM`, `ENETDOWN`, `ENOPROTOOPT`, `EHOSTDOWN`, `ENONET`, `EHOSTUNREACH`, `EOPNOTSUPP`, `ENETUNREACH`, `ETIMEDOUT` | the connection's | counted, on to the next |
//! | `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM` | ours | pause, see below |
//! | `EBADF`, `EINVAL`, `ENOTSOCK`, `EFAULT` | the listener's | it is broken: logged, closed |
//! | anything else | unknown | logged, pause |
//!
//! A listener that meets only errors of connections is broken in another way: after 64 in a row, it
//! pauses.
//!
//! **Pause.** An edge-triggered listener gets no event for a backlog that it failed to empty. So it
//! tries again: after 10 ms, doubling to 1 s, and at once when a connection of this runtime is
//! closed. If descriptors or memory have been short for a second, each attempt uses a descriptor
//! that was held in reserve. It accepts one connection with it and closes the connection, so that
//! clients learn of the lack of room.

use std::fs;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::address::Address;
use super::conn::Conn;
use super::connection::Connection;
use super::handler::Erased;
use super::recv_state::Recv;
use crate::config::Config;
use crate::runtime::source::{CUT, DRAIN, FIRST_OWN_MARK, Source, TIMER, WorkerContext};
use crate::runtime::{Class, Cost, Group, Handle, Readiness, TimerId, Token, log, log_some};
use crate::stats::Counter;
use crate::sync::runner::{Marks, ROUNDS, Runner, Running};
use crate::sys::clock::{self, Instant};
use crate::sys::epoll::Interest;
use crate::sys::eventfd::reserve_descriptor;
use crate::sys::socket::{self, Family, Tuning};

/// One socket of a listener.
#[derive(Debug)]
pub(super) struct Part {
    group: Arc<Group>,
    token: Token,
    /// Gone when the socket is closed.
    acceptor: Weak<Acceptor>,
}

impl Part {
    pub(super) fn stop(&self) {
        self.group.notify_source(self.token, STOP);
    }

    /// Returns a duplicate of the descriptor of the listening socket.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        let closed = || io::Error::new(io::ErrorKind::NotConnected, "the listener is closed");
        let acceptor = self.acceptor.upgrade().ok_or_else(closed)?;
        socket::duplicate(acceptor.socket.as_fd())
    }
}

/// Data that the sockets of a listener share. With the last socket, the file of a Unix socket that
/// this process bound is removed. Nothing is removed if another file has taken its place, for
/// example that of a process started to replace this one.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Path of the file, with its device and inode.
    file: Option<(PathBuf, (u64, u64))>,
    /// Set when a successor has the sockets. Their backlogs and the file are left to it.
    passed_on: AtomicBool,
    /// Options that accepted TCP sockets inherit.
    tuning: Tuning,
}

impl Shared {
    /// Data of sockets that were just bound. `path` is the file of a Unix socket.
    pub(super) fn new(path: Option<PathBuf>, tuning: Tuning) -> Self {
        let file = path.and_then(|path| match identity(&path) {
            Ok(file) => Some((path, file)),
            Err(error) => {
                stays(&path, &error);
                None
            }
        });
        Self { file, passed_on: AtomicBool::new(false), tuning }
    }

    pub(super) fn pass_on(&self) {
        self.passed_on.store(true, Ordering::Relaxed);
    }

    fn is_passed_on(&self) -> bool {
        self.passed_on.load(Ordering::Relaxed)
    }
}

/// Removes the file of a Unix socket on which no process listens. Returns false if there is none.
pub(super) fn remove_stale(path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    // Other files refuse connections too.
    let stale = metadata.file_type().is_socket()
        && socket::is_stale(path)?
        && identity(path)? == (metadata.dev(), metadata.ino());
    if stale {
        fs::remove_file(path)?;
    }
    Ok(stale)
}

/// Device and inode.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Logs that the file stays. The next process that binds the path gets an error that it is in use.
fn stays(path: &Path, error: &io::Error) {
    log!(warn, %error, path = %path.display(), "the file of a Unix socket is not removed");
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some((path, file)) = &self.file else { return };
        if self.is_passed_on() {
            return;
        }
        let removed = match identity(path) {
            Ok(now) if now == *file => fs::remove_file(path),
            other => other.map(drop),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => stays(path, &error),
            _ => {}
        }
    }
}

/// Listening socket, watched by one group. It is closed with the last reference to its slot.
pub(super) struct Acceptor {
    group: Arc<Group>,
    /// Dropped before the socket is closed: afterwards another process may replace the file.
    shared: Arc<Shared>,
    socket: OwnedFd,
    /// Deals connections to the groups in turn. `None` if each group has its own socket.
    deal: Option<Handle>,
    protocol: Arc<dyn Erased>,
    /// Class of the connections.
    class: Class,
    token: OnceLock<Token>,
    accept: Runner<Accept>,
    cost: Cost,
}

/// State that only one acceptor at a time may touch.
#[derive(Default)]
struct Accept {
    /// Descriptor in reserve. It is given up to accept one client and close its connection.
    reserve: Option<OwnedFd>,
    /// Set when the listener accepts the waiting connections and then closes.
    stopping: bool,
    closed: bool,
    /// Number of consecutive errors of connections.
    errors_in_a_row: u32,
    /// Connections accepted and not yet charged to the cost estimate.
    accepted: u32,
    starving: Option<Starving>,
    wake_up: Option<TimerId>,
}

/// Start of a series of failed attempts to accept, and the current pause between them.
#[derive(Clone, Copy)]
struct Starving {
    since: Instant,
    pause: Duration,
}

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Limit on consecutive errors of connections. A sandbox that forbids to accept reports such an
/// error at every call.
const MOST_ERRORS_IN_A_ROW: u32 = 64;

const READABLE: Marks = Marks::bit(FIRST_OWN_MARK);
const STOP: Marks = Marks::bit(FIRST_OWN_MARK + 1);

/// Reaction to an error of `accept4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// The backlog is empty.
    Rest,
    /// The connection caused the error: accept the next one.
    Next,
    /// Descriptors or memory are short: pause.
    Pause,
    /// The cause is unknown: log and pause.
    PauseAndLog,
    /// The listener cannot be used any more: close it.
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
        Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EFAULT) => Policy::Broken,
        _ => Policy::PauseAndLog,
    }
}

impl Acceptor {
    /// Watches a listening socket. The group keeps it.
    pub(super) fn start(
        group: &Arc<Group>,
        socket: OwnedFd,
        deal: Option<Handle>,
        protocol: Arc<dyn Erased>,
        class: Class,
        shared: Arc<Shared>,
    ) -> io::Result<Part> {
        let accept = Accept { reserve: Some(reserve_descriptor()?), ..Accept::default() };
        let acceptor = Arc::new(Self {
            group: Arc::clone(group),
            shared,
            socket,
            deal,
            protocol,
            class,
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
            // A drain may be about to close the listener too. Its Runner decides.
            group.notify_source(token, CUT);
            return Err(error);
        }
        if group.is_draining() {
            group.notify_source(token, DRAIN);
        }
        Ok(Part { group: Arc::clone(group), token, acceptor: Arc::downgrade(&acceptor) })
    }

    fn run(&self, running: Running<'_, Accept>, context: &mut WorkerContext<'_>) {
        let mut accepted = 0;
        let ended = running.run(ROUNDS, |running, marks| {
            let more = self.turn(running, marks, || {
                let (socket, peer) = socket::accept(self.socket.as_fd())?;
                Ok((socket, Address::from_raw(&peer)))
            });
            accepted += mem::take(&mut running.accepted);
            if more {
                // Without a mark, the run would end.
                running.mark(READABLE);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        self.group.queue_rest(ended, self.token.get(), &self.accept);
        // A run that accepts many connections is not a slow handler: it delays other work no more
        // than as many events of connections do.
        context.charge_each(&self.cost, accepted);
    }

    /// Runs one round. Returns true if the budget was spent before the backlog was empty.
    fn turn(
        &self,
        accept: &mut Accept,
        marks: Marks,
        accept_one: impl Fn() -> io::Result<(OwnedFd, Address)>,
    ) -> bool {
        if accept.closed {
            return false;
        }
        if marks.has(CUT) {
            self.close(accept);
            return false;
        }
        accept.stopping |= marks.has(STOP | DRAIN);
        if accept.stopping && self.shared.is_passed_on() {
            self.close(accept);
            return false;
        }
        let mut asked = false;
        let mut left = self.group.config().accept_budget;
        while left > 0 {
            match accept_one() {
                Ok((socket, peer)) => {
                    accept.starving = None;
                    accept.errors_in_a_row = 0;
                    accept.accepted += 1;
                    self.admit(socket, peer);
                }
                Err(error) if !asked && policy(&error) == Policy::Pause => {
                    // Try again, beyond the budget: a descriptor that was closed before the request
                    // caused no notification.
                    asked = true;
                    self.ask_for_descriptor();
                    continue;
                }
                Err(error) => {
                    if self.failed(accept, &error) {
                        return false;
                    }
                }
            }
            left -= 1;
        }
        true
    }

    /// Handles an error. Returns true if it ends the turn.
    fn failed(&self, accept: &mut Accept, error: &io::Error) -> bool {
        let policy = policy(error);
        if policy == Policy::Next {
            self.group.count(Counter::AcceptErrorsPeer, 1);
            accept.errors_in_a_row += 1;
            if accept.errors_in_a_row < MOST_ERRORS_IN_A_ROW {
                return false;
            }
        }
        accept.errors_in_a_row = 0;
        match policy {
            Policy::Rest if accept.stopping => self.close(accept),
            Policy::Rest => accept.starving = None,
            Policy::Next => self.pause(accept, policy),
            Policy::Pause => {
                self.group.count(Counter::AcceptErrorsResources, 1);
                self.pause(accept, policy);
            }
            Policy::PauseAndLog => {
                self.group.count(Counter::AcceptErrorsOther, 1);
                log!(warn, %error, "accept4: the listener pauses");
                self.pause(accept, policy);
            }
            Policy::Broken => {
                self.group.count(Counter::AcceptErrorsOther, 1);
                log!(error, %error, "accept4: the listener is closed");
                self.close(accept);
            }
        }
        true
    }

    fn admit(&self, socket: OwnedFd, peer: Address) {
        let inherited = match peer.family() {
            Family::Tcp => self.shared.tuning,
            Family::Unix => Tuning::default(),
        };
        // If this fails, the connection works with the options that it has.
        let _ = tuning(self.group.config()).apply(socket.as_fd(), inherited, peer.family());
        let group = self.deal.as_ref().map_or(&self.group, Handle::next_group);
        let _ = admit(group, socket, peer, &self.protocol, self.class);
    }

    /// Schedules the next attempt, after a pause or when a descriptor is closed.
    fn pause(&self, accept: &mut Accept, policy: Policy) {
        let Some(token) = self.token.get() else { return };
        self.group.count(Counter::AcceptPauses, 1);
        let now = clock::now();
        let pause = match &mut accept.starving {
            None => {
                accept.starving = Some(Starving { since: now, pause: FIRST_PAUSE });
                FIRST_PAUSE
            }
            Some(starving) => {
                starving.pause = (starving.pause * 2).min(LONGEST_PAUSE);
                let long = now.duration_since(starving.since) >= LONGEST_PAUSE;
                if long && policy == Policy::Pause {
                    self.turn_one_away(accept);
                }
                accept.starving.map_or(FIRST_PAUSE, |starving| starving.pause)
            }
        };
        if let Some(id) = accept.wake_up.take() {
            self.group.cancel_deadline(id);
        }
        if !accept.closed {
            accept.wake_up = Some(self.group.insert_deadline(now + pause, *token));
        }
    }

    /// Asks for a notification when a descriptor is closed.
    fn ask_for_descriptor(&self) {
        if let Some(&token) = self.token.get() {
            let group = Arc::downgrade(&self.group);
            self.group.usage().starve((self.group.index(), token), move || {
                if let Some(group) = group.upgrade() {
                    group.notify_source(token, TIMER);
                }
            });
        }
    }

    /// Accepts one client and closes its connection, so that the client learns of the lack of room.
    fn turn_one_away(&self, accept: &mut Accept) {
        drop(accept.reserve.take());
        match socket::accept(self.socket.as_fd()) {
            Ok((socket, _)) => {
                self.group.count(Counter::ConnectionsRefusedDescriptors, 1);
                drop(socket);
            }
            Err(error) if accept.stopping && policy(&error) == Policy::Rest => {
                self.close(accept);
                return;
            }
            Err(_) => {}
        }
        // If another thread took the free descriptor, the next attempt tries again.
        accept.reserve = reserve_descriptor().ok();
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

/// Returns the options that the configuration sets for sockets.
pub(super) fn tuning(config: &Config) -> Tuning {
    Tuning {
        keep_alive: config.tcp_keep_alive,
        send_buf: config.tcp_send_buf,
        recv_buf: config.tcp_recv_buf,
        notsent_lowat: config.tcp_notsent_lowat_bytes,
    }
}

/// Reason why an accepted connection is not served.
pub(super) enum Refused {
    /// A limit is reached. `counter` counts the refusal.
    Limit { counter: Counter, limit: usize },
    /// The connection could not be watched.
    Watch(io::Error),
}

/// Serves an accepted connection, or refuses it.
pub(super) fn serve(
    group: &Arc<Group>,
    socket: OwnedFd,
    peer: Address,
    protocol: &Arc<dyn Erased>,
    class: Class,
) -> Result<Connection, Refused> {
    let (config, usage, options) = (group.config(), group.usage(), protocol.options());
    let limit = config.max_connections;
    if usage.connections() >= limit {
        return Err(Refused::Limit { counter: Counter::ConnectionsRefusedLimit, limit });
    }
    let time_for_first_bytes = options.time_for_first_bytes(config);
    let limit = config.max_silent_connections;
    if time_for_first_bytes.is_some() && usage.silent.get() >= limit {
        return Err(Refused::Limit { counter: Counter::ConnectionsRefusedSilentLimit, limit });
    }
    let limit = config.max_handshakes;
    let layered = !options.layers.is_empty();
    if layered && usage.handshakes.get() >= limit {
        return Err(Refused::Limit { counter: Counter::ConnectionsRefusedHandshakes, limit });
    }
    if let Some(admissions) = &options.admissions {
        let counter = Counter::ConnectionsRefusedLimit;
        admissions.admit(&peer).map_err(|limit| Refused::Limit { counter, limit })?;
    }
    let handshake_timeout = options.handshake_timeout.unwrap_or(config.handshake_timeout);
    let now = clock::now();
    let handshake_until = layered.then(|| now + handshake_timeout);
    let silent_until = time_for_first_bytes.map(|limit| now + limit);
    let recv = Recv::accepted(silent_until, handshake_until);
    let connection =
        Conn::start(Arc::clone(group), socket, peer, Arc::clone(protocol), class, recv)
            .map_err(Refused::Watch)?;
    group.count(Counter::ConnectionsAccepted, 1);
    Ok(connection)
}

/// Serves an accepted connection, or counts the refusal.
pub(super) fn admit(
    group: &Arc<Group>,
    socket: OwnedFd,
    peer: Address,
    protocol: &Arc<dyn Erased>,
    class: Class,
) -> Option<Connection> {
    let counter = match serve(group, socket, peer, protocol, class) {
        Ok(connection) => return Some(connection),
        Err(Refused::Limit { counter, .. }) => counter,
        Err(Refused::Watch(error)) => {
            let text = "an accepted connection could not be watched";
            log_some!(group, Unserved, WARN, warn, %error, text);
            Counter::AcceptErrorsOther
        }
    };
    group.count(counter, 1);
    None
}

/// Content of the slot.
struct Watched(Arc<Acceptor>);

impl Source for Watched {
    fn ready(&self, _: Readiness, context: &mut WorkerContext<'_>) {
        if let Some(running) = self.0.accept.notify(READABLE) {
            self.0.run(running, context);
        }
    }

    fn queue_ready(&self, _: Readiness) -> bool {
        self.queue_marks(READABLE)
    }

    fn queue_marks(&self, marks: Marks) -> bool {
        self.0.accept.notify(marks).map(Running::queue).is_some()
    }

    fn resume(&self, context: &mut WorkerContext<'_>) {
        if let Some(running) = self.0.accept.resume() {
            self.0.run(running, context);
        }
    }

    fn cost(&self) -> &Cost {
        &self.0.cost
    }

    /// Accepts in the class of logins, because a peer may be about to log in. If accepting went
    /// before logins, a flood of connections would be accepted faster than refused connections are
    /// closed.
    fn class(&self) -> Class {
        self.0.class.or(Class::Login)
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

    use super::*;
    use crate::net::Deaf;
    use crate::net::handler::Typed;
    use crate::net::options::ConnOptions;
    use crate::runtime::Simulated;

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
        for errno in [libc::ENOSYS, libc::ECONNRESET, libc::EPIPE, libc::ENOSPC, libc::EIO] {
            assert_eq!(of(errno), Policy::PauseAndLog);
        }
    }

    fn acceptor(runtime: &Simulated, name: &str) -> (Acceptor, UnixStream) {
        let group = runtime.group();
        let name = format!("epoll-group-{}-{name}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("a listener");
        listener.set_nonblocking(true).expect("a socket");
        let client = UnixStream::connect_addr(&address).expect("it has a place in the backlog");
        let acceptor = Acceptor {
            group: Arc::clone(group),
            socket: listener.into(),
            shared: Arc::default(),
            deal: None,
            protocol: Arc::new(Typed::new(Deaf, ConnOptions::default())),
            class: Class::Ordinary,
            token: OnceLock::from(Token::decode(Token::FIRST)),
            accept: Runner::new(Accept::default()),
            cost: Cost::unknown(),
        };
        (acceptor, client)
    }

    #[test]
    fn a_listener_without_descriptors_is_told_when_one_is_closed() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (group, usage) = (runtime.group(), runtime.handle().usage());
        let [(starved, _client), (told, _other)] =
            ["starved", "told"].map(|name| acceptor(&runtime, name));
        let part =
            Acceptor::start(group, told.socket, None, told.protocol, told.class, Arc::default());
        let token = part.expect("there is room").token;
        let starved = Acceptor { token: OnceLock::from(token), ..starved };
        let refuse = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        assert!(!starved.turn(&mut Accept::default(), READABLE, refuse));
        assert_eq!(runtime.queued(), 0);
        usage.descriptor_closed();
        assert_eq!(runtime.queued(), 1);
    }

    /// Found by review: the first attempt spent the budget, so the turn was repeated without end.
    #[test]
    fn a_listener_with_a_budget_of_one_pauses_without_descriptors() {
        let config = Config::default().accept_budget(1);
        let runtime = Simulated::new(config).expect("descriptors");
        let (acceptor, _client) = acceptor(&runtime, "budget");
        let refuse = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        assert!(!acceptor.turn(&mut Accept::default(), READABLE, refuse));
        let stats = runtime.handle().stats();
        let counted = [Counter::AcceptErrorsResources, Counter::AcceptPauses];
        assert_eq!(counted.map(|counter| stats.get(counter)), [1, 1]);
    }

    #[test]
    fn a_listener_that_was_passed_on_leaves_its_backlog_to_the_successor() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (mut acceptor, _client) = acceptor(&runtime, "passed on");
        // Its socket is not watched, so there is none to unwatch.
        acceptor.token = OnceLock::new();
        let successor = acceptor.socket.try_clone().expect("a descriptor");
        acceptor.shared.pass_on();
        let mut accept = Accept::default();
        let none = || panic!("the client is left to the successor");
        assert!(!acceptor.turn(&mut accept, STOP, none));
        assert!(accept.closed);
        assert!(socket::accept(successor.as_fd()).is_ok());
    }

    /// Returns the number of clients that are turned away if the listener meets this error at once,
    /// after 0.5 s and after 1 s. Returns also the errors counted as errors of resources and as
    /// others.
    fn turned_away(errno: i32) -> [u64; 3] {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (acceptor, _client) = acceptor(&runtime, &errno.to_string());
        let mut accept = Accept::default();
        let began = Instant::now();
        for millis in [0, 500, 1000] {
            clock::simulate(Some(began + Duration::from_millis(millis)));
            assert!(acceptor.failed(&mut accept, &io::Error::from_raw_os_error(errno)));
        }
        clock::simulate(None);
        let stats = runtime.handle().stats();
        [
            Counter::ConnectionsRefusedDescriptors,
            Counter::AcceptErrorsResources,
            Counter::AcceptErrorsOther,
        ]
        .map(|counter| stats.get(counter))
    }

    #[test]
    fn an_acceptor_that_is_always_told_of_more_goes_to_the_queue_after_sixteen_rounds() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let group = Arc::clone(runtime.group());
        // Each accept fails with an error of connections, so each round pauses.
        let socket = UnixDatagram::unbound().expect("a socket").into();
        let protocol = Arc::new(Typed::new(Deaf, ConnOptions::default()));
        let part = Acceptor::start(&group, socket, None, protocol, Class::Ordinary, Arc::default());
        let token = part.expect("watched").token;
        let pauses = || runtime.handle().stats().get(Counter::AcceptPauses);
        let (others, mut events) = (Arc::clone(&group), 0..1000);
        clock::at_each_look(move || {
            // In this test the events never end.
            if events.next().is_some() {
                others.notify_source(token, READABLE);
            }
        });
        group.notify_source(token, READABLE);
        for rounds in [16, 32] {
            assert!(runtime.take_task(false));
            runtime.run(0, None);
            assert_eq!((pauses(), runtime.queued()), (rounds, 1));
        }
        clock::at_each_look(|| ());
        assert!(runtime.take_task(false));
        runtime.run(0, None);
        assert_eq!((pauses(), runtime.queued()), (33, 0));
    }

    #[test]
    fn clients_are_turned_away_for_want_of_descriptors_alone() {
        assert_eq!(turned_away(libc::EMFILE), [1, 3, 0]);
        assert_eq!(turned_away(libc::EIO), [0, 0, 3]);
    }

    #[test]
    fn a_listener_pauses_after_many_failed_clients_and_counts_each() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (acceptor, _client) = acceptor(&runtime, "failed");
        let mut accept = Accept::default();
        let mut fails =
            || acceptor.failed(&mut accept, &io::Error::from_raw_os_error(libc::ECONNABORTED));
        let ended: Vec<_> = (0..2 * MOST_ERRORS_IN_A_ROW).filter(|_| fails()).collect();
        assert_eq!(ended, [MOST_ERRORS_IN_A_ROW - 1, 2 * MOST_ERRORS_IN_A_ROW - 1]);
        let count = runtime.handle().stats().get(Counter::AcceptErrorsPeer);
        assert_eq!(count, u64::from(2 * MOST_ERRORS_IN_A_ROW));
    }
}
