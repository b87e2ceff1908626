//! Values of the user are dropped while no lock of the pool is held, and a host may drop its work.

use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::pool::{GetError, Host, Manage, Pool, Target, Version};

use crate::support::{Got, build, late, limits, soon};
use lab::LONG;

const SHORT: Duration = Duration::from_millis(20);

/// Pool that is looked at whenever a key or an error is dropped.
#[derive(Default)]
struct Watch {
    pool: Mutex<Option<Pool<Failing>>>,
    /// For each drop: true if another thread could take the locks of the pool meanwhile.
    free: Mutex<Vec<bool>>,
    /// The next clone of a key makes its backend.
    nests: AtomicBool,
}

impl Watch {
    fn start() -> (Pool<Failing>, Arc<Self>) {
        let watch = Arc::<Self>::default();
        let manage = Failing(Arc::clone(&watch));
        let pool = Pool::builder(manage).limits(limits(1)).build().unwrap();
        *watch.pool.lock().unwrap() = Some(pool.clone());
        (pool, watch)
    }

    fn look(&self) {
        let Some(pool) = self.pool.lock().unwrap().clone() else { return };
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let _ = pool.leaks(Duration::ZERO);
            drop(pool);
            let _ = done.send(());
        });
        self.free.lock().unwrap().push(is_done.recv_timeout(LONG / 4).is_ok());
    }

    /// Asserts that there were drops, and that no lock was held.
    fn assert_free(&self) {
        drop(self.pool.lock().unwrap().take());
        let free = self.free.lock().unwrap();
        assert!(!free.is_empty() && free.iter().all(|free| *free), "{free:?}");
    }
}

struct Key(Arc<Watch>);

impl Clone for Key {
    fn clone(&self) -> Self {
        if self.0.nests.swap(false, SeqCst) {
            let pool = self.0.pool.lock().unwrap().clone().unwrap();
            drop(pool.backend(self).unwrap());
        }
        Self(Arc::clone(&self.0))
    }
}

impl PartialEq for Key {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.look();
    }
}

struct Failure(Arc<Watch>);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failure")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("on purpose")
    }
}

impl Error for Failure {}

impl Drop for Failure {
    fn drop(&mut self) {
        self.0.look();
    }
}

struct Failing(Arc<Watch>);

impl Manage for Failing {
    type Key = Key;
    type Connection = ();
    type Error = Failure;

    fn connect(&self, _: &Target<'_, Key>, _: Instant) -> Result<(), Failure> {
        Err(Failure(Arc::clone(&self.0)))
    }
}

#[test]
fn an_error_that_another_replaces_is_dropped_outside_the_lock() {
    let (pool, watch) = Watch::start();
    let key = Key(Arc::clone(&watch));
    // The second failure replaces the error of the first, and the fail-over drops that of the second.
    while pool.status_of(&key).is_none_or(|status| status.totals.connect_failures < 2) {
        drop(pool.backend(&key).unwrap().get_before(soon()));
    }
    pool.fail_over(&key, Version::default()).unwrap();
    watch.assert_free();
}

#[test]
fn keys_are_dropped_outside_the_lock_of_the_map() {
    let (pool, watch) = Watch::start();
    let key = Key(Arc::clone(&watch));
    // Another caller adds the backend meanwhile.
    watch.nests.store(true, SeqCst);
    drop(pool.backend(&key).unwrap());
    assert!(pool.retire(&key));
    watch.assert_free();
}

/// A host that drops everything.
struct Dropping;

/// A host that runs connects within the call, until it ends: then it drops all code.
#[derive(Clone, Default)]
struct Ending(Arc<Calls>);

#[derive(Default)]
struct Calls {
    has_ended: AtomicBool,
    /// Calls of `spawn` that have not returned, and their largest number.
    calls: AtomicUsize,
    most_calls: AtomicUsize,
}

impl Host for Ending {
    fn spawn(&self, code: Box<dyn FnOnce() + Send>) {
        let calls = self.0.calls.fetch_add(1, SeqCst) + 1;
        self.0.most_calls.fetch_max(calls, SeqCst);
        if self.0.has_ended.load(SeqCst) {
            drop(code)
        } else {
            code()
        }
        self.0.calls.fetch_sub(1, SeqCst);
    }

    fn after(&self, _: Duration, _: Box<dyn FnOnce() + Send>) {}
}

impl Host for Dropping {
    fn spawn(&self, _: Box<dyn FnOnce() + Send>) {}

    fn after(&self, _: Duration, _: Box<dyn FnOnce() + Send>) {}
}

/// A host that loses the first code of `after`, and runs the rest on a thread each.
struct Losing {
    panics: bool,
    has_lost: AtomicBool,
}

impl Host for Losing {
    fn spawn(&self, _: Box<dyn FnOnce() + Send>) {}

    fn after(&self, delay: Duration, code: Box<dyn FnOnce() + Send>) {
        if self.has_lost.swap(true, SeqCst) {
            thread::spawn(move || {
                thread::sleep(delay);
                code();
            });
        } else if self.panics {
            panic!("on purpose");
        }
    }
}

#[test]
fn a_host_that_loses_a_timer_is_asked_for_the_next_one() {
    for panics in [false, true] {
        let host = Losing { panics, has_lost: AtomicBool::new(false) };
        let (pool, _) = build(limits(1), |builder| builder.maintained_by(host));
        let held = pool.get(&"SPT0").unwrap();
        let backend = pool.backend(&"SPT0").unwrap();
        let (answer, answers) = mpsc::channel();
        for n in 0..2 {
            let answer = answer.clone();
            let then = move |got: Got| answer.send((n, got.map(drop))).unwrap();
            backend.get_then(Instant::now() + SHORT * (n + 1), then);
        }
        for n in 0..2 {
            let (late, got) = answers.recv_timeout(LONG).expect("its deadline passes");
            assert!(late == n && matches!(got, Err(GetError::Timeout { .. })), "{late}: {got:?}");
        }
        drop(held);
    }
}

#[test]
fn a_host_that_drops_a_connect_is_not_asked_again_inside_that_call() {
    for pause in [Duration::ZERO, Duration::MAX] {
        let limits = limits(1).backoff(pause, pause);
        let (pool, _) = build(limits, |builder| builder.maintained_by(Dropping));
        let (answer, answers) = mpsc::channel();
        pool.backend(&"SPT0").unwrap().get_then(late(), move |got| drop(answer.send(got)));
        assert_eq!(pool.status()[0].totals.connect_failures, 1);
        drop(pool);
        assert!(matches!(answers.recv_timeout(LONG), Ok(Err(GetError::Closed))));
    }
}

#[test]
fn a_host_that_drops_checks_is_not_asked_for_each_inside_the_call_before() {
    const IDLE: usize = 8;
    let host = Ending::default();
    let limits = limits(IDLE).check_after(Duration::ZERO);
    let (pool, fake) = build(limits, |builder| builder.maintained_by(host.clone()));
    let held = [(); IDLE].map(|()| pool.get(&"SPT0").unwrap());
    drop(held);
    host.0.has_ended.store(true, SeqCst);
    let (answer, answers) = mpsc::channel();
    pool.backend(&"SPT0").unwrap().get_then(late(), move |got| drop(answer.send(got)));
    assert_eq!(fake.closed().len(), IDLE);
    let nested = host.0.most_calls.load(SeqCst);
    assert!(nested <= 2, "{nested} calls inside each other");
    drop(pool);
    assert!(matches!(answers.recv_timeout(LONG), Ok(Err(GetError::Closed))));
}
