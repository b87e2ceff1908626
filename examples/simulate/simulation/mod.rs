//! A whole server on one thread, with its clients, the ways between them and the time, all driven by the
//! choices of a seed.
//!
//! ```text
//!   peers: real clients, sans-I/O          wires                    the real server
//!  ┌──────────────────────────────┐   bytes under way    ┌──────────────────────────────────┐
//!  │ ask, take, cancel, abandon … │──▶ cut, held, lost, ─▶ sockets, sessions, tasks, timers, │
//!  │ and judge every outcome      │◀── spoiled, halved  ◀─ one step at a time                │
//!  └──────────────────────────────┘                      └───────────────┬──────────────────┘
//!        scene: chance, time, the book of all that was asked             │ Engine does what a
//!                                                                        ▼ statement says
//! ```
//!
//! The same seed does the same again: nothing looks at the system's clock, at its random numbers or at
//! the order of a hash table.

mod chance;
mod coverage;
mod outcome;
mod peer;
mod plan;
mod report;
mod scene;
mod service;
mod statement;
mod wire;
mod world;

pub(crate) use coverage::Coverage;
pub(crate) use world::{Outcome, World};

/// Runs one seed; `verbose` says each step on the terminal.
pub(crate) fn run(seed: u64, verbose: bool) -> Outcome {
    World::new(seed, verbose).run()
}
