//! `compare`: epoll-group beside what it is measured against.
//!
//! ```text
//! cargo run --release -p compare              # the report, for the record
//! cargo run --release -p compare -- --quick   # a first look at it, less than 3 minutes
//! cargo run --release -p compare -- --help
//! ```
//!
//! It predicts service: real sockets, real load, every answer compared. A server that shares a
//! machine with other work is at the mercy of that work, so nothing is measured alone. The servers
//! live side by side, each a process of its own with its connections open, and are loaded in short
//! windows in turn, A B B A …; what counts is the ratio of neighbouring windows, as a median over
//! many pairs, beside the same ratio of a server to its own twin (the floor: what the rig itself
//! cannot tell apart). One binary is all of it: it starts itself again as server.
//!
//! Results are asserted for correctness, never for speed.

mod affinity;
mod args;
mod engine;
mod experiment;
mod hold;
mod idle;
mod meter;
mod model;
mod pools;
mod process;
mod profile;
mod progress;
mod report;
mod scenario;
mod serve;
mod serve_sql;
mod server;
mod slug;
mod spec;
mod suite;
mod syscalls;
mod table;
mod workload;

#[cfg(test)]
mod baseline_tests;

// What the echo example and the baselines already know.
#[path = "../../baselines/easy_async.rs"]
mod easy_async;
#[path = "../../baselines/easy_sync.rs"]
mod easy_sync;
#[path = "../../baselines/epoll.rs"]
mod epoll;
#[path = "../../baselines/event_loop.rs"]
mod event_loop;
#[path = "../../baselines/eventfd.rs"]
mod eventfd;
#[path = "../../baselines/frame_per_session.rs"]
mod frame_per_session;
#[path = "../../baselines/frames.rs"]
mod frames;
#[path = "../../baselines/grpc_cq.rs"]
mod grpc_cq;
#[path = "../../baselines/limit.rs"]
mod limit;
#[path = "../../baselines/lock_table.rs"]
mod lock_table;
#[cfg(test)]
mod lock_tests;
#[path = "../../baselines/mio_loop.rs"]
mod mio_loop;
#[path = "../../baselines/percona.rs"]
mod percona;
#[path = "../../baselines/poll.rs"]
mod poll;
#[path = "../../../examples/echo/protocol.rs"]
mod protocol;
#[cfg(test)]
mod sessions_tests;
#[path = "../../baselines/statements.rs"]
mod statements;
#[cfg(test)]
mod test_client;
#[cfg(test)]
mod test_servers;
#[path = "../../baselines/thread_per_client.rs"]
mod thread_per_client;
#[path = "../../baselines/thread_per_connection.rs"]
mod thread_per_connection;
#[path = "../../baselines/thread_per_session.rs"]
mod thread_per_session;
#[path = "../../baselines/threads.rs"]
mod threads;
#[path = "../../baselines/tokio_tasks.rs"]
mod tokio_tasks;
#[path = "../../baselines/uv.rs"]
mod uv;

use lab::{cpu, environment, load, ratio as spread, sessions, terminal, usage};

use std::io::Write;
use std::process::ExitCode;

use args::Command;
use terminal::Output;

/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;

/// How this program is started.
const COMMAND: &str = "cargo run --release -p compare";

fn main() -> ExitCode {
    let mut out = Output::new();
    let command = match Command::from_env() {
        Ok(command) => command,
        Err(error) => return terminal::fail("compare", &error, ExitCode::from(USAGE)),
    };
    let result = match command {
        Command::Report(args) => report::run(&args, &mut out),
        Command::Measure(args) => scenario::run(&args, &mut out),
        Command::Sessions(args) => scenario::sessions(&args, &mut out),
        Command::Pools(args) => pools::run(&args, &mut out),
        Command::Serve(spec, address) => serve::run(&spec, address, &mut out),
        Command::ServeSql(args) => serve_sql::run(&args, &mut out),
        Command::Hold(target, connections) => hold::run(target, connections, &mut out),
        Command::Help => out.write_all(args::help().as_bytes()).map_err(Into::into),
    };
    match result.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => terminal::fail("compare", error.as_ref(), ExitCode::FAILURE),
    }
}
