//! [`Task`]: what a request asks for, as the client writes it and the service reads it.

use std::fmt;

use super::plan::Plan;
use super::scene::Scene;

/// A thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Answered by how many rows were changed.
    Change,
    /// A number of rows, and the bytes of each.
    Rows(Form, u64, u64),
    /// Later, after so many microseconds.
    Later(Later, u64),
    Error,
    Fatal,
    Panic,
    Begin,
    Commit,
    Savepoint,
    /// Begin and end of a block in which no request may fail. The service does not see them.
    ExpectOpen,
    ExpectClose,
    /// A number of timestamps.
    Time(u64),
}

/// Where rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Handler,
    Source,
    /// A source that fails behind the first half, or panics there.
    Failing,
    Panicking,
    Relay,
}

/// The end of a deferred request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    Change,
    Rows(u64),
    Error,
    Fatal,
    Panic,
    Drop,
    Again,
}

/// The error of the service. Its text says which request it is.
pub const ERROR: u32 = 1644;
/// The error that ends a session.
pub const FATAL: u32 = 1645;

const FORMS: [(&str, Form); 5] = [
    ("rows", Form::Handler),
    ("source", Form::Source),
    ("failing", Form::Failing),
    ("panicking", Form::Panicking),
    ("relay", Form::Relay),
];

const LATER: [(&str, Later); 6] = [
    ("change", Later::Change),
    ("error", Later::Error),
    ("fatal", Later::Fatal),
    ("panic", Later::Panic),
    ("drop", Later::Drop),
    ("again", Later::Again),
];

const PLAIN: [(&str, Task); 6] = [
    ("change", Task::Change),
    ("error", Task::Error),
    ("fatal", Task::Fatal),
    ("panic", Task::Panic),
    ("begin", Task::Begin),
    ("commit", Task::Commit),
];

fn name<T: Copy + PartialEq>(of: T, names: &[(&'static str, T)]) -> &'static str {
    names.iter().find(|(_, named)| *named == of).map_or("?", |(name, _)| name)
}

fn named<T: Copy>(text: &str, names: &[(&'static str, T)]) -> Option<T> {
    names.iter().find(|(name, _)| *name == text).map(|(_, named)| *named)
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Rows(form, rows, bytes) => write!(f, "{} {rows} {bytes}", name(form, &FORMS)),
            Self::Later(Later::Rows(rows), micros) => write!(f, "later rows {rows} {micros}"),
            Self::Later(later, micros) => write!(f, "later {} 0 {micros}", name(later, &LATER)),
            Self::Savepoint => f.write_str("savepoint"),
            Self::ExpectOpen => f.write_str("expect no error"),
            Self::ExpectClose => f.write_str("end of a block"),
            Self::Time(count) => write!(f, "time {count}"),
            plain => f.write_str(name(plain, &PLAIN)),
        }
    }
}

impl Task {
    /// Parses a task; `None` for a text that no peer wrote.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let first = words.next()?;
        if let Some(plain) = named(first, &PLAIN) {
            return Some(plain);
        }
        let number = |word: Option<&str>| word?.parse().ok().filter(|&number| number <= MOST);
        if let Some(form) = named(first, &FORMS) {
            return Some(Self::Rows(form, number(words.next())?, number(words.next())?));
        }
        let later = words.next().filter(|_| first == "later")?;
        let (rows, micros) = (number(words.next())?, number(words.next())?);
        let later = if later == "rows" { Later::Rows(rows) } else { named(later, &LATER)? };
        Some(Self::Later(later, micros))
    }

    /// True if it is deferred and then answered: only a [`Cancel`](epoll_group::session::Cancel) reaches it.
    pub const fn is_put_off(self) -> bool {
        matches!(self, Self::Later(Later::Change | Later::Again | Later::Error | Later::Fatal, _))
    }

    /// Name in the counts of what was asked.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Change | Self::Begin | Self::Commit => "asked: a change",
            Self::Rows(Form::Handler, ..) => "asked: rows of a handler",
            Self::Rows(Form::Source, ..) => "asked: rows of a source",
            Self::Rows(Form::Failing, ..) => "asked: a source that fails",
            Self::Rows(Form::Panicking, ..) => "asked: a source that panics",
            Self::Rows(Form::Relay, ..) => "asked: rows of a relay",
            Self::Later(..) => "asked: answered later",
            Self::Error => "asked: an error",
            Self::Fatal => "asked: a fatal error",
            Self::Panic => "asked: a panic",
            Self::Savepoint => "asked: a savepoint",
            Self::ExpectOpen => "asked: a block without errors",
            Self::ExpectClose => "asked: the end of a block",
            Self::Time(_) => "asked: timestamps",
        }
    }

    pub fn draw(scene: &Scene, plan: &Plan) -> Self {
        let chance = &scene.chance;
        let rows = || chance.pick(&[0, 1, 1, 3, 3, 10, 10, 40, 40, 200]);
        let bytes = || chance.pick(&[1, 10, 100, 100, 600, 3000]);
        let micros = || chance.pick(&[0, 10, 1000, 30_000, 1_000_000]);
        if chance.below(1000) < u64::from(plan.trouble) {
            return match chance.below(12) {
                0..4 => Self::Error,
                4 => Self::Fatal,
                5 => Self::Panic,
                6 => Self::Rows(Form::Failing, rows(), bytes()),
                7 => Self::Rows(Form::Panicking, rows(), bytes()),
                8 => Self::Later(Later::Error, micros()),
                9 => Self::Later(Later::Fatal, micros()),
                10 => Self::Later(Later::Panic, micros()),
                _ => Self::Later(Later::Drop, micros()),
            };
        }
        match chance.below(20) {
            0..7 => Self::Change,
            7..9 => Self::Rows(Form::Handler, rows(), bytes()),
            9..12 => Self::Rows(Form::Source, rows(), bytes()),
            12..14 => Self::Rows(Form::Relay, rows(), bytes()),
            14 => Self::Later(Later::Change, micros()),
            15 => Self::Later(Later::Rows(rows()), micros()),
            16 => Self::Later(Later::Again, micros()),
            17 => Self::Begin,
            18 => Self::Commit,
            _ => Self::Savepoint,
        }
    }
}

/// Largest number that a peer writes.
const MOST: u64 = 10_000_000;
