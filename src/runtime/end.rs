//! [`End`]: how far the end of a group has come, and how many of its workers are left.
//!
//! After the last worker nobody serves the queue. So the last one to leave sweeps it, and from then
//! on whoever queues something does: one of the two sees every task.

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicU8, AtomicUsize, Ordering, fence};

/// Stages, which only rise.
pub(crate) const RUN: u8 = 0;
pub(crate) const LEAVE_WHEN_EMPTY: u8 = 1;
pub(crate) const LEAVE_NOW: u8 = 2;
/// The last worker has left.
const OVER: u8 = 3;

#[derive(Debug)]
pub(crate) struct End {
    /// Written by who stops the group and by its last worker, read by all.
    stage: AtomicU8,
    /// Workers that have begun and not left.
    alive: AtomicUsize,
}

impl End {
    pub(crate) fn new() -> Self {
        Self { stage: AtomicU8::new(RUN), alive: AtomicUsize::new(0) }
    }

    pub(crate) fn advance(&self, stage: u8) {
        // Release: who is told by `stage` sees what was done before.
        self.stage.fetch_max(stage, Ordering::AcqRel);
    }

    pub(crate) fn stage(&self) -> u8 {
        self.stage.load(Ordering::Acquire)
    }

    /// A worker begins.
    pub(crate) fn enter(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker leaves. `true` for the last one, who then sweeps the queue.
    pub(crate) fn leave(&self) -> bool {
        let last = self.alive.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.advance(OVER);
            // SeqCst: pairs with the one in `Park::wake`, which who queues calls before `is_over`.
            // Either that sees the end, or the sweep sees the task.
            mutant!(fence(Ordering::SeqCst), EndWithoutFence => ());
        }
        last
    }

    /// Nobody is left to run what the caller has queued: it sweeps the queue.
    pub(crate) fn is_over(&self) -> bool {
        self.stage() == OVER
    }
}
