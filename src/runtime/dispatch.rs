//! How a group gets its tasks: who queues them, in which lane, and who is woken for them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use super::class::Class;
use super::end::RUN;
use super::group::{Group, RECLAIMING};
use super::lanes::{First, Lanes, Taste};
use super::park::{Demand, Wake};
use super::queue::Pushed;
use super::seats::Seat;
use super::slots::Token;
use super::source::Source;
use super::task::Task;
use super::threads::ThreadKind;
use super::work::Work;
use crate::stats::Counter;
use crate::sync::runner::Marks;
use crate::sync::stall;

impl Group {
    /// Queues what may not be lost. Who is known to bring much goes behind those who do not.
    pub(crate) fn push(&self, task: Task) {
        let much = match &task {
            Task::Source(token) => self.pinned(*token).cost().is_long(),
            Task::Work(_) | Task::Run(..) | Task::Reclaim(_) | Task::Discard(_) => false,
        };
        self.push_by(task, if much { Lanes::push_spent } else { Lanes::push });
    }

    /// Queues what has had its share, behind those that have not.
    fn push_spent(&self, task: Task) {
        self.push_by(task, Lanes::push_spent);
    }

    fn push_by(&self, task: Task, push: impl FnOnce(&Lanes<Task>, Class, Task) -> Pushed) {
        let class = self.class_of(&task);
        self.note_accepted(&task);
        let pushed = push(&self.lanes, class, task);
        self.note_pushed(class, pushed);
        self.wake_one();
        // After the fence of the wake-up, see `End::leave`.
        if self.end.is_over() {
            self.sweep();
        }
    }

    /// Queues what the caller takes back when the queue is full.
    pub(super) fn try_push(&self, task: Task) -> Result<(), Task> {
        let class = self.class_of(&task);
        self.note_accepted(&task);
        let mut task = Some(task);
        let queue = || Some(self.lanes.try_push(class, task.take()?));
        match self.intake.pass(self.usage.begun(), queue).flatten() {
            Some(Ok(pushed)) => self.note_pushed(class, pushed),
            Some(Err(refused)) => task = Some(refused),
            None => {}
        }
        if let Some(task) = task {
            self.note_ended(&task);
            return Err(task);
        }
        self.wake_one();
        Ok(())
    }

    fn note_pushed(&self, class: Class, pushed: Pushed) {
        if class.is_urgent() {
            self.count(Counter::UrgentTasks, 1);
        }
        if pushed == Pushed::Overflowed {
            self.count(Counter::TasksOverflowed, 1);
        }
    }

    /// The lane it goes to. What is to be dropped may hold what others wait for.
    pub(super) fn class_of(&self, task: &Task) -> Class {
        match task {
            Task::Source(token) => self.pinned(*token).class(),
            Task::Work(work) => work.class(),
            Task::Run(class, _) => *class,
            Task::Reclaim(_) | Task::Discard(_) => Class::InProgress,
        }
    }

    fn note_accepted(&self, task: &Task) {
        if let Task::Run(class, _) = task {
            self.closures.fetch_add(1, Ordering::Relaxed);
            self.note_urgent(Class::Ordinary, *class);
        }
    }

    /// A closure was run, dropped or given back.
    pub(super) fn note_ended(&self, task: &Task) {
        if let Task::Run(class, _) = task {
            self.note_closure_ended(*class);
        }
    }

    pub(super) fn note_closure_ended(&self, class: Class) {
        self.closures.fetch_sub(1, Ordering::Relaxed);
        self.note_urgent(class, Class::Ordinary);
    }

    /// Something that could use a thread of its own changes its class.
    pub(crate) fn note_urgent(&self, before: Class, after: Class) {
        match (before.is_urgent(), after.is_urgent()) {
            (false, true) => self.usage.urgent_unit_began(),
            (true, false) => self.usage.urgent_unit_ended(),
            _ => {}
        }
    }

    /// A layer above has something that could use a thread of its own, beside the connections.
    pub(crate) fn session_opened(&self) {
        self.sessions_above.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn session_closed(&self) {
        self.sessions_above.fetch_sub(1, Ordering::Relaxed);
    }

    /// Everything that could use a thread of its own.
    pub(super) fn sessions(&self) -> usize {
        let (allocated, free) = self.slots.usage();
        let above = self.sessions_above.load(Ordering::Relaxed);
        allocated - free + self.closures.load(Ordering::Relaxed) + above
    }

    /// After the drain has begun: everything that `try_push` accepted is queued when this returns.
    pub(super) fn end_spawning(&self) {
        self.intake.wait_until_empty();
    }

    /// Queues, waiting for room until `give_up` says otherwise.
    pub(super) fn push_wait(&self, mut task: Task, give_up: impl Fn() -> bool) -> Result<(), Task> {
        let class = self.class_of(&task);
        loop {
            task = match self.try_push(task) {
                Ok(()) => return Ok(()),
                Err(task) => task,
            };
            // The caller may be a worker of another runtime, whose other tasks must go on.
            stall::run(|| self.room.wait(|| self.lanes.is_full(class) && !give_up()));
            if give_up() {
                return Err(task);
            }
        }
    }

    /// Takes the next task, and tells when it was queued.
    pub(super) fn pop(&self, taste: Taste, first: First) -> Option<(Task, Instant)> {
        let (task, queued_at) = self.lanes.pop(taste, first)?;
        // Only spawned closures take places, so no other task makes room when it leaves.
        if matches!(task, Task::Run(..)) {
            self.room.freed();
        }
        Some((task, queued_at))
    }

    /// Queues a run of something registered; `false` when it is registered no more.
    pub(crate) fn push_source(&self, token: Token) -> bool {
        let pinned = self.slots.pin(token);
        if pinned {
            self.push(Task::Source(token));
        }
        pinned
    }

    /// The same for what has had a whole turn and has more to do.
    pub(crate) fn push_spent_source(&self, token: Token) -> bool {
        let pinned = self.slots.pin(token);
        if pinned {
            self.push_spent(Task::Source(token));
        }
        pinned
    }

    /// Queues work of a layer above, and never refuses.
    pub(crate) fn push_work(&self, work: Arc<dyn Work>) {
        self.push(Task::Work(work));
    }

    /// The same for what has had a whole turn, is one of too many, or helps nobody who waits.
    pub(crate) fn push_spent_work(&self, work: Arc<dyn Work>) {
        self.push_spent(Task::Work(work));
    }

    /// Shows work that stands behind what this worker runs, to be taken back before it runs. Until
    /// then it goes to the queue when this worker turns out to be stuck, announces a wait, or is done
    /// without having taken it back.
    ///
    /// It never gets lost, but it may be in the queue already when this returns: on a thread that is no
    /// worker of the group, and in an announced wait. (To queue it at once always cost a fifth of the
    /// throughput of 1 024 sessions on two CPUs, because others then took half of each batch.)
    /// There is one place: what was aside before goes to the queue.
    pub(crate) fn set_aside(&self, work: Arc<dyn Work>) {
        let seat = match self.current_seat() {
            Some(seat) if seat.state.runs() => seat,
            _ => return self.push_work(work),
        };
        if let Some(before) = seat.aside.put(work) {
            self.push_work(before);
        }
        self.show_to_watchdog();
    }

    /// The caller runs, and holds something that others could do if it got stuck.
    pub(super) fn show_to_watchdog(&self) {
        // SeqCst: pairs with the fence in `Watch::sleep`. Either the watchdog sees what the caller
        // holds, or the caller sees that the watchdog sleeps.
        fence(Ordering::SeqCst);
        self.watch.alert();
    }

    /// Whether this worker is of the reserve, and is to run urgent work alone.
    pub(crate) fn runs_urgent_alone(&self) -> bool {
        let is_reserve = |seat: &Seat| seat.kind() == Some(ThreadKind::Reserve);
        self.current_seat().is_some_and(is_reserve) && self.stopping() == RUN
    }

    /// Takes back what this worker has set aside; `None` when it is in somebody else's hands.
    pub(crate) fn take_aside(&self) -> Option<Arc<dyn Work>> {
        self.current_seat()?.aside.take()
    }

    /// Whether what this worker has set aside is still there.
    pub(crate) fn has_aside(&self) -> bool {
        self.current_seat().is_some_and(|seat| !seat.aside.is_empty())
    }

    /// Queues what a worker has set aside.
    pub(super) fn queue_aside(&self, seat: &Seat) {
        if let Some(work) = seat.aside.take() {
            self.push(Task::Work(work));
        }
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

    /// Takes from a stuck worker what others could do: its stealable work, the events that it has not
    /// begun, and its permit.
    pub(super) fn relieve(&self, seat: &Seat, demand: Demand) {
        self.queue_aside(seat);
        self.queue_batch(seat, Counter::BatchEventsStolen);
        if seat.state.take_permit() {
            self.park.give_permit();
            self.wake_poller(demand);
        }
    }

    /// Queues and counts the events that a worker has taken and not begun.
    pub(super) fn queue_batch(&self, seat: &Seat, counter: Counter) {
        for event in &seat.batch {
            if let Some((token, readiness)) = event.take() {
                self.count(counter, 1);
                self.notify_pinned(token, |source| source.queue_ready(readiness));
            }
        }
    }

    /// Drops something as a task, unless this already is the place for it.
    pub(crate) fn discard<T: Any + Send>(&self, remains: T) {
        if self.is_current() && RECLAIMING.get() || self.stopping() != RUN {
            drop(remains);
        } else {
            self.queue_drop(remains);
        }
    }

    /// Drops something as a task, and never here. Its destructor may queue the next one.
    pub(crate) fn queue_drop<T: Any + Send>(&self, remains: T) {
        self.push(Task::Discard(Box::new(remains)));
    }

    /// For something that is queued.
    pub(super) fn wake_one(&self) {
        self.make(self.park.wake());
    }

    /// For a permit that is free.
    pub(super) fn wake_poller(&self, demand: Demand) {
        if self.park.wants_poller(demand) {
            self.make(self.park.wake());
        }
    }

    fn make(&self, wake: Option<Wake>) {
        match wake {
            None => return,
            Some(Wake::Waiter) => self.eventfd.signal(),
            Some(Wake::Sleeper) => self.park.post(),
        }
        self.count(Counter::WakeupsSent, 1);
    }

    /// Nothing that others could do may be left lying behind what this thread begins.
    pub(super) fn wake_for_what_waits(&self, demand: Demand) {
        if self.lanes.is_empty() {
            self.wake_poller(demand);
        } else {
            self.wake_one();
        }
    }

    /// Whether a worker that runs has something that others could do if it got stuck.
    pub(super) fn any_holds(&self) -> bool {
        self.crew.seats.iter().any(|seat| seat.state.runs() && seat.holds())
    }

    /// Nobody does anything, and nobody is about to.
    pub(super) fn rests(&self) -> bool {
        self.park.resting() == self.crew.serving() as u64 && self.lanes.is_empty()
    }
}
