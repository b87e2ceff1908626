//! A transactional key-value store: its server, and loads for it.
//!
//! ```text
//! cargo run --release -p txn_kv                                  # serves and loads itself
//! cargo run --release -p txn_kv -- serve --listen 127.0.0.1:33670 \
//!     --user root --password secret --dir /tmp/txn_kv
//! cargo run --release -p txn_kv -- load txn-put --connect 127.0.0.1:33670 \
//!     --user root --password secret --clients 50 --key-space-size 100000 --total 100000
//! cargo run --release -p txn_kv -- designs                       # orders of writing, by turns
//! cargo run --release -p txn_kv -- commits                       # a commit alone, and flushes shared
//! ```
//!
//! The library of the same name is what is shown; `store.rs` is the file to read first.

mod args;
mod commits;
mod demo;
mod designs;
mod loading;

use lab::{cpu, load::sys, signals, terminal, units, usage};

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use args::Command;
use signals::EndSignals;

/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut out = terminal::Output::new();
    let command = match Command::from_env() {
        Ok(command) => command,
        Err(error) => return terminal::fail("txn_kv", &error, ExitCode::from(USAGE)),
    };
    match run(command, &mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => terminal::fail("txn_kv", error.as_ref(), ExitCode::FAILURE),
    }
}

fn run(command: Command, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Demo(pace) => demo::run(pace, out),
        Command::Serve(options) => {
            // Before the runtime starts its threads: they inherit the mask.
            let signals = EndSignals::catch()?;
            sys::raise_descriptor_limit()?;
            txn_kv::serve::run(&options, || signals.wait(), out)
        }
        Command::Load(args) => loading::run(&args, out),
        Command::Designs(args) => designs::run(&args, out),
        Command::Commits(args) => commits::run(&args, out),
        Command::Help => Ok(out.write_all(args::HELP.as_bytes())?),
    }
}
