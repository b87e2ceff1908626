//! `load`: sessions that ask again and again, through the client library.
//!
//! ```text
//!   ┌─▶ ask ──send──▶ (no thread waits) ──answer, on a worker──▶ check ──▶ count ─┐
//!   └────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Each session has one request in flight: a closed loop of callbacks, so that a thousand sessions
//! take no more threads than one. A session that dies is replaced by another. The cheaper generator
//! of `sessions.rs` is for benches: it has frames of its own and knows nothing of a client.

mod asking;
mod mode;
mod report;
use lab::load::sys;
mod tally;

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::client::{Client, Options, Session};
use epoll_group::codec::value::Value;

use crate::args::Load as Args;
use crate::cpu;
use crate::node::Node;
use crate::terminal::ProgressLine;
use crate::units::Count;

pub(crate) use mode::Mode;

use asking::{Asking, Shared};
use report::Report;

const SCHEMA: &str = "sbtest";
const ROWS: u32 = 100_000;
/// How long a request may take, and how long the end of the window waits for answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Logins at the same time.
const CONNECTING: usize = 16;

/// Loads a server and prints how it went.
///
/// # Errors
/// It cannot be reached, an answer was wrong, or a request failed.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    sys::raise_descriptor_limit()?;
    let mut own = None;
    let address = match &args.connect {
        Some(address) => address.clone(),
        None => {
            let runtime = Runtime::builder().name("select1").start()?;
            let node = Node::start(runtime, (&args.user, &args.password), SCHEMA, ROWS)?;
            own.insert(node).address().to_string()
        }
    };
    let runtime = Runtime::builder().name("load").start()?;
    let client = Client::new(&runtime.handle(), options(args, address))?;
    let report = load(&client, &runtime, args, own.is_none())?;
    client.close();
    if args.json {
        report.json(args, out)?;
    } else {
        report.print(args, out)?;
    }
    out.flush()?;
    report.verdict()
}

fn options(args: &Args, address: String) -> Options {
    let connections = args.connections.min(args.sessions);
    Options::new(address, args.user.as_str())
        .password(args.password.as_str())
        .connections(connections)
        // Each has its share from the beginning.
        .sessions_per_connection(args.sessions.div_ceil(connections))
        .max_connecting(connections.min(CONNECTING))
        .request_timeout(PATIENCE)
        .session_timeout(PATIENCE)
}

/// Opens the sessions, lets them ask, and counts. `apart`: the server is another process, so that the
/// CPU time of this one is the load's.
fn load(
    client: &Client,
    runtime: &Runtime,
    args: &Args,
    apart: bool,
) -> Result<Report, Box<dyn Error>> {
    let rows = match args.rows {
        Some(rows) => rows,
        None if args.mode.is_point() => highest_id(client)?,
        None => 1,
    };
    let sessions = open(client, args.sessions)?;
    let shared = Arc::new(Shared {
        client: client.clone(),
        handle: runtime.handle(),
        mode: args.mode,
        rows,
        stop: AtomicBool::new(false),
        tallies: tally::several(),
    });
    let cpu = cpu::of_process();
    let begun = Instant::now();
    let (hold, ended) = mpsc::channel();
    for (place, session) in sessions.into_iter().enumerate() {
        Asking::new(&shared, session, place, hold.clone()).ask();
    }
    drop(hold);
    watch(&shared, &ended, begun + args.time);
    shared.stop.store(true, Ordering::Relaxed);
    let last = Instant::now() + PATIENCE + PATIENCE;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PATIENCE) {
        if Instant::now() > last {
            return Err("some requests have neither an answer nor an error".into());
        }
    }
    let cpu = cpu::of_process().saturating_sub(cpu);
    let total = tally::total(&shared.tallies);
    let time = total.last.map_or(Duration::ZERO, |last| last.duration_since(begun));
    Ok(Report { total, time, client_cpu: apart.then_some(cpu) })
}

/// A line each second until `end`, or until no session asks any more.
fn watch(shared: &Shared, ended: &Receiver<()>, end: Instant) {
    let mut line = ProgressLine::new();
    let begun = Instant::now();
    let mut before = 0;
    let mut next = begun;
    while next < end {
        let since = next;
        next = end.min(next + Duration::from_secs(1));
        let left = next.saturating_duration_since(Instant::now());
        if ended.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let (answers, failures) = tally::progress(&shared.tallies);
        let rate = (answers - before) as f64 / (next - since).as_secs_f64();
        before = answers;
        let seconds = begun.elapsed().as_secs_f64();
        let rate = Count(rate.round());
        line.each(format_args!("{seconds:4.1} s  {rate:>9} requests/s  {failures} failures"));
    }
    line.clear();
}

fn open(client: &Client, count: usize) -> Result<Vec<Session>, Box<dyn Error>> {
    let (give, given) = mpsc::channel();
    for _ in 0..count {
        let give = give.clone();
        client.session_then(move |session| {
            // After the first error nobody listens.
            let _ = give.send(session);
        });
    }
    Ok(given.iter().take(count).collect::<Result<_, _>>()?)
}

/// What point selects may ask for.
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
