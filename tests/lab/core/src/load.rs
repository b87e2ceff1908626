//! Load generators: many connections on one thread, each answer checked.
//!
//! The [`Driver`] has everything that all loads share: sockets, epoll, pauses, windows of time, latencies
//! and failures. A [`Conversation`] has what differs: the next question of a session, and the check of
//! its answer.
//!
//! ```text
//!            ask                 send                     receive             take
//!  session ──────▶ out buffer ─────────▶ socket … socket ─────────▶ bytes ──────────▶ answers
//!     ▲                                                                                  │
//!     └────────────────────────── at once, or after a pause ◀────────────────────────────┘
//! ```
//!
//! The loop is closed: a session asks again once it has its answer. A slow server is therefore asked
//! less often, so compare latencies only between servers that answer equally fast.
//!
//! [`Load`] drives frames that an echo server sends back, [`Churn`] connections that ask once.
//! `lab::sessions` drives statements, and `lab::abuse::bystanders` the sessions beside an attack.

use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;

mod churn;
mod driver;
mod frames;
mod question;
mod socket;
pub mod sys;

pub use crate::address::Address as Target;
pub use churn::Churn;
pub use driver::{Driver, Habit, Pause, Progress};
pub use frames::{Frames, Heavy, Load, Options, Pace, session_id};
pub use question::HEADER_BYTES;
pub use socket::{connect, prepare};
pub use sys::raise_descriptor_limit;

/// One connection of a load: its questions, and the check of its answers.
///
/// A connection carries sessions, numbered from 0. The answers of one session arrive in the order of
/// its questions.
pub trait Conversation {
    /// Appends the next question of a session to `out`.
    fn ask(&mut self, session: u32, out: &mut Vec<u8>);

    /// Takes the next bytes that have arrived. Appends each complete answer to `answers`, and whatever
    /// the protocol makes the client send in between to `out`.
    ///
    /// # Errors
    /// Description of bytes after which the connection cannot go on.
    fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), String>;
}

/// A complete answer to the oldest open question of a session.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub session: u32,
    /// The difference to the right answer, if there is one. The connection goes on.
    pub wrong: Option<String>,
}

/// One window: every question that was asked in it is answered or has failed.
#[derive(Clone)]
pub struct Report {
    pub asked: u64,
    /// Right answers to light connections.
    pub requests: u64,
    /// Right answers to heavy connections.
    pub heavy_requests: u64,
    /// Questions with a wrong answer, or with none because their connection was given up.
    pub failed: u64,
    /// From the first question to the last answer.
    pub seconds: f64,
    /// Nanoseconds from question to answer, light connections.
    pub hist: Histogram<u64>,
    /// Nanoseconds from question to answer, heavy connections.
    pub heavy_hist: Histogram<u64>,
    /// CPU time of the threads that asked.
    pub client_cpu: Duration,
    /// Connections given up.
    pub errors: u64,
    /// Connections among them whose server did not answer in time.
    pub silent: u64,
    pub first_error: Option<String>,
}

/// Latencies beyond this are counted as this.
const LONGEST_LATENCY: Duration = Duration::from_secs(3600);

impl Report {
    /// A window without questions.
    pub fn new() -> Self {
        Self {
            asked: 0,
            requests: 0,
            heavy_requests: 0,
            failed: 0,
            seconds: 0.0,
            hist: latencies(),
            heavy_hist: latencies(),
            client_cpu: Duration::ZERO,
            errors: 0,
            silent: 0,
            first_error: None,
        }
    }

    /// True if each question was answered or has failed.
    pub fn is_complete(&self) -> bool {
        self.asked == self.requests + self.heavy_requests + self.failed
    }

    /// Latency that this part of the light answers does not exceed.
    pub fn quantile(&self, part: f64) -> Duration {
        Duration::from_nanos(self.hist.value_at_quantile(part))
    }

    /// Right answers a second, light connections.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds.max(1e-9)
    }

    /// Adds a window that followed this one.
    pub fn add(&mut self, next: &Self) {
        self.merge(next);
        self.seconds += next.seconds;
    }

    /// Adds everything but the time.
    fn merge(&mut self, other: &Self) {
        self.asked += other.asked;
        self.requests += other.requests;
        self.heavy_requests += other.heavy_requests;
        self.failed += other.failed;
        self.hist.add(&other.hist).expect("the bounds are the same");
        self.heavy_hist.add(&other.heavy_hist).expect("the bounds are the same");
        self.client_cpu += other.client_cpu;
        self.errors += other.errors;
        self.silent += other.silent;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// The report, or the first error as an error.
    ///
    /// # Errors
    /// A connection was given up, or an answer was wrong.
    pub fn checked(self) -> io::Result<Self> {
        match &self.first_error {
            None => Ok(self),
            Some(error) => {
                let text = format!("{} connections failed, first: {error}", self.errors);
                Err(io::Error::other(text))
            }
        }
    }
}

impl fmt::Debug for Report {
    /// Without the histograms, which are long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report")
            .field("asked", &self.asked)
            .field("requests", &self.requests)
            .field("heavy_requests", &self.heavy_requests)
            .field("failed", &self.failed)
            .field("seconds", &self.seconds)
            .field("errors", &self.errors)
            .field("silent", &self.silent)
            .field("first_error", &self.first_error)
            .finish_non_exhaustive()
    }
}

/// Runs one window of several drivers at the same time, each on a thread of its own. Each thread calls
/// `prepare` first.
///
/// # Errors
/// Those of `prepare` and of [`Driver::run_for`].
pub fn run_together<C: Conversation + Send>(
    drivers: &mut [Driver<C>],
    time: Duration,
    prepare: impl Fn() -> io::Result<()> + Sync,
) -> io::Result<Report> {
    let reports: Vec<io::Result<Report>> = thread::scope(|scope| {
        let start = |driver| {
            let run = || {
                prepare()?;
                Driver::run_for(driver, time, |_| ())
            };
            scope.spawn(run)
        };
        let threads: Vec<_> = drivers.iter_mut().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a load does not panic")).collect()
    });
    let mut all = Report::new();
    for report in reports {
        let report = report?;
        all.merge(&report);
        all.seconds = all.seconds.max(report.seconds);
    }
    Ok(all)
}

/// An empty histogram of nanoseconds with three significant digits.
fn latencies() -> Histogram<u64> {
    let longest = LONGEST_LATENCY.as_nanos() as u64;
    Histogram::new_with_bounds(1, longest, 3).expect("the bounds are constants in range")
}
