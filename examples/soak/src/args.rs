//! The command line.
#![forbid(unsafe_code)]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser};

use crate::child::Role;
use lab::usage::{UsageError, number, text};

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Options),
    /// One of the servers of a run, in a process of its own.
    Child(Role),
    Help,
}

/// A run.
#[derive(Debug)]
pub(crate) struct Options {
    /// `None`: a short round of everything.
    pub(crate) time: Option<Duration>,
    pub(crate) seed: u64,
    /// Where the report goes, as markdown.
    pub(crate) out: Option<PathBuf>,
}

pub(crate) const HELP: &str = include_str!("args/help.txt");

impl Command {
    /// Reads the arguments of this process.
    pub(crate) fn from_env() -> Result<Self, UsageError> {
        let mut parser = Parser::from_env();
        let mut options = Options { time: None, seed: drawn(), out: None };
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Value(command) if command == "child" => {
                    let words = parser.raw_args()?.map(|word| text("child", word));
                    return Role::read(words.collect::<Result<_, _>>()?).map(Self::Child);
                }
                Arg::Long("minutes") => {
                    let minutes: f64 = number("--minutes", parser.value()?, 0.5..=10_000.0)?;
                    options.time = Some(Duration::from_secs_f64(minutes * 60.0));
                }
                Arg::Long("seed") => {
                    options.seed = number("--seed", parser.value()?, 0..=u64::MAX)?;
                }
                Arg::Long("out") => options.out = Some(parser.value()?.into()),
                Arg::Short('h') | Arg::Long("help") => return Ok(Self::Help),
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(Self::Run(options))
    }
}

/// A new seed, short enough to be typed.
fn drawn() -> u64 {
    RandomState::new().build_hasher().finish() % 1_000_000
}
