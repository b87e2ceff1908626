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
//! `plan.rs` decides, without sockets and clocks, and is the file to read first; `passage.rs` moves the
//! bytes of a connection as its plans say; `relay.rs` accepts. Tests include these by their path.

mod args;
mod demo;
#[cfg(test)]
mod relays;
mod serve;

use lab::{signals, terminal, units, usage};

use std::io::Write;
use std::process::ExitCode;

use args::Command;
use terminal::fail;

/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut out = terminal::Output::new();
    let command = match Command::from_env() {
        Ok(command) => command,
        Err(error) => return fail("faults", &error, ExitCode::from(USAGE)),
    };
    let done = match command {
        Command::Demo => demo::run(&mut out),
        Command::Serve(serve) => serve::run(serve, &mut out),
        Command::Help => out.write_all(args::HELP.as_bytes()).map_err(Into::into),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("faults", error.as_ref(), ExitCode::FAILURE),
    }
}
