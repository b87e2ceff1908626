//! Loads a server: clients that ask again and again, in the shape of etcd's benchmark tool.
//!
//! ```text
//!   ┌─▶ ask ──send──▶ (no thread waits) ──answer, on a worker──▶ check ──▶ count ─┐
//!   └────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Each client is a session with one request in flight: a closed loop of callbacks, so that a thousand
//! clients take no more threads than one. What is asked depends on the seed and the number of the
//! request alone. Every answer is checked:
//!
//! * a put has a revision that no other put has, and that is above all that its client has seen
//! * a read sees what its client has seen; it finds the keys that were asked for, and at each a value
//!   that was written for it, whole

mod asking;
mod bars;
mod keys;
mod progress;
mod question;
mod summary;
mod tally;
mod values;
mod workload;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::client::{Client, Session};

pub use keys::Keys;
pub use progress::{Lines, Progress};
pub use question::Shape;
pub use summary::Summary;
pub use workload::{Until, Workload};

use asking::{Asking, Shared};

use crate::units::Count;

/// Who loads which server.
#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT`, or `unix:PATH`.
    pub address: String,
    /// Who logs in.
    pub user: String,
    /// What shows it.
    pub password: String,
    /// Sessions, each with one request in flight.
    pub clients: usize,
    /// Connections that they share.
    pub connections: usize,
}

/// Clients of a server.
#[derive(Debug)]
pub struct Load {
    client: Client,
    runtime: Runtime,
    clients: usize,
    shape: Shape,
}

/// How long a request may take, and how long the end of a load waits for answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// Logins at the same time.
const CONNECTING: usize = 16;
/// How often progress is told.
const TICK: Duration = Duration::from_millis(100);

impl Load {
    /// Clients that ask for such keys and write such values. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// Options or shape make no sense, or there are no threads to be had.
    pub fn new(options: &Options, shape: Shape) -> Result<Self, Box<dyn Error>> {
        shape.check()?;
        let runtime = Runtime::builder().name("load").start()?;
        let connections = options.connections.min(options.clients);
        let settings =
            epoll_group::client::Options::new(options.address.as_str(), options.user.as_str())
                .password(options.password.as_str())
                .connections(connections)
                // Each has its share from the beginning.
                .sessions_per_connection(options.clients.div_ceil(connections.max(1)))
                .max_connecting(connections.min(CONNECTING))
                .request_timeout(PATIENCE)
                .session_timeout(PATIENCE);
        let client = Client::new(&runtime.handle(), settings)?;
        Ok(Self { client, runtime, clients: options.clients, shape })
    }

    /// Puts every key once: reads need them.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run), and anything that went wrong.
    pub fn fill(&self, progress: Progress) -> Result<(), Box<dyn Error>> {
        let (workload, until) = Workload::fill(&self.shape);
        self.run(workload, until, progress)?.verdict()
    }

    /// Asks, checks and counts.
    ///
    /// # Errors
    ///
    /// The workload makes no sense, there are no sessions to be had, or answers do not come. What goes
    /// wrong with single requests is counted.
    pub fn run(
        &self,
        workload: Workload,
        until: Until,
        mut progress: Progress,
    ) -> Result<Summary, Box<dyn Error>> {
        workload.check(&self.shape)?;
        let sessions = self.open()?;
        let shared = Arc::new(Shared {
            client: self.client.clone(),
            handle: self.runtime.handle(),
            shape: self.shape,
            workload,
            requests: if let Until::Requests(requests) = until { requests } else { u64::MAX },
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            tallies: tally::several(),
        });
        let begun = Instant::now();
        let (hold, ended) = mpsc::channel();
        for (place, session) in sessions.into_iter().enumerate() {
            Asking::begin(&shared, session, place, hold.clone());
        }
        drop(hold);
        watch(&shared, &ended, until, begun, &mut progress);
        shared.stop.store(true, Ordering::Relaxed);
        let last = Instant::now() + PATIENCE + PATIENCE;
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PATIENCE) {
            if Instant::now() > last {
                return Err("some requests have neither an answer nor an error".into());
            }
        }
        let total = tally::total(&shared.tallies);
        let time = total.last.map_or(Duration::ZERO, |last| last.duration_since(begun));
        let summary = Summary::new(total, time);
        progress.finish(told(summary.per_second(), summary.failures()));
        Ok(summary)
    }

    fn open(&self) -> Result<Vec<Session>, Box<dyn Error>> {
        let (give, given) = mpsc::channel();
        for _ in 0..self.clients {
            let give = give.clone();
            self.client.session_then(move |session| {
                // After the first error nobody listens.
                let _ = give.send(session);
            });
        }
        Ok(given.iter().take(self.clients).collect::<Result<_, _>>()?)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.client.close();
    }
}

/// Tells how far it is until it is over, or no client asks any more.
fn watch(
    shared: &Shared,
    ended: &Receiver<()>,
    until: Until,
    begun: Instant,
    progress: &mut Progress,
) {
    loop {
        let tick = match until {
            Until::Requests(_) => TICK,
            Until::Time(time) => TICK.min(time.saturating_sub(begun.elapsed())),
        };
        if tick.is_zero() || ended.recv_timeout(tick) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let (answers, failures) = tally::progress(&shared.tallies);
        let seconds = begun.elapsed().as_secs_f64();
        let done = match until {
            Until::Requests(requests) => answers as f64 / requests as f64,
            Until::Time(time) => seconds / time.as_secs_f64(),
        };
        progress.update(done, told(answers as f64 / seconds, failures));
    }
}

fn told(per_second: f64, failures: u64) -> String {
    let rate = Count(per_second.round());
    match failures {
        0 => format!("{rate} requests/s"),
        _ => format!("{rate} requests/s, {failures} failures"),
    }
}
