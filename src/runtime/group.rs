//! [`Group`]: one epoll, one eventfd, one timerfd, one task queue, one set of timers, and the seats of
//! the workers that share them.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::alarm::{Alarm, Armed};
use super::batch::{Event, MOST_EVENTS};
use super::cost::Cost;
use super::end::{End, RUN};
use super::mode::Mode;
use super::park::{Park, Wake};
use super::queue::{Pushed, TaskQueue};
use super::seat::SeatState;
use super::slots::{Released, Slots, Token};
use super::source::{CUT, Lent, Source, TIMER, Turn};
use super::task::{Task, guard};
use super::timer::TimerId;
use super::timers::Due;
use super::usage::Usage;
use crate::config::Config;
use crate::stats::{Counter, Counters, Snapshot};
use crate::sync::runner::Marks;
use crate::sync::shim::lock;
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::eventfd::EventFd;
use crate::sys::timerfd::TimerFd;

pub(crate) struct Group {
    me: Weak<Self>,
    index: usize,
    config: Arc<Config>,
    usage: Arc<Usage>,
    pub(super) epoll: Epoll,
    eventfd: EventFd,
    alarm: Alarm<Due, TimerFd>,
    pub(super) queue: TaskQueue<Task>,
    room: Room,
    /// Threads between the look at the drain and the push.
    spawning: CachePadded<AtomicU32>,
    pub(super) park: CachePadded<Park>,
    pub(super) mode: Mode,
    /// What closures cost on the average.
    pub(super) task_cost: Cost,
    slots: Slots<Box<dyn Source>>,
    pub(super) seats: Box<[CachePadded<Seat>]>,
    /// For threads that have no seat here.
    counters: CachePadded<Counters>,
    end: End,
}

/// The callers of `spawn_wait` that wait for room in the queue.
#[derive(Debug, Default)]
struct Room {
    /// How many wait. Written under the lock.
    waiting: AtomicU32,
    lock: Mutex<()>,
    freed: Condvar,
}

/// What a worker shows of itself to the others.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(super) name: String,
    pub(super) counters: Counters,
    /// Counts what the worker has completed. Written by it alone.
    pub(super) beat: AtomicU64,
    /// At rest, or running with a poll permit or without.
    pub(super) state: SeatState,
    /// Events that the worker has taken and not begun.
    pub(super) batch: [Event; MOST_EVENTS],
}

/// `epoll_event.data` of the two descriptors that have no slot.
pub(super) const EVENTFD: u64 = 0;
pub(super) const TIMERFD: u64 = 1;
const _: () = assert!(EVENTFD < Token::FIRST && TIMERFD < Token::FIRST);

thread_local! {
    /// Group and seat of the worker that this thread is.
    static CURRENT: Cell<Option<(*const Group, usize)>> = const { Cell::new(None) };
}

impl Seat {
    fn new(name: String) -> Self {
        Self {
            name,
            counters: Counters::new(),
            beat: AtomicU64::new(0),
            state: SeatState::default(),
            batch: Default::default(),
        }
    }
}

impl Group {
    pub(super) fn new(
        index: usize,
        names: Vec<String>,
        cpus: usize,
        pollers: usize,
        config: Arc<Config>,
        usage: Arc<Usage>,
    ) -> io::Result<Arc<Self>> {
        let epoll = Epoll::new()?;
        let eventfd = EventFd::new()?;
        let timerfd = TimerFd::new()?;
        epoll.add(eventfd.as_fd(), Interest::READABLE, EVENTFD)?;
        epoll.add(timerfd.as_fd(), Interest::READABLE, TIMERFD)?;
        let queue = TaskQueue::new(config.epoll_work_queue_capacity);
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            index,
            config,
            usage,
            epoll,
            eventfd,
            alarm: Alarm::new(timerfd),
            queue,
            room: Room::default(),
            spawning: CachePadded::new(AtomicU32::new(0)),
            park: CachePadded::new(Park::new()),
            mode: Mode::new(pollers, cpus),
            task_cost: Cost::unknown(),
            slots: Slots::new(),
            seats: names.into_iter().map(|name| CachePadded::new(Seat::new(name))).collect(),
            counters: CachePadded::new(Counters::new()),
            end: End::new(),
        }))
    }

    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) const fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    pub(crate) fn next_connection_id(&self) -> u64 {
        self.usage.next_connection_id()
    }

    /// After something was registered: whether it came too late to be told of the drain.
    pub(crate) fn is_draining(&self) -> bool {
        // SeqCst: pairs with the fence in `Usage::start_draining`. Either this sees the flag, or the
        // drain sees what was registered.
        fence(Ordering::SeqCst);
        self.usage.is_draining()
    }

    /// Seat of the worker of this group that the current thread is.
    pub(super) fn current_seat(&self) -> Option<&Seat> {
        let (group, seat) = CURRENT.get()?;
        std::ptr::eq(group, self).then(|| &*self.seats[seat])
    }

    /// Whether this thread is a worker of this group.
    pub(super) fn is_current(&self) -> bool {
        CURRENT.get().is_some_and(|(group, _)| std::ptr::eq(group, self))
    }

    pub(super) fn enter(&self, seat: usize) {
        self.end.enter();
        CURRENT.set(Some((self, seat)));
    }

    /// The last to leave sees to what is queued, and from then on whoever queues something does.
    pub(super) fn exit(&self) {
        CURRENT.set(None);
        // Of the others that wait, one is woken, who does the same.
        self.eventfd.signal();
        if self.end.leave() {
            // What is still registered waits for events that nobody receives any more: behind a
            // handler that outlived the drain, or registered too late to be told.
            self.notify_all(CUT);
            self.sweep();
        }
    }

    /// Counts, in the block of this thread if it is one of the group's workers.
    pub(crate) fn count(&self, counter: Counter, n: u64) {
        match self.current_seat() {
            Some(seat) => seat.counters.bump(counter, n),
            None => self.counters.add(counter, n),
        }
    }

    // ---- tasks ----

    /// Queues what may not be lost.
    pub(crate) fn push(&self, task: Task) {
        if self.queue.push(task) == Pushed::Overflowed {
            self.count(Counter::TasksOverflowed, 1);
        }
        self.wake_one();
        // After the fence of the wake-up, see `End::leave`.
        if self.end.is_over() {
            self.sweep();
        }
    }

    /// Queues what the caller takes back when the queue is full.
    pub(super) fn try_push(&self, task: Task) -> Result<(), Task> {
        self.spawning.fetch_add(1, Ordering::Relaxed);
        // Either the look, behind its fence, sees the drain, or the drain waits in `end_spawning`
        // until the task is queued.
        let refused = if self.is_draining() { Err(task) } else { self.queue.try_push(task) };
        // Release: pairs with the Acquire of `end_spawning`.
        self.spawning.fetch_sub(1, Ordering::Release);
        refused?;
        self.wake_one();
        Ok(())
    }

    /// After the drain has begun: everything that `try_push` accepted is queued when this returns.
    pub(super) fn end_spawning(&self) {
        while self.spawning.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
    }

    /// Queues, waiting for room until `give_up` says otherwise.
    pub(super) fn push_wait(&self, mut task: Task, give_up: impl Fn() -> bool) -> Result<(), Task> {
        loop {
            task = match self.try_push(task) {
                Ok(()) => return Ok(()),
                Err(task) => task,
            };
            let mut waiting = lock(&self.room.lock);
            // SeqCst: pairs with the fence in `pop`. Either the pop sees this waiter, or the look at
            // the queue below sees the room.
            self.room.waiting.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            while self.queue.len() >= self.config.epoll_work_queue_capacity && !give_up() {
                let waited = self.room.freed.wait(waiting);
                waiting = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            self.room.waiting.fetch_sub(1, Ordering::Relaxed);
            drop(waiting);
            if give_up() {
                return Err(task);
            }
        }
    }

    pub(super) fn pop(&self) -> Option<Task> {
        let task = self.queue.pop()?;
        // SeqCst: pairs with the fence in `push_wait`.
        fence(Ordering::SeqCst);
        if self.room.waiting.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.room.lock));
            self.room.freed.notify_one();
        }
        Some(task)
    }

    /// Queues a run of something registered; `false` when it is registered no more.
    pub(crate) fn push_source(&self, token: Token) -> bool {
        let pinned = self.slots.pin(token);
        if pinned {
            self.push(Task::Source(token));
        }
        pinned
    }

    /// Leaves marks for something registered, and queues it if nobody runs it.
    pub(crate) fn notify_source(&self, token: Token, marks: Marks) {
        if self.slots.pin(token) {
            self.notify_pinned(token, |source| source.queue_marks(marks));
        }
    }

    /// The same for every registered thing.
    pub(super) fn notify_all(&self, marks: Marks) {
        for token in self.slots.pin_all() {
            self.notify_pinned(token, |source| source.queue_marks(marks));
        }
    }

    /// Lets `queue` note something in a pinned source; the reference goes with the task, or back.
    pub(super) fn notify_pinned(&self, token: Token, queue: impl FnOnce(&dyn Source) -> bool) {
        if queue(self.pinned(token)) {
            self.push(Task::Source(token));
        } else {
            self.release(token);
        }
    }

    /// Drops something as a task, unless this already is the place for it.
    pub(crate) fn discard<T: Any + Send>(&self, remains: T) {
        if self.is_current() && RECLAIMING.get() || self.stopping() != RUN {
            drop(remains);
        } else {
            self.push(Task::Discard(Box::new(remains)));
        }
    }

    pub(super) fn wake_one(&self) {
        match self.park.wake() {
            None => return,
            Some(Wake::Sleeper) => self.park.post(),
            Some(Wake::Waiter) => self.eventfd.signal(),
        }
        self.count(Counter::WakeupsSent, 1);
    }

    // ---- sources ----

    /// Gives a source its slot, with one reference. It is not watched yet.
    pub(crate) fn prepare(&self, make: impl FnOnce(Token) -> Box<dyn Source>) -> Option<Token> {
        self.slots.insert_with(make)
    }

    /// Watches a descriptor for the source in that slot, whose first reference this uses.
    pub(crate) fn watch(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        token: Token,
    ) -> io::Result<()> {
        self.epoll.add(fd, interest, token.encode())
    }

    /// Watches it for something else.
    pub(crate) fn rewatch(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        token: Token,
    ) -> io::Result<()> {
        self.epoll.modify(fd, interest, token.encode())
    }

    /// Ends what [`watch`](Self::watch) began.
    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>, token: Token) {
        if let Err(error) = self.epoll.delete(fd) {
            // The kernel has forgotten it already, which is what was wanted.
            tracing::debug!(%error, "epoll_ctl(DEL)");
        }
        self.release(token);
    }

    pub(super) fn pin(&self, token: Token) -> bool {
        self.slots.pin(token)
    }

    /// Takes a reference back. The last one queues the reclaim.
    pub(crate) fn release(&self, token: Token) {
        if self.slots.release(token) == Released::Last {
            self.push(Task::Reclaim(token));
        }
    }

    pub(super) fn reclaim(&self, token: Token) {
        RECLAIMING.set(true);
        // Dropped with the flag set, by a guard, as a destructor may panic.
        let _reset = ResetReclaiming;
        if let Some(source) = self.slots.take(token) {
            drop(source);
            self.count(Counter::Reclaimed, 1);
        }
    }

    /// Runs `f` on a source and gives the caller's reference back.
    pub(super) fn with_pinned(&self, token: Token, f: impl FnOnce(&dyn Source)) {
        f(self.pinned(token));
        self.release(token);
    }

    #[expect(unsafe_code, reason = "the contract of `Slots::get` is kept by the callers here")]
    pub(super) fn pinned(&self, token: Token) -> &dyn Source {
        // SAFETY: private to the runtime, called with a reference held, and the result is used
        // before it is released.
        &**unsafe { self.slots.get(token) }
    }

    // ---- timers ----

    pub(super) fn insert_due(&self, deadline: Instant, now: Instant, due: Due) -> TimerId {
        let (id, armed) = self.alarm.insert(deadline, now, due);
        self.count_armed(armed);
        if self.stopping() != RUN {
            // `end_timers` may have been here already: nobody would ever take it out.
            drop(self.cancel_due(id));
        }
        id
    }

    /// After the stop: no timer fires any more, and what they hold (perhaps this group) is dropped.
    pub(super) fn end_timers(&self) {
        let timers = self.alarm.take_all();
        guard(self, "drop", || drop(timers));
    }

    pub(super) fn cancel_due(&self, id: TimerId) -> Option<Due> {
        self.alarm.cancel(id)
    }

    /// Wakes a source with [`TIMER`] at `deadline`.
    pub(crate) fn insert_deadline(&self, deadline: Instant, token: Token) -> TimerId {
        self.insert_due(deadline, Instant::now(), Due::Source(token))
    }

    pub(crate) fn cancel_deadline(&self, id: TimerId) {
        drop(self.cancel_due(id));
    }

    /// Queues what is due.
    pub(super) fn fire_due(&self, now: Instant, due: &mut Vec<Due>) {
        let armed = self.alarm.take_due(now, due);
        self.count_armed(armed);
        for due in due.drain(..) {
            match due {
                Due::Source(token) => self.notify_source(token, TIMER),
                Due::Callback(callback) => self.push(callback.into_task(self.me.clone())),
            }
        }
    }

    fn count_armed(&self, armed: Armed) {
        if armed == Armed::Set {
            self.count(Counter::TimerfdArmed, 1);
        }
    }

    // ---- the end ----

    pub(super) fn stop(&self, how: u8) {
        self.end.advance(how);
        // Every sleeper gets a token of its own. Of the waiters one is woken, who wakes the next
        // when it leaves.
        for _ in &self.seats {
            self.park.post();
        }
        self.eventfd.signal();
        drop(lock(&self.room.lock));
        self.room.freed.notify_all();
    }

    pub(super) fn stopping(&self) -> u8 {
        self.end.stage()
    }

    /// What is left when the workers leave: registered things end, contexts whose last reference is
    /// gone are reclaimed. Everything else that is still queued belongs to nobody any more.
    pub(super) fn sweep(&self) {
        // What this queues meanwhile is taken by the loop that is at work already: one level deep.
        if std::ptr::eq(SWEEPING.get(), self) {
            return;
        }
        let _reset = ResetSweeping(SWEEPING.replace(self));
        while let Some(task) = self.queue.pop() {
            match task {
                Task::Source(token) => drop(guard(self, "cut", || self.cut(token))),
                Task::Reclaim(token) => drop(guard(self, "drop", || self.reclaim(token))),
                Task::Run(_) | Task::Discard(_) => drop(guard(self, "drop", || drop(task))),
            }
        }
    }

    /// Ends something that was queued. Its code is not called any more, but for the last word.
    fn cut(&self, token: Token) {
        let mut lent = Lent { turn: Turn::ALONE, read_buf: &mut [], now: Instant::now() };
        self.with_pinned(token, |source| {
            // Queued already: the mark stays with it.
            let _ = source.queue_marks(CUT);
            source.resume(&mut lent);
        });
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        snapshot.absorb(&self.counters);
        for seat in &self.seats {
            snapshot.absorb(&seat.counters);
        }
        let (allocated, free) = self.slots.usage();
        snapshot.groups += 1;
        snapshot.workers += self.seats.len() as u64;
        snapshot.parked += self.park.resting();
        snapshot.queue_len += self.queue.len() as u64;
        snapshot.overflow_len += self.queue.overflow_len() as u64;
        snapshot.slots_allocated += allocated as u64;
        snapshot.slots_free += free as u64;
        snapshot.timers_pending += self.alarm.len() as u64;
    }
}

thread_local! {
    /// This thread is running [`Group::reclaim`].
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
    /// The group whose queue this thread sweeps.
    static SWEEPING: Cell<*const Group> = const { Cell::new(std::ptr::null()) };
}

struct ResetSweeping(*const Group);

impl Drop for ResetSweeping {
    fn drop(&mut self) {
        SWEEPING.set(self.0);
    }
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
            .field("queue_len", &self.queue.len())
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}
