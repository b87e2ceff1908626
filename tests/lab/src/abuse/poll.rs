//! Waiting for many sockets at once.

#![allow(unsafe_code, reason = "poll is the system's own call")]

use std::os::fd::RawFd;
use std::time::Duration;

/// The events wanted of one socket, and those reported.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Watch(libc::pollfd);

impl Watch {
    /// Errors and hang-ups are always reported.
    pub const fn new(socket: RawFd, read: bool, write: bool) -> Self {
        let events = if read { libc::POLLIN } else { 0 } | if write { libc::POLLOUT } else { 0 };
        Self(libc::pollfd { fd: socket, events, revents: 0 })
    }

    /// An entry that `poll` skips.
    pub const fn nothing() -> Self {
        Self(libc::pollfd { fd: -1, events: 0, revents: 0 })
    }

    pub const fn readable(self) -> bool {
        self.0.revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0
    }

    pub const fn writable(self) -> bool {
        self.0.revents & libc::POLLOUT != 0
    }

    /// The connection is gone, in both directions.
    pub const fn gone(self) -> bool {
        self.0.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }
}

/// Waits until a socket is ready, or until `limit` or a second has passed.
pub fn wait(watches: &mut [Watch], limit: Duration) {
    let millis = limit.as_millis().min(1000) as libc::c_int;
    let count = watches.len() as libc::nfds_t;
    // SAFETY: `Watch` is transparent, and the slice has `count` of them.
    let _ = unsafe { libc::poll(watches.as_mut_ptr().cast(), count, millis) };
}
