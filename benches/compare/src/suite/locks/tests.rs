use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use super::*;
use crate::test_servers::{any, epoll_group};
use crate::thread_per_connection;

const PATIENCE: Duration = Duration::from_secs(10);
const SHAPE: Shape = Shape { connections: 65, locks: 2, patience: PATIENCE };

#[test]
fn every_transaction_ends_and_every_waiter_has_the_lock() {
    let (_runtime, ours) = epoll_group(4);
    let threads = thread_per_connection::start(any()).unwrap();
    for address in [ours, threads] {
        let mut load = Load::connect(address, &SHAPE).unwrap();
        let report = load.run_for(Duration::from_millis(20)).unwrap();
        assert!(report.requests >= 65);
        assert_eq!(load.answers_total(), 2 * report.requests);
        assert!(load.release(|| ()).unwrap().is_some());
        let again = load.run_for(Duration::from_millis(20)).unwrap();
        assert!(again.requests >= 65);
        assert!(load.answers_total() >= 2 * (report.requests + again.requests + 65));
    }
}

#[test]
fn a_server_that_takes_no_locks_is_found_out() {
    let listener = TcpListener::bind(any()).unwrap();
    let address = listener.local_addr().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answered);
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                let mut frame = [0; 64];
                while socket.read_exact(&mut frame).is_ok() && socket.write_all(&frame).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let mut load = Load::connect(address, &Shape { connections: 2, ..SHAPE }).unwrap();
    // An answer that is on its way for long is not seen: then once more.
    let found_out = (1..100).any(|turn| {
        // Both try a whole transaction first; then the first takes the lock, the second asks for it.
        let end = Instant::now() + PATIENCE;
        let wait = || {
            while answered.load(Ordering::Relaxed) < 8 * (turn - 1) + 6 && Instant::now() < end {
                thread::yield_now();
            }
        };
        load.release(wait).is_err()
    });
    assert!(found_out);
}
