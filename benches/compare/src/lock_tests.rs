//! Locks that are held between two requests, over real sockets.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::test_client::{Client, LOCK, PATIENCE, UNLOCK, with_number};
use super::test_servers::{any, epoll_group};
use super::thread_per_connection;

const WAITERS: usize = 64;
const THREADS: usize = 4;

/// Clients take the same lock again and again: each finds nobody inside.
fn excludes(address: SocketAddr, lock: u32) {
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                for _ in 0..50 {
                    client.call(&with_number(LOCK, lock));
                    assert!(!inside.swap(true, Ordering::SeqCst));
                    inside.store(false, Ordering::SeqCst);
                    client.call(&with_number(UNLOCK, lock));
                }
            });
        }
    });
}

/// Many wait for what the last request does; all get their turn.
fn all_waiters_get_it(address: SocketAddr, lock: u32, all_wait: impl FnOnce()) {
    let mut holder = Client::connect(address);
    holder.call(&with_number(LOCK, lock));
    let mut waiters: Vec<Client> = (0..WAITERS).map(|_| Client::connect(address)).collect();
    for waiter in &mut waiters {
        waiter.ask(&with_number(LOCK, lock));
    }
    all_wait();
    holder.call(&with_number(UNLOCK, lock));
    thread::scope(|scope| {
        for mut waiter in waiters {
            scope.spawn(move || {
                waiter.expect(&with_number(LOCK, lock));
                waiter.call(&with_number(UNLOCK, lock));
            });
        }
    });
}

#[test]
fn a_lock_has_one_holder_at_a_time() {
    let (_runtime, address) = epoll_group(THREADS);
    excludes(address, 7);
    let address = thread_per_connection::start(any()).unwrap();
    excludes(address, 7);
}

#[test]
fn waiters_on_threads_of_their_own_all_get_the_lock() {
    let address = thread_per_connection::start(any()).unwrap();
    all_waiters_get_it(address, 8, || ());
}

#[test]
fn more_waiters_than_threads_all_get_the_lock() {
    let (runtime, address) = epoll_group(THREADS);
    let handle = runtime.handle();
    all_waiters_get_it(address, 8, || {
        let end = Instant::now() + PATIENCE;
        while handle.stats().stalled_threads < WAITERS as u64 {
            assert!(Instant::now() < end, "{}", handle.stats());
            thread::yield_now();
        }
    });
}

#[test]
fn the_end_of_a_connection_gives_its_locks_back() {
    let (_runtime, address) = epoll_group(THREADS);
    let mut holder = Client::connect(address);
    holder.call(&with_number(LOCK, 1));
    holder.call(&with_number(LOCK, 2));
    let mut waiter = Client::connect(address);
    waiter.ask(&with_number(LOCK, 1));
    drop(holder);
    waiter.expect(&with_number(LOCK, 1));
    waiter.call(&with_number(LOCK, 2));
}
