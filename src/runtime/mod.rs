//! Groups of workers around a shared epoll: tasks, readiness and timers. It knows nothing of bytes.
//!
//! Life of a runtime: [`Builder::start`] makes the groups and starts their threads. Sources, timers
//! and tasks are added and removed through [`Handle`]. [`Runtime::drain`] finishes the work in
//! progress, stops the threads and joins them. A dropped runtime drains with a short deadline.
//!
//! Two runtimes in one process are independent of each other.

mod alarm;
mod binding;
mod builder;
mod class;
mod cost;
mod dispatch;
mod drain;
mod draining;
mod end;
mod ending;
mod foreign;
mod group;
mod growth;
mod handle;
mod mode;
mod noise;
mod park;
mod placement;
mod queue;
mod report;
mod room;
mod run_queues;
mod scale;
mod schedule;
mod sharing;
#[cfg(feature = "internal")]
mod simulated;
mod slots;
pub(crate) mod source;
mod spans;
mod stalls;
mod starting;
mod starved;
mod stealable;
mod task;
mod thread_set;
mod threads;
mod timer;
mod timers;
mod timing;
mod usage;
mod watch;
mod watchdog;
mod work;
mod worker;
mod worker_slot;

pub use builder::{Builder, StartError};
pub use class::Class;
pub use drain::DrainReport;
pub use foreign::Registration;
pub use handle::{Handle, SpawnError};
pub use source::Turn;
pub use threads::{ThreadInfo, ThreadReason};
pub use timers::Timer;
pub use worker_slot::ThreadKind;

pub(crate) use cost::{Cost, Lap, Pace};
pub(crate) use drain::Serving;
pub(crate) use group::Group;
pub(crate) use noise::{Topic, log, log_some};
#[cfg(feature = "internal")]
pub(crate) use queue::TaskQueue;
#[cfg(feature = "status")]
pub(crate) use run_queues::LANES;
#[cfg(feature = "internal")]
pub(crate) use simulated::{Ran, Simulated};
pub(crate) use slots::Token;
pub(crate) use source::WorkerContext;
pub(crate) use spans::in_span;
#[cfg(feature = "spans")]
pub(crate) use spans::run_in_span;
#[cfg(feature = "internal")]
pub(crate) use timer::TimerHeap;
pub(crate) use timer::TimerId;
pub(crate) use timers::{Excuse, after, is_late};
pub(crate) use usage::leaves_room;
pub(crate) use usage::{Origin, Usage};
pub(crate) use work::Work;
#[cfg(feature = "status")]
pub(crate) use worker_slot::WorkerState;

pub use crate::sys::epoll::{Interest, Readiness};

use std::ops::Deref;
use std::time::Duration;

use crate::stall;

/// Owns the groups and their threads.
///
/// All other code refers to it by [`Handle`], whose methods it has.
///
/// A runtime belongs to the process that started it. A child process made by `fork` without `exec`
/// has none of its threads, and shares the descriptors of the parent. There, to drain or drop the
/// runtime does nothing. The child must not use it, or anything obtained from it, in any other way.
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    drained: bool,
    /// Id of the process that started the runtime.
    process: u32,
}

impl Runtime {
    /// Returns a builder with the default configuration.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a handle for threads, handlers and timers.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Ends the runtime in good order.
    ///
    /// 1. Listeners accept the connections in their backlog and close. Each accepted connection is
    ///    served the requests that have arrived, its replies leave, and it is closed. Idle ones
    ///    close at once. Outgoing connections stay open, because requests in progress may wait for
    ///    their answers. But new ones are [refused](crate::net::ConnectError::Draining), even to
    ///    replace a broken one.
    /// 2. When no accepted connection is left, the outgoing ones are drained. Each is closed as
    ///    soon as no request [holds](crate::net::Connection::hold) it, and receives until then.
    /// 3. At the deadline, all that is left is cut. Then the threads are joined. A thread that is
    ///    still inside a handler or a destructor is not joined and is named in the report. In a
    ///    group with such a thread, one more thread ends the rest, even beyond `max_threads`.
    ///
    /// So an accepted connection must not wait for the end of an outgoing one: that ends only at
    /// the deadline. A proxy that passes bytes between the two closes the outgoing one when the
    /// accepted one [drains](crate::net::Protocol::draining) or is closed. If the server still owes
    /// an answer, the proxy [holds](crate::net::Connection::hold) the accepted one until it has
    /// passed that answer, of which the runtime does not know. If a runtime connects to a listener
    /// of its own, its requests on that connection get no answer during the drain.
    ///
    /// If one of the runtime's own workers calls this (in a handler), the drain does not wait for
    /// that worker.
    #[must_use = "the report says what was cut"]
    pub fn drain(mut self, deadline: Duration) -> DrainReport {
        self.drain_in_place(deadline)
    }

    fn drain_in_place(&mut self, deadline: Duration) -> DrainReport {
        self.drained = true;
        if self.process != std::process::id() {
            // The connections belong to the parent process.
            return DrainReport::default();
        }
        // The caller may be a worker, of this runtime or another one, whose other tasks must continue.
        stall::run(|| drain::drain(&self.handle.shared, deadline))
    }
}

impl Deref for Runtime {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.drained {
            let _ = self.drain_in_place(DROP_DEADLINE);
        }
    }
}

/// Time in which a dropped runtime may finish the work in progress.
const DROP_DEADLINE: Duration = Duration::from_millis(100);
