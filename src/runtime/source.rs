//! [`Source`]: anything to which the runtime delivers readiness, without knowing what it is.

use super::class::Class;
use super::cost::{Cost, Lap};
use crate::sync::runner::Marks;
use crate::sys::clock::Instant;
use crate::sys::epoll::Readiness;

/// Circumstances of a callback: whether other events of its batch wait, and whether its connection
/// may end.
///
/// The last event of a batch may be served at once, because nothing waits behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// True if nothing waits behind this event.
    pub last: bool,
    /// True if the connection may end, in order or not, when this turn is over. Code that may wait
    /// should not run in such a turn, least of all code that waits for the end itself.
    pub ending: bool,
}

impl Turn {
    /// Turn of a task, which is not part of a batch: nothing waits behind it.
    pub(crate) const ALONE: Self = Self::new(0, 1);

    pub(crate) const fn new(index: usize, total: usize) -> Self {
        Self { last: index + 1 >= total, ending: false }
    }
}

/// Context that a worker lends to the code that it runs.
#[derive(Debug)]
pub(crate) struct WorkerContext<'w> {
    pub(crate) turn: Turn,
    /// The worker's read buffer. Its content means nothing between two uses.
    pub(crate) read_buf: &'w mut [u8],
    /// Lap that began at the end of the last timed run. A timed run starts there, and begins the
    /// next lap at its end. So a batch of n events needs n + 1 looks at the clock.
    pub(crate) lap: Lap,
    /// Time at which the source or task was queued, or its event received.
    pub(crate) runnable_at: Instant,
}

impl WorkerContext<'_> {
    /// Adds to `cost` the time since the end of the last timed run.
    pub(crate) fn charge(&mut self, cost: &Cost) {
        self.charge_each(cost, 1);
    }

    /// Adds to `cost` the time of a run that had `parts` equal parts, for one of them.
    pub(crate) fn charge_each(&mut self, cost: &Cost, parts: u32) {
        cost.add_whole(self.lap.end(), parts);
    }
}

/// Anything registered with a group: a connection, a listener, a foreign descriptor.
///
/// Several threads may call the methods at once. An implementation lets one of them run (a
/// [`Runner`](crate::sync::runner::Runner)), and the others leave marks for it.
pub(crate) trait Source: Send + Sync {
    /// Handles `readiness` on this thread, unless another thread already runs the source.
    fn ready(&self, readiness: Readiness, context: &mut WorkerContext<'_>);

    /// Notes `readiness`. Returns true if the caller must now push the source into the task queue.
    fn queue_ready(&self, readiness: Readiness) -> bool;

    /// Notes `marks`. Returns true if the caller must now push the source into the task queue.
    fn queue_marks(&self, marks: Marks) -> bool;

    /// Runs the source after it was popped from the task queue.
    fn resume(&self, context: &mut WorkerContext<'_>);

    /// Estimated time of a run.
    fn cost(&self) -> &Cost;

    /// Class of its work.
    fn class(&self) -> Class;

    /// Returns code that returns true until the connection has ended. `None` for other sources.
    fn watch_end(&self) -> Option<Box<dyn Fn() -> bool>> {
        None
    }
}

/// Mark that the source's deadline has passed.
///
/// Every source understands this mark and the next three. Its own marks start at [`FIRST_OWN_MARK`].
pub(crate) const TIMER: Marks = Marks::bit(0);
/// Mark that the runtime drains: the source finishes work in progress, and ends.
pub(crate) const DRAIN: Marks = Marks::bit(1);
/// Mark that the deadline of the drain has passed: the source ends now.
pub(crate) const CUT: Marks = Marks::bit(2);
/// Mark that the drain is over: sources that would never finish end now.
pub(crate) const OVER: Marks = Marks::bit(3);
pub(crate) const FIRST_OWN_MARK: u32 = 4;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::super::cost::Pace;
    use super::*;
    use crate::sys::clock;

    #[test]
    fn each_part_of_a_run_costs_its_share() {
        for (parts, pace) in [(0, Pace::Dear), (1, Pace::Dear), (u32::MAX, Pace::Cheap)] {
            let began = clock::now() - Duration::from_millis(10);
            let lap = Lap::from(began);
            let mut context =
                WorkerContext { turn: Turn::ALONE, read_buf: &mut [], lap, runnable_at: began };
            let cost = Cost::unknown();
            context.charge_each(&cost, parts);
            assert_eq!(cost.pace(), pace, "{parts} parts");
        }
    }
}
