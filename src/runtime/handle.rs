//! [`Handle`]: the reference of threads, handlers and timers to a runtime.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::class::Class;
use super::task::Task;
use super::threads::Threads;
use super::watch::Watch;
use super::{Group, Interest, Readiness, Registration, Timer, Usage, foreign, timers};
#[cfg(feature = "status")]
use super::{ThreadInfo, WorkerState};
use crate::config::{Config, ReconfigureError, Settings};
use crate::stats::{Counter, Snapshot};
use crate::sync::shim::atomic::AtomicUsize;
use crate::sync::shim::lock;

/// State shared by the handles of a runtime.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) groups: Vec<Arc<Group>>,
    pub(super) usage: Arc<Usage>,
    pub(super) settings: Arc<Settings>,
    pub(super) threads: Arc<Threads>,
    pub(super) watch: Arc<Watch>,
    /// Held while the histograms are switched on or off.
    pub(super) switching: Mutex<()>,
    /// Counter by which tasks and connections are dealt to the groups in turn. Relaxed: any group
    /// will do.
    pub(super) next_group: AtomicUsize,
}

/// Cheap reference to a runtime, for any thread. It does not keep the runtime alive.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    /// Class of the work that is started through this handle.
    pub(super) class: Class,
}

impl Handle {
    /// Returns a handle of the same runtime for a class. Work that is spawned, set, registered,
    /// connected or accepted through the new handle has this class.
    ///
    /// ```
    /// use epoll_group::{Class, Runtime};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder().start()?;
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let look = move || tell.send("alive").expect("waited for");
    /// runtime.handle().with_class(Class::Admin).spawn(look)?;
    /// assert_eq!(told.recv()?, "alive");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_class(&self, class: Class) -> Self {
        Self { shared: Arc::clone(&self.shared), class }
    }

    /// Returns the class of the work that is started through this handle.
    pub(crate) const fn class(&self) -> Class {
        self.class
    }

    /// Changes tunables while the runtime runs. `change` gets the current ones and returns the new
    /// ones.
    ///
    /// Each thread reads the new tunables at its next turn, and sees all of them or none. `change`
    /// runs again if another change came between.
    ///
    /// # Errors
    ///
    /// See [`ReconfigureError`]: a tunable is out of its range, or cannot change while a runtime
    /// runs, or too many different configurations were used. Then no tunable was changed.
    pub fn reconfigure(
        &self,
        change: impl FnMut(Config) -> Config,
    ) -> Result<(), ReconfigureError> {
        self.shared.settings.update(change)?;
        // The last thread to switch uses the configuration of that moment, whichever change made
        // it.
        let _turn = lock(&self.shared.switching);
        let on = self.settings().enable_perf_hist;
        for group in &self.shared.groups {
            group.histograms.switch(on);
        }
        self.groups()[0].count(Counter::Reconfigured, 1);
        Ok(())
    }

    /// Empties the histograms of [`stats`](Self::stats), whether they are on or off.
    pub fn reset_histograms(&self) {
        for group in &self.shared.groups {
            group.histograms.reset();
        }
    }

    /// Runs a closure on a worker.
    ///
    /// # Errors
    ///
    /// Returns the closure if the task queue is full (`epoll_work_queue_capacity` spawned closures
    /// wait) or the runtime drains.
    pub fn spawn(&self, code: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
        self.spawn_by(boxed(code), Group::try_push)
    }

    /// Like [`spawn`](Self::spawn), but waits for room in a full queue.
    ///
    /// # Errors
    ///
    /// Returns the closure if the runtime drains. Also if the queue is full and the caller is one
    /// of the runtime's workers: if all workers waited for room, none would make any.
    pub fn spawn_wait(&self, code: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
        if self.current_group().is_some() {
            return self.spawn(code);
        }
        self.spawn_by(boxed(code), |group, task| {
            group.push_wait(task, || self.usage().is_draining())
        })
    }

    fn spawn_by(
        &self,
        code: Box<dyn FnOnce() + Send>,
        push: impl Fn(&Group, Task) -> Result<(), Task>,
    ) -> Result<(), SpawnError> {
        let group = self.group_here();
        let refused = |kind, task| match task {
            Task::Run(_, code) => {
                group.count(Counter::SpawnRefused, 1);
                Err(SpawnError { kind, code })
            }
            _ => unreachable!("a push gives back what it was given"),
        };
        if self.usage().is_draining() {
            return refused(Refused::Draining, Task::Run(self.class, code));
        }
        match push(group, Task::Run(self.class, code)) {
            Ok(()) => Ok(()),
            Err(task) if self.usage().is_draining() => refused(Refused::Draining, task),
            Err(task) => refused(Refused::Full(self.settings().epoll_work_queue_capacity), task),
        }
    }

    /// Calls `code` once on a worker, at or after `delay` from now. Delays beyond the clock's range
    /// count as a hundred years. The timer is cancelled when the returned value is dropped.
    pub fn after(&self, delay: Duration, code: impl FnOnce() + Send + 'static) -> Timer {
        timers::after(self.group_here(), self.class, delay, Box::new(code))
    }

    /// Calls `code` repeatedly on a worker, each time `interval` after the last call ended.
    /// Intervals below 1 ms count as 1 ms. The timer is cancelled when the returned value is dropped.
    pub fn every(&self, interval: Duration, code: impl FnMut() + Send + 'static) -> Timer {
        timers::every(self.group_here(), self.class, interval, Box::new(code))
    }

    /// Watches a descriptor of the host (a signalfd, a pipe, a device). When it is ready, a worker
    /// calls `code`, one call at a time.
    ///
    /// The watch is edge-triggered. Each call must read (or write) until the descriptor would
    /// block, so the descriptor must be non-blocking. It is closed when the registration is
    /// dropped.
    ///
    /// # Errors
    ///
    /// The error of the system: regular files, for example, cannot be watched. Also if the runtime
    /// drains.
    pub fn register(
        &self,
        fd: impl Into<OwnedFd>,
        interest: Interest,
        code: impl FnMut(BorrowedFd<'_>, Readiness) + Send + 'static,
    ) -> io::Result<Registration> {
        foreign::register(self.group_here(), self.class, fd.into(), interest, Box::new(code))
    }

    /// Returns the counters and the current state.
    #[must_use]
    pub fn stats(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for group in &self.shared.groups {
            group.add_to(&mut snapshot);
        }
        let usage = self.usage();
        snapshot.connections = usage.connections() as u64;
        snapshot.listeners = usage.listeners() as u64;
        snapshot.silent_connections = usage.silent.get() as u64;
        snapshot.handshakes = usage.handshakes.get() as u64;
        snapshot.buffered_bytes = usage.buffered_bytes() as u64;
        snapshot.paused_connections = usage.paused.get() as u64;
        snapshot.closing_connections = usage.closing.get() as u64;
        snapshot.unauthenticated_connections = usage.unauthenticated.get() as u64;
        snapshot.sessions = usage.sessions() as u64;
        snapshot.queued_requests = usage.queued_requests() as u64;
        snapshot.queued_request_bytes = usage.queued_bytes() as u64;
        snapshot.deferred_requests = usage.deferred.get() as u64;
        snapshot.waiting_writers = usage.waiting_writers.get() as u64;
        snapshot
    }

    /// Returns the threads, each with the time since its start and its state, in the order of groups
    /// and workers.
    #[cfg(feature = "status")]
    pub(crate) fn threads(&self) -> Vec<(ThreadInfo, Duration, WorkerState)> {
        let mut threads = self.shared.threads.present();
        threads.sort_by_key(|(info, _)| (info.group, info.worker));
        let with_state = |(info, age): (ThreadInfo, Duration)| {
            let state = self.groups()[info.group].thread_set.slots[info.worker].state.get();
            (info, age, state)
        };
        threads.into_iter().map(with_state).collect()
    }

    /// Returns the current tunables.
    #[must_use]
    pub fn config(&self) -> Config {
        self.settings().clone()
    }

    pub(crate) fn settings(&self) -> &Config {
        self.shared.settings.current()
    }

    pub(crate) fn usage(&self) -> &Arc<Usage> {
        &self.shared.usage
    }

    pub(crate) fn groups(&self) -> &[Arc<Group>] {
        &self.shared.groups
    }

    /// Returns the next group in turn.
    pub(crate) fn next_group(&self) -> &Arc<Group> {
        let next = self.shared.next_group.fetch_add(1, Ordering::Relaxed);
        &self.shared.groups[next % self.shared.groups.len()]
    }

    /// Returns the group of this thread, or the next one in turn.
    pub(crate) fn group_here(&self) -> &Arc<Group> {
        self.current_group().unwrap_or_else(|| self.next_group())
    }

    /// Returns the group of which this thread is a worker.
    pub(super) fn current_group(&self) -> Option<&Arc<Group>> {
        self.shared.groups.iter().find(|group| group.is_current())
    }
}

/// Boxes a closure. If `spawn` has returned it in a box before, that box is kept: otherwise each
/// attempt would add one.
fn boxed(code: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce() + Send> {
    let mut code = Some(code);
    let any: &mut dyn Any = &mut code;
    if let Some(Some(boxed)) =
        any.downcast_mut::<Option<Box<dyn FnOnce() + Send>>>().map(Option::take)
    {
        return boxed;
    }
    Box::new(code.expect("taken only above"))
}

/// Closure that was not queued, and the reason.
pub struct SpawnError {
    kind: Refused,
    code: Box<dyn FnOnce() + Send>,
}

#[derive(Clone, Copy, Debug)]
enum Refused {
    Full(usize),
    Draining,
}

impl SpawnError {
    /// Returns true if the queue was full. A later attempt may succeed.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.kind, Refused::Full(_))
    }

    /// Returns the closure.
    #[must_use]
    pub fn into_inner(self) -> Box<dyn FnOnce() + Send> {
        self.code
    }
}

impl fmt::Debug for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Refused::Full(capacity) => {
                write!(f, "task queue full: epoll_work_queue_capacity is {capacity}")
            }
            Refused::Draining => f.write_str("the runtime drains"),
        }
    }
}

impl std::error::Error for SpawnError {}
