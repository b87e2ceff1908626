//! [`Account`]: outcomes of requests. Each request is in exactly one of its counts.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Duration;

use epoll_group::client::{Error, ErrorKind, Fate};
use hdrhistogram::Histogram;

/// ```text
/// asked = answered + refused + not_sent + unknown
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// Answered with an error.
    pub(crate) refused: u64,
    pub(crate) not_sent: u64,
    /// Sent, and no answer came, or not whole.
    pub(crate) unknown: u64,
    /// Answers that do not fit their question; part of `answered`.
    pub(crate) wrong: u64,
    /// Requests that failed, by the kind of error.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Text of the first failure.
    pub(crate) first: Option<String>,
    /// Nanoseconds from question to answer.
    pub(crate) times: Histogram<u64>,
}

const LONGEST: Duration = Duration::from_secs(600);

impl Default for Account {
    fn default() -> Self {
        let times = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 2);
        Self {
            asked: 0,
            answered: 0,
            refused: 0,
            not_sent: 0,
            unknown: 0,
            wrong: 0,
            errors: BTreeMap::new(),
            first: None,
            times: times.expect("bounds that are in order"),
        }
    }
}

impl Account {
    /// Counts a request.
    pub(crate) const fn ask(&mut self) {
        self.asked += 1;
    }

    /// Counts an answer after this time. `Err` tells why it is wrong.
    pub(crate) fn answered(&mut self, time: Duration, right: Result<(), String>) {
        self.answered += 1;
        self.times.saturating_record(time.as_nanos() as u64);
        if let Err(what) = right {
            self.wrong += 1;
            self.first.get_or_insert(what);
        }
    }

    pub(crate) fn failed(&mut self, fate: Fate, kind: String, what: &dyn std::fmt::Display) {
        match fate {
            Fate::NotSent => self.not_sent += 1,
            Fate::Refused => self.refused += 1,
            Fate::Unknown => self.unknown += 1,
        }
        self.first.get_or_insert_with(|| what.to_string());
        *self.errors.entry(kind).or_default() += 1;
    }

    pub(crate) fn failed_with(&mut self, error: &Error) {
        self.failed(error.fate(), kind(error), error);
    }

    /// True if each request has one outcome.
    pub(crate) const fn is_even(&self) -> bool {
        self.asked == self.answered + self.refused + self.not_sent + self.unknown
    }

    pub(crate) const fn failures(&self) -> u64 {
        self.refused + self.not_sent + self.unknown
    }

    pub(crate) fn p99(&self) -> Duration {
        Duration::from_nanos(self.times.value_at_quantile(0.99))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.answered += other.answered;
        self.refused += other.refused;
        self.not_sent += other.not_sent;
        self.unknown += other.unknown;
        self.wrong += other.wrong;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
        self.times.add(&other.times).expect("the same bounds");
    }
}

/// Returns the kind of an error in a word or two.
fn kind(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Server(error) => format!("error {}", error.code),
        ErrorKind::Login(error) => format!("login {}", error.code),
        ErrorKind::Deadline(_) => "deadline".to_owned(),
        ErrorKind::Connect(_) => "connect".to_owned(),
        ErrorKind::Lost(_) => "lost".to_owned(),
        ErrorKind::Protocol(_) => "protocol".to_owned(),
        ErrorKind::SessionEnded => "session ended".to_owned(),
        _ => "other".to_owned(),
    }
}
