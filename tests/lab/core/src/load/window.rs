//! One window of load: who may ask, who thinks, and what has been measured.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::peer::{Answers, Failure, nanos};

/// What the running window has seen.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) phase: Phase,
    pub(super) light: Histogram<u64>,
    pub(super) heavy: Histogram<u64>,
    pub(super) last_answer: u64,
    /// Sessions that think, with the end of it. All think equally long, so the first is the
    /// next: no heap is needed.
    pub(super) thinking: VecDeque<Wake>,
    pub(super) errors: u64,
    pub(super) first_error: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Asking,
    Stopping,
}

/// The end of a think time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub(super) at: u64,
    pub(super) peer: usize,
    pub(super) again: Again,
}

/// Who asks when a think time ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Again {
    Session(u32),
    /// The start of a window.
    AllSessions,
}

/// What the answers of one receive lead to.
pub(super) struct Arrivals<'a> {
    pub(super) now: u64,
    pub(super) peer: usize,
    pub(super) asks_again: bool,
    /// For sessions that ask again later: the queue, and when.
    pub(super) thinking: Option<(&'a mut VecDeque<Wake>, u64)>,
    pub(super) hist: &'a mut Histogram<u64>,
    pub(super) count: u64,
}

const LONGEST_LATENCY: Duration = Duration::from_secs(3600);

impl Window {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Asking,
            light: latencies(),
            heavy: latencies(),
            last_answer: 0,
            thinking: VecDeque::new(),
            errors: 0,
            first_error: None,
        }
    }
}

impl Answers for Arrivals<'_> {
    fn answered(&mut self, session: u32, sent_at: u64) -> bool {
        self.hist.saturating_record(self.now.saturating_sub(sent_at));
        self.count += 1;
        if let Some((thinking, at)) = &mut self.thinking {
            let again = Again::Session(session);
            thinking.push_back(Wake { at: *at, peer: self.peer, again });
        }
        self.asks_again
    }
}

/// An empty histogram of nanoseconds with three significant digits.
fn latencies() -> Histogram<u64> {
    let longest = nanos(LONGEST_LATENCY);
    Histogram::new_with_bounds(1, longest, 3).expect("the bounds are constants in range")
}
