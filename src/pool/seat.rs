//! [`Seat`]: where a thread sleeps until it is handed something.

use std::time::Instant;

use super::stack::Grant;
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};

/// One thread waits here, for one thing.
#[derive(Debug)]
pub(super) struct Seat<C> {
    grant: Mutex<Option<Grant<C>>>,
    filled: Condvar,
}

impl<C> Seat<C> {
    pub(super) fn new() -> Self {
        Self { grant: Mutex::new(None), filled: Condvar::new() }
    }

    /// Hands it over. Never when the thread has left before.
    pub(super) fn fill(&self, grant: Grant<C>) {
        *lock(&self.grant) = Some(grant);
        self.filled.notify_one();
    }

    /// Sleeps until something is there. `None`: the deadline has passed first.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Option<Grant<C>> {
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let guard = lock(&self.grant);
        wait_while(&self.filled, guard, limit, |grant| grant.is_none()).0.take()
    }
}
