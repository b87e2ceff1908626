//! A server, its clients and the ways between them, simulated by seeds. The same seed does the same again.
//!
//! ```text
//! cargo run --release -p simulate                            # ten seconds
//! cargo run --release -p simulate -- --seeds 100000          # as long as that takes
//! cargo run --release -p simulate -- --first-seed 42 --seeds 1 --verbose    # one, step by step
//! ```
//!
//! It ends with status 1 at the first seed in which a check failed, and prints the command that repeats it.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::terminal::ProgressLine;
use simulate::{Coverage, Outcome};

/// Simulates servers with their clients. Every seed is a history of its own, and can be repeated.
#[derive(Debug, clap::Parser)]
#[command(name = "simulate")]
struct Args {
    /// Number of seeds; without, as many as run in ten seconds
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S", default_value = "0")]
    first_seed: u64,
    /// Threads to run seeds on; without, one for each CPU
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print each step of each seed, on one thread
    #[arg(long)]
    verbose: bool,
}

/// Result of the seeds so far.
#[derive(Debug, Default)]
struct Sum {
    took: Duration,
    /// The first seed that failed, and why.
    failed: Option<(u64, String)>,
    seeds: u64,
    requests: u64,
    simulated: Duration,
    /// Fingerprint of the traces of all seeds, the same for the same seeds.
    fingerprint: u64,
    coverage: Coverage,
}

/// Time of a run without a number of seeds.
const DEFAULT_TIME: Duration = Duration::from_secs(10);
/// Interval between two reports of progress.
const PROGRESS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| {
        let sum = run(&args);
        writeln!(out, "{sum}")?;
        match sum.failed {
            None => Ok(()),
            Some((seed, why)) => Err(format!(
                "seed {seed} fails: {why}\nto see it again:\n\n  cargo run --release -p simulate -- \
                 --first-seed {seed} --seeds 1 --verbose"
            )
            .into()),
        }
    })
}

/// Runs seeds on all threads until all are done, the time is over or one fails.
fn run(args: &Args) -> Sum {
    let cpus = || thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.verbose { 1 } else { args.threads.unwrap_or_else(cpus).max(1) };
    let began = Instant::now();
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new(Sum::default());
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let timed_out = args.seeds.is_none() && began.elapsed() >= DEFAULT_TIME;
            if timed_out || args.seeds.is_some_and(|seeds| number >= seeds) {
                break;
            }
            let seed = args.first_seed.wrapping_add(number);
            let outcome = simulate::run(seed, args.verbose);
            if outcome.failure.is_some() {
                over.store(true, Ordering::Relaxed);
            }
            let mut sum = sum.lock().expect("no thread panics with it");
            sum.add(seed, outcome);
            sum.took = began.elapsed();
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let (mut line, mut told) = (ProgressLine::new(), Instant::now());
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= PROGRESS && !args.verbose {
                told = Instant::now();
                line.each(sum.lock().expect("no thread panics with it").line());
            }
        }
    });
    sum.into_inner().expect("no thread panics with it")
}

impl Sum {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.requests += outcome.requests;
        self.simulated += outcome.simulated;
        self.fingerprint ^= outcome.trace.rotate_left((seed % 64) as u32);
        self.coverage.absorb(&outcome.coverage);
        if let Some(why) = outcome.failure {
            let first = self.failed.take().filter(|(failed, _)| *failed < seed);
            self.failed = first.or(Some((seed, why)));
        }
    }

    fn line(&self) -> String {
        let seconds = self.took.as_secs_f64().max(0.001);
        format!(
            "{} seeds in {seconds:.1} s, {:.0} a second: {} requests in {:.1} simulated hours",
            self.seeds,
            self.seeds as f64 / seconds,
            self.requests,
            self.simulated.as_secs_f64() / 3600.0,
        )
    }
}

impl fmt::Display for Sum {
    /// Writes the counts, grouped by the word before the colon of their names, and the totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (what, times) in self.coverage.iter() {
            let (group, name) = what.split_once(": ").unwrap_or(("", what));
            if group != before {
                writeln!(f, "\n{group}")?;
                before = group;
            }
            writeln!(f, "{times:>12}  {name}")?;
        }
        writeln!(f, "\n{}", self.line())?;
        write!(f, "fingerprint {:016x}", self.fingerprint)
    }
}
