//! Many threads, dead and slow backends: all counts are right in the end, and no backend disturbs
//! others.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::pool::{GetError, Pooled};

use crate::support::{Fake, TestPool, assert_at_rest, late, limits, pool, status, until_waiting};
use lab::random::Random;
use lab::{LONG, eventually};

const A: &str = "SPT0";
const B: &str = "SPT1";

fn borrow_at_random(pool: &TestPool, seed: u64, callbacks: &mpsc::Sender<bool>) {
    let mut random = Random(seed);
    for _ in 0..300 {
        let key = if random.below(2) == 0 { A } else { B };
        let deadline = Instant::now() + Duration::from_micros(random.below(2000));
        match random.below(8) {
            0 => {
                let done = callbacks.clone();
                let late = random.below(2) == 0;
                let deadline = if late { self::late() } else { deadline };
                pool.backend(&key).unwrap().get_then(deadline, move |got| {
                    let _ = done.send(got.is_ok());
                });
            }
            1 => drop(pool.backend(&key).unwrap().get_before(deadline)),
            2 => {
                let _ = pool.get(&key).map(Pooled::discard);
            }
            3 => drop(pool.get(&key).map(Pooled::detach)),
            _ => {
                let conn = pool.get(&key).expect("the deadline is far");
                if random.below(16) == 0 {
                    thread::yield_now();
                }
                drop(conn);
            }
        }
    }
}

#[test]
fn everything_is_accounted_for_after_a_storm() {
    let (pool, fake) = pool(limits(3).max_connecting(2));
    let (done, callbacks) = mpsc::channel();
    let all = 16;
    let start = Arc::new(Barrier::new(all + 1));
    let threads: Vec<_> = (0..all as u64)
        .map(|seed| {
            let (pool, start, done) = (pool.clone(), Arc::clone(&start), done.clone());
            thread::spawn(move || {
                start.wait();
                borrow_at_random(&pool, seed, &done);
            })
        })
        .collect();
    start.wait();
    let mut turn = 0;
    while threads.iter().any(|thread| !thread.is_finished()) {
        turn += 1;
        let version = pool.status_of(&A).map(|status| status.version).unwrap_or_default();
        match turn % 4 {
            0 => assert!(pool.fail_over(&A, version).is_ok()),
            1 => pool.set_limits(limits(1 + turn % 5).max_connecting(2)).unwrap(),
            2 => drop(pool.pause(&B, Instant::now() + Duration::from_millis(1))),
            _ => drop(pool.resume(&B)),
        }
        thread::yield_now();
    }
    pool.resume(&B);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(done);
    assert!(callbacks.iter().count() > 0, "every callback was called, or dropped with its sender");
    for key in [A, B] {
        eventually(LONG, || {
            let status = status(&pool, key);
            status.in_use + status.connecting + status.waiting == 0 && status.leaving.is_empty()
        });
    }
    assert!(pool.leaks(Duration::ZERO).is_empty());
    eventually(LONG, || status(&pool, A).idle + status(&pool, B).idle == fake.opened());
    drop(pool);
    eventually(LONG, || fake.opened() == 0);
}

#[test]
fn twenty_thousand_that_wait_for_a_dead_backend_leave_and_disturb_nobody() {
    let (pool, fake) = pool(limits(4).max_connecting(2));
    let other = pool.get(&B).unwrap();
    fake.set(&fake.dead, true);
    drop(other);
    let (done, answers) = mpsc::channel();
    for n in 0..20_000_u64 {
        let done = done.clone();
        let deadline = Instant::now() + Duration::from_millis(n % 50);
        pool.backend(&A).unwrap().get_then(deadline, move |got| drop(done.send(got.map(drop))));
        if n % 100 == 0 {
            assert_eq!(pool.get(&B).unwrap().number, 1, "another backend serves");
        }
    }
    let threads: Vec<_> = (0..64)
        .map(|n| {
            let here = pool.clone();
            let deadline = Instant::now() + Duration::from_millis(n);
            thread::spawn(move || here.backend(&A).unwrap().get_before(deadline).map(drop))
        })
        .collect();
    for _ in 0..20_000 {
        let answer = answers.recv_timeout(LONG).unwrap();
        assert!(matches!(answer, Err(GetError::Timeout { .. })), "{answer:?}");
    }
    for thread in threads {
        assert!(matches!(thread.join().unwrap(), Err(GetError::Timeout { .. })));
    }
    assert_eq!(status(&pool, A).waiting, 0);
    assert_eq!(status(&pool, A).totals.timed_out, 20_064);
    assert!(fake.most_connecting.load(SeqCst) <= 2, "no more connects than allowed");
    fake.set(&fake.dead, false);
    assert!(pool.backend(&A).unwrap().get_before(late()).is_ok(), "and it comes back by itself");
}

#[test]
fn slow_connects_block_nobody_else() {
    let (pool, fake) = pool(limits(4).max_connecting(2));
    let one = pool.get(&A).unwrap();
    let other = pool.get(&B).unwrap();
    fake.gate.close();
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let here = pool.clone();
            thread::spawn(move || here.get(&A).unwrap().number)
        })
        .collect();
    until_waiting(&pool, A, 5);
    eventually(LONG, || fake.connecting.load(SeqCst) == 2);
    drop(other);
    for _ in 0..100 {
        assert_eq!(pool.get(&B).unwrap().number, 2, "another backend serves");
    }
    // The returned connection serves all waiting callers while the connects hang.
    drop(one);
    for caller in callers {
        assert_eq!(caller.join().unwrap(), 1);
    }
    assert_eq!(fake.connecting.load(SeqCst), 2);
    fake.gate.open();
    assert_at_rest_of_both(&pool, &fake);
}

fn assert_at_rest_of_both(pool: &TestPool, fake: &Fake) {
    eventually(LONG, || {
        let (a, b) = (status(pool, A), status(pool, B));
        a.connecting + b.connecting == 0 && a.idle + b.idle == fake.opened()
    });
}

#[test]
fn many_threads_and_few_connections() {
    let (pool, fake) = pool(limits(3));
    let threads: Vec<_> = (0..64)
        .map(|_| {
            let here = pool.clone();
            thread::spawn(move || {
                for _ in 0..100 {
                    let mut conn = here.get(&A).unwrap();
                    assert!(!conn.dirty, "one at a time");
                    conn.dirty = true;
                    thread::yield_now();
                    conn.dirty = false;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(status(&pool, A).totals.handed_out, 6400);
    assert!(fake.most_open.load(SeqCst) <= 3, "never more than allowed");
    assert_at_rest(&pool, &fake, A);
}
