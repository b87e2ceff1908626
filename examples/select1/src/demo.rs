//! No arguments: a server and its load in one process.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::stats::Counter;
use lab::load::sys::raise_descriptor_limit;
use lab::sessions::{Load, PASSWORD, Question, Shape, USER};
use lab::terminal::ProgressLine;
use lab::units::Nanos;
use lab::{cpu, table};
use select1::node::Node;

use crate::load::{ROWS, SCHEMA};

const SESSIONS: [usize; 4] = [1, 16, 256, 2048];
const MOST_CONNECTIONS: usize = 16;
const QUESTIONS: [(Question, &str); 3] = [
    (Question::SelectOne, "select 1"),
    (Question::Text, "row by id, SQL"),
    (Question::Plan, "row by id, plan"),
];
const STEP: Duration = Duration::from_secs(2);
const QUICK_STEP: Duration = Duration::from_millis(300);
const DRAIN: Duration = Duration::from_secs(5);
/// Few, because the server needs the rest of the machine.
const LOAD_THREADS: usize = 2;

/// Serves on loopback, loads itself in steps, and checks every answer.
pub(crate) fn run(quick: bool, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let time = if quick { QUICK_STEP } else { STEP };
    let runtime = Runtime::builder().name("select1").start()?;
    let node = Node::start(runtime, (USER, PASSWORD), SCHEMA, ROWS)?;
    let address = node.address();
    writeln!(out, "listening on {address}, {ROWS} rows; every answer is checked\n")?;
    out.flush()?;

    let mut table = table::numbers(&[
        "",
        "sessions",
        "connections",
        "requests/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "server CPU/request",
    ]);
    let mut line = ProgressLine::new();
    let mut answers = 0;
    for (question, name) in QUESTIONS {
        for sessions in SESSIONS {
            let connections = sessions.min(MOST_CONNECTIONS);
            line.update(format_args!("{name}: {sessions} sessions over {connections}"));
            let threads = LOAD_THREADS;
            let shape = Shape { connections, sessions, question, rows: ROWS, threads };
            let mut load = Load::connect(address, &shape)?;
            // Warm-up, which is not measured.
            load.run_for(time / 10)?;
            let before = cpu::of_process();
            let report = load.run_for(time)?;
            let used = cpu::of_process().saturating_sub(before);
            answers += load.answers_total();
            if let Some(error) = report.first_error {
                return Err(format!("{name}, {sessions} sessions: {error}").into());
            }
            line.step_done(format_args!("{name}: {sessions} sessions: {}", report.requests));
            let mut row = vec![name.to_owned(), sessions.to_string(), connections.to_string()];
            row.push(format!("{:.0}", report.requests as f64 / report.seconds));
            row.extend(
                [0.5, 0.99, 0.999, 1.0]
                    .map(|share| Nanos(report.hist.value_at_quantile(share) as f64).to_string()),
            );
            let server = used.saturating_sub(report.client_cpu).as_nanos() as f64;
            row.push(Nanos(server / report.requests.max(1) as f64).to_string());
            table.add_row(row);
        }
    }
    writeln!(out, "{}", table.trim_fmt())?;

    let stats = node.runtime().stats();
    writeln!(out, "\n{}", node.drain(DRAIN))?;
    let executed = stats.get(Counter::RequestsExecuted);
    writeln!(out, "{answers} right answers; the server counts {executed} requests")?;
    if executed < answers {
        return Err(
            "the load has counted more answers than the server has executed requests".into()
        );
    }
    Ok(())
}
