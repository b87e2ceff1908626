//! `epoll`: registration and waiting, edge-triggered only.

use std::fmt;
use std::io;
use std::ops::BitOr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::{check, retry};

/// An epoll instance that many threads may wait on at once.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just returned this descriptor, and it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Registers `fd`, edge-triggered. If it is ready already, the next wait reports it.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, interest: Interest, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, data)
    }

    /// Registers `fd` anew, with another interest. If it is ready, the next wait reports it.
    pub(crate) fn modify(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        data: u64,
    ) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, data)
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: BorrowedFd<'_>,
        interest: Interest,
        data: u64,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.0 | libc::EPOLLET as u32, u64: data };
        // SAFETY: both descriptors are open (owned and borrowed), `event` outlives the call.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event)
        })?;
        Ok(())
    }

    /// Deregisters `fd`. A worker may still hold an event for it that it received before.
    pub(crate) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open; the kernel ignores the event pointer for DEL.
        check(unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            )
        })?;
        Ok(())
    }

    /// Waits until a descriptor is ready, fills `events` and returns their number.
    ///
    /// Without a limit, signals do not end the wait. With a limit, the wait returns no events when
    /// the time is over or a signal interrupts it. If it restarted with the whole limit after each
    /// signal, many signals could make it wait for ever.
    pub(crate) fn wait(&self, events: &mut [Event], limit: Option<Duration>) -> io::Result<usize> {
        let capacity = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
        let timeout = limit.map_or(-1, |limit| {
            // The limit is rounded up: a limit of less than a millisecond would not wait at all.
            let millis = limit.as_nanos().div_ceil(1_000_000);
            libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX)
        });
        let mut wait = || {
            // SAFETY: `events` is a live, writable array of `capacity` elements whose layout is
            // that of `epoll_event` (`repr(transparent)`).
            check(unsafe {
                libc::epoll_wait(
                    self.fd.as_raw_fd(),
                    events.as_mut_ptr().cast::<libc::epoll_event>(),
                    capacity,
                    timeout,
                )
            })
        };
        let count = match limit {
            None => retry(wait)?,
            Some(_) => match wait() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                waited => waited?,
            },
        };
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// One event as the kernel wrote it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Event(libc::epoll_event);

impl Event {
    pub(crate) const EMPTY: Self = Self(libc::epoll_event { events: 0, u64: 0 });

    pub(crate) fn data(self) -> u64 {
        self.0.u64
    }

    pub(crate) fn readiness(self) -> Readiness {
        Readiness(self.0.events)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("data", &self.data())
            .field("readiness", &self.readiness())
            .finish()
    }
}

/// Events for which a descriptor is watched. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Bytes, a connection, or an expiry can be read.
    pub const READABLE: Self = Self(libc::EPOLLIN as u32);
    /// Bytes can be written.
    pub const WRITABLE: Self = Self(libc::EPOLLOUT as u32);
    /// All events of a stream socket except room to write.
    pub(crate) const INPUT: Self = Self((libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32);
    /// All events of a stream socket: in, out, peer finished, urgent data.
    pub(crate) const STREAM: Self =
        Self((libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32);
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// State of a descriptor that the kernel reported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Readiness(u32);

impl Readiness {
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if there is an urgent byte.
    pub(crate) const fn is_urgent(self) -> bool {
        self.0 & libc::EPOLLPRI as u32 != 0
    }

    /// The same state in five bits: a peer that finished sending counts as a hang-up.
    pub(crate) const fn condensed(self) -> u8 {
        const _: () = assert!(libc::EPOLLRDHUP >> 9 == libc::EPOLLHUP && libc::EPOLLHUP == 0x10);
        (self.0 & 0x1f | self.0 >> 9 & 0x10) as u8
    }

    /// Inverse of [`condensed`](Self::condensed).
    pub(crate) const fn from_condensed(bits: u8) -> Self {
        Self(bits as u32)
    }

    /// Returns true if there is input to read, which may be the end of the stream.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        self.0 & (libc::EPOLLIN | libc::EPOLLPRI) as u32 != 0 || self.is_hung_up()
    }

    /// Returns true if there is room to write.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.0 & libc::EPOLLOUT as u32 != 0
    }

    /// Returns true if the peer finished sending, or the descriptor is broken: read on to the end.
    #[must_use]
    pub const fn is_hung_up(self) -> bool {
        self.0 & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// Returns true if an error is pending on the descriptor.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 & libc::EPOLLERR as u32 != 0
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (libc::EPOLLIN, "in"),
            (libc::EPOLLPRI, "pri"),
            (libc::EPOLLOUT, "out"),
            (libc::EPOLLRDHUP, "rdhup"),
            (libc::EPOLLHUP, "hup"),
            (libc::EPOLLERR, "err"),
        ];
        let set = names.iter().filter(|(bit, _)| self.0 & *bit as u32 != 0);
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::thread::JoinHandleExt;
    use std::thread;

    use super::*;
    use crate::sys::clock::Instant;

    /// Longer than any wait of these tests.
    const LONG: Duration = Duration::from_secs(30);

    extern "C" fn ignore(_: libc::c_int) {}

    #[test]
    fn a_signal_ends_a_wait_that_is_limited() {
        // The default action of SIGURG is to ignore it, and an ignored signal ends no wait.
        let ignore: extern "C" fn(libc::c_int) = ignore;
        // SAFETY: the handler does nothing, and has the signature of a signal handler.
        unsafe { libc::signal(libc::SIGURG, ignore as libc::sighandler_t) };
        let waiter = thread::spawn(|| {
            let epoll = Epoll::new().expect("a descriptor");
            epoll.wait(&mut [Event::EMPTY], Some(10 * LONG)).expect("nothing wrong")
        });
        let began = Instant::now();
        // The thread may not wait yet, so the signal is repeated.
        while !waiter.is_finished() {
            assert!(began.elapsed() < LONG, "it waits on");
            // SAFETY: the thread was not joined yet.
            unsafe { libc::pthread_kill(waiter.as_pthread_t(), libc::SIGURG) };
            thread::yield_now();
        }
        assert_eq!(waiter.join().expect("no panic"), 0);
    }

    #[test]
    fn condensed_readiness_says_the_same() {
        let bits = [
            libc::EPOLLIN,
            libc::EPOLLPRI,
            libc::EPOLLOUT,
            libc::EPOLLRDHUP,
            libc::EPOLLHUP,
            libc::EPOLLERR,
        ];
        for chosen in 0..1_u32 << bits.len() {
            let set = bits.iter().enumerate().filter(|(n, _)| chosen >> n & 1 != 0);
            let before = Readiness(set.fold(0, |sum, (_, bit)| sum | bit.cast_unsigned()));
            let after = Readiness::from_condensed(before.condensed());
            assert_eq!(after.is_readable(), before.is_readable());
            assert_eq!(after.is_writable(), before.is_writable());
            assert_eq!(after.is_hung_up(), before.is_hung_up());
            assert_eq!(after.is_urgent(), before.is_urgent());
            assert_eq!(after.is_error(), before.is_error());
        }
    }
}
