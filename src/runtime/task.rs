//! [`Task`]: entry in the queue of a group, and how it runs.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Group;
use super::class::Class;
use super::noise::log_some;
use super::slots::Token;
use super::source::{Turn, WorkerContext};
use super::usage::Origin;
use super::work::Work;
use crate::stats::Counter;
use crate::sync::payload::discard;
use crate::sys::clock;

/// Piece of work. A source is named by its token, with a reference to its slot. So queueing it
/// allocates nothing.
pub(crate) enum Task {
    /// Queued source. Owns a reference.
    Source(Token),
    /// Work of a layer above.
    Work(Arc<dyn Work>),
    /// Code of the user: a spawned closure or the callback of a timer.
    Run(Class, Box<dyn FnOnce() + Send>),
    /// Slot whose last reference was released.
    Reclaim(Token),
    /// Value whose destructor must run as a task, not where the value was dropped.
    Discard(Box<dyn Any + Send>),
}

impl Task {
    pub(crate) fn run(self, group: &Group, context: &mut WorkerContext<'_>) {
        match self {
            Self::Source(token) => {
                context.turn = Turn::ALONE;
                group.with_pinned(token, context, |source, context| source.resume(context));
            }
            Self::Work(work) => {
                context.turn = Turn::ALONE;
                if guard(group, "work", || work.run(context)).is_none() {
                    context.lap.now = clock::now();
                }
            }
            Self::Run(_, closure) => {
                group.count(Counter::TasksRun, 1);
                guard(group, "task", closure);
            }
            Self::Reclaim(token) => drop(guard(group, "drop", || group.reclaim(token))),
            Self::Discard(remains) => drop(guard(group, "drop", || drop(remains))),
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(token) => write!(f, "Source({token:?})"),
            Self::Work(_) => f.write_str("Work"),
            Self::Run(..) => f.write_str("Run"),
            Self::Reclaim(token) => write!(f, "Reclaim({token:?})"),
            Self::Discard(_) => f.write_str("Discard"),
        }
    }
}

thread_local! {
    /// Connection for which this thread runs code. `None` elsewhere: in a task, a timer, a destructor,
    /// and on threads of the host.
    static SERVES: Cell<Option<Served>> = const { Cell::new(None) };
}

/// Connection that waits for the code of a thread. The address of its group is only compared.
#[derive(Clone, Copy)]
pub(super) struct Served {
    pub(super) origin: Origin,
    pub(super) group: *const Group,
    pub(super) token: Token,
}

/// Guard. Until it is dropped, a connection waits for the code that this thread runs.
pub(crate) struct Serving {
    before: Option<Served>,
}

impl Serving {
    pub(crate) fn begin(origin: Origin, group: &Group, token: Token) -> Self {
        Self { before: SERVES.replace(Some(Served { origin, group, token })) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVES.set(self.before);
    }
}

/// Connection that waits for the code that this thread runs.
pub(super) fn serves() -> Option<Served> {
    SERVES.get()
}

/// Runs code of the user. If it panics, the panic is counted and logged, and the result is `None`.
pub(crate) fn guard<R>(group: &Group, what: &str, code: impl FnOnce() -> R) -> Option<R> {
    // Values that the closure touched are dropped with it, or belong to the user.
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(result) => Some(result),
        Err(payload) => {
            note_panic(group, what, payload);
            None
        }
    }
}

/// Counts and logs a panic of the user's code.
pub(crate) fn note_panic(group: &Group, what: &str, payload: Box<dyn Any + Send>) {
    group.count(Counter::Panics, 1);
    let message = message(&*payload);
    let index = group.index();
    log_some!(group, Panic, ERROR, error, group = index, what, message, "handler panicked");
    discard(payload);
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
