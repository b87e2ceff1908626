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
                group.with_pinned(token, |source| source.resume(lent));
            }
            Self::Work(work) => {
                lent.turn = Turn::ALONE;
                if guard(group, "work", || work.run(lent)).is_none() {
                    lent.lap.now = clock::now();
                }
            }
            Self::Run(_, closure) => {
                group.count(Counter::TasksRun, 1);
                beside_connections(|| guard(group, "task", closure));
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
    /// Whose progress depends on what this thread, a worker, runs: `None` in a task, a timer or a
    /// foreign callback.
    static SERVES: Cell<Option<Origin>> = const { Cell::new(Some(Origin::Accepted)) };
}

/// Runs code that does not panic and that no connection's progress depends on.
pub(super) fn beside_connections<R>(code: impl FnOnce() -> R) -> R {
    serves_while(None, code)
}

/// Runs code that does not panic and that a connection's progress depends on.
pub(crate) fn serving<R>(origin: Origin, code: impl FnOnce() -> R) -> R {
    match origin {
        // As it is anyway.
        Origin::Accepted => code(),
        Origin::Outgoing => serves_while(Some(origin), code),
    }
}

fn serves_while<R>(serves: Option<Origin>, code: impl FnOnce() -> R) -> R {
    let before = SERVES.replace(serves);
    let result = code();
    SERVES.set(before);
    result
}

/// Of what origin the connection is that this thread, which is a worker, is in a call for.
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
    // The payload's own destructor may panic, too.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
