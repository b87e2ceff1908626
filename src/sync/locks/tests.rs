use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::thread;

use super::*;

/// Announcer that forwards its calls. At the end of a wait it adds the state of the lock.
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

/// Runs `code` on a thread with an announcer. Calls `blocked` when the thread begins to wait.
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

/// Waits, by `wait`, for a flag under a mutex, and sets the flag when the wait has begun.
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
    // The thread may wake up spuriously, and waits again.
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
