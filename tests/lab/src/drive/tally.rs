//! [`Tally`]: counts of answers, latencies and failures.

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use epoll_group::client;
use hdrhistogram::Histogram;

use super::lock;

/// Counts of some sessions, or of all together.
#[derive(Debug)]
pub struct Tally {
    /// Latencies of right answers to reads, in nanoseconds.
    pub reads: Histogram<u64>,
    /// The same for requests that write.
    pub writes: Histogram<u64>,
    pub wrong: u64,
    pub errors: u64,
    pub first_failure: Option<Failure>,
    /// Time of the last right answer.
    pub last: Option<Instant>,
}

/// Kind of request. Latencies of the two are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// Why a request is not counted as answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The answer does not fit the question.
    Wrong(String),
    /// The answer is an error, or none came.
    Error(String),
}

const LONGEST_LATENCY: Duration = Duration::from_secs(3600);
/// Sessions share this many tallies, so that workers seldom compete for the lock of one.
const TALLIES: usize = 16;

pub(super) fn several() -> Vec<Mutex<Tally>> {
    (0..TALLIES).map(|_| Mutex::default()).collect()
}

/// Tally of the session with this number.
pub(super) fn of(tallies: &[Mutex<Tally>], place: usize) -> MutexGuard<'_, Tally> {
    lock(&tallies[place % tallies.len()])
}

/// Returns the numbers of right answers and of failures.
pub(super) fn progress(tallies: &[Mutex<Tally>]) -> (u64, u64) {
    tallies.iter().fold((0, 0), |(answers, failures), tally| {
        let tally = lock(tally);
        (answers + tally.answers(), failures + tally.failures())
    })
}

pub(super) fn total(tallies: &[Mutex<Tally>]) -> Tally {
    tallies.iter().fold(Tally::default(), |mut total, tally| {
        let tally = lock(tally);
        total.reads.add(&tally.reads).expect("all have the same bounds");
        total.writes.add(&tally.writes).expect("all have the same bounds");
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
    /// Counts a right answer to a request that was sent then.
    pub fn answered(&mut self, access: Access, sent: Instant) {
        let now = Instant::now();
        let latencies = match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        };
        latencies.saturating_record(now.duration_since(sent).as_nanos() as u64);
        self.last = Some(now);
    }

    pub fn failed(&mut self, failure: Failure) {
        match failure {
            Failure::Wrong(_) => self.wrong += 1,
            Failure::Error(_) => self.errors += 1,
        }
        self.first_failure.get_or_insert(failure);
    }

    /// Number of right answers.
    pub fn answers(&self) -> u64 {
        self.reads.len() + self.writes.len()
    }

    /// Number of wrong answers and errors.
    pub fn failures(&self) -> u64 {
        self.wrong + self.errors
    }
}

impl Default for Tally {
    fn default() -> Self {
        let longest = LONGEST_LATENCY.as_nanos() as u64;
        let latencies = || {
            Histogram::new_with_bounds(1, longest, 3).expect("the bounds are constants in range")
        };
        let (reads, writes) = (latencies(), latencies());
        Self { reads, writes, wrong: 0, errors: 0, first_failure: None, last: None }
    }
}

impl Failure {
    /// An answer that does not fit its question.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self::Wrong(text.into())
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        Self::Error(error.to_string())
    }
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
            of(&tallies, place).answered(Access::Write, sent);
            of(&tallies, place).answered(Access::Read, sent);
        }
        of(&tallies, 3).failed(Failure::Error("gone".to_owned()));
        assert_eq!(progress(&tallies), (40, 1));
        let total = total(&tallies);
        assert_eq!((total.reads.len(), total.writes.len()), (20, 20));
        assert_eq!((total.wrong, total.errors), (0, 1));
        assert_eq!(total.first_failure, Some(Failure::Error("gone".to_owned())));
        assert!(total.last >= Some(sent));
    }
}
