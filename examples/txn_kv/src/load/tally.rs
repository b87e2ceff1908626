//! What is counted: answers, latencies, revisions, and what went wrong.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Counts of some clients, or of all together.
#[derive(Debug)]
pub(super) struct Tally {
    /// Nanoseconds; one for each right answer to a read.
    pub(super) reads: Histogram<u64>,
    /// The same for transactions that write.
    pub(super) writes: Histogram<u64>,
    /// Revisions of what was written.
    pub(super) revisions: Vec<u64>,
    pub(super) wrong: u64,
    pub(super) errors: u64,
    pub(super) first_failure: Option<Failure>,
    /// When the last answer came.
    pub(super) last: Option<Instant>,
}

/// What went wrong with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The answer is not the one to this question.
    Wrong(String),
    /// There is none.
    Error(String),
}

/// What was right.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answered {
    Read,
    /// At this revision.
    Write(u64),
}

const LONGEST_LATENCY: Duration = Duration::from_secs(3600);
/// Clients share them, so that workers seldom meet at one.
const TALLIES: usize = 8;

pub(super) fn several() -> Vec<Mutex<Tally>> {
    (0..TALLIES).map(|_| Mutex::default()).collect()
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts for the client at this place.
pub(super) fn count(tallies: &[Mutex<Tally>], place: usize, code: impl FnOnce(&mut Tally)) {
    code(&mut lock(&tallies[place % tallies.len()]));
}

/// Right answers and failures so far.
pub(super) fn progress(tallies: &[Mutex<Tally>]) -> (u64, u64) {
    tallies.iter().fold((0, 0), |(answers, failures), tally| {
        let tally = lock(tally);
        let answered = tally.reads.len() + tally.writes.len();
        (answers + answered, failures + tally.wrong + tally.errors)
    })
}

/// All of them; no revision may have come twice.
pub(super) fn total(tallies: &[Mutex<Tally>]) -> Tally {
    let mut total = tallies.iter().fold(Tally::default(), |mut total, tally| {
        let mut tally = lock(tally);
        total.reads.add(&tally.reads).expect("all have the same bounds");
        total.writes.add(&tally.writes).expect("all have the same bounds");
        total.revisions.append(&mut tally.revisions);
        total.wrong += tally.wrong;
        total.errors += tally.errors;
        total.last = total.last.max(tally.last);
        if total.first_failure.is_none() {
            total.first_failure.clone_from(&tally.first_failure);
        }
        total
    });
    total.revisions.sort_unstable();
    let twice = total.revisions.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    for revision in twice.collect::<Vec<_>>() {
        total.failed(Failure::Wrong(format!("two transactions have revision {revision}")));
    }
    total
}

impl Tally {
    pub(super) fn answered(&mut self, answered: Answered, sent: Instant) {
        let now = Instant::now();
        let latencies = match answered {
            Answered::Read => &mut self.reads,
            Answered::Write(revision) => {
                self.revisions.push(revision);
                &mut self.writes
            }
        };
        latencies.saturating_record(now.duration_since(sent).as_nanos() as u64);
        self.last = Some(now);
    }

    pub(super) fn failed(&mut self, failure: Failure) {
        match failure {
            Failure::Wrong(_) => self.wrong += 1,
            Failure::Error(_) => self.errors += 1,
        }
        self.first_failure.get_or_insert(failure);
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            reads: latencies(),
            writes: latencies(),
            revisions: Vec::new(),
            wrong: 0,
            errors: 0,
            first_failure: None,
            last: None,
        }
    }
}

/// An empty histogram of nanoseconds with three significant digits.
fn latencies() -> Histogram<u64> {
    let longest = LONGEST_LATENCY.as_nanos() as u64;
    Histogram::new_with_bounds(1, longest, 3).expect("the bounds are constants in range")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(text) | Self::Error(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_share_tallies_that_add_up() {
        let (tallies, sent) = (several(), Instant::now());
        for place in 0..20 {
            let revision = place as u64;
            count(&tallies, place, |tally| tally.answered(Answered::Write(revision), sent));
            count(&tallies, place, |tally| tally.answered(Answered::Read, sent));
        }
        count(&tallies, 3, |tally| tally.failed(Failure::Error("gone".to_owned())));
        assert_eq!(progress(&tallies), (40, 1));
        let total = total(&tallies);
        assert_eq!((total.reads.len(), total.writes.len()), (20, 20));
        assert_eq!((total.wrong, total.errors), (0, 1));
        assert_eq!(total.first_failure, Some(Failure::Error("gone".to_owned())));
        assert!(total.last >= Some(sent));
    }

    #[test]
    fn a_revision_that_came_twice_is_wrong() {
        let (tallies, sent) = (several(), Instant::now());
        for (place, revision) in [5, 6, 5, 7, 7].into_iter().enumerate() {
            count(&tallies, place, |tally| tally.answered(Answered::Write(revision), sent));
        }
        let total = total(&tallies);
        assert_eq!((total.wrong, total.errors), (2, 0));
        let first = total.first_failure.map(|failure| failure.to_string());
        assert_eq!(first.as_deref(), Some("two transactions have revision 5"));
    }
}
