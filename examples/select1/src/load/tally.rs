//! What is counted: answers, latencies, and what went wrong.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::asking::Failure;

/// Counts of some sessions, or of all together.
#[derive(Debug)]
pub(super) struct Tally {
    /// Nanoseconds; one for each right answer.
    pub(super) hist: Histogram<u64>,
    pub(super) wrong: u64,
    pub(super) errors: u64,
    pub(super) first_failure: Option<Failure>,
    /// When the last answer came.
    pub(super) last: Option<Instant>,
}

const LONGEST_LATENCY: Duration = Duration::from_secs(3600);
/// Sessions share them, so that workers seldom meet at one.
const TALLIES: usize = 16;

pub(super) fn several() -> Vec<Mutex<Tally>> {
    (0..TALLIES).map(|_| Mutex::default()).collect()
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts for the session at this place.
pub(super) fn count(tallies: &[Mutex<Tally>], place: usize, code: impl FnOnce(&mut Tally)) {
    code(&mut lock(&tallies[place % tallies.len()]));
}

/// Right answers and failures so far.
pub(super) fn progress(tallies: &[Mutex<Tally>]) -> (u64, u64) {
    tallies.iter().fold((0, 0), |(answers, failures), tally| {
        let tally = lock(tally);
        (answers + tally.hist.len(), failures + tally.failures())
    })
}

/// All of them.
pub(super) fn total(tallies: &[Mutex<Tally>]) -> Tally {
    tallies.iter().fold(Tally::default(), |mut total, tally| {
        let tally = lock(tally);
        total.hist.add(&tally.hist).expect("all have the same bounds");
        total.wrong += tally.wrong;
        total.errors += tally.errors;
        total.last = total.last.max(tally.last);
        if total.first_failure.is_none() {
            total.first_failure.clone_from(&tally.first_failure);
        }
        total
    })
}

impl Tally {
    pub(super) fn answered(&mut self, sent: Instant) {
        let now = Instant::now();
        self.hist.saturating_record(now.duration_since(sent).as_nanos() as u64);
        self.last = Some(now);
    }

    pub(super) fn failed(&mut self, failure: Failure) {
        match failure {
            Failure::Wrong(_) => self.wrong += 1,
            Failure::Error(_) => self.errors += 1,
        }
        self.first_failure.get_or_insert(failure);
    }

    /// Wrong answers and errors.
    pub(super) fn failures(&self) -> u64 {
        self.wrong + self.errors
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self { hist: latencies(), wrong: 0, errors: 0, first_failure: None, last: None }
    }
}

/// An empty histogram of nanoseconds with three significant digits.
fn latencies() -> Histogram<u64> {
    let longest = LONGEST_LATENCY.as_nanos() as u64;
    Histogram::new_with_bounds(1, longest, 3).expect("the bounds are constants in range")
}
