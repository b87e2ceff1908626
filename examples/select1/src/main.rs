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
//! client library.

mod args;
mod demo;
mod load;
mod serve;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use args::{Command, Task};

fn main() -> ExitCode {
    lab::args::run(|command: Command, out| match command.task {
        None => demo::run(command.quick, out),
        Some(Task::Serve(serve)) => serve::run(&serve, out),
        Some(Task::Load(load)) => load::run(&load, out),
    })
}
