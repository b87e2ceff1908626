//! A server that is simulated: its sessions, connections, tasks and timers on one thread, a step at a
//! time, by a clock and random numbers of whoever steps.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::StartError;
use socket2::{Domain, Socket, Type};

use crate::config::{Config, ReconfigureError};
use crate::net::{Address, Connection, Served};
use crate::runtime::{self, Ran};
use crate::session::{Server, Service};
use crate::stats::Snapshot;
use crate::sys::{clock, random};

#[cfg(feature = "client")]
pub use crate::client::simulated::{Asking, Connection as Client};

/// From now on it is `now` on this thread; with `None` the system's clock says.
pub fn set_time(now: Option<Instant>) {
    clock::simulate(now);
}

/// From now on random numbers are those of `seed` on this thread; with `None` the system's.
pub fn set_random(seed: Option<u64>) {
    random::simulate(seed);
}

/// Two ends of a connection, which do not block, with so much room in each direction; with 0 as much as the
/// system gives.
///
/// # Errors
///
/// What the system says.
pub fn socket_pair(room: usize) -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
    for end in [&ours, &theirs] {
        end.set_nonblocking(true)?;
        if room > 0 {
            end.set_send_buffer_size(room)?;
        }
    }
    Ok((ours.into(), theirs.into()))
}

/// A server without threads. What it does is said by its steps; each can be taken from within another,
/// in a call of the service, as if other threads went on meanwhile.
pub struct Simulated {
    runtime: runtime::Simulated,
    served: Served,
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// An event was delivered, or queued.
    Event,
    /// A connection was run that had been queued.
    Connection,
    /// A session was.
    Session,
    /// A timer's code was.
    Timer,
    /// What was left of something was dropped.
    Remains,
}

impl Simulated {
    /// A server with these tunables, and one group or `epoll_groups`.
    ///
    /// # Errors
    ///
    /// A tunable out of its range, or what the system says to new descriptors.
    pub fn new(config: Config, service: impl Service) -> Result<Self, StartError> {
        let served = Served::new(Server::new(service));
        Ok(Self { runtime: runtime::Simulated::new(config)?, served })
    }

    /// Serves a socket, which does not block, of a client from there. `None`: there are too many.
    pub fn accept(&self, socket: impl Into<OwnedFd>, peer: Address) -> Option<Connection> {
        self.served.accept(self.runtime.group(), socket.into(), peer)
    }

    /// Takes the events that there are in hand, and says how many.
    pub fn take_events(&self) -> usize {
        self.runtime.take_events()
    }

    /// Takes the next task in hand: that of a worker's turn, or an ordinary one if there is any. Says
    /// whether there was one.
    pub fn take_task(&self, ordinary_first: bool) -> bool {
        self.runtime.take_task(ordinary_first)
    }

    /// Events and tasks in hand.
    pub fn in_hands(&self) -> usize {
        self.runtime.in_hands()
    }

    /// Tasks that were not taken in hand.
    pub fn queued(&self) -> usize {
        self.runtime.queued()
    }

    /// Largest number of tasks that were queued after another and taken before it.
    pub fn most_overtakes(&self) -> usize {
        self.runtime.most_overtakes()
    }

    /// Changes the tunables that may change while the server runs.
    ///
    /// # Errors
    ///
    /// A tunable is out of its range, or counts at the start only.
    pub fn reconfigure(
        &self,
        change: impl FnMut(Config) -> Config,
    ) -> Result<(), ReconfigureError> {
        self.runtime.handle().reconfigure(change)
    }

    /// Does one of those in hand. An event is delivered as if it was the first of `turn` that were
    /// received together, or queued with 0.
    ///
    /// # Panics
    ///
    /// There are not so many.
    pub fn run(&self, which: usize, turn: usize) -> Step {
        let turn = (turn > 0).then_some((0, turn));
        match self.runtime.run(which, turn) {
            Ran::Event => Step::Event,
            Ran::Source => Step::Connection,
            Ran::Work => Step::Session,
            Ran::Closure => Step::Timer,
            Ran::Remains => Step::Remains,
        }
    }

    /// Queues the timers that are due.
    pub fn fire_due(&self) {
        self.runtime.fire_due();
    }

    /// When a timer is due next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.runtime.next_deadline()
    }

    /// The drain begins.
    pub fn start_draining(&self) {
        self.runtime.start_draining();
    }

    /// Its deadline has come: what is left is cut.
    pub fn cut(&self) {
        self.runtime.end_draining(true);
    }

    /// Connections, closures and sessions whose work goes first.
    pub fn urgent_units(&self) -> usize {
        self.runtime.handle().usage().urgent_units()
    }

    /// What was counted so far, and how things stand.
    pub fn stats(&self) -> Snapshot {
        self.runtime.handle().stats()
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated").field("in_hands", &self.in_hands()).finish_non_exhaustive()
    }
}
