//! An echo server on `epoll_group`, and a load generator that compares every answer.
//!
//! ```text
//! cargo run --release --example echo                              # serves and loads itself, 5 s
//! cargo run --release --example echo -- serve --config examples/echo/echo.toml \
//!     --admin unix:/tmp/echo.admin
//! cargo run --release --example echo -- load --connect 127.0.0.1:4711 --connections 64
//! cargo run --release --example echo -- top --connect unix:/tmp/echo.admin
//! cargo run --release --example echo -- admin --connect unix:/tmp/echo.admin help
//! ```
//!
//! `protocol.rs` is the server, and the file to read first. `serve.rs` starts a runtime around it and
//! drains it on SIGTERM. `admin.rs` lets an operator look inside and change tunables, and `top.rs`
//! draws what the admin listener says. `load.rs` and `demo.rs` drive the server.

mod admin;
mod demo;
mod load;
mod protocol;
mod serve;
mod top;

use std::process::ExitCode;

/// An echo server on epoll-group, a load generator for it, and a live view of it.
///
/// Without a command: serves on loopback and loads itself for 5 seconds. An address ADDR is HOST:PORT
/// or unix:PATH.
#[derive(Debug, clap::Parser)]
#[command(name = "echo")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Serve on loopback and load it, as without a command
    Demo,
    /// Serve until SIGTERM or SIGINT
    Serve(serve::Args),
    /// Load a server
    Load(load::Args),
    /// Watch a server through its admin listener
    Top(top::Args),
    /// Ask an admin listener one command; `help` lists them
    Admin(admin::Args),
}

fn main() -> ExitCode {
    lab::args::run(|cli: Cli, out| match cli.command.unwrap_or(Command::Demo) {
        Command::Demo => demo::run(out),
        Command::Serve(args) => serve::run(&args, out),
        Command::Load(args) => load::run(&args, out),
        Command::Top(args) => top::run(&args, out),
        Command::Admin(args) => admin::ask(&args, out),
    })
}
