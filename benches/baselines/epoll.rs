//! The few system calls that the servers on bare epoll share, and how all of them listen.

#![expect(unsafe_code, reason = "std has no door to epoll and eventfd")]

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use socket2::{Domain, SockRef, Socket, Type};

/// An epoll descriptor. Its data are the numbers of the descriptors that are watched.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

/// Whether others may listen at the same address: the kernel then deals connections out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Shared,
    Alone,
}

const LISTEN_QUEUE: i32 = 4096;
const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer; the result is checked before it is used.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call above has just returned this descriptor, and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn add(&self, fd: &impl AsFd, bits: i32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, bits)
    }

    pub(crate) fn modify(&self, fd: &impl AsFd, bits: i32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, bits)
    }

    /// Waits for so many milliseconds at most; without end if negative. An interrupted wait has
    /// no events.
    pub(crate) fn wait(
        &self,
        events: &mut [libc::epoll_event],
        timeout_ms: i32,
    ) -> io::Result<usize> {
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

/// Room for so many events.
pub(crate) fn events<const N: usize>() -> [libc::epoll_event; N] {
    [NO_EVENT; N]
}

/// A listener as all servers here have it: the same long queue for each.
pub(crate) fn listen(address: SocketAddr, sharing: Address) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if sharing == Address::Shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(LISTEN_QUEUE)?;
    Ok(socket.into())
}

/// Receives behind what `bytes` holds, so much at the most, without clearing the place first.
pub(crate) fn receive_behind(
    socket: &TcpStream,
    bytes: &mut Vec<u8>,
    at_most: usize,
) -> io::Result<usize> {
    bytes.reserve(at_most);
    let count = SockRef::from(socket).recv(&mut bytes.spare_capacity_mut()[..at_most])?;
    // SAFETY: the kernel has just written so many bytes there, and they are within the capacity.
    unsafe { bytes.set_len(bytes.len() + count) };
    Ok(count)
}

/// The call would have waited, or is to be made again: the next event will tell.
pub(crate) fn again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The result of a system call, or the error that it has left.
pub(crate) fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
