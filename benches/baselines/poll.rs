//! What the servers need whose threads wait with `poll`: for one descriptor or two, and an event
//! fd to wake a thread that does so.

#![expect(unsafe_code, reason = "std has no door to poll and eventfd")]

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

use super::epoll::checked;

/// Wakes the thread that waits for it; signals add up to one.
#[derive(Debug)]
pub(crate) struct EventFd(File);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer; the result is checked before it is used.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the call above has just returned this descriptor, and nobody else owns it.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    pub(crate) fn signal(&self) -> io::Result<()> {
        (&self.0).write_all(&1u64.to_ne_bytes())
    }

    /// Takes back what was signalled, if anything was.
    pub(crate) fn drain(&self) -> io::Result<()> {
        match (&self.0).read(&mut [0; 8]) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits without end until one of the descriptors has one of its events; returns the events of
/// each. An interrupted wait has none.
pub(crate) fn wait<const N: usize>(wanted: [(BorrowedFd<'_>, i16); N]) -> io::Result<[i16; N]> {
    let mut entries =
        wanted.map(|(fd, events)| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
    // SAFETY: `entries` holds so many entries and outlives the call; the descriptors are borrowed.
    match checked(unsafe { libc::poll(entries.as_mut_ptr(), N as libc::nfds_t, -1) }) {
        Ok(_) => Ok(entries.map(|entry| entry.revents)),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok([0; N]),
        Err(error) => Err(error),
    }
}
