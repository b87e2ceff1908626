//! Order of the steps by which each task and event finds a worker: wake-ups, rests, waits, the
//! theft of a permit, and the end. [`Park`] documents the rule of waking.
//!
//! The steps are provided methods. So the models run them as they are, with tasks and an epoll of their
//! own.

use super::end::{End, LEAVE_NOW, RUN};
use super::park::{Demand, Park, Rest, Wake};
use super::run_queues::{Accepts, RunQueues};
use super::thread_set::ThreadSet;
use super::watch::Watch;
use super::worker_slot::ThreadKind;
use super::worker_slot::WorkerSlot;
use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{Ordering, fence};

/// Group of workers.
pub(super) trait Schedule {
    type Task;

    fn park(&self) -> &Park;
    fn run_queues(&self) -> &RunQueues<Self::Task>;
    fn end(&self) -> &End;
    fn watch(&self) -> &Watch;
    fn thread_set(&self) -> &ThreadSet;
    /// Writes to the eventfd. One worker that waits in epoll receives the edge.
    fn signal(&self);
    /// Counts a wake-up that was sent.
    fn note_wake_up(&self);

    fn stopping(&self) -> u8 {
        self.end().stage()
    }

    /// Wakes a worker for a queued task, if one rests.
    fn wake_one(&self) {
        match self.park().wake() {
            None => return,
            Some(Wake::Waiter) => self.signal(),
            Some(Wake::Sleeper) => self.park().post(),
        }
        self.note_wake_up();
    }

    /// Wakes a worker for a free permit, if one sleeps.
    fn wake_poller(&self, demand: Demand) {
        if mutant!(self.park().wants_poller(demand), PermitLeftUnclaimed => false) {
            self.wake_one();
        }
    }

    /// Wakes a worker before the caller begins a run, so that no queued task or free permit waits
    /// behind that run.
    fn wake_for_what_waits(&self, demand: Demand) {
        if self.run_queues().is_empty() {
            self.wake_poller(demand);
        } else {
            self.wake_one();
        }
    }

    /// Notes that a task was queued. Returns true if no worker is left. Then the caller must sweep the
    /// queue.
    #[must_use]
    fn note_queued(&self) -> bool {
        self.wake_one();
        // After the fence of the wake-up, see `End::leave`.
        self.end().is_over()
    }

    /// Alerts the watchdog. The calling worker runs, and holds work that others could do if it got
    /// stuck.
    fn show_to_watchdog(&self) {
        // SeqCst: pairs with the fence in `Watch::sleep`. Either the watchdog sees what the caller
        // holds, or the caller sees that the watchdog sleeps.
        mutant!(fence(Ordering::SeqCst), ShowWithoutFence => ());
        self.watch().alert();
    }

    /// Takes the permit of a worker that is stuck, or about to begin a run that may take long. Returns
    /// false if it has none.
    fn take_permit(&self, slot: &WorkerSlot) -> bool {
        let taken = slot.state.take_permit();
        if taken {
            self.park().give_permit();
        }
        taken
    }

    /// Takes from a stuck worker what others could do: first what `hand_over` queues, then its permit.
    fn relieve_with(&self, slot: &WorkerSlot, demand: Demand, hand_over: impl FnOnce()) {
        hand_over();
        if self.take_permit(slot) {
            self.wake_poller(demand);
        }
    }

    /// Begins an announced wait of a worker. Other workers take over what only this worker could do:
    /// its permit, and what `hand_over` queues.
    fn begin_stall(&self, kind: ThreadKind, slot: &WorkerSlot, hand_over: impl FnOnce() -> Demand) {
        if self.thread_set().begin_stall(kind, slot) {
            self.park().give_permit();
        }
        let demand = hand_over();
        // Wakes a resting worker first, because it is ready sooner than a new thread.
        mutant!(self.wake_for_what_waits(demand), StallWakesNobody => ());
    }

    /// Counts a worker, then starts its thread. So another worker that leaves meanwhile is not the
    /// last one, and does not drop the tasks that the new thread is for.
    fn start_worker<R>(&self, start: impl FnOnce() -> R) -> R {
        mutant!(self.end().enter(), CountedAfterStart => return (start(), self.end().enter()).0);
        start()
    }

    /// Notifies the workers that the group stops.
    fn stop_workers(&self, how: u8) {
        self.end().advance(how);
        // Each sleeper gets its own token. Of the workers in `epoll_wait` one is woken, and it
        // wakes the next when it leaves. A worker that comes later sees the stage.
        for _ in 0..mutant!(self.thread_set().slots.count(), StopPostsNobody => 0) {
            self.park().post();
        }
        self.thread_set().stop();
        self.signal();
    }

    /// Notes that a worker leaves the group. Returns true for the last one, which must sweep the queue.
    #[must_use]
    fn leave(&self) -> bool {
        if mutant!(self.stopping() != RUN, StopNotPassedOn => false) {
            // One of the waiting workers is woken, and does the same.
            self.signal();
        }
        self.end().leave()
    }
}

/// Worker of a group.
pub(super) trait Serve {
    type Group: Schedule;

    fn group(&self) -> &Self::Group;
    fn slot(&self) -> &WorkerSlot;
    fn kind(&self) -> ThreadKind;
    fn demand(&self) -> Demand;
    /// Tasks that this worker may run now.
    fn accepts(&self) -> Accepts;
    /// Runs queued tasks until there are none.
    fn run_tasks(&mut self);
    /// Returns true if an added worker must leave. Then the worker is no longer counted. Most calls
    /// return false without a check.
    fn may_leave(&mut self) -> bool;
    /// Takes events, ends the rest, and delivers the events. Waits for them if the rest allows that.
    fn poll(&mut self, rest: Rest, demand: Demand);
    /// Sleeps until woken, and ends the rest.
    fn sleep(&mut self, rest: Rest);

    /// Works until the group stops, or until this worker is surplus.
    fn serve(&mut self) {
        self.begin(false);
        loop {
            // 1. Run queued tasks.
            self.run_tasks();
            // 2. Leave, if the group stops or this worker is surplus.
            if self.must_leave() || self.is_surplus() {
                break;
            }
            // 3. Announce the rest, then check the queue once more.
            let demand = self.demand();
            let group = self.group();
            let has_permit = group.thread_set().rest(self.slot());
            let rest = group.park().rest(has_permit, demand);
            let has_task = || group.run_queues().has(self.accepts());
            let goes_on = || has_task() || group.stopping() != RUN;
            if mutant!(goes_on(), RestWithoutLook => false) {
                self.rise(rest);
                continue;
            }
            group.wake_poller(demand);
            // 4. Rest.
            match rest {
                Rest::Wait | Rest::Look => self.poll(rest, demand),
                Rest::Sleep => self.sleep(rest),
            }
        }
        let (group, slot) = (self.group(), self.slot());
        let has_permit = match self.kind() {
            ThreadKind::Reserve => group.thread_set().rest(slot),
            ThreadKind::Base | ThreadKind::Worker => group.thread_set().leave(slot),
        };
        if mutant!(has_permit, LeaveKeepsPermit => false) {
            group.park().give_permit();
        }
        mutant!(group.wake_for_what_waits(self.demand()), LeaveWakesNobody => ());
    }

    fn must_leave(&self) -> bool {
        let group = self.group();
        match group.stopping() {
            RUN => false,
            LEAVE_NOW => true,
            _ => group.run_queues().is_empty(),
        }
    }

    /// Returns true if an added or called thread is no longer needed.
    fn is_surplus(&mut self) -> bool {
        match self.kind() {
            ThreadKind::Base => false,
            ThreadKind::Reserve => !self.group().thread_set().reserve_is_needed(),
            ThreadKind::Worker => self.may_leave(),
        }
    }

    /// Hands on what others could do, before a run. The worker keeps its permit if the run is known to
    /// be quick.
    fn before_run(&self, is_quick: bool, demand: Demand) {
        if !is_quick {
            self.group().take_permit(self.slot());
        }
        mutant!(self.group().wake_for_what_waits(demand), NoWakeBeforeStart => ());
    }

    /// Puts events into the batch of the slot with `take`, which returns their number. Then shows
    /// them to the watchdog, also after a rest: the watchdog may have taken the permit since then, and
    /// sleep again.
    fn take_events(&self, take: impl FnOnce() -> usize) -> usize {
        let count = take();
        if mutant!(count > 0, EventsNotShown => false) {
            self.group().show_to_watchdog();
        }
        count
    }

    /// Notes that a run was completed. If the handler has kept the guard of its wait, the worker goes
    /// on all the same.
    fn end_run(&self) {
        let progress = &self.slot().progress;
        progress.store(progress.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.group().thread_set().go_on(self.slot());
    }

    /// Shows that this worker runs.
    fn begin(&self, with_permit: bool) {
        self.slot().state.run(with_permit);
    }

    /// Ends a rest. Wakes the watchdog if it sleeps.
    fn rise(&self, rest: Rest) {
        self.begin(matches!(rest, Rest::Wait | Rest::Look));
        self.group().park().rise(rest);
        // After the fence of `Park::rise`.
        mutant!(self.group().watch().alert(), RiseWithoutAlert => ());
    }
}

#[cfg(all(test, loom))]
pub(crate) mod model;
