//! Errors of a configuration.

use std::error::Error;
use std::fmt;

use super::fields::Unit;

/// Error of an operator: a tunable is unknown or outside its range, or its text is malformed.
///
/// `Display` is one line: `epoll_groups 200 is outside 0..=128`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// Name of the tunable; empty if there is no tunable of the given name.
    pub field: &'static str,
    /// The given value, as text with its unit; if there is no such tunable, the name.
    pub value: String,
    /// Valid range, as text with its unit; empty for an unknown tunable.
    pub range: String,
    pub(super) kind: Kind,
}

/// Kind of an error in a tunable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The value is outside the range.
    OutOfRange,
    /// The text is no value of a tunable with this unit.
    Malformed(Unit),
    /// There is no tunable of that name.
    Unknown {
        /// The tunable with the most similar name, if one is similar.
        nearest: Option<&'static str>,
    },
}

impl ConfigError {
    /// Makes an error with the `Debug` text of `value`: a number as the number, a `Duration` as
    /// `1.5s`.
    pub(crate) fn out_of_range(field: &'static str, value: impl fmt::Debug, range: String) -> Self {
        let kind = Kind::OutOfRange;
        Self { field, value: format!("{value:?}"), range, kind }
    }

    pub(super) fn malformed(field: &'static str, text: &str, unit: Unit, range: String) -> Self {
        let kind = Kind::Malformed(unit);
        Self { field, value: text.to_owned(), range, kind }
    }

    pub(super) fn unknown(name: &str, nearest: Option<&'static str>) -> Self {
        let kind = Kind::Unknown { nearest };
        Self { field: "", value: name.to_owned(), range: String::new(), kind }
    }
}

/// Text of an operator is quoted, so that the message stays one line.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, range, kind } = self;
        match kind {
            Kind::OutOfRange => write!(f, "{field} {value} is outside {range}"),
            Kind::Malformed(unit) => match unit {
                Unit::Count => write!(f, "{field} {value:?} is no count within {range}"),
                Unit::Bytes => write!(f, "{field} {value:?} is no size within {range}"),
                Unit::Switch => write!(f, "{field} {value:?} is not {range}"),
                Unit::Milliseconds | Unit::Seconds => {
                    write!(f, "{field} {value:?} is no time within {range}")
                }
            },
            Kind::Unknown { nearest: Some(nearest) } => {
                write!(f, "unknown tunable {value:?}, did you mean {nearest}?")
            }
            Kind::Unknown { nearest: None } => write!(f, "unknown tunable {value:?}"),
        }
    }
}

impl Error for ConfigError {}
