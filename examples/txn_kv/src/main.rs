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
//! cargo run --release -p txn_kv -- published                     # with a mark and without, as published
//! ```
//!
//! The store is in the library of the same name; `store.rs` is the file to read first.

mod args;
mod commits;
mod demo;
mod designs;
mod loading;
mod published;

use std::process::ExitCode;

use lab::load::sys::raise_descriptor_limit;
use lab::signals::EndSignals;

use args::{Command, Task};

fn main() -> ExitCode {
    lab::args::run(|command: Command, out| {
        raise_descriptor_limit()?;
        match command.task {
            None => demo::run(command.quick, out),
            Some(Task::Serve(serve)) => {
                let signals = EndSignals::catch()?;
                txn_kv::serve::run(&serve.options(), || signals.wait(), out)
            }
            Some(Task::Load(load)) => loading::run(&load, out),
            Some(Task::Designs(designs)) => designs::run(&designs, out),
            Some(Task::Commits(commits)) => commits::run(&commits, out),
            Some(Task::Published(published)) => published::run(&published, out),
        }
    })
}
