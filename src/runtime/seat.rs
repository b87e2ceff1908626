//! [`SeatState`]: what a worker shows of itself, so that another one can take its poll permit.

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicU8, Ordering};

/// What a worker is doing. The permit of one that runs may be taken away; one that rests keeps its
/// own.
#[derive(Debug, Default)]
pub(crate) struct SeatState(AtomicU8);

const RESTING: u8 = 0;
const RUNNING: u8 = 1;
const RUNNING_WITH_PERMIT: u8 = 2;

impl SeatState {
    pub(crate) fn run(&self, with_permit: bool) {
        let state = if with_permit { RUNNING_WITH_PERMIT } else { RUNNING };
        self.0.store(state, Ordering::Release);
    }

    /// Whether there is still a permit.
    pub(crate) fn rest(&self) -> bool {
        let resting = mutant!(RESTING, RestingShowsPermit => RUNNING_WITH_PERMIT);
        self.0.swap(resting, Ordering::AcqRel) == RUNNING_WITH_PERMIT
    }

    pub(crate) fn runs(&self) -> bool {
        self.0.load(Ordering::Relaxed) != RESTING
    }

    /// Takes the permit of a worker that runs, for its own thread or another one.
    pub(crate) fn take_permit(&self) -> bool {
        let (from, to) = (RUNNING_WITH_PERMIT, RUNNING);
        // The usual case needs no locked instruction.
        self.0.load(Ordering::Relaxed) == from
            && self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
