//! [`End`]: the stage of the end of a group, and the number of its workers that are left.
//!
//! After the last worker has left, no worker serves the queue. So the last worker sweeps it. From
//! then on each thread that queues a task sweeps the queue too. One of the two sees each task.

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicU8, AtomicUsize, Ordering, fence};

/// Stages. They only rise.
pub(crate) const RUN: u8 = 0;
pub(crate) const LEAVE_WHEN_EMPTY: u8 = 1;
pub(crate) const LEAVE_NOW: u8 = 2;
/// The last worker has left.
const OVER: u8 = 3;

#[derive(Debug)]
pub(crate) struct End {
    /// Written by the thread that stops the group and by its last worker; read by all.
    stage: AtomicU8,
    /// Number of workers that were started and have not left. A worker is counted before its thread
    /// begins.
    alive: AtomicUsize,
}

impl End {
    pub(crate) fn new() -> Self {
        Self { stage: AtomicU8::new(RUN), alive: AtomicUsize::new(0) }
    }

    pub(crate) fn advance(&self, stage: u8) {
        // Release: pairs with the Acquire in `stage`, so its caller sees all writes before.
        self.stage.fetch_max(stage, Ordering::AcqRel);
    }

    pub(crate) fn stage(&self) -> u8 {
        self.stage.load(Ordering::Acquire)
    }

    /// Notes that a worker is about to be started.
    pub(crate) fn enter(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a worker leaves. Returns true for the last one, which then sweeps the queue.
    pub(crate) fn leave(&self) -> bool {
        let last = self.alive.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.advance(OVER);
            // SeqCst: pairs with the fence in `Park::wake`, which a thread that queues calls before
            // `is_over`. Either that thread sees the end, or the sweep sees the task.
            mutant!(fence(Ordering::SeqCst), EndWithoutFence => ());
        }
        last
    }

    /// Number of workers that have not left.
    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }

    /// Returns true if no worker is left to run the task that the caller has queued. Then the
    /// caller sweeps the queue.
    pub(crate) fn is_over(&self) -> bool {
        self.stage() == OVER
    }
}
