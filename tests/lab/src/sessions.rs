//! Load of a server of sessions: many sessions on few connections, driven by very few threads.
//!
//! Each session has one request in flight and asks again as soon as it has its answer. Requests that the
//! sessions of a connection make at the same time leave in one write, as the protocol's Java client does
//! it. Each answer is checked: the order of its frames, the number of rows, and the values.
//!
//! 1. Every connection logs in and opens its sessions, one connection after the other.
//! 2. [`Load::run_for`] lets all of them ask, waits for what is still in flight, and reports.
//!    Between windows everything is quiet.

mod answer;
mod conversation;
pub mod login;
mod question;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use conversation::Statements;
pub use question::Question;

pub use crate::load::Report;

use crate::load::{Conversation, Driver, Habit, Pause, run_together, session_id};
use question::Asker;

/// The account that both sides of a comparison use.
pub const USER: &str = "bench";
pub const PASSWORD: &str = "bench";

/// Load of a server.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub connections: usize,
    /// Sessions of all connections together, spread evenly.
    pub sessions: usize,
    pub question: Question,
    /// Point selects ask for an id from 1 to this.
    pub rows: u32,
    /// Threads of the load generator.
    pub threads: usize,
}

/// Open sessions. They are quiet except inside [`Load::run_for`].
#[derive(Debug)]
pub struct Load<C = Statements> {
    drivers: Vec<Driver<C>>,
}

/// A server that starts hundreds of threads at a time takes a while.
const LOGIN_PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);

impl Load {
    /// Opens all connections and sessions.
    ///
    /// # Errors
    /// The first connection that cannot be opened, or whose server does not answer as it should.
    pub fn connect(address: SocketAddr, shape: &Shape) -> Result<Self, Box<dyn Error>> {
        let asker = Arc::new(Asker::new(shape.question, shape.rows));
        Self::connect_with(
            address,
            (shape.connections, shape.sessions, shape.threads),
            |connection, sessions| Statements::new(connection, sessions, &asker),
        )
    }
}

impl<C: Conversation + Send> Load<C> {
    /// The same with other questions. `conversation` makes those of a connection from its number and that of its
    /// sessions. The numbers are connections, sessions and threads, as in [`Shape`].
    ///
    /// # Errors
    /// Those of [`connect`](Load::connect).
    pub fn connect_with(
        address: SocketAddr,
        (connections, all_sessions, threads): (usize, usize, usize),
        conversation: impl Fn(usize, usize) -> C,
    ) -> Result<Self, Box<dyn Error>> {
        let connections = connections.min(all_sessions);
        let threads = threads.min(connections).max(1);
        let mut drivers = Vec::new();
        for part in parts(0..connections, threads) {
            let mut driver = Driver::new(PATIENCE, part.start as u64)?;
            for connection in part {
                let sessions = parts(0..all_sessions, connections).nth(connection);
                let sessions = sessions.map_or(0, |range| range.len());
                let ids = (0..sessions as u32).map(|session| session_id(connection, session));
                let (socket, _) = login::connect(address, (USER, PASSWORD), ids, LOGIN_PATIENCE)
                    .map_err(|error| format!("connection {connection} to {address}: {error}"))?;
                let conversation = conversation(connection, sessions);
                let sessions = sessions as u32;
                let habit = Habit { sessions, pipeline: 1, pause: Pause::None, heavy: false };
                driver.add(socket, conversation, habit)?;
            }
            drivers.push(driver);
        }
        Ok(Self { drivers })
    }

    /// Asks for this long, then waits for what is in flight. May be called again and again.
    ///
    /// # Errors
    /// Epoll fails. Failures of connections are in the report.
    pub fn run_for(&mut self, time: Duration) -> io::Result<Report> {
        run_together(&mut self.drivers, time, || Ok(()))
    }

    /// All answers since the sessions were opened.
    pub fn answers_total(&self) -> u64 {
        self.drivers.iter().map(Driver::answers_total).sum()
    }
}

/// Cuts a range into this many parts, which differ by one at most.
pub fn parts(range: Range<usize>, count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).map(move |part| range.len() * part / count..range.len() * (part + 1) / count)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} sessions over {}", self.question, self.sessions, self.connections)
    }
}
