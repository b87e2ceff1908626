//! Without a command: a server and its load in one process, and handlers that wait for one another.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::codec::frame::Header;
use epoll_group::stats::{Counter, Snapshot, Stage};
use epoll_group::{Class, Config, Handle, Runtime};
use lab::address::Address;
use lab::load::{Load, Options, Report, raise_descriptor_limit};
use lab::report::{self, Row};
use lab::terminal::ProgressLine;
use lab::units::Nanos;
use lab::{cpu, table};

use super::admin::Admin;
use super::protocol::{Echo, LOCK, UNLOCK};
use super::top;

const CONNECTIONS: [usize; 4] = [1, 8, 64, 512];
const STEP: Duration = Duration::from_millis(1200);
const DRAIN: Duration = Duration::from_secs(5);

const WAITERS: usize = 24;
const THREADS: usize = 4;
/// Time that an added thread stays without need.
const SHRINK: Duration = Duration::from_millis(200);
/// Limit for any of the steps with locks, each of which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Load with one number of connections, and its results.
struct Step {
    name: String,
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
    let address: Address = listener.local_addr().to_string().parse()?;

    writeln!(out, "listening on {address}; every answer is compared with its question")?;
    out.flush()?;
    let mut line = ProgressLine::new();
    let mut steps = Vec::new();
    for connections in CONNECTIONS {
        steps.push(step(&address, connections, &mut line)?);
    }
    drop(line);

    writeln!(out)?;
    let rows: Vec<_> = steps.iter().map(Step::row).collect();
    report::table(out, &rows)?;
    writeln!(out)?;
    let columns: Vec<_> = steps.iter().map(|step| (step.name.clone(), &step.report.hist)).collect();
    report::histogram(out, &columns)?;
    writeln!(out, "\n{}", runtime.drain(DRAIN))?;

    let received: u64 = steps.iter().map(|step| step.answers).sum();
    let sent = echo.answered();
    if received != sent {
        let text = format!("{received} answers were received, but the server counts {sent}");
        return Err(text.into());
    }
    writeln!(out, "{received} answers, each equal to its question; the server counts as many\n")?;
    waits(out)
}

fn step(address: &Address, count: usize, line: &mut ProgressLine) -> Result<Step, Box<dyn Error>> {
    let name = format!("{count} connection{}", if count == 1 { "" } else { "s" });
    let mut load = Load::connect(&Options { connections: count, ..Options::new(address.clone()) })?;
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
    Ok(Step { name, connections: count, report, answers: load.answers_total(), server_cpu })
}

impl Step {
    fn row(&self) -> Row<'_> {
        let requests = self.report.requests;
        Row {
            connections: self.connections.to_string(),
            requests_per_second: requests as f64 / self.report.seconds,
            hist: &self.report.hist,
            server_cpu: Some(self.server_cpu.div_f64(requests.max(1) as f64)),
        }
    }
}

/// CPU time of the process less this thread's. The load runs on this thread, the server on others.
fn server_cpu() -> Duration {
    cpu::of_process().saturating_sub(cpu::of_thread())
}

/// Lets more handlers wait for a lock than there are threads, while the holder's next request gives
/// the lock back. Checks that every request is answered and that the added threads go away.
fn waits(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let config = Config::default()
        .epoll_groups(1)
        .epoll_threads_per_group(THREADS)
        .dynamic_threads_shrink_time(SHRINK)
        .enable_perf_hist(true);
    let runtime = Runtime::builder().name("locks").config(config).start()?;
    let handle = runtime.handle();
    let echo = Echo::default();
    let listener = runtime.listen("127.0.0.1:0", echo.clone())?;
    let address: SocketAddr = listener.local_addr().to_string().parse()?;
    let admin = handle.with_class(Class::Admin);
    let admin = admin.listen("127.0.0.1:0", Admin::new(&runtime, echo))?;
    let admin: Address = admin.local_addr().to_string().parse()?;

    writeln!(
        out,
        "{WAITERS} handlers wait for a lock that a later request gives back; {THREADS} threads, \
         and what `echo top` shows:"
    )?;
    out.flush()?;
    let before = handle.stats();
    let mut holder = connect(address)?;
    holder.write_all(&frame(LOCK))?;
    answered(&mut holder, LOCK)?;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let mut stream = connect(address)?;
        stream.write_all(&[frame(LOCK), frame(UNLOCK)].concat())?;
        waiters.push(stream);
    }
    let all_wait = |stats: &Snapshot| stats.stalled_threads == WAITERS as u64;
    let during = reach(&handle, "all handlers wait", all_wait)?;
    let view = top::twice(&admin, Duration::from_millis(100))?;
    let seen = view.value("stalled_threads");
    if seen != WAITERS as f64 {
        return Err(format!("{WAITERS} handlers wait, but top saw {seen}").into());
    }

    let asked = Instant::now();
    holder.write_all(&frame(UNLOCK))?;
    answered(&mut holder, UNLOCK)?;
    let took = asked.elapsed();
    for waiter in &mut waiters {
        answered(waiter, LOCK)?;
        answered(waiter, UNLOCK)?;
    }
    let all_took = asked.elapsed();
    drop(waiters);
    let all_left = |stats: &Snapshot| {
        stats.dynamic_threads == 0
            && stats.get(Counter::ThreadsLeft) >= stats.get(Counter::ThreadsStartedStall)
    };
    let after = reach(&handle, "all added threads left", all_left)?;
    let run = after.histogram(Stage::Run).ok_or("histograms are on, but there is none")?.clone();
    let report = runtime.drain(PATIENCE);

    writeln!(out)?;
    for line in view.frame().lines() {
        writeln!(out, "  | {line}")?;
    }
    let heading = ["threads", "base", "dynamic", "reserve", "waiting", "left", "started"];
    let mut threads = table::numbers(&heading);
    for (name, stats) in [("before", &before), ("during", &during), ("after", &after)] {
        let left = stats.get(Counter::ThreadsLeft);
        let (base, dynamic) = (stats.base_threads, stats.dynamic_threads);
        let reserve = stats.reserve_threads;
        let counts = [base, dynamic, reserve, stats.stalled_threads, left];
        let counts = counts.map(|count| count.to_string());
        let mut cells = vec![name.to_owned()];
        cells.extend(counts);
        cells.push(top::started(stats));
        threads.add_row(cells);
    }
    writeln!(out, "\n{}", threads.trim_fmt())?;
    writeln!(
        out,
        "the holder was answered after {}, and all {WAITERS} that waited for it after {}",
        Nanos::of(took),
        Nanos::of(all_took),
    )?;
    writeln!(out, "\ntime in the handler: {run}")?;

    // The snapshot in between may have been taken while a worker was still counting.
    let stalls = after.get(Counter::Stalls);
    let added = after.get(Counter::ThreadsStartedStall);
    if stalls < WAITERS as u64 || added == 0 || report.cut != 0 {
        let cut = report.cut;
        return Err(format!("{stalls} stalls, {added} threads started, {cut} cut").into());
    }
    Ok(())
}

/// A frame about lock 0.
fn frame(kind: u8) -> Vec<u8> {
    [&Header::new(0, kind, 4).encode()[..], &[0; 4]].concat()
}

fn connect(address: SocketAddr) -> Result<TcpStream, Box<dyn Error>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn answered(stream: &mut TcpStream, kind: u8) -> Result<(), Box<dyn Error>> {
    let question = frame(kind);
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer).map_err(|error| format!("no answer: {error}"))?;
    if answer != question {
        return Err(format!("{question:?} was answered by {answer:?}").into());
    }
    Ok(())
}

/// Looks every millisecond until `is_so` holds.
fn reach(
    handle: &Handle,
    what: &str,
    is_so: impl Fn(&Snapshot) -> bool,
) -> Result<Snapshot, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let stats = handle.stats();
        if is_so(&stats) {
            return Ok(stats);
        }
        if Instant::now() > end {
            return Err(format!("not within {} s: {what}\n{stats}", PATIENCE.as_secs()));
        }
        thread::sleep(Duration::from_millis(1));
    }
}
