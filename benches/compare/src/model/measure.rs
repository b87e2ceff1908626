//! Costs that no server shows by itself, measured here in well under a second.
//!
//! Each is the smallest of some batches: what else runs on the machine only adds.

use std::error::Error;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Instant;

use epoll_group::internal::Queue;

use crate::{cpu, epoll};

/// Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Micro {
    /// An `epoll_wait` that finds nothing.
    pub(crate) poll: f64,
    /// What each event adds to one.
    pub(crate) event: f64,
    /// One push and one pop by two threads at the same time, through the task queue.
    pub(crate) hand_over: f64,
    /// CPU time of one wake-up through a condition variable, both sides together.
    pub(crate) wake_up: f64,
}

const BATCHES: usize = 20;
const CALLS: u32 = 500;
const EVENTS: usize = 16;
const HANDED_OVER: u64 = 20_000;
const WAKE_UPS: u32 = 200;

pub(crate) fn micro() -> Result<Micro, Box<dyn Error>> {
    let idle = epoll::Epoll::new()?;
    let poll = smallest(|| wait(&idle, 0))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let busy = epoll::Epoll::new()?;
    let mut streams = Vec::new();
    for _ in 0..EVENTS {
        let mut from = TcpStream::connect(listener.local_addr()?)?;
        let (to, _) = listener.accept()?;
        // Level-triggered and never read: it is found each time.
        busy.add(&to, libc::EPOLLIN)?;
        from.write_all(&[1])?;
        streams.push((from, to));
    }
    let full = smallest(|| wait(&busy, EVENTS))?;
    Ok(Micro {
        poll,
        event: (full - poll).max(0.0) / EVENTS as f64,
        hand_over: smallest(|| Ok(hand_over()))?,
        wake_up: smallest(|| Ok(wake_ups()))?,
    })
}

fn smallest(mut batch: impl FnMut() -> Result<f64, Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut smallest = f64::INFINITY;
    for _ in 0..BATCHES {
        smallest = smallest.min(batch()?);
    }
    Ok(smallest)
}

/// Nanoseconds for each call.
fn wait(epoll: &epoll::Epoll, expected: usize) -> Result<f64, Box<dyn Error>> {
    let mut events = epoll::events::<EVENTS>();
    let began = Instant::now();
    for _ in 0..CALLS {
        let found = epoll.wait(&mut events, 0)?;
        if found != expected {
            return Err(format!("{found} events instead of {expected}").into());
        }
    }
    Ok(began.elapsed().as_nanos() as f64 / f64::from(CALLS))
}

/// Nanoseconds for each number; all of them arrive, in order.
fn hand_over() -> f64 {
    let queue = Queue::new(256);
    thread::scope(|scope| {
        let began = Instant::now();
        scope.spawn(|| {
            for number in 0..HANDED_OVER {
                while !queue.try_push(number) {
                    thread::yield_now();
                }
            }
        });
        for number in 0..HANDED_OVER {
            let popped = loop {
                match queue.pop() {
                    Some(popped) => break popped,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(popped, number);
        }
        began.elapsed().as_nanos() as f64 / HANDED_OVER as f64
    })
}

/// Two threads wake each other in turn. CPU nanoseconds for each wake-up.
fn wake_ups() -> f64 {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    let play = |me: u32| {
        let before = cpu::of_thread();
        for _ in 0..WAKE_UPS {
            let turn = turn.lock().expect("nobody panics");
            let mut turn = changed.wait_while(turn, |turn| *turn != me).expect("nobody panics");
            *turn = 1 - me;
            drop(turn);
            changed.notify_one();
        }
        cpu::of_thread().saturating_sub(before)
    };
    let total = thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        play(0) + other.join().expect("nobody panics")
    });
    total.as_nanos() as f64 / f64::from(2 * WAKE_UPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_costs_are_found() {
        let micro = micro().unwrap();
        assert!(micro.poll > 0.0 && micro.hand_over > 0.0 && micro.wake_up > 0.0, "{micro:?}");
        assert!(micro.event.is_finite());
    }
}
