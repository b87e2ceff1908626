//! [`Simulated`]: a runtime without threads, of which each step is taken by whoever holds it.
//!
//! ```text
//!   epoll ── take_events ──▶ ┌───────┐
//!   queue ── take_task ────▶ │ hands │ ── run(which) ──▶ what a worker would call
//!   timers ─ fire_due ─────▶ queue    └───────┘
//! ```
//!
//! What is in the hands is what several workers have taken and not begun; the one who steps says which
//! of them is next. [`run`](Simulated::run) may be called again from within what it runs: as if another
//! worker went on while this one's handler takes its time. Time and random numbers are those of
//! [`clock`] and [`random`](crate::sys::random).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::builder::{Builder, StartError};
use super::lanes::{First, Taste};
use super::slots::Token;
use super::source::{CUT, DRAIN, Lent, OVER, Turn};
use super::stalls::Lap;
use super::task::Task;
use super::{Group, Handle, Runtime};
use crate::config::Config;
use crate::stats::Counter;
use crate::sys::clock;
use crate::sys::epoll::{Event, Readiness};

/// A runtime without threads.
#[derive(Debug)]
pub(crate) struct Simulated {
    runtime: Runtime,
    hands: RefCell<Vec<Taken>>,
    /// One for each that runs within another.
    read_bufs: RefCell<Vec<Vec<u8>>>,
    /// Tasks that were taken, as a worker counts them.
    taken: Cell<u32>,
    overtakes: RefCell<Overtakes>,
}

/// Account of tasks that were taken before others that had been queued earlier.
#[derive(Debug, Default)]
struct Overtakes {
    /// When the last tasks of each group that were taken had been queued.
    queued_at: VecDeque<(usize, Instant)>,
    /// Largest number of later tasks that were taken before one.
    most: usize,
}

/// What a worker has taken and not begun.
#[derive(Debug)]
enum Taken {
    Event(Arc<Group>, Token, Readiness),
    Task(Arc<Group>, Task, Instant),
}

/// What was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Event,
    Source,
    Work,
    Closure,
    Remains,
}

/// More events than there are connections.
const MOST_EVENTS: usize = 64;

impl Simulated {
    /// With these tunables, of which those about threads count for nothing. There is one group, or
    /// `epoll_groups`.
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

    /// The groups in turn, each for the next connection.
    pub(crate) fn group(&self) -> &Arc<Group> {
        self.handle().next_group()
    }

    /// Takes the events that there are, and pins what they are for.
    pub(crate) fn take_events(&self) -> usize {
        self.handle().groups().iter().map(|group| self.take_events_of(group)).sum()
    }

    fn take_events_of(&self, group: &Arc<Group>) -> usize {
        let mut events = [Event::EMPTY; MOST_EVENTS];
        let count = group.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap_or(0);
        let mut taken = 0;
        // The timer of the kernel knows nothing of simulated time.
        for event in events[..count].iter().filter(|event| event.data() >= Token::FIRST) {
            let token = Token::decode(event.data());
            if group.pin(token) {
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

    /// Takes the next task of the first group that has one: that of a worker's turn, or an ordinary
    /// one if there is any.
    pub(crate) fn take_task(&self, ordinary_first: bool) -> bool {
        let of_turn = First::of(self.taken.get());
        let order = if ordinary_first { First::Ordinary } else { of_turn };
        // Workers of all groups go on at the same time.
        let groups = self.handle().groups();
        let first = self.taken.get() as usize % groups.len();
        for group in groups[first..].iter().chain(&groups[..first]) {
            if let Some((task, queued_at)) = group.pop(Taste::Everything, order) {
                self.taken.set(self.taken.get().wrapping_add(1));
                self.overtakes.borrow_mut().note(group.index(), queued_at);
                self.hands.borrow_mut().push(Taken::Task(Arc::clone(group), task, queued_at));
                return true;
            }
        }
        false
    }

    /// Largest number of tasks that were queued after another and taken before it.
    pub(crate) fn most_overtakes(&self) -> usize {
        self.overtakes.borrow().most
    }

    /// How many are in the hands.
    pub(crate) fn in_hands(&self) -> usize {
        self.hands.borrow().len()
    }

    /// Tasks that nobody has taken.
    pub(crate) fn queued(&self) -> usize {
        self.handle().groups().iter().map(|group| group.lanes.len()).sum()
    }

    /// Runs one of the hands here; an event with `turn` behind it, or queues it without.
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
        let mut lent = Lent {
            turn: turn.unwrap_or(Turn::ALONE),
            read_buf,
            lap: Lap::from(now),
            runnable_at: now,
        };
        let ran = match taken {
            Taken::Event(_, token, readiness) => {
                match turn {
                    Some(_) => {
                        group.with_pinned(token, &mut lent, |source, lent| {
                            source.ready(readiness, lent)
                        });
                    }
                    None => group.notify_pinned(token, |source| source.queue_ready(readiness)),
                }
                Ran::Event
            }
            Taken::Task(_, task, queued_at) => {
                lent.runnable_at = queued_at;
                let class = group.class_of(&task);
                let ran = match &task {
                    Task::Source(_) => Ran::Source,
                    Task::Work(_) => Ran::Work,
                    Task::Run(..) => Ran::Closure,
                    Task::Reclaim(_) | Task::Discard(_) => Ran::Remains,
                };
                task.run(group, &mut lent);
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

    /// Queues what is due.
    pub(crate) fn fire_due(&self) {
        for group in self.handle().groups() {
            group.fire_due(clock::now(), &mut Vec::new());
        }
    }

    /// When there is something due next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.handle().groups().iter().filter_map(|group| group.next_deadline()).min()
    }

    /// The drain begins, as of [`Runtime::drain`].
    pub(crate) fn start_draining(&self) {
        self.handle().usage().start_draining();
        self.handle().groups().iter().for_each(|group| group.notify_all(DRAIN));
    }

    /// The deadline of the drain has come; or, if nothing is left to be cut, it is over.
    pub(crate) fn end_draining(&self, cut: bool) {
        let mark = if cut { CUT } else { OVER };
        self.handle().groups().iter().for_each(|group| group.notify_all(mark));
    }
}

impl Drop for Simulated {
    /// Ends what is registered, as the last worker of a group does. A connection and its slot in the
    /// group refer to each other.
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

/// Tasks by which the account of overtakes looks back.
const LAST_TAKEN: usize = 1024;
