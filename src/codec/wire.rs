//! Protobuf primitives: writers for the hot path, and the one reader of the codec.
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
//! Varints are written as short as possible. The reader accepts longer ones too, up to
//! [`MAX_VARINT_BYTES`], because the reference server pads some. A value that does not fit into 64
//! bits is an error. Integers of fixed width are little-endian on the wire, on every machine.
//!
//! Writing goes through `Word`: up to 16 bytes that are put together in registers and stored at
//! once. Therefore a whole row field costs one bounds check.

mod word;

pub(super) use word::Word;

use crate::codec::error::WireError;
use crate::codec::limits::Limits;

/// Longest varint: ten times seven bits hold 64.
pub(super) const MAX_VARINT_BYTES: usize = 10;

/// Bytes of `value` as a varint, 1 to [`MAX_VARINT_BYTES`].
#[inline]
pub(super) const fn varint_bytes(value: u64) -> usize {
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
pub(super) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
#[inline]
pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg()
}

/// Appends `value` as the shortest varint.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, value: u64) {
    let word = Word::varint(value);
    // A store of fixed width and a shortened length are cheaper than a copy of varying width.
    let end = out.len().saturating_add(word.len());
    out.extend_from_slice(&word.to_array());
    out.truncate(end);
}

/// Encoding of the content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireType {
    /// A varint: integers, booleans, enums.
    Varint = 0,
    /// Eight bytes: double, fixed64.
    Fixed64 = 1,
    /// A varint with the length, then that many bytes: strings, bytes, messages.
    Bytes = 2,
    /// Fields up to the end of the group. No known peer writes groups any more.
    GroupStart = 3,
    /// End of a group.
    GroupEnd = 4,
    /// Four bytes: float, fixed32.
    Fixed32 = 5,
}

impl WireType {
    /// Tag of field `number`, which precedes its content.
    #[inline]
    pub(super) const fn tag(self, number: u32) -> u64 {
        (number as u64) << 3 | self as u64
    }
}

/// Reads primitives from the front of some bytes.
///
/// *Shape*: a slice that gets shorter. It copies nothing, and its results borrow from the bytes,
/// not from the reader. After an error its position is unspecified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    #[inline]
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns true if all bytes were read.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes that were not read yet.
    #[inline]
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads one byte.
    #[inline]
    pub(super) const fn byte(&mut self) -> Result<u8, WireError> {
        let Some((&first, rest)) = self.rest.split_first() else {
            return Err(WireError::Truncated);
        };
        self.rest = rest;
        Ok(first)
    }

    /// Reads a varint of any length up to [`MAX_VARINT_BYTES`].
    #[inline]
    pub(super) const fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest {
            [low, rest @ ..] if *low < 0x80 => {
                self.rest = rest;
                Ok(*low as u64)
            }
            [low, high, rest @ ..] if *high < 0x80 => {
                self.rest = rest;
                Ok((*low & 0x7f) as u64 | (*high as u64) << 7)
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
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
    #[inline]
    pub(super) const fn field(&mut self) -> Result<Option<(u32, WireType)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        match self.tag() {
            // No group is open here.
            Ok((_, WireType::GroupEnd)) => Err(WireError::Tag),
            Ok(field) => Ok(Some(field)),
            Err(error) => Err(error),
        }
    }

    #[inline]
    const fn tag(&mut self) -> Result<(u32, WireType), WireError> {
        let tag = match self.varint() {
            Ok(tag) => tag,
            Err(error) => return Err(error),
        };
        let kind = match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            3 => WireType::GroupStart,
            4 => WireType::GroupEnd,
            5 => WireType::Fixed32,
            _ => return Err(WireError::Tag),
        };
        let number = tag >> 3;
        if number == 0 || number > MAX_FIELD_NUMBER {
            return Err(WireError::Tag);
        }
        #[expect(clippy::cast_possible_truncation, reason = "compared with 2^29 - 1 above")]
        Ok((number as u32, kind))
    }

    /// Reads a length and that many bytes.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| WireError::Truncated)?)
    }

    /// Reads `count` bytes.
    #[inline]
    pub(super) const fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(WireError::Truncated);
        };
        self.rest = rest;
        Ok(taken)
    }

    /// Reads four bytes.
    #[inline]
    pub(super) const fn fixed32(&mut self) -> Result<u32, WireError> {
        let Some((&bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(WireError::Truncated);
        };
        self.rest = rest;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads eight bytes.
    #[inline]
    pub(super) const fn fixed64(&mut self) -> Result<u64, WireError> {
        let Some((&bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(WireError::Truncated);
        };
        self.rest = rest;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Skips the content of a field that the caller does not need.
    pub(super) fn skip(&mut self, number: u32, kind: WireType) -> Result<(), WireError> {
        self.skip_within(number, kind, Limits::MAX_DEPTH)
    }

    /// Skips the content of a field in which groups may nest to `depth`.
    pub(super) fn skip_within(
        &mut self,
        number: u32,
        kind: WireType,
        depth: u32,
    ) -> Result<(), WireError> {
        match kind {
            WireType::Varint => self.varint().map(drop),
            WireType::Fixed64 => self.fixed64().map(drop),
            WireType::Bytes => self.bytes().map(drop),
            WireType::Fixed32 => self.fixed32().map(drop),
            WireType::GroupEnd => Err(WireError::Tag),
            WireType::GroupStart => {
                let depth = depth.checked_sub(1).ok_or(WireError::TooDeep)?;
                loop {
                    match self.tag()? {
                        (end, WireType::GroupEnd) if end == number => return Ok(()),
                        (inside, kind) => self.skip_within(inside, kind, depth)?,
                    }
                }
            }
        }
    }
}

const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

#[cfg(test)]
mod tests;
