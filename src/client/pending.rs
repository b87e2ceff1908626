//! [`Pending`]: a request whose answer is outstanding.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::answer::Answer;
use super::error::Error;
use super::exchange::Taken;
use super::fleet::Fleet;
use super::link::Link;
use super::slot::Watcher;
use crate::sync::stall::{Wait, run_as};
use crate::sys::clock;

/// Request whose answer is outstanding.
///
/// [`wait`](Self::wait) waits for the answer; [`then`](Self::then) sets a callback and needs no
/// thread. If it is dropped, the client interrupts the request and discards its answer. The session
/// runs no other request before that answer has arrived.
#[must_use = "dropped, the answer is thrown away"]
pub struct Pending {
    pub(super) at: Option<Outstanding>,
}

/// An outstanding answer: connection, session and number of its request.
pub(super) struct Outstanding {
    pub(super) link: Arc<Link>,
    pub(super) session: u64,
    pub(super) seq: u64,
    pub(super) deadline: Instant,
    /// Keeps the connections open while answers are outstanding.
    pub(super) fleet: Arc<Fleet>,
}

/// Bytes of an incomplete answer that are worth a call.
const PIECE_BYTES: usize = 64 << 10;

impl Pending {
    pub(super) fn into_outstanding(mut self) -> Outstanding {
        self.at.take().expect("there until it is used")
    }

    /// Waits for the answer, or for its first part. On a worker this is an announced wait.
    ///
    /// # Errors
    ///
    /// Returns the error of the server, or the reason why no answer arrived.
    pub fn wait(self) -> Result<Answer, Error> {
        let outstanding = self.into_outstanding();
        let taken = outstanding.wait();
        Answer::new(outstanding, taken)
    }

    /// Calls `code` with the answer, when it is complete or its first 64 KiB are there. `code` can
    /// read the rest, see [`Answer::try_frame`]. The call is made on a worker, or at once on this
    /// thread if the answer is complete. It may wait, like a handler. Other callbacks run
    /// meanwhile, so callbacks of one session may run in parallel and out of order.
    ///
    /// When the client or its runtime ends, `code` gets an error.
    pub fn then(self, code: impl FnOnce(Result<Answer, Error>) + Send + 'static) {
        let outstanding = self.into_outstanding();
        let (link, session, seq) =
            (Arc::clone(&outstanding.link), outstanding.session, outstanding.seq);
        let call = move || {
            let taken = outstanding.take();
            code(Answer::new(outstanding, taken));
        };
        let watcher = Watcher::Call(Box::new(call));
        drop(link.act(|state, _| state.watch(session, seq, PIECE_BYTES, watcher)));
    }
}

impl Outstanding {
    /// Takes the received part of the answer.
    pub(super) fn take(&self) -> Taken {
        self.link.act(|state, _| state.take(self.session, self.seq))
    }

    /// Takes the received part of the answer. Waits until there is one.
    pub(super) fn wait(&self) -> Taken {
        let taken = self.take();
        if !taken.is_nothing() {
            return taken;
        }
        run_as(Wait::Reply, || {
            loop {
                let (session, seq) = (self.session, self.seq);
                let watcher = Watcher::Thread(thread::current());
                drop(self.link.act(|state, _| state.watch(session, seq, 1, watcher)));
                match self.deadline.checked_duration_since(clock::now()) {
                    Some(left) if !left.is_zero() => thread::park_timeout(left),
                    _ => self.link.act(|state, _| state.expire(session, seq)),
                }
                let taken = self.take();
                if !taken.is_nothing() {
                    return taken;
                }
            }
        })
    }

    /// Calls `code` on a worker when a part of the answer is there.
    pub(super) fn when_more(&self, code: impl FnOnce() + Send + 'static) {
        let (session, seq) = (self.session, self.seq);
        let watcher = Watcher::Call(Box::new(code));
        drop(self.link.act(|state, _| state.watch(session, seq, 1, watcher)));
    }

    pub(super) fn abandon(&self) {
        drop(self.link.act(|state, _| state.abandon(self.session, self.seq)));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(outstanding) = &self.at {
            outstanding.abandon();
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
