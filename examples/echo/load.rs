//! `load`: loads a server that runs elsewhere.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use lab::address::Address;
use lab::args::{microseconds, misuse, seconds, within};
use lab::load::{HEADER_BYTES, Heavy, Load, Options, Pace, Report, raise_descriptor_limit};
use lab::report::{self, Row};
use lab::terminal::ProgressLine;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Server to load
    #[arg(long, value_name = "ADDR")]
    connect: Address,
    /// Connections, 1 to 20000
    #[arg(long, value_name = "N", value_parser = within(1..=20_000_usize))]
    connections: usize,
    /// Sessions on each connection, 1 to 65536
    #[arg(long, value_name = "S", default_value = "1", value_parser = within(1..=65_536_usize))]
    sessions_per_connection: usize,
    /// Requests in flight of each session, 1 to 65536
    #[arg(long, value_name = "P", default_value = "1", value_parser = within(1..=65_536_usize))]
    pipeline: usize,
    /// Bytes of a frame, its header of 13 bytes included, 13 to 67108876
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = within(SIZES))]
    size: usize,
    /// Microseconds between an answer and the next request, 0 to 3600000000
    #[arg(long, value_name = "T", default_value = "0", value_parser = microseconds(0..=3_600_000_000))]
    think_us: Duration,
    /// N more connections, 1 to 1000, whose frames burn US microseconds of CPU each, 0 to 10000000
    #[arg(long, value_name = "N:US", value_parser = heavy)]
    heavy: Option<Heavy>,
    /// Seconds to load for, 0.01 to 86400
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds(0.01..=86_400.0))]
    seconds: Duration,
    /// Print one JSON object in place of a table
    #[arg(long)]
    json: bool,
}

/// Sizes of a frame, in bytes. The server takes a kind byte and body of at most 64 MiB.
const SIZES: std::ops::RangeInclusive<usize> = HEADER_BYTES..=HEADER_BYTES - 1 + (64 << 20);
/// Requests in flight on all connections together. The generator keeps a time for each.
const MAX_IN_FLIGHT: usize = 16 << 20;

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let in_flight = args.connections * args.sessions_per_connection * args.pipeline;
    if in_flight > MAX_IN_FLIGHT {
        return Err(misuse(format_args!(
            "--connections x --sessions-per-connection x --pipeline = {in_flight} requests in \
             flight exceeds {MAX_IN_FLIGHT}"
        )));
    }
    let connections = args.connections;
    // Besides the connections: standard streams, the poller, and what the host left open.
    let needed = (connections + args.heavy.map_or(0, |heavy| heavy.connections) + 32) as u64;
    let allowed = raise_descriptor_limit()?;
    if needed > allowed {
        return Err(format!(
            "--connections {connections} needs {needed} descriptors, but the limit (ulimit -n) \
             is {allowed}"
        )
        .into());
    }

    let mut load = Load::connect(&Options {
        connections,
        sessions_per_connection: args.sessions_per_connection,
        pipeline: args.pipeline,
        frame_bytes: args.size,
        pace: Pace::After(args.think_us),
        heavy: args.heavy,
        ..Options::new(args.connect.clone())
    })?;
    let mut line = ProgressLine::new();
    let report = load.run_for(args.seconds, |progress| {
        let (seconds, answers) = (progress.elapsed.as_secs_f64(), progress.answers);
        line.update(format_args!("{seconds:.1} s, {answers} answers"));
    })?;
    line.step_done(format_args!("{} answers", report.requests + report.heavy_requests));

    if args.json {
        writeln!(out, "{}", json(args, &report))?;
    } else {
        let mut rows = vec![Row {
            connections: connections.to_string(),
            requests_per_second: report.requests as f64 / report.seconds,
            hist: &report.hist,
            server_cpu: None,
        }];
        let mut columns = vec![("share of requests".to_owned(), &report.hist)];
        if let Some(heavy) = args.heavy {
            rows.push(Row {
                connections: format!("{} heavy", heavy.connections),
                requests_per_second: report.heavy_requests as f64 / report.seconds,
                hist: &report.heavy_hist,
                server_cpu: None,
            });
            columns.push(("heavy".to_owned(), &report.heavy_hist));
        }
        report::table(out, &rows)?;
        writeln!(out)?;
        report::histogram(out, &columns)?;
    }
    match report.first_error {
        Some(error) => {
            let count = report.errors;
            Err(format!("{count} connections failed, the first of them: {error}").into())
        }
        None => Ok(()),
    }
}

/// Results for programs. Times are in nanoseconds, except where the name says microseconds.
fn json(args: &Args, report: &Report) -> Value {
    let mut results = json!({
        "connect": args.connect.to_string(),
        "connections": args.connections,
        "sessions_per_connection": args.sessions_per_connection,
        "pipeline": args.pipeline,
        "size": args.size,
        "think_us": args.think_us.as_micros() as u64,
        "requests": report.requests,
        "seconds": report.seconds,
        "requests_per_second": report.requests as f64 / report.seconds,
        "latency_ns": latencies(&report.hist),
        "errors": report.errors,
        "first_error": report.first_error.as_ref().map(ToString::to_string),
    });
    if let Some(heavy) = args.heavy {
        results["heavy"] = json!({
            "connections": heavy.connections,
            "burn_us": heavy.burn.as_micros() as u64,
            "requests": report.heavy_requests,
            "latency_ns": latencies(&report.heavy_hist),
        });
    }
    results
}

fn latencies(hist: &Histogram<u64>) -> Value {
    json!({
        "count": hist.len(),
        "min": hist.min(),
        "mean": hist.mean(),
        "p50": hist.value_at_quantile(0.5),
        "p90": hist.value_at_quantile(0.9),
        "p99": hist.value_at_quantile(0.99),
        "p999": hist.value_at_quantile(0.999),
        "max": hist.max(),
    })
}

/// Parses `N:US`.
fn heavy(text: &str) -> Result<Heavy, String> {
    let Some((connections, micros)) = text.split_once(':') else {
        return Err(format!("{text} is not N:US, such as 1:5000"));
    };
    let connections = within(1..=1000_usize)(connections).map_err(|error| format!("N: {error}"))?;
    let burn = microseconds(0..=10_000_000)(micros).map_err(|error| format!("US: {error}"))?;
    Ok(Heavy { connections, burn, pipeline: 1 })
}
