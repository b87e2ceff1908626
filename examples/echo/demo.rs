//! No arguments: a server and its load in one process, and handlers that wait for one another.

mod gate;
mod waits;

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use epoll_group::Runtime;

use super::load::{Load, Options, Report, Target, raise_descriptor_limit};
use super::protocol::Echo;
use super::report::{self, Row};
use super::terminal::ProgressLine;
use lab::cpu;

const CONNECTIONS: [usize; 4] = [1, 8, 64, 512];
const STEP: Duration = Duration::from_millis(1200);
const DRAIN: Duration = Duration::from_secs(5);

/// One number of connections, and how it went.
struct Step {
    connections: usize,
    report: Report,
    answers: u64,
    server_cpu: Duration,
}

/// Serves on loopback, loads itself, and checks that every question got its answer.
pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let runtime = Runtime::builder().name("echo").start()?;
    let echo = Echo::default();
    let listener = runtime.listen("127.0.0.1:0", echo.clone())?;
    let address = listener.local_addr().to_string();
    let target: Target = address.parse()?;

    writeln!(out, "listening on {address}; every answer is compared with its question")?;
    out.flush()?;
    let mut line = ProgressLine::new();
    let mut steps = Vec::new();
    for connections in CONNECTIONS {
        steps.push(step(&target, connections, &mut line)?);
    }

    writeln!(out)?;
    print(out, &steps)?;
    let drained = runtime.drain(DRAIN);
    writeln!(out)?;
    writeln!(out, "{drained}")?;

    let received: u64 = steps.iter().map(|step| step.answers).sum();
    let sent = echo.answered();
    if received != sent {
        let text = format!("{received} answers were received, but the server counts {sent}");
        return Err(text.into());
    }
    writeln!(out, "{received} answers, each equal to its question; the server counts as many")?;

    writeln!(out)?;
    waits::run(out)
}

fn step(target: &Target, count: usize, line: &mut ProgressLine) -> Result<Step, Box<dyn Error>> {
    let name = connections(count);
    let options = Options { connections: count, ..Options::new(target.clone()) };
    let mut load = Load::connect(&options)?;
    let before = server_cpu();
    let report = load.run_for(STEP, |progress| {
        let (seconds, answers) = (progress.elapsed.as_secs_f64(), progress.answers);
        line.update(format_args!("{name}: {seconds:.1} s, {answers} answers"));
    })?;
    let server_cpu = server_cpu().saturating_sub(before);
    line.step_done(format_args!("{name}: {} answers", report.requests));
    if let Some(error) = report.first_error {
        return Err(format!("with {name}: {error}").into());
    }
    Ok(Step { connections: count, report, answers: load.answers_total(), server_cpu })
}

/// What the process has used, less this thread: the load runs here, the server elsewhere.
fn server_cpu() -> Duration {
    cpu::of_process().saturating_sub(cpu::of_thread())
}

fn print(out: &mut impl Write, steps: &[Step]) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    let mut columns = Vec::new();
    for step in steps {
        let report = &step.report;
        let server_nanos = step.server_cpu.as_nanos() as f64 / report.requests.max(1) as f64;
        rows.push(Row {
            connections: step.connections.to_string(),
            requests_per_second: report.requests as f64 / report.seconds,
            hist: &report.hist,
            server_cpu: Some(Duration::from_nanos(server_nanos as u64)),
        });
        columns.push((connections(step.connections), &report.hist));
    }
    report::table(out, &rows)?;
    writeln!(out)?;
    report::histogram(out, &columns)?;
    Ok(())
}

fn connections(count: usize) -> String {
    format!("{count} connection{}", if count == 1 { "" } else { "s" })
}
