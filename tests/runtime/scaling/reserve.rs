//! All threads wait for a lock, and no more may be started. The lock holder still gets a thread,
//! and so do an operator and a login.

use std::time::Duration;

use epoll_group::Config;
use epoll_group::stats::{Counter, Snapshot};
use lab::rows::{COMMIT, LOCK, PING, Rows, Served, TOUCH};
use lab::threads::{Observer, falls_back};
use lab::{LONG, Peer, eventually, often};

const BASE: usize = 4;
const MOST: usize = 12;
const WAITERS: usize = 20;

fn config() -> Config {
    lab::config().epoll_threads_per_group(BASE).max_threads(MOST).enable_tasker(false)
}

/// Sends a touch on each connection. Then waits until every thread that may run ordinary work waits
/// and no more are starting: a starting thread would take a login before the work it was started
/// for.
#[track_caller]
fn all_wait(served: &Served, waiters: &mut [Peer]) {
    let limited = |stats: &Snapshot| stats.get(Counter::ThreadsLimited);
    let before = limited(&served.runtime.stats());
    touch_all(waiters);
    eventually(LONG, || {
        let (stats, waiting) = (served.runtime.stats(), served.rows.waiting() as u64);
        let ordinary = stats.base_threads + stats.dynamic_threads;
        waiting >= ordinary && limited(&stats) > before
    });
}

/// Waits until a login holds the reserve thread that is kept for logins.
#[track_caller]
fn a_login_waits(served: &Served) {
    eventually(LONG, || {
        let stats = served.runtime.stats();
        served.rows.waiting() as u64 > stats.base_threads + stats.dynamic_threads
    });
}

fn touch_all(waiters: &mut [Peer]) {
    waiters.iter_mut().for_each(|peer| peer.send(&[TOUCH, 0]));
}

fn answered(waiters: &mut [Peer]) {
    waiters.iter_mut().for_each(|peer| assert_eq!(peer.receive(2), [TOUCH, 0]));
}

fn the_holder_runs_while_all_others_wait(name: &str, config: Config, announced: bool, rounds: u32) {
    let served = Served::start(name, config, &Rows::new(1, announced));
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| served.ordinary()).collect();
    let (mut holder, mut admin) = (served.ordinary(), served.admin());
    let observer = Observer::watch(&served.runtime.handle());
    for round in 0..rounds {
        holder.echo(&[LOCK, 0]);
        // In every other round the touches are still arriving when the rest happens.
        if round % 2 == 0 {
            all_wait(&served, &mut waiters);
        } else {
            touch_all(&mut waiters);
        }
        served.login().echo(&[PING, 0]);
        admin.echo(&[PING, 0]);
        holder.echo(&[COMMIT, 0]);
        answered(&mut waiters);
    }
    let (most, stats) = (observer.end(), served.runtime.stats());
    assert!(most <= MOST as u64, "{most} threads:\n{stats}");
    assert!(stats.get(Counter::ThreadsLimited) > 0, "{stats}");
    assert_eq!(stats.get(Counter::Panics), 0, "{stats}");
}

#[test]
fn the_holder_of_a_lock_runs_while_more_than_all_threads_wait_for_it() {
    the_holder_runs_while_all_others_wait("sr-a", config(), true, often(1000));
}

#[test]
fn the_holder_of_a_lock_runs_while_threads_wait_and_do_not_say_so() {
    let config = config().thread_deadlock_check_interval(Duration::from_millis(5));
    the_holder_runs_while_all_others_wait("sr-u", config, false, often(50));
}

#[test]
fn logins_that_wait_do_not_stop_the_holder_of_a_lock() {
    let served = Served::start("sr-l", config(), &Rows::new(1, true));
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| served.ordinary()).collect();
    let (mut holder, mut admin) = (served.ordinary(), served.admin());
    for logins in [1, 2, 100, 1, 100] {
        holder.echo(&[LOCK, 0]);
        all_wait(&served, &mut waiters);
        let mut logins: Vec<_> = (0..logins).map(|_| served.login()).collect();
        touch_all(&mut logins);
        a_login_waits(&served);
        admin.echo(&[PING, 0]);
        holder.echo(&[COMMIT, 0]);
        answered(&mut waiters);
        answered(&mut logins);
    }
}

#[test]
fn a_flood_of_logins_alone_does_not_stop_the_holder_of_a_lock() {
    let served = Served::start("sr-f", config(), &Rows::new(1, true));
    let mut holder = served.ordinary();
    for _ in 0..often(10) {
        holder.echo(&[LOCK, 0]);
        let mut logins: Vec<_> = (0..100).map(|_| served.login()).collect();
        all_wait(&served, &mut logins);
        holder.echo(&[COMMIT, 0]);
        answered(&mut logins);
    }
    let stats = served.runtime.stats();
    // Some statements run in place, before the protocol is known as slow. The others are queued.
    assert!(stats.get(Counter::UrgentTasks) >= 50 * u64::from(often(10)), "{stats}");
}

#[test]
fn the_reserve_keeps_its_place_while_its_threads_come_and_go() {
    let config = config().dynamic_threads_shrink_time(Duration::from_millis(10));
    let served = Served::start("sr-p", config, &Rows::new(1, true));
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| served.ordinary()).collect();
    let mut holder = served.ordinary();
    for _ in 0..often(20).max(3) {
        holder.echo(&[LOCK, 0]);
        all_wait(&served, &mut waiters);
        let mut login = served.login();
        login.send(&[TOUCH, 0]);
        a_login_waits(&served);
        holder.echo(&[COMMIT, 0]);
        answered(&mut waiters);
        assert_eq!(login.receive(2), [TOUCH, 0]);
        falls_back(&served.runtime.handle(), "sr-p", BASE + 1);
    }
    let stats = served.runtime.stats();
    assert!(stats.get(Counter::ThreadsStartedReserve) > 0, "the reserve has grown:\n{stats}");
}
