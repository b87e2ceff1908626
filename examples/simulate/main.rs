//! A server, its clients and the ways between them, simulated: as many lives as one likes, each of which
//! can be lived again.
//!
//! ```text
//! cargo run --release --example simulate                              # about ten seconds
//! cargo run --release --example simulate -- --seeds 100000            # as long as that takes
//! cargo run --release --example simulate -- --first-seed 42 --seeds 1 --verbose   # one, step by step
//! ```
//!
//! It ends with status 1 at the first seed in which something was not as it has to be, and says how to see
//! that again.

mod simulation;

use std::process::ExitCode;

fn main() -> ExitCode {
    let n: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    let first: u64 = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    let verbose = std::env::args().nth(3).is_some();
    let began = std::time::Instant::now();
    let mut all = simulation::Coverage::default();
    let mut bad = 0;
    for seed in first..first + n {
        let outcome = simulation::run(seed, verbose);
        all.absorb(&outcome.coverage);
        if let Some(why) = outcome.failure {
            println!("seed {seed}: {why}");
            bad += 1;
            if bad > 10 {
                break;
            }
        }
    }
    for (what, times) in all.iter() {
        println!("{times:>10} {what}");
    }
    println!("{bad} bad, {:?}", began.elapsed());
    ExitCode::SUCCESS
}
