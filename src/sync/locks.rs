//! `Mutex`, `RwLock` and `Condvar` that announce a stall, and only when they really block.
//!
//! They are std's, with one thing added to the ways that wait: try, try again for about as long as
//! std spins, and only then say so and wait as std does. Whoever gets the lock at the first try pays
//! for that try and nothing else.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{
    self, LockResult, MutexGuard, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
    WaitTimeoutResult,
};
use std::time::Duration;

use crossbeam_utils::Backoff;

use super::stall::{self, Wait};

/// [`std::sync::Mutex`] for handlers: a worker that has to wait for it counts as stalled.
///
/// The interface is std's, and so are the guards and errors: replacing the `use` is enough. See
/// [the module](super) for when it is worth it.
///
/// ```
/// use epoll_group::sync::Mutex;
///
/// static ACCOUNTS: Mutex<Vec<u64>> = Mutex::new(Vec::new());
///
/// ACCOUNTS.lock().expect("nobody panicked").push(7);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Unlocked.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// It is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks it; waits until nobody else has it, as [`Wait::Lock`].
    ///
    /// # Errors
    ///
    /// It is poisoned: somebody panicked while holding it. The error holds the guard.
    ///
    /// # Panics
    ///
    /// Like std's, it may panic when this thread has it already; or wait forever.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        acquire(|| self.0.try_lock(), || self.0.lock())
    }

    /// Locks it, if nobody has it.
    ///
    /// # Errors
    ///
    /// Somebody has it, or it is poisoned.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Somebody panicked while holding it.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    /// From now on it is not poisoned.
    pub fn clear_poison(&self) {
        self.0.clear_poison();
    }

    /// The value, without locking.
    ///
    /// # Errors
    ///
    /// It is poisoned; the error holds the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// [`std::sync::RwLock`] for handlers: a worker that has to wait for it counts as stalled.
///
/// The interface is std's, and so are the guards and errors: replacing the `use` is enough. See
/// [the module](super) for when it is worth it.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Unlocked.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// It is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks it for reading; waits until nobody writes or waits to, as [`Wait::Lock`].
    ///
    /// # Errors
    ///
    /// It is poisoned: somebody panicked while writing. The error holds the guard.
    ///
    /// # Panics
    ///
    /// Like std's, it may panic when this thread has it already; or wait forever.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        acquire(|| self.0.try_read(), || self.0.read())
    }

    /// Locks it for reading, if nobody writes or waits to.
    ///
    /// # Errors
    ///
    /// Somebody does, or it is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    /// Locks it for writing; waits until nobody reads or writes, as [`Wait::Lock`].
    ///
    /// # Errors
    ///
    /// It is poisoned: somebody panicked while writing. The error holds the guard.
    ///
    /// # Panics
    ///
    /// Like std's, it may panic when this thread has it already; or wait forever.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        acquire(|| self.0.try_write(), || self.0.write())
    }

    /// Locks it for writing, if nobody reads or writes.
    ///
    /// # Errors
    ///
    /// Somebody does, or it is poisoned.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }

    /// Somebody panicked while writing.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    /// From now on it is not poisoned.
    pub fn clear_poison(&self) {
        self.0.clear_poison();
    }

    /// The value, without locking.
    ///
    /// # Errors
    ///
    /// It is poisoned; the error holds the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// [`std::sync::Condvar`] for handlers: a worker that waits on it counts as stalled.
///
/// The interface is std's, and so are the guards: it works with a [`Mutex`] of this crate and with
/// one of std. A wait is a [`Wait::Other`], from before the mutex is released until it is locked
/// again; it is announced with the mutex held, so who holds it up may wait while a thread starts.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Nobody waits.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Releases the mutex, waits for a notification, locks it again. May return without one.
    ///
    /// # Errors
    ///
    /// The mutex is poisoned; the error holds the guard.
    ///
    /// # Panics
    ///
    /// Like std's, it may panic when it is used with more than one mutex.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        stall::run(|| self.0.wait(guard))
    }

    /// Waits as long as the condition holds. When it does not at first, nothing is announced.
    ///
    /// # Errors
    ///
    /// The mutex is poisoned; the error holds the guard.
    ///
    /// # Panics
    ///
    /// Like [`wait`](Self::wait).
    pub fn wait_while<'a, T, F>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: F,
    ) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        self.0.wait_while(guard, announced(condition))
    }

    /// [`wait`](Self::wait), but no longer than the timeout.
    ///
    /// # Errors
    ///
    /// The mutex is poisoned; the error holds the guard.
    ///
    /// # Panics
    ///
    /// Like [`wait`](Self::wait).
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        stall::run(|| self.0.wait_timeout(guard, timeout))
    }

    /// [`wait_while`](Self::wait_while), but no longer than the timeout.
    ///
    /// # Errors
    ///
    /// The mutex is poisoned; the error holds the guard.
    ///
    /// # Panics
    ///
    /// Like [`wait`](Self::wait).
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        self.0.wait_timeout_while(guard, timeout, announced(condition))
    }

    /// Wakes one that waits, if there is one.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[inline]
fn acquire<G>(
    try_now: impl Fn() -> TryLockResult<G>,
    block: impl FnOnce() -> LockResult<G>,
) -> LockResult<G> {
    match try_now() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
        Err(TryLockError::WouldBlock) => contend(try_now, block),
    }
}

#[cold]
fn contend<G>(
    try_now: impl Fn() -> TryLockResult<G>,
    block: impl FnOnce() -> LockResult<G>,
) -> LockResult<G> {
    if !stall::is_heard() {
        return block();
    }
    let backoff = Backoff::new();
    while !backoff.is_completed() {
        backoff.snooze();
        match try_now() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    stall::run_as(Wait::Lock, block)
}

/// The condition, and one stall from when it first holds until it is dropped with the wait.
fn announced<T>(mut condition: impl FnMut(&mut T) -> bool) -> impl FnMut(&mut T) -> bool {
    let mut stall = None;
    move |value| {
        let holds = condition(value);
        if holds && stall.is_none() {
            stall = Some(stall::enter());
        }
        holds
    }
}

#[cfg(test)]
mod tests;
