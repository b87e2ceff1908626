//! Does the time of a login that fails tell why it failed? Guards a promise.
//!
//! Two kinds of login in random order, and Welch's t-test of their times: in this process, through
//! the state machine that decides, and over a socket. As with dudect, each test is repeated
//! without the slowest tries, which are the machine's. The promise: no test finds a difference of a
//! nanosecond or more with |t| above 4.5 and one sign in both halves of the tries. A machine that
//! changes its pace in the midst of a run can make any two kinds differ once; it does not make the same
//! crop differ the same way again.
//!
//! Two kinds of test say whether to believe the others: one compares a kind with itself, and must find
//! nothing; one has a server that hashes nothing for a user that it does not know, and must find it.
//!
//! `cargo bench --bench login_timing`: 2 000 000 tries each in the process, 400 000 over the socket.
//! `-- --tries N --socket-tries N --out DIR`. As a test it runs once and small, and only what is to be
//! found counts.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is the result")]

mod claims;
mod process;
#[allow(dead_code, reason = "tests draw their seeds")]
mod socket;
mod welch;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};
use serde::Serialize;

use lab::environment::Environment;
use welch::Verdict;

/// One test and what it found.
#[derive(Debug, Serialize)]
struct Line {
    place: &'static str,
    one: &'static str,
    other: &'static str,
    expects: Expects,
    #[serde(flatten)]
    verdict: Verdict,
}

/// What must come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Expects {
    /// The promise.
    Nothing,
    /// The test can see.
    Something,
    /// No secret, as who sends it knows it, or none that this crate could keep.
    Whatever,
}

struct Options {
    tries: usize,
    socket_tries: usize,
    out: Option<PathBuf>,
    bench: bool,
}

/// Above it in both halves the two kinds are told apart; the threshold of dudect.
const LIMIT: f64 = 4.5;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("login_timing: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::from_env()?;
    let environment = Environment::of("cargo bench --bench login_timing");
    println!("{environment}");
    println!(
        "| where | one | other | tries | median ns | |t|, all tries | worst |t| of the crops | \
         in both halves |"
    );
    println!("|:--|:--|:--|--:|--:|--:|--:|--:|");
    let mut lines = Vec::new();
    for line in process::lines(options.tries) {
        line.print();
        lines.push(line);
    }
    for line in socket::lines(options.socket_tries)? {
        line.print();
        lines.push(line);
    }
    if let Some(dir) = &options.out {
        std::fs::create_dir_all(dir)?;
        let all = serde_json::json!({ "environment": environment, "limit": LIMIT, "tests": lines });
        std::fs::write(dir.join("login-timing.json"), serde_json::to_string_pretty(&all)? + "\n")?;
    }
    let wrong: Vec<_> = lines.iter().filter(|line| !line.holds(options.bench)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("not as expected: {wrong:#?}").into()) }
}

impl Line {
    fn print(&self) {
        let (verdict, expects) = (&self.verdict, self.expects);
        println!(
            "| {} | {} | {} | {} | {:.0} / {:.0} | {:.2} | {:.2} | {:.2}{} |",
            self.place,
            self.one,
            self.other,
            verdict.tries,
            verdict.medians[0],
            verdict.medians[1],
            verdict.t.abs(),
            verdict.worst,
            verdict.confirmed,
            match expects {
                Expects::Nothing => "",
                Expects::Something => ", to be seen",
                Expects::Whatever => ", not judged",
            }
        );
    }

    /// A noisy machine may break the promise of a small run; that is no failure of a test.
    fn holds(&self, bench: bool) -> bool {
        match self.expects {
            Expects::Nothing => !bench || self.verdict.confirmed < LIMIT,
            Expects::Something => self.verdict.confirmed > LIMIT,
            Expects::Whatever => true,
        }
    }
}

impl Options {
    fn from_env() -> Result<Self, lexopt::Error> {
        let mut parser = Parser::from_env();
        let (mut tries, mut socket_tries, mut out, mut bench) = (None, None, None, false);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("bench") => bench = true,
                Arg::Long("tries") => tries = Some(parser.value()?.parse()?),
                Arg::Long("socket-tries") => socket_tries = Some(parser.value()?.parse()?),
                Arg::Long("out") => out = Some(parser.value()?.into()),
                other => return Err(other.unexpected()),
            }
        }
        let (all, over_socket) = if bench { (2_000_000, 400_000) } else { (20_000, 500) };
        Ok(Self {
            tries: tries.unwrap_or(all),
            socket_tries: socket_tries.unwrap_or(over_socket),
            out,
            bench,
        })
    }
}
