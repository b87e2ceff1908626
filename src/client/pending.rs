//! [`Pending`]: a request whose result was not taken yet.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::answer::Answer;
use super::error::Error;
use super::exchange::Taken;
use super::fleet::Fleet;
use super::link::{Link, SECOND_LOOK};
use super::slot::Watcher;
use crate::runtime::is_late;
use crate::stall::{Wait, run_as};
use crate::sys::clock::{self, Instant};

/// Outstanding request: its result was not taken yet.
///
/// [`wait`](Self::wait) waits for the answer; [`then`](Self::then) sets a callback and needs no
/// thread. If it is dropped, its answer is discarded, and the statement is not sent or is
/// interrupted, unless a request that a caller waits for was sent behind it. The session runs no
/// other request before that answer has arrived.
#[must_use = "dropped, the answer is thrown away"]
pub struct Pending(pub(super) Outstanding);

/// An outstanding request. If it is dropped before its result was taken, the request is abandoned.
pub(super) struct Outstanding {
    link: Arc<Link>,
    session: u64,
    seq: u64,
    deadline: Instant,
    /// Keeps the connections open while requests are outstanding.
    pub(super) fleet: Arc<Fleet>,
    /// Set when the result was taken.
    done: bool,
}

/// Bytes of an incomplete answer that are worth a call.
const PIECE_BYTES: usize = 64 << 10;

impl Pending {
    /// Waits for the answer, or for its first part. On a worker this is an announced wait.
    ///
    /// # Errors
    ///
    /// Returns the error of the server, or the reason why no answer arrived.
    pub fn wait(self) -> Result<Answer, Error> {
        let mut outstanding = self.0;
        let taken = outstanding.wait();
        Answer::new(outstanding, taken)
    }

    /// Calls `code` with the answer, when it is complete or its first 64 KiB are there. `code` can
    /// read the rest, see [`Answer::try_frame`]. The call is made on a worker. It may wait, like
    /// a handler. Other callbacks run meanwhile, so callbacks of one session may run in parallel and
    /// out of order.
    ///
    /// When the client or its runtime ends, `code` gets an error.
    pub fn then(self, code: impl FnOnce(Result<Answer, Error>) + Send + 'static) {
        self.0.then(PIECE_BYTES, |outstanding, taken| code(Answer::new(outstanding, taken)));
    }
}

impl Outstanding {
    pub(super) const fn new(
        link: Arc<Link>,
        (session, seq): (u64, u64),
        deadline: Instant,
        fleet: Arc<Fleet>,
    ) -> Self {
        Self { link, session, seq, deadline, fleet, done: false }
    }

    /// Takes the received part of the answer.
    pub(super) fn take(&mut self) -> Taken {
        let taken = self.link.act(|state, _| state.take(self.session, self.seq));
        self.done |= taken.result.is_some();
        taken
    }

    /// Takes the received part of the answer. Waits until there is one.
    pub(super) fn wait(&mut self) -> Taken {
        let taken = self.take();
        if !taken.is_nothing() {
            return taken;
        }
        let mut due = self.deadline;
        run_as(Wait::Reply, || {
            loop {
                self.watch(1, Watcher::Thread(thread::current()));
                let now = clock::now();
                if due == self.deadline && is_late(due, now) {
                    // The process was stopped. The answer may be in the socket.
                    due = now + SECOND_LOOK;
                }
                match due.duration_since(now) {
                    Duration::ZERO => self.expire(),
                    left => thread::park_timeout(left),
                }
                let taken = self.take();
                if !taken.is_nothing() {
                    return taken;
                }
            }
        })
    }

    /// Calls `code` on a worker when a part of the answer is there. Replaces the watcher set before,
    /// which is not called.
    pub(super) fn when_more(&self, code: impl FnOnce() + Send + 'static) {
        self.watch(1, Watcher::Call(Box::new(code)));
    }

    /// Calls `code` with what was received, when `least` bytes or the result are there.
    pub(super) fn then(mut self, least: usize, code: impl FnOnce(Self, Taken) + Send + 'static) {
        let (link, session, seq) = (Arc::clone(&self.link), self.session, self.seq);
        let call = move || {
            let taken = self.take();
            code(self, taken);
        };
        let watcher = Watcher::Call(Box::new(call));
        drop(link.act(|state, _| state.watch(session, seq, least, watcher)));
    }

    /// Ends the request, unless it has a result.
    fn expire(&self) {
        self.link.act(|state, _| state.expire(self.session, |slot| slot.seq == self.seq));
    }

    fn watch(&self, least: usize, watcher: Watcher) {
        drop(self.link.act(|state, _| state.watch(self.session, self.seq, least, watcher)));
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        if !self.done {
            drop(self.link.act(|state, _| state.abandon(self.session, self.seq)));
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
