//! Protobuf primitives: writers for the hot path, and readers for cells.
//!
//! ```text
//!  varint 300         ┌─────────┬─────────┐     seven bits a byte, lowest first;
//!                     │1 0101100│0 0000010│     the top bit says that one more follows
//!                     └─────────┴─────────┘
//!  field 1, bytes     ┌──────┬──────────┬──────────┄
//!                     │ tag  │ length   │ content     tag = field number << 3 | wire type
//!                     └──────┴──────────┴──────────┄
//! ```
//!
//! Varints are written as short as possible. A reader accepts longer ones too, up to
//! [`MAX_VARINT_BYTES`], because the reference server pads some. A value that does not fit into 64
//! bits is an error. Integers of fixed width are little-endian on the wire, on every machine.
//!
//! Writing goes through `Word`: up to 16 bytes that are put together in registers and stored at
//! once. Therefore a whole row field costs one bounds check.

mod word;

use std::error::Error;
use std::fmt;

pub(super) use word::Word;

/// Longest varint: ten times seven bits hold 64.
pub const MAX_VARINT_BYTES: usize = 10;

/// Bytes of `value` as a varint, 1 to [`MAX_VARINT_BYTES`].
#[inline]
#[must_use]
pub const fn varint_bytes(value: u64) -> usize {
    varint_len(value) as usize
}

#[inline]
const fn varint_len(value: u64) -> u32 {
    // 9/64 stands in for 1/7 and is exact for all 64 values of the bit length.
    let top_bit = (value | 1).ilog2();
    top_bit.wrapping_mul(9).wrapping_add(73) >> 6
}

/// Maps small numbers of either sign to small unsigned ones: 0, −1, 1, −2 to 0, 1, 2, 3.
#[inline]
#[must_use]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
#[inline]
#[must_use]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg()
}

/// Appends `value` as the shortest varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    let word = Word::varint(value);
    // A store of fixed width and a shortened length are cheaper than a copy of varying width.
    let end = out.len().saturating_add(word.len());
    out.extend_from_slice(&word.to_array());
    out.truncate(end);
}

/// Encoding of the content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireType {
    /// A varint: integers, booleans, enums.
    Varint,
    /// Eight bytes: double, fixed64.
    Fixed64,
    /// A varint with the length, then that many bytes: strings, bytes, messages.
    Bytes,
    /// Four bytes: float, fixed32.
    Fixed32,
}

impl WireType {
    /// Tag of field `number`, which precedes its content.
    #[inline]
    #[must_use]
    pub const fn tag(self, number: u32) -> u64 {
        let kind = match self {
            Self::Varint => 0,
            Self::Fixed64 => 1,
            Self::Bytes => 2,
            Self::Fixed32 => 5,
        };
        (number as u64) << 3 | kind
    }
}

/// Reason why bytes are not the expected primitive. It is the peer's fault. The caller knows the
/// origin of the bytes and decides whether the request or the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end inside a value.
    Truncated,
    /// More than [`MAX_VARINT_BYTES`] bytes, or a value of more than 64 bits.
    VarintTooLong,
    /// A wire type that no field of this protocol has: groups (3 and 4), 6 and 7.
    UnknownWireType(u8),
    /// Field number 0, or one above 2²⁹ − 1.
    BadFieldNumber,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("bytes end inside a value"),
            Self::VarintTooLong => f.write_str("varint exceeds 64 bits"),
            Self::UnknownWireType(kind) => write!(f, "wire type {kind} is unknown"),
            Self::BadFieldNumber => f.write_str("field number is out of range"),
        }
    }
}

impl Error for WireError {}

/// Reads primitives from the front of some bytes.
///
/// *Shape*: a slice that gets shorter. It copies nothing, and its results borrow from the bytes,
/// not from the reader. After an error its position is unspecified.
///
/// ```
/// use epoll_group::codec::wire::{Reader, WireError, WireType};
///
/// let mut reader = Reader::new(&[0x0a, 2, b'h', b'i', 0x10, 0xac, 0x02]);
/// assert_eq!(reader.field()?, Some((1, WireType::Bytes)));
/// assert_eq!(reader.bytes()?, b"hi");
/// assert_eq!(reader.field()?, Some((2, WireType::Varint)));
/// assert_eq!(reader.varint()?, 300);
/// assert_eq!(reader.field()?, None);
/// # Ok::<(), WireError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns true if all bytes were read.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes that were not read yet.
    #[inline]
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads one byte.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub const fn byte(&mut self) -> Result<u8, WireError> {
        let Some((&first, rest)) = self.rest.split_first() else {
            return Err(WireError::Truncated);
        };
        self.rest = rest;
        Ok(first)
    }

    /// Reads a varint of any length up to [`MAX_VARINT_BYTES`].
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`], [`WireError::VarintTooLong`].
    #[inline]
    pub const fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest.split_first() {
            Some((&first, rest)) if first < 0x80 => {
                self.rest = rest;
                Ok(first as u64)
            }
            _ => self.long_varint(),
        }
    }

    const fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        let mut shift = 0_u32;
        while shift < 64 {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return Err(WireError::Truncated);
            };
            self.rest = rest;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(WireError::VarintTooLong);
            }
            value |= ((byte & 0x7f) as u64).wrapping_shl(shift);
            if byte < 0x80 {
                return Ok(value);
            }
            shift = shift.saturating_add(7);
        }
        Err(WireError::VarintTooLong)
    }

    /// Reads number and wire type of the next field; `Ok(None)` at the end.
    ///
    /// # Errors
    ///
    /// [`WireError::UnknownWireType`], [`WireError::BadFieldNumber`], and those of [`Self::varint`].
    #[inline]
    pub const fn field(&mut self) -> Result<Option<(u32, WireType)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = match self.varint() {
            Ok(tag) => tag,
            Err(error) => return Err(error),
        };
        let kind = match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            5 => WireType::Fixed32,
            _ => return Err(WireError::UnknownWireType(tag.to_le_bytes()[0] & 7)),
        };
        let number = tag >> 3;
        if number == 0 || number > MAX_FIELD_NUMBER {
            return Err(WireError::BadFieldNumber);
        }
        #[expect(clippy::cast_possible_truncation, reason = "compared with 2^29 - 1 above")]
        Ok(Some((number as u32, kind)))
    }

    /// Reads a length and that many bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`] when fewer are left, [`WireError::VarintTooLong`].
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| WireError::Truncated)?)
    }

    /// Reads `count` bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`] when fewer are left.
    #[inline]
    pub const fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(WireError::Truncated);
        };
        self.rest = rest;
        Ok(taken)
    }

    /// Reads four bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub const fn fixed32(&mut self) -> Result<u32, WireError> {
        let Some((&bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(WireError::Truncated);
        };
        self.rest = rest;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub const fn fixed64(&mut self) -> Result<u64, WireError> {
        let Some((&bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(WireError::Truncated);
        };
        self.rest = rest;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Skips the content of a field that the caller does not need.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`], [`WireError::VarintTooLong`].
    pub fn skip(&mut self, kind: WireType) -> Result<(), WireError> {
        match kind {
            WireType::Varint => self.varint().map(drop),
            WireType::Fixed64 => self.fixed64().map(drop),
            WireType::Bytes => self.bytes().map(drop),
            WireType::Fixed32 => self.fixed32().map(drop),
        }
    }
}

const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

#[cfg(test)]
mod tests;
