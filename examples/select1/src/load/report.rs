//! [`Report`]: how it went, for people and for programs.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;

use super::tally::Tally;
use crate::args::Load as Args;
use crate::report::histogram;
use crate::units::Nanos;

/// All requests, each with its answer or what went wrong.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) total: Tally,
    /// From the first request to the last answer.
    pub(super) time: Duration,
    /// CPU time of this process, where that is not the server's as well.
    pub(super) client_cpu: Option<Duration>,
}

impl Report {
    fn requests_per_second(&self) -> f64 {
        self.total.hist.len() as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Nanoseconds of each request.
    fn client_cpu_per_request(&self) -> Option<f64> {
        let requests = self.total.hist.len().max(1) as f64;
        self.client_cpu.map(|cpu| cpu.as_nanos() as f64 / requests)
    }

    /// A table of one line, and a histogram.
    pub(super) fn print(&self, args: &Args, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{:<8} {:>8} {:>11} {:>10}", "mode", "sessions", "connections", "requests/s")?;
        for heading in ["p50", "p99", "p99.9", "max"] {
            write!(out, "  {heading:>8}")?;
        }
        let cpu = self.client_cpu_per_request();
        writeln!(out, "{}", if cpu.is_some() { "  client CPU/request" } else { "" })?;

        let (mode, sessions, connections) = (args.mode, args.sessions, args.connections);
        let rate = self.requests_per_second();
        write!(out, "{mode:<8} {sessions:>8} {connections:>11} {rate:>10.0}")?;
        for quantile in [0.5, 0.99, 0.999, 1.0] {
            let latency = Nanos(self.total.hist.value_at_quantile(quantile) as f64);
            write!(out, "  {latency:>8}")?;
        }
        if let Some(cpu) = cpu {
            write!(out, "  {:>18}", Nanos(cpu))?;
        }
        writeln!(out)?;
        writeln!(out)?;
        histogram(out, &[("share of requests".to_owned(), &self.total.hist)])
    }

    /// One object on one line. Times are nanoseconds.
    pub(super) fn json(&self, args: &Args, out: &mut impl Write) -> io::Result<()> {
        let hist = &self.total.hist;
        let latency = json!({
            "min": hist.min(),
            "mean": hist.mean().round(),
            "p50": hist.value_at_quantile(0.5),
            "p90": hist.value_at_quantile(0.9),
            "p99": hist.value_at_quantile(0.99),
            "p999": hist.value_at_quantile(0.999),
            "max": hist.max(),
        });
        let object = json!({
            "connect": args.connect,
            "mode": args.mode.to_string(),
            "sessions": args.sessions,
            "connections": args.connections,
            "requests": hist.len(),
            "seconds": self.time.as_secs_f64(),
            "requests_per_second": self.requests_per_second().round(),
            "latency_ns": latency,
            "client_cpu_ns_per_request": self.client_cpu_per_request().map(f64::round),
            "wrong": self.total.wrong,
            "errors": self.total.errors,
            "first_failure": self.total.first_failure.as_ref().map(ToString::to_string),
        });
        writeln!(out, "{object}")
    }

    /// # Errors
    /// Something went wrong, or nothing was answered.
    pub(super) fn verdict(&self) -> Result<(), Box<dyn Error>> {
        let Tally { wrong, errors, first_failure, hist, .. } = &self.total;
        match first_failure {
            Some(first) => {
                Err(format!("{wrong} wrong answers and {errors} errors, the first: {first}").into())
            }
            None if hist.is_empty() => Err("nothing was answered".into()),
            None => Ok(()),
        }
    }
}
