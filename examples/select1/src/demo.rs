//! No arguments: a server and its load in one process.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::stats::Counter;

use crate::cpu;
use crate::node::Node;
use crate::terminal::ProgressLine;
use crate::units::Nanos;
use lab::load::sys::raise_descriptor_limit;
use lab::sessions::{Load, PASSWORD, Question, Report, Shape, USER};

const SCHEMA: &str = "sbtest";
const ROWS: u32 = 100_000;
const SESSIONS: [usize; 4] = [1, 16, 256, 2048];
const MOST_CONNECTIONS: usize = 16;
const QUESTIONS: [(Question, &str); 3] = [
    (Question::SelectOne, "select 1"),
    (Question::Text, "row by id, SQL"),
    (Question::Plan, "row by id, plan"),
];
const DRAIN: Duration = Duration::from_secs(5);
/// The server shall have the rest of the machine.
const LOAD_THREADS: usize = 2;

/// Serves on loopback, loads itself for so long each step, and checks every answer.
pub(crate) fn run(time: Duration, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let runtime = Runtime::builder().name("select1").start()?;
    let node = Node::start(runtime, (USER, PASSWORD), SCHEMA, ROWS)?;
    let address = node.address();
    writeln!(out, "listening on {address}, {ROWS} rows; every answer is checked")?;
    writeln!(out)?;
    heading(out)?;

    let mut line = ProgressLine::new();
    let mut answers = 0;
    for (question, name) in QUESTIONS {
        for sessions in SESSIONS {
            let connections = sessions.min(MOST_CONNECTIONS);
            line.update(format_args!("{name}: {sessions} sessions over {connections}"));
            let threads = LOAD_THREADS;
            let shape = Shape { connections, sessions, question, rows: ROWS, threads };
            let mut load = Load::connect(address, &shape)?;
            // What is only done once is not measured.
            load.run_for(time / 10)?;
            let before = cpu::of_process();
            let report = load.run_for(time)?;
            let used = cpu::of_process().saturating_sub(before);
            answers += load.answers_total();
            if let Some(error) = report.first_error {
                return Err(format!("{name}, {sessions} sessions: {error}").into());
            }
            line.step_done(format_args!("{name}: {sessions} sessions: {}", report.requests));
            row(out, name, (sessions, connections), &report, used)?;
        }
    }

    let stats = node.runtime().stats();
    let drained = node.drain(DRAIN);
    writeln!(out)?;
    writeln!(out, "{drained}")?;
    let executed = stats.get(Counter::RequestsExecuted);
    writeln!(
        out,
        "{answers} answers, each as it should be; the server counts {executed} requests"
    )?;
    if executed < answers {
        return Err("the server has answered more than it was asked".into());
    }
    Ok(())
}

fn heading(out: &mut impl Write) -> std::io::Result<()> {
    write!(out, "{:<16} {:>8} {:>11} {:>10}", "", "sessions", "connections", "requests/s")?;
    for quantile in ["p50", "p99", "p99.9", "max"] {
        write!(out, "  {quantile:>8}")?;
    }
    writeln!(out, "  server CPU/request")
}

fn row(
    out: &mut impl Write,
    name: &str,
    (sessions, connections): (usize, usize),
    report: &Report,
    used: Duration,
) -> std::io::Result<()> {
    let rate = report.requests as f64 / report.seconds;
    write!(out, "{name:<16} {sessions:>8} {connections:>11} {rate:>10.0}")?;
    for quantile in [0.5, 0.99, 0.999, 1.0] {
        let latency = report.hist.value_at_quantile(quantile);
        write!(out, "  {:>8}", Nanos(latency as f64).to_string())?;
    }
    let server = used.saturating_sub(report.client_cpu).as_nanos() as f64;
    let server = Nanos(server / report.requests.max(1) as f64);
    writeln!(out, "  {:>18}", server.to_string())?;
    out.flush()
}
