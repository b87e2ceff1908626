//! Waiting for two sockets at a time, with waits that end on the microsecond.

#![expect(unsafe_code, reason = "ppoll has no safe form in std")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

/// A socket with the events that are wanted and those that were reported.
#[derive(Debug)]
pub struct Watched<'a> {
    pub socket: BorrowedFd<'a>,
    pub readable: bool,
    pub writable: bool,
    /// It is finished in both directions, or broken. Told even if nothing is wanted.
    pub gone: bool,
}

/// Waits until a socket has a wanted event, or until `limit` has passed. `None` is no limit.
pub fn wait(watched: &mut [Watched<'_>; 2], limit: Option<Duration>) -> io::Result<()> {
    let mut entries = [0, 1].map(|index| {
        let one: &Watched<'_> = &watched[index];
        let reading = if one.readable { libc::POLLIN } else { 0 };
        let writing = if one.writable { libc::POLLOUT } else { 0 };
        // A socket that is gone is reported at once and for ever: it is left out, unless wanted.
        let left_out = one.gone && reading == 0 && writing == 0;
        let fd = if left_out { -1 } else { one.socket.as_raw_fd() };
        libc::pollfd { fd, events: reading | writing, revents: 0 }
    });
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the two entries and the time are ours for the length of the call; their descriptors
    // are borrowed and therefore open; without a signal mask none is looked at.
    let count = unsafe { libc::ppoll(entries.as_mut_ptr(), 2, limit, ptr::null()) };
    if count < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
    }
    for (one, entry) in watched.iter_mut().zip(&entries) {
        one.gone |= entry.revents & (libc::POLLHUP | libc::POLLERR) != 0;
    }
    Ok(())
}
