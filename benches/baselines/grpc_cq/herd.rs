//! Whoever has nothing to do polls: all are woken by each event, and one finds it.
//!
//! ```text
//!  thread 1 ── poll {event fd 1, epoll fd} ─┐
//!  thread 2 ── poll {event fd 2, epoll fd} ─┼─ an event: all return, and all ask epoll
//!  thread 3 ── poll {event fd 3, epoll fd} ─┘
//! ```
//!
//! Whoever takes a completion and leaves others signals one thread for them, which does the same:
//! no completion is left lying while a thread polls without a signal.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::poll::{self, EventFd};
use super::Queue;
use super::reactor::{Batch, Completion, Reactor};

#[derive(Default)]
pub(super) struct Herd(Mutex<State>);

#[derive(Default)]
struct State {
    completions: VecDeque<Completion>,
    /// Those in `poll` that nobody has signalled.
    polling: Vec<Arc<EventFd>>,
}

pub(super) struct Seat {
    event: Arc<EventFd>,
    batch: Batch,
}

impl Queue for Herd {
    type Seat = Seat;

    fn seat() -> io::Result<Seat> {
        Ok(Seat { event: Arc::new(EventFd::new()?), batch: Batch::default() })
    }

    fn put(&self, completion: Completion) {
        self.state().completions.push_back(completion);
    }

    fn next(&self, seat: &mut Seat, reactor: &Reactor) -> io::Result<Completion> {
        let Seat { event, batch } = seat;
        let mut state = self.state();
        loop {
            if let Some(completion) = state.completions.pop_front() {
                // A thread that was signalled may have been up already, with another completion:
                // so whoever leaves some behind signals, not whoever has found them.
                let other = if state.completions.is_empty() { None } else { state.polling.pop() };
                drop(state);
                other.map_or(Ok(()), |other| other.signal())?;
                return Ok(completion);
            }
            state.polling.push(Arc::clone(event));
            drop(state);
            let wanted = [(event.as_fd(), libc::POLLIN), (reactor.as_fd(), libc::POLLIN)];
            let [signalled, ready] = poll::wait(wanted)?;
            if signalled != 0 {
                event.drain()?;
            }
            if ready != 0 {
                reactor.poll(batch, 0)?;
            }
            state = self.state();
            state.polling.retain(|other| !Arc::ptr_eq(other, event));
            state.completions.extend(batch.completions.drain(..));
        }
    }
}

impl Herd {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
