//! Reader of the protobuf wire format: tags, varints, lengths.
//!
//! It allocates nothing and knows no message. Offsets in its errors count from the start of the
//! body, also inside nested messages.

use super::error::MessageError;
use super::limits::Limits;

pub(super) const WIRE_VARINT: u8 = 0;
pub(super) const WIRE_FIXED64: u8 = 1;
pub(super) const WIRE_BYTES: u8 = 2;
const WIRE_GROUP_END: u8 = 4;
pub(super) const WIRE_FIXED32: u8 = 5;

/// Number and wire type at the start of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// Number of the field, from 1.
    pub(super) number: u32,
    /// Wire type: one of the constants above except the end of a group.
    pub(super) wire: u8,
}

/// Unread part of a body, or of a message inside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Offset of the end of `rest`, from the start of the body.
    end: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(body: &'a [u8]) -> Self {
        Self { rest: body, end: body.len() }
    }

    /// Bytes that are left.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Bytes before the next one, from the start of the body.
    fn offset(&self) -> u32 {
        u32::try_from(self.end.saturating_sub(self.rest.len())).unwrap_or(u32::MAX)
    }

    /// Reads the tag of the next field; `None` at the end.
    pub(super) fn tag(&mut self) -> Result<Option<Tag>, MessageError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let offset = self.offset();
        let tag = self.any_tag()?;
        if tag.wire == WIRE_GROUP_END {
            // No group is open here.
            let tag = u64::from(tag.number) << 3 | u64::from(tag.wire);
            return Err(MessageError::Tag { offset, tag });
        }
        Ok(Some(tag))
    }

    fn any_tag(&mut self) -> Result<Tag, MessageError> {
        let offset = self.offset();
        let tag = self.varint()?;
        let wire = (tag & 7) as u8;
        match u32::try_from(tag >> 3) {
            Ok(number) if number != 0 && number <= LAST_NUMBER && wire <= WIRE_FIXED32 => {
                Ok(Tag { number, wire })
            }
            _ => Err(MessageError::Tag { offset, tag }),
        }
    }

    /// Reads the next varint; more bytes than necessary are accepted.
    pub(super) fn varint(&mut self) -> Result<u64, MessageError> {
        // Most varints are one byte.
        if let Some((&byte, rest)) = self.rest.split_first()
            && byte < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(byte));
        }
        let offset = self.offset();
        let mut value = 0_u64;
        for (at, &byte) in self.rest.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            let shift = u32::try_from(at).unwrap_or(u32::MAX).saturating_mul(7);
            value |= bits.checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                if at == 9 && bits > 1 {
                    return Err(MessageError::Varint { offset });
                }
                self.rest = self.rest.get(at.saturating_add(1)..).unwrap_or_default();
                return Ok(value);
            }
        }
        if self.rest.len() >= 10 {
            return Err(MessageError::Varint { offset });
        }
        Err(self.truncated(offset, u64::try_from(self.rest.len()).unwrap_or(0).saturating_add(1)))
    }

    /// Reads the next value with a length, without the length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], MessageError> {
        let length = self.varint()?;
        self.take(length)
    }

    /// Reads the next message inside this one.
    pub(super) fn message(&mut self) -> Result<Self, MessageError> {
        let rest = self.bytes()?;
        Ok(Self { rest, end: self.end.saturating_sub(self.rest.len()) })
    }

    fn take(&mut self, bytes: u64) -> Result<&'a [u8], MessageError> {
        let parts = usize::try_from(bytes).ok().and_then(|at| self.rest.split_at_checked(at));
        let Some((taken, rest)) = parts else {
            return Err(self.truncated(self.offset(), bytes));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn truncated(&self, offset: u32, needs: u64) -> MessageError {
        let has = u32::try_from(self.rest.len()).unwrap_or(u32::MAX);
        MessageError::Truncated { offset, needs, has }
    }

    /// Skips the value of a field of any wire type.
    pub(super) fn skip(&mut self, tag: Tag) -> Result<(), MessageError> {
        self.skip_within(tag, Limits::MAX_DEPTH, Limits::MAX_DEPTH)
    }

    /// Skips a value in which groups may nest to `depth`. No known peer writes groups any more. The
    /// error carries `limit`.
    pub(super) fn skip_within(
        &mut self,
        tag: Tag,
        depth: u32,
        limit: u32,
    ) -> Result<(), MessageError> {
        match tag.wire {
            WIRE_VARINT => self.varint().map(drop),
            WIRE_FIXED64 => self.take(8).map(drop),
            WIRE_BYTES => self.bytes().map(drop),
            WIRE_FIXED32 => self.take(4).map(drop),
            _ => {
                let Some(depth) = depth.checked_sub(1) else {
                    return Err(MessageError::Depth { limit });
                };
                self.skip_group(tag.number, depth, limit)
            }
        }
    }

    fn skip_group(&mut self, number: u32, depth: u32, limit: u32) -> Result<(), MessageError> {
        loop {
            let offset = self.offset();
            if self.rest.is_empty() {
                return Err(self.truncated(offset, 1));
            }
            let tag = self.any_tag()?;
            if tag.wire != WIRE_GROUP_END {
                self.skip_within(tag, depth, limit)?;
            } else if tag.number == number {
                return Ok(());
            } else {
                let tag = u64::from(tag.number) << 3 | u64::from(tag.wire);
                return Err(MessageError::Tag { offset, tag });
            }
        }
    }
}

/// Largest number of a field.
const LAST_NUMBER: u32 = (1 << 29) - 1;

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic on its own mistakes")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Value and length of a varint by its definition: seven bits a byte, the low ones first, the
    /// last byte without the high bit, 64 bits in all.
    fn naive(bytes: &[u8]) -> Option<(u64, usize)> {
        let used = bytes.iter().position(|byte| byte & 0x80 == 0)?.checked_add(1)?;
        let mut value = 0_u128;
        for &byte in bytes[..used].iter().rev() {
            value = value.checked_mul(128)?.checked_add(u128::from(byte & 0x7f))?;
        }
        if used > 10 { None } else { Some((u64::try_from(value).ok()?, used)) }
    }

    proptest! {
        #[test]
        fn varints_are_what_the_book_says(
            bytes in prop::collection::vec(
                prop_oneof![Just(0x80), Just(0xff), Just(0), Just(1), any::<u8>()], 0..14,
            ),
        ) {
            let mut reader = Reader::new(&bytes);
            match (naive(&bytes), reader.varint()) {
                (Some((value, used)), found) => {
                    prop_assert_eq!(found, Ok(value));
                    prop_assert_eq!(reader.rest(), &bytes[used..]);
                }
                (None, Err(MessageError::Truncated { offset: 0, .. })) => {
                    prop_assert!(bytes.len() < 10);
                }
                (None, found) => {
                    prop_assert_eq!(found, Err(MessageError::Varint { offset: 0 }));
                    prop_assert!(bytes.len() >= 10);
                }
            }
        }

        #[test]
        fn every_number_reads_back_at_every_length(value: u64, pad in 0_usize..10) {
            let mut bytes = Vec::new();
            prost::encoding::encode_varint(value, &mut bytes);
            let most = 10_usize.saturating_sub(bytes.len());
            if pad > 0 && most > 0 {
                if let Some(last) = bytes.last_mut() {
                    *last |= 0x80;
                }
                bytes.extend(std::iter::repeat_n(0x80, pad.min(most).saturating_sub(1)));
                bytes.push(0);
            }
            bytes.push(0xaa);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.rest(), [0xaa]);
        }
    }
}
