//! Groups of workers around a shared epoll: tasks, readiness and timers. It knows nothing of bytes.
//!
//! A runtime's life: [`Builder::start`] makes the groups and starts their threads;
//! sources, timers and tasks come and go through [`Handle`]; [`Runtime::drain`] ends what is in
//! progress, stops the threads and joins them. Dropping a runtime drains it with a short deadline.
//!
//! Two runtimes in one process know nothing of each other.

mod alarm;
mod aside;
mod batch;
mod binding;
mod builder;
mod class;
mod climb;
mod cost;
mod crew;
mod dispatch;
mod drain;
mod draining;
mod end;
mod ending;
mod foreign;
mod group;
mod handle;
mod lanes;
mod mode;
mod noise;
mod park;
pub mod placement;
mod queue;
mod reserve;
mod room;
mod scale;
mod seat;
mod seats;
#[cfg(feature = "internal")]
mod simulated;
mod slots;
pub(crate) mod source;
mod stalls;
mod starved;
mod task;
mod threads;
mod timer;
mod timers;
mod timing;
mod usage;
mod watch;
mod watchdog;
mod work;
mod worker;

pub use builder::{Builder, StartError};
pub use class::Class;
pub use drain::DrainReport;
pub use foreign::Registration;
pub use handle::{Handle, SpawnError};
pub use source::Turn;
pub use threads::{ThreadInfo, ThreadKind};
pub use timers::Timer;

pub(crate) use cost::Cost;
pub(crate) use cost::Pace;
pub(crate) use group::Group;
pub(crate) use noise::{Topic, log, log_some};
#[cfg(feature = "internal")]
pub(crate) use queue::TaskQueue;
#[cfg(feature = "internal")]
pub(crate) use simulated::{Ran, Simulated};
pub(crate) use slots::Token;
pub(crate) use source::Lent;
pub(crate) use stalls::Lap;
pub(crate) use task::{Serving, contain, guard, note_panic};
#[cfg(feature = "internal")]
pub(crate) use timer::TimerHeap;
pub(crate) use timer::TimerId;
pub(crate) use timers::{Excuse, after, is_late};
pub(crate) use usage::leaves_room;
pub(crate) use usage::{Origin, Usage};
pub(crate) use work::Work;

pub use crate::sys::epoll::{Interest, Readiness};

use std::sync::{Arc, Mutex};
use std::time::Duration;

use threads::Threads;
use watch::Watch;

use crate::config::{Config, ReconfigureError, Settings};
use crate::stats::Snapshot;
use crate::sync::stall;

/// Owns the groups and their threads.
///
/// Everything else refers to it by [`Handle`].
///
/// It belongs to the process that started it. In one that was made by `fork` without `exec` it has no
/// threads, and its descriptors are those of its parent: there, to drain or drop it does nothing, and
/// nothing else should be done with it or with what came from it.
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    drained: bool,
    /// The process that started it.
    process: u32,
}

impl Runtime {
    /// Starts to configure one.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A handle: what threads, handlers and timers use.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What was counted so far, and how things stand.
    #[must_use]
    pub fn stats(&self) -> Snapshot {
        self.handle.stats()
    }

    /// The tunables as they are now.
    #[must_use]
    pub fn config(&self) -> Config {
        self.handle.config()
    }

    /// Changes tunables while the runtime runs, see [`Handle::reconfigure`].
    ///
    /// # Errors
    ///
    /// Nothing was changed: see [`ReconfigureError`].
    pub fn reconfigure(
        &self,
        change: impl FnMut(Config) -> Config,
    ) -> Result<(), ReconfigureError> {
        self.handle.reconfigure(change)
    }

    /// Empties the histograms, see [`Handle::reset_histograms`].
    pub fn reset_histograms(&self) {
        self.handle.reset_histograms();
    }

    /// Ends the runtime in good order.
    ///
    /// 1. Listeners accept what waits in their backlog and close. Each accepted connection is served
    ///    what has arrived on it, its replies leave, and it is closed; idle ones at once. Outgoing
    ///    connections go on as if nothing had happened, because requests in progress may wait for
    ///    their answers; but new ones are [refused](crate::net::ConnectError::Draining), also when
    ///    they are to replace one that broke.
    /// 2. When no accepted connection is left, the outgoing ones are drained: each is closed as soon
    ///    as nothing [holds](crate::net::Connection::hold) it, and receives until then.
    /// 3. What is not done at the deadline is cut, whatever it is. Then the threads are joined; one
    ///    that is still inside a handler, or the destructor of a thread-local, is left to itself and named
    ///    in the report.
    ///
    /// So an accepted connection must not wait for an outgoing one to end: nothing ends that before
    /// the deadline. Whoever passes bytes between the two closes the outgoing one when the accepted
    /// one [drains](crate::net::Protocol::draining) or is closed. And a runtime that connects to a
    /// listener of its own gets no answer there to what it asks during the drain.
    ///
    /// On one of the runtime's own workers (in a handler) this does not wait for that worker.
    #[must_use = "the report says what was cut"]
    pub fn drain(mut self, deadline: Duration) -> DrainReport {
        self.drain_in_place(deadline)
    }

    fn drain_in_place(&mut self, deadline: Duration) -> DrainReport {
        self.drained = true;
        if self.process != std::process::id() {
            // Connections would be ended that are the parent's.
            return DrainReport::default();
        }
        let drain = || drain::drain(&self.handle.shared, deadline);
        if self.handle.shared.threads.is_one() {
            // Its own worker: a thread added to a runtime that ends would only be in the way.
            return drain();
        }
        // The caller may be a worker of another runtime, whose other tasks must go on.
        stall::run(drain)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.drained {
            let _ = self.drain_in_place(DROP_DEADLINE);
        }
    }
}

/// How long a dropped runtime may finish what is in progress.
const DROP_DEADLINE: Duration = Duration::from_millis(100);

/// What a runtime's handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    groups: Vec<Arc<Group>>,
    usage: Arc<Usage>,
    settings: Arc<Settings>,
    threads: Arc<Threads>,
    watch: Arc<Watch>,
    /// Held by who switches the histograms as configured.
    switching: Mutex<()>,
    /// Deals tasks and connections round. Statistics.
    next_group: std::sync::atomic::AtomicUsize,
}
