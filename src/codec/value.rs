//! Values of columns, and reasons why bytes or numbers are no value.
//!
//! # Decimals
//!
//! Decimal numbers of up to 65 digits, in the packed form of the wire.
//!
//! ```text
//!  -12.3401   ┌────┬────┬────┬────┬────┐
//!             │ 04 │ 12 │ 34 │ 01 │ d0 │    scale, two digits a byte, sign, a zero if odd
//!             └────┴────┴────┴────┴────┘    sign: c = zero or above, d = below
//! ```
//!
//! # Dates and times
//!
//! Dates, times of day and durations in MySQL's sense.
//!
//! They are not those of a calendar library, and no conversion to one is offered. MySQL stores
//! `0000-00-00`, `2024-02-00` and, with the right mode, `2024-02-31`. Its TIME is a duration of
//! either sign up to 838:59:59.999999. The types here check that each part is in its range.
//! Accessors expose the parts, so the user's conversion is one line.
//!
//! There are three forms. Rows have parts of varying number ([`row`](crate::codec::row)). Chunks have
//! one packed integer (`to_packed`, `from_packed`). Text never goes on the wire, but people read it.

mod decimal;
mod temporal;

use std::error::Error;
use std::fmt;

pub use decimal::Decimal;
pub use temporal::{Date, DateTime, Time};

use crate::codec::error::{Scope, WireError};
use crate::codec::wire::{Reader, put_varint};

/// One cell of a result, of any column type.
///
/// *Shape*: at most 40 bytes, `Copy`. Text and blobs borrow from the frame they were read from, or
/// from the caller that writes them.
///
/// Bytes of text are in the character set of the result, which the codec does not convert. JSON and
/// geometry are [`Bytes`](Self::Bytes), a year is [`Unsigned`](Self::Unsigned), a timestamp is a
/// [`DateTime`](Self::DateTime).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// SQL NULL, in a column of any type.
    Null,
    /// TINYINT to BIGINT.
    Signed(i64),
    /// TINYINT UNSIGNED to BIGINT UNSIGNED, and YEAR.
    Unsigned(u64),
    /// BIT(1) to BIT(64), the first bit of the column being the highest.
    Bit(u64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL.
    Decimal(Decimal),
    /// DATE.
    Date(Date),
    /// DATETIME and TIMESTAMP.
    DateTime(DateTime),
    /// TIME.
    Time(Time),
    /// CHAR, VARCHAR, TEXT, BINARY, BLOB, JSON, GEOMETRY, without the byte that ends them on the wire.
    Bytes(&'a [u8]),
    /// The name of an ENUM's member.
    Enum(&'a [u8]),
    /// The names of a SET's members.
    Set(Set<'a>),
}

/// Sign of a decimal or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there is no third sign")]
pub enum Sign {
    /// Below zero.
    Minus,
    /// Zero or above.
    Plus,
}

/// Members of a SET cell, in their wire format.
///
/// *Shape*: a borrowed slice that was checked once; iteration copies nothing. The default is the
/// empty set. On the wire a set whose only member has an empty name equals the empty set, and is
/// read as the empty set.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Set<'a> {
    members: &'a [u8],
}

impl<'a> Set<'a> {
    /// Creates a set of these members. Its bytes replace the former content of `place`.
    pub fn new<T: AsRef<[u8]>>(
        members: impl IntoIterator<Item = T>,
        place: &'a mut Vec<u8>,
    ) -> Self {
        place.clear();
        for member in members {
            put_varint(place, member.as_ref().len() as u64);
            place.extend_from_slice(member.as_ref());
        }
        let members: &[u8] = place;
        if members == [0] { Self::default() } else { Self { members } }
    }

    /// Reads the bytes of a cell. A single byte, 0 or 1, is the empty set.
    pub(super) fn from_cell(cell: &'a [u8]) -> Result<Self, ValueError> {
        if matches!(cell, [0 | 1]) {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(cell);
        while !reader.is_empty() {
            read_bytes(&mut reader)?;
        }
        Ok(Self { members: cell })
    }

    /// Members in their wire format; no bytes for the empty set.
    pub(super) const fn as_wire(&self) -> &'a [u8] {
        self.members
    }

    /// Returns true if there is no member.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Members in the order of the wire, which is that of the column's definition.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let mut reader = Reader::new(self.members);
        // The bytes were checked at construction, so the reader fails only at the end.
        std::iter::from_fn(move || reader.bytes().ok())
    }
}

impl fmt::Debug for Set<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|member| member.escape_ascii().to_string())).finish()
    }
}

/// Reason why bytes, a number or a text is no value of a type.
///
/// In a result it is the peer's fault and ends the request; in a constructor it is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// The bytes of a cell are broken.
    Wire(WireError),
    /// A cell has bytes behind its value.
    Trailing {
        /// Bytes behind the value.
        bytes: usize,
    },
    /// A string without the zero that ends it.
    Unterminated,
    /// A part of a value is above its maximum.
    OutOfRange {
        /// Name of the part: `year`, `hour`, `scale` …
        part: &'static str,
        /// Value of the part.
        value: u64,
        /// Largest valid value of the part.
        max: u64,
    },
    /// A packed decimal lacks digits or a sign, or has bytes behind the sign.
    BadDecimal,
    /// A text that does not have the form of the type.
    Syntax,
    /// A text that is not UTF-8.
    NotUtf8,
    /// A column that the row does not have.
    NoColumn {
        /// Index of the requested column.
        index: usize,
        /// Number of columns of the row.
        columns: usize,
    },
    /// More columns than the reader accepts.
    TooManyColumns {
        /// Greatest number of columns that the reader accepts.
        max: usize,
    },
}

impl ValueError {
    /// Scope of the error if a peer sent the value: the request. The frames behind it can be read.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => error.fmt(f),
            Self::Trailing { bytes } => write!(f, "{bytes} bytes behind the value"),
            Self::Unterminated => f.write_str("string does not end with a zero byte"),
            Self::OutOfRange { part, value, max } => write!(f, "{part} {value} exceeds {max}"),
            Self::BadDecimal => f.write_str("malformed packed decimal"),
            Self::Syntax => f.write_str("text does not have the form of the type"),
            Self::NotUtf8 => f.write_str("text is not UTF-8"),
            Self::NoColumn { index, columns } => write!(f, "column {index} of {columns}"),
            Self::TooManyColumns { max } => write!(f, "columns exceed {max}"),
        }
    }
}

impl Error for ValueError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Wire(error) => Some(error),
            _ => None,
        }
    }
}

/// Reads a varint that is a value or a part of one.
#[inline]
pub(super) fn read_varint(reader: &mut Reader<'_>) -> Result<u64, ValueError> {
    reader.varint().map_err(ValueError::Wire)
}

/// Reads a length, and that many bytes of a value.
#[inline]
pub(super) fn read_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], ValueError> {
    reader.bytes().map_err(ValueError::Wire)
}

/// Returns `value` if it is not above `max`.
pub(super) const fn within(part: &'static str, value: u64, max: u64) -> Result<u64, ValueError> {
    if value <= max { Ok(value) } else { Err(ValueError::OutOfRange { part, value, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_built_and_gone_through() {
        let mut place = Vec::new();
        let set = Set::new(["a", "bb"], &mut place);
        assert_eq!(set.iter().collect::<Vec<_>>(), [&b"a"[..], b"bb"]);
        assert_eq!(set.as_wire(), [1, b'a', 2, b'b', b'b']);
        assert_eq!(format!("{set:?}"), r#"{"a", "bb"}"#);
        assert_eq!(Set::new([""], &mut Vec::new()), Set::default());
        assert_eq!(Set::new(["", ""], &mut Vec::new()).iter().count(), 2);
    }

    #[test]
    fn both_marks_are_the_empty_set() {
        assert_eq!(Set::from_cell(&[0]), Ok(Set::default()));
        assert_eq!(Set::from_cell(&[1]), Ok(Set::default()));
        assert_eq!(Set::from_cell(&[2, 1]), Err(ValueError::Wire(WireError::Truncated)));
    }

    #[test]
    fn a_value_is_no_larger_than_a_decimal_and_its_tag() {
        assert!(size_of::<Value<'_>>() <= 40);
    }
}
