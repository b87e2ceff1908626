//! [`Source`]: what the runtime delivers readiness to, without knowing what it is.

use std::time::Instant;

use super::class::Class;
use super::cost::Cost;
use super::stalls::Lap;
use crate::sync::runner::Marks;
use crate::sys::epoll::Readiness;

/// Where an event stood in the batch that one `epoll_wait` returned.
///
/// The last one of a batch may do its work on the spot: nothing waits behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    index: usize,
    total: usize,
    is_ending: bool,
}

impl Turn {
    /// A turn of its own, as a task has it: nothing stands behind it.
    pub(crate) const ALONE: Self = Self::new(0, 1);

    pub(crate) const fn new(index: usize, total: usize) -> Self {
        Self { index, total, is_ending: false }
    }

    /// Position in the batch, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index
    }

    /// How many events the batch had.
    #[must_use]
    pub const fn total(self) -> usize {
        self.total
    }

    /// The same, but an end stands behind it.
    pub(crate) const fn ending(self) -> Self {
        Self { is_ending: true, ..self }
    }

    /// The connection is to end, in order or not, and does so when this turn is over: what may wait
    /// should not run in it, least of all what waits to be told of the end.
    #[must_use]
    pub const fn is_ending(self) -> bool {
        self.is_ending
    }

    /// Nothing stands behind this one.
    #[must_use]
    pub const fn is_last(self) -> bool {
        self.index + 1 >= self.total
    }
}

/// What a worker lends to what it runs.
#[derive(Debug)]
pub(crate) struct Lent<'w> {
    pub(crate) turn: Turn,
    /// The worker's read buffer; its content means nothing between two uses.
    pub(crate) read_buf: &'w mut [u8],
    /// Since the last thing ended that was timed. Who times a run takes that as the start and sets it to
    /// the end, so that a batch of n events costs n + 1 looks at the clock.
    pub(crate) lap: Lap,
    /// When this was made runnable: its event was received, or it was queued.
    pub(crate) runnable_at: Instant,
}

impl Lent<'_> {
    /// Notes in `cost` how long it took since the last thing ended that was timed.
    pub(crate) fn charge(&mut self, cost: &Cost) {
        self.charge_each(cost, 1);
    }

    /// Notes in `cost` the time of one of so many equal parts of the run.
    pub(crate) fn charge_each(&mut self, cost: &Cost, parts: u32) {
        cost.add_whole(self.lap.end(), parts);
    }
}

/// Something registered with a group: a connection, a listener, a foreign descriptor.
///
/// All methods may be called by several threads at once; an implementation lets one of them run
/// (a [`Runner`](crate::sync::runner::Runner)) and leaves marks for it with the others.
pub(crate) trait Source: Send + Sync {
    /// Runs what `readiness` is about on this thread, unless another one runs it already.
    fn ready(&self, readiness: Readiness, lent: &mut Lent<'_>);

    /// Notes `readiness`; `true` when the caller now has to push it into the task queue.
    fn queue_ready(&self, readiness: Readiness) -> bool;

    /// Notes `marks`; `true` when the caller now has to push it into the task queue.
    fn queue_marks(&self, marks: Marks) -> bool;

    /// Runs it after it was popped from the task queue.
    fn resume(&self, lent: &mut Lent<'_>);

    /// How long a run takes, as far as known.
    fn cost(&self) -> &Cost;

    /// Whose work it is.
    fn class(&self) -> Class;
}

/// Marks that every source understands; its own start at [`FIRST_OWN_MARK`].
///
/// Its deadline has passed.
pub(crate) const TIMER: Marks = Marks::bit(0);
/// The runtime drains: finish what is in progress, and end.
pub(crate) const DRAIN: Marks = Marks::bit(1);
/// The deadline of the drain has passed: end now.
pub(crate) const CUT: Marks = Marks::bit(2);
/// The drain is over: what nothing finishes ends now.
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
            let mut lent = Lent { turn: Turn::ALONE, read_buf: &mut [], lap, runnable_at: began };
            let cost = Cost::unknown();
            lent.charge_each(&cost, parts);
            assert_eq!(cost.pace(), pace, "{parts} parts");
        }
    }
}
