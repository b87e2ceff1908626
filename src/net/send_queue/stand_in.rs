//! Connection, group and cork for the models of the sending side. The sending side and the phases are
//! the shipped code, and the socket is real. Budget, watermarks and deadlines never come into effect.

use std::any::Any;
use std::io::{Read as _, Write as _};
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool as Untracked;
use std::time::Duration;

use socket2::SockRef;

use super::close::CloseReason;
use super::phase::Phase;
use super::send_queue::Outbound;
use crate::stats::Counter;
use crate::sync::runner::{Marks, Runner};
use crate::sync::shim::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};
use crate::sys::clock::Instant;
use crate::sys::epoll::Interest;
use crate::sys::socket::Family;

pub(crate) struct Conn {
    pub(super) group: Group,
    pub(super) phase: AtomicU8,
    pub(super) reason: Mutex<Option<Box<CloseReason>>>,
    pub(super) send: Runner<Outbound>,
    pub(super) inbox: Mutex<Vec<u8>>,
    pub(super) corked: AtomicBool,
    pub(super) pending: AtomicUsize,
    pub(super) has_opened: Untracked,
    pub(super) sent_any: Untracked,
    pub(super) sent_lately: Untracked,
    pub(super) family: Family,
    socket: UnixStream,
    peer: UnixStream,
    /// Changed at each system call: the kernel orders the calls on one socket, which loom cannot see.
    calls: AtomicUsize,
    /// Marks for the receiving side, which waits for them.
    marks: Mutex<Marks>,
    marked: Condvar,
}

pub(super) const WRITABLE: Marks = Marks::bit(0);
pub(super) const CLOSE: Marks = Marks::bit(1);
pub(super) const ABORT: Marks = Marks::bit(2);
pub(super) const RESUME: Marks = Marks::bit(3);
pub(super) const FLUSHED: Marks = Marks::bit(4);

impl Conn {
    /// An open connection. As a socket of the family TCP it is watched for room from the beginning.
    pub(super) fn open() -> Arc<Self> {
        let (socket, peer) = UnixStream::pair().expect("descriptors");
        for end in [&socket, &peer] {
            end.set_nonblocking(true).expect("a socket");
        }
        Arc::new(Self {
            group: Group(Config::default()),
            phase: AtomicU8::new(Phase::Open as u8),
            reason: Mutex::new(None),
            send: Runner::new(Outbound::default()),
            inbox: Mutex::new(Vec::new()),
            corked: AtomicBool::new(false),
            pending: AtomicUsize::new(0),
            has_opened: Untracked::new(true),
            sent_any: Untracked::new(false),
            sent_lately: Untracked::new(false),
            family: Family::Tcp,
            socket,
            peer,
            calls: AtomicUsize::new(0),
            marks: Mutex::new(Marks::NONE),
            marked: Condvar::new(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.calls.fetch_add(1, Ordering::AcqRel);
        self.socket.as_fd()
    }

    pub(super) fn notify_recv(&self, marks: Marks) {
        *lock(&self.marks) |= marks;
        self.marked.notify_one();
    }

    pub(super) fn notify_recv_and_callback(&self, marks: Marks) {
        self.notify_recv(marks);
    }

    /// Waits for marks as the receiving side.
    pub(super) fn next_marks(&self) -> Marks {
        let none = |marks: &mut Marks| marks.is_empty();
        let (mut marks, _) = wait_while(&self.marked, lock(&self.marks), None, none);
        mem::take(&mut *marks)
    }

    /// Takes the marks that were left so far.
    pub(super) fn left_marks(&self) -> Marks {
        mem::take(&mut *lock(&self.marks))
    }

    pub(super) fn fill(&self) {
        SockRef::from(&self.socket).set_send_buffer_size(1).expect("rounded up");
        while (&self.socket).write(&[0; 4096]).is_ok() {}
    }

    /// Returns the bytes that have arrived at the peer. The socket has room then.
    pub(super) fn arrived(&self) -> Vec<u8> {
        self.calls.fetch_add(1, Ordering::AcqRel);
        let mut bytes = Vec::new();
        // The error says that there are no more yet.
        let _ = (&self.peer).read_to_end(&mut bytes);
        bytes
    }

    pub(super) const fn net_write_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    pub(super) const fn count(&self, _: Counter, _: u64) {}

    pub(super) const fn arm(&self, _: Instant) {}

    pub(super) const fn rewatch(&self, _: Interest) {}

    pub(super) const fn protocol(&self) -> Protocol {
        Protocol
    }
}

pub(crate) struct Group(Config);

impl Group {
    pub(super) const fn config(&self) -> &Config {
        &self.0
    }

    pub(super) const fn usage(&self) -> Usage {
        Usage
    }

    pub(super) fn guard<R>(&self, _: &str, code: impl FnOnce() -> R) -> Option<R> {
        Some(code())
    }

    /// Drops the value now, as a free worker would.
    pub(super) fn queue_drop<T: Any + Send>(&self, remains: T) {
        drop(remains);
    }
}

pub(super) struct Config {
    pub(super) write_high_watermark_bytes: usize,
    pub(super) write_low_watermark_bytes: usize,
    pub(super) max_buffered_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            write_high_watermark_bytes: usize::MAX,
            write_low_watermark_bytes: usize::MAX,
            max_buffered_bytes: usize::MAX,
        }
    }
}

pub(super) struct Usage;

impl Usage {
    pub(super) const fn buffered_bytes(&self) -> usize {
        0
    }

    pub(super) const fn buffer_changed(&self, _: usize, _: usize) -> usize {
        0
    }
}

pub(super) struct Protocol;

impl Protocol {
    pub(super) const fn drained(&self, _: &connection::Connection) {}
}

#[derive(Debug, Default)]
pub(crate) struct Excuse;

impl Excuse {
    pub(crate) const fn covers(&mut self, _: Instant, _: Instant) -> bool {
        false
    }
}

pub(crate) const fn leaves_room(_: usize, _: usize, _: usize) -> bool {
    true
}

pub(super) mod connection {
    use super::{Arc, Conn};

    pub(crate) struct Connection(pub(crate) Arc<Conn>);
}

/// No thread holds a cork. The models leave corked bytes by themselves.
pub(super) mod cork {
    use super::{Arc, Conn};

    pub(crate) const FULL: usize = usize::MAX;

    pub(crate) const fn is_corked() -> bool {
        false
    }

    pub(crate) const fn hold(_: &Arc<Conn>) {}
}
