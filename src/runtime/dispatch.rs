//! Tasks of a group: how they are queued, in which lane, which worker is woken for them, and how they
//! run.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::class::Class;
use super::end::RUN;
use super::group::{Group, RECLAIMING};
use super::park::Demand;
use super::queue::Pushed;
use super::run_queues::{Accepts, PopOrder, RunQueues};
use super::schedule::Schedule;
use super::slots::Token;
use super::source::{Source, Turn, WorkerContext};
use super::task::Task;
use super::work::Work;
use super::worker_slot::ThreadKind;
use super::worker_slot::WorkerSlot;
use crate::stall;
use crate::stats::Counter;
use crate::sync::runner::{Ended, Marks, Runner};
use crate::sys::clock::{self, Instant};

impl Group {
    pub(super) fn run_task(&self, task: Task, context: &mut WorkerContext<'_>) {
        match task {
            Task::Source(token) => {
                context.turn = Turn::ALONE;
                self.with_pinned(token, context, |source, context| source.resume(context));
            }
            Task::Work(work) => {
                context.turn = Turn::ALONE;
                if self.guard("work", || work.run(context)).is_none() {
                    context.lap.now = clock::now();
                }
            }
            Task::Run(_, closure) => {
                self.count(Counter::TasksRun, 1);
                self.guard("task", closure);
            }
            Task::Reclaim(token) => drop(self.guard("drop", || self.reclaim(token))),
            Task::Discard(remains) => drop(self.guard("drop", || drop(remains))),
        }
    }

    /// Queues a task that must not be lost. Sources whose runs are known to be long go behind the
    /// others.
    pub(crate) fn push(&self, task: Task) {
        let much = match &task {
            Task::Source(token) => self.pinned(*token).source().cost().is_long(),
            Task::Work(_) | Task::Run(..) | Task::Reclaim(_) | Task::Discard(_) => false,
        };
        self.push_by(task, if much { RunQueues::push_spent } else { RunQueues::push });
    }

    /// Queues a task that has had its share, behind tasks that have not.
    fn push_spent(&self, task: Task) {
        self.push_by(task, RunQueues::push_spent);
    }

    fn push_by(&self, task: Task, push: impl FnOnce(&RunQueues<Task>, Class, Task) -> Pushed) {
        self.queue_by(task, push);
        if self.note_queued() {
            self.sweep();
        }
    }

    fn queue_by(&self, task: Task, push: impl FnOnce(&RunQueues<Task>, Class, Task) -> Pushed) {
        let class = self.class_of(&task);
        self.note_accepted(&task);
        let pushed = push(&self.run_queues, class, task);
        self.note_pushed(class, pushed);
    }

    /// Queues a task, or gives it back if the queue is full.
    pub(super) fn try_push(&self, task: Task) -> Result<(), Task> {
        let class = self.class_of(&task);
        self.note_accepted(&task);
        let mut task = Some(task);
        let queue = || Some(self.run_queues.try_push(class, task.take()?));
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

    /// Class of a task, which decides its lane. A value to be dropped may hold a lock that others wait
    /// for.
    pub(super) fn class_of(&self, task: &Task) -> Class {
        match task {
            Task::Source(token) => self.pinned(*token).source().class(),
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

    /// Notes that a closure was run, dropped or given back.
    pub(super) fn note_ended(&self, task: &Task) {
        if let Task::Run(class, _) = task {
            self.note_closure_ended(*class);
        }
    }

    pub(super) fn note_closure_ended(&self, class: Class) {
        self.closures.fetch_sub(1, Ordering::Relaxed);
        self.note_urgent(class, Class::Ordinary);
    }

    /// Notes that a connection, session or closure, which could use a thread of its own, changes
    /// its class.
    pub(crate) fn note_urgent(&self, before: Class, after: Class) {
        match (before.is_urgent(), after.is_urgent()) {
            (false, true) => self.usage.urgent_unit_began(),
            (true, false) => self.usage.urgent_unit_ended(),
            _ => {}
        }
    }

    /// Counts a session of a layer above, which could use a thread of its own as a connection does.
    pub(crate) fn session_opened(&self) {
        self.sessions_above.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn session_closed(&self) {
        self.sessions_above.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of connections, closures and sessions that could use a thread of their own.
    pub(super) fn sessions(&self) -> usize {
        let (allocated, free) = self.slots.usage();
        let above = self.sessions_above.load(Ordering::Relaxed);
        allocated - free + self.closures.load(Ordering::Relaxed) + above
    }

    /// Waits until every task that `try_push` has accepted is queued. Called after the drain has begun.
    pub(super) fn end_spawning(&self) {
        self.intake.wait_until_empty();
    }

    /// Queues a task. Waits for room until `give_up` returns true, and then gives the task back.
    pub(super) fn push_wait(&self, mut task: Task, give_up: impl Fn() -> bool) -> Result<(), Task> {
        let class = self.class_of(&task);
        loop {
            task = match self.try_push(task) {
                Ok(()) => return Ok(()),
                Err(task) => task,
            };
            // The caller may be a worker of another runtime, whose other tasks must go on.
            stall::run(|| self.room.wait(|| self.run_queues.is_full(class) && !give_up()));
            if give_up() {
                return Err(task);
            }
        }
    }

    /// Takes the next task. Returns it with the time at which it was queued.
    pub(super) fn pop(&self, accepts: Accepts, first: PopOrder) -> Option<(Task, Instant)> {
        let (task, queued_at) = self.run_queues.pop(accepts, first)?;
        // Only spawned closures take places, so no other task makes room when it leaves the queue.
        if matches!(task, Task::Run(..)) {
            self.room.freed();
        }
        Some((task, queued_at))
    }

    /// Queues a run of a source. Returns false if the source is no longer registered.
    pub(crate) fn push_source(&self, token: Token) -> bool {
        let pinned = self.pin(token).is_some();
        if pinned {
            self.push(Task::Source(token));
        }
        pinned
    }

    /// Queues a source whose run has ended with marks left. If the source is no longer registered, the
    /// right to run is given back.
    pub(crate) fn queue_rest<T>(&self, ended: Ended, token: Option<&Token>, runner: &Runner<T>) {
        if ended == Ended::Queued && !token.is_some_and(|token| self.push_source(*token)) {
            drop(runner.resume());
        }
    }

    /// Like [`push_source`](Self::push_source), for a source that has used a whole turn and has more to
    /// do.
    pub(crate) fn push_spent_source(&self, token: Token) -> bool {
        let pinned = self.pin(token).is_some();
        if pinned {
            self.push_spent(Task::Source(token));
        }
        pinned
    }

    /// Like [`push_spent_source`](Self::push_spent_source), where a run of this worker ends and no handler
    /// follows in it. Wakes no other worker: this one looks at the queue before its next run and
    /// before it rests. A reserve worker may not take the task, so it does wake another one.
    pub(crate) fn requeue_source(&self, token: Token) -> bool {
        if self.runs_urgent_alone() {
            return self.push_spent_source(token);
        }
        let pinned = self.pin(token).is_some();
        if pinned {
            self.queue_by(Task::Source(token), RunQueues::push_spent);
        }
        pinned
    }

    /// Queues work of a layer above. Never refuses it.
    pub(crate) fn push_work(&self, work: Arc<dyn Work>) {
        self.push(Task::Work(work));
    }

    /// Like [`push_work`](Self::push_work), for work that has used a whole turn, came with too many
    /// others, or keeps no client waiting.
    pub(crate) fn push_spent_work(&self, work: Arc<dyn Work>) {
        self.push_spent(Task::Work(work));
    }

    /// Makes work stealable behind the current run of this worker, which may take it back. It goes to
    /// the queue if the worker is stuck, announces a wait, or ends its run without taking it back. After
    /// the last event of a batch, the worker runs it instead if no task waits.
    ///
    /// The work is never lost, but it may be in the queue already when this returns. That happens on a
    /// thread that is no worker of the group, and during an announced wait. There is one place: if it
    /// holds other work, that work goes to the queue.
    ///
    /// Queueing the work at once cost a fifth of the throughput of 1 024 sessions on two CPUs. Other
    /// workers then took half of each batch.
    pub(crate) fn put_stealable(&self, work: Arc<dyn Work>) {
        let slot = match self.current_slot() {
            Some(slot) if slot.state.runs() => slot,
            _ => return self.push_work(work),
        };
        if let Some(before) = slot.stealable.put(work) {
            self.push_work(before);
        }
        self.show_to_watchdog();
    }

    /// Returns true if this thread is a reserve worker and must run only urgent work.
    pub(crate) fn runs_urgent_alone(&self) -> bool {
        let is_reserve = |slot: &WorkerSlot| slot.kind() == Some(ThreadKind::Reserve);
        self.current_slot().is_some_and(is_reserve) && self.stopping() == RUN
    }

    /// Takes back the stealable work of this worker. Returns `None` if another thread has taken
    /// it.
    pub(crate) fn take_stealable(&self) -> Option<Arc<dyn Work>> {
        self.current_slot()?.stealable.take()
    }

    /// Returns true if the stealable work of this worker is still there.
    pub(crate) fn has_stealable(&self) -> bool {
        self.current_slot().is_some_and(|slot| !slot.stealable.is_empty())
    }

    /// Queues the stealable work of a worker.
    pub(super) fn queue_stealable(&self, slot: &WorkerSlot) {
        if let Some(work) = slot.stealable.take() {
            self.push(Task::Work(work));
        }
    }

    /// Leaves marks for a source, and queues the source if no thread runs it.
    pub(crate) fn notify_source(&self, token: Token, marks: Marks) {
        if self.pin(token).is_some() {
            self.notify_pinned(token, |source| source.queue_marks(marks));
        }
    }

    /// Leaves marks for every registered source, like [`notify_source`](Self::notify_source).
    pub(super) fn notify_all(&self, marks: Marks) {
        for token in self.slots.pin_all() {
            self.notify_pinned(token, |source| source.queue_marks(marks));
        }
    }

    /// Lets `queue` note something in a pinned source. The caller's reference moves to the task, or is
    /// released.
    pub(super) fn notify_pinned(&self, token: Token, queue: impl FnOnce(&dyn Source) -> bool) {
        if queue(self.pinned(token).source()) {
            self.push(Task::Source(token));
        } else {
            self.release(token);
        }
    }

    /// Takes from a stuck worker what other workers could do: its stealable work, the events that it
    /// has not begun, and its permit.
    pub(super) fn relieve(&self, slot: &WorkerSlot, demand: Demand) {
        self.relieve_with(slot, demand, || {
            self.queue_stealable(slot);
            self.queue_batch(slot, Counter::BatchEventsStolen);
        });
    }

    /// Queues and counts the events that a worker has taken and not begun.
    pub(super) fn queue_batch(&self, slot: &WorkerSlot, counter: Counter) {
        for event in &slot.batch {
            if let Some((token, readiness)) = event.take() {
                self.count(counter, 1);
                self.notify_pinned(token, |source| source.queue_ready(readiness));
            }
        }
    }

    /// Drops a value as a task. Drops it here if this worker already reclaims a slot, or if the group
    /// stops.
    pub(crate) fn discard<T: Any + Send>(&self, remains: T) {
        if self.is_current() && RECLAIMING.get() || self.stopping() != RUN {
            drop(remains);
        } else {
            self.queue_drop(remains);
        }
    }

    /// Drops a value as a task, and never here. Its destructor may queue the next one.
    pub(crate) fn queue_drop<T: Any + Send>(&self, remains: T) {
        self.push(Task::Discard(Box::new(remains)));
    }

    /// Returns true if any worker holds something that others could do if it got stuck.
    pub(super) fn any_holds(&self) -> bool {
        self.thread_set.slots.iter().any(WorkerSlot::holds)
    }

    /// Returns true if all workers rest and no task is queued.
    pub(super) fn rests(&self) -> bool {
        self.park.resting() == self.thread_set.serving() as u64 && self.run_queues.is_empty()
    }
}
