//! `compare`: epoll-group beside what it is measured against.
//!
//! ```text
//! cargo run --release -p compare              # the report, for the record
//! cargo run --release -p compare -- --quick   # a first look at it, less than 3 minutes
//! cargo run --release -p compare -- --help
//! ```
//!
//! It predicts service: real sockets, real load, every answer checked. All servers of a comparison live
//! side by side, each a process with its connections open, and are loaded in short windows in turn. So
//! they share the state of the machine, and ratios of neighbouring windows can be trusted further than
//! numbers. One binary is all of it: it starts itself again as server.
//!
//! Results are asserted for correctness, never for speed.

mod args;
mod charts;
mod engine;
mod experiment;
mod measured;
mod model;
mod perf;
mod pools;
mod proxies;
mod report;
mod server;
mod sharding;
mod suite;
mod summary;
mod table;
mod tls;
mod workload;

use std::process::ExitCode;

/// Command that starts this program.
const COMMAND: &str = "cargo run --release -p compare";

fn main() -> ExitCode {
    lab::args::run(args::run)
}
