//! Queue, deadlines and stalls of a runtime, and the login of a connection.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::codec::auth::{SALT_BYTES, StoredPassword};
use crate::runtime::{TaskQueue, TimerHeap, TimerId};
use crate::stall::{self, Announce};

/// A whole login without a connection: whether who answers the challenge so gets into an account of
/// which this is kept. `None` is an account that does not exist.
#[must_use]
pub fn login(challenge: [u8; SALT_BYTES], answer: &[u8], stored: Option<&StoredPassword>) -> bool {
    crate::session::attempt(challenge, answer, stored)
}

/// The task queue of a group.
#[derive(Debug)]
pub struct Queue(TaskQueue<u64>);

impl Queue {
    /// With so many places.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self(TaskQueue::new(capacity))
    }

    /// `false` when it is full.
    pub fn try_push(&self, task: u64) -> bool {
        self.0.try_push(task).is_ok()
    }

    /// Never refuses.
    pub fn push(&self, task: u64) {
        self.0.push(task);
    }

    /// The next one.
    pub fn pop(&self) -> Option<u64> {
        self.0.pop()
    }
}

/// The deadlines of a group.
#[derive(Debug)]
pub struct Timers(TimerHeap<u64>);

/// One of its deadlines.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(TimerId);

impl Timers {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self(TimerHeap::new())
    }

    /// Sets one.
    pub fn insert(&mut self, at: Instant, payload: u64) -> Deadline {
        Deadline(self.0.insert(at, payload))
    }

    /// Its payload, unless it has fired or was cancelled.
    pub fn cancel(&mut self, deadline: Deadline) -> Option<u64> {
        self.0.cancel(deadline.0)
    }

    /// Payload of the next one that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<u64> {
        self.0.pop_due(now).map(|(_, payload)| payload)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Timers {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts the waits that this thread announces from now on, as if it were a worker.
#[derive(Debug)]
pub struct Stalls(Rc<Count>);

#[derive(Debug, Default)]
struct Count(Cell<usize>);

impl Announce for Count {
    fn begin(&self) {
        self.0.set(self.0.get() + 1);
    }

    fn end(&self) {}

    fn uncounted(&self) {}
}

impl Stalls {
    /// None yet.
    #[must_use]
    pub fn listen() -> Self {
        let count = Rc::<Count>::default();
        stall::install(Some(count.clone()));
        Self(count)
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.0.get()
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        stall::install(None);
    }
}
