//! Socket options have the configured values, as read back from the descriptors.
#![allow(unsafe_code, reason = "descriptors of the runtime are found by their numbers")]

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::mpsc;
use std::time::Duration;

use epoll_group::Config;
use epoll_group::net::{Address, Connection, Input};
use socket2::SockRef;

use lab::protocol::{Bytes, echo};
use lab::{Kind, LONG, Server, config, eventually};

/// Waits for a descriptor of this process for which `holds` is true, and returns it.
#[track_caller]
fn find(holds: impl Fn(&SockRef<'_>) -> bool) -> BorrowedFd<'static> {
    let mut found = None;
    eventually(LONG, || {
        found = numbers().map(borrow).find(|fd| holds(&SockRef::from(fd)));
        found.is_some()
    });
    found.expect("it was found")
}

fn numbers() -> impl Iterator<Item = RawFd> {
    let all = fs::read_dir("/proc/self/fd").expect("Linux").filter_map(Result::ok);
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the descriptor is used only to read its options. If it was closed meanwhile, the
    // system call fails.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// True if `of` is the address of the socket's peer.
fn is_peer(socket: &SockRef<'_>, of: SocketAddr) -> bool {
    socket.peer_addr().is_ok_and(|peer| peer.as_socket() == Some(of))
}

fn tcp(address: &Address) -> SocketAddr {
    let Address::Tcp(address) = *address else { unreachable!("TCP") };
    address
}

const KEEP_ALIVE: Duration = Duration::from_secs(77);
const NOT_SENT: u32 = 12_345;
const SEND_BUF: usize = 100_000;
const RECV_BUF: usize = 50_000;

fn unusual() -> Config {
    let config = config().tcp_keep_alive(KEEP_ALIVE).tcp_notsent_lowat_bytes(NOT_SENT);
    config.tcp_send_buf(SEND_BUF).tcp_recv_buf(RECV_BUF)
}

#[track_caller]
fn has_all(fd: BorrowedFd<'_>) {
    let socket = SockRef::from(&fd);
    assert!(socket.keepalive().expect("told") && socket.tcp_nodelay().expect("told"));
    assert_eq!(socket.tcp_keepalive_time().expect("told"), KEEP_ALIVE);
    assert_eq!(socket.tcp_notsent_lowat().expect("told"), NOT_SENT);
    // The kernel counts its own part too.
    assert_eq!(socket.send_buffer_size().expect("told"), 2 * SEND_BUF);
    assert_eq!(socket.recv_buffer_size().expect("told"), 2 * RECV_BUF);
}

#[test]
fn an_accepted_socket_has_the_options_of_the_configuration() {
    let server = Server::start(Kind::Tcp, unusual(), Bytes::new(echo));
    let mut peer = server.peer();
    peer.echo(b"accepted");
    let of = peer.local_addr().expect("TCP");
    has_all(find(|socket| is_peer(socket, of)));
}

#[test]
fn a_socket_accepted_after_a_change_has_the_options_of_the_new_configuration() {
    let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    server.peer().echo(b"before");
    server.runtime.reconfigure(|_| unusual()).expect("valid");
    let mut peer = server.peer();
    peer.echo(b"accepted");
    let of = peer.local_addr().expect("TCP");
    has_all(find(|socket| is_peer(socket, of)));
}

#[test]
fn an_accepted_unix_socket_has_the_send_buffer_of_the_configuration() {
    let (tell, sizes) = mpsc::channel();
    let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        let size = SockRef::from(conn).send_buffer_size().expect("told");
        tell.send(size).expect("the test waits");
        echo(conn, input)
    });
    let server = Server::start(Kind::Unix, unusual(), protocol);
    server.peer().echo(b"accepted");
    assert_eq!(sizes.recv().expect("the protocol was called"), 2 * SEND_BUF);
}

#[test]
fn an_outgoing_socket_has_the_options_of_the_configuration() {
    let server = Server::start(Kind::Tcp, unusual(), Bytes::new(echo));
    let other = TcpListener::bind("127.0.0.1:0").expect("bound");
    let of = other.local_addr().expect("an address");
    let _conn = server.runtime.connect(of, Bytes::new(echo)).expect("begun");
    has_all(find(|socket| is_peer(socket, of)));
}

#[test]
fn a_listener_has_room_for_tcp_listen_queue_in_its_backlog() {
    let allowed = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("it can be read");
    let allowed: u32 = allowed.trim().parse().expect("a number");
    for (configured, queue) in [(None, allowed), (Some(1), 1), (Some(7), 7)] {
        let config = configured.map_or_else(config, |queue| config().tcp_listen_queue(queue));
        let server = Server::start(Kind::Tcp, config, Bytes::new(echo));
        let at = tcp(server.address());
        let listens = |socket: &SockRef<'_>| {
            let here = socket.local_addr().is_ok_and(|local| local.as_socket() == Some(at));
            here && socket.is_listener().unwrap_or(false)
        };
        assert_eq!(backlog(find(listens)).expect("told"), queue);
    }
}

/// Returns the number of connections that may wait to be accepted.
fn backlog(listener: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).expect("small");
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    let (fd, to) = (listener.as_raw_fd(), info.as_mut_ptr().cast());
    // SAFETY: `info` and `len` are live and describe one `tcp_info`.
    if unsafe { libc::getsockopt(fd, level, name, to, &raw mut len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zero is a valid value, and the kernel wrote over it.
    let info = unsafe { info.assume_init() };
    // For a listener, the kernel reports the backlog in this field.
    Ok(info.tcpi_sacked)
}
