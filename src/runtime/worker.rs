//! The worker loop.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::batch::MOST_EVENTS;
use super::cost::{Class, Cost};
use super::end::{LEAVE_NOW, RUN};
use super::group::{EVENTFD, Group, Seat, TIMERFD};
use super::park::{Demand, Rest};
use super::slots::Token;
use super::source::{Lent, Turn};
use super::task::Task;
use super::timers::Due;
use crate::stats::Counter;
use crate::sys::epoll::Event;
use crate::sys::sched::Slice;

/// A worker thread of a group. All of a group are equal.
pub(super) struct Worker {
    group: Arc<Group>,
    seat: usize,
    read_buf: Vec<u8>,
    /// The end of the last thing that was timed.
    now: Instant,
    due: Vec<Due>,
    lookout: Lookout,
    slice: Slice,
}

/// What a lookout remembers between two looks.
#[derive(Debug, Default)]
struct Lookout {
    /// Beat of every seat at the last look.
    beats: Vec<u64>,
    tick: Duration,
    /// For how long nobody ran.
    quiet: Duration,
}

/// What a lookout has taken over.
#[derive(Debug, Default)]
struct Relieved {
    events: bool,
    permit: bool,
}

/// Time between two looks while something happens; a worker that completed nothing in between is
/// stuck. Doubles while nothing happens.
const SHORTEST_TICK: Duration = Duration::from_micros(500);
const LONGEST_TICK: Duration = Duration::from_millis(10);
/// Tasks in a row for longer than this, and the worker looks into epoll.
const LONGEST_WITHOUT_LOOK: Duration = Duration::from_millis(1);
/// After so long without anybody running there is nothing to look out for.
const QUIET: Duration = Duration::from_millis(100);

impl Worker {
    pub(super) fn new(group: Arc<Group>, seat: usize) -> Self {
        let read_buf = vec![0; group.config().worker_read_buf_bytes];
        let beats = vec![0; group.seats.len()];
        let lookout = Lookout { beats, ..Lookout::default() };
        let (now, due) = (Instant::now(), Vec::new());
        Self { group, seat, read_buf, now, due, lookout, slice: Slice::of_this_thread() }
    }

    /// Works until the group stops.
    pub(super) fn run(mut self) {
        self.group.enter(self.seat);
        self.rise(false);
        loop {
            // 1. Work in progress first.
            self.run_tasks();
            // 2. The end.
            if self.group.stopping() != RUN && self.must_leave() {
                break;
            }
            // 3. Announce the rest, then look once more.
            let demand = self.group.mode.demand(self.now);
            let has_permit = self.seat().state.rest();
            let rest = self.group.park.rest(has_permit, demand);
            if !self.group.queue.is_empty() || self.group.stopping() != RUN {
                self.group.park.rise(rest);
                self.rise(!matches!(rest, Rest::Sleep { .. }));
                continue;
            }
            if self.group.park.wants_poller(demand) {
                self.group.wake_one();
            }
            // 4. Rest.
            match rest {
                Rest::Wait | Rest::Look => self.poll(rest, demand),
                Rest::Sleep { lookout } => self.sleep(lookout),
            }
        }
        self.leave();
    }

    fn seat(&self) -> &Seat {
        &self.group.seats[self.seat]
    }

    /// Runs queued tasks, one pop at a time, until the queue is empty. Looks into epoll now and
    /// then, so that tasks never starve the network.
    fn run_tasks(&mut self) {
        let mut in_a_row = 0;
        let mut looked = self.now;
        while let Some(task) = self.group.pop() {
            self.run_task(task);
            in_a_row += 1;
            let long_ago = self.now.saturating_duration_since(looked) >= LONGEST_WITHOUT_LOOK;
            if in_a_row >= self.group.config().tasks_per_poll || long_ago {
                in_a_row = 0;
                looked = self.now;
                let demand = self.group.mode.demand(self.now);
                self.poll(Rest::Look, demand);
            }
            if self.group.stopping() == LEAVE_NOW {
                return;
            }
        }
    }

    fn run_task(&mut self, task: Task) {
        let group = Arc::clone(&self.group);
        let class = match &task {
            Task::Source(token) => group.pinned(*token).cost().class(),
            Task::Run(_) => group.task_cost.class(),
            Task::Reclaim(_) | Task::Discard(_) => Class::Cheap,
        };
        let times = matches!(task, Task::Run(_)).then_some(&group.task_cost);
        self.start(class, times, |lent| task.run(&group, lent));
    }

    /// Runs something that may call into the user's code.
    ///
    /// `times` gets the time that it took; a source times itself.
    fn start(&mut self, class: Class, times: Option<&Cost>, code: impl FnOnce(&mut Lent<'_>)) {
        if class != Class::Cheap && self.seat().state.take_permit() {
            self.group.park.give_permit();
        }
        if class == Class::Dear {
            self.group.mode.begin_slow();
            // So that others get the CPU between, and back to it before a whole slice is over.
            self.slice.set_short(true);
        }
        self.wake_for_what_waits();
        let mut lent = Lent { turn: Turn::ALONE, read_buf: &mut self.read_buf, now: self.now };
        code(&mut lent);
        if let Some(cost) = times {
            lent.charge(cost);
        }
        self.now = lent.now;
        if class == Class::Dear {
            self.group.mode.end_slow(self.now);
        }
        self.beat();
    }

    /// Shows the lookout that something was completed.
    fn beat(&self) {
        let beat = &self.seat().beat;
        beat.store(beat.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Ends a rest, as the others see it.
    fn rise(&self, with_permit: bool) {
        // Who has just risen is not stuck.
        self.beat();
        self.seat().state.run(with_permit);
    }

    /// Before anything is started: nothing that others could do may be left lying behind it.
    fn wake_for_what_waits(&self) {
        let demand = self.group.mode.demand(self.now);
        if !self.group.queue.is_empty() || self.group.park.wants_poller(demand) {
            self.group.wake_one();
        }
    }

    /// Takes events and delivers them; waits for them if it may, and ends the rest.
    ///
    /// Also called in the midst of running, to look: with or without a permit, which stays.
    fn poll(&mut self, rest: Rest, demand: Demand) {
        let per_wait = self.group.config().epoll_events_per_thread.min(MOST_EVENTS);
        let most = if demand.all_wait { 1 } else { per_wait };
        self.slice.set_short(demand.all_wait);
        let mut events = [Event::EMPTY; MOST_EVENTS];
        let resting = !self.seat().state.runs();
        let waited = self.group.epoll.wait(&mut events[..most], rest == Rest::Wait);
        self.group.park.rise(rest);
        if resting {
            self.rise(true);
        }
        self.now = Instant::now();
        let count = waited.unwrap_or_else(|error| {
            // The descriptor is ours and open, the array is ours: nothing can fail but a bug.
            tracing::error!(%error, "epoll_wait");
            0
        });
        self.count(Counter::EpollWaits, 1);
        self.count(Counter::EpollEvents, count as u64);
        if resting && !demand.all_wait {
            match rest {
                Rest::Look if count == 0 => self.group.mode.note_idle(self.now),
                _ => self.group.mode.note_batch(self.now, count, count == most, rest == Rest::Wait),
            }
        }
        if self.group.park.wants_lookout() && count > 0 {
            self.group.wake_one();
        }
        self.deliver(&events[..count]);
    }

    /// Steps 5 to 7 of the loop: pin, timers, deliver.
    fn deliver(&mut self, events: &[Event]) {
        // 5. Pin every context before anything runs; note what is no context.
        let (mut timers_due, mut woken) = (false, false);
        let mut classes = [Class::Cheap; MOST_EVENTS];
        let mut pinned = 0;
        for event in events {
            match event.data() {
                EVENTFD => woken = true,
                TIMERFD => timers_due = true,
                data => {
                    let token = Token::decode(data);
                    if self.group.pin(token) {
                        classes[pinned] = self.group.pinned(token).cost().class();
                        self.seat().batch[pinned].put(token, event.readiness());
                        pinned += 1;
                    } else {
                        self.count(Counter::StaleEvents, 1);
                    }
                }
            }
        }
        if woken {
            // Perhaps in the place of another one, who waits on.
            self.group.park.end_waking();
            self.count_wake_up();
        }
        // 6. Timers: their callbacks are tasks.
        if timers_due {
            let mut due = mem::take(&mut self.due);
            self.group.fire_due(self.now, &mut due);
            self.due = due;
        }
        // 7. Deliver: what is known to be quick first, so that nothing stands behind what is not.
        let mut index = 0;
        for quick in [true, false] {
            for (event, class) in classes[..pinned].iter().enumerate() {
                if quick == (*class == Class::Cheap) {
                    self.deliver_one(event, *class, Turn::new(index, pinned));
                    index += 1;
                }
            }
        }
    }

    /// Runs an event here when it is quick or the last one; queues it otherwise. Another worker may
    /// have taken it, if this one was stuck.
    fn deliver_one(&mut self, event: usize, class: Class, turn: Turn) {
        let Some((token, readiness)) = self.seat().batch[event].take() else { return };
        if class != Class::Cheap && !turn.is_last() {
            self.count(Counter::BatchEventsQueued, 1);
            self.group.notify_pinned(token, |source| source.queue_ready(readiness));
            return;
        }
        self.count(Counter::BatchEventsInline, 1);
        let group = Arc::clone(&self.group);
        self.start(class, None, |lent| {
            lent.turn = turn;
            group.with_pinned(token, |source| source.ready(readiness, lent));
        });
    }

    /// Sleeps until woken. The lookout wakes by itself to see whether somebody is stuck.
    fn sleep(&mut self, lookout: bool) {
        let mut rest = Rest::Sleep { lookout };
        self.lookout.tick = SHORTEST_TICK;
        self.lookout.quiet = Duration::ZERO;
        self.note_beats();
        let mut permit = false;
        loop {
            let watching = rest == Rest::Sleep { lookout: true };
            let woken = self.group.park.sleep(watching.then_some(self.lookout.tick));
            if woken {
                break;
            }
            let relieved = self.relieve_the_stuck();
            permit = relieved.permit;
            if permit || relieved.events {
                break;
            }
            if self.lookout.quiet >= QUIET {
                self.group.park.end_lookout();
                rest = Rest::Sleep { lookout: false };
            }
        }
        self.group.park.rise(rest);
        self.rise(permit);
        self.now = Instant::now();
        self.count_wake_up();
    }

    /// Takes from workers that completed nothing since the last look what others could do: the rest
    /// of their batch, and the permit.
    fn relieve_the_stuck(&mut self) -> Relieved {
        let group = Arc::clone(&self.group);
        let mut anybody_runs = false;
        let mut relieved = Relieved::default();
        for (seat, beat) in group.seats.iter().zip(&self.lookout.beats) {
            if !seat.state.runs() {
                continue;
            }
            anybody_runs = true;
            if seat.beat.load(Ordering::Relaxed) != *beat {
                continue;
            }
            for event in &seat.batch {
                if let Some((token, readiness)) = event.take() {
                    self.count(Counter::BatchEventsStolen, 1);
                    group.notify_pinned(token, |source| source.queue_ready(readiness));
                    relieved.events = true;
                }
            }
            if seat.state.take_permit() {
                if relieved.permit {
                    // One is enough for this worker.
                    group.park.give_permit();
                }
                relieved.permit = true;
            }
        }
        self.note_beats();
        if anybody_runs {
            self.lookout.quiet = Duration::ZERO;
            self.lookout.tick = SHORTEST_TICK;
        } else {
            self.lookout.quiet += self.lookout.tick;
            self.lookout.tick = (self.lookout.tick * 2).min(LONGEST_TICK);
        }
        relieved
    }

    fn note_beats(&mut self) {
        for (seat, beat) in self.group.seats.iter().zip(&mut self.lookout.beats) {
            *beat = seat.beat.load(Ordering::Relaxed);
        }
    }

    fn must_leave(&self) -> bool {
        self.group.queue.is_empty() || self.group.stopping() == LEAVE_NOW
    }

    fn leave(&self) {
        if self.seat().state.rest() {
            self.group.park.give_permit();
        }
        self.group.exit();
    }

    fn count_wake_up(&self) {
        let useful = !self.group.queue.is_empty();
        let counter = if useful { Counter::WakeupsUseful } else { Counter::WakeupsFutile };
        self.count(counter, 1);
    }

    fn count(&self, counter: Counter, n: u64) {
        self.seat().counters.bump(counter, n);
    }
}
