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

mod cell;
mod demo;
mod interrupt;
mod prompt;
mod shell;
mod splitter;
mod table;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use epoll_group::Runtime;
use epoll_group::client::{Client, Options};
use lab::args::within;
use lab::signals::EndSignals;
use lab::terminal::Output;
use select1::node::Node;

use interrupt::{INTERRUPTED, Running};
use shell::{Outcome, Shell};
use splitter::Splitter;

/// A shell for servers of the protocol.
///
/// On a terminal it reads lines and edits them; else it runs the statements of standard input up to the
/// first that fails, which is exit status 1. Without --connect it starts a server of its own, with a
/// table sbtest1; if then nothing is asked, it shows what it can.
///
/// Statements end with ; or, to have their rows one below the other, with \G. Ctrl-C interrupts the one
/// that runs, and stops a script with exit status 130. Ctrl-D ends the shell; \help lists the commands.
#[derive(Debug, clap::Parser)]
#[command(name = "xsql")]
struct Args {
    /// HOST:PORT or unix:PATH of a server; without, a server in this process
    #[arg(long, value_name = "ADDR", requires = "user")]
    connect: Option<String>,
    /// User to log in as; needed with --connect
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Password of the user
    #[arg(long, value_name = "PASSWORD", default_value = "")]
    password: String,
    /// Run these and end; may be given several times
    #[arg(short = 'e', long = "execute", value_name = "STATEMENTS")]
    statements: Vec<String>,
    /// Keep lines for the next time; without, they are forgotten at the end
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Show at most N columns of a value, 1 to 1000000
    #[arg(long, value_name = "N", value_parser = within(1..=1_000_000_usize))]
    cut: Option<usize>,
    /// Ask for results as chunks
    #[arg(long)]
    chunks: bool,
}

/// Rows of the server in this process.
const ROWS: u32 = 1000;

fn main() -> ExitCode {
    let running = Running::default();
    let status = lab::args::run(|args: Args, _: &mut Output| run(&args, &running));
    if running.is_interrupted() { ExitCode::from(INTERRUPTED) } else { status }
}

fn run(args: &Args, running: &Running) -> Result<(), Box<dyn Error>> {
    running.listen(EndSignals::catch()?)?;
    let user = args.user.as_deref().unwrap_or("root");
    let own = match &args.connect {
        Some(_) => None,
        None => {
            let runtime = Runtime::builder().name("select1").start()?;
            Some(Node::start(runtime, (user, &args.password), "sbtest", ROWS)?)
        }
    };
    let own_address = own.as_ref().map(|node| node.address().to_string());
    let address = args.connect.clone().or(own_address).unwrap_or_default();
    let runtime = Runtime::builder().name("xsql").start()?;
    let options =
        Options::new(address.as_str(), user).password(args.password.as_str()).connections(1);
    let client = Client::new(&runtime.handle(), options)?;
    let mut shell = Shell::new(client, address, running.clone(), Output::new());
    shell.settings.cut = args.cut;
    shell.settings.chunks = args.chunks;

    if !args.statements.is_empty() {
        execute(&mut shell, &args.statements)?;
    } else if io::stdin().is_terminal() {
        prompt::run(&mut shell, running, args.history.as_deref(), own.is_some())?;
    } else {
        let ended = batch(&mut shell, io::stdin().lock().lines())?;
        if ended == Ended::Nothing && own.is_some() {
            demo::run(&mut shell)?;
        }
    }
    shell.close();
    Ok(())
}

/// How a batch without a failure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Nothing stands in it.
    Nothing,
    /// All of it was run.
    Ran,
    /// A command said to leave.
    Quit,
}

/// Runs these texts, up to the first failure or `\quit`.
///
/// # Errors
/// A statement failed.
fn execute(shell: &mut Shell<impl Write>, texts: &[String]) -> Result<(), Box<dyn Error>> {
    for text in texts {
        if batch(shell, text.lines().map(|line| Ok(line.to_owned())))? == Ended::Quit {
            break;
        }
    }
    Ok(())
}

/// Runs what stands in these lines, up to the first failure or `\quit`.
///
/// # Errors
/// A statement failed, or a line cannot be read.
fn batch(
    shell: &mut Shell<impl Write>,
    lines: impl Iterator<Item = io::Result<String>>,
) -> Result<Ended, Box<dyn Error>> {
    let (mut splitter, mut ended) = (Splitter::default(), Ended::Nothing);
    for line in lines {
        for input in splitter.push(&line?) {
            ended = Ended::Ran;
            match shell.run(&input)? {
                Outcome::Failed(error) => return Err(error.into()),
                Outcome::Quit => return Ok(Ended::Quit),
                _ => {}
            }
        }
    }
    if let Some(input) = splitter.finish() {
        ended = Ended::Ran;
        if let Outcome::Failed(error) = shell.run(&input)? {
            return Err(error.into());
        }
    }
    Ok(ended)
}
