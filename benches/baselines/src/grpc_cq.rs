//! A completion queue that several threads take from: how a server on gRPC core works.
//!
//! ```text
//!  sockets ──▶ epoll ──▶ next(): poll ▸ receive ▸ put ──▶ completion queue ──▶ next(): take
//!     ▲                  any thread without a completion    lock + list          │
//!     '──────────────────────── send, start the next receive ◀── handler ◀──────'
//! ```
//!
//! It follows the documents of gRPC core (`doc/core/grpc-cq.md`, `epoll-polling-engine.md`,
//! `grpc-polling-engines.md`). A completion queue has no threads of its own. The program's threads ask it
//! for the `next` operation that is complete, and a thread that finds none polls. A thread that polls also
//! receives, for all; the completions go through the queue, and any thread runs the handler. Sockets are
//! watched edge-triggered, once for all, so no system call arms one.
//!
//! As the second document finds it ("Issues in the current architecture"), each thread waits in `poll` for
//! two descriptors, an event fd of its own and the epoll fd:
//!
//! ```text
//!  thread 1 ── poll {event fd 1, epoll fd} ─┐
//!  thread 2 ── poll {event fd 2, epoll fd} ─┼─ an event: all return, and all ask epoll
//!  thread 3 ── poll {event fd 3, epoll fd} ─┘
//! ```
//!
//! An epoll fd with an event is readable for every thread that polls it, so each event wakes every thread
//! without work. One of them gets the event from `epoll_wait`, which does not wait, and the others were
//! woken for nothing (the thundering herd). A thread that takes a completion and leaves others signals the
//! event fd of one thread, which does the same. So no completion is left while a thread polls without a
//! signal.
//!
//! An operation here is a receive: one completion for the bytes that it took. In gRPC a send is one too.
//! Here, a send that the socket takes at once completes at once, which is to gRPC's advantage; a thread
//! that polls finishes the others.
//!
//! Good at: any free thread takes any request, so a slow handler holds up no connection but its own while
//! another thread is left. Bad at: what is shared by all. If all threads run handlers that wait, no thread
//! polls.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use reactor::{Batch, Completion, Reactor};

mod connection;
mod reactor;
#[cfg(test)]
mod tests;

/// The queue and its sockets, as its threads see them.
struct Queue {
    reactor: Reactor,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    completions: VecDeque<Completion>,
    /// Event fds of the threads in `poll` that have no signal.
    polling: Vec<Arc<OwnedFd>>,
}

/// Starts the threads. They serve until the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
    let reactor = Reactor::new(address)?;
    let address = reactor.local_addr()?;
    let queue = Arc::new(Queue { reactor, state: Mutex::default() });
    for _ in 0..threads {
        let queue = Arc::clone(&queue);
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        thread::spawn(move || {
            let error = queue.serve(&event).expect_err("it has no other end");
            panic!("polling: {error}");
        });
    }
    Ok(address)
}

impl Queue {
    /// Body of a thread.
    fn serve(&self, event: &Arc<OwnedFd>) -> io::Result<Infallible> {
        let mut batch = Batch::default();
        loop {
            let completion = self.next(event, &mut batch)?;
            if let Some(completion) = self.reactor.answer(completion) {
                // This thread is about to look, so no other one is signalled.
                self.state().completions.push_back(completion);
            }
        }
    }

    /// Takes a completion. While there is none, polls.
    fn next(&self, event: &Arc<OwnedFd>, batch: &mut Batch) -> io::Result<Completion> {
        let mut state = self.state();
        loop {
            if let Some(completion) = state.completions.pop_front() {
                // A signalled thread may have been awake already, with another completion. So the
                // thread that leaves some behind signals, not the finder.
                let other = if state.completions.is_empty() { None } else { state.polling.pop() };
                drop(state);
                if let Some(other) = other {
                    rustix::io::write(&other, &1_u64.to_ne_bytes())?;
                }
                return Ok(completion);
            }
            state.polling.push(Arc::clone(event));
            drop(state);
            let watched = [event.as_fd(), self.reactor.as_fd()];
            let mut watched = watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut watched, None) {
                Err(Errno::INTR) => {}
                result => drop(result?),
            }
            let [signalled, ready] = watched.map(|fd| !fd.revents().is_empty());
            if signalled {
                rustix::io::read(event, &mut [0; 8])?;
            }
            if ready {
                self.reactor.poll(batch)?;
            }
            state = self.state();
            state.polling.retain(|other| !Arc::ptr_eq(other, event));
            state.completions.extend(batch.completions.drain(..));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
