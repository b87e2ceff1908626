//! [`Cork`]: what a worker sends while it runs several things in a row leaves together.
//!
//! A proxy that has received twenty requests sends twenty to other servers, and later twenty answers back.
//! Each takes a system call that costs more than everything else about it. So who runs several things in
//! place holds a cork: what this thread sends meanwhile stays in the inboxes of its connections, and
//! leaves when the cork is pulled, in one call for each connection.
//!
//! It is not held back for long: what is 0.1 ms old leaves with the next send, and everything before a
//! wait that is announced ([`flush_corked`] is called then). When what runs is stuck without saying so,
//! others come for it, by the [`Held`] that whoever holds the cork has shown them.
//!
//! What others send on the same connection meanwhile leaves behind what is held back, together with it: an
//! order that was there stays.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::conn::Conn;
use crate::sync::shim::lock;
use crate::sync::stall::before_wait;
use crate::sys::clock;

/// Age at which it leaves.
const OLD: Duration = Duration::from_micros(100);

/// Connections in whose inboxes one thread has left something.
#[derive(Default)]
pub(crate) struct Held(Mutex<Vec<Arc<Conn>>>);

impl Held {
    /// Sends it.
    pub(crate) fn flush(&self) {
        let held = std::mem::take(&mut *lock(&self.0));
        held.iter().for_each(|conn| conn.flush_inbox());
    }
}

struct State {
    /// Corks of this thread that are in.
    depth: Cell<u32>,
    held: RefCell<Arc<Held>>,
    /// When the first of what is held was sent.
    since: Cell<Option<Instant>>,
}

thread_local! {
    static STATE: State = State {
        depth: Cell::new(0),
        held: RefCell::default(),
        since: Cell::new(None),
    };
}

/// As long as it lives, this thread's sends are held back.
pub(crate) struct Cork(PhantomData<Rc<()>>);

impl Cork {
    pub(crate) fn new() -> Self {
        // The thread-local is gone if the destructor of another one sends: then nothing is held back.
        let _ = STATE.try_with(|state| state.depth.set(state.depth.get() + 1));
        Self(PhantomData)
    }

    /// The same, on any thread: also on one that would not send before a wait that it announces.
    pub(crate) fn on_any_thread() -> Self {
        if let before @ Some(_) = before_wait(Some(flush_corked)) {
            // That of a thread which runs sessions: it does so as well.
            before_wait(before);
        }
        Self::new()
    }

    /// What this thread holds back, if it does, for others to send when it is stuck.
    pub(crate) fn held() -> Option<Arc<Held>> {
        is_corked().then(|| STATE.with(|state| Arc::clone(&state.held.borrow())))
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

/// Runs `code`: what this thread sends meanwhile leaves together, in one system call for each connection.
///
/// For who answers many at a time, as a group commit does, from a task or a thread of its own: a system
/// call for each answer costs more than all else about it. What handlers send in a row leaves together
/// anyway.
///
/// It is not held back for long: what is 0.1 ms old leaves with the next that is sent, and all of it when
/// `code` [announces](crate::stall) that it waits, and at its end, also by a panic. If it waits without
/// saying so, what it has sent last waits with it.
///
/// ```
/// use epoll_group::net;
/// use epoll_group::session::{Deferred, SessionError};
///
/// /// Tells all whose writes one flush has made durable.
/// fn flushed(waiting: Vec<Deferred>) {
///     net::together(|| {
///         for deferred in waiting {
///             deferred.finish(|reply| {
///                 reply.affected(1);
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

/// Sends what this thread holds back.
pub(crate) fn flush_corked() {
    let held = STATE.try_with(|state| {
        state.since.take()?;
        Some(Arc::clone(&state.held.borrow()))
    });
    if let Ok(Some(held)) = held {
        held.flush();
    }
}

/// Whether this thread holds back what it sends.
#[inline]
pub(super) fn is_corked() -> bool {
    STATE.try_with(|state| state.depth.get() > 0).unwrap_or(false)
}

/// Something was left in the inbox of this connection. Sends all if that is old.
pub(super) fn hold(conn: &Arc<Conn>) {
    let old = STATE.with(|state| {
        let held = state.held.borrow();
        let mut held = lock(&held.0);
        if !held.iter().any(|other| Arc::ptr_eq(other, conn)) {
            held.push(Arc::clone(conn));
        }
        let now = clock::now();
        match state.since.get() {
            Some(since) => now.duration_since(since) >= OLD,
            None => {
                state.since.set(Some(now));
                false
            }
        }
    });
    if old {
        flush_corked();
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::config::Config;
    use crate::net::{Address, Deaf, Served};
    use crate::runtime::Simulated;

    #[test]
    fn what_is_old_leaves_with_the_next_send_although_the_cork_is_in() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (ours, mut peer) = UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        peer.set_nonblocking(true).expect("a socket");
        let address = Address::Unix("".into());
        let served = Served::new(Deaf);
        let conn = served.accept(runtime.group(), ours.into(), address).expect("there is room");
        let mut received = || {
            let mut bytes = [0; 8];
            peer.read(&mut bytes).unwrap_or(0)
        };
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
}
