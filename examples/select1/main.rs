//! A data node: SQL and execution plans over SQLite, for clients of the protocol.
//!
//! ```text
//! cargo run --release --example select1                         # serves and loads itself
//! cargo run --release --example select1 -- serve --listen 127.0.0.1:33660 \
//!     --user root --password secret
//! ```
//!
//! `engine.rs` is the service, and the file to read first; `statements.rs` says what it does for each
//! kind of statement, `run.rs` runs one in SQLite, `transactions.rs` lends connections. `dialect.rs`
//! reads MySQL's SQL, `columns.rs` describes results as MySQL does.

mod args;
mod arguments;
mod columns;
#[expect(dead_code, reason = "the echo example burns CPU time as well")]
#[path = "../echo/cpu.rs"]
mod cpu;
mod demo;
mod dialect;
mod engine;
mod errors;
mod functions;
mod hint;
mod interrupt;
mod lists;
#[path = "."]
mod load {
    #[allow(dead_code, reason = "the echo example needs all of it")]
    #[path = "../echo/load/sys.rs"]
    pub(crate) mod sys;
}
mod operator;
mod plan;
mod pool;
mod prepared;
mod run;
mod sbtest;
mod sequence;
mod serve;
#[allow(dead_code, reason = "the echo example also prints them")]
#[path = "../echo/settings.rs"]
mod server_settings;
mod sessions;
mod settings;
#[path = "../echo/signals.rs"]
mod signals;
mod state;
mod statements;
#[cfg(test)]
#[allow(unused_imports, reason = "each test uses a part of it")]
#[path = "../../tests/support/mod.rs"]
mod support;
#[allow(dead_code, reason = "the echo example has progress on terminals, too")]
#[path = "../echo/terminal.rs"]
mod terminal;
#[cfg(test)]
mod tests;
mod transactions;
#[allow(dead_code, reason = "the echo example shows more kinds of numbers")]
#[path = "../echo/units.rs"]
mod units;
#[path = "../echo/usage.rs"]
mod usage;
mod variables;
mod write_lock;

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
