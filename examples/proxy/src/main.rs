//! A proxy: sessions of clients in front, data nodes behind, and a statement of each to the node that
//! has its rows.
//!
//! ```text
//! cargo run --release -p proxy                    # four nodes, a proxy and its load
//! cargo run --release -p proxy -- serve examples/proxy/proxy.toml
//! ```
//!
//! ```text
//!   clients          proxy.rs  front.rs       route/          nodes.rs           data nodes
//!  ┌────────┐ XRPC  ┌──────────────────┐  ┌─────────────┐  ┌────────────┐ XRPC  ┌─────────┐
//!  │sessions│──────▶│ Service, deferred│─▶│ which node? │─▶│ Pool of    │──────▶│ n0, n1, │
//!  │        │◀──────│ replies, relays  │  └─────────────┘  │ sessions   │◀──────│ …       │
//!  └────────┘       └──────────────────┘                   └────────────┘       └─────────┘
//! ```
//!
//! `proxy.rs` is the service, and the file to read first. No thread waits for a data node: what a
//! request waits for calls it back.

mod args;
mod demo;
mod serve;

use lab::{terminal, usage};

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
        Err(error) => return fail("proxy", &error, ExitCode::from(USAGE)),
    };
    let done = match command {
        Command::Demo => demo::run(&mut out),
        Command::Serve(file) => serve::run(&file, &mut out),
        Command::Check(file) => serve::check(&file, &mut out),
        Command::Help => out.write_all(args::HELP.as_bytes()).map_err(Into::into),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("proxy", error.as_ref(), ExitCode::FAILURE),
    }
}
