//! A shell for servers of the protocol: statements in, tables out.
//!
//! ```text
//! cargo run --release -p xsql                                  # a server of its own to try
//! cargo run --release -p xsql -- --connect 127.0.0.1:33660 --user root --password secret
//! cargo run --release -p xsql -- --connect … -e 'select count(*) from sbtest1'
//! ```
//!
//! `shell.rs` runs statements through the client library, and is the file to read first. `splitter.rs`
//! finds where they end, `table.rs` and `cell.rs` show what comes back, `prompt.rs` edits lines.

mod args;
mod cell;
mod demo;
mod interrupt;
use select1::node;
mod prompt;
mod shell;
mod splitter;
mod table;
#[cfg(test)]
mod tests;

use lab::{signals, terminal, units, usage};

use std::error::Error;
use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use epoll_group::Runtime;
use epoll_group::client::{Client, Options};

use args::{Args, Command};
use interrupt::Running;
use node::Node;
use shell::{Outcome, Shell};
use signals::EndSignals;
use splitter::Splitter;
use terminal::Output;

/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;
const ROWS: u32 = 1000;

fn main() -> ExitCode {
    let args = match Command::from_env() {
        Ok(Command::Run(args)) => args,
        Ok(Command::Help) => {
            // If nobody reads it, nobody is told.
            let _ = Output::new().write_all(args::HELP.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(error) => return terminal::fail("xsql", &error, ExitCode::from(USAGE)),
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => terminal::fail("xsql", error.as_ref(), ExitCode::FAILURE),
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    // Before a runtime starts its threads: they inherit the mask.
    let signals = EndSignals::catch()?;
    let running = Running::default();
    running.listen(signals)?;
    let own = match &args.connect {
        Some(_) => None,
        None => {
            let runtime = Runtime::builder().name("select1").start()?;
            Some(Node::start(runtime, (&args.user, &args.password), "sbtest", ROWS)?)
        }
    };
    let own_address = own.as_ref().map(|node| node.address().to_string());
    let address = args.connect.clone().or(own_address).unwrap_or_default();
    let runtime = Runtime::builder().name("xsql").start()?;
    let options = Options::new(address.as_str(), args.user.as_str())
        .password(args.password.as_str())
        .connections(1);
    let client = Client::new(&runtime.handle(), options)?;
    let mut shell = Shell::new(client, address, running, Output::new());
    shell.settings = args.settings;

    if !args.statements.is_empty() {
        for statement in &args.statements {
            batch(&mut shell, statement.lines().map(|line| Ok(line.to_owned())))?;
        }
    } else if io::stdin().is_terminal() {
        prompt::run(&mut shell, args.history.as_deref(), own.is_some())?;
    } else {
        let any = batch(&mut shell, io::stdin().lock().lines())?;
        if !any && own.is_some() {
            demo::run(&mut shell)?;
        }
    }
    shell.close();
    Ok(())
}

/// Runs what stands in these lines, up to the first failure; `false` when nothing does.
///
/// # Errors
/// A statement failed, or a line cannot be read.
fn batch(
    shell: &mut Shell<impl Write>,
    lines: impl Iterator<Item = io::Result<String>>,
) -> Result<bool, Box<dyn Error>> {
    let (mut splitter, mut any) = (Splitter::default(), false);
    for line in lines {
        for input in splitter.push(&line?) {
            any = true;
            match shell.run(&input)? {
                Outcome::Failed(error) => return Err(error.into()),
                Outcome::Quit => return Ok(true),
                _ => {}
            }
        }
    }
    if let Some(input) = splitter.finish() {
        any = true;
        if let Outcome::Failed(error) = shell.run(&input)? {
            return Err(error.into());
        }
    }
    Ok(any)
}
