//! [`StatementError`]: why a text makes no sense.

use std::error::Error;
use std::fmt;

/// Why a text makes no sense. Positions are bytes of the text, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatementError {
    /// Something else belongs here.
    Unexpected {
        /// Position of the token.
        at: usize,
        /// The token.
        found: String,
        /// Tokens that would fit.
        expected: &'static str,
    },
    /// A quoted text does not end.
    Unclosed {
        /// Position of its beginning.
        at: usize,
    },
    /// Text in `x''` that is not pairs of hexadecimal digits.
    Hex {
        /// Position of its beginning.
        at: usize,
    },
    /// A number does not fit in 64 bits.
    Number {
        /// Position of its beginning.
        at: usize,
    },
    /// More comparisons and operations than one text may have.
    TooMany {
        /// Position of the first one beyond the limit.
        at: usize,
        /// Largest number.
        limit: usize,
    },
    /// There is no argument for a mark.
    NoArgument {
        /// Position of the mark.
        at: usize,
        /// Number of the argument, from 1.
        number: usize,
    },
    /// An argument is of a type that does not belong here.
    Argument {
        /// Number of the argument, from 1.
        number: usize,
        /// Type of the argument.
        found: &'static str,
        /// Type that would fit.
        expected: &'static str,
    },
    /// There are more arguments than marks.
    LeftOver {
        /// Number of arguments.
        arguments: usize,
        /// Number of marks.
        marks: usize,
    },
}

impl StatementError {
    /// True if the arguments are wrong, and not the text.
    #[must_use]
    pub const fn is_of_arguments(&self) -> bool {
        matches!(self, Self::NoArgument { .. } | Self::Argument { .. } | Self::LeftOver { .. })
    }
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected { at, found, expected } => {
                write!(f, "at {at}: expected {expected}, found {found}")
            }
            Self::Unclosed { at } => {
                write!(f, "at {at}: expected ' behind the text, found the end")
            }
            Self::Hex { at } => write!(f, "at {at}: expected pairs of hexadecimal digits in x''"),
            Self::Number { at } => write!(f, "at {at}: the number exceeds {}", u64::MAX),
            Self::TooMany { at, limit } => {
                write!(f, "at {at}: comparisons and operations exceed {limit}")
            }
            Self::NoArgument { at, number } => {
                write!(f, "at {at}: there is no argument {number} for the mark")
            }
            Self::Argument { number, found, expected } => {
                write!(f, "argument {number}: expected {expected}, found {found}")
            }
            Self::LeftOver { arguments, marks } => {
                write!(f, "{arguments} arguments for {marks} marks")
            }
        }
    }
}

impl Error for StatementError {}
