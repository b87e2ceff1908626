//! [`Simulated`]: a group without threads, of which each step is taken by whoever holds it.
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

use std::cell::RefCell;
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

/// A runtime of one group, without threads.
#[derive(Debug)]
pub(crate) struct Simulated {
    runtime: Runtime,
    hands: RefCell<Vec<Taken>>,
    /// One for each that runs within another.
    read_bufs: RefCell<Vec<Vec<u8>>>,
}

/// What a worker has taken and not begun.
#[derive(Debug)]
enum Taken {
    Event(Token, Readiness),
    Task(Task, Instant),
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
    /// With these tunables, of which those about groups and threads count for nothing.
    pub(crate) fn new(config: Config) -> Result<Self, StartError> {
        let config = config.epoll_groups(1);
        config.validate().map_err(StartError::Config)?;
        let (runtime, _) = Builder::default().config(config).assemble(None)?;
        Ok(Self { runtime, hands: RefCell::default(), read_bufs: RefCell::default() })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.runtime.handle
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.handle().groups()[0]
    }

    /// Takes the events that there are, and pins what they are for.
    pub(crate) fn take_events(&self) -> usize {
        let group = self.group();
        let mut events = [Event::EMPTY; MOST_EVENTS];
        let count = group.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap_or(0);
        let mut taken = 0;
        // The timer of the kernel knows nothing of simulated time.
        for event in events[..count].iter().filter(|event| event.data() >= Token::FIRST) {
            let token = Token::decode(event.data());
            if group.pin(token) {
                self.hands.borrow_mut().push(Taken::Event(token, event.readiness()));
                taken += 1;
            } else {
                group.count(Counter::StaleEvents, 1);
            }
        }
        taken
    }

    /// Takes the next task: the most urgent, or an ordinary one if there is any.
    pub(crate) fn take_task(&self, ordinary_first: bool) -> bool {
        let first = if ordinary_first { First::Ordinary } else { First::Progress };
        let taken = self.group().pop(Taste::Everything, first);
        let Some((task, queued_at)) = taken else { return false };
        self.hands.borrow_mut().push(Taken::Task(task, queued_at));
        true
    }

    /// How many are in the hands.
    pub(crate) fn in_hands(&self) -> usize {
        self.hands.borrow().len()
    }

    /// Tasks that nobody has taken.
    pub(crate) fn queued(&self) -> usize {
        self.group().lanes.len()
    }

    /// Runs one of the hands here; an event with `turn` behind it, or queues it without.
    pub(crate) fn run(&self, which: usize, turn: Option<(usize, usize)>) -> Ran {
        let taken = self.hands.borrow_mut().remove(which);
        let group = self.group();
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
            Taken::Event(token, readiness) => {
                match turn {
                    Some(_) => {
                        group.with_pinned(token, |source| source.ready(readiness, &mut lent));
                    }
                    None => group.notify_pinned(token, |source| source.queue_ready(readiness)),
                }
                Ran::Event
            }
            Taken::Task(task, queued_at) => {
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
        self.group().fire_due(clock::now(), &mut Vec::new());
    }

    /// When there is something due next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.group().next_deadline()
    }

    /// The drain begins, as of [`Runtime::drain`].
    pub(crate) fn start_draining(&self) {
        self.group().usage().start_draining();
        self.group().notify_all(DRAIN);
    }

    /// The deadline of the drain has come; or, if nothing is left to be cut, it is over.
    pub(crate) fn end_draining(&self, cut: bool) {
        self.group().notify_all(if cut { CUT } else { OVER });
    }
}
