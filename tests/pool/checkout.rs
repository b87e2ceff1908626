//! Checkout and checkin: order, hand-off, limits, and the errors if there is no connection.

use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::pool::{Cause, GetError, Manage, Pool, Pooled, Target};

use crate::support::{
    Key, TestPooled, assert_at_rest, late, limits, pool, soon, status, until_waiting,
};
use lab::{LONG, eventually};

const A: &str = "SPT0";

#[test]
fn the_last_one_used_is_handed_out_first() {
    let (pool, fake) = pool(limits(3));
    let [one, two, three] = [(); 3].map(|()| pool.get(&A).unwrap());
    assert_eq!((one.number, two.number, three.number), (1, 2, 3));
    drop(two);
    drop(three);
    drop(one);
    assert_eq!(pool.get(&A).unwrap().number, 1);
    let [one, three] = [(); 2].map(|()| pool.get(&A).unwrap());
    assert_eq!((one.number, three.number), (1, 3));
    assert_eq!(fake.made.load(SeqCst), 3);
}

#[test]
fn who_waits_is_served_in_order_and_nobody_overtakes() {
    let (pool, fake) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let (served, order) = mpsc::channel();
    let waiters: Vec<_> = (0..8)
        .map(|n| {
            let (here, served) = (pool.clone(), served.clone());
            let waiter = thread::spawn(move || {
                let conn = here.get(&A).unwrap();
                served.send(n).unwrap();
                drop(conn);
            });
            until_waiting(&pool, A, n + 1);
            waiter
        })
        .collect();
    assert!(pool.backend(&A).unwrap().try_get().is_none());
    drop(held);
    for n in 0..8 {
        assert_eq!(order.recv_timeout(LONG), Ok(n));
    }
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert_eq!(fake.made.load(SeqCst), 1);
    assert_eq!(status(&pool, A).totals.waited, 8);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn at_the_maximum_only_the_deadline_ends_a_wait_and_says_why() {
    let (pool, fake) = pool(limits(2));
    let held = [pool.get(&A).unwrap(), pool.get(&A).unwrap()];
    let error = pool.backend(&A).unwrap().get_before(soon()).unwrap_err();
    let GetError::Timeout { cause, waited } = &error else { panic!("{error}") };
    assert!(matches!(cause, Cause::AllBusy { in_use: 2, max: 2 }), "{error}");
    assert!(*waited >= Duration::from_millis(4));
    assert!(error.to_string().ends_with("2 of 2 connections are in use"), "{error}");
    drop(held);
    assert_at_rest(&pool, &fake, A);
    assert_eq!(status(&pool, A).totals.timed_out, 1);
}

/// Manager whose connections are the deadlines that `connect` got.
struct Told;

impl Manage for Told {
    type Key = Key;
    type Connection = Instant;
    type Error = Infallible;

    fn connect(&self, _: &Target<'_, Key>, deadline: Instant) -> Result<Instant, Infallible> {
        Ok(deadline)
    }
}

#[test]
fn a_connect_is_told_how_long_it_may_take() {
    let time = Duration::from_secs(7);
    let pool = Pool::builder(Told).limits(limits(1).connect_timeout(time)).build().unwrap();
    let before = Instant::now();
    let told = *pool.get(&A).unwrap();
    assert!((before + time..=Instant::now() + time).contains(&told));
}

#[test]
fn a_connection_that_breaks_lets_who_waits_connect() {
    let (pool, fake) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).unwrap().number);
    until_waiting(&pool, A, 1);
    Pooled::discard(held);
    assert_eq!(waiter.join().unwrap(), 2);
    assert_eq!(fake.closed(), [1]);

    let held = pool.get(&A).unwrap();
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).unwrap().number);
    until_waiting(&pool, A, 1);
    let mine = Pooled::detach(held);
    assert_eq!(waiter.join().unwrap(), 3);
    drop(mine);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn what_is_broken_invalid_or_not_reset_is_not_handed_out_again() {
    let (pool, fake) = pool(limits(1).check_after(Duration::ZERO));
    let conn = pool.get(&A).unwrap();
    fake.set(&fake.reset_fails, true);
    drop(conn);
    fake.set(&fake.reset_fails, false);
    let conn = pool.get(&A).unwrap();
    assert_eq!(conn.number, 2);
    fake.set(&fake.broken, true);
    drop(conn);
    fake.set(&fake.broken, false);
    assert_eq!(pool.get(&A).unwrap().number, 3);
    fake.set(&fake.broken, true);
    assert_eq!(pool.get(&A).unwrap().number, 4, "looked at before it is handed out");
    fake.set(&fake.broken, false);
    drop(pool.get(&A).unwrap());
    fake.set(&fake.invalid, true);
    let conn = pool.get(&A).unwrap();
    assert_eq!(conn.number, 6, "asked after it was idle");
    assert_eq!(fake.closed(), [1, 2, 3, 4, 5]);
    drop(conn);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn what_a_user_left_behind_is_reset() {
    let (pool, _) = pool(limits(1));
    let mut conn = pool.get(&A).unwrap();
    conn.dirty = true;
    drop(conn);
    assert!(!pool.get(&A).unwrap().dirty);
}

#[test]
fn a_failing_connect_is_tried_again_until_the_deadline() {
    let (pool, fake) = pool(limits(4));
    fake.set(&fake.dead, true);
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).unwrap().number);
    eventually(LONG, || fake.connects.load(SeqCst) > 3);
    let error = pool.backend(&A).unwrap().get_before(soon()).unwrap_err();
    let GetError::Timeout { cause: Cause::ConnectFails { .. }, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("connection refused"));
    assert!(!waiter.is_finished());
    fake.set(&fake.dead, false);
    assert_eq!(waiter.join().unwrap(), 1);
    assert_eq!(status(&pool, A).failures, 0);
}

#[test]
fn a_permanent_error_reaches_all_callers_until_the_pause_after_it_ends() {
    let (pool, fake) = pool(limits(4).max_connecting(1).backoff(LONG, LONG));
    let assert_told = |got: Result<TestPooled, GetError>| {
        let error = got.expect_err("no connection can be made");
        assert!(matches!(error, GetError::ConnectFailed { .. }), "{error}");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("connection refused"));
    };
    fake.set(&fake.dead, true);
    fake.set(&fake.permanent, true);
    fake.gate.close();
    let callers = [1, 2, 3].map(|n| {
        let here = pool.clone();
        let caller = thread::spawn(move || here.get(&A));
        fake.gate.wait_for(1);
        until_waiting(&pool, A, n - 1);
        caller
    });
    let (answer, answers) = mpsc::channel();
    let ask = || {
        let answer = answer.clone();
        pool.backend(&A).unwrap().get_then(late(), move |got| drop(answer.send(got)));
    };
    ask();
    fake.gate.open();
    callers.into_iter().for_each(|caller| assert_told(caller.join().unwrap()));
    assert_told(answers.recv_timeout(LONG).unwrap());
    // The pause is not over.
    fake.set(&fake.dead, false);
    assert_told(pool.get(&A));
    ask();
    assert_told(answers.try_recv().expect("called before the call returns"));
    assert_eq!((fake.connects.load(SeqCst), status(&pool, A).failures), (1, 1));
    assert!(pool.resume(&A), "it also ends the pause");
    drop(pool.get(&A).unwrap());
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_caller_whose_connect_fails_goes_before_later_callers() {
    let (pool, fake) = pool(limits(1).backoff(LONG, LONG));
    fake.set(&fake.dead, true);
    fake.gate.close();
    let (tell, order) = mpsc::channel();
    let ask = |n| {
        let (here, tell) = (pool.clone(), tell.clone());
        thread::spawn(move || {
            let _conn = here.get(&A).unwrap();
            tell.send(n).unwrap();
        })
    };
    let first = ask(1);
    fake.gate.wait_for(1);
    let second = ask(2);
    until_waiting(&pool, A, 1);
    fake.gate.open();
    until_waiting(&pool, A, 2);
    fake.set(&fake.dead, false);
    assert!(pool.resume(&A), "it also ends the pause after the failure");
    assert_eq!([order.recv_timeout(LONG), order.recv_timeout(LONG)], [Ok(1), Ok(2)]);
    first.join().unwrap();
    second.join().unwrap();
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_resolved_backend_is_the_same_backend() {
    let (pool, _) = pool(limits(2));
    let backend = pool.backend(&A).unwrap();
    let conn = backend.get().unwrap();
    drop(conn);
    assert_eq!(pool.backend(&A).unwrap().get_before(late()).unwrap().number, 1);
    assert_eq!(backend.try_get().map(|conn| conn.number), Some(1));
    assert!(pool.backend(&"other").unwrap().try_get().is_none());
}

#[test]
fn so_many_may_wait() {
    let (pool, _) = pool(limits(1).max_waiting(1));
    let held = pool.get(&A).unwrap();
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).map(drop));
    until_waiting(&pool, A, 1);
    let error = pool.get(&A).unwrap_err();
    assert!(matches!(error, GetError::TooManyWaiting { max: 1 }), "{error}");
    drop(held);
    waiter.join().unwrap().unwrap();
}

/// Connects to the address that is the key.
pub(crate) struct Tcp;

impl Manage for Tcp {
    type Key = SocketAddr;
    type Connection = TcpStream;
    type Error = io::Error;

    fn connect(&self, target: &Target<'_, SocketAddr>, deadline: Instant) -> io::Result<TcpStream> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        TcpStream::connect_timeout(target.key, timeout)
    }
}

#[test]
fn addresses_of_ipv6_are_backends_of_their_own() {
    if !lab::has_ipv6() {
        return;
    }
    let listen = || TcpListener::bind("[::1]:0").expect("a port");
    let backends = [listen(), listen()];
    let pool = Pool::builder(Tcp).limits(limits(1)).build().expect("good limits");
    let keys = backends.each_ref().map(|backend| backend.local_addr().expect("TCP"));
    for _ in 0..2 {
        // Each backend has its only connection in use while the other one hands out its own.
        let conns = keys.each_ref().map(|key| pool.get(key).expect("a connection"));
        for (conn, key) in conns.iter().zip(&keys) {
            assert_eq!(&conn.peer_addr().expect("connected"), key);
        }
    }
    for key in &keys {
        let status = pool.status_of(key).expect("a backend");
        assert_eq!((status.idle, status.in_use, status.totals.connects), (1, 0, 1), "{key}");
    }
}

#[test]
fn a_caller_whose_deadline_passes_in_a_check_does_not_begin_the_next_one() {
    let (pool, fake) = pool(limits(6).check_after(Duration::ZERO));
    let held = [(); 6].map(|()| pool.get(&A).unwrap());
    drop(held);
    fake.set(&fake.invalid, true);
    let deadline = soon();
    *fake.checked_at.lock().unwrap() = Some(deadline);
    let before = fake.checks.load(SeqCst);
    assert_had_no_time(pool.backend(&A).unwrap().get_before(deadline));
    assert_eq!(fake.checks.load(SeqCst) - before, 1);
    let deadline = soon();
    *fake.checked_at.lock().unwrap() = Some(deadline);
    let (answer, answers) = mpsc::channel();
    pool.backend(&A).unwrap().get_then(deadline, move |got| drop(answer.send(got)));
    assert_had_no_time(answers.recv_timeout(LONG).expect("an answer"));
    assert_eq!(fake.checks.load(SeqCst) - before, 2);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_caller_that_asks_after_its_deadline_is_not_told_that_all_are_busy() {
    let (pool, fake) = pool(limits(2));
    let held = pool.get(&A).unwrap();
    assert_had_no_time(pool.backend(&A).unwrap().get_before(Instant::now()));
    let (answer, answers) = mpsc::channel();
    pool.backend(&A).unwrap().get_then(Instant::now(), move |got| drop(answer.send(got)));
    assert_had_no_time(answers.try_recv().expect("called before the call returns"));
    drop(held);
    assert_at_rest(&pool, &fake, A);
}

fn assert_had_no_time<C>(got: Result<C, GetError>) {
    let Err(error) = got else { panic!("a connection") };
    assert!(matches!(error, GetError::Timeout { cause: Cause::NoTime, .. }), "{error}");
}

#[test]
fn a_late_caller_gets_an_idle_connection_although_the_hottest_one_is_unfit() {
    let (pool, fake) = pool(limits(3));
    let held = [(); 3].map(|()| pool.get(&A).unwrap());
    drop(held);
    let deadline = Instant::now();
    fake.order_panic(&["has_broken"]);
    drop(pool.backend(&A).unwrap().get_before(deadline).expect("two more are idle"));
    fake.order_panic(&["has_broken"]);
    let (answer, answers) = mpsc::channel();
    pool.backend(&A).unwrap().get_then(deadline, move |got| drop(answer.send(got)));
    drop(answers.recv_timeout(LONG).unwrap().expect("one more is idle"));
    assert_eq!(fake.closed().len(), 2);
    assert_at_rest(&pool, &fake, A);
}

#[cfg(all(feature = "server", target_os = "linux"))]
#[test]
fn a_check_is_an_announced_wait() {
    use epoll_group::stats::Counter;

    let runtime = epoll_group::Runtime::builder().start().unwrap();
    let (pool, fake) = pool(limits(1).check_after(Duration::ZERO));
    drop(pool.get(&A).unwrap());
    let (answer, answers) = mpsc::channel();
    runtime.handle().spawn(move || answer.send(pool.get(&A).map(drop)).unwrap()).unwrap();
    answers.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(fake.checks.load(SeqCst), 1);
    let stats = runtime.stats();
    assert_eq!(stats.get(Counter::Stalls) + stats.get(Counter::StallsUncounted), 1);
}
