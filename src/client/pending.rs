//! [`Pending`]: a request that was made.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::answer::Answer;
use super::error::Error;
use super::exchange::Watcher;
use super::fleet::Fleet;
use super::link::Link;
use super::state::Taken;
use crate::sync::stall::{Wait, run_as};

/// A request that was made, and whose answer is to come.
///
/// Either [`wait`](Self::wait) for it, or say what is to be done [`then`](Self::then), which takes no
/// thread. Dropped, the request goes on at the server until it is interrupted; its answer is thrown
/// away, and its session is of no use before that has come.
#[must_use = "dropped, the answer is thrown away"]
pub struct Pending {
    pub(super) at: Option<Place>,
}

/// Where an answer arrives.
pub(super) struct Place {
    pub(super) link: Arc<Link>,
    pub(super) session: u64,
    pub(super) seq: u64,
    pub(super) deadline: Instant,
    /// The connections are there as long as answers are to come.
    pub(super) fleet: Arc<Fleet>,
}

/// As much of an answer as makes a call worth while before it is whole.
const PIECE_BYTES: usize = 64 << 10;

impl Pending {
    pub(super) fn into_place(mut self) -> Place {
        self.at.take().expect("there until it is used")
    }

    /// Waits for the answer, or as much of it as came with its beginning. On a worker this is an
    /// announced wait.
    ///
    /// # Errors
    ///
    /// The answer is an error, or none came.
    pub fn wait(self) -> Result<Answer, Error> {
        let place = self.into_place();
        let taken = place.wait();
        Answer::new(place, taken)
    }

    /// Calls `code` with the answer, or with as much of it as is there when there is much: the rest
    /// can be read from it, see [`Answer::try_frame`]. It is called on a worker of the runtime, or at
    /// once on this thread when no more is to come. It may wait, like any handler; others are called
    /// meanwhile, so that those of one session may be called at the same time, and not in order.
    ///
    /// When the client is closed or its runtime ends, it is called with an error.
    pub fn then(self, code: impl FnOnce(Result<Answer, Error>) + Send + 'static) {
        let place = self.into_place();
        let (link, session, seq) = (Arc::clone(&place.link), place.session, place.seq);
        let call = move || {
            let taken = place.take();
            code(Answer::new(place, taken));
        };
        let watcher = Watcher::Call(Box::new(call));
        link.act(|state, _| state.watch(session, seq, PIECE_BYTES, watcher));
    }
}

impl Place {
    /// What is there.
    pub(super) fn take(&self) -> Taken {
        self.link.act(|state, _| state.take(self.session, self.seq))
    }

    /// What is there, as soon as there is anything.
    pub(super) fn wait(&self) -> Taken {
        let taken = self.take();
        if !taken.is_nothing() {
            return taken;
        }
        run_as(Wait::Reply, || {
            loop {
                let (session, seq) = (self.session, self.seq);
                let watcher = Watcher::Thread(thread::current());
                self.link.act(|state, _| state.watch(session, seq, 1, watcher));
                match self.deadline.checked_duration_since(Instant::now()) {
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

    /// Calls `code` on a worker as soon as there is anything.
    pub(super) fn when_more(&self, code: impl FnOnce() + Send + 'static) {
        let (session, seq) = (self.session, self.seq);
        let watcher = Watcher::Call(Box::new(code));
        self.link.act(|state, _| state.watch(session, seq, 1, watcher));
    }

    pub(super) fn abandon(&self) {
        self.link.act(|state, _| state.abandon(self.session, self.seq));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(place) = &self.at {
            place.abandon();
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
