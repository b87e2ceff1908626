//! `load`: sessions that ask again and again, through the client library.

mod mode;

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{Answer, Client, Request};
use epoll_group::codec::value::Value;
use lab::drive::{Access, Asker, Driver, Failure, Progress, Summary, Target, Until};
use lab::load::sys::raise_descriptor_limit;
use lab::terminal::ProgressLine;
use lab::units::{Count, Nanos};
use lab::{cpu, report, table};
use select1::node::Node;
use serde::Serialize;

pub(crate) use mode::Mode;

use crate::args::Load as Args;

pub(crate) const SCHEMA: &str = "sbtest";
pub(crate) const ROWS: u32 = 100_000;
/// Deadline of a request, and of the answers at the end of the load.
const PATIENCE: Duration = Duration::from_secs(10);

/// Questions of one session.
struct Ids {
    mode: Mode,
    /// Ids are drawn from 1 to this.
    rows: u32,
    random: fastrand::Rng,
}

/// Result of a load, with what was asked.
#[derive(Serialize)]
struct Report<'a> {
    connect: Option<&'a str>,
    mode: String,
    sessions: usize,
    connections: usize,
    /// CPU time of this process for each request; `None` if the server runs in this process.
    client_cpu_ns_per_request: Option<f64>,
    #[serde(flatten)]
    summary: &'a Summary,
}

/// Loads a server and prints the result.
///
/// # Errors
/// It cannot be reached, an answer was wrong, or a request failed.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let mut own = None;
    let address = match &args.connect {
        Some(address) => address.clone(),
        None => {
            let runtime = Runtime::builder().name("select1").start()?;
            let node = Node::start(runtime, (&args.user, &args.password), SCHEMA, ROWS)?;
            own.insert(node).address().to_string()
        }
    };
    let (user, password) = (args.user.clone(), args.password.clone());
    let target = Target { address, user, password };
    let driver = Driver::new(&target, args.sessions, args.connections, PATIENCE)?;
    let rows = match args.rows {
        Some(rows) => rows,
        None if args.mode.is_point() => highest_id(driver.client())?,
        None => 1,
    };
    let ids = |place| Ids { mode: args.mode, rows, random: fastrand::Rng::with_seed(place) };
    let askers = (0..args.sessions as u64).map(ids).collect();
    let cpu = cpu::of_process();
    let mut seconds = Seconds::default();
    let until = Until::Time(args.seconds);
    let (summary, _) = driver.run(askers, until, |progress| seconds.show(progress))?;
    let cpu = cpu::of_process().saturating_sub(cpu);
    seconds.line.clear();
    let each = cpu.as_nanos() as f64 / summary.answers().max(1) as f64;
    Report {
        connect: args.connect.as_deref(),
        mode: args.mode.to_string(),
        sessions: args.sessions,
        connections: args.connections,
        client_cpu_ns_per_request: own.is_none().then_some(each.round()),
        summary: &summary,
    }
    .print(args.json, out)?;
    out.flush()?;
    summary.verdict()
}

impl Asker for Ids {
    type Question = i64;

    fn next(&mut self, _: u64) -> Option<(i64, Request)> {
        let id = i64::from(self.random.u32(1..=self.rows));
        Some((id, self.mode.request(id)))
    }

    fn check(&mut self, id: i64, answer: Answer) -> Result<Access, Failure> {
        self.mode.check(id, answer).map(|()| Access::Read)
    }
}

/// A line for each second of a load.
#[derive(Default)]
struct Seconds {
    line: ProgressLine,
    at: Duration,
    answers: u64,
}

impl Seconds {
    fn show(&mut self, progress: &Progress) {
        let time = progress.elapsed - self.at;
        if time < Duration::from_secs(1) {
            return;
        }
        let rate = (progress.answers - self.answers) as f64 / time.as_secs_f64();
        (self.at, self.answers) = (progress.elapsed, progress.answers);
        let (seconds, rate) = (progress.elapsed.as_secs_f64(), Count(rate.round()));
        let failures = progress.failures;
        self.line.each(format_args!("{seconds:4.1} s  {rate:>9} requests/s  {failures} failures"));
    }
}

impl Report<'_> {
    /// Prints one JSON object on one line, or a table of one line and a histogram.
    fn print(&self, json: bool, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
            return Ok(());
        }
        let latencies = self.summary.latencies();
        let mut table = table::numbers(&[
            "mode",
            "sessions",
            "connections",
            "requests/s",
            "p50",
            "p99",
            "p99.9",
            "max",
            "client CPU/request",
        ]);
        let (sessions, connections) = (self.sessions.to_string(), self.connections.to_string());
        let mut row = vec![self.mode.clone(), sessions, connections];
        row.push(format!("{:.0}", self.summary.per_second()));
        row.extend(
            [0.5, 0.99, 0.999, 1.0]
                .map(|share| Nanos(latencies.value_at_quantile(share) as f64).to_string()),
        );
        let cpu = self.client_cpu_ns_per_request.map(|cpu| Nanos(cpu).to_string());
        row.push(cpu.unwrap_or_else(|| "–".to_owned()));
        table.add_row(row);
        writeln!(out, "{}\n", table.trim_fmt())?;
        Ok(report::histogram(out, &[("share of requests".to_owned(), &latencies)])?)
    }
}

/// The highest id that point selects may ask for.
fn highest_id(client: &Client) -> Result<u32, Box<dyn Error>> {
    let mut answer = client.session()?.execute("select max(id) from sbtest1")?;
    let id = match answer.next_row()?.map(|row| row.get(0)).transpose()? {
        Some(Value::Signed(id)) => u32::try_from(id).ok(),
        Some(Value::Unsigned(id)) => u32::try_from(id).ok(),
        _ => None,
    };
    id.filter(|&id| id > 0).ok_or_else(|| "sbtest1 has no rows to ask for".into())
}

#[cfg(test)]
mod tests;
