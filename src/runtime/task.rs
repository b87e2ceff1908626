//! [`Task`]: what stands in the queue of a group, and how it is run.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Group;
use super::class::Class;
use super::noise::log_some;
use super::slots::Token;
use super::source::{Lent, Turn};
use super::usage::Origin;
use super::work::Work;
use crate::stats::Counter;
use crate::sys::clock;

/// One piece of work. A registered thing is named by its token, with a reference to its slot: no
/// allocation on the way.
pub(crate) enum Task {
    /// Something registered that was queued. Owns a reference.
    Source(Token),
    /// Work of a layer above.
    Work(Arc<dyn Work>),
    /// Code of the user: a spawned closure, a timer's callback.
    Run(Class, Box<dyn FnOnce() + Send>),
    /// A slot whose last reference is gone.
    Reclaim(Token),
    /// Something whose destructor is to run here and not where it was dropped.
    Discard(Box<dyn Any + Send>),
}

impl Task {
    pub(crate) fn run(self, group: &Group, lent: &mut Lent<'_>) {
        match self {
            Self::Source(token) => {
                lent.turn = Turn::ALONE;
                group.with_pinned(token, lent, |source, lent| source.resume(lent));
            }
            Self::Work(work) => {
                lent.turn = Turn::ALONE;
                if guard(group, "work", || work.run(lent)).is_none() {
                    lent.lap.now = clock::now();
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
    /// Origin of the connection on whose behalf this thread runs something. `None` elsewhere: in a task, a
    /// timer, a destructor, and on threads of the host.
    static SERVES: Cell<Option<Origin>> = const { Cell::new(None) };
}

/// Until this is dropped, a connection waits for what this thread runs.
pub(crate) struct Serving {
    before: Option<Origin>,
}

impl Serving {
    pub(crate) fn begin(origin: Origin) -> Self {
        Self { before: SERVES.replace(Some(origin)) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVES.set(self.before);
    }
}

/// Origin of the connection that waits for what this thread runs.
pub(super) fn serves() -> Option<Origin> {
    SERVES.get()
}

/// Runs code of the user. A panic ends here: it is counted and logged, and `None` comes back.
pub(crate) fn guard<R>(group: &Group, what: &str, code: impl FnOnce() -> R) -> Option<R> {
    // What the closure touched is dropped with it, or is the user's own.
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(result) => Some(result),
        Err(payload) => {
            note_panic(group, what, payload);
            None
        }
    }
}

/// Code of the user has panicked.
pub(crate) fn note_panic(group: &Group, what: &str, payload: Box<dyn Any + Send>) {
    group.count(Counter::Panics, 1);
    let message = message(&*payload);
    let index = group.index();
    log_some!(group, Panic, ERROR, error, group = index, what, message, "handler panicked");
    discard(payload);
}

/// Runs code of the user that has no result, such as a log subscriber. A panic ends here.
pub(crate) fn contain(code: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        discard(payload);
    }
}

/// Drops the payload of a panic. Its destructor may panic with another such payload, which is leaked:
/// there may be no end of them.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        Box::leak(next);
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
