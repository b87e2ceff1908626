//! [`Summary`]: how a load went, for people and for programs.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::bars;
use super::tally::Tally;
use crate::units::Nanos;

/// How a load went.
#[derive(Debug)]
pub struct Summary {
    tally: Tally,
    time: Duration,
}

/// Those that the distribution is told at.
const QUANTILES: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];

impl Summary {
    pub(super) const fn new(tally: Tally, time: Duration) -> Self {
        Self { tally, time }
    }

    /// Requests that were answered as they should be.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.tally.reads.len() + self.tally.writes.len()
    }

    /// Of those, the transactions that wrote.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.tally.writes.len()
    }

    /// From the first request to the last answer.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// Right answers per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.rate(self.answers())
    }

    /// Nanoseconds that this share of all requests took, or less.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        self.all().value_at_quantile(share)
    }

    /// Wrong answers and errors.
    #[must_use]
    pub const fn failures(&self) -> u64 {
        self.tally.wrong + self.tally.errors
    }

    /// # Errors
    ///
    /// Something went wrong, or nothing was answered.
    pub fn verdict(&self) -> Result<(), Box<dyn Error>> {
        let Tally { wrong, errors, first_failure, .. } = &self.tally;
        match first_failure {
            Some(first) => {
                Err(format!("{wrong} wrong answers and {errors} errors, the first: {first}").into())
            }
            None if self.answers() == 0 => Err("nothing was answered".into()),
            None => Ok(()),
        }
    }

    fn all(&self) -> Histogram<u64> {
        let mut all = self.tally.writes.clone();
        all.add(&self.tally.reads).expect("both have the same bounds");
        all
    }

    fn rate(&self, answers: u64) -> f64 {
        answers as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Prints numbers, a histogram and the distribution; of reads and writes apart if there are both.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Tally { reads, writes, wrong, errors, first_failure, .. } = &self.tally;
        let both = !reads.is_empty() && !writes.is_empty();
        for (name, latencies) in [("Writes", writes), ("Reads", reads)] {
            if !latencies.is_empty() {
                let title = if both {
                    format!("Summary of {}", name.to_lowercase())
                } else {
                    "Summary".to_owned()
                };
                self.print_part(out, &title, latencies)?;
            }
        }
        if let Some(first) = first_failure {
            writeln!(out, "\n{wrong} wrong answers, {errors} errors; the first:\n  {first}")?;
        }
        Ok(())
    }

    fn print_part(
        &self,
        out: &mut impl Write,
        title: &str,
        latencies: &Histogram<u64>,
    ) -> io::Result<()> {
        let nanos = |value: u64| Nanos(value as f64);
        writeln!(out, "\n{title}:")?;
        writeln!(out, "  Requests:     {}", latencies.len())?;
        writeln!(out, "  Total:        {}", Nanos::of(self.time))?;
        writeln!(out, "  Slowest:      {}", nanos(latencies.max()))?;
        writeln!(out, "  Fastest:      {}", nanos(latencies.min()))?;
        writeln!(out, "  Average:      {}", Nanos(latencies.mean()))?;
        writeln!(out, "  Stddev:       {}", Nanos(latencies.stdev()))?;
        writeln!(out, "  Requests/sec: {:.1}", self.rate(latencies.len()))?;
        writeln!(out, "\nResponse time histogram:")?;
        bars::draw(out, latencies)?;
        writeln!(out, "\nLatency distribution:")?;
        for quantile in QUANTILES {
            let percent = format!("{:.1}", quantile * 100.0);
            let percent = percent.trim_end_matches(".0");
            let value = nanos(latencies.value_at_quantile(quantile));
            writeln!(out, "  {percent:>4} % in {value}")?;
        }
        Ok(())
    }

    /// One object. Times are nanoseconds.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Tally { reads, writes, wrong, errors, first_failure, .. } = &self.tally;
        json!({
            "requests": self.answers(),
            "seconds": self.time.as_secs_f64(),
            "requests_per_second": self.per_second(),
            "latency_ns": latencies(&self.all()),
            "writes": { "requests": writes.len(), "latency_ns": latencies(writes) },
            "reads": { "requests": reads.len(), "latency_ns": latencies(reads) },
            "wrong": wrong,
            "errors": errors,
            "first_failure": first_failure.as_ref().map(ToString::to_string),
        })
    }
}

/// Of none, nothing is told.
fn latencies(latencies: &Histogram<u64>) -> Option<Value> {
    let at = |share| latencies.value_at_quantile(share);
    (!latencies.is_empty()).then(|| {
        json!({
            "min": latencies.min(),
            "mean": latencies.mean(),
            "stddev": latencies.stdev(),
            "p10": at(0.1),
            "p25": at(0.25),
            "p50": at(0.5),
            "p75": at(0.75),
            "p90": at(0.9),
            "p95": at(0.95),
            "p99": at(0.99),
            "p999": at(0.999),
            "max": latencies.max(),
        })
    })
}

#[cfg(test)]
mod tests;
