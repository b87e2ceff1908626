//! Samples for the histograms. With histograms, a request that is run in place costs one more
//! reading of the clock. Without them, the switch is read once for all stages of a request, and
//! each stage costs a test and a jump.

use std::time::Duration;

use super::group::Group;
use super::source::WorkerContext;
use crate::stats::Stage;
use crate::sys::clock::{self, Instant};

impl Group {
    fn record(&self, stage: Stage, from: Instant, to: Instant) {
        self.histograms.record(stage, to.duration_since(from));
    }

    /// Notes that a worker begins to run a source. Returns true if its stages are to be timed.
    pub(crate) fn note_scheduled(&self, context: &WorkerContext<'_>) -> bool {
        let on = self.histograms.is_on();
        if on {
            self.record(Stage::Schedule, context.runnable_at, context.lap.now);
        }
        on
    }

    /// Notes that the first bytes of a turn have been received. Returns the time.
    pub(crate) fn note_received(&self, context: &WorkerContext<'_>) -> Instant {
        let now = clock::now();
        self.record(Stage::RecvFirst, context.runnable_at, now);
        now
    }

    /// Notes the end of a turn: all bytes were received and passed on.
    pub(crate) fn note_run(&self, first_at: Option<Instant>, context: &WorkerContext<'_>) {
        if let Some(first_at) = first_at {
            self.record(Stage::Run, first_at, context.lap.now);
            self.record(Stage::RecvAll, context.runnable_at, context.lap.now);
        }
    }

    /// Notes the end of a closure that began at `from`.
    pub(super) fn note_closure_run(&self, from: Instant, context: &WorkerContext<'_>) {
        if self.histograms.is_on() {
            self.record(Stage::Schedule, context.runnable_at, from);
            self.record(Stage::Run, from, context.lap.now);
        }
    }

    /// Runs code that is a stage of its own.
    pub(crate) fn timed<R>(&self, stage: Stage, code: impl FnOnce() -> R) -> R {
        if !self.histograms.is_on() {
            return code();
        }
        let from = clock::now();
        let result = code();
        self.record(stage, from, clock::now());
        result
    }

    /// Notes that a timer fires.
    pub(super) fn note_timer(&self, late: Duration) {
        if self.histograms.is_on() {
            self.histograms.record(Stage::Timer, late);
        }
    }
}
