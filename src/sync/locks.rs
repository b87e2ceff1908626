//! `Mutex`, `RwLock` and `Condvar` that announce a stall, and only when they really block.
//!
//! They are std's, with one addition to the methods that wait. A method that locks tries, and tries
//! again for about as long as std spins. Only then it announces the wait, and waits as std does. If
//! the first try succeeds, the caller pays for that try and nothing else.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{
    self, LockResult, MutexGuard, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
    WaitTimeoutResult,
};
use std::time::Duration;

use crossbeam_utils::Backoff;

use crate::stall::{self, Wait};

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
/// ACCOUNTS.lock().expect("no panic").push(7);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// The mutex is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex. Waits until no other thread holds it, as [`Wait::Lock`].
    ///
    /// # Errors
    ///
    /// The mutex is poisoned: a thread panicked while it held the mutex. The error holds the guard.
    ///
    /// # Panics
    ///
    /// Like std's, it may panic, or wait forever, when this thread holds the mutex already.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        acquire(|| self.0.try_lock(), || self.0.lock())
    }

    /// Locks the mutex, if no thread holds it.
    ///
    /// # Errors
    ///
    /// A thread holds the mutex, or it is poisoned.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Returns true if a thread panicked while it held the mutex.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    /// Makes the mutex not poisoned.
    pub fn clear_poison(&self) {
        self.0.clear_poison();
    }

    /// Returns a reference to the value, without locking.
    ///
    /// # Errors
    ///
    /// The mutex is poisoned; the error holds the reference.
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
    /// Creates an unlocked lock.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// The lock is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for reading. Waits until no thread writes or waits to write, as [`Wait::Lock`].
    ///
    /// # Errors
    ///
    /// The lock is poisoned: a thread panicked while writing. The error holds the guard.
    ///
    /// # Panics
    ///
    /// Like std's, it may panic, or wait forever, when this thread holds the lock already.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        acquire(|| self.0.try_read(), || self.0.read())
    }

    /// Locks for reading, if no thread writes or waits to write.
    ///
    /// # Errors
    ///
    /// A thread writes or waits to write, or the lock is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    /// Locks for writing. Waits until no thread reads or writes, as [`Wait::Lock`].
    ///
    /// # Errors
    ///
    /// The lock is poisoned: a thread panicked while writing. The error holds the guard.
    ///
    /// # Panics
    ///
    /// Like std's, it may panic, or wait forever, when this thread holds the lock already.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        acquire(|| self.0.try_write(), || self.0.write())
    }

    /// Locks for writing, if no thread reads or writes.
    ///
    /// # Errors
    ///
    /// A thread reads or writes, or the lock is poisoned.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }

    /// Returns true if a thread panicked while writing.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    /// Makes the lock not poisoned.
    pub fn clear_poison(&self) {
        self.0.clear_poison();
    }

    /// Returns a reference to the value, without locking.
    ///
    /// # Errors
    ///
    /// The lock is poisoned; the error holds the reference.
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
/// The interface is std's, and so are the guards. It works with a [`Mutex`] of this crate and with
/// a mutex of std. A wait is a [`Wait::Other`], from before the mutex is released until it is
/// locked again. The wait is announced with the mutex held. Therefore another thread that needs the
/// mutex may wait while a worker starts.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Releases the mutex, waits for a notification, and locks the mutex again. May return without
    /// a notification.
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

    /// Waits while the condition holds. If the condition does not hold at first, nothing is
    /// announced.
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

    /// Wakes one waiting thread, if there is one.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
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

/// Wraps the condition. The first time that it holds, a stall begins, which lasts until the wrapper
/// is dropped with the wait.
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
