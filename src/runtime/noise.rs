//! [`Noise`]: limits log events that a peer can cause as often as it likes.
//!
//! Of each kind, `max_log_events` are logged in a second. Further ones are counted. One event at
//! the end of the second reports their number. So no peer can fill the host's log.
//!
//! Events with another bound are logged without this limit: threads that start (bounded by
//! `max_threads` and `dynamic_threads_shrink_time`), listeners that end, other calls that the system
//! refuses.

use std::sync::Mutex;
use std::time::Duration;

use crate::sync::shim::lock;
use crate::sys::clock::Instant;

/// Kind of a log event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A connection has ended.
    Closed,
    /// A connection was not served.
    Unserved,
    /// A session or request was killed.
    Kill,
    /// A handler has panicked.
    Panic,
    /// A handler runs long.
    Long,
    /// Frames were relayed out of place.
    Relay,
    /// The system has refused a thread.
    Thread,
}

const TOPICS: usize = Topic::Thread as usize + 1;
pub(super) const WINDOW: Duration = Duration::from_secs(1);

impl Topic {
    const ALL: [Self; TOPICS] = [
        Self::Closed,
        Self::Unserved,
        Self::Kill,
        Self::Panic,
        Self::Long,
        Self::Relay,
        Self::Thread,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Closed => "connection closed",
            Self::Unserved => "connection not served",
            Self::Kill => "kill",
            Self::Panic => "handler panicked",
            Self::Long => "a handler runs long",
            Self::Relay => "relayed out of place",
            Self::Thread => "no thread",
        }
    }
}

/// Counts of the log events of a runtime, one window for each topic.
#[derive(Debug, Default)]
pub(super) struct Noise([Mutex<Window>; TOPICS]);

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    ends: Option<Instant>,
    logged: usize,
    /// Number of suppressed events that were not reported yet.
    suppressed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Log,
    /// Do not log. A report is scheduled already.
    Suppress,
    /// Do not log. The caller must schedule the report.
    SumUpLater,
}

impl Window {
    fn admit(&mut self, now: Instant, most: usize) -> Verdict {
        if self.ends.is_none_or(|ends| ends <= now) {
            self.ends = now.checked_add(WINDOW);
            self.logged = 0;
        }
        if self.logged < most {
            self.logged += 1;
            return Verdict::Log;
        }
        self.suppressed += 1;
        if self.suppressed == 1 { Verdict::SumUpLater } else { Verdict::Suppress }
    }
}

impl Noise {
    /// Counts an event. `most` are logged in a second.
    pub(super) fn admit(&self, topic: Topic, now: Instant, most: usize) -> Verdict {
        lock(&self.0[topic as usize]).admit(now, most)
    }

    /// Logs the number of suppressed events of the topic.
    pub(super) fn sum_up(&self, topic: Topic) {
        let suppressed = std::mem::take(&mut lock(&self.0[topic as usize]).suppressed);
        if suppressed > 0 {
            log!(warn, what = topic.name(), suppressed, "log events left out");
        }
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        Topic::ALL.into_iter().for_each(|topic| self.sum_up(topic));
    }
}

/// Logs at a level of [`tracing`]. A panic of the host's subscriber is caught here.
macro_rules! log {
    ($macro:ident, $($event:tt)+) => {
        {
            $crate::sync::payload::contain(|| tracing::$macro!($($event)+));
        }
    };
}
pub(crate) use log;

/// Logs like `log!`, within the limit of the topic.
macro_rules! log_some {
    ($group:expr, $topic:ident, $level:ident, $macro:ident, $($event:tt)+) => {
        {
            $crate::sync::payload::contain(|| {
                if tracing::enabled!(tracing::Level::$level)
                    && $group.may_log($crate::runtime::Topic::$topic)
                {
                    tracing::$macro!($($event)+);
                }
            });
        }
    };
}
pub(crate) use log_some;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_a_second_and_one_sum() {
        let mut window = Window::default();
        let mut now = Instant::now();
        for _ in 0..3 {
            let verdicts = [(); 5].map(|()| window.admit(now, 3));
            use Verdict::{Log, SumUpLater, Suppress};
            assert_eq!(verdicts, [Log, Log, Log, SumUpLater, Suppress]);
            assert_eq!(std::mem::take(&mut window.suppressed), 2);
            now += WINDOW;
        }
    }

    #[test]
    fn what_was_not_summed_up_is_not_lost() {
        let mut window = Window::default();
        let now = Instant::now();
        assert_eq!(window.admit(now, 0), Verdict::SumUpLater);
        assert_eq!(window.admit(now + 2 * WINDOW, 0), Verdict::Suppress);
        assert_eq!(window.suppressed, 2);
    }

    #[test]
    fn topics_are_in_order() {
        for (at, topic) in Topic::ALL.into_iter().enumerate() {
            assert_eq!(topic as usize, at);
        }
    }
}
