//! [`Threads`]: all threads of a runtime: started under a limit, named, owned and joined.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use super::drain::{Exit, Exits};
use super::group::Group;
use super::guard;
use super::usage::Usage;
use super::worker::{Role, Worker};
use crate::config::Settings;
use crate::sync::shim::lock;

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadKind {
    /// A worker for the life of the runtime.
    Base,
    /// A worker that was added because handlers wait or seem to, or because the queue is long.
    Worker,
    /// It stands by, for when all others wait, and then runs urgent work alone.
    Reserve,
}

impl ThreadKind {
    pub(super) const fn from_u8(kind: u8) -> Option<Self> {
        match kind {
            0 => Some(Self::Base),
            1 => Some(Self::Worker),
            2 => Some(Self::Reserve),
            _ => None,
        }
    }

    /// What stands before the number in the thread's name.
    const fn letter(self) -> &'static str {
        match self {
            Self::Base => "",
            Self::Worker => "w",
            Self::Reserve => "r",
        }
    }
}

/// Says which thread a hook runs on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// Name of the thread, of which the kernel shows the first 15 bytes.
    pub name: String,
    /// Index of its group.
    pub group: usize,
    /// Number of the worker in its group. That of a thread that has left is used again.
    pub worker: usize,
    /// What it is for.
    pub kind: ThreadKind,
}

type Hook = Arc<dyn Fn(&ThreadInfo) + Send + Sync>;

/// Code of the host around each thread's work.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) start: Option<Hook>,
    pub(super) stop: Option<Hook>,
}

/// Why a thread was not started.
#[derive(Debug)]
pub(super) enum Refusal {
    /// `max_threads` is reached, or what is kept of it for work in progress.
    Limited,
    /// The runtime joins its threads.
    Ended,
    /// The system said so.
    Failed(io::Error),
}

/// A thread of the runtime.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) name: String,
    pub(super) handle: JoinHandle<()>,
    /// Set when it has nothing more to do: to join it takes no time.
    pub(super) left: Arc<AtomicBool>,
}

pub(super) struct Threads {
    prefix: String,
    hooks: Hooks,
    settings: Arc<Settings>,
    usage: Arc<Usage>,
    pub(super) exits: Arc<Exits>,
    table: Mutex<Table>,
    watchdog: Mutex<Option<JoinHandle<()>>>,
}

thread_local! {
    /// Held until the destructors of the other thread-locals have run, because these may wait. Those of a
    /// thread run in the reverse order of their first use, and this one is used first.
    static EXIT: Cell<Option<Exit>> = const { Cell::new(None) };
}

/// Without the watchdog.
#[derive(Debug, Default)]
struct Table {
    /// Those that have not been joined.
    threads: Vec<Thread>,
    /// Those that have not left.
    alive: usize,
    /// Of these, reserve threads. Any of them leaves when there are more than at the start.
    reserve: usize,
    /// How many there were at the start, and how many of these reserve threads.
    permanent: usize,
    permanent_reserve: usize,
    /// No more are started.
    closed: bool,
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

    /// Starts a thread for the life of the runtime. `ready` is dropped when it is about to work.
    pub(super) fn start_permanent(
        &self,
        group: &Arc<Group>,
        kind: ThreadKind,
        ready: mpsc::Sender<()>,
    ) -> Result<(), (String, io::Error)> {
        let mut table = lock(&self.table);
        self.launch(&mut table, group, kind, Some(ready))?;
        table.permanent += 1;
        table.permanent_reserve += usize::from(kind == ThreadKind::Reserve);
        Ok(())
    }

    /// Starts one more, if the limit allows it; its name.
    pub(super) fn start_added(
        &self,
        group: &Arc<Group>,
        kind: ThreadKind,
    ) -> Result<String, Refusal> {
        // Nobody is joined here: a handler that is about to wait may hold what the other thread wants
        // for its last words. Held while the thread is made: a drain that comes now either finds it or
        // prevents it.
        let mut table = lock(&self.table);
        if table.closed {
            return Err(Refusal::Ended);
        }
        if !self.has_room(&table, kind) {
            return Err(Refusal::Limited);
        }
        self.launch(&mut table, group, kind, None).map_err(|(_, error)| Refusal::Failed(error))
    }

    /// Ordinary threads leave some of `max_threads` to the reserve: a place for each session in
    /// progress, and never less than a quarter of what is there to be added.
    fn has_room(&self, table: &Table, kind: ThreadKind) -> bool {
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

    fn launch(
        &self,
        table: &mut Table,
        group: &Arc<Group>,
        kind: ThreadKind,
        ready: Option<mpsc::Sender<()>>,
    ) -> Result<String, (String, io::Error)> {
        let seat = group.crew.sit(kind);
        let info = ThreadInfo {
            name: format!("{}-{}-{}{seat}", self.prefix, group.index(), kind.letter()),
            group: group.index(),
            worker: seat,
            kind,
        };
        let name = info.name.clone();
        let left = Arc::new(AtomicBool::new(false));
        let exit = self.exits.enter(&left);
        let (group_2, hooks) = (Arc::clone(group), self.hooks.clone());
        let body = move || {
            EXIT.set(Some(exit));
            run_hook(&group_2, hooks.start.as_ref(), &info);
            let role = if ready.is_some() { Role::StandingBy } else { Role::Called };
            drop(ready);
            Worker::new(Arc::clone(&group_2), seat, kind, role).run();
            run_hook(&group_2, hooks.stop.as_ref(), &info);
            // Before the place is free for another one: never more seats taken than threads allowed.
            group_2.crew.vacate(seat);
            group_2.threads.note_left(kind);
        };
        match thread::Builder::new().name(name.clone()).spawn(body) {
            Ok(handle) => {
                table.threads.push(Thread { name: name.clone(), handle, left });
                table.alive += 1;
                table.reserve += usize::from(kind == ThreadKind::Reserve);
                Ok(name)
            }
            Err(error) => {
                group.crew.vacate(seat);
                Err((name, error))
            }
        }
    }

    /// The calling thread is about to end.
    fn note_left(&self, kind: ThreadKind) {
        {
            let mut table = lock(&self.table);
            table.alive -= 1;
            table.reserve -= usize::from(kind == ThreadKind::Reserve);
        }
        // Its place is free already, whatever the last words of the others wait for.
        self.reap();
    }

    /// Joins those that have left.
    fn reap(&self) {
        let left: Vec<Thread> = {
            let mut table = lock(&self.table);
            table.threads.extract_if(.., |thread| thread.left.load(Ordering::Acquire)).collect()
        };
        for thread in left {
            // A worker's panics end at its tasks; there is no result to lose.
            let _ = thread.handle.join();
        }
    }

    /// Whether the calling thread is one of them.
    pub(super) fn is_one(&self) -> bool {
        let here = thread::current().id();
        lock(&self.table).threads.iter().any(|thread| thread.handle.thread().id() == here)
    }

    /// From now on no thread is started.
    pub(super) fn close(&self) {
        lock(&self.table).closed = true;
    }

    /// Joins those that have left, but for the calling one. Names of those that have not.
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
                stuck.push(thread.name);
            }
        }
        stuck
    }

    /// Starts the thread that looks after all groups.
    pub(super) fn start_watchdog(
        &self,
        watchdog: impl FnOnce() + Send + 'static,
    ) -> Result<(), (String, io::Error)> {
        let name = format!("{}-watchdog", self.prefix);
        match thread::Builder::new().name(name.clone()).spawn(watchdog) {
            Ok(handle) => {
                *lock(&self.watchdog) = Some(handle);
                Ok(())
            }
            Err(error) => Err((name, error)),
        }
    }

    /// After it was told to stop.
    pub(super) fn join_watchdog(&self) {
        let handle = lock(&self.watchdog).take();
        if let Some(handle) = handle {
            let _ = handle.join();
        }
    }
}

fn run_hook(group: &Group, hook: Option<&Hook>, info: &ThreadInfo) {
    if let Some(hook) = hook {
        guard(group, "thread hook", || hook(info));
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("prefix", &self.prefix)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
