//! [`Threads`]: all threads of a runtime: limits, owns and joins them. `starting.rs` starts them.

use std::fmt;
use std::io;
use std::mem;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::usage::Usage;
use super::worker_slot::ThreadKind;
use crate::config::Settings;
use crate::stats::Counter;
use crate::sync::shim::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::shim::{lock, wait_while};
use crate::sys::clock::{self, Instant};

/// Describes the thread on which a hook runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// Name of the thread. The kernel shows its first 15 bytes.
    pub name: String,
    /// Index of its group.
    pub group: usize,
    /// Number of the worker in its group. When a thread has left, its number is used again.
    pub worker: usize,
    /// Purpose of the thread.
    pub kind: ThreadKind,
    /// Reason why it was started.
    pub reason: ThreadReason,
}

/// Reason why a thread was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadReason {
    /// The runtime started.
    Start,
    /// Handlers wait, and have announced it.
    Stall,
    /// The task queue was long.
    Backlog,
    /// Work waited while nothing completed.
    Watchdog,
    /// All other threads waited.
    Reserve,
    /// A drain found threads that are stuck in handlers. This one ends what they keep, and leaves.
    Drain,
}

impl ThreadReason {
    /// Counter of the threads with this reason. Those of the start and of a drain have none.
    pub(super) const fn counter(self) -> Option<Counter> {
        match self {
            Self::Start | Self::Drain => None,
            Self::Stall => Some(Counter::ThreadsStartedStall),
            Self::Backlog => Some(Counter::ThreadsStartedBacklog),
            Self::Watchdog => Some(Counter::ThreadsStartedWatchdog),
            Self::Reserve => Some(Counter::ThreadsStartedReserve),
        }
    }
}

impl fmt::Display for ThreadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "the runtime started",
            Self::Stall => "handlers wait",
            Self::Backlog => "the queue was long",
            Self::Watchdog => "nothing completed while work waited",
            Self::Reserve => "all other threads waited",
            Self::Drain => "a drain found stuck threads",
        })
    }
}

pub(super) type Hook = Arc<dyn Fn(&ThreadInfo) + Send + Sync>;

/// Code of the host that runs at the start and at the end of each thread.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) start: Option<Hook>,
    pub(super) stop: Option<Hook>,
}

/// Reason why a thread was not started.
#[derive(Debug)]
pub(super) enum Refusal {
    /// `max_threads` is reached, or only the part of it is free that is kept for urgent work.
    Limited,
    /// The runtime joins its threads.
    Ended,
    /// The system refused.
    Failed(io::Error),
}

/// Counts the threads that have not ended.
#[derive(Debug, Default)]
pub(super) struct Exits {
    alive: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

/// Guard that a thread holds until its end, also by a panic.
pub(super) struct Exit {
    exits: Arc<Exits>,
    left: Arc<AtomicBool>,
}

impl Exits {
    pub(super) fn enter(self: &Arc<Self>, left: &Arc<AtomicBool>) -> Exit {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Exit { exits: Arc::clone(self), left: Arc::clone(left) }
    }

    pub(super) fn alive(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }

    /// Waits until no more than `but` threads are alive.
    pub(super) fn wait(&self, but: usize, deadline: Instant) {
        let left = deadline.duration_since(clock::now());
        let too_many = |_: &mut ()| self.alive() > but;
        let _ = wait_while(&self.changed, lock(&self.lock), Some(left), too_many);
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        self.left.store(true, Ordering::Release);
        let guard = lock(&self.exits.lock);
        self.exits.alive.fetch_sub(1, Ordering::AcqRel);
        drop(guard);
        self.exits.changed.notify_all();
    }
}

/// Thread of the runtime.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) info: ThreadInfo,
    #[cfg_attr(not(feature = "status"), expect(dead_code, reason = "the status page shows it"))]
    pub(super) started: Instant,
    pub(super) handle: JoinHandle<()>,
    /// Set when the thread has nothing more to do, so that joining it takes no time.
    pub(super) left: Arc<AtomicBool>,
}

pub(super) struct Threads {
    pub(super) prefix: String,
    pub(super) hooks: Hooks,
    settings: Arc<Settings>,
    usage: Arc<Usage>,
    pub(super) exits: Arc<Exits>,
    pub(super) table: Mutex<Table>,
    watchdog: Mutex<Option<Watching>>,
}

/// Threads of the runtime, except the watchdog.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Threads that have not been joined.
    pub(super) threads: Vec<Thread>,
    /// Number of threads that have not left.
    pub(super) alive: usize,
    /// Number of reserve threads that have not left. If there are more than at the start, any of them
    /// may leave.
    pub(super) reserve: usize,
    /// Number of threads at the start.
    pub(super) permanent: usize,
    pub(super) permanent_reserve: usize,
    /// Set when no more threads may start.
    pub(super) closed: bool,
}

impl Threads {
    pub(super) fn new(
        prefix: String,
        hooks: Hooks,
        settings: Arc<Settings>,
        usage: Arc<Usage>,
    ) -> Self {
        let (exits, table) = (Arc::default(), Mutex::default());
        Self { prefix, hooks, settings, usage, exits, table, watchdog: Mutex::default() }
    }

    /// Returns true if the limit allows another thread. Ordinary threads leave a part of
    /// `max_threads` to the reserve: a place for each urgent connection, session and closure, and
    /// at least a quarter of the threads that may be added.
    pub(super) fn has_room(&self, table: &Table, kind: ThreadKind) -> bool {
        let most = self.settings.current().max_threads;
        let kept = match kind {
            ThreadKind::Reserve => 0,
            _ if table.permanent_reserve == 0 => 0,
            ThreadKind::Base | ThreadKind::Worker => {
                let quarter = most.saturating_sub(table.permanent) / 4;
                let added = table.reserve.saturating_sub(table.permanent_reserve);
                self.usage.urgent_units().max(quarter).saturating_sub(added)
            }
        };
        table.alive + kept < most
    }

    /// Notes that the calling thread is about to end.
    pub(super) fn note_left(&self, kind: ThreadKind) {
        {
            let mut table = lock(&self.table);
            table.alive -= 1;
            table.reserve -= usize::from(kind == ThreadKind::Reserve);
        }
        // The place is free already. The destructors of the joined threads may wait.
        self.reap();
    }

    /// Joins the threads that have left.
    fn reap(&self) {
        let left: Vec<Thread> = {
            let mut table = lock(&self.table);
            table.threads.extract_if(.., |thread| thread.left.load(Ordering::Acquire)).collect()
        };
        for thread in left {
            // A panic of a worker ends at its task, so there is no result to lose.
            let _ = thread.handle.join();
        }
    }

    /// Returns the threads that have not left, each with the time since its start.
    #[cfg(feature = "status")]
    pub(super) fn present(&self) -> Vec<(ThreadInfo, Duration)> {
        let table = lock(&self.table);
        let present = table.threads.iter().filter(|thread| !thread.left.load(Ordering::Acquire));
        present.map(|thread| (thread.info.clone(), clock::since(thread.started))).collect()
    }

    /// Returns true if the calling thread is one of these threads.
    pub(super) fn is_one(&self) -> bool {
        let here = thread::current().id();
        lock(&self.table).threads.iter().any(|thread| thread.handle.thread().id() == here)
    }

    /// From now on, no thread is started.
    pub(super) fn close(&self) {
        lock(&self.table).closed = true;
    }

    /// Joins the threads that have left, except the calling one. Returns the names of the others.
    pub(super) fn join_all(&self) -> Vec<String> {
        let threads = mem::take(&mut lock(&self.table).threads);
        let here = thread::current().id();
        let mut stuck = Vec::new();
        for thread in threads {
            if thread.handle.thread().id() == here {
                continue;
            }
            if thread.left.load(Ordering::Acquire) {
                let _ = thread.handle.join();
            } else {
                stuck.push(thread.info.name);
            }
        }
        stuck
    }

    /// Starts the thread that watches all groups.
    pub(super) fn start_watchdog(
        &self,
        watchdog: impl FnOnce() + Send + 'static,
    ) -> Result<(), (String, io::Error)> {
        let name = format!("{}-watchdog", self.prefix);
        let (ends, ended) = mpsc::channel::<()>();
        let run = move || {
            let _ends = ends;
            watchdog();
        };
        match thread::Builder::new().name(name.clone()).spawn(run) {
            Ok(handle) => {
                *lock(&self.watchdog) = Some(Watching { handle, ended });
                Ok(())
            }
            Err(error) => Err((name, error)),
        }
    }

    /// Joins the watchdog, which the caller has stopped before. Returns its name if it does not end in
    /// this time: it reports slow handlers to the log, which may block.
    pub(super) fn join_watchdog(&self, grace: Duration) -> Option<String> {
        let Watching { handle, ended } = lock(&self.watchdog).take()?;
        if matches!(ended.recv_timeout(grace), Err(RecvTimeoutError::Timeout)) {
            return handle.thread().name().map(str::to_owned);
        }
        let _ = handle.join();
        None
    }
}

/// The thread that watches all groups.
#[derive(Debug)]
struct Watching {
    handle: JoinHandle<()>,
    /// Disconnected when the thread ends.
    ended: mpsc::Receiver<()>,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("prefix", &self.prefix)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
