//! A whole server on one thread, with its clients, the ways between them and the time, all driven by the
//! choices of a seed.
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
//! A client asks, takes, cancels, gives up, closes; bytes go on, as many as chance says; a way is held up,
//! cut, half-closed, spoiled, or its client does not read; the server takes an event or a task in hand,
//! or does one of those in hand; a request that was put off is finished; time passes. While a handler of
//! the service runs, the server may go on with others, as it does with more than one thread.
//!
//! # What has to hold
//!
//! Each answer is the one of its request, whole and in order; what is said to be refused was not done, and
//! what was done was done once, in its session and in its turn. An outcome other than an answer has a
//! reason. When nothing moves any more, nobody waits. Limits hold. At the end nothing is left: no session,
//! no byte, no timer, and what was counted agrees.
//!
//! The same seed does the same again: nothing looks at the system's clock, at its random numbers or at
//! the order of a hash table.

mod chance;
mod checks;
mod coverage;
mod later;
mod outcome;
mod peer;
mod plan;
mod scene;
mod service;
mod statement;
mod wire;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use coverage::Coverage;
pub use world::Outcome;

/// Runs one seed; `verbose` says each step on the terminal.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    let run = AssertUnwindSafe(|| world::World::new(seed, verbose).run());
    catch_unwind(run).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let failure = format!("it panics: {}", text.unwrap_or("without a word"));
        Outcome { failure: Some(failure), ..Outcome::default() }
    })
}
