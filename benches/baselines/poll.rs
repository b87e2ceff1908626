//! What the servers need whose threads wait with `poll`, for one descriptor or two.

#![expect(unsafe_code, reason = "std has no door to poll")]

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::epoll::checked;

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
