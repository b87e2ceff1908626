//! A panic costs the connection that it was about: no slot is left behind, nothing is poisoned.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::pool::{Discard, GetError, Observer, Pool, Target, Version};

use crate::support::{
    Fake, TestPool, assert_at_rest, build, late, limits, pool, soon, until_waiting,
};
use lab::{LONG, eventually};

const A: &str = "SPT0";

/// Asserts that the only slot can still be used, and that a waiting caller gets it.
fn assert_serves(pool: &TestPool, fake: &Fake) {
    let conn = pool.get(&A).unwrap();
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).map(drop));
    until_waiting(pool, A, 1);
    drop(conn);
    waiter.join().unwrap().unwrap();
    assert_at_rest(pool, fake, A);
}

#[test]
fn in_the_borrower() {
    let (pool, fake) = pool(limits(1));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _conn = pool.get(&A).unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(fake.closed(), [1], "nobody knows what state it was left in");
    assert_serves(&pool, &fake);
}

#[test]
fn in_connect() {
    let (pool, fake) = pool(limits(1));
    fake.order_panic(&["connect", "connect"]);
    assert_eq!(pool.get(&A).unwrap().number, 1, "tried again");
    assert_eq!(fake.connects.load(SeqCst), 3);
    assert_serves(&pool, &fake);
}

#[test]
fn in_the_question_if_an_error_is_permanent() {
    let (pool, fake) = pool(limits(1));
    fake.set(&fake.dead, true);
    fake.order_panic(&["is_permanent"]);
    let here = pool.clone();
    let caller = thread::spawn(move || here.get(&A).map(drop));
    eventually(LONG, || fake.connects.load(SeqCst) > 1);
    fake.set(&fake.dead, false);
    caller.join().unwrap().unwrap();
    assert_serves(&pool, &fake);
}

#[test]
fn in_connect_on_the_host() {
    let (pool, fake) = pool(limits(1));
    fake.order_panic(&["connect"]);
    let (answer, answers) = mpsc::channel();
    pool.backend(&A)
        .unwrap()
        .get_then(late(), move |got| drop(answer.send(got.map(|conn| conn.number))));
    assert_eq!(answers.recv().unwrap().unwrap(), 1);
    assert_serves(&pool, &fake);
}

#[test]
fn in_each_look_at_a_connection() {
    let (pool, fake) = pool(limits(1).check_after(Duration::ZERO));
    drop(pool.get(&A).unwrap());
    for (made, place) in (2..).zip(["is_valid", "has_broken"]) {
        fake.order_panic(&[place]);
        assert_eq!(pool.get(&A).unwrap().number, made, "{place}");
    }
    fake.order_panic(&["reset"]);
    drop(pool.get(&A).unwrap());
    assert_eq!(fake.closed(), [1, 2, 3]);
    assert_serves(&pool, &fake);
}

#[test]
fn while_a_connection_comes_back_that_was_lost_by_a_panic() {
    let (pool, fake) = pool(limits(1));
    let conn = pool.get(&A).unwrap();
    let (answer, answers) = mpsc::channel();
    pool.backend(&A).unwrap().get_then(late(), move |got| {
        answer.send(got.unwrap().number).unwrap();
        panic!("on purpose, while another panic unwinds");
    });
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _conn = conn;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(answers.recv(), Ok(2));
    assert_serves(&pool, &fake);
}

/// Observer that notes every call, and panics in it.
#[derive(Clone, Default)]
struct Shaky(Arc<Mutex<Vec<&'static str>>>);

impl Shaky {
    fn call(&self, name: &'static str) -> ! {
        self.0.lock().unwrap().push(name);
        panic!("on purpose");
    }
}

impl Observer<&'static str> for Shaky {
    fn connected(&self, _: &Target<'_, &'static str>, _: Duration) {
        self.call("connected")
    }

    fn connect_failed(&self, _: &Target<'_, &'static str>, _: &(dyn Error + Send + Sync)) {
        self.call("connect_failed")
    }

    fn handed_out(&self, _: &Target<'_, &'static str>, _: Duration) {
        self.call("handed_out")
    }

    fn returned(&self, _: &Target<'_, &'static str>) {
        self.call("returned")
    }

    fn discarded(&self, _: &Target<'_, &'static str>, _: Discard) {
        self.call("discarded")
    }

    fn refused(&self, _: &&'static str, _: &GetError) {
        self.call("refused")
    }

    fn failed_over(&self, _: &&'static str, _: Version, _: Version) {
        self.call("failed_over")
    }
}

#[test]
fn in_the_observer() {
    let shaky = Shaky::default();
    let calls = Arc::clone(&shaky.0);
    let (pool, fake) = build(limits(1), |builder| builder.observer(shaky));
    let conn = pool.get(&A).unwrap();
    assert!(pool.backend(&A).unwrap().get_before(soon()).is_err());
    drop(conn);
    pool.fail_over(&A, Version::default()).unwrap();
    fake.order_panic(&["connect"]);
    assert_serves(&pool, &fake);
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls[..4], ["connected", "handed_out", "refused", "returned"]);
    for name in ["discarded", "failed_over", "connect_failed"] {
        assert!(calls.contains(&name), "{name}");
    }
}

/// Connection, or payload of a panic, whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

struct Bombs;

impl epoll_group::pool::Manage for Bombs {
    type Key = u8;
    type Connection = Bomb;
    type Error = &'static str;

    fn connect(&self, _: &Target<'_, u8>, _: Instant) -> Result<Bomb, &'static str> {
        Ok(Bomb)
    }

    fn reset(&self, _: &Target<'_, u8>, _: &mut Bomb) -> Result<(), &'static str> {
        Err("no")
    }
}

#[test]
fn in_the_drop_of_a_connection() {
    let pool = Pool::builder(Bombs).limits(limits(1)).build().unwrap();
    for _ in 0..3 {
        drop(pool.get(&7).unwrap());
    }
    let status = pool.status_of(&7).unwrap();
    assert_eq!((status.in_use, status.idle, status.totals.discarded), (0, 0, 3));
}

/// Manager whose first connect panics.
#[derive(Default)]
struct FirstPanics(AtomicBool);

impl epoll_group::pool::Manage for FirstPanics {
    type Key = u8;
    type Connection = ();
    type Error = &'static str;

    fn connect(&self, _: &Target<'_, u8>, _: Instant) -> Result<(), &'static str> {
        if self.0.swap(true, SeqCst) { Ok(()) } else { panic_any(Bomb) }
    }
}

#[test]
fn with_payloads_whose_drop_panics() {
    let pool = Pool::builder(FirstPanics::default()).limits(limits(1)).build().unwrap();
    let backend = pool.backend(&7).unwrap();
    drop(backend.get().unwrap());
    let (answer, answers) = mpsc::channel();
    for turn in 0..2 {
        let answer = answer.clone();
        backend.get_then(late(), move |got| {
            drop(got.unwrap());
            answer.send(turn).unwrap();
            panic_any(Bomb);
        });
        assert_eq!(answers.try_recv(), Ok(turn), "the connection is idle");
    }
    let status = backend.status();
    assert_eq!((status.in_use, status.connecting, status.idle), (0, 0, 1));
}
