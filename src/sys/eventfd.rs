//! `eventfd`: one write, one edge.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{check, check_len, retry};

/// Counter whose every increment is an edge for an edge-triggered epoll.
///
/// It is never read: the edge alone is the message. The counter could only overflow after 2^64 − 2
/// signals.
#[derive(Debug)]
pub(crate) struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel just returned this descriptor, and it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Makes one edge.
    pub(crate) fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        let written = retry(|| {
            // SAFETY: `one` is a live array of the length that is passed.
            check_len(unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) })
        });
        debug_assert!(written.is_ok(), "eventfd write failed: {written:?}");
    }
}

/// Opens a descriptor that reserves a number, to be closed when there are no others. It needs no
/// file, because a changed root directory may lack it.
pub(crate) fn reserve_descriptor() -> io::Result<OwnedFd> {
    EventFd::new().map(|eventfd| eventfd.fd)
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
