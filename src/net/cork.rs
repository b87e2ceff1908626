//! [`Cork`]: collects the sends of one thread, so that they leave together.
//!
//! A proxy that receives twenty requests sends twenty to other servers, and later twenty answers
//! back. The system call of each send costs more than all other work for it. So a worker that runs
//! several items in place holds a cork. Its sends stay in the inboxes of their connections
//! meanwhile. When the cork is pulled, they leave in one system call for each connection.
//!
//! Sends are not held back for long. Once the first of them is 0.1 ms old, all leave with the next
//! send. The bytes of a connection leave when there are 16 KiB of them. All leave before an
//! announced wait, which calls [`flush_corked`]. If a handler blocks without announcing it, another
//! worker relieves the [`Held`] that the cork holder has published. That worker comes once, so
//! later sends of the handler leave at once.
//!
//! If another thread sends on the same connection meanwhile, the corked bytes leave with its bytes
//! and before them. So the order stays.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::conn::Conn;
use crate::stall::before_wait;
use crate::sync::shim::atomic::{AtomicBool, Ordering};
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};

/// Age from which held sends leave with the next one.
pub(crate) const OLD: Duration = Duration::from_micros(100);
/// Number of bytes that a connection sends at once, in spite of a cork.
pub(crate) const FULL: usize = 16 << 10;

/// Connections in whose inboxes one thread has left bytes.
#[derive(Default)]
pub(crate) struct Held {
    conns: Mutex<Vec<Arc<Conn>>>,
    /// Set by [`relieve`](Self::relieve) before it takes the connections, and reset by the holder. The
    /// holder reads it after it has added a connection. So either that connection is taken, or the
    /// holder sees the flag.
    relieved: AtomicBool,
}

impl Held {
    /// Sends the bytes held for all of the connections.
    fn flush(&self) {
        let held = std::mem::take(&mut *lock(&self.conns));
        held.iter().for_each(|conn| conn.flush_inbox());
    }

    /// Sends the bytes by another thread, because the holder is stuck or waits. The holder then holds
    /// nothing back until it publishes its sends again.
    pub(crate) fn relieve(&self) {
        // Relaxed: ordered by the lock of `conns`.
        self.relieved.store(true, Ordering::Relaxed);
        self.flush();
    }
}

struct State {
    /// Number of live corks of this thread.
    depth: Cell<u32>,
    held: Arc<Held>,
    /// Time of the first send that is held back.
    since: Cell<Option<Instant>>,
}

thread_local! {
    static STATE: State = State {
        depth: Cell::new(0),
        held: Arc::default(),
        since: Cell::new(None),
    };
}

/// Guard that holds back the sends of its thread while it lives.
pub(crate) struct Cork(PhantomData<Rc<()>>);

impl Cork {
    pub(crate) fn new() -> Self {
        // If the destructor of another thread-local sends, this one may be gone. Then no send is
        // held back.
        let _ = STATE.try_with(|state| {
            if state.depth.replace(state.depth.get() + 1) == 0 {
                state.held.relieved.store(false, Ordering::Relaxed);
            }
        });
        Self(PhantomData)
    }

    /// Creates a cork on any thread. If announced waits do not flush on this thread yet, they do from now
    /// on.
    pub(crate) fn on_any_thread() -> Self {
        if let before @ Some(_) = before_wait(Some(flush_corked)) {
            // A thread that runs sessions has its own function, which flushes too.
            before_wait(before);
        }
        Self::new()
    }

    /// Returns the sends that this thread holds back, so that other workers can flush them if it is
    /// stuck.
    pub(crate) fn held() -> Option<Arc<Held>> {
        is_corked().then(|| {
            STATE.with(|state| {
                state.held.relieved.store(false, Ordering::Relaxed);
                Arc::clone(&state.held)
            })
        })
    }
}

impl Drop for Cork {
    fn drop(&mut self) {
        let outermost = STATE.try_with(|state| {
            state.depth.set(state.depth.get() - 1);
            state.depth.get() == 0
        });
        if outermost == Ok(true) {
            flush_corked();
        }
    }
}

/// Runs `code` and sends all that it sends together, in one system call for each connection.
///
/// For a task or thread that answers many requests at a time, such as a group commit. There the
/// system call of each answer costs more than all other work for it. Sends of handlers that run in
/// a row leave together without this function.
///
/// Sends are not held back for long. Once the first of them is 0.1 ms old, all leave with the next
/// send. The bytes of a connection leave when there are 16 KiB of them. All leave when `code`
/// [announces](crate::stall) a wait, and at its end, also by a panic. If the thread holds sends
/// back already, they leave with those. If `code` waits without announcing it, its last sends wait
/// too.
///
/// ```
/// use epoll_group::net;
/// use epoll_group::session::{Deferred, SessionError};
///
/// /// Answers all requests whose writes one flush has made durable.
/// fn flushed(waiting: Vec<Deferred>) {
///     net::together(|| {
///         for deferred in waiting {
///             deferred.finish(|reply| {
///                 reply.ending().affected = 1;
///                 Ok(())
///             });
///         }
///     });
/// }
/// ```
pub fn together<R>(code: impl FnOnce() -> R) -> R {
    let _cork = Cork::on_any_thread();
    code()
}

/// Sends all that this thread holds back.
pub(crate) fn flush_corked() {
    let held = STATE.try_with(|state| {
        state.since.take()?;
        Some(Arc::clone(&state.held))
    });
    if let Ok(Some(held)) = held {
        held.flush();
    }
}

/// Returns true if this thread holds back its sends.
#[inline]
pub(crate) fn is_corked() -> bool {
    STATE.try_with(|state| state.depth.get() > 0).unwrap_or(false)
}

/// Notes that bytes were left in the inbox of this connection. Flushes all if the first of them is
/// old, or if this thread was relieved.
pub(super) fn hold(conn: &Arc<Conn>) {
    let due = STATE.with(|state| {
        let mut held = lock(&state.held.conns);
        if !held.iter().any(|other| Arc::ptr_eq(other, conn)) {
            held.push(Arc::clone(conn));
        }
        let now = clock::now();
        let since = state.since.get().unwrap_or(now);
        state.since.set(Some(since));
        now.duration_since(since) >= OLD || state.held.relieved.load(Ordering::Relaxed)
    });
    if due {
        flush_corked();
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::config::Config;
    use crate::net::{Address, Connection, Deaf, Sent, Served};
    use crate::runtime::Simulated;
    use crate::stats::Counter;
    use crate::sync::shim::atomic::{Locked, take_locked};

    /// Connection of a simulated runtime, and its peer.
    fn connect() -> (Simulated, Connection, UnixStream) {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (ours, peer) = UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        peer.set_nonblocking(true).expect("a socket");
        let address = Address::Unix("".into());
        let served = Served::new(Deaf);
        let conn = served.accept(runtime.group(), ours.into(), address).expect("there is room");
        (runtime, conn, peer)
    }

    fn read(peer: &mut UnixStream) -> usize {
        peer.read(&mut [0; 2 * FULL]).unwrap_or(0)
    }

    #[test]
    fn what_is_old_leaves_with_the_next_send_although_the_cork_is_in() {
        let (_runtime, conn, mut peer) = connect();
        let mut received = || read(&mut peer);
        let began = Instant::now();
        clock::simulate(Some(began));
        together(|| {
            conn.send(b"a");
            clock::simulate(Some(began + OLD - Duration::from_nanos(1)));
            conn.send(b"b");
            assert_eq!(received(), 0, "the first is not old");
            clock::simulate(Some(began + OLD));
            conn.send(b"c");
            assert_eq!(received(), 3, "all of them leave");
            conn.send(b"d");
            assert_eq!(received(), 0, "a new age has begun");
        });
        clock::simulate(None);
        assert_eq!(received(), 1);
    }

    #[test]
    fn much_leaves_at_once_although_the_cork_is_in() {
        let (runtime, conn, mut peer) = connect();
        clock::simulate(Some(Instant::now()));
        let calls = || runtime.handle().stats().get(Counter::SendCalls);
        together(|| {
            conn.send(vec![1; 100]);
            conn.send(vec![2; FULL - 101]);
            assert_eq!(read(&mut peer), 0, "one byte is missing");
            conn.send([3]);
            assert_eq!(read(&mut peer), FULL);
            conn.send([4]);
            assert_eq!(read(&mut peer), 0, "few again");
        });
        clock::simulate(None);
        assert_eq!((read(&mut peer), calls()), (1, 2));
    }

    #[test]
    fn the_end_of_a_cork_costs_little_if_the_held_bytes_have_left() {
        let (_runtime, conn, mut peer) = connect();
        clock::simulate(Some(Instant::now()));
        let cork = Cork::on_any_thread();
        conn.send([1]);
        // A send that is not held back takes the held bytes along.
        conn.send(vec![2; FULL]);
        assert_eq!(read(&mut peer), 1 + FULL);
        take_locked();
        drop(cork);
        clock::simulate(None);
        // The list of connections is locked and unlocked.
        assert_eq!(take_locked(), Locked { updates: 2, fences: 0 });
    }

    #[test]
    fn what_a_cork_holds_leaves_before_it_exceeds_the_budget() {
        let (runtime, conn, mut peer) = connect();
        clock::simulate(Some(Instant::now()));
        let (usage, limit) = (runtime.group().usage(), runtime.group().config().max_buffered_bytes);
        usage.buffer_changed(0, limit);
        together(|| {
            conn.send(vec![1; 8 << 10]);
            assert_eq!(read(&mut peer), 0, "each connection may have that much");
            conn.send([2]);
            assert_eq!(read(&mut peer), (8 << 10) + 1);
        });
        usage.buffer_changed(limit, 0);
        clock::simulate(None);
        assert!(!conn.is_closed());
    }

    #[test]
    fn what_a_cork_holds_counts_against_the_budget_although_the_peer_does_not_read() {
        let (runtime, conn, _peer) = connect();
        while conn.send(vec![0; FULL]) == Sent::Sent {}
        let (usage, limit) = (runtime.group().usage(), runtime.group().config().max_buffered_bytes);
        usage.buffer_changed(0, limit);
        assert!(!conn.is_closed());
        together(|| conn.send(vec![1; FULL - 1]));
        assert!(conn.is_closed());
        usage.buffer_changed(limit, 0);
    }
}
