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
mod tests {
    use std::cell::Cell;
    use std::panic::{self, AssertUnwindSafe};
    use std::rc::Rc;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::sync::{Arc, PoisonError};
    use std::thread;

    use super::*;

    /// Passes on what it is told, and at the end of a wait whether the lock is taken then.
    struct Fake {
        tell: Sender<&'static str>,
        is_taken: Box<dyn Fn() -> bool>,
    }

    impl stall::Announce for Fake {
        fn begin(&self) {
            self.tell.send("begin").expect("heard");
        }

        fn end(&self) {
            self.tell.send(if (self.is_taken)() { "end, taken" } else { "end" }).expect("heard");
        }

        fn uncounted(&self) {
            self.tell.send("uncounted").expect("heard");
        }
    }

    fn install(is_taken: impl Fn() -> bool + 'static) -> Receiver<&'static str> {
        let (tell, heard) = mpsc::channel();
        stall::install(Some(Rc::new(Fake { tell, is_taken: Box::new(is_taken) })));
        heard
    }

    /// Runs `code` on a thread that is heard; calls `blocked` when that begins to wait.
    fn while_blocked<R: Send + 'static>(
        is_taken: impl Fn() -> bool + Send + 'static,
        code: impl FnOnce() -> R + Send + 'static,
        blocked: impl FnOnce(),
    ) -> (R, Vec<&'static str>) {
        let (pass, passed) = mpsc::channel();
        let worker = thread::spawn(move || {
            let heard = install(is_taken);
            pass.send(heard).expect("waited for");
            let result = code();
            stall::install(None);
            result
        });
        let heard = passed.recv().expect("installed");
        assert_eq!(heard.recv(), Ok("begin"));
        blocked();
        let result = worker.join().expect("no panic");
        (result, heard.iter().collect())
    }

    #[test]
    fn who_need_not_wait_announces_nothing() {
        let heard = install(|| false);
        let mutex = Mutex::new(1);
        let guard: MutexGuard<'_, i32> = mutex.lock().expect("no poison");
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        let condvar = Condvar::new();
        let guard = condvar.wait_while(guard, |value| *value == 2).expect("no poison");
        let long = Duration::from_secs(600);
        let waited = condvar.wait_timeout_while(guard, long, |_| false).expect("no poison");
        assert!(!waited.1.timed_out());
        drop(waited);

        let lock = RwLock::new(1);
        let (first, second) = (lock.read(), lock.read());
        assert_eq!(*first.expect("no poison") + *second.expect("no poison"), 2);
        *lock.write().expect("no poison") += 1;
        assert_eq!(*lock.try_read().expect("free"), 2);
        assert_eq!(*lock.try_write().expect("free"), 2);

        stall::install(None);
        assert_eq!(heard.iter().count(), 0);
    }

    #[test]
    fn a_short_wait_is_not_announced() {
        let heard = install(|| false);
        let tries = Cell::new(0);
        let third = || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(TryLockError::WouldBlock) } else { Ok("taken") }
        };
        let taken = acquire(third, || unreachable!("it was free in time"));
        stall::install(None);
        assert_eq!((taken.expect("no poison"), heard.iter().count()), ("taken", 0));
    }

    #[test]
    fn a_blocked_lock_is_announced_once_until_it_is_taken() {
        let mutex = Arc::new(Mutex::new(1));
        let guard = mutex.lock().expect("no poison");
        let (checked, locked) = (mutex.clone(), mutex.clone());
        let (value, heard) = while_blocked(
            move || checked.try_lock().is_err(),
            move || *locked.lock().expect("no poison"),
            move || drop(guard),
        );
        assert_eq!((value, heard), (1, vec!["end, taken"]));
    }

    #[test]
    fn a_blocked_read_is_announced_once_until_it_is_taken() {
        let lock = Arc::new(RwLock::new(1));
        let guard = lock.write().expect("no poison");
        let (checked, locked) = (lock.clone(), lock.clone());
        let (value, heard) = while_blocked(
            move || checked.try_write().is_err(),
            move || *locked.read().expect("no poison"),
            move || drop(guard),
        );
        assert_eq!((value, heard), (1, vec!["end, taken"]));
    }

    #[test]
    fn a_blocked_write_is_announced_once_until_it_is_taken() {
        let lock = Arc::new(RwLock::new(1));
        let guard = lock.read().expect("no poison");
        let (checked, locked) = (lock.clone(), lock.clone());
        let (value, heard) = while_blocked(
            move || checked.try_read().is_err(),
            move || *locked.write().expect("no poison"),
            move || drop(guard),
        );
        assert_eq!((value, heard), (1, vec!["end, taken"]));
    }

    #[test]
    fn who_waits_gets_the_poison() {
        let mutex = Arc::new(Mutex::new(1));
        let guard = mutex.lock().expect("no poison");
        let locked = mutex.clone();
        let (value, heard) = while_blocked(
            || false,
            move || locked.lock().map(|guard| *guard).map_err(|poisoned| **poisoned.get_ref()),
            || {
                let dies = panic::catch_unwind(AssertUnwindSafe(|| {
                    let _guard = guard;
                    panic!("while locked");
                }));
                assert!(dies.is_err());
            },
        );
        assert_eq!((value, heard), (Err(1), vec!["end"]));
    }

    #[test]
    fn poison_is_seen_and_cleared() {
        let mut mutex = Mutex::new(1);
        let mut lock = RwLock::new(1);
        let dies = panic::catch_unwind(AssertUnwindSafe(|| {
            let _guards = (mutex.lock(), lock.write());
            panic!("while locked");
        }));
        assert!(dies.is_err());
        assert!(mutex.is_poisoned() && lock.is_poisoned());
        assert_eq!(mutex.lock().map_err(|poisoned| *poisoned.into_inner()).err(), Some(1));
        assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
        assert!(lock.read().is_err() && lock.write().is_err());
        assert!(matches!(lock.try_read(), Err(TryLockError::Poisoned(_))));
        assert!(matches!(lock.try_write(), Err(TryLockError::Poisoned(_))));
        assert_eq!(mutex.get_mut().map_err(|poisoned| *poisoned.into_inner()), Err(1));
        assert_eq!(lock.get_mut().map_err(|poisoned| *poisoned.into_inner()), Err(1));

        mutex.clear_poison();
        lock.clear_poison();
        assert_eq!(mutex.get_mut().map(|value| *value).map_err(PoisonError::into_inner), Ok(1));
        assert_eq!(lock.get_mut().map(|value| *value).map_err(PoisonError::into_inner), Ok(1));
        assert_eq!(mutex.into_inner().expect("no poison"), 1);
        assert_eq!(lock.into_inner().expect("no poison"), 1);
    }

    /// A mutex with a flag, and who waits for the flag.
    fn wait_for_flag(
        wait: impl FnOnce(&Condvar, MutexGuard<'_, bool>) + Send + 'static,
    ) -> Vec<&'static str> {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let (checked, waits) = (shared.clone(), shared.clone());
        let ((), heard) = while_blocked(
            move || checked.0.try_lock().is_err(),
            move || wait(&waits.1, waits.0.lock().expect("no poison")),
            move || {
                *shared.0.lock().expect("no poison") = true;
                shared.1.notify_one();
                shared.1.notify_all();
            },
        );
        heard
    }

    #[test]
    fn a_wait_is_announced_until_the_mutex_is_locked_again() {
        // It may wake up without a reason, and waits again.
        let heard = wait_for_flag(|condvar, mut guard| {
            while !*guard {
                guard = condvar.wait(guard).expect("no poison");
            }
        });
        assert_eq!(heard.first(), Some(&"end, taken"));
        let long = Duration::from_secs(600);
        let heard = wait_for_flag(move |condvar, mut guard| {
            while !*guard {
                guard = condvar.wait_timeout(guard, long).expect("no poison").0;
            }
        });
        assert_eq!(heard.first(), Some(&"end, taken"));
    }

    #[test]
    fn a_wait_for_a_condition_is_announced_once() {
        let heard = wait_for_flag(|condvar, guard| {
            let guard = condvar.wait_while(guard, |flag| !*flag).expect("no poison");
            assert!(*guard);
        });
        assert_eq!(heard, ["end, taken"]);
        let long = Duration::from_secs(600);
        let heard = wait_for_flag(move |condvar, guard| {
            let waited = condvar.wait_timeout_while(guard, long, |flag| !*flag);
            let (guard, result) = waited.expect("no poison");
            assert!(*guard && !result.timed_out());
        });
        assert_eq!(heard, ["end, taken"]);
    }

    #[test]
    fn a_wait_that_times_out_ends() {
        let heard = install(|| false);
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let short = Duration::from_millis(1);
        let guard = mutex.lock().expect("no poison");
        let waited = condvar.wait_timeout_while(guard, short, |()| true).expect("no poison");
        assert!(waited.1.timed_out());
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["begin", "end"]);
        drop(condvar.wait_timeout(waited.0, short).expect("no poison"));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["begin", "end"]);
    }

    #[test]
    fn elsewhere_it_waits_like_any_lock() {
        let shared = Arc::new((Mutex::new(0), Condvar::new(), RwLock::new(0)));
        let threads = (0..4).map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..1000 {
                    *shared.0.lock().expect("no poison") += 1;
                    *shared.2.write().expect("no poison") += 1;
                    shared.1.notify_all();
                }
                let count = shared.0.lock().expect("no poison");
                drop(shared.1.wait_while(count, |count| *count < 4000).expect("no poison"));
                *shared.2.read().expect("no poison")
            })
        });
        let seen: Vec<i32> =
            threads.collect::<Vec<_>>().into_iter().map(|t| t.join().expect("no panic")).collect();
        assert_eq!((seen.len(), *shared.0.lock().expect("no poison")), (4, 4000));
        assert_eq!(*shared.2.read().expect("no poison"), 4000);
    }

    #[test]
    fn they_are_made_and_shown_like_those_of_std() {
        static MUTEX: Mutex<i32> = Mutex::new(1);
        static LOCK: RwLock<i32> = RwLock::new(1);
        static CONDVAR: Condvar = Condvar::new();
        assert_eq!(format!("{MUTEX:?}"), format!("{:?}", sync::Mutex::new(1)));
        assert_eq!(format!("{LOCK:?}"), format!("{:?}", sync::RwLock::new(1)));
        assert_eq!(format!("{CONDVAR:?}"), format!("{:?}", sync::Condvar::default()));
        assert_eq!(Mutex::from(0).into_inner().ok(), Mutex::default().into_inner().ok());
        assert_eq!(RwLock::from(0).into_inner().ok(), RwLock::default().into_inner().ok());
        assert_eq!(format!("{:?}", Condvar::default()), format!("{CONDVAR:?}"));
        let unsized_too: &Mutex<[i32]> = &Mutex::new([1, 2]);
        assert_eq!(unsized_too.lock().map(|values| values.len()).ok(), Some(2));
        let unsized_too: &RwLock<[i32]> = &RwLock::new([1, 2]);
        assert_eq!(unsized_too.read().map(|values| values.len()).ok(), Some(2));
    }
}
