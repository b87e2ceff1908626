//! Does the time of a login that fails tell why it failed? Guards a promise.
//!
//! Two kinds of login alternate in random order, and Welch's t-test compares their times: in this process,
//! through the state machine that decides, and over a socket. As in dudect, each test is repeated without the
//! slowest tries, which come from the machine. The promise: no test finds a difference of a nanosecond or more
//! with |t| above 4.5 and the same sign in both halves of the tries. A machine that changes its speed during
//! a run can make any two kinds differ once, but not twice in the same way.
//!
//! Two tests check the method itself. One compares a kind with itself and must find nothing. The other has a
//! server that hashes nothing for a user that it does not know, and must find that.
//!
//! `cargo bench --bench login_timing` makes 2 000 000 tries each in the process and 400 000 over the socket. As
//! a test it runs once and small, and only the difference that must be found counts.

mod claims;
mod process;
mod socket;
mod welch;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lab::args::within;
use lab::environment::Environment;
use lab::table::markdown;
use lab::terminal::Output;
use serde::Serialize;
use serde_json::json;

use welch::Verdict;

/// One test and its result.
#[derive(Debug, Serialize)]
struct Line {
    place: &'static str,
    one: &'static str,
    other: &'static str,
    expects: Expects,
    #[serde(flatten)]
    verdict: Verdict,
}

/// Result that a test must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Expects {
    /// The promise.
    Nothing,
    /// Shows that the test finds differences.
    Something,
    /// The sender knows the difference, or this crate cannot hide it.
    Whatever,
}

/// Does the time of a login that fails tell why it failed?
#[derive(Debug, Parser)]
#[command(name = "login_timing")]
struct Options {
    /// Tries of each test in the process (default 2000000; as a test 20000).
    #[arg(long, value_name = "N", value_parser = within(100..=1_000_000_000_usize))]
    tries: Option<usize>,
    /// Tries of each test over the socket (default 400000; as a test 500).
    #[arg(long, value_name = "N", value_parser = within(100..=60_000_000_usize))]
    socket_tries: Option<usize>,
    /// Folder for login-timing.json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// `cargo bench` gives it.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Two kinds whose |t| is above this in both halves can be told apart. It is the threshold of dudect.
const LIMIT: f64 = 4.5;

fn main() -> ExitCode {
    lab::args::run(run)
}

fn run(options: Options, out: &mut Output) -> Result<(), Box<dyn Error>> {
    let environment = Environment::of("cargo bench --bench login_timing");
    writeln!(out, "{environment}")?;
    let (tries, socket_tries) = if options.bench { (2_000_000, 400_000) } else { (20_000, 500) };
    let mut lines: Vec<_> = process::lines(options.tries.unwrap_or(tries)).collect();
    lines.extend(socket::lines(options.socket_tries.unwrap_or(socket_tries))?);
    let mut table = markdown(&[
        "where",
        "one",
        "other",
        "tries",
        "median ns",
        "abs(t), all tries",
        "largest abs(t) of the crops",
        "in both halves",
    ]);
    for line in &lines {
        table.add_row(line.row());
    }
    writeln!(out, "{table}")?;
    if let Some(dir) = &options.out {
        fs::create_dir_all(dir)?;
        let all = json!({ "environment": environment, "limit": LIMIT, "tests": lines });
        fs::write(dir.join("login-timing.json"), serde_json::to_string_pretty(&all)? + "\n")?;
    }
    let wrong: Vec<_> = lines.iter().filter(|line| !line.holds(options.bench)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("not as expected: {wrong:#?}").into()) }
}

impl Line {
    fn row(&self) -> [String; 8] {
        let Verdict { tries, medians: [one, other], t, worst, confirmed, .. } = self.verdict;
        let note = match self.expects {
            Expects::Nothing => "",
            Expects::Something => ", must be found",
            Expects::Whatever => ", not judged",
        };
        [
            self.place.to_owned(),
            self.one.to_owned(),
            self.other.to_owned(),
            tries.to_string(),
            format!("{one:.0} / {other:.0}"),
            format!("{:.2}", t.abs()),
            format!("{worst:.2}"),
            format!("{confirmed:.2}{note}"),
        ]
    }

    /// A busy machine may break the promise in a small run, so that is no failure of a test.
    fn holds(&self, bench: bool) -> bool {
        match self.expects {
            Expects::Nothing => !bench || self.verdict.confirmed < LIMIT,
            Expects::Something => self.verdict.confirmed > LIMIT,
            Expects::Whatever => true,
        }
    }
}
