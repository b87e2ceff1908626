//! Oracles for time: how long the server holds a written byte, and how long a session runs at a time.
//!
//! The service looks at both, because only its code takes time here: a byte that the server could have
//! sent before the service was called again is held.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use epoll_group::stats::Counter;

use super::scene::Scene;

/// The client's end of a connection, to see which bytes have left the server.
pub struct Outlet {
    socket: Weak<UnixStream>,
    /// Bytes that the client has taken from the socket.
    taken: Rc<Cell<u64>>,
    held: Cell<Option<Held>>,
}

/// The oldest bytes that were written and may not have left.
#[derive(Clone, Copy)]
struct Held {
    /// Session that wrote them.
    session: u64,
    /// Time at which their present buffer got them: first that of the session, then that of the
    /// connection.
    since: Instant,
    buffers: u32,
    /// Bytes of the connection that had left before.
    left: u64,
    /// Bytes that were written behind them after they had become old in that buffer.
    behind: u64,
}

impl Outlet {
    pub fn new(socket: &Rc<UnixStream>, taken: &Rc<Cell<u64>>) -> Self {
        let (socket, taken) = (Rc::downgrade(socket), Rc::clone(taken));
        Self { socket, taken, held: Cell::default() }
    }

    /// Bytes in the socket, and bytes that have ever left the server.
    fn left(&self) -> Option<(u64, u64)> {
        let waiting = rustix::io::ioctl_fionread(&*self.socket.upgrade()?).ok()?;
        Some((waiting, waiting + self.taken.get()))
    }
}

/// Stack of server runs, the interrupted ones below, with the work of the sessions in each.
#[derive(Default)]
pub struct Runs {
    current: Cell<u64>,
    next: Cell<u64>,
    /// Frames of dead sessions that had been dropped before the current step.
    dropped: Cell<u64>,
    /// Number of write time-outs at the last look.
    timed_out: Cell<u64>,
    /// By connection and session.
    turns: RefCell<BTreeMap<(u64, u64), Turn>>,
}

/// Work of one session in its last run.
#[derive(Clone, Copy)]
struct Turn {
    run: u64,
    since: Instant,
    requests: usize,
    /// Budget at its begin.
    budget: usize,
}

impl Runs {
    /// Runs `code` as a run of the server.
    pub fn within<R>(&self, code: impl FnOnce() -> R) -> R {
        self.next.set(self.next.get() + 1);
        let outer = self.current.replace(self.next.get());
        let result = code();
        self.current.set(outer);
        result
    }
}

impl Scene {
    /// Checks at the begin of a request that the turn of the session is not over, and that old
    /// bytes of its peer have left.
    pub fn begins(&self, peer: usize, connection: u64, session: u64) {
        self.look_at_held(peer, 0);
        let (run, now) = (self.runs.current.get(), self.now());
        let mut turns = self.runs.turns.borrow_mut();
        let begun = Turn { run, since: now, requests: 0, budget: self.plan.session_budget.get() };
        let turn = turns.entry((connection, session)).or_insert(begun);
        if turn.run != run {
            *turn = begun;
        }
        let (ran, requests) = (now - turn.since, turn.requests);
        let within = ran < TURN && requests < turn.budget;
        turn.requests += 1;
        self.check(within, || {
            format!("a turn of session {session:#x} of peer {peer}: {requests} requests in {ran:?}")
        });
    }

    /// A session has written a row with so many bytes. In a chunk they wait for the rows behind them.
    pub fn wrote_row(&self, tag: u64, (peer, session): (usize, u64), bytes: u64) {
        if self.life(tag, peer, |life| life.chunks) == Some(false) {
            self.wrote(peer, session, bytes);
        }
    }

    /// A session has written so many bytes of an answer.
    pub fn wrote(&self, peer: usize, session: u64, bytes: u64) {
        self.look_at_held(peer, bytes);
        let ends = self.ends.borrow();
        let Some(end) = ends.values().find(|end| end.peer == peer) else { return };
        // Behind a backlog the bytes wait for the client.
        if end.outlet.held.get().is_none()
            && end.connection.pending_bytes() == 0
            && let Some((_, left)) = end.outlet.left()
        {
            let held = Held { session, since: self.now(), left, behind: 0, buffers: 2 };
            end.outlet.held.set(Some(held));
            self.note("held", &[peer as u64, session, bytes]);
        }
    }

    /// Checks that bytes of this peer which are old have left.
    fn look_at_held(&self, peer: usize, bytes: u64) {
        let ends = self.ends.borrow();
        let Some(end) = ends.values().find(|end| end.peer == peer) else { return };
        let Some(mut held) = end.outlet.held.get() else { return };
        let Some((waiting, left)) = end.outlet.left() else {
            // The client has cut its end, so what was held cannot arrive.
            return end.outlet.held.set(None);
        };
        let full = waiting > 0 && end.connection.pending_bytes() > 0;
        let dropped = || end.connection.is_closed() || self.dropped() > self.runs.dropped.get();
        if left > held.left || full || dropped() {
            return end.outlet.held.set(None);
        }
        if held.behind >= STRIDE {
            held = Held { since: self.now(), buffers: held.buffers - 1, behind: 0, ..held };
            self.check(held.buffers > 0, || {
                format!("peer {peer}: what session {:#x} wrote is old and held", held.session)
            });
        }
        if self.now() - held.since >= OLD {
            held.behind += bytes;
        }
        end.outlet.held.set(Some(held).filter(|held| held.buffers > 0));
    }

    /// Forgets bytes that a wait has moved to the backlog of a full socket. They wait for the client.
    /// It may read them before the server learns that there is room.
    pub fn look_at_backlogs(&self) {
        for end in self.ends.borrow().values().filter(|end| end.connection.pending_bytes() > 0) {
            end.outlet.held.set(None);
        }
    }

    /// Frames that were written and dropped, because their sessions had ended.
    fn dropped(&self) -> u64 {
        self.server.stats().get(Counter::FramesOfDeadSessionsDropped)
    }

    /// Notes which peers may have been closed because they took nothing.
    fn look_at_closed(&self) {
        let timed_out = self.server.stats().get(Counter::ClosedWriteTimeout);
        let slow = self.runs.timed_out.replace(timed_out) < timed_out;
        if slow {
            let ends = self.ends.borrow();
            let closed = ends.values().filter(|end| end.connection.is_closed());
            self.slow.borrow_mut().extend(closed.map(|end| end.peer));
        }
    }

    /// Checks that a step of the server leaves nothing behind that was written in it.
    pub fn look_at_step(&self) {
        self.look_at_closed();
        if self.depth.get() > 0 {
            return;
        }
        let peers: Vec<_> = self.ends.borrow().values().map(|end| end.peer).collect();
        for peer in peers {
            self.look_at_held(peer, 0);
            let ends = self.ends.borrow();
            let held =
                ends.values().find(|end| end.peer == peer).and_then(|end| end.outlet.held.take());
            self.check(held.is_none(), || {
                let session = held.map_or(0, |held| held.session);
                format!("peer {peer}: what session {session:#x} wrote does not leave with its run")
            });
        }
        self.runs.dropped.set(self.dropped());
    }
}

/// Time after which a session begins nothing more in the same run.
const TURN: Duration = Duration::from_millis(1);
/// Age after which bytes leave a buffer with the next ones.
const OLD: Duration = Duration::from_micros(100);
/// Bytes that may be written behind old ones. The server looks at its clock every 1 KiB.
const STRIDE: u64 = 2 << 10;
