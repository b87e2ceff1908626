//! Reports of a group to its host: panics of the user's code, and log events within their limits.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use super::class::Class;
use super::group::Group;
use super::noise::{Topic, Verdict, WINDOW, log_some};
use super::timers::after;
use crate::stats::Counter;
use crate::sync::payload::discard;
use crate::sys::clock;

impl Group {
    /// Runs code of the user. If it panics, the panic is counted and logged, and the result is `None`.
    pub(crate) fn guard<R>(&self, what: &str, code: impl FnOnce() -> R) -> Option<R> {
        // Values that the closure touched are dropped with it, or belong to the user.
        match catch_unwind(AssertUnwindSafe(code)) {
            Ok(result) => Some(result),
            Err(payload) => {
                self.note_panic(what, payload);
                None
            }
        }
    }

    /// Counts and logs a panic of the user's code.
    pub(crate) fn note_panic(&self, what: &str, payload: Box<dyn Any + Send>) {
        self.count(Counter::Panics, 1);
        let (index, message) = (self.index(), message(&*payload));
        log_some!(self, Panic, ERROR, error, group = index, what, message, "handler panicked");
        discard(payload);
    }

    /// Returns true if an event may be logged. The call counts the event, so it must be made only
    /// where the event would be logged.
    pub(crate) fn may_log(&self, topic: Topic) -> bool {
        let noise = self.usage().noise();
        let verdict = noise.admit(topic, clock::now(), self.config().max_log_events);
        if verdict == Verdict::Log {
            return true;
        }
        self.count(Counter::LogEventsSuppressed, 1);
        if verdict == Verdict::SumUpLater
            && let Some(group) = self.me.upgrade()
        {
            let me = Weak::clone(&self.me);
            let sum_up = move || {
                if let Some(group) = me.upgrade() {
                    group.usage().noise().sum_up(topic);
                }
            };
            after(&group, Class::Ordinary, WINDOW, Box::new(sum_up)).detach();
        }
        false
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
