//! Check of a body before memory is allocated for it.
//!
//! The check walks the wire format along the [`Schema`] of the message. It refuses a body that is
//! cut, exceeds a limit of depth, length or count, or lacks a required field. Therefore the decoder
//! behind it cannot fail, and takes no more memory than the check added up.
//!
//! Some deviations are tolerated, because existing peers send them or a newer peer may. They are:
//! varints longer than necessary, fields in any order, a field that comes twice (the last one
//! counts), unknown fields, and unlisted values of enums (skipped like unknown fields).

use crate::codec::error::{MessageError, WireError};
use crate::codec::limits::Limits;
use crate::codec::wire::{Reader, WireType};

/// Description of a message for the check. Generated from the `.proto` files.
#[derive(Debug)]
pub(super) struct Schema {
    /// Package and name.
    pub(super) name: &'static str,
    /// Memory of the decoded message, without the memory that it points to.
    pub(super) bytes: usize,
    /// Bit n is set if field n is required.
    pub(super) required: u32,
    /// Field 1 and those behind it; numbers without a field are [`Field::GAP`].
    pub(super) fields: &'static [Field],
}

/// One field of a [`Schema`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) kind: Kind,
    pub(super) place: Place,
}

/// Storage of the value of a field, and its greatest count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Value in the message itself.
    Inline,
    /// Value in memory of its own.
    Boxed,
    /// Values in a list.
    List(List),
}

/// Limit that applies to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Parameters,
    Columns,
    Other,
}

/// Type of the value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Varint,
    Fixed32,
    Fixed64,
    /// Payload, bounded by the frame.
    Bytes,
    /// A name or another short text, bounded by a limit of its own.
    Text,
    /// One of the listed numbers.
    Enum(&'static [i32]),
    Message(&'static Schema),
    /// There is no field of this number.
    Unknown,
}

impl Field {
    pub(super) const GAP: Self = Self { kind: Kind::Unknown, place: Place::Inline };

    pub(super) const fn one(kind: Kind) -> Self {
        Self { kind, place: Place::Inline }
    }

    pub(super) const fn boxed(kind: Kind) -> Self {
        Self { kind, place: Place::Boxed }
    }

    pub(super) const fn list(kind: Kind, list: List) -> Self {
        Self { kind, place: Place::List(list) }
    }
}

impl Schema {
    /// Schema of the message that is decoded as a `T`.
    pub(super) const fn of<T>(name: &'static str, required: u32, fields: &'static [Field]) -> Self {
        Self { name, bytes: size_of::<T>(), required, fields }
    }

    /// Returns the field of this number; an unknown one is a [`Field::GAP`].
    pub(super) fn field(&self, number: u32) -> Field {
        let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
        let field = place.and_then(|place| self.fields.get(place));
        field.copied().unwrap_or(Field::GAP)
    }
}

/// Checks `body` as a message of this `schema`. Returns an upper bound of the memory that decoding
/// takes.
pub(super) fn check(
    body: &[u8],
    schema: &'static Schema,
    limits: &Limits,
) -> Result<u64, MessageError> {
    let most = u64::try_from(body.len())
        .unwrap_or(u64::MAX)
        .saturating_mul(4)
        .saturating_add(u64::from(limits.overhead_bytes));
    let mut check = Check { body, limits, memory: 0, most };
    check.message(body, schema, limits.depth.min(Limits::MAX_DEPTH))?;
    Ok(check.memory)
}

struct Check<'a> {
    body: &'a [u8],
    limits: &'a Limits,
    /// Memory of the fields that were checked so far, at most `most`.
    memory: u64,
    most: u64,
}

/// One more than the highest number of a field that is a list. The generator of the schemas uses
/// the same value.
const COUNTED: usize = 9;

/// Least memory of a byte string that is not empty.
const LEAST_BYTES: usize = 8;

impl Check<'_> {
    fn message(
        &mut self,
        body: &[u8],
        schema: &'static Schema,
        depth: u32,
    ) -> Result<(), MessageError> {
        let mut reader = Reader::new(body);
        let mut missing = schema.required;
        let mut unlisted = None;
        let mut counts = [0_u32; COUNTED];
        while let Some((number, wire)) = self.read(&mut reader, Reader::field)? {
            let field = schema.field(number);
            if let Place::List(list) = field.place {
                let count = usize::try_from(number).ok().and_then(|at| counts.get_mut(at));
                self.element(schema, &field, number, list, count)?;
            }
            // A number above 31 has no field, so nothing of it is required.
            let bit = 1_u32.checked_shl(number).unwrap_or(0);
            match self.value(&mut reader, schema, &field, (number, wire), depth)? {
                None => missing &= !bit,
                Some(value) => unlisted = Some((bit, value)),
            }
        }
        if missing != 0 {
            let (bits, value) = match unlisted {
                Some((bit, value)) if missing & bit != 0 => (bit, Some(value)),
                _ => (missing, None),
            };
            let field = bits.trailing_zeros();
            return Err(MessageError::Missing { message: schema.name, field, value });
        }
        Ok(())
    }

    /// Checks one value. Returns the value of an enum that is not listed: it does not count as
    /// presence of the field.
    fn value(
        &mut self,
        reader: &mut Reader<'_>,
        schema: &'static Schema,
        field: &Field,
        (number, wire): (u32, WireType),
        depth: u32,
    ) -> Result<Option<i32>, MessageError> {
        let expected = match field.kind {
            Kind::Varint | Kind::Enum(_) => WireType::Varint,
            Kind::Fixed64 => WireType::Fixed64,
            Kind::Fixed32 => WireType::Fixed32,
            Kind::Bytes | Kind::Text | Kind::Message(_) => WireType::Bytes,
            Kind::Unknown => {
                self.read(reader, |reader| reader.skip_within(number, wire, depth))?;
                return Ok(None);
            }
        };
        if wire != expected {
            let (message, found) = (schema.name, wire as u8);
            return Err(MessageError::WireType { message, field: number, found });
        }
        match field.kind {
            Kind::Enum(listed) => {
                let value = self.read(reader, Reader::varint)?;
                // Enums are 32 bits wide; higher bits do not count.
                #[expect(clippy::cast_possible_truncation, reason = "as protobuf does")]
                let value = value as i32;
                return Ok(Some(value).filter(|value| !listed.contains(value)));
            }
            Kind::Bytes => {
                let bytes = self.read(reader, Reader::bytes)?.len();
                self.spend(bytes.max(LEAST_BYTES), 1)?;
            }
            Kind::Text => {
                let text = self.read(reader, Reader::bytes)?;
                let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
                let limit = self.limits.text_bytes;
                if bytes > u64::from(limit) {
                    let (message, field) = (schema.name, number);
                    return Err(MessageError::Text { message, field, bytes, limit });
                }
                self.spend(LEAST_BYTES, 1)?;
                self.spend_bytes(bytes)?;
            }
            Kind::Message(inner) => {
                let inside = self.read(reader, Reader::bytes)?;
                let Some(depth) = depth.checked_sub(1) else {
                    return Err(MessageError::Depth { limit: self.depth() });
                };
                if field.place == Place::Boxed {
                    self.spend(inner.bytes, 1)?;
                }
                self.message(inside, inner, depth)?;
            }
            _ => self.read(reader, |reader| reader.skip(number, wire))?,
        }
        Ok(None)
    }

    /// Reads the next part of the body. An error has its offset in the whole body.
    #[inline]
    fn read<'a, T>(
        &self,
        reader: &mut Reader<'a>,
        part: impl FnOnce(&mut Reader<'a>) -> Result<T, WireError>,
    ) -> Result<T, MessageError> {
        let rest = reader.rest();
        part(reader).map_err(|error| match error {
            WireError::TooDeep => MessageError::Depth { limit: self.depth() },
            _ => {
                let offset = rest.as_ptr().addr().saturating_sub(self.body.as_ptr().addr());
                MessageError::Wire { offset: u32::try_from(offset).unwrap_or(u32::MAX), error }
            }
        })
    }

    /// Counts one more element of a list.
    fn element(
        &mut self,
        schema: &'static Schema,
        field: &Field,
        number: u32,
        list: List,
        count: Option<&mut u32>,
    ) -> Result<(), MessageError> {
        let limit = match list {
            List::Parameters => self.limits.parameters,
            List::Columns => self.limits.columns,
            List::Other => self.limits.elements,
        };
        let bytes = match field.kind {
            Kind::Message(inner) => inner.bytes,
            _ => size_of::<Vec<u8>>(),
        };
        // The generator ensures that every list has a number below `COUNTED`.
        let Some(count) = count else {
            return Err(MessageError::Elements { message: schema.name, field: number, limit: 0 });
        };
        if *count >= limit {
            return Err(MessageError::Elements { message: schema.name, field: number, limit });
        }
        // A list has room for four elements first and doubles when it is full. The old half exists
        // until the copy is complete, so growth takes half as much again.
        match *count {
            0 => self.spend(bytes, 6)?,
            full if full >= 4 && full.is_power_of_two() => {
                self.spend(bytes, u64::from(full).saturating_mul(3).div_ceil(2))?;
            }
            _ => {}
        }
        *count = count.saturating_add(1);
        Ok(())
    }

    fn spend(&mut self, bytes: usize, times: u64) -> Result<(), MessageError> {
        self.spend_bytes(u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(times))
    }

    const fn spend_bytes(&mut self, bytes: u64) -> Result<(), MessageError> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > self.most {
            return Err(MessageError::Memory { bytes: self.memory, limit: self.most });
        }
        Ok(())
    }

    fn depth(&self) -> u32 {
        self.limits.depth.min(Limits::MAX_DEPTH)
    }
}
