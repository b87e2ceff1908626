//! A server, its clients and the ways between them, simulated: as many lives as one likes, each of which
//! can be lived again.
//!
//! ```text
//! cargo run --release -p simulate                            # ten seconds
//! cargo run --release -p simulate -- --seeds 100000          # as long as that takes
//! cargo run --release -p simulate -- --first-seed 42 --seeds 1 --verbose    # one, step by step
//! ```
//!
//! It ends with status 1 at the first seed in which something was not as it has to be, and says how to see
//! that again.

mod args;
mod report;

use simulate as simulation;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use args::Args;
use report::Sum;

fn main() -> ExitCode {
    let args = match Args::from_env() {
        Ok(Some(args)) => args,
        Ok(None) => {
            report::say(args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            report::complain(&format!("simulate: {error}"));
            return ExitCode::from(2);
        }
    };
    let sum = run(&args);
    report::say(&sum.to_string());
    match sum.failed {
        None => ExitCode::SUCCESS,
        Some((seed, why)) => {
            report::say(&format!("\nseed {seed} fails: {why}\nto see it again:\n"));
            report::say(&format!(
                "  cargo run --release -p simulate -- --first-seed {seed} --seeds 1 --verbose"
            ));
            ExitCode::FAILURE
        }
    }
}

/// Runs the seeds on all threads, until they are through, the time is over or one fails.
fn run(args: &Args) -> Sum {
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
            let seed = args.first.wrapping_add(number);
            let outcome = simulation::run(seed, args.verbose);
            if outcome.failure.is_some() {
                over.store(true, Ordering::Relaxed);
            }
            let mut sum = sum.lock().expect("nobody panics with it");
            sum.add(seed, outcome);
            sum.took = began.elapsed();
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..args.threads).map(|_| scope.spawn(work)).collect();
        let mut told = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= PROGRESS && !args.verbose {
                told = Instant::now();
                report::progress(&sum.lock().expect("nobody panics with it"));
            }
        }
    });
    sum.into_inner().expect("nobody panics with it")
}

/// Without a number of seeds it takes so long.
const DEFAULT_TIME: Duration = Duration::from_secs(10);
/// So often a long run says how far it is.
const PROGRESS: Duration = Duration::from_secs(2);
