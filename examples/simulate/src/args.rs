//! The command line.

use std::thread;

use lexopt::Arg;
use lexopt::ValueExt as _;

pub(crate) const HELP: &str = "\
Simulates servers with their clients: every seed is a life of its own, and can be lived again.

usage: simulate [--seeds N] [--first-seed S] [--threads N] [--verbose]

  --seeds N       so many seeds; without, for ten seconds
  --first-seed S  from this one on (default 0)
  --threads N     on so many threads (default: one for each CPU)
  --verbose       each step of each seed, on one thread
";

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) seeds: Option<u64>,
    pub(crate) first: u64,
    pub(crate) threads: usize,
    pub(crate) verbose: bool,
}

impl Args {
    /// `None` when help is wanted.
    pub(crate) fn from_env() -> Result<Option<Self>, lexopt::Error> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut args = Self { seeds: None, first: 0, threads, verbose: false };
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("seeds") => args.seeds = Some(parser.value()?.parse()?),
                Arg::Long("first-seed") => args.first = parser.value()?.parse()?,
                Arg::Long("threads") => args.threads = parser.value()?.parse()?,
                Arg::Long("verbose") => args.verbose = true,
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        args.threads = if args.verbose { 1 } else { args.threads.max(1) };
        Ok(Some(args))
    }
}
