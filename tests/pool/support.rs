//! A fake backend for the tests of the pool: connections are numbers, and everything that may go
//! wrong does so on order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epoll_group::pool::{BackendStatus, Builder, GetError, Limits, Manage, Pool, Pooled, Target};

use lab::workers::Gate;
use lab::{LONG, eventually};

pub(crate) type Key = &'static str;
pub(crate) type TestPool = Pool<Backends>;
pub(crate) type TestPooled = Pooled<Backends>;
pub(crate) type Got = Result<TestPooled, GetError>;

/// Record of all connections, and the faults that a test orders.
#[derive(Default)]
pub(crate) struct Fake {
    /// Connections that were made; also the number of the last.
    pub(crate) made: AtomicUsize,
    /// Number of open connections.
    pub(crate) open: AtomicUsize,
    /// Calls of `connect` in progress, and the most at a time.
    pub(crate) connecting: AtomicUsize,
    pub(crate) most_connecting: AtomicUsize,
    pub(crate) most_open: AtomicUsize,
    /// Calls of `connect`.
    pub(crate) connects: AtomicUsize,
    pub(crate) checks: AtomicUsize,
    /// The backend answers checks at this time.
    pub(crate) checked_at: Mutex<Option<Instant>>,
    /// Every connect fails.
    pub(crate) dead: AtomicBool,
    /// Errors of connects are permanent.
    pub(crate) permanent: AtomicBool,
    pub(crate) broken: AtomicBool,
    /// Number of a connection that is broken.
    pub(crate) broken_one: AtomicUsize,
    /// The next check of a connection runs this.
    pub(crate) in_has_broken: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    pub(crate) invalid: AtomicBool,
    pub(crate) reset_fails: AtomicBool,
    /// Functions whose next calls panic, by name.
    pub(crate) panic_in: Mutex<VecDeque<&'static str>>,
    /// Connects wait here while the gate is closed.
    pub(crate) gate: Gate,
    /// Numbers of the connections that were closed, in order.
    pub(crate) closed: Mutex<Vec<usize>>,
    /// `key#version` of the connects, in order.
    pub(crate) targets: Mutex<Vec<String>>,
}

/// A connection: its number, and what was left behind on it.
pub(crate) struct Conn {
    pub(crate) number: usize,
    pub(crate) target: String,
    pub(crate) dirty: bool,
    fake: Arc<Fake>,
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.fake.open.fetch_sub(1, Ordering::SeqCst);
        self.fake.closed.lock().unwrap().push(self.number);
    }
}

/// The manager of a [`Fake`].
pub(crate) struct Backends(pub(crate) Arc<Fake>);

impl Fake {
    fn panic_if_ordered(&self, here: &str) {
        let mut orders = self.panic_in.lock().unwrap();
        if orders.front() == Some(&here) {
            orders.pop_front();
            drop(orders);
            panic!("on purpose in {here}");
        }
    }

    pub(crate) fn order_panic(&self, places: &[&'static str]) {
        self.panic_in.lock().unwrap().extend(places);
    }

    pub(crate) fn closed(&self) -> Vec<usize> {
        self.closed.lock().unwrap().clone()
    }

    pub(crate) fn opened(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, flag: &AtomicBool, value: bool) {
        flag.store(value, Ordering::SeqCst);
    }
}

impl Manage for Backends {
    type Key = Key;
    type Connection = Conn;
    type Error = &'static str;

    fn connect(&self, target: &Target<'_, Key>, _: Instant) -> Result<Conn, &'static str> {
        let fake = &self.0;
        fake.connects.fetch_add(1, Ordering::SeqCst);
        let connecting = fake.connecting.fetch_add(1, Ordering::SeqCst) + 1;
        fake.most_connecting.fetch_max(connecting, Ordering::SeqCst);
        fake.targets.lock().unwrap().push(target.to_string());
        fake.gate.pass();
        fake.connecting.fetch_sub(1, Ordering::SeqCst);
        fake.panic_if_ordered("connect");
        if fake.dead.load(Ordering::SeqCst) {
            return Err("connection refused");
        }
        let number = fake.made.fetch_add(1, Ordering::SeqCst) + 1;
        let open = fake.open.fetch_add(1, Ordering::SeqCst) + 1;
        fake.most_open.fetch_max(open, Ordering::SeqCst);
        Ok(Conn { number, target: target.to_string(), dirty: false, fake: Arc::clone(fake) })
    }

    fn is_permanent(&self, error: &&'static str) -> bool {
        self.0.panic_if_ordered("is_permanent");
        self.0.permanent.load(Ordering::SeqCst) && *error == "connection refused"
    }

    fn is_valid(&self, _: &Target<'_, Key>, _: &mut Conn) -> Result<(), &'static str> {
        self.0.checks.fetch_add(1, Ordering::SeqCst);
        self.0.panic_if_ordered("is_valid");
        let at = *self.0.checked_at.lock().unwrap();
        std::thread::sleep(at.map_or(Duration::ZERO, |at| at.duration_since(Instant::now())));
        if self.0.invalid.load(Ordering::SeqCst) { Err("no answer") } else { Ok(()) }
    }

    fn reset(&self, _: &Target<'_, Key>, conn: &mut Conn) -> Result<(), &'static str> {
        self.0.panic_if_ordered("reset");
        if self.0.reset_fails.load(Ordering::SeqCst) {
            return Err("cannot be reset");
        }
        conn.dirty = false;
        Ok(())
    }

    fn has_broken(&self, _: &Target<'_, Key>, conn: &mut Conn) -> bool {
        self.0.panic_if_ordered("has_broken");
        let code = self.0.in_has_broken.lock().unwrap().take();
        code.into_iter().for_each(|code| code());
        self.0.broken.load(Ordering::SeqCst)
            || self.0.broken_one.load(Ordering::SeqCst) == conn.number
    }
}

/// A pool over a fake, and the fake.
pub(crate) fn pool(limits: Limits) -> (TestPool, Arc<Fake>) {
    build(limits, |builder| builder)
}

pub(crate) fn build(
    limits: Limits,
    more: impl FnOnce(Builder<Backends>) -> Builder<Backends>,
) -> (TestPool, Arc<Fake>) {
    let fake = Arc::new(Fake { gate: Gate::opened(), ..Fake::default() });
    let builder = Pool::builder(Backends(Arc::clone(&fake))).limits(limits);
    (more(builder).build().unwrap(), fake)
}

/// Limits for `max` connections, with short times and without maintenance.
pub(crate) fn limits(max: usize) -> Limits {
    Limits::default()
        .max(max)
        .wait_timeout(LONG)
        .check_after(Duration::MAX)
        .idle_timeout(Duration::MAX)
        .max_age(Duration::MAX)
        .unused_after(Duration::MAX)
        .backoff(Duration::from_millis(1), Duration::from_millis(4))
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_millis(5)
}

pub(crate) fn late() -> Instant {
    Instant::now() + LONG
}

pub(crate) fn status(pool: &TestPool, key: Key) -> BackendStatus<Key> {
    pool.status_of(&key).expect("a backend")
}

/// Waits until `waiting` callers wait.
pub(crate) fn until_waiting(pool: &TestPool, key: Key, waiting: usize) {
    eventually(LONG, || status(pool, key).waiting == waiting);
}

/// Asserts that no connection is in use and that the counts match the connections.
pub(crate) fn assert_at_rest(pool: &TestPool, fake: &Fake, key: Key) {
    eventually(LONG, || {
        let status = status(pool, key);
        (status.in_use, status.connecting, status.waiting) == (0, 0, 0)
            && status.idle == fake.opened()
    });
}
