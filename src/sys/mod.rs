//! Operating-system layer: it contains every descriptor and every call through `libc` of the crate.
//!
//! Its promises to the layers above:
//!
//! * A descriptor is an [`OwnedFd`](std::os::fd::OwnedFd) from the moment the kernel returned it.
//!   It is closed exactly once, and never inherited by a child process (`CLOEXEC`).
//! * `errno` becomes an [`io::Error`](std::io::Error) at the call, before any other call can change
//!   it. `EINTR` is retried here, so the layers above need not handle it.
//! * Nothing here blocks, except [`Epoll::wait`](epoll::Epoll::wait), whose purpose it is.
//!
//! It knows nothing of groups, connections or bytes of a protocol.
//!
//! It calls `libc`, although `rustix` has safe signatures for 23 of its 31 `unsafe` blocks: epoll,
//! eventfd, timerfd, clocks, and `accept`, `recv`, `send`, `poll`, `connect` and the credentials of
//! sockets. By default `rustix` makes the system calls itself. The tests that let each call fail
//! replace functions of the C library, so they would not reach it. Its feature `use-libc` would
//! hold for the whole program of a user. In a trial of epoll, `recv`, `send` and the eventfd the
//! CPU time per request did not change.
#![allow(unsafe_code)]

pub(crate) mod affinity;
pub(crate) mod clock;
pub(crate) mod cpu_set;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod random;
pub(crate) mod sched;
pub(crate) mod socket;
pub(crate) mod timerfd;
pub(crate) mod topology;

use std::io;

/// Turns the `-1` convention of the C library into a result, and reads `errno` at once.
fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Like [`check`], for calls that return a byte count.
fn check_len(returned: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Repeats a call while signals interrupt it.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
