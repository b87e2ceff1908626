//! Locks that are held between two requests, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::test_servers::{any, epoll_group};
use super::thread_per_connection;

const LOCK: u8 = 0x7c;
const UNLOCK: u8 = 0x7b;
const PATIENCE: Duration = Duration::from_secs(30);
const WAITERS: usize = 64;
const THREADS: usize = 4;

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn ask(&mut self, kind: u8, lock: u32) {
        self.0.write_all(&frame(kind, lock)).unwrap();
    }

    fn expect(&mut self, kind: u8, lock: u32) {
        let mut answer = [0; 17];
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, frame(kind, lock));
    }

    fn call(&mut self, kind: u8, lock: u32) {
        self.ask(kind, lock);
        self.expect(kind, lock);
    }
}

fn frame(kind: u8, lock: u32) -> [u8; 17] {
    let mut frame = [0; 17];
    frame[8] = 5;
    frame[12] = kind;
    frame[13..].copy_from_slice(&lock.to_le_bytes());
    frame
}

/// Clients take the same lock again and again: each finds nobody inside.
fn excludes(address: SocketAddr, lock: u32) {
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                for _ in 0..50 {
                    client.call(LOCK, lock);
                    assert!(!inside.swap(true, Ordering::SeqCst));
                    inside.store(false, Ordering::SeqCst);
                    client.call(UNLOCK, lock);
                }
            });
        }
    });
}

/// Many wait for what the last request does; all get their turn.
fn all_waiters_get_it(address: SocketAddr, lock: u32, all_wait: impl FnOnce()) {
    let mut holder = Client::connect(address);
    holder.call(LOCK, lock);
    let mut waiters: Vec<Client> = (0..WAITERS).map(|_| Client::connect(address)).collect();
    for waiter in &mut waiters {
        waiter.ask(LOCK, lock);
    }
    all_wait();
    holder.call(UNLOCK, lock);
    thread::scope(|scope| {
        for mut waiter in waiters {
            scope.spawn(move || {
                waiter.expect(LOCK, lock);
                waiter.call(UNLOCK, lock);
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
    holder.call(LOCK, 1);
    holder.call(LOCK, 2);
    let mut waiter = Client::connect(address);
    waiter.ask(LOCK, 1);
    drop(holder);
    waiter.expect(LOCK, 1);
    waiter.call(LOCK, 2);
}
