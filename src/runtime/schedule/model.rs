//! Loom models of a group whose workers take tasks and events. The steps of [`Schedule`] and [`Serve`],
//! and all that they use, are the shipped code. Tasks and epoll belong to the model: its epoll is a list
//! of edges, and its handlers return at once or never.
//!
//! A lost wake-up shows as a deadlock. The thread of a handler that never returns ends.
//!
//! Left out: timers; the demand of a group, and when it has threads to spare; and the ticks of the
//! watchdog, because no time passes in a model. The model starts no thread in place of a worker that
//! waits: that worker plays the new one too.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom::thread::{self, JoinHandle};

use super::{Schedule, Serve};
use crate::runtime::class::Class;
use crate::runtime::end::{End, LEAVE_WHEN_EMPTY, RUN};
use crate::runtime::park::{Demand, Park, Rest};
use crate::runtime::run_queues::{Accepts, PopOrder, RunQueues};
use crate::runtime::thread_set::StoodBy;
use crate::runtime::thread_set::ThreadSet;
use crate::runtime::watch::Watch;
use crate::runtime::worker_slot::ThreadKind;
use crate::runtime::worker_slot::WorkerSlot;
use crate::sys::clock::Instant;

mod ending;
mod leaving;
mod permit;
mod reserve;
mod stuck;
mod waking;

/// Handlers are quick: one worker waits in epoll, the other sleeps.
pub(crate) const CALM: Demand = Demand { pollers: 1, all_wait: false };
/// Long batches are shared: one worker waits, the other looks.
const BUSY: Demand = Demand { pollers: 2, all_wait: false };
/// Handlers are slow: both workers wait.
const OPEN: Demand = Demand { pollers: 2, all_wait: true };
/// Another worker, which runs a handler, holds the only permit.
pub(crate) const TAKEN: Demand = Demand { pollers: 0, all_wait: false };

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Quick,
    /// Its handler never returns.
    Stuck,
    /// Like `Stuck`, but the task was known to be quick.
    Hangs,
    /// Like `Hangs`, but its handler announces a wait.
    Stalls,
    /// A quick run of a source that is queued again at its end. The second run is `Stuck`.
    Again,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    EventFd,
    /// Edge of a connection, and the task that handles it.
    Conn(Task),
}

/// Edge-triggered: an edge is in the list once, and only one of the workers that ask gets it.
#[derive(Default)]
struct Epoll {
    edges: Mutex<VecDeque<Edge>>,
    more: Condvar,
}

impl Epoll {
    fn add(&self, edge: Edge) {
        let mut edges = self.edges.lock().expect("no panic");
        if edge != Edge::EventFd || !edges.contains(&edge) {
            edges.push_back(edge);
        }
        self.more.notify_one();
    }

    /// Returns at most one event.
    fn wait(&self, block: bool) -> Option<Edge> {
        let mut edges = self.edges.lock().expect("no panic");
        while block && edges.is_empty() {
            edges = self.more.wait(edges).expect("no panic");
        }
        let edge = edges.pop_front();
        if !edges.is_empty() {
            self.more.notify_one();
        }
        edge
    }
}

pub(crate) struct Group {
    park: Park,
    run_queues: RunQueues<Task>,
    epoll: Epoll,
    end: End,
    watch: Watch,
    thread_set: ThreadSet,
    /// Number of tasks and events that were begun, of tasks that were swept, and of wake-ups.
    begun: AtomicUsize,
    swept: AtomicUsize,
    wake_ups: AtomicUsize,
    /// Count for the test, with a notification for each task or event that is begun. `None` if the test
    /// does not wait for it.
    told: Option<(Mutex<usize>, Condvar)>,
}

impl Schedule for Group {
    type Task = Task;

    fn park(&self) -> &Park {
        &self.park
    }

    fn run_queues(&self) -> &RunQueues<Task> {
        &self.run_queues
    }

    fn end(&self) -> &End {
        &self.end
    }

    fn watch(&self) -> &Watch {
        &self.watch
    }

    fn thread_set(&self) -> &ThreadSet {
        &self.thread_set
    }

    fn signal(&self) {
        self.epoll.add(Edge::EventFd);
    }

    fn note_wake_up(&self) {
        self.wake_ups.fetch_add(1, Ordering::Relaxed);
    }
}

impl Group {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self::with(capacity, None))
    }

    fn that_tells(capacity: usize) -> Arc<Self> {
        Arc::new(Self::with(capacity, Some((Mutex::new(0), Condvar::new()))))
    }

    fn with(capacity: usize, told: Option<(Mutex<usize>, Condvar)>) -> Self {
        let now = Instant::now();
        Self {
            park: Park::new(),
            run_queues: RunQueues::new(capacity),
            epoll: Epoll::default(),
            end: End::new(),
            watch: Watch::new(),
            thread_set: ThreadSet::new(0, now),
            begun: AtomicUsize::new(0),
            swept: AtomicUsize::new(0),
            wake_ups: AtomicUsize::new(0),
            told,
        }
    }

    /// Adds the slot of a thread, and counts the thread.
    fn slot(&self, kind: ThreadKind) -> usize {
        match kind {
            ThreadKind::Base | ThreadKind::Worker => self.thread_set.expect_base(),
            ThreadKind::Reserve => self.thread_set.expect_reserve(),
        }
        self.thread_set.occupy(kind)
    }

    fn tell(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        if let Some((begun, changed)) = &self.told {
            *begun.lock().expect("no panic") += 1;
            changed.notify_one();
        }
    }

    fn wait_until_begun(&self, count: usize) {
        let (begun, changed) = self.told.as_ref().expect("a group that tells");
        let mut begun = begun.lock().expect("no panic");
        while *begun < count {
            begun = changed.wait(begun).expect("no panic");
        }
    }

    fn push(&self, task: Task) {
        self.push_as(Class::Ordinary, task);
    }

    /// `Group::push_by`.
    fn push_as(&self, class: Class, task: Task) {
        let _ = self.run_queues.push(class, task);
        if self.note_queued() {
            self.sweep();
        }
    }

    fn sweep(&self) {
        while self.run_queues.pop(Accepts::Everything, PopOrder::Progress).is_some() {
            self.swept.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn stop(&self) {
        self.stop_workers(LEAVE_WHEN_EMPTY);
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    fn assert_that_nobody_rests(&self) {
        assert_eq!((self.park.resting(), self.park.permits()), (0, 0), "a rest or permit is left");
    }
}

pub(crate) struct Worker {
    pub(crate) group: Arc<Group>,
    slot: usize,
    kind: ThreadKind,
    /// Demand of the group.
    demand: Cell<Demand>,
    leaves: Leaves,
}

/// Time at which an added worker finds that it is surplus.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Never,
    AtOnce,
    /// When it has run something and holds a permit.
    WithPermit,
}

/// Payload with which the thread of a handler that never returns is unwound.
struct Gone;

impl Worker {
    pub(crate) fn new(group: &Arc<Group>, kind: ThreadKind, demand: Demand) -> Self {
        let slot = group.slot(kind);
        let group = Arc::clone(group);
        Self { group, slot, kind, demand: Cell::new(demand), leaves: Leaves::Never }
    }

    /// `Worker::run`.
    fn run(mut self) {
        let group = Arc::clone(&self.group);
        let served = catch_unwind(AssertUnwindSafe(|| self.work()));
        match served {
            Ok(()) => {
                if group.leave() {
                    group.sweep();
                }
            }
            Err(payload) if payload.is::<Gone>() => {}
            Err(payload) => resume_unwind(payload),
        }
    }

    fn work(&mut self) {
        if self.kind != ThreadKind::Reserve {
            return self.serve();
        }
        let group = Arc::clone(&self.group);
        let stand_by = || group.thread_set.stand_by(|| group.stopping() != RUN, limits);
        while stand_by() == StoodBy::Called {
            self.serve();
        }
    }

    fn deliver(&self, edge: Option<Edge>) {
        match edge {
            None => {}
            Some(Edge::EventFd) => self.group.park.end_waking(),
            Some(Edge::Conn(task)) => self.start(task),
        }
    }

    fn start(&self, task: Task) {
        self.before_run(task != Task::Stuck, self.demand());
        self.group.tell();
        match task {
            Task::Quick => self.end_run(),
            Task::Stuck | Task::Hangs => resume_unwind(Box::new(Gone)),
            Task::Stalls => self.stall(),
            Task::Again => {
                // `Group::requeue_source`.
                let _ = self.group.run_queues.push_spent(Class::Ordinary, Task::Stuck);
                self.end_run();
            }
        }
    }

    /// `Stalls::begin`, and the thread that is started if no other worker is free.
    fn stall(&self) {
        self.group.begin_stall(self.kind, self.slot(), || self.demand());
        if self.group.thread_set.free() == 0 {
            let worker = Self::new(&self.group, self.kind, self.demand());
            self.group.start_worker(|| worker.run());
        }
        resume_unwind(Box::new(Gone));
    }
}

impl Serve for Worker {
    type Group = Group;

    fn group(&self) -> &Group {
        &self.group
    }

    fn slot(&self) -> &WorkerSlot {
        &self.group.thread_set.slots[self.slot]
    }

    fn kind(&self) -> ThreadKind {
        self.kind
    }

    fn demand(&self) -> Demand {
        self.demand.get()
    }

    fn accepts(&self) -> Accepts {
        if self.kind != ThreadKind::Reserve || self.group.stopping() != RUN {
            Accepts::Everything
        } else {
            Accepts::Urgent
        }
    }

    /// As if `tasks_per_poll` were one.
    fn run_tasks(&mut self) {
        while let Some((task, _)) = self.group.run_queues.pop(self.accepts(), PopOrder::Progress) {
            self.start(task);
            self.deliver(self.group.epoll.wait(false));
        }
    }

    /// `Group::may_leave`. The worker asks once.
    fn may_leave(&mut self) -> bool {
        let asks = match self.leaves {
            Leaves::Never => false,
            Leaves::AtOnce => true,
            Leaves::WithPermit => self.slot().state.has_permit(),
        };
        if !asks || self.group.thread_set.free() <= 1 {
            return false;
        }
        self.leaves = Leaves::Never;
        self.group.thread_set.may_leave(|| !self.group.run_queues.is_empty())
    }

    fn poll(&mut self, rest: Rest, _: Demand) {
        let edge = self.group.epoll.wait(rest == Rest::Wait);
        self.rise(rest);
        if rest == Rest::Look {
            // As if it found nothing: then a worker asks for the only permit.
            self.demand.set(CALM);
        }
        self.deliver(edge);
    }

    fn sleep(&mut self, rest: Rest) {
        let _ = self.group.park.sleep(None);
        self.rise(rest);
    }
}

/// No reserve thread of a model is surplus.
const fn limits() -> (usize, Duration) {
    (usize::MAX, Duration::ZERO)
}

/// Makes all workers before the first one starts.
fn start_workers(group: &Arc<Group>, demands: &[Demand]) -> Vec<JoinHandle<()>> {
    let worker = |demand: &Demand| Worker::new(group, ThreadKind::Base, *demand);
    start(demands.iter().map(worker).collect())
}

fn start(workers: Vec<Worker>) -> Vec<JoinHandle<()>> {
    let start = |worker: Worker| {
        let group = Arc::clone(&worker.group);
        group.start_worker(|| thread::spawn(move || worker.run()))
    };
    workers.into_iter().map(start).collect()
}

fn join(workers: Vec<JoinHandle<()>>) {
    for worker in workers {
        worker.join().expect("no panic");
    }
}

#[derive(Clone, Copy)]
enum Last {
    Event,
    Task,
}

impl Last {
    fn happens(self, group: &Group, task: Task) {
        match self {
            Self::Event => group.epoll.add(Edge::Conn(task)),
            Self::Task => group.push(task),
        }
    }
}
