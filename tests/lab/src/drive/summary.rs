//! [`Summary`]: result of a load, as text and as JSON.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

use super::tally::{Failure, Tally};
use crate::report;
use crate::units::Nanos;

/// Result of a load.
///
/// Serialized, its times are nanoseconds.
#[derive(Debug)]
pub struct Summary {
    tally: Tally,
    time: Duration,
}

/// Quantiles of the printed distribution.
const QUANTILES: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];

impl Summary {
    /// Counts of a load, and the time from its first request to its last answer.
    pub fn new(tally: Tally, time: Duration) -> Self {
        Self { tally, time }
    }

    /// The counts.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Number of right answers.
    pub fn answers(&self) -> u64 {
        self.tally.answers()
    }

    /// Number of right answers to requests that write.
    pub fn writes(&self) -> u64 {
        self.tally.writes.len()
    }

    /// Time from the first request to the last answer.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Right answers per second.
    pub fn per_second(&self) -> f64 {
        self.rate(self.answers())
    }

    /// Nanoseconds within which this share of right answers came.
    pub fn quantile(&self, share: f64) -> u64 {
        self.latencies().value_at_quantile(share)
    }

    /// Number of wrong answers and errors.
    pub fn failures(&self) -> u64 {
        self.tally.failures()
    }

    /// Counts a failure that was found after the load.
    pub fn failed(&mut self, failure: Failure) {
        self.tally.failed(failure);
    }

    /// Latencies of reads and writes together.
    pub fn latencies(&self) -> Histogram<u64> {
        let mut all = self.tally.writes.clone();
        all.add(&self.tally.reads).expect("both have the same bounds");
        all
    }

    /// # Errors
    ///
    /// A request failed, or none was answered.
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
        for (name, latencies) in [(" of writes", writes), (" of reads", reads)] {
            if !latencies.is_empty() {
                self.print_part(out, if both { name } else { "" }, latencies)?;
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
        of: &str,
        latencies: &Histogram<u64>,
    ) -> io::Result<()> {
        let nanos = |value: u64| Nanos(value as f64);
        writeln!(out, "\nSummary{of}:")?;
        writeln!(out, "  Requests:     {}", latencies.len())?;
        writeln!(out, "  Total:        {}", Nanos::of(self.time))?;
        writeln!(out, "  Slowest:      {}", nanos(latencies.max()))?;
        writeln!(out, "  Fastest:      {}", nanos(latencies.min()))?;
        writeln!(out, "  Average:      {}", Nanos(latencies.mean()))?;
        writeln!(out, "  Stddev:       {}", Nanos(latencies.stdev()))?;
        writeln!(out, "  Requests/sec: {:.1}", self.rate(latencies.len()))?;
        writeln!(out, "\nResponse time histogram:")?;
        report::histogram(out, &[("share of requests".to_owned(), latencies)])?;
        writeln!(out, "\nLatency distribution:")?;
        for quantile in QUANTILES {
            let percent = format!("{:.1}", quantile * 100.0);
            let percent = percent.trim_end_matches(".0");
            let value = nanos(latencies.value_at_quantile(quantile));
            writeln!(out, "  {percent:>4} % in {value}")?;
        }
        Ok(())
    }

    /// One JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("it has no maps with keys of another type")
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Tally { reads, writes, wrong, errors, first_failure, .. } = &self.tally;
        let part =
            |part: &Histogram<u64>| Part { requests: part.len(), latency_ns: Latencies::of(part) };
        Object {
            requests: self.answers(),
            seconds: self.time.as_secs_f64(),
            requests_per_second: self.per_second(),
            latency_ns: Latencies::of(&self.latencies()),
            reads: part(reads),
            writes: part(writes),
            errors: *errors,
            first_failure: first_failure.as_ref().map(ToString::to_string),
            wrong: *wrong,
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct Object {
    requests: u64,
    seconds: f64,
    requests_per_second: f64,
    latency_ns: Option<Latencies>,
    reads: Part,
    writes: Part,
    errors: u64,
    first_failure: Option<String>,
    wrong: u64,
}

#[derive(Serialize)]
struct Part {
    requests: u64,
    latency_ns: Option<Latencies>,
}

#[derive(Serialize)]
struct Latencies {
    min: u64,
    mean: f64,
    stddev: f64,
    p10: u64,
    p25: u64,
    p50: u64,
    p75: u64,
    p90: u64,
    p95: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl Latencies {
    /// `None` if nothing was answered.
    fn of(latencies: &Histogram<u64>) -> Option<Self> {
        let at = |share| latencies.value_at_quantile(share);
        (!latencies.is_empty()).then(|| Self {
            min: latencies.min(),
            mean: latencies.mean(),
            stddev: latencies.stdev(),
            p10: at(0.1),
            p25: at(0.25),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: latencies.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::Access;
    use super::*;

    fn tally(writes: u64, reads: u64) -> Tally {
        let (mut tally, sent) = (Tally::default(), Instant::now());
        (0..writes).for_each(|_| tally.answered(Access::Write, sent));
        (0..reads).for_each(|_| tally.answered(Access::Read, sent));
        tally
    }

    fn printed(summary: &Summary) -> String {
        let mut out = Vec::new();
        summary.print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_summary_has_its_parts() {
        let summary = Summary::new(tally(1000, 0), Duration::from_secs(2));
        assert!(summary.verdict().is_ok());
        assert_eq!((summary.answers(), summary.writes(), summary.failures()), (1000, 1000, 0));
        let text = printed(&summary);
        for part in
            ["\nSummary:", "Total:        2.00 s", "Slowest:", "Fastest:", "Average:", "Stddev:"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(text.contains("Requests/sec: 500.0\n"), "{text}");
        for percent in ["10", "25", "50", "75", "90", "95", "99", "99.9"] {
            assert!(text.contains(&format!("{percent:>4} % in ")), "{percent} is not in {text}");
        }
    }

    #[test]
    fn reads_and_writes_are_told_apart() {
        let summary = Summary::new(tally(30, 70), Duration::from_secs(1));
        let text = printed(&summary);
        assert!(text.contains("Summary of writes:\n  Requests:     30\n"), "{text}");
        assert!(text.contains("Summary of reads:\n  Requests:     70\n"), "{text}");
        let object = summary.to_json();
        assert_eq!(
            (&object["writes"]["requests"], &object["reads"]["requests"]),
            (&30.into(), &70.into())
        );
        assert_eq!(object["requests_per_second"], 100.0);
        assert!(object["latency_ns"]["p99"].as_u64() >= object["latency_ns"]["p50"].as_u64());
    }

    #[test]
    fn the_first_failure_is_shown() {
        let mut tally = tally(1, 0);
        for text in ["first", "second"] {
            tally.failed(Failure::wrong(text));
        }
        let summary = Summary::new(tally, Duration::from_secs(1));
        let error = summary.verdict().unwrap_err().to_string();
        assert_eq!(error, "2 wrong answers and 0 errors, the first: first");
        assert!(printed(&summary).ends_with("2 wrong answers, 0 errors; the first:\n  first\n"));
        assert_eq!(summary.to_json()["first_failure"], "first");
    }

    #[test]
    fn no_answer_at_all_is_an_error() {
        let summary = Summary::new(Tally::default(), Duration::ZERO);
        assert_eq!(summary.verdict().unwrap_err().to_string(), "nothing was answered");
        assert!(summary.to_json()["latency_ns"].is_null());
    }
}
