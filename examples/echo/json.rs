//! Results for programs.

use std::fmt;
use std::io::{self, Write};

use hdrhistogram::Histogram;

use super::load::{Options, Report};

/// Text as a JSON string.
struct Quoted<'a>(&'a str);

/// Prints one object on one line. Times are nanoseconds.
pub(crate) fn print(out: &mut impl Write, options: &Options, report: &Report) -> io::Result<()> {
    let target = options.target.to_string();
    write!(out, "{{\"connect\":{},\"connections\":{}", Quoted(&target), options.connections)?;
    write!(out, ",\"sessions_per_connection\":{}", options.sessions_per_connection)?;
    write!(out, ",\"pipeline\":{},\"size\":{}", options.pipeline, options.frame_bytes)?;
    write!(out, ",\"think_us\":{}", options.think.as_micros())?;
    let per_second = report.requests as f64 / report.seconds;
    write!(out, ",\"requests\":{},\"seconds\":{:.6}", report.requests, report.seconds)?;
    write!(out, ",\"requests_per_second\":{per_second:.1},\"latency_ns\":")?;
    latencies(out, &report.hist)?;
    if let Some(heavy) = options.heavy {
        let (connections, burn) = (heavy.connections, heavy.burn.as_micros());
        write!(out, ",\"heavy\":{{\"connections\":{connections},\"burn_us\":{burn}")?;
        write!(out, ",\"requests\":{},\"latency_ns\":", report.heavy_requests)?;
        latencies(out, &report.heavy_hist)?;
        write!(out, "}}")?;
    }
    write!(out, ",\"errors\":{},\"first_error\":", report.errors)?;
    match &report.first_error {
        Some(error) => writeln!(out, "{}}}", Quoted(&error.to_string())),
        None => writeln!(out, "null}}"),
    }
}

fn latencies(out: &mut impl Write, hist: &Histogram<u64>) -> io::Result<()> {
    write!(out, "{{\"count\":{},\"min\":{},\"mean\":{:.1}", hist.len(), hist.min(), hist.mean())?;
    for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)] {
        write!(out, ",\"{name}\":{}", hist.value_at_quantile(quantile))?;
    }
    write!(out, ",\"max\":{}}}", hist.max())
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for char in self.0.chars() {
            match char {
                '"' | '\\' => write!(f, "\\{char}")?,
                char if u32::from(char) < 0x20 => write!(f, "\\u{:04x}", u32::from(char))?,
                char => write!(f, "{char}")?,
            }
        }
        f.write_str("\"")
    }
}
