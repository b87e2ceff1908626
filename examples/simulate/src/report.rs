//! What all seeds came to, as text.

use std::fmt;
use std::io::{self, Write as _};
use std::time::Duration;

use simulate::{Coverage, Outcome};

/// What all seeds came to so far.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) took: Duration,
    /// The first that failed, and why.
    pub(crate) failed: Option<(u64, String)>,
    seeds: u64,
    requests: u64,
    simulated: Duration,
    /// Of the traces of all seeds: the same for the same seeds.
    fingerprint: u64,
    coverage: Coverage,
}

impl Sum {
    pub(crate) fn add(&mut self, seed: u64, outcome: Outcome) {
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
    /// A table by what stands before the colon of each name, and the line.
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

/// One line, of which nobody minds the loss.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// How far a long run is.
pub(crate) fn progress(sum: &Sum) {
    complain(&sum.line());
}
