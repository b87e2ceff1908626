//! The load generator for sessions: many sessions on few connections, driven by very few threads.
//!
//! Each session has one request in flight and asks again as soon as it has its answer: a closed
//! loop. What the sessions of a connection ask at the same time goes out in one write, as the
//! protocol's Java client does it. Each answer is checked: the order of its frames, the number of
//! rows, and the value that was asked for. A thread has connections of its own and nothing else to
//! do, so the load costs little beside the server that it shares the machine with.
//!
//! 1. Every connection logs in and opens its sessions, one connection after the other.
//! 2. [`Load::run_for`] lets all of them ask, waits for what is still in flight, and reports.
//!    Between windows everything is quiet.

mod answer;
mod driver;
mod login;
mod peer;
mod question;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hdrhistogram::Histogram;

pub use question::Question;

use driver::Driver;

/// The account that both sides of a comparison use.
pub const USER: &str = "bench";
pub const PASSWORD: &str = "bench";

/// What a server is loaded with.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub connections: usize,
    /// All connections together, spread evenly.
    pub sessions: usize,
    pub question: Question,
    /// Point selects ask for an id from 1 to this.
    pub rows: u32,
    /// Threads of the load generator.
    pub threads: usize,
}

/// Open sessions. Quiet except inside [`Load::run_for`].
#[derive(Debug)]
pub struct Load {
    drivers: Vec<Remote>,
    answers_total: u64,
}

/// One window: all requests that were asked in it, each with its answer.
#[derive(Debug)]
pub struct Report {
    pub requests: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Nanoseconds.
    pub hist: Histogram<u64>,
    /// CPU time of the threads that asked.
    pub client_cpu: Duration,
    /// Requests that had to be sent again with their text, because it was not in the server's cache.
    pub misses: u64,
    /// Connections given up in this window.
    pub errors: u64,
    pub first_error: Option<String>,
}

/// A driver in its thread. Without its commands, the thread ends.
#[derive(Debug)]
struct Remote {
    commands: Option<Sender<Duration>>,
    reports: Receiver<io::Result<Report>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Opens all connections and sessions.
    ///
    /// # Errors
    /// The first connection that cannot be opened, or whose server does not answer as it should.
    pub fn connect(address: SocketAddr, shape: &Shape) -> Result<Self, Box<dyn Error>> {
        let connections = shape.connections.min(shape.sessions);
        let threads = shape.threads.min(connections).max(1);
        let mut drivers = Vec::new();
        for part in parts(0..connections, threads) {
            let mut driver = Driver::new(shape.question, shape.rows, part.start as u64 + 1)?;
            for connection in part {
                let sessions = parts(0..shape.sessions, connections).nth(connection);
                driver.add(connection, address, sessions.map_or(0, |range| range.len()))?;
            }
            drivers.push(Remote::start(driver)?);
        }
        Ok(Self { drivers, answers_total: 0 })
    }

    /// Asks for so long, then waits for what is in flight. May be called again and again.
    ///
    /// # Errors
    /// Only when a poller itself fails; what happens to a connection is in the report.
    pub fn run_for(&mut self, time: Duration) -> io::Result<Report> {
        for driver in &self.drivers {
            driver.begin(time)?;
        }
        let mut whole = Report::empty();
        for driver in &self.drivers {
            whole.add(driver.report()?)?;
        }
        self.answers_total += whole.requests;
        Ok(whole)
    }

    /// All answers since the sessions were opened.
    pub fn answers_total(&self) -> u64 {
        self.answers_total
    }
}

impl Report {
    fn empty() -> Self {
        Self {
            requests: 0,
            seconds: 0.0,
            hist: driver::latencies(),
            client_cpu: Duration::ZERO,
            misses: 0,
            errors: 0,
            first_error: None,
        }
    }

    fn add(&mut self, part: Self) -> io::Result<()> {
        self.requests += part.requests;
        self.seconds = self.seconds.max(part.seconds);
        self.hist.add(&part.hist).map_err(io::Error::other)?;
        self.client_cpu += part.client_cpu;
        self.misses += part.misses;
        self.errors += part.errors;
        self.first_error = self.first_error.take().or(part.first_error);
        Ok(())
    }
}

impl Remote {
    fn start(mut driver: Driver) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let (outbox, reports) = mpsc::channel();
        let thread = thread::Builder::new().name("load".to_owned()).spawn(move || {
            for time in inbox {
                if outbox.send(driver.run_for(time)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { commands: Some(commands), reports, thread: Some(thread) })
    }

    fn begin(&self, time: Duration) -> io::Result<()> {
        let sent = self.commands.as_ref().map(|commands| commands.send(time));
        sent.and_then(Result::ok).ok_or_else(gone)
    }

    fn report(&self) -> io::Result<Report> {
        self.reports.recv().map_err(|_| gone())?
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // It panicked: then nobody has its report, and somebody has failed for that.
            let _ = thread.join();
        }
    }
}

/// Cuts a range into so many, which differ by one at the most.
pub fn parts(range: Range<usize>, count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).map(move |part| range.len() * part / count..range.len() * (part + 1) / count)
}

fn gone() -> io::Error {
    io::Error::other("a thread of the load generator has panicked")
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} sessions over {}", self.question, self.sessions, self.connections)
    }
}
