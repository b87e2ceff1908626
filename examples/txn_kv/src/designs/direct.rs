//! Threads that put into a store, without a network.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use txn_kv::StoreError;
use txn_kv::load::{Shape, Until};
use txn_kv::store::Store;

/// Puts in closed loops by so many threads, beginning with the put of number `next`. Returns the number of
/// puts and the time that they took.
///
/// # Errors
///
/// A put failed.
pub(super) fn run(
    store: &Store,
    shape: &Shape,
    threads: usize,
    until: Until,
    next: &AtomicU64,
) -> Result<(u64, Duration), Box<dyn Error>> {
    let begun = Instant::now();
    let end = next.load(Ordering::Relaxed);
    let end = if let Until::Requests(requests) = until { end + requests } else { u64::MAX };
    let is_over = || matches!(until, Until::Time(time) if begun.elapsed() >= time);
    let puts = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| put_until(store, shape, next, end, is_over)))
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let time = begun.elapsed();
    let mut total = 0;
    for puts in puts {
        total += puts.map_err(|_| "a thread has panicked")??;
    }
    Ok((total, time))
}

fn put_until(
    store: &Store,
    shape: &Shape,
    next: &AtomicU64,
    end: u64,
    is_over: impl Fn() -> bool,
) -> Result<u64, StoreError> {
    let (tell, told) = mpsc::channel();
    let mut puts = 0;
    while !is_over() {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            break;
        }
        let tell = tell.clone();
        // The receiver waits for the outcome.
        store.txn(shape.put(number), move |outcome| drop(tell.send(outcome.map(drop))));
        told.recv().unwrap_or(Ok(()))?;
        puts += 1;
    }
    Ok(puts)
}
