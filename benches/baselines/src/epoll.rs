//! System calls that the servers on bare epoll share, and the listener of all servers.

#![expect(unsafe_code, reason = "std has no door to epoll")]

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use socket2::{Domain, SockRef, Socket, Type};

/// An epoll descriptor. The data of an event is the number of the watched descriptor.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// Use of an address. The kernel deals connections out among listeners that share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    Shared,
    Alone,
}

const LISTEN_QUEUE: i32 = 4096;
const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

impl Epoll {
    /// # Errors
    /// Those of the system.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer; the result is checked before it is used.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call above has just returned this descriptor, which has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// # Errors
    /// Those of the system.
    pub fn add(&self, fd: &impl AsFd, bits: i32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, bits)
    }

    /// # Errors
    /// Those of the system.
    pub fn modify(&self, fd: &impl AsFd, bits: i32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, bits)
    }

    /// Waits for this many milliseconds at most, without end if negative. An interrupted wait has no
    /// events.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(&self, events: &mut [libc::epoll_event], timeout_ms: i32) -> io::Result<usize> {
        let (slots, room) = (events.as_mut_ptr(), events.len() as i32);
        // SAFETY: `slots` points to `room` events that are ours for the length of the call.
        match checked(unsafe { libc::epoll_wait(self.0.as_raw_fd(), slots, room, timeout_ms) }) {
            Ok(count) => Ok(count as usize),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn control(&self, what: i32, fd: &impl AsFd, bits: i32) -> io::Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        let mut event = libc::epoll_event { events: bits as u32, u64: fd as u64 };
        // SAFETY: the event outlives the call, and both descriptors are open: they are borrowed.
        checked(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &raw mut event) }).map(drop)
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for events.
pub fn events<const N: usize>() -> [libc::epoll_event; N] {
    [NO_EVENT; N]
}

/// A listener with the queue that all servers have.
///
/// # Errors
/// Those of the system.
pub fn listen(address: SocketAddr, sharing: Address) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if sharing == Address::Shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(LISTEN_QUEUE)?;
    Ok(socket.into())
}

/// Appends what it receives to `bytes`, `at_most` bytes, without clearing the place first.
///
/// # Errors
/// Those of the system.
pub fn receive_behind(
    socket: &TcpStream,
    bytes: &mut Vec<u8>,
    at_most: usize,
) -> io::Result<usize> {
    bytes.reserve(at_most);
    let count = SockRef::from(socket).recv(&mut bytes.spare_capacity_mut()[..at_most])?;
    // SAFETY: the kernel has just written this many bytes there, within the capacity.
    unsafe { bytes.set_len(bytes.len() + count) };
    Ok(count)
}

/// True if the call would have waited or was interrupted. The next event will tell.
pub fn again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Result of a system call, or the error that it has left.
fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
