//! An echo server on `epoll_group`, and a load generator that checks every answer.
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
//! `protocol.rs` is the server, and the file to read first; `demo.rs` and `serve.rs` start and
//! drain a runtime around it. `settings.rs` reads its tunables, `admin.rs` lets an operator look
//! and change them while it runs, `top.rs` draws what that says. The rest is the load generator
//! and what a program needs besides.

mod admin;
mod args;
mod demo;
mod json;
mod periodic;
mod protocol;
mod serve;
mod top;

use lab::{load, report, settings, signals, terminal, units, usage};

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use args::Command;
use load::Load;
use report::Row;
use terminal::{Output, ProgressLine};

/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut out = Output::new();
    let command = match Command::from_env() {
        Ok(command) => command,
        Err(error) => return terminal::fail("echo", &error, ExitCode::from(USAGE)),
    };
    let result = match command {
        Command::Demo => demo::run(&mut out),
        Command::Serve(args) => serve::run(&args, &mut out),
        Command::Load(args) => load_server(&args, &mut out),
        Command::Top(args) => top::run(&args, &mut out),
        Command::Admin(args) => ask(&args, &mut out),
        Command::Help => out.write_all(args::HELP.as_bytes()).map_err(Into::into),
    };
    match result.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => terminal::fail("echo", error.as_ref(), ExitCode::FAILURE),
    }
}

/// Prints what an admin listener answers.
fn ask(args: &args::Ask, out: &mut Output) -> Result<(), Box<dyn Error>> {
    let answer = admin::Client::connect(&args.target)?.ask(&args.command)?;
    Ok(out.write_all(answer.as_bytes())?)
}

/// Loads a server that runs elsewhere.
fn load_server(args: &args::Load, out: &mut Output) -> Result<(), Box<dyn Error>> {
    let options = &args.options;
    let heavy = options.heavy.map_or(0, |heavy| heavy.connections);
    // Besides the connections: standard streams, the poller, and what the host left open.
    let needed = (options.connections + heavy + 32) as u64;
    let allowed = load::raise_descriptor_limit()?;
    if needed > allowed {
        let connections = options.connections;
        return Err(format!(
            "--connections {connections} needs {needed} descriptors, but the limit (ulimit -n) \
             is {allowed}"
        )
        .into());
    }
    let mut load = Load::connect(options)?;
    let mut line = ProgressLine::new();
    let report = load.run_for(args.time, |progress| {
        let (seconds, answers) = (progress.elapsed.as_secs_f64(), progress.answers);
        line.update(format_args!("{seconds:.1} s, {answers} answers"));
    })?;
    line.step_done(format_args!("{} answers", report.requests + report.heavy_requests));

    if args.json {
        json::print(out, options, &report)?;
    } else {
        let light = Row {
            connections: options.connections.to_string(),
            requests_per_second: report.requests as f64 / report.seconds,
            hist: &report.hist,
            server_cpu: None,
        };
        let mut rows = vec![light];
        let mut columns = vec![("share of requests".to_owned(), &report.hist)];
        if let Some(heavy) = options.heavy {
            rows.push(Row {
                connections: format!("{} heavy", heavy.connections),
                requests_per_second: report.heavy_requests as f64 / report.seconds,
                hist: &report.heavy_hist,
                server_cpu: None,
            });
            columns.push(("heavy".to_owned(), &report.heavy_hist));
        }
        report::table(out, &rows)?;
        writeln!(out)?;
        report::histogram(out, &columns)?;
    }
    match report.first_error {
        Some(error) => {
            let count = report.errors;
            Err(format!("{count} connections failed, the first of them: {error}").into())
        }
        None => Ok(()),
    }
}
