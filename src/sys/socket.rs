//! Stream sockets: listening, accepting, connecting, bytes in and out. All are non-blocking.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use super::{check, check_len, retry};

/// Code of the user that sets more options of a socket.
#[derive(Clone)]
pub(crate) struct Prepare(Arc<dyn Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync>);

impl Prepare {
    pub(crate) fn new(
        code: impl Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(code))
    }
}

impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepare")
    }
}

/// Options of sockets from the configuration. Accepted TCP sockets inherit them from the listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuning {
    pub(crate) keep_alive: Duration,
    /// `SO_SNDBUF`, 0 leaves the kernel's choice.
    pub(crate) send_buf: usize,
    /// `SO_RCVBUF`, 0 leaves the kernel's choice.
    pub(crate) recv_buf: usize,
    /// `TCP_NOTSENT_LOWAT`, 0 leaves the kernel's choice.
    pub(crate) notsent_lowat: u32,
}

impl Tuning {
    /// Sets the options that differ from `before`, those of the socket. A size that was set once cannot
    /// be left to the kernel again.
    pub(crate) fn apply(self, fd: BorrowedFd<'_>, before: Self, family: Family) -> io::Result<()> {
        let (socket, tcp) = (SockRef::from(&fd), family == Family::Tcp);
        if self.send_buf != before.send_buf && self.send_buf != 0 {
            socket.set_send_buffer_size(self.send_buf)?;
        }
        // A Unix socket has no receive buffer.
        if tcp && self.recv_buf != before.recv_buf && self.recv_buf != 0 {
            socket.set_recv_buffer_size(self.recv_buf)?;
        }
        if tcp && self.keep_alive != before.keep_alive {
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(self.keep_alive))?;
        }
        if tcp && self.notsent_lowat != before.notsent_lowat {
            socket.set_tcp_notsent_lowat(self.notsent_lowat)?;
        }
        Ok(())
    }
}

/// Options of a listener, or of an outgoing socket.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) tuning: Tuning,
    /// Called after the options of `tuning` are set.
    pub(crate) prepare: Option<Prepare>,
}

impl Options {
    fn apply(&self, socket: &Socket, family: Family) -> io::Result<()> {
        if family == Family::Tcp {
            socket.set_tcp_nodelay(true)?;
        }
        self.tuning.apply(socket.as_fd(), Tuning::default(), family)?;
        self.prepare.as_ref().map_or(Ok(()), |prepare| (prepare.0)(socket.as_fd()))
    }

    /// Like `apply`, for a socket that the host has made. It may have another low-water mark.
    fn adopt(&self, socket: &Socket, family: Family) -> io::Result<()> {
        if family == Family::Tcp {
            socket.set_tcp_notsent_lowat(self.tuning.notsent_lowat)?;
        }
        self.apply(socket, family)
    }
}

/// Binds and listens on a TCP address, once or for `count` listeners of one port.
///
/// Unless `shared`, the first bind is made without `SO_REUSEPORT`. Therefore a port in use is an
/// error. Later another program of the same user can share the port of several listeners.
pub(crate) fn listen_tcp(
    addr: SocketAddr,
    count: usize,
    shared: bool,
    backlog: i32,
    options: &Options,
) -> io::Result<Vec<OwnedFd>> {
    let first = tcp_socket(addr)?;
    first.set_reuse_address(true)?;
    options.apply(&first, Family::Tcp)?;
    if shared {
        first.set_reuse_port(true)?;
    }
    first.bind(&addr.into())?;
    if count > 1 {
        first.set_reuse_port(true)?;
    }
    let bound = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..count {
        let socket = tcp_socket(addr)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        options.apply(&socket, Family::Tcp)?;
        socket.bind(&bound)?;
        sockets.push(socket);
    }
    for socket in &sockets {
        socket.listen(backlog)?;
    }
    Ok(sockets.into_iter().map(OwnedFd::from).collect())
}

/// Binds and listens on a Unix address. The caller removes the file, unless this fails.
pub(crate) fn listen_unix(
    address: &SockAddr,
    backlog: i32,
    options: &Options,
) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    options.apply(&socket, Family::Unix)?;
    socket.bind(address)?;
    if let Err(error) = socket.listen(backlog) {
        // The error of `listen` matters more than that of a failed removal.
        let _ = address.as_pathname().map(std::fs::remove_file);
        return Err(error);
    }
    Ok(socket.into())
}

/// Takes over a listener that the host made.
pub(crate) fn adopt_listener(fd: BorrowedFd<'_>, options: &Options) -> io::Result<()> {
    let socket = SockRef::from(&fd);
    check_stream(&socket)?;
    if !socket.is_listener()? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket does not listen"));
    }
    socket.set_nonblocking(true)?;
    options.adopt(&socket, Family::of(&socket.local_addr()?))
}

fn check_stream(socket: &Socket) -> io::Result<()> {
    if socket.r#type()? == Type::STREAM {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket is no stream"))
}

/// Takes over a connected socket that the host made. Returns the address of its peer.
pub(crate) fn adopt_stream(fd: BorrowedFd<'_>, options: &Options) -> io::Result<SockAddr> {
    let socket = SockRef::from(&fd);
    check_stream(&socket)?;
    let peer = socket.peer_addr()?;
    socket.set_nonblocking(true)?;
    options.adopt(&socket, Family::of(&peer))?;
    Ok(peer)
}

/// Returns another descriptor of the same socket.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

/// Returns true if the file of a Unix socket is there and no process listens on it.
pub(crate) fn is_stale(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) => Ok(error.kind() == io::ErrorKind::ConnectionRefused),
        Ok(()) => Ok(false),
    }
}

/// Starts to connect. The socket becomes writable when the connect has succeeded or failed.
pub(crate) fn connect(
    to: &SockAddr,
    from: Option<SocketAddr>,
    options: &Options,
) -> io::Result<OwnedFd> {
    let family = Family::of(to);
    let protocol = (family == Family::Tcp).then_some(Protocol::TCP);
    let socket = Socket::new(to.domain(), Type::STREAM.nonblocking(), protocol)?;
    options.apply(&socket, family)?;
    if let Some(from) = from {
        if from.port() != 0 {
            // The socket of an earlier attempt may still have the port.
            socket.set_reuse_address(true)?;
        }
        socket.bind(&from.into())?;
    }
    match socket.connect(to) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Replaces the socket behind a descriptor, which keeps its number.
pub(crate) fn replace(fd: BorrowedFd<'_>, socket: OwnedFd) -> io::Result<()> {
    retry(|| {
        // SAFETY: both descriptors are open, and the owner of `fd` owns what it refers to afterwards.
        check(unsafe { libc::dup3(socket.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) })
    })?;
    Ok(())
}

fn tcp_socket(addr: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking(), Some(Protocol::TCP))
}

/// Accepts one connection.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SockAddr)> {
    let accept = |storage: *mut _, len: *mut _| {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fd = retry(|| {
            let storage: *mut libc::sockaddr = storage;
            // SAFETY: `storage` and `len` are live and describe one `sockaddr_storage`.
            check(unsafe { libc::accept4(listener.as_raw_fd(), storage, len, flags) })
        })?;
        // SAFETY: the kernel just returned this descriptor, and it has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // SAFETY: on success `accept4` has initialised the address up to the length that it wrote.
    unsafe { SockAddr::try_init(|storage, len| accept(storage.cast(), len)) }
}

/// Kind of a stream socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Tcp,
    Unix,
}

impl Family {
    fn of(address: &SockAddr) -> Self {
        if address.as_socket().is_some() { Self::Tcp } else { Self::Unix }
    }
}

/// Result of one receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// 0 is the end of the stream.
    pub(crate) bytes: usize,
    /// True if the receive ended behind bytes that came with descriptors, which were dropped. More
    /// bytes may be there, for which no edge comes. Only on a Unix socket.
    pub(crate) cut: bool,
}

/// Receives the available bytes, at most `buf.len()`.
pub(crate) fn recv(fd: BorrowedFd<'_>, family: Family, buf: &mut [u8]) -> io::Result<Received> {
    recv_raw(fd, family, buf.as_mut_ptr(), buf.len())
}

/// Receives into the spare capacity of `buf`, which must not be empty.
pub(crate) fn recv_append(
    fd: BorrowedFd<'_>,
    family: Family,
    buf: &mut Vec<u8>,
) -> io::Result<Received> {
    let spare: &mut [MaybeUninit<u8>] = buf.spare_capacity_mut();
    debug_assert!(!spare.is_empty(), "0 bytes asked would look like the end of the stream");
    let received = recv_raw(fd, family, spare.as_mut_ptr().cast(), spare.len())?;
    let len = buf.len() + received.bytes;
    // SAFETY: the kernel initialised that many bytes of the spare capacity.
    unsafe { buf.set_len(len) };
    Ok(received)
}

fn recv_raw(fd: BorrowedFd<'_>, family: Family, buf: *mut u8, len: usize) -> io::Result<Received> {
    if family == Family::Tcp {
        let bytes = retry(|| {
            // SAFETY: the callers pass a live, writable range of `len` bytes.
            check_len(unsafe { libc::recv(fd.as_raw_fd(), buf.cast(), len, 0) })
        })?;
        return Ok(Received { bytes, cut: false });
    }
    let mut piece = libc::iovec { iov_base: buf.cast(), iov_len: len };
    // SAFETY: 0 is a valid value of all fields; it means no place for descriptors.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    let bytes = retry(|| {
        // SAFETY: `message` names one piece, a live, writable range of `len` bytes.
        check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) })
    })?;
    Ok(Received { bytes, cut: message.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// Returns true if bytes have arrived that no receive has taken.
pub(crate) fn has_input(fd: BorrowedFd<'_>) -> bool {
    let peeked = SockRef::from(&fd).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_ok_and(|bytes| bytes > 0)
}

/// Returns the number of bytes that have arrived and that no receive has taken, up to an urgent one.
pub(crate) fn unread_bytes(fd: BorrowedFd<'_>) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one number, to `bytes`.
    let asked = check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut bytes) });
    asked.map_or(0, |_| usize::try_from(bytes).unwrap_or(0))
}

/// Returns if the peer has finished sending, and if the socket is broken or closed in both directions.
/// Takes no error from the socket.
pub(crate) fn hang_ups(fd: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `poll` is one live entry, and the call does not wait.
    retry(|| check(unsafe { libc::poll(&raw mut poll, 1, 0) }))?;
    let has = |events| poll.revents & events != 0;
    Ok((has(libc::POLLRDHUP), has(libc::POLLHUP | libc::POLLERR)))
}

/// Sends as much as the socket accepts.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    retry(|| {
        // SAFETY: `bytes` is live for the call, and its own length is passed.
        check_len(unsafe {
            libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
        })
    })
}

/// Sends bytes in several pieces, of which there may be `IOV_MAX`.
pub(crate) fn send_slices(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let socket = SockRef::from(&fd);
    retry(|| socket.send_vectored_with_flags(slices, libc::MSG_NOSIGNAL))
}

/// Ends the sending direction.
pub(crate) fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&fd).shutdown(std::net::Shutdown::Write)
}

/// Ends both directions; the descriptor stays open.
pub(crate) fn shutdown_both(fd: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&fd).shutdown(std::net::Shutdown::Both)
}

/// Resets a TCP connection. Other sockets return an error.
pub(crate) fn reset(fd: BorrowedFd<'_>) -> io::Result<()> {
    // An address without a family dissolves the connection.
    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as _, sa_data: [0; 14] };
    let len = size_of_val(&nowhere) as libc::socklen_t;
    // SAFETY: `nowhere` is live for the call, and `len` is its size.
    check(unsafe { libc::connect(fd.as_raw_fd(), &raw const nowhere, len) })?;
    Ok(())
}

/// Takes the pending error of the socket, if any.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    SockRef::from(&fd).take_error()
}

/// Address of the other end. There is none before a connection is made, nor after it failed.
pub(crate) fn peer_addr(fd: BorrowedFd<'_>) -> io::Result<SockAddr> {
    SockRef::from(&fd).peer_addr()
}

pub(crate) fn local_addr(fd: BorrowedFd<'_>) -> io::Result<SockAddr> {
    SockRef::from(&fd).local_addr()
}

/// Process, user and group at the other end of a Unix socket, at the time when it connected.
pub(crate) fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<(i32, u32, u32)> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: `credentials` and `len` are live and describe one `ucred`.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    })?;
    Ok((credentials.pid, credentials.uid, credentials.gid))
}
