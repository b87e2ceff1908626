//! Locks that a connection takes with one request and gives back with a later one, as a
//! transaction holds a row.

use std::sync::{Arc, MutexGuard, PoisonError};

use epoll_group::net::Close;
use epoll_group::sync::{Condvar, Mutex};

/// As many as [`COUNT`].
#[derive(Debug)]
pub(super) struct Locks(Vec<Lock>);

/// The locks that one connection has. Dropped, they are given back.
#[derive(Debug)]
pub(crate) struct Held {
    locks: Arc<Locks>,
    numbers: Vec<u32>,
}

/// Those of the library: who waits for it says so, and another thread goes on.
#[derive(Debug, Default)]
struct Lock {
    taken: Mutex<bool>,
    free: Condvar,
}

/// Locks have the numbers below this.
const COUNT: u32 = 256;

impl Held {
    /// None yet.
    pub(super) fn of(locks: &Arc<Locks>) -> Self {
        Self { locks: Arc::clone(locks), numbers: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Takes one; waits while another connection has it.
    pub(super) fn take(&mut self, number: u32) -> Result<(), Close> {
        if self.numbers.contains(&number) {
            return Err(Close::new(format!("lock {number} is this connection's already")));
        }
        let Some(lock) = self.locks.0.get(number as usize) else {
            return Err(Close::new(format!("lock {number} is not below {COUNT}")));
        };
        lock.take();
        self.numbers.push(number);
        Ok(())
    }

    /// Gives one back; nothing happens if this connection does not have it.
    pub(super) fn give_back(&mut self, number: u32) {
        if let Some(place) = self.numbers.iter().position(|held| *held == number) {
            self.numbers.swap_remove(place);
            self.locks.0[number as usize].give_back();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for &number in &self.numbers {
            self.locks.0[number as usize].give_back();
        }
    }
}

impl Lock {
    fn take(&self) {
        let taken = self.free.wait_while(self.taken(), |taken| *taken);
        *taken.unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn give_back(&self) {
        *self.taken() = false;
        self.free.notify_one();
    }

    fn taken(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Locks {
    fn default() -> Self {
        Self((0..COUNT).map(|_| Lock::default()).collect())
    }
}
