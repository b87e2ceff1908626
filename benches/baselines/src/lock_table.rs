//! Locks that one request takes and a later one gives back, as a transaction holds a row.
//!
//! They are std's mutex and condition variable, so a wait blocks the calling thread. A lock does not know its
//! holder: one whose connection ends stays taken, so a load must give back what it takes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// No lock has this number.
#[derive(Debug)]
pub(crate) struct NoSuchLock;

struct Lock {
    taken: Mutex<bool>,
    free: Condvar,
}

/// Locks have the numbers below this.
pub(crate) const LOCKS: usize = 256;

static TABLE: [Lock; LOCKS] = [const { Lock::new() }; LOCKS];

/// Takes a lock. If it is not free at once, the wait for it happens inside `wait`, which must call its
/// argument once.
pub(crate) fn take(number: u32, wait: &impl Fn(&mut dyn FnMut())) -> Result<(), NoSuchLock> {
    let lock = Lock::of(number)?;
    let was_taken = std::mem::replace(&mut *lock.taken(), true);
    if was_taken {
        wait(&mut || lock.take_when_free());
    }
    Ok(())
}

/// Gives a lock back. Does nothing if it is free.
pub(crate) fn give_back(number: u32) -> Result<(), NoSuchLock> {
    let lock = Lock::of(number)?;
    *lock.taken() = false;
    lock.free.notify_one();
    Ok(())
}

impl Lock {
    const fn new() -> Self {
        Self { taken: Mutex::new(false), free: Condvar::new() }
    }

    fn of(number: u32) -> Result<&'static Self, NoSuchLock> {
        TABLE.get(number as usize).ok_or(NoSuchLock)
    }

    fn taken(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_when_free(&self) {
        let taken = self.free.wait_while(self.taken(), |taken| *taken);
        *taken.unwrap_or_else(PoisonError::into_inner) = true;
    }
}
