//! A proxy that does to connections what networks do, as a script with a seed says.
//!
//! ```text
//! cargo run --release -p faults                    # a table of faults, 5 s
//! cargo run --release -p faults -- --listen 127.0.0.1:5000 --to 127.0.0.1:4711 \
//!     --seed 7 --chop 1 --delay 5ms~2ms --corrupt down@1e-6 --stop down@10s --share 0.1
//! ```
//!
//! ```text
//!   client ──▶ up: corrupt, delay, coalesce, chop, rate, stop, cut ──▶ server
//!          ◀── down: the same, or other faults                     ◀──
//! ```
//!
//! The relay is `lab::faults`, which tests use as well. `plan.rs` there decides, without sockets and
//! clocks, and is the file to read first; `passage.rs` moves the bytes of a connection as its plans say;
//! `relay.rs` accepts.

#![forbid(unsafe_code)]

mod args;
mod demo;
mod exchange;
#[cfg(test)]
mod relays;
mod serve;

use std::process::ExitCode;

use args::Args;

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| match (&args.listen, &args.to) {
        (Some(listen), Some(to)) => serve::run(listen, to, args.script(), out),
        (None, None) if std::env::args_os().len() == 1 => demo::run(out),
        _ => Err(lab::args::misuse("a relay needs --listen and --to")),
    })
}
