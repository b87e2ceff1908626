//! A whole server on one thread, with its clients, the ways between them and the time. A seed makes all
//! choices.
//!
//! ```text
//!   peers: real clients, sans-I/O          wires                     the real server
//!  ┌──────────────────────────────┐   bytes under way     ┌──────────────────────────────────┐
//!  │ ask, take, cancel, abandon … │──▶ cut, held, lost, ──▶ sockets, sessions, tasks, timers, │
//!  │ and judge every outcome      │◀── spoiled, halved  ◀── one step at a time                │
//!  └──────────────────────────────┘                       └───────────────┬──────────────────┘
//!        scene: chance, time, the book of all that was asked              │ the engine does what
//!                                                                         ▼ a statement says
//! ```
//!
//! # What a step may be
//!
//! A client asks, takes, cancels, gives up or closes. Bytes move, as many as chance says. A way is held
//! up, cut, half-closed or spoiled, or its client does not read. The server takes an event or a task, or
//! does one of those that it holds. A deferred request is finished. Time passes. While a handler of the
//! service runs, the server may go on with others, as it does with more than one thread. While a handler
//! waits for room or for credit, everything goes on until the handler is notified. A client that makes its
//! connections by itself opens sessions, asks and loses connections, on a runtime beside the server.
//! Callers take connections of a pool on that runtime and give them back. Its connects and checks fail now
//! and then. Operators pause it and fail it over.
//!
//! # What has to hold
//!
//! Each answer belongs to its request, whole and in order. A refused request was not executed. An executed
//! one was executed once, in its session and in its turn. An outcome other than an answer has a reason.
//! When nothing moves any more, no request waits. Limits hold. At the end no session, byte or timer is
//! left, and all counters agree. A written byte leaves when it is 0.1 ms old, a turn of a session ends after
//! 1 ms, and no task waits for more turns of others than the order of the queues says.
//!
//! The same seed does the same again: no code looks at the system's clock, at its random numbers or at
//! the order of a hash table.

mod chance;
mod checks;
mod fleet;
mod later;
mod outcome;
mod peer;
mod plan;
mod pooling;
mod scene;
mod service;
mod statement;
mod time;
mod wire;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use world::Outcome;

/// How often each thing happened, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub fn add(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    pub fn absorb(&mut self, other: &Self) {
        other.iter().for_each(|(what, times)| self.add(what, times));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(&what, &times)| (what, times))
    }
}

/// Runs one seed; `verbose` says each step on the terminal.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    let run = AssertUnwindSafe(|| world::World::run(seed, verbose));
    catch_unwind(run).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let failure = format!("it panics: {}", text.unwrap_or("without a word"));
        Outcome { failure: Some(failure), ..Outcome::default() }
    })
}
