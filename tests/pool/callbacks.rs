//! Connections for callbacks: no thread waits, each callback is called, and calls do not nest.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use epoll_group::pool::{Cause, GetError};

use crate::support::{
    Got, TestPool, assert_at_rest, build, late, limits, pool, soon, status, until_waiting,
};
use lab::{LONG, assert_clean, eventually};

const A: &str = "SPT0";

/// Asks for a connection, and sends the result to `answer`.
fn ask(pool: &TestPool, answer: &Sender<Got>) {
    let answer = answer.clone();
    pool.backend(&A).unwrap().get_then(late(), move |got| drop(answer.send(got)));
}

fn next(answers: &Receiver<Got>) -> Got {
    answers.recv_timeout(LONG).expect("an answer")
}

#[test]
fn an_idle_connection_is_there_before_the_call_returns() {
    let (pool, _) = pool(limits(1));
    drop(pool.get(&A).unwrap());
    let here = thread::current().id();
    let (answer, answers) = mpsc::channel();
    pool.backend(&A).unwrap().get_then(late(), move |got| {
        answer.send((thread::current().id(), got.unwrap().number)).unwrap();
    });
    assert_eq!(answers.try_recv(), Ok((here, 1)));
}

#[test]
fn without_one_the_host_connects() {
    let (pool, fake) = pool(limits(1));
    let (answer, answers) = mpsc::channel();
    ask(&pool, &answer);
    assert_eq!(next(&answers).unwrap().number, 1);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn threads_and_callbacks_wait_in_one_line() {
    let (pool, fake) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let order = Arc::<Mutex<Vec<usize>>>::default();
    let mut threads = Vec::new();
    for n in 0..6 {
        let (here, order) = (pool.clone(), Arc::clone(&order));
        if n % 2 == 0 {
            threads.push(thread::spawn(move || {
                let _conn = here.get(&A).unwrap();
                order.lock().unwrap().push(n);
            }));
        } else {
            pool.backend(&A).unwrap().get_then(late(), move |got| {
                let _conn = got.unwrap();
                order.lock().unwrap().push(n);
            });
        }
        until_waiting(&pool, A, n + 1);
    }
    drop(held);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    eventually(LONG, || order.lock().unwrap().len() == 6);
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_deadline_is_kept_without_a_thread() {
    let (pool, _) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let (answer, answers) = mpsc::channel();
    pool.backend(&A).unwrap().get_then(soon(), move |got| drop(answer.send(got)));
    let error = next(&answers).unwrap_err();
    let GetError::Timeout { cause: Cause::AllBusy { in_use: 1, max: 1 }, .. } = error else {
        panic!("{error}");
    };
    drop(held);
}

#[test]
fn a_long_line_of_callbacks_takes_no_stack() {
    let (pool, fake) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let (answer, answers) = mpsc::channel();
    for n in 0..50_000 {
        let answer = answer.clone();
        pool.backend(&A).unwrap().get_then(late(), move |got| {
            drop(got.unwrap());
            answer.send(n).unwrap();
        });
    }
    drop(held);
    assert!(answers.try_iter().eq(0..50_000), "all at once, in order");
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_callback_may_ask_again() {
    fn again(pool: TestPool, left: usize, done: Sender<()>) {
        let here = pool.clone();
        pool.backend(&A).unwrap().get_then(late(), move |got| {
            drop(got.unwrap());
            if left > 0 { again(here, left - 1, done) } else { done.send(()).unwrap() }
        });
    }

    let (pool, fake) = pool(limits(1));
    let (done, ended) = mpsc::channel();
    again(pool.clone(), 50_000, done);
    ended.recv_timeout(LONG).unwrap();
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_connection_that_was_idle_for_long_is_looked_at_by_the_host() {
    let (pool, fake) = pool(limits(1).check_after(Duration::ZERO));
    drop(pool.get(&A).unwrap());
    fake.set(&fake.invalid, true);
    let (answer, answers) = mpsc::channel();
    ask(&pool, &answer);
    let conn = next(&answers).unwrap();
    assert_eq!((conn.number, fake.closed()), (2, vec![1]));
    drop(conn);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_caller_of_an_unfit_connection_goes_before_later_callers() {
    let (pool, fake) = pool(limits(2).max_connecting(1).backoff(LONG, LONG));
    let held = pool.get(&A).unwrap();
    drop(pool.get(&"other").unwrap());
    // After a failure no connect begins until the backend is resumed.
    fake.set(&fake.dead, true);
    assert!(pool.backend(&A).unwrap().get_before(soon()).is_err());
    eventually(LONG, || status(&pool, A).failures == 1);
    fake.set(&fake.dead, false);
    drop(held);

    let (answer, answers) = mpsc::channel();
    let (here, faults) = (pool.clone(), Arc::clone(&fake));
    pool.backend(&"other").unwrap().get_then(late(), move |got| {
        drop(got.unwrap());
        for n in [1, 2] {
            // Only the first of them finds an idle connection.
            faults.set(&faults.broken, n == 1);
            let answer = answer.clone();
            let then = move |got: Got| answer.send((n, got.unwrap())).unwrap();
            here.backend(&A).unwrap().get_then(late(), then);
        }
    });
    assert_eq!((fake.closed(), status(&pool, A).waiting), (vec![1], 2));
    assert!(pool.resume(&A));
    let mut got = [(); 2].map(|()| answers.recv_timeout(LONG).unwrap());
    got.sort_by_key(|(_, conn)| conn.number);
    assert_eq!(got.each_ref().map(|(n, _)| *n), [1, 2], "the first connection is for the first");
    drop(got);
    assert!(pool.retire(&"other"));
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_panic_in_a_callback_costs_its_connection_and_nothing_else() {
    let (pool, fake) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let (answer, answers) = mpsc::channel();
    pool.backend(&A).unwrap().get_then(late(), |got| {
        let _conn = got.unwrap();
        panic!("on purpose");
    });
    ask(&pool, &answer);
    drop(held);
    assert_eq!(next(&answers).unwrap().number, 2);
    assert_eq!(fake.closed()[0], 1);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_closed_pool_answers_all() {
    let (pool, fake) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let (answer, answers) = mpsc::channel();
    for _ in 0..3 {
        ask(&pool, &answer);
    }
    drop(pool);
    for _ in 0..3 {
        assert!(matches!(next(&answers), Err(GetError::Closed)));
    }
    drop(held);
    assert_eq!(fake.opened(), 0, "closed as it came back");
}

#[cfg(all(feature = "server", target_os = "linux"))]
#[test]
fn a_runtime_maintains_pools() {
    let runtime = epoll_group::Runtime::builder().start().unwrap();
    let handle = runtime.handle();
    let (pool, fake) = build(limits(2).min_idle(1), |builder| builder.maintained_by(handle));
    let (answer, answers) = mpsc::channel();
    ask(&pool, &answer);
    let first = next(&answers).unwrap();
    ask(&pool, &answer);
    let second = next(&answers).unwrap();
    pool.backend(&A).unwrap().get_then(soon(), move |got| drop(answer.send(got)));
    assert!(matches!(next(&answers), Err(GetError::Timeout { .. })));
    drop((first, second));
    assert_at_rest(&pool, &fake, A);
    // Without the runtime, maintenance that is due is given up.
    assert_clean(&runtime.drain(LONG));
    let conn = pool.get(&A).unwrap();
    epoll_group::pool::Pooled::discard(conn);
    drop(pool);
    eventually(LONG, || fake.opened() == 0);
}
