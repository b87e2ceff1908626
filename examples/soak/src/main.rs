//! Everything that can go wrong, mixed at random with a seed, on an echo server, a data node and a
//! sharding proxy, each in a process of its own, while well-behaved load checks every answer.
//!
//! ```text
//! cargo run --release -p soak                     # a short round of everything, 20 s
//! cargo run --release -p soak -- --minutes 60 --seed 7 --out soak.md
//! ```
//!
//! ```text
//!                      load, attackers        load
//!                             │                 │
//!                             │              relay: delays, chops, corrupts, stops, cuts
//!                             ▼                 ▼
//!          ┌──────┐       ┌──────┐       ┌───────┐       ┌────────────────┐
//!          │ echo │       │ node │       │ proxy │──────▶│ n0, n0b, n1    │ killed, started again
//!          └──────┘       └──────┘       └───────┘       └────────────────┘
//!             stopped, continued, reconfigured, connected to and left
//! ```
//!
//! A run is a sequence of phases, each a mix of hazards and then a quiet time. In the quiet time no
//! connection, session, request, descriptor or thread of the phase may be left. A round of phases
//! has each hazard once for each server for which it makes sense. From the second round on, memory
//! may not grow. `phase.rs` is the file to read first.

mod account;
mod args;
mod check;
mod child;
mod hazard;
mod load;
mod phase;
/// Protocol of the example `echo`.
#[path = "../../echo/protocol.rs"]
mod protocol;
mod report;
mod run;
mod server;
mod slope;
mod world;

use std::process::ExitCode;

use args::{Command, Task};

fn main() -> ExitCode {
    lab::args::run(|command: Command, out| match command.task {
        None => run::run(&command.options, out),
        Some(Task::Child(role)) => child::serve(&role),
    })
}
