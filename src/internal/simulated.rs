//! Simulated server: its sessions, connections, tasks and timers run on one thread, a step at a
//! time. The caller of the steps supplies the clock and the random numbers.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::{Handle, StartError};
use socket2::{Domain, Socket, Type};

use crate::config::{Config, ReconfigureError};
use crate::net::{Address, Connection, Served};
use crate::runtime::{self, Ran};
use crate::session::{Server, Service, simulate_waits};
use crate::stats::Snapshot;
use crate::sys::{clock, random};

#[cfg(feature = "client")]
pub use crate::client::simulated::{Asking, Connection as Client};

/// Sets the time of this thread to `now`; `None` restores the system's clock.
pub fn set_time(now: Option<Instant>) {
    clock::simulate(now.map(Into::into));
}

/// Replaces the random numbers of this thread with those of `seed`; `None` restores the system's.
/// Pools keep the sequence of the last seed.
pub fn set_random(seed: Option<u64>) {
    random::simulate(seed);
    #[cfg(feature = "pool")]
    seed.into_iter().for_each(fastrand::seed);
}

/// Sets the code that takes a step of the simulation on this thread; `None` makes handlers wait. While
/// a handler waits for its peer, the code is called until the handler is notified. If the code panics,
/// the handler panics.
pub fn set_wait(take_step: Option<fn()>) {
    simulate_waits(take_step);
}

/// Creates two ends of a connection, which do not block, with `room` bytes in each direction. With
/// 0 the size is the system's default.
///
/// # Errors
///
/// Errors of the system calls.
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

/// Server without threads. Its steps do all its work. A call of the service may take steps within a
/// step, as if other threads went on meanwhile.
pub struct Simulated {
    runtime: runtime::Simulated,
    served: Served,
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// An event was delivered, or queued.
    Event,
    /// A queued connection ran.
    Connection,
    /// A queued session ran.
    Session,
    /// The code of a timer ran.
    Timer,
    /// The remains of an ended object were dropped.
    Remains,
}

impl Simulated {
    /// Creates a server with these tunables, and one group or `epoll_groups`.
    ///
    /// # Errors
    ///
    /// A tunable is out of its range, or the system refuses new descriptors.
    pub fn new(config: Config, service: impl Service) -> Result<Self, StartError> {
        let served = Served::new(Server::new(service));
        Ok(Self { runtime: runtime::Simulated::new(config)?, served })
    }

    /// Handle of the runtime, for a client on it.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Serves a non-blocking socket of a client with this address. `None`: there are too many
    /// connections.
    pub fn accept(&self, socket: impl Into<OwnedFd>, peer: Address) -> Option<Connection> {
        self.served.accept(self.runtime.group(), socket.into(), peer)
    }

    /// Takes the present events in hand. Returns their number.
    pub fn take_events(&self) -> usize {
        self.runtime.take_events()
    }

    /// Takes the next task in hand: that of a worker's turn, or first an ordinary one if
    /// `ordinary_first` is set. Returns false if there was none.
    pub fn take_task(&self, ordinary_first: bool) -> bool {
        self.runtime.take_task(ordinary_first)
    }

    /// Events and tasks in hand.
    pub fn in_hands(&self) -> usize {
        self.runtime.in_hands()
    }

    /// Tasks that are queued and not in hand.
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
    /// A tunable is out of its range, or cannot change after the start.
    pub fn reconfigure(
        &self,
        change: impl FnMut(Config) -> Config,
    ) -> Result<(), ReconfigureError> {
        self.runtime.handle().reconfigure(change)
    }

    /// Runs one of the events and tasks in hand. If `turn` is not 0, an event is delivered as the
    /// first of `turn` events that were received together. If it is 0, the event is queued.
    ///
    /// # Panics
    ///
    /// `which` is not below the number of those in hand.
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

    /// Deadline of the next timer.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.runtime.next_deadline().map(Into::into)
    }

    /// Begins the drain.
    pub fn start_draining(&self) {
        self.runtime.start_draining();
    }

    /// Ends the drain at its deadline: cuts the remaining connections.
    pub fn cut(&self) {
        self.runtime.end_draining(true);
    }

    /// Connections, closures and sessions whose work goes first.
    pub fn urgent_units(&self) -> usize {
        self.runtime.handle().usage().urgent_units()
    }

    /// Counters and gauges of the server.
    pub fn stats(&self) -> Snapshot {
        self.runtime.handle().stats()
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated").field("in_hands", &self.in_hands()).finish_non_exhaustive()
    }
}
