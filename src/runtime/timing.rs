//! Where the histograms are fed. A request that is run in place costs one look at the clock more than
//! without them. When they are off, that is looked up once for all its stages, and each costs a test
//! and a jump.

use std::time::{Duration, Instant};

use super::group::Group;
use super::source::Lent;
use crate::stats::Stage;
use crate::sys::clock;

impl Group {
    fn record(&self, stage: Stage, from: Instant, to: Instant) {
        self.histograms.record(stage, to.saturating_duration_since(from));
    }

    /// A worker begins with something. Whether its stages are to be timed.
    pub(crate) fn note_scheduled(&self, lent: &Lent<'_>) -> bool {
        let on = self.histograms.is_on();
        if on {
            self.record(Stage::Schedule, lent.runnable_at, lent.lap.now);
        }
        on
    }

    /// The first bytes of a turn have been received; when that was.
    pub(crate) fn note_received(&self, lent: &Lent<'_>) -> Instant {
        let now = clock::now();
        self.record(Stage::RecvFirst, lent.runnable_at, now);
        now
    }

    /// A turn is over: everything was received and handed on.
    pub(crate) fn note_run(&self, first_at: Option<Instant>, lent: &Lent<'_>) {
        if let Some(first_at) = first_at {
            self.record(Stage::Run, first_at, lent.lap.now);
            self.record(Stage::RecvAll, lent.runnable_at, lent.lap.now);
        }
    }

    /// A closure has ended, which began at `from`.
    pub(super) fn note_closure_run(&self, from: Instant, lent: &Lent<'_>) {
        if self.histograms.is_on() {
            self.record(Stage::Schedule, lent.runnable_at, from);
            self.record(Stage::Run, from, lent.lap.now);
        }
    }

    /// A timer fires.
    pub(super) fn note_timer(&self, late: Duration) {
        if self.histograms.is_on() {
            self.histograms.record(Stage::Timer, late);
        }
    }
}
