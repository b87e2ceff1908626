//! The worker loop.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::class::Class;
use super::cost::{self, Lap, Pace};
use super::end::{LEAVE_NOW, RUN};
use super::group::{EVENTFD, Group, TIMERFD};
use super::noise::log;
use super::park::{Demand, Rest};
use super::run_queues::{Accepts, PopOrder};
use super::schedule::{Schedule, Serve};
use super::sharing::Batches;
use super::slots::Token;
use super::source::{Turn, WorkerContext};
use super::stalls::Stalls;
use super::stealable::MOST_EVENTS;
use super::task::{Due, Task};
use super::thread_set::StoodBy;
use super::worker_slot::{SharedSlot, ThreadKind, WorkerSlot};
use crate::stats::{Counter, Stage};
use crate::sys::clock::{self, Instant};
use crate::sys::epoll::Event;
use crate::sys::sched::Slice;

/// Worker thread of a group. All workers of a group are equal, except that reserve threads run only
/// urgent work.
pub(super) struct Worker {
    group: Arc<Group>,
    number: usize,
    slot: SharedSlot,
    kind: ThreadKind,
    read_buf: Vec<u8>,
    /// End of the last interval that was timed.
    now: Instant,
    due: Vec<(Instant, Due)>,
    slice: Slice,
    stalls: Rc<Stalls>,
    /// Time at which the current events were received.
    polled_at: Instant,
    /// True if this worker just looked into epoll, instead of a sleep, and there was no event.
    found_nothing: bool,
    /// Batches for the next judgement of the sharing.
    batches: Batches,
    /// Number of tasks that this worker has taken.
    taken: u32,
    /// Version of the CPU plan to which this worker is bound.
    bound: usize,
    /// Time at which an added worker last checked if it should leave; at first, the time of its
    /// start.
    asked_at: Instant,
}

/// State in which a reserve thread starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    StandingBy,
    Called,
}

/// Longest time for which tasks run in a row before the worker checks epoll.
const LONGEST_WITHOUT_LOOK: Duration = Duration::from_millis(1);
/// Largest number of polls in one check of epoll. The worker goes on only while each poll fills its
/// batch.
const LOOKS: u32 = 8;
/// Estimated time from which on a batch counts as long. To wake a worker takes 10 to 20 µs.
const LONG_BATCH_NANOS: u64 = 20_000;
/// Longest sleep of an added worker before it checks if it should leave. A shorter
/// `dynamic_threads_shrink_time` takes effect then.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);
/// Shortest such sleep.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
/// Interval at which a called reserve thread checks if it is still needed.
const RESERVE_LOOKS: Duration = Duration::from_millis(100);

impl Worker {
    pub(super) fn new(group: Arc<Group>, number: usize, kind: ThreadKind) -> Self {
        let slot = Arc::clone(&group.thread_set.slots[number]);
        let read_buf = vec![0; group.config().worker_read_buf_bytes];
        let stalls = Stalls::new(Arc::clone(&group), Arc::clone(&slot), kind);
        let now = clock::now();
        Self {
            group,
            number,
            slot,
            kind,
            read_buf,
            now,
            due: Vec::new(),
            slice: Slice::of_this_thread(),
            stalls,
            polled_at: now,
            found_nothing: false,
            batches: Batches::default(),
            taken: 0,
            bound: 0,
            asked_at: now,
        }
    }

    /// Works until the thread ends.
    pub(super) fn run(mut self, role: Role) {
        self.group.enter(self.number);
        // Before a reserve thread stands by, so that it is bound from the start.
        self.stay_bound();
        let stalls = Rc::clone(&self.stalls);
        let _announced = stalls.install();
        if self.kind == ThreadKind::Reserve {
            let mut called = role == Role::Called;
            while mem::take(&mut called) || self.stand_by() {
                self.end_pause();
                self.serve();
            }
        } else {
            self.serve();
        }
        self.group.exit();
    }

    /// Stands by until called. Returns false if this reserve thread must leave.
    fn stand_by(&self) -> bool {
        let group = &self.group;
        let limits = || {
            let config = group.config();
            (config.reserve_threads_per_group, config.dynamic_threads_shrink_time)
        };
        let stood_by = group.thread_set.stand_by(|| group.stopping() != RUN, limits);
        if stood_by == StoodBy::Surplus {
            self.count(Counter::ThreadsLeft, 1);
        }
        stood_by == StoodBy::Called
    }

    /// Binds the thread to its CPUs. Does so again after the CPUs of the process have changed.
    fn stay_bound(&mut self) {
        let version = self.group.binding.version();
        if version == self.bound {
            return;
        }
        self.bound = version;
        match self.group.binding.bind(self.kind, self.group.index(), self.number) {
            Ok(()) => self.count(Counter::AffinitySet, 1),
            Err(error) => {
                self.count(Counter::AffinityFailed, 1);
                log!(debug, %error, group = self.group.index(), "sched_setaffinity");
            }
        }
    }

    /// Longest rest without a wake-up.
    fn patience(&self) -> Option<Duration> {
        match self.kind {
            ThreadKind::Base => None,
            ThreadKind::Worker => {
                let sleep = self.asks_at().duration_since(self.now);
                Some(sleep.clamp(SHORTEST_SLEEP, LONGEST_SLEEP))
            }
            ThreadKind::Reserve => Some(RESERVE_LOOKS),
        }
    }

    /// Time at which this added worker next asks whether it may leave.
    fn asks_at(&self) -> Instant {
        self.asked_at + self.group.config().dynamic_threads_shrink_time / 2
    }

    fn pop(&mut self) -> Option<(Task, Instant)> {
        let queued = self.group.pop(self.accepts(), PopOrder::of(self.taken))?;
        self.taken = self.taken.wrapping_add(1);
        Some(queued)
    }

    fn run_task(&mut self, task: Task, queued_at: Instant) {
        let group = &self.group;
        let class = group.class_of(&task);
        if !class.is_urgent() && self.accepts() != Accepts::Everything {
            // The task was urgent when it was queued, but no longer is.
            return group.push(task);
        }
        let pace = match &task {
            Task::Source(token) => group.pinned(*token).source().cost().pace(),
            Task::Work(work) => work.cost().pace(),
            Task::Run(..) => group.task_cost.pace(),
            Task::Reclaim(_) | Task::Discard(_) => Pace::Cheap,
        };
        if let Task::Run(..) = task {
            self.start(class, pace, queued_at, |group, context| {
                let from = context.lap.now;
                group.run_task(task, context);
                context.charge(&group.task_cost);
                group.note_closure_run(from, context);
            });
            self.group.note_closure_ended(class);
        } else {
            self.start(class, pace, queued_at, |group, context| group.run_task(task, context));
        }
        // Only the handlers of a batch leave their work to the same worker.
        self.group.queue_stealable(self.slot());
    }

    /// Runs the stealable work that the last run has left, if no other work waits for this worker. So a
    /// slow session runs where its request was received, and no worker is woken for it.
    fn run_next(&mut self) {
        if self.slot.stealable.is_empty() {
            return;
        }
        if !self.group.run_queues.is_empty() || self.group.stopping() != RUN {
            self.group.queue_stealable(self.slot());
        } else if let Some(work) = self.slot.stealable.take() {
            self.run_task(Task::Work(work), self.now);
        }
    }

    /// Runs code that may call user code. The code charges its time to a [`Cost`](super::cost::Cost).
    fn start(
        &mut self,
        class: Class,
        pace: Pace,
        runnable_at: Instant,
        code: impl FnOnce(&Group, &mut WorkerContext<'_>),
    ) {
        if pace == Pace::Dear {
            self.stalls.begin_slow();
            // With a short slice, other threads run in between. This thread gets the CPU back before
            // another one has used a whole slice.
            self.slice.set_short(true);
        }
        self.before_run(pace == Pace::Cheap, self.demand());
        cost::begin_run(pace == Pace::Dear || self.group.is_crowded(self.now));
        self.slot().class.store(class as u8, Ordering::Relaxed);
        let login = self.kind == ThreadKind::Reserve && class == Class::Login;
        if login {
            self.group.thread_set.begin_login();
        }
        let mut context = WorkerContext {
            turn: Turn::ALONE,
            read_buf: &mut self.read_buf,
            lap: Lap::from(self.now),
            runnable_at,
        };
        code(&self.group, &mut context);
        if context.lap.now == self.now {
            // The run was not timed. The next run must not be charged for it.
            context.lap.now = clock::now();
        }
        let began = mem::replace(&mut self.now, context.lap.now);
        if cost::end_run(self.now.nanos_since(began)) {
            self.group.mode.note_crowded(self.now);
        }
        self.stalls.end_run(self.now);
        if login {
            self.group.thread_set.end_login();
        }
        self.end_run();
    }

    /// Starts the next interval. The last one was no run.
    fn end_pause(&mut self) {
        let began = mem::replace(&mut self.now, clock::now());
        cost::end_pause(self.now.nanos_since(began));
    }

    /// Polls epoll between tasks without waiting. Runs quick events and queues the others. Otherwise
    /// quick events would stand behind slow ones in the kernel, which returns events in the order of
    /// their arrival.
    fn look(&mut self) {
        let demand = self.demand();
        for _ in 0..LOOKS {
            if !self.poll_epoll(None, demand) {
                return;
            }
        }
    }

    /// Takes events and delivers them. Returns true if there may be more.
    ///
    /// With a rest, it waits for events if the rest allows that, and ends the rest. Without a rest, it
    /// does not wait: the worker runs, and keeps its permit if it has one.
    fn poll_epoll(&mut self, rest: Option<Rest>, demand: Demand) -> bool {
        let per_wait = self.group.config().epoll_events_per_thread.min(MOST_EVENTS);
        // If another worker waits in epoll, it can take the other events. So this worker takes one
        // event, and the others do not stand behind it.
        let one = demand.all_wait && (rest.is_some() || self.group.park.has_waiter());
        let most = if one { 1 } else { per_wait };
        self.slice.set_short(demand.all_wait);
        let mut events = [Event::EMPTY; MOST_EVENTS];
        let limit = if rest == Some(Rest::Wait) { self.patience() } else { Some(Duration::ZERO) };
        let waited = self.group.epoll.wait(&mut events[..most], limit);
        if let Some(rest) = rest {
            self.rise(rest);
        }
        self.end_pause();
        self.polled_at = self.now;
        let count = waited.unwrap_or_else(|error| {
            // Only a bug can make this fail: the group owns the open descriptor, and the array is on
            // this stack.
            log!(error, %error, "epoll_wait");
            0
        });
        self.count(Counter::EpollWaits, 1);
        self.count(Counter::EpollEvents, count as u64);
        self.found_nothing = rest == Some(Rest::Look) && count == 0;
        // Asked anew, because the worker may have waited long since it found nothing.
        let demand = self.demand();
        self.deliver(&events[..count], rest, demand);
        count == most
    }

    /// Steps 5 to 7 of the loop: pin, fire timers, deliver.
    fn deliver(&mut self, events: &[Event], rest: Option<Rest>, demand: Demand) {
        // 5. Pin every source before any code runs. Note the events of the eventfd and the timerfd.
        let (mut timers_due, mut woken) = (false, false);
        let (mut paces, mut nanos) = ([Pace::Cheap; MOST_EVENTS], 0);
        let pinned = self.take_events(|| {
            let mut pinned = 0;
            for event in events {
                match event.data() {
                    EVENTFD => woken = true,
                    TIMERFD => timers_due = true,
                    data => {
                        let token = Token::decode(data);
                        if let Some(source) = self.group.pin(token) {
                            let cost = source.source().cost();
                            paces[pinned] = cost.pace();
                            nanos += u64::from(cost.nanos().unwrap_or(0));
                            self.slot.batch[pinned].put(token, event.readiness());
                            pinned += 1;
                        } else {
                            self.count(Counter::StaleEvents, 1);
                        }
                    }
                }
            }
            pinned
        });
        if woken {
            // The edge may have been meant for another worker, which still waits. The wake-up ends
            // before any code runs: while it counts as under way, no other wake-up is sent.
            self.group.park.end_waking();
            self.count_wake_up();
        }
        if rest.is_some() && !demand.all_wait {
            let long = nanos >= LONG_BATCH_NANOS;
            if rest == Some(Rest::Wait) {
                self.batches.note(long);
                let taken = || self.group.events_taken();
                self.group.mode.judge_sharing(self.now, &mut self.batches, taken);
            }
            if long && demand.pollers > 1 {
                // The first run below wakes another worker to poll.
                self.group.take_permit(self.slot());
            }
        }
        // 6. Timers. Their callbacks are queued as tasks.
        if timers_due {
            let mut due = mem::take(&mut self.due);
            self.group.fire_due(self.now, &mut due);
            self.due = due;
            // The events below must not be charged for this time.
            self.end_pause();
        }
        // 7. Deliver. Quick sources come first, so that nothing in this batch stands behind a slow one.
        //    If no other worker waits in epoll, the slow ones are queued and epoll is checked. So
        //    nothing in the kernel stands behind them either.
        let (paces, looks) = (&paces[..pinned], rest.is_none());
        let alone = !looks && paces.iter().any(|pace| *pace != Pace::Cheap) && self.waits_alone();
        let mut index = 0;
        for quick in [true, false] {
            for (event, pace) in paces.iter().enumerate() {
                if quick == (*pace == Pace::Cheap) {
                    let turn = Turn::new(index, pinned);
                    let here = quick || turn.last && !looks && !alone;
                    self.deliver_one(event, *pace, turn, here);
                    index += 1;
                }
            }
        }
        if looks {
            self.group.queue_stealable(self.slot());
        } else {
            self.run_next();
        }
        if alone {
            self.look();
        }
    }

    /// Returns true if all workers may wait in epoll and none of them does.
    fn waits_alone(&self) -> bool {
        self.demand().all_wait && !self.group.park.has_waiter()
    }

    /// Runs an event here, or queues it. If this worker was stuck, another one may have taken the
    /// event.
    fn deliver_one(&mut self, event: usize, pace: Pace, turn: Turn, here: bool) {
        let Some((token, readiness)) = self.slot().batch[event].take() else { return };
        let class = self.group.pinned(token).source().class();
        if !here || !self.accepts().includes(class) {
            self.count(Counter::BatchEventsQueued, 1);
            self.group.notify_pinned(token, |source| source.queue_ready(readiness));
            return;
        }
        self.count(Counter::BatchEventsInline, 1);
        self.start(class, pace, self.polled_at, |group, context| {
            context.turn = turn;
            group.with_pinned(token, context, |source, context| source.ready(readiness, context));
        });
    }

    fn count_wake_up(&self) {
        let useful = !self.group.run_queues.is_empty();
        let counter = if useful { Counter::WakeupsUseful } else { Counter::WakeupsFutile };
        self.count(counter, 1);
    }

    fn count(&self, counter: Counter, n: u64) {
        self.slot().counters.bump(counter, n);
    }
}

impl Serve for Worker {
    type Group = Group;

    fn group(&self) -> &Group {
        &self.group
    }

    fn slot(&self) -> &WorkerSlot {
        &self.slot
    }

    fn kind(&self) -> ThreadKind {
        self.kind
    }

    fn demand(&self) -> Demand {
        let demand = self.group.mode.demand(self.now);
        // A worker that found nothing sleeps if another one polls.
        let pollers = if demand.all_wait || !self.found_nothing { demand.pollers } else { 1 };
        Demand { pollers, ..demand }
    }

    fn accepts(&self) -> Accepts {
        if self.kind != ThreadKind::Reserve || self.group.stopping() != RUN {
            Accepts::Everything
        } else if self
            .group
            .thread_set
            .has_place_for_login(self.group.config().reserve_threads_per_group)
        {
            Accepts::Urgent
        } else {
            Accepts::Progress
        }
    }

    /// Runs queued tasks, one pop at a time, until the queue is empty. In between, the worker checks
    /// epoll, so that tasks never starve the network, and follows changes of the CPU plan.
    fn run_tasks(&mut self) {
        let mut in_a_row = 0;
        let mut looked = self.now;
        self.stay_bound();
        while self.group.stopping() != LEAVE_NOW {
            let Some((task, queued_at)) = self.pop() else { return };
            if self.group.histograms.is_on() {
                let waited = self.now.duration_since(queued_at);
                self.group.histograms.record(Stage::WorkQueue, waited);
            }
            self.run_task(task, queued_at);
            in_a_row += 1;
            let long_ago = self.now.duration_since(looked) >= LONGEST_WITHOUT_LOOK;
            if in_a_row >= self.group.config().tasks_per_poll || long_ago {
                in_a_row = 0;
                looked = self.now;
                self.stay_bound();
                self.look();
            }
        }
    }

    fn may_leave(&mut self) -> bool {
        if self.now < self.asks_at() {
            return false;
        }
        self.asked_at = self.now;
        let leaves = self.group.may_leave(self.now);
        if leaves {
            self.count(Counter::ThreadsLeft, 1);
        }
        leaves
    }

    fn poll(&mut self, rest: Rest, demand: Demand) {
        self.poll_epoll(Some(rest), demand);
    }

    fn sleep(&mut self, rest: Rest) {
        self.found_nothing = false;
        let woken = self.group.park.sleep(self.patience());
        self.rise(rest);
        self.end_pause();
        if woken {
            self.count_wake_up();
        }
    }
}

#[cfg(test)]
mod tests;
