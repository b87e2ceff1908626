//! [`Simulated`]: a runtime without threads. The caller takes each step.
//!
//! ```text
//!   epoll ── take_events ──▶ ┌───────┐
//!   queue ── take_task ────▶ │ hands │ ── run(which) ──▶ what a worker would call
//!                            └───────┘
//!   timers ─ fire_due ─────▶ queue
//! ```
//!
//! The hands hold the items that several workers have taken and not begun. The caller chooses which
//! of them runs next. [`run`](Simulated::run) may be called again from within the code that it
//! runs, as if another worker ran while this handler takes its time. Time and random numbers are
//! those of [`clock`] and [`random`](crate::sys::random).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::builder::{Builder, StartError};
use super::cost::Lap;
use super::run_queues::{Accepts, PopOrder};
use super::slots::Token;
use super::source::{CUT, DRAIN, OVER, Turn, WorkerContext};
use super::task::Task;
#[cfg(test)]
use super::worker_slot::ThreadKind;
use super::{Group, Handle, Runtime};
use crate::config::Config;
use crate::stats::Counter;
use crate::sys::clock::{self, Instant};
use crate::sys::epoll::{Event, Readiness};

/// A runtime without threads.
#[derive(Debug)]
pub(crate) struct Simulated {
    runtime: Runtime,
    hands: RefCell<Vec<Taken>>,
    /// One buffer for each level of nested runs.
    read_bufs: RefCell<Vec<Vec<u8>>>,
    /// Number of tasks taken, as a worker counts them.
    taken: Cell<u32>,
    overtakes: RefCell<Overtakes>,
}

/// Account of tasks that were taken before tasks queued earlier.
#[derive(Debug, Default)]
struct Overtakes {
    /// Groups and queue times of the last tasks that were taken.
    queued_at: VecDeque<(usize, Instant)>,
    /// Largest number of later tasks that were taken before one.
    most: usize,
}

/// Item that a worker has taken and not begun.
#[derive(Debug)]
enum Taken {
    Event(Arc<Group>, Token, Readiness),
    Task(Arc<Group>, Task, Instant),
}

/// Kind of the item that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Event,
    Source,
    Work,
    Closure,
    Remains,
}

/// Number of events for one call. It exceeds the number of connections.
const MOST_EVENTS: usize = 64;

impl Simulated {
    /// Makes a runtime with these tunables. Those about threads have no effect. There is one group,
    /// or `epoll_groups`.
    pub(crate) fn new(config: Config) -> Result<Self, StartError> {
        let groups = config.epoll_groups.max(1);
        let config = config.epoll_groups(groups);
        config.validate().map_err(StartError::Config)?;
        let (runtime, _) = Builder::default().config(config).assemble(None)?;
        Ok(Self {
            runtime,
            hands: RefCell::default(),
            read_bufs: RefCell::default(),
            taken: Cell::default(),
            overtakes: RefCell::default(),
        })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.runtime.handle
    }

    /// Returns the next group in turn, for the next connection.
    pub(crate) fn group(&self) -> &Arc<Group> {
        self.handle().next_group()
    }

    /// Takes the present events and pins their sources. Returns their number.
    pub(crate) fn take_events(&self) -> usize {
        self.handle().groups().iter().map(|group| self.take_events_of(group)).sum()
    }

    fn take_events_of(&self, group: &Arc<Group>) -> usize {
        let mut events = [Event::EMPTY; MOST_EVENTS];
        let count = group.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap_or(0);
        let mut taken = 0;
        // Events of the kernel's timer are ignored: it does not follow simulated time.
        for event in events[..count].iter().filter(|event| event.data() >= Token::FIRST) {
            let token = Token::decode(event.data());
            if group.pin(token).is_some() {
                self.hands.borrow_mut().push(Taken::Event(
                    Arc::clone(group),
                    token,
                    event.readiness(),
                ));
                taken += 1;
            } else {
                group.count(Counter::StaleEvents, 1);
            }
        }
        taken
    }

    /// Takes the next task of the first group that has one, in the order of a worker's turn. If
    /// `ordinary_first`, ordinary tasks go first.
    pub(crate) fn take_task(&self, ordinary_first: bool) -> bool {
        let of_turn = PopOrder::of(self.taken.get());
        let order = if ordinary_first { PopOrder::Ordinary } else { of_turn };
        // Workers of all groups run at the same time, so the first group changes.
        let groups = self.handle().groups();
        let first = self.taken.get() as usize % groups.len();
        for group in groups[first..].iter().chain(&groups[..first]) {
            if let Some((task, queued_at)) = group.pop(Accepts::Everything, order) {
                self.taken.set(self.taken.get().wrapping_add(1));
                self.overtakes.borrow_mut().note(group.index(), queued_at);
                self.hands.borrow_mut().push(Taken::Task(Arc::clone(group), task, queued_at));
                return true;
            }
        }
        false
    }

    /// Returns the largest number of tasks that were queued after another and taken before it.
    pub(crate) fn most_overtakes(&self) -> usize {
        self.overtakes.borrow().most
    }

    /// Returns the number of items in the hands.
    pub(crate) fn in_hands(&self) -> usize {
        self.hands.borrow().len()
    }

    /// Returns the number of tasks that are still queued.
    pub(crate) fn queued(&self) -> usize {
        self.handle().groups().iter().map(|group| group.run_queues.len()).sum()
    }

    /// Runs one item of the hands. `turn` applies to events only: `Some` runs the event here as one
    /// of a batch, `None` queues it.
    pub(crate) fn run(&self, which: usize, turn: Option<(usize, usize)>) -> Ran {
        let taken = self.hands.borrow_mut().remove(which);
        let group = &match &taken {
            Taken::Event(group, ..) | Taken::Task(group, ..) => Arc::clone(group),
        };
        let mut read_buf = self.read_bufs.borrow_mut().pop();
        let read_buf =
            read_buf.get_or_insert_with(|| vec![0; group.config().worker_read_buf_bytes]);
        let now = clock::now();
        let turn = turn.map(|(index, total)| Turn::new(index, total));
        let mut context = WorkerContext {
            turn: turn.unwrap_or(Turn::ALONE),
            read_buf,
            lap: Lap::from(now),
            runnable_at: now,
        };
        let ran = match taken {
            Taken::Event(_, token, readiness) => {
                match turn {
                    Some(_) => {
                        group.with_pinned(token, &mut context, |source, context| {
                            source.ready(readiness, context)
                        });
                    }
                    None => group.notify_pinned(token, |source| source.queue_ready(readiness)),
                }
                Ran::Event
            }
            Taken::Task(_, task, queued_at) => {
                context.runnable_at = queued_at;
                let class = group.class_of(&task);
                let ran = match &task {
                    Task::Source(_) => Ran::Source,
                    Task::Work(_) => Ran::Work,
                    Task::Run(..) => Ran::Closure,
                    Task::Reclaim(_) | Task::Discard(_) => Ran::Remains,
                };
                group.run_task(task, &mut context);
                if ran == Ran::Closure {
                    group.note_closure_ended(class);
                }
                ran
            }
        };
        let read_buf = std::mem::take(read_buf);
        self.read_bufs.borrow_mut().push(read_buf);
        ran
    }

    /// Queues the due timers.
    pub(crate) fn fire_due(&self) {
        for group in self.handle().groups() {
            group.fire_due(clock::now(), &mut Vec::new());
        }
    }

    /// Returns the next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.handle().groups().iter().filter_map(|group| group.next_deadline()).min()
    }

    /// Runs `code` on this thread as the reserve worker of the group.
    #[cfg(test)]
    pub(crate) fn as_reserve<R>(&self, code: impl FnOnce() -> R) -> R {
        let group = self.group();
        let slot = group.thread_set.occupy(ThreadKind::Reserve);
        group.enter(slot);
        let result = code();
        Group::forget_current();
        group.thread_set.vacate(slot);
        result
    }

    /// Begins the drain, as [`Runtime::drain`] does.
    pub(crate) fn start_draining(&self) {
        self.handle().usage().start_draining();
        self.handle().groups().iter().for_each(|group| group.notify_all(DRAIN));
    }

    /// Ends the drain. If `cut`, its deadline has come and the rest is cut.
    pub(crate) fn end_draining(&self, cut: bool) {
        let mark = if cut { CUT } else { OVER };
        self.handle().groups().iter().for_each(|group| group.notify_all(mark));
    }
}

impl Drop for Simulated {
    /// Ends the registered sources, as the last worker of a group does. A connection and its slot
    /// in the group refer to each other, so they would leak.
    fn drop(&mut self) {
        for taken in self.hands.take() {
            match taken {
                Taken::Event(group, token, _) => {
                    group.notify_pinned(token, |source| source.queue_marks(CUT));
                }
                Taken::Task(group, task, _) => group.push(task),
            }
        }
        for group in self.handle().groups() {
            group.notify_all(CUT);
            group.sweep();
        }
    }
}

impl Overtakes {
    fn note(&mut self, group: usize, queued_at: Instant) {
        let later = |&&(of, at): &&(usize, Instant)| of == group && at > queued_at;
        self.most = self.most.max(self.queued_at.iter().filter(later).count());
        if self.queued_at.len() == LAST_TAKEN {
            self.queued_at.pop_front();
        }
        self.queued_at.push_back((group, queued_at));
    }
}

/// Number of taken tasks that the account of overtakes remembers.
const LAST_TAKEN: usize = 1024;
