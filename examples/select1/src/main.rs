//! A data node: SQL and execution plans over SQLite, for clients of the protocol.
//!
//! ```text
//! cargo run --release -p select1                         # serves and loads itself
//! cargo run --release -p select1 -- serve --listen 127.0.0.1:33660 \
//!     --user root --password secret
//! cargo run --release -p select1 -- load --connect 127.0.0.1:33660 \
//!     --user root --password secret --sessions 256 --connections 4
//! ```
//!
//! `node` is the server: `node/engine.rs` is the file to read first. `load.rs` loads one through the
//! client library; `sessions.rs` is the cheaper generator that benches share.

mod args;
mod demo;
mod load;
mod serve;
#[cfg(test)]
mod tests;

use lab::{cpu, report, settings as server_settings, signals, terminal, units, usage};
use select1::node;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use args::Command;

/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut out = terminal::Output::new();
    let command = match Command::from_env() {
        Ok(command) => command,
        Err(error) => return fail(&error, ExitCode::from(USAGE)),
    };
    let done = match command {
        Command::Demo(time) => demo::run(time, &mut out),
        Command::Serve(serve) => serve::run(&serve, &mut out),
        Command::Load(load) => load::run(&load, &mut out),
        Command::Help => out.write_all(args::HELP.as_bytes()).map_err(Into::into),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error.as_ref(), ExitCode::FAILURE),
    }
}

fn fail(error: &dyn Error, status: ExitCode) -> ExitCode {
    // If even standard error is gone, the exit status still says it.
    let _ = writeln!(io::stderr(), "select1: {error}");
    status
}
