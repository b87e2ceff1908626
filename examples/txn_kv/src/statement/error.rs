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
        /// Where it begins.
        at: usize,
    },
    /// Text in `x''` that is not pairs of hexadecimal digits.
    Hex {
        /// Where it begins.
        at: usize,
    },
    /// A number does not fit in 64 bits.
    Number {
        /// Where it begins.
        at: usize,
    },
    /// More comparisons and operations than one text may have.
    TooMany {
        /// Where the first begins that is too many.
        at: usize,
        /// How many there may be.
        limit: usize,
    },
    /// There is no argument for a mark.
    NoArgument {
        /// Where the mark stands.
        at: usize,
        /// Which argument it is, from 1.
        number: usize,
    },
    /// An argument is of a type that does not belong here.
    Argument {
        /// Which one, from 1.
        number: usize,
        /// Type of the argument.
        found: &'static str,
        /// Type that would fit.
        expected: &'static str,
    },
    /// There are more arguments than marks.
    LeftOver {
        /// How many arguments.
        arguments: usize,
        /// How many marks.
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
