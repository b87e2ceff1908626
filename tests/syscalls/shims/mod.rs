//! System calls that fail on request.
//!
//! [`shim`] defines the functions of the C library that make system calls. The linker uses them for
//! the calls of the crate, of socket2 and of std. Each function looks for a fault in the table here
//! and otherwise passes the call on.
//!
//! ```text
//! accept4 in sys/socket.rs ─► shim::accept4 ─► a fault for this call, this side, this peer? ─► errno
//!                                            └ none ─► the kernel
//! ```
//!
//! Faults only hit threads that belong to a side. These are the threads of a runtime made by
//! [`builder`], and a thread inside [`on_behalf`]. So the peers of a test meet no faults.

pub(crate) mod fork;
pub(crate) mod passing;
pub(crate) mod process;
mod shim;
pub(crate) mod signals;

use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use epoll_group::{Builder, Config, Runtime};

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    Accept4,
    Bind,
    ClockGettime,
    Close,
    Connect,
    Dup3,
    EpollAdd,
    EpollCreate1,
    EpollDel,
    EpollMod,
    EpollWait,
    Eventfd,
    Fcntl,
    /// No system call: the C library asks files and servers.
    Getaddrinfo,
    Getpeername,
    Getrandom,
    Getrusage,
    Getsockname,
    Getsockopt,
    Listen,
    Open,
    Poll,
    PthreadCreate,
    Read,
    Recv,
    Recvmsg,
    SchedGetaffinity,
    SchedGetattr,
    SchedSetaffinity,
    SchedSetattr,
    Send,
    Sendmsg,
    Setsockopt,
    Shutdown,
    Socket,
    Statx,
    TimerfdCreate,
    TimerfdSettime,
    Unlink,
    /// Writes to the eventfd. The crate uses `write` for nothing else.
    Write,
}

impl Call {
    /// Name of the call in the manual.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Accept4 => "accept4",
            Self::Bind => "bind",
            Self::ClockGettime => "clock_gettime",
            Self::Close => "close",
            Self::Connect => "connect",
            Self::Dup3 => "dup3",
            Self::EpollAdd => "epoll_ctl ADD",
            Self::EpollCreate1 => "epoll_create1",
            Self::EpollDel => "epoll_ctl DEL",
            Self::EpollMod => "epoll_ctl MOD",
            Self::EpollWait => "epoll_wait",
            Self::Eventfd => "eventfd",
            Self::Fcntl => "fcntl",
            Self::Getaddrinfo => "getaddrinfo",
            Self::Getpeername => "getpeername",
            Self::Getrandom => "getrandom",
            Self::Getrusage => "getrusage",
            Self::Getsockname => "getsockname",
            Self::Getsockopt => "getsockopt",
            Self::Listen => "listen",
            Self::Open => "open",
            Self::Poll => "poll",
            Self::PthreadCreate => "pthread_create",
            Self::Read => "read",
            Self::Recv => "recv",
            Self::Recvmsg => "recvmsg",
            Self::SchedGetaffinity => "sched_getaffinity",
            Self::SchedGetattr => "sched_getattr",
            Self::SchedSetaffinity => "sched_setaffinity",
            Self::SchedSetattr => "sched_setattr",
            Self::Send => "send",
            Self::Sendmsg => "sendmsg",
            Self::Setsockopt => "setsockopt",
            Self::Shutdown => "shutdown",
            Self::Socket => "socket",
            Self::Statx => "statx",
            Self::TimerfdCreate => "timerfd_create",
            Self::TimerfdSettime => "timerfd_settime",
            Self::Unlink => "unlink",
            Self::Write => "write",
        }
    }
}

/// Side to which the calling thread belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

thread_local! {
    static SIDE: Cell<Option<Side>> = const { Cell::new(None) };
}

/// A runtime whose threads belong to a side. Its threads are named `srv` or `cli`.
pub(crate) fn builder(side: Side, config: Config) -> Builder {
    let name = match side {
        Side::Server => "srv",
        Side::Client => "cli",
    };
    Runtime::builder().config(config).name(name).on_thread_start(move |_| SIDE.set(Some(side)))
}

/// Runs `code` with this thread belonging to a side.
pub(crate) fn on_behalf<T>(side: Side, code: impl FnOnce() -> T) -> T {
    let before = SIDE.replace(Some(side));
    let result = code();
    SIDE.set(before);
    result
}

/// Effect of a fault on a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// The call fails with this errno. `close` closes the descriptor nevertheless.
    Fails(i32),
    /// The call transfers at most this many bytes.
    AtMost(usize),
    /// The call is made twice.
    Twice,
    /// `epoll_wait` also repeats an old event that is no longer true.
    Echoes,
    /// The system clock is off by this many seconds.
    Off(i64),
}

/// A fault: its effect, the calls that it hits, and how often.
#[derive(Debug)]
pub(crate) struct Fault {
    call: Call,
    effect: Effect,
    side: Side,
    /// If set, only calls for the peer with this port, or whose path ends in this number.
    peer: Option<u16>,
    /// Number of matching calls that go through before the first hit.
    after: usize,
    /// Number of calls that are hit.
    times: usize,
}

impl Fault {
    /// Returns a fault that hits the next call of that side.
    pub(crate) const fn new(side: Side, call: Call, effect: Effect) -> Self {
        Self { call, effect, side, peer: None, after: 0, times: 1 }
    }

    pub(crate) const fn peer(mut self, number: u16) -> Self {
        self.peer = Some(number);
        self
    }

    pub(crate) const fn after(mut self, calls: usize) -> Self {
        self.after = calls;
        self
    }

    pub(crate) const fn times(mut self, calls: usize) -> Self {
        self.times = calls;
        self
    }

    /// Hits every call until the armed fault is dropped.
    pub(crate) const fn always(self) -> Self {
        self.times(usize::MAX)
    }

    pub(crate) fn arm(self) -> Armed {
        let entry = Arc::new(Entry { fault: self, seen: AtomicUsize::new(0) });
        let _no_accept = ACCEPT.write().unwrap_or_else(PoisonError::into_inner);
        let mut table = table();
        table.push(Arc::clone(&entry));
        ANY.store(true, Ordering::SeqCst);
        Armed(entry)
    }
}

#[derive(Debug)]
struct Entry {
    fault: Fault,
    /// Number of matching calls, hit or not.
    seen: AtomicUsize,
}

/// A fault that strikes until this is dropped.
#[must_use = "dropped, it strikes no more"]
#[derive(Debug)]
pub(crate) struct Armed(Arc<Entry>);

impl Armed {
    /// Number of calls hit so far.
    pub(crate) fn hits(&self) -> usize {
        let Entry { fault, seen } = &*self.0;
        seen.load(Ordering::SeqCst).saturating_sub(fault.after).min(fault.times)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let mut table = table();
        table.retain(|entry| !Arc::ptr_eq(entry, &self.0));
        ANY.store(!table.is_empty(), Ordering::SeqCst);
    }
}

/// Held by a side's `accept4` from its look for a fault to its end. A fault armed in between would miss a
/// connection that comes afterwards, because a listener accepts until there is no more.
static ACCEPT: RwLock<()> = RwLock::new(());

/// Returns the lock of an `accept4` if the calling thread belongs to a side. Others wait in it.
fn accepting() -> Option<RwLockReadGuard<'static, ()>> {
    SIDE.try_with(Cell::get).ok().flatten()?;
    Some(ACCEPT.read().unwrap_or_else(PoisonError::into_inner))
}

static ANY: AtomicBool = AtomicBool::new(false);
static TABLE: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());

fn table() -> MutexGuard<'static, Vec<Arc<Entry>>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the effect of the first fault that hits this call of this thread.
fn effect_on(call: Call, fd: Option<RawFd>) -> Option<Effect> {
    if !ANY.load(Ordering::SeqCst) {
        return None;
    }
    let side = SIDE.try_with(Cell::get).ok().flatten()?;
    let table = table();
    table.iter().find_map(|entry| {
        let Entry { fault, seen } = &**entry;
        let meant = fault.call == call
            && fault.side == side
            && fault.peer.is_none_or(|number| fd.and_then(shim::peer_number) == Some(number));
        if !meant {
            return None;
        }
        let number = seen.fetch_add(1, Ordering::SeqCst);
        let hit = number >= fault.after && number - fault.after < fault.times;
        hit.then_some(fault.effect)
    })
}

/// Each errno with its name in the manual.
pub(crate) const ERRNOS: [(&str, i32); 12] = [
    ("EMFILE", libc::EMFILE),
    ("ENFILE", libc::ENFILE),
    ("ENOMEM", libc::ENOMEM),
    ("ENOBUFS", libc::ENOBUFS),
    ("ECONNABORTED", libc::ECONNABORTED),
    ("EINTR", libc::EINTR),
    ("EAGAIN", libc::EAGAIN),
    ("ECONNRESET", libc::ECONNRESET),
    ("EPIPE", libc::EPIPE),
    ("EPERM", libc::EPERM),
    ("ENOSPC", libc::ENOSPC),
    ("ETIMEDOUT", libc::ETIMEDOUT),
];

/// Difference between the system clock as the crate sees it and the real one.
pub(crate) fn day_is_off_by() -> io::Result<Duration> {
    let (seen, real) = (std::time::SystemTime::now(), shim::real_time()?);
    Ok(seen.duration_since(real).unwrap_or_else(|error| error.duration()))
}
