//! [`Group`]: one epoll, one eventfd, one timerfd, the task queues, one set of timers, and the
//! workers that share them.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;

use super::alarm::{Alarm, Armed};
use super::binding::Binding;
use super::cost::{Cost, Lap};
use super::draining::Intake;
use super::end::{End, RUN};
use super::mode::Mode;
use super::noise::log;
use super::park::Park;
use super::room::Room;
use super::run_queues::RunQueues;
use super::schedule::Schedule;
use super::slots::{Pinned, Released, Slots, Token};
use super::source::{Source, TIMER, WorkerContext};
use super::task::{Due, Task};
use super::thread_set::ThreadSet;
use super::threads::Threads;
use super::timer::TimerId;
use super::usage::{Origin, Usage};
use super::watch::Watch;
use super::worker_slot::WorkerSlot;
use crate::config::{Config, Settings};
use crate::stats::{Counter, Counters, Histograms, Snapshot};
use crate::sync::shim::atomic::{AtomicUsize, Ordering};
use crate::sys::clock::{self, Instant};
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::eventfd::EventFd;
use crate::sys::timerfd::TimerFd;

pub(crate) struct Group {
    pub(super) me: Weak<Self>,
    index: usize,
    settings: Arc<Settings>,
    pub(super) usage: Arc<Usage>,
    pub(super) threads: Arc<Threads>,
    pub(super) watch: Arc<Watch>,
    pub(super) binding: Arc<Binding>,
    pub(super) histograms: Histograms,
    pub(super) epoll: Epoll,
    pub(super) eventfd: EventFd,
    alarm: Alarm<Due, TimerFd>,
    pub(super) run_queues: RunQueues<Task>,
    /// Place where the callers of `spawn_wait` wait for room.
    pub(super) room: Room,
    /// Closures that were accepted and have not ended. Used for statistics and to limit the number of
    /// threads.
    pub(super) closures: CachePadded<AtomicUsize>,
    /// Sessions of a layer above. Used for statistics and to limit the number of threads.
    pub(super) sessions_above: CachePadded<AtomicUsize>,
    pub(super) intake: CachePadded<Intake>,
    pub(super) park: CachePadded<Park>,
    pub(super) mode: Mode,
    /// Estimated cost of a closure, over all closures.
    pub(super) task_cost: Cost,
    pub(super) slots: Slots<Box<dyn Source>>,
    pub(super) thread_set: ThreadSet,
    /// Counters of threads that have no slot here.
    counters: CachePadded<Counters>,
    pub(super) end: End,
}

/// `epoll_event.data` of the two descriptors that have no slot.
pub(super) const EVENTFD: u64 = 0;
pub(super) const TIMERFD: u64 = 1;
const _: () = assert!(EVENTFD < Token::FIRST && TIMERFD < Token::FIRST);

thread_local! {
    /// Group and slot of the current thread, if it is a worker.
    static CURRENT: Cell<Option<(*const Group, usize)>> = const { Cell::new(None) };
}

/// Parts from which a group is made.
#[derive(Clone)]
pub(super) struct Parts {
    /// The group's share of the machine's CPUs.
    pub(super) cpus: usize,
    /// Number of workers that may wait in epoll at once.
    pub(super) pollers: usize,
    pub(super) settings: Arc<Settings>,
    pub(super) usage: Arc<Usage>,
    pub(super) threads: Arc<Threads>,
    pub(super) watch: Arc<Watch>,
    pub(super) binding: Arc<Binding>,
}

impl Group {
    /// # Errors
    ///
    /// Returns the call that failed, and the error of the system.
    pub(super) fn new(index: usize, parts: Parts) -> Result<Arc<Self>, (&'static str, io::Error)> {
        let Parts { cpus, pollers, settings, usage, threads, watch, binding } = parts;
        let histograms = Histograms::new();
        histograms.switch(settings.current().enable_perf_hist);
        let in_call = |call| move |error| (call, error);
        let epoll = Epoll::new().map_err(in_call("epoll_create1"))?;
        let eventfd = EventFd::new().map_err(in_call("eventfd"))?;
        let timerfd = TimerFd::new().map_err(in_call("timerfd_create"))?;
        for (fd, data) in [(eventfd.as_fd(), EVENTFD), (timerfd.as_fd(), TIMERFD)] {
            epoll.add(fd, Interest::READABLE, data).map_err(in_call("epoll_ctl"))?;
        }
        let now = clock::now();
        let config = settings.current();
        let run_queues = RunQueues::new(config.epoll_work_queue_capacity);
        let permanent = config.epoll_threads_per_group + config.reserve_threads_per_group;
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            index,
            settings,
            usage,
            threads,
            watch,
            binding,
            histograms,
            epoll,
            eventfd,
            alarm: Alarm::new(timerfd),
            run_queues,
            room: Room::default(),
            closures: CachePadded::default(),
            sessions_above: CachePadded::default(),
            intake: CachePadded::default(),
            park: CachePadded::new(Park::new()),
            mode: Mode::new(pollers, cpus),
            task_cost: Cost::unknown(),
            slots: Slots::new(),
            thread_set: ThreadSet::new(permanent, now),
            counters: CachePadded::new(Counters::new()),
            end: End::new(),
        }))
    }

    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Current tunables, as one consistent snapshot.
    pub(crate) fn config(&self) -> &Config {
        self.settings.current()
    }

    pub(crate) const fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    pub(crate) fn next_connection_id(&self) -> u64 {
        self.usage.next_connection_id()
    }

    /// Returns true if a source that was just registered came too late to be told of the drain.
    pub(crate) fn is_draining(&self) -> bool {
        self.usage.drains_after(Origin::Accepted)
    }

    /// Like [`is_draining`](Self::is_draining), for a connection.
    pub(crate) fn drains(&self, origin: Origin) -> bool {
        self.usage.drains_after(origin)
    }

    /// WorkerSlot of the current thread, if it is a worker of this group.
    pub(super) fn current_slot(&self) -> Option<&WorkerSlot> {
        let (group, slot) = CURRENT.get()?;
        std::ptr::eq(group, self).then(|| &**self.thread_set.slots[slot])
    }

    /// Returns true if the current thread is a worker of this group.
    pub(super) fn is_current(&self) -> bool {
        CURRENT.get().is_some_and(|(group, _)| std::ptr::eq(group, self))
    }

    /// Notes that the current thread is a worker of this group.
    pub(super) fn enter(&self, slot: usize) {
        CURRENT.set(Some((self, slot)));
    }

    /// Notes that the current thread is no longer a worker of this group.
    pub(super) fn forget_current() {
        CURRENT.set(None);
    }

    /// Returns true if the threads of the group compete for CPUs.
    pub(crate) fn is_crowded(&self, now: Instant) -> bool {
        self.mode.is_crowded(now)
    }

    /// Notes that a thread had to share its CPU.
    #[cfg(all(test, feature = "internal"))]
    pub(crate) fn note_crowded(&self, now: Instant) {
        self.mode.note_crowded(now);
    }

    /// Adds to a counter. A worker of the group uses the counters of its slot.
    pub(crate) fn count(&self, counter: Counter, n: u64) {
        self.count_all([(counter, n)]);
    }

    /// Adds to several counters, which takes less time than one after the other.
    pub(crate) fn count_all<const N: usize>(&self, counts: [(Counter, u64); N]) {
        match self.current_slot() {
            Some(slot) => {
                counts.into_iter().for_each(|(counter, n)| slot.counters.bump(counter, n))
            }
            None => counts.into_iter().for_each(|(counter, n)| self.counters.add(counter, n)),
        }
    }

    /// Number of events that the workers have taken from epoll.
    pub(super) fn events_taken(&self) -> u64 {
        let slots = self.thread_set.slots.iter();
        slots.map(|slot| slot.counters.get(Counter::EpollEvents)).sum()
    }

    // ---- sources ----

    /// Gives a source its slot, with one reference. Its descriptor is not watched yet.
    pub(crate) fn prepare(&self, make: impl FnOnce(Token) -> Box<dyn Source>) -> Option<Token> {
        self.slots.insert_with(make)
    }

    /// Watches a descriptor for the source in the slot of `token`. Uses the source's first reference.
    pub(crate) fn watch(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        token: Token,
    ) -> io::Result<()> {
        self.epoll.add(fd, interest, token.encode())
    }

    /// Changes the interest in a watched descriptor.
    pub(crate) fn rewatch(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        token: Token,
    ) -> io::Result<()> {
        self.epoll.modify(fd, interest, token.encode())
    }

    /// Ends the watch of a descriptor, and releases the reference that [`watch`](Self::watch) used.
    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>, token: Token) {
        if let Err(error) = self.epoll.delete(fd) {
            // The kernel no longer watches the descriptor, which is what the caller wants.
            log!(debug, %error, "epoll_ctl(DEL)");
        }
        self.release(token);
    }

    /// Adds a reference to the source of `token`, unless it has ended.
    pub(super) fn pin(&self, token: Token) -> Option<PinnedSource<'_>> {
        self.slots.pin(token).map(PinnedSource)
    }

    /// Returns code that returns true until the connection of `token` has ended. `None` for other
    /// sources, and if it has ended.
    pub(super) fn watch_end(&self, token: Token) -> Option<Box<dyn Fn() -> bool>> {
        let watch = self.pin(token)?.source().watch_end();
        self.release(token);
        watch
    }

    /// Releases a reference. If it was the last one, the reclaim is queued.
    pub(crate) fn release(&self, token: Token) {
        if self.slots.pinned(token).release() == Released::Last {
            self.push(Task::Reclaim(token));
        }
    }

    pub(super) fn reclaim(&self, token: Token) {
        RECLAIMING.set(true);
        // The guard resets the flag after the drop, even if a destructor panics.
        let _reset = ResetReclaiming;
        if let Some(source) = self.slots.take(token) {
            drop(source);
            self.count(Counter::Reclaimed, 1);
        }
    }

    /// Runs `f` on a source for a worker, and releases the caller's reference.
    ///
    /// If it was the last one, the worker reclaims the slot at once. It holds no lock here. A task
    /// would only wake another worker for something that this one would run next.
    pub(super) fn with_pinned(
        &self,
        token: Token,
        context: &mut WorkerContext<'_>,
        f: impl FnOnce(&dyn Source, &mut WorkerContext<'_>),
    ) {
        let pinned = self.pinned(token);
        f(pinned.source(), context);
        if pinned.0.release() == Released::Last {
            let _ = self.guard("drop", || self.reclaim(token));
            // The next run must not be charged for the reclaim.
            context.lap = Lap::from(clock::now());
        }
    }

    /// Returns the source of a token to which the caller has a reference.
    pub(super) fn pinned(&self, token: Token) -> PinnedSource<'_> {
        PinnedSource(self.slots.pinned(token))
    }

    // ---- timers ----

    pub(super) fn insert_due(&self, deadline: Instant, now: Instant, due: Due) -> TimerId {
        let (id, armed) = self.alarm.insert(deadline, now, due);
        self.count_armed(armed);
        if self.stopping() != RUN {
            // `end_timers` may have run already. Then nothing else would ever take this timer out.
            drop(self.cancel_due(id));
        }
        id
    }

    /// Drops all timers, and with them what they hold, perhaps this group. Called after the stop. No
    /// timer fires any more.
    pub(super) fn end_timers(&self) {
        for due in self.alarm.take_all().into_payloads() {
            // Each payload has its own guard: a second destructor that panics while the first one
            // unwinds would abort.
            self.guard("drop", || drop(due));
        }
    }

    pub(super) fn cancel_due(&self, id: TimerId) -> Option<Due> {
        self.alarm.cancel(id)
    }

    /// Notifies a source with the mark [`TIMER`] at `deadline`.
    pub(crate) fn insert_deadline(&self, deadline: Instant, token: Token) -> TimerId {
        self.insert_due(deadline, clock::now(), Due::Source(token))
    }

    pub(crate) fn cancel_deadline(&self, id: TimerId) {
        drop(self.cancel_due(id));
    }

    /// Queues the timers that are due.
    pub(super) fn fire_due(&self, now: Instant, due: &mut Vec<(Instant, Due)>) {
        let armed = self.alarm.take_due(now, due);
        self.count_armed(armed);
        for (deadline, due) in due.drain(..) {
            self.note_timer(now.duration_since(deadline));
            match due {
                Due::Source(token) => self.notify_source(token, TIMER),
                Due::Callback(class, code) => self.push(Task::Run(class, code)),
            }
        }
    }

    /// Time at which [`fire_due`](Self::fire_due) next has something to do.
    #[cfg(feature = "internal")]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.alarm.next_deadline()
    }

    fn count_armed(&self, armed: Armed) {
        if armed == Armed::Set {
            self.count(Counter::TimerfdArmed, 1);
        }
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        snapshot.absorb(&self.counters);
        for slot in self.thread_set.slots.iter() {
            snapshot.absorb(&slot.counters);
        }
        self.histograms.add_to(snapshot);
        let (allocated, free) = self.slots.usage();
        self.thread_set.add_to(snapshot);
        snapshot.groups += 1;
        snapshot.parked += self.park.resting();
        self.run_queues.add_to(snapshot);
        snapshot.tasks_in_progress += self.closures.load(Ordering::Relaxed) as u64;
        snapshot.slots_allocated += allocated as u64;
        snapshot.slots_free += free as u64;
        snapshot.timers_pending += self.alarm.len() as u64;
    }
}

/// Source to which the caller has a reference. A copy is no further reference.
#[derive(Clone, Copy)]
pub(super) struct PinnedSource<'g>(Pinned<'g, Box<dyn Source>>);

impl<'g> PinnedSource<'g> {
    #[expect(unsafe_code, reason = "the contract of `Pinned::get` is kept by the callers")]
    pub(super) fn source(self) -> &'g dyn Source {
        // SAFETY: private to the runtime, called with a reference held, and the result is used
        // before it is released.
        &**unsafe { self.0.get() }
    }
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
        self.eventfd.signal();
    }

    fn note_wake_up(&self) {
        self.count(Counter::WakeupsSent, 1);
    }
}

thread_local! {
    /// Set while this thread runs [`Group::reclaim`].
    pub(super) static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

struct ResetReclaiming;

impl Drop for ResetReclaiming {
    fn drop(&mut self) {
        RECLAIMING.set(false);
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("index", &self.index)
            .field("park", &self.park)
            .field("queue_len", &self.run_queues.len())
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}
