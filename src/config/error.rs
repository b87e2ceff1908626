//! What is wrong with a configuration.

use std::error::Error;
use std::fmt;

use super::fields::Unit;

/// A tunable is outside its range, or was not understood: a mistake of whoever configured the
/// runtime.
///
/// `Display` says it in one line: `epoll_groups 200 is outside 0..=128`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// Name of the tunable; empty if there is none of the name that was given.
    pub field: &'static str,
    /// The value it was given, as text with its unit; if there is no such tunable, the name.
    pub value: String,
    /// What is allowed, as text with its unit; empty for an unknown tunable.
    pub range: String,
    /// What is wrong with it.
    pub kind: ConfigErrorKind,
}

/// What is wrong with a tunable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The value is outside the range.
    OutOfRange,
    /// The text is no value of a tunable that counts in this unit.
    Malformed(Unit),
    /// There is no tunable of that name.
    Unknown {
        /// One that is spelled nearly so.
        nearest: Option<&'static str>,
    },
}

impl ConfigError {
    /// `Debug` of a number is the number, and of a `Duration` it is `1.5s`.
    pub(super) fn out_of_range(field: &'static str, value: impl fmt::Debug, range: String) -> Self {
        let kind = ConfigErrorKind::OutOfRange;
        Self { field, value: format!("{value:?}"), range, kind }
    }

    pub(super) fn malformed(field: &'static str, text: &str, unit: Unit, range: String) -> Self {
        let kind = ConfigErrorKind::Malformed(unit);
        Self { field, value: text.to_owned(), range, kind }
    }

    pub(super) fn unknown(name: &str, nearest: Option<&'static str>) -> Self {
        let kind = ConfigErrorKind::Unknown { nearest };
        Self { field: "", value: name.to_owned(), range: String::new(), kind }
    }
}

/// What was not understood is quoted, so that it stays one line whatever it holds.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, range, kind } = self;
        match kind {
            ConfigErrorKind::OutOfRange => write!(f, "{field} {value} is outside {range}"),
            ConfigErrorKind::Malformed(unit) => match unit {
                Unit::Count => write!(f, "{field} {value:?} is no count within {range}"),
                Unit::Bytes => write!(f, "{field} {value:?} is no size within {range}"),
                Unit::Switch => write!(f, "{field} {value:?} is not {range}"),
                Unit::Milliseconds | Unit::Seconds => {
                    write!(f, "{field} {value:?} is no time within {range}")
                }
            },
            ConfigErrorKind::Unknown { nearest: Some(nearest) } => {
                write!(f, "unknown tunable {value:?}, did you mean {nearest}?")
            }
            ConfigErrorKind::Unknown { nearest: None } => write!(f, "unknown tunable {value:?}"),
        }
    }
}

impl Error for ConfigError {}
