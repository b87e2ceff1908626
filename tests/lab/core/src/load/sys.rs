//! What the load generator asks of the kernel: readiness, precise waits, descriptors.
//!
//! It knows nothing of frames or connections; a token comes back as it went in.

#![expect(unsafe_code, reason = "epoll, prctl and rlimit have no safe form in std")]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// An epoll instance whose waits end on the microsecond, not on the millisecond.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    /// Kernels before 5.11 lack `epoll_pwait2`; there a wait is rounded up to a millisecond.
    rounds_up: bool,
}

/// What is to be reported about a socket. Always edge-triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Reading,
    ReadingAndWriting,
}

/// One reported socket: the token it was added with, and what happened.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub token: u64,
    pub writable: bool,
    /// The peer has finished, or the socket is broken: read on to the end.
    pub ended: bool,
}

/// Room for the sockets that one wait reports.
pub struct Events {
    buffer: Vec<libc::epoll_event>,
    filled: usize,
}

impl Poll {
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer; the result is checked before it is used.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        checked(fd)?;
        // SAFETY: the call above has just returned this descriptor, and nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll, rounds_up: false })
    }

    pub fn add(&self, socket: &impl AsFd, token: u64, watch: Watch) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket.as_fd().as_raw_fd(), token, watch)
    }

    /// Changes what is reported; what is already true is reported again.
    pub fn modify(&self, socket: &impl AsFd, token: u64, watch: Watch) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket.as_fd().as_raw_fd(), token, watch)
    }

    /// Waits until a socket is ready or `limit` has passed.
    pub fn wait(&mut self, events: &mut Events, limit: Duration) -> io::Result<()> {
        events.filled = 0;
        let count = loop {
            match self.wait_once(events, limit) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) && !self.rounds_up => {
                    self.rounds_up = true;
                }
                result => break result?,
            }
        };
        events.filled = count;
        Ok(())
    }

    fn wait_once(&self, events: &mut Events, limit: Duration) -> io::Result<usize> {
        let epoll = self.epoll.as_raw_fd();
        let room = events.buffer.len() as libc::c_int;
        let slots = events.buffer.as_mut_ptr();
        let count = if self.rounds_up {
            let millis = limit.as_nanos().div_ceil(1_000_000).min(60_000) as libc::c_int;
            // SAFETY: `slots` points to `room` events that are ours for the length of the call.
            unsafe { libc::epoll_wait(epoll, slots, room, millis) }
        } else {
            let limit = libc::timespec {
                tv_sec: limit.as_secs() as libc::time_t,
                tv_nsec: limit.subsec_nanos().into(),
            };
            let no_mask = ptr::null::<libc::sigset_t>();
            // SAFETY: `slots` points to `room` events that are ours for the length of the call,
            // the time outlives it, and without a signal mask its size is not looked at.
            let count = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    epoll,
                    slots,
                    room,
                    &raw const limit,
                    no_mask,
                    0,
                )
            };
            count as libc::c_int
        };
        checked(count).map(|count| count as usize)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, token: u64, watch: Watch) -> io::Result<()> {
        let reading = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
        let bits = match watch {
            Watch::Reading => reading,
            Watch::ReadingAndWriting => reading | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: bits as u32, u64: token };
        // SAFETY: the event outlives the call, and both descriptors are open: we own or borrow them.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &raw mut event) };
        checked(result).map(drop)
    }
}

impl Events {
    pub fn with_room_for(sockets: usize) -> Self {
        Self { buffer: vec![libc::epoll_event { events: 0, u64: 0 }; sockets], filled: 0 }
    }

    /// How many sockets the last wait reported.
    pub fn len(&self) -> usize {
        self.filled
    }

    pub fn get(&self, place: usize) -> Ready {
        let event = self.buffer[place];
        let bits = event.events;
        let ended = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        Ready {
            token: event.u64,
            writable: bits & libc::EPOLLOUT as u32 != 0,
            ended: bits & ended as u32 != 0,
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.filled).map(|place| self.get(place))).finish()
    }
}

/// Lets this thread's waits end within a microsecond of their time; the kernel's default is 50.
pub fn wake_precisely() -> io::Result<()> {
    let nanos: libc::c_ulong = 1;
    // SAFETY: this operation takes a number, no pointer, and concerns the calling thread alone.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos) };
    checked(result).map(drop)
}

/// Raises the soft limit on open descriptors to the hard one and returns it.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit` to a place that is ours.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    checked(result)?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the kernel reads one `rlimit` that outlives the call.
        let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        checked(result)?;
    }
    Ok(limit.rlim_cur)
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
