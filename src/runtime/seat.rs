//! [`SeatState`]: the state that a worker shows, so that another thread can take its poll permit.

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicU8, Ordering};

/// State of a worker. The permit of a running worker may be taken away. A resting worker keeps its
/// permit. A worker whose handler announced a wait has none.
#[derive(Debug, Default)]
pub(crate) struct SeatState(AtomicU8);

const RESTING: u8 = 0;
const RUNNING: u8 = 1;
const RUNNING_WITH_PERMIT: u8 = 2;
const STALLED: u8 = 3;

impl SeatState {
    pub(crate) fn run(&self, with_permit: bool) {
        let state = if with_permit { RUNNING_WITH_PERMIT } else { RUNNING };
        self.0.store(state, Ordering::Release);
    }

    /// Notes a rest. Returns true if the worker still has a permit.
    pub(crate) fn rest(&self) -> bool {
        let resting = mutant!(RESTING, RestingShowsPermit => RUNNING_WITH_PERMIT);
        self.0.swap(resting, Ordering::AcqRel) == RUNNING_WITH_PERMIT
    }

    /// Notes that the handler waits. Returns true if the worker still has a permit, which the caller
    /// must give back.
    pub(crate) fn stall(&self) -> bool {
        let stalled = mutant!(STALLED, StallShowsPermit => RUNNING_WITH_PERMIT);
        self.0.swap(stalled, Ordering::AcqRel) == RUNNING_WITH_PERMIT
    }

    /// Notes that the wait is over, or that the handler that began it has ended.
    pub(crate) fn go_on(&self) {
        // Only the worker itself changes `STALLED`. In any other state it may have a permit, which must
        // stay.
        if self.0.load(Ordering::Relaxed) == STALLED {
            self.run(false);
        }
    }

    pub(crate) fn runs(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), RUNNING | RUNNING_WITH_PERMIT)
    }

    /// Returns true if the worker runs with a permit, which may be taken away.
    pub(crate) fn has_permit(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RUNNING_WITH_PERMIT
    }

    pub(crate) fn rests(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RESTING
    }

    /// Takes the permit of a running worker. Any thread may call it, the worker's own too.
    pub(crate) fn take_permit(&self) -> bool {
        let (from, to) = (RUNNING_WITH_PERMIT, RUNNING);
        // In the usual case this load is enough, and no locked instruction is needed.
        self.0.load(Ordering::Relaxed) == from
            && self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_ends_late_takes_no_permit_away() {
        let state = SeatState::default();
        state.run(true);
        assert!(state.stall(), "the permit is to be given back");
        state.go_on();
        assert!(state.runs() && !state.rest(), "it has none any more");
        state.run(true);
        state.go_on();
        assert!(state.rest(), "it has kept it");
        state.go_on();
        assert!(state.rests());
    }
}
