//! Atomics, locks and cells of modelled code: std, or loom in a model.

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(all(not(loom), not(test), feature = "server"))]
pub(crate) use std::sync::atomic;

#[cfg(all(not(loom), test, feature = "server"))]
pub(crate) mod counted;
#[cfg(all(not(loom), test, feature = "server"))]
pub(crate) use counted as atomic;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

#[cfg(all(not(loom), feature = "server"))]
pub(crate) use std::thread::yield_now;

#[cfg(all(loom, feature = "server"))]
pub(crate) use loom::thread::yield_now;

#[cfg(all(loom, feature = "server"))]
pub(crate) use loom::sync::atomic;

#[cfg(all(not(loom), feature = "pool"))]
pub(crate) use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(all(loom, feature = "pool"))]
pub(crate) use loom::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(all(loom, feature = "server"))]
pub(crate) use loom::cell::{MutPtr, UnsafeCell};

/// `std::cell::UnsafeCell` with the part of loom's interface that is used here.
#[cfg(all(not(loom), feature = "server"))]
#[derive(Debug, Default)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(all(not(loom), feature = "server"))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Pointer to the value. In a model, it is an access that loom watches while it lives.
    pub(crate) fn get_mut(&self) -> MutPtr<T> {
        MutPtr(self.0.get())
    }

    /// Pointer to the value for reading.
    pub(crate) fn get(&self) -> ConstPtr<T> {
        ConstPtr(self.0.get())
    }
}

/// A pointer to the content of an [`UnsafeCell`].
#[cfg(all(not(loom), feature = "server"))]
#[derive(Debug)]
pub(crate) struct MutPtr<T>(*mut T);

#[cfg(all(not(loom), feature = "server"))]
impl<T> MutPtr<T> {
    /// # Safety
    ///
    /// The cell is alive, and no other thread reads or writes its content meanwhile.
    #[expect(clippy::mut_from_ref, reason = "loom's signature; the caller has exclusive access")]
    pub(crate) unsafe fn deref(&self) -> &mut T {
        // SAFETY: the caller keeps the contract above.
        unsafe { &mut *self.0 }
    }
}

/// A pointer to the content of an [`UnsafeCell`], for reading.
#[cfg(all(not(loom), feature = "server"))]
#[derive(Debug)]
pub(crate) struct ConstPtr<T>(*const T);

#[cfg(all(not(loom), feature = "server"))]
impl<T> ConstPtr<T> {
    /// # Safety
    ///
    /// The cell is alive, and no thread writes its content meanwhile.
    pub(crate) unsafe fn deref(&self) -> &T {
        // SAFETY: the caller keeps the contract above.
        unsafe { &*self.0 }
    }
}

/// List to which threads append while others read, without a lock.
#[cfg(all(not(loom), feature = "server"))]
pub(crate) use boxcar::Vec as AppendVec;

/// In a model, appending is no step of its own, and there is room for four items.
#[cfg(all(loom, feature = "server"))]
#[derive(Debug)]
pub(crate) struct AppendVec<T>([std::sync::OnceLock<T>; 4]);

#[cfg(all(loom, feature = "server"))]
impl<T> AppendVec<T> {
    pub(crate) fn new() -> Self {
        Self(Default::default())
    }

    pub(crate) fn push(&self, item: T) -> usize {
        let index = self.count();
        assert!(self.0[index].set(item).is_ok(), "one thread appends at a time");
        index
    }

    pub(crate) fn count(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().map_while(std::sync::OnceLock::get).enumerate()
    }
}

#[cfg(all(loom, feature = "server"))]
impl<T> std::ops::Index<usize> for AppendVec<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        self.0[index].get().expect("it was appended")
    }
}

/// Locks, whether or not a thread panicked while it held the lock.
///
/// The data that our locks guard are valid after every statement, and handlers never run under one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(all(not(loom), test, feature = "server"))]
    // To lock, and later to unlock.
    atomic::count_updates(2);
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, whether or not a thread panicked.
#[cfg(feature = "pool")]
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, whether or not a thread panicked.
#[cfg(feature = "pool")]
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits while `condition` holds, at most for the limit, if there is one. Returns true if the limit
/// passed first.
#[cfg(not(loom))]
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Option<Duration>,
    condition: impl FnMut(&mut T) -> bool,
) -> (MutexGuard<'a, T>, bool) {
    let Some(limit) = limit else {
        let waited = condvar.wait_while(guard, condition);
        return (waited.unwrap_or_else(PoisonError::into_inner), false);
    };
    let waited = condvar.wait_timeout_while(guard, limit, condition);
    let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
    (guard, result.timed_out())
}

/// In a model a wait with a limit times out at once.
#[cfg(loom)]
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    limit: Option<Duration>,
    mut condition: impl FnMut(&mut T) -> bool,
) -> (MutexGuard<'a, T>, bool) {
    while condition(&mut guard) {
        if limit.is_some() {
            return (guard, true);
        }
        guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    (guard, false)
}
