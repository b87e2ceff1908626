//! Queue, deadlines and stalls of a runtime, and the login of a connection.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::codec::auth::{SALT_BYTES, StoredPassword};
use crate::runtime::{TaskQueue, TimerHeap, TimerId};
use crate::stall::{self, Announce};

/// Runs a whole login without a connection. Returns true if `answer` opens the account whose stored
/// password is `stored`. `None` is an account that does not exist.
#[must_use]
pub fn login(challenge: [u8; SALT_BYTES], answer: &[u8], stored: Option<&StoredPassword>) -> bool {
    crate::session::attempt(challenge, answer, stored)
}

/// The task queue of a group.
#[derive(Debug)]
pub struct Queue(TaskQueue<u64>);

impl Queue {
    /// Creates a queue with `capacity` places.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self(TaskQueue::new(capacity))
    }

    /// Adds a task. Returns `false` if the queue is full.
    pub fn try_push(&self, task: u64) -> bool {
        self.0.try_push(task).is_ok()
    }

    /// Adds a task. Never refuses it.
    pub fn push(&self, task: u64) {
        self.0.push(task);
    }

    /// Takes the next task.
    pub fn pop(&self) -> Option<u64> {
        self.0.pop()
    }
}

/// Deadlines of a group.
#[derive(Debug)]
pub struct Timers(TimerHeap<u64>);

/// One deadline of [`Timers`].
#[derive(Clone, Copy, Debug)]
pub struct Deadline(TimerId);

impl Timers {
    /// Creates an empty set of deadlines.
    #[must_use]
    pub fn new() -> Self {
        Self(TimerHeap::new())
    }

    /// Sets a deadline.
    pub fn insert(&mut self, at: Instant, payload: u64) -> Deadline {
        Deadline(self.0.insert(at.into(), payload))
    }

    /// Cancels a deadline. Returns its payload, unless it has fired or was cancelled.
    pub fn cancel(&mut self, deadline: Deadline) -> Option<u64> {
        self.0.cancel(deadline.0)
    }

    /// Takes the payload of the next deadline that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<u64> {
        self.0.pop_due(now.into()).map(|(_, payload)| payload)
    }

    /// Number of pending deadlines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no deadline is pending.
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
    /// Installs a counter on this thread, starting at zero.
    #[must_use]
    pub fn listen() -> Self {
        let count = Rc::<Count>::default();
        stall::install(Some(count.clone()));
        Self(count)
    }

    /// Number of waits since [`listen`](Self::listen).
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
