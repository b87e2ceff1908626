//! More handlers wait than there are threads, and what they wait for is a later request.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::stats::{Counter, Snapshot, Stage};
use epoll_group::{Class, Config, Handle, Runtime};

use super::super::admin::Admin;
use super::super::load::Target;
use super::super::periodic::started;
use super::super::top;
use super::super::units::Nanos;
use super::gate::{Gate, OPEN, WAIT};

const WAITERS: usize = 24;
const THREADS: usize = 4;
/// How long an added thread stays without need.
const SHRINK: Duration = Duration::from_millis(200);
/// Any of the steps, each of which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the gate when it is dropped: a step that fails leaves no handler behind that waits.
struct Opener(Gate);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Shows it, and checks that everybody was answered and the threads went away.
pub(super) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let config = Config::default()
        .epoll_groups(1)
        .epoll_threads_per_group(THREADS)
        .dynamic_threads_shrink_time(SHRINK)
        .enable_perf_hist(true);
    let runtime = Runtime::builder().name("gate").config(config).start()?;
    let opener = Opener(Gate::default());
    let address: SocketAddr =
        runtime.listen("127.0.0.1:0", opener.0.clone())?.local_addr().to_string().parse()?;
    let handle = runtime.handle();
    let stats = handle.clone();
    // Each receive of this protocol is a request, and the admin's own are few.
    let admin = Admin::new(&runtime, move || stats.stats().get(Counter::Receives));
    let admin = handle.with_class(Class::Admin).listen("127.0.0.1:0", admin)?;
    let admin: Target = admin.local_addr().to_string().parse()?;

    writeln!(
        out,
        "{WAITERS} handlers wait, announced, for what request {} does; {THREADS} threads, and what \
         `echo top` shows:",
        WAITERS + 1
    )?;
    out.flush()?;
    let before = handle.stats();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let mut stream = connect(address)?;
        stream.write_all(&[WAIT])?;
        waiters.push(stream);
    }
    let all_wait = |stats: &Snapshot| stats.stalled_threads == WAITERS as u64;
    let during = reach(&handle, "all handlers wait", all_wait)?;
    let (seen, frame) = top::once(&admin, Duration::from_millis(100))?;
    if seen.value("stalled_threads") != WAITERS as f64 {
        let seen = seen.value("stalled_threads");
        return Err(format!("{WAITERS} handlers wait, but top saw {seen}").into());
    }

    let asked = Instant::now();
    let mut last = connect(address)?;
    last.write_all(&[OPEN])?;
    answered(&mut last, OPEN)?;
    let took = asked.elapsed();
    for waiter in &mut waiters {
        answered(waiter, WAIT)?;
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
    for line in frame.lines() {
        writeln!(out, "  | {line}")?;
    }
    writeln!(out)?;
    let steps = [("before", &before), ("during", &during), ("after", &after)];
    threads(out, &steps)?;
    writeln!(
        out,
        "request {} was answered after {}, and all {WAITERS} that waited for it after {}",
        WAITERS + 1,
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

fn connect(address: SocketAddr) -> Result<TcpStream, Box<dyn Error>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn answered(stream: &mut TcpStream, request: u8) -> Result<(), Box<dyn Error>> {
    let mut answer = [0];
    stream.read_exact(&mut answer).map_err(|error| format!("no answer: {error}"))?;
    if answer != [request] {
        return Err(format!("{request:#04x} was answered by {:#04x}", answer[0]).into());
    }
    Ok(())
}

/// Looks until it is so.
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

fn threads(out: &mut impl Write, steps: &[(&str, &Snapshot)]) -> Result<(), Box<dyn Error>> {
    write!(out, "threads ")?;
    for heading in ["base", "dynamic", "tasker", "reserve", "waiting", "left"] {
        write!(out, "{heading:>9}")?;
    }
    writeln!(out, "   started because")?;
    for (name, stats) in steps {
        write!(out, "{name:<8}")?;
        for count in [
            stats.base_threads,
            stats.dynamic_threads,
            stats.tasker_threads,
            stats.reserve_threads,
            stats.stalled_threads,
            stats.get(Counter::ThreadsLeft),
        ] {
            write!(out, "{count:>9}")?;
        }
        writeln!(out, "   {}", started(stats))?;
    }
    Ok(())
}
