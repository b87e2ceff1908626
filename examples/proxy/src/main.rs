//! A sharding proxy: sessions of clients in front, data nodes behind. Each statement goes to the
//! node that has its rows.
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
//! `proxy.rs` is the service, and the file to read first. A statement keeps no thread while it
//! waits for a data node: a callback continues it.

mod demo;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

/// A sharding proxy.
///
/// Without a command: starts four data nodes with a stand-by each, and a proxy in front of them, loads
/// them, kills a primary meanwhile, and checks the results. Takes some seconds.
#[derive(Debug, clap::Parser)]
#[command(name = "proxy")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Serve until SIGTERM or SIGINT, then drain. Prints `listening on ADDR`
    Serve {
        /// Configuration, such as examples/proxy/proxy.toml
        file: PathBuf,
    },
    /// Check a configuration
    Check {
        /// Configuration, such as examples/proxy/proxy.toml
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    lab::args::run(|cli: Cli, out| match cli.command {
        None => demo::run(out),
        Some(Command::Serve { file }) => serve::run(&file, out),
        Some(Command::Check { file }) => serve::check(&file, out),
    })
}
