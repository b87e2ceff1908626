//! A completion queue that several threads take from: how a server on gRPC core works.
//!
//! ```text
//!  sockets ──▶ epoll ──▶ next(): poll ▸ receive ▸ put ──▶ completion queue ──▶ next(): take
//!     ▲                  any thread without a completion    lock + list          │
//!     '──────────────────────── send, start the next receive ◀── handler ◀──────'
//! ```
//!
//! It is described in the documents of gRPC core (`doc/core/grpc-cq.md`, `epoll-polling-engine.md`,
//! `grpc-polling-engines.md`). A completion queue has no threads of its own: the program's threads
//! ask it for the `next` operation that is complete, and whoever finds none polls. Whoever polls
//! also receives, for all; the completions go through the queue, and any thread runs the handler.
//! Sockets are watched edge-triggered, once for all; there is no system call to arm one.
//!
//! Who waits for what, and whom a completion wakes, is [`Wake`]:
//!
//! - [`Wake::All`], as the second document finds it ("Issues in the current architecture"): each
//!   thread waits in `poll` for two descriptors, an event fd of its own and the epoll fd. An epoll
//!   fd with an event is readable for all who poll it, so each event wakes every thread without
//!   work; one of them gets it from `epoll_wait`, which does not wait, and the others have been
//!   woken for nothing (the thundering herd). Whoever takes a completion and leaves others in the
//!   queue signals the event fd of one thread that polls.
//! - [`Wake::One`], the way out that the document names turnstile polling: one thread is the poller
//!   and waits in `epoll_wait`; the others wait each on a condition variable. A completion is given
//!   to one waiter and wakes that one; the poller passes polling on before it runs a handler. An
//!   event then costs one thread's time, and the threads without work sleep. What remains: one
//!   epoll and one lock for all threads, a completion often changes thread after its bytes were
//!   received, and a poller with a handler to run wakes another one for each batch, if one sleeps.
//!
//! What counts as an operation here is a receive: one completion for the bytes that it took. In gRPC
//! a send is one too. Here, one that the socket takes at once completes at once, which is to gRPC's
//! advantage, and one that it does not take is finished by whoever polls.
//!
//! Good at: any free thread takes any request, so a slow handler holds up no connection but its own
//! while another thread is left. Bad at: what is shared by all. When all threads run handlers that
//! wait, nobody polls.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use herd::Herd;
use reactor::{Completion, Reactor};
use turnstile::Turnstile;

#[path = "grpc_cq/connection.rs"]
mod connection;
#[path = "grpc_cq/herd.rs"]
mod herd;
#[path = "grpc_cq/reactor.rs"]
mod reactor;
#[cfg(test)]
#[path = "grpc_cq/tests.rs"]
mod tests;
#[path = "grpc_cq/turnstile.rs"]
mod turnstile;

/// Whom an event wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// All threads that have nothing to do.
    All,
    /// The poller; and a completion wakes one waiter.
    One,
}

/// A completion queue as its threads see it.
trait Queue: Send + Sync + 'static {
    /// What a thread waits on.
    type Seat: Send + 'static;

    fn seat() -> io::Result<Self::Seat>;

    /// Queues what the caller has completed outside of `next`, which it calls now.
    fn put(&self, completion: Completion);

    /// Takes a completion; while there is none, polls or waits for one.
    fn next(&self, seat: &mut Self::Seat, reactor: &Reactor) -> io::Result<Completion>;
}

/// Starts the threads; they serve until the process ends.
pub(crate) fn start(address: SocketAddr, threads: usize, wake: Wake) -> io::Result<SocketAddr> {
    match wake {
        Wake::All => start_with(address, threads, Herd::default()),
        Wake::One => start_with(address, threads, Turnstile::default()),
    }
}

fn start_with<Q: Queue>(address: SocketAddr, threads: usize, queue: Q) -> io::Result<SocketAddr> {
    let reactor = Reactor::new(address)?;
    let address = reactor.local_addr()?;
    let shared = Arc::new((queue, reactor));
    for _ in 0..threads {
        let shared = Arc::clone(&shared);
        let seat = Q::seat()?;
        thread::spawn(move || {
            let (queue, reactor) = &*shared;
            let error = serve(queue, reactor, seat).expect_err("it has no other end");
            panic!("polling: {error}");
        });
    }
    Ok(address)
}

/// The life of a thread.
fn serve<Q: Queue>(queue: &Q, reactor: &Reactor, mut seat: Q::Seat) -> io::Result<Infallible> {
    loop {
        let completion = queue.next(&mut seat, reactor)?;
        if let Some(completion) = reactor.answer(completion) {
            queue.put(completion);
        }
    }
}
