//! Metadata of columns.

use super::frame::Frame;
use super::{Encoder, Metadata};
use crate::codec::error::EncodeError;
use crate::codec::message::ServerKind;
use crate::codec::row::Column;
use crate::codec::wire::{WireType, Word};

impl Encoder<'_> {
    /// Writes the metadata of one column; a result begins with the metadata of all columns.
    pub fn column(&mut self, column: &Column<'_>) -> Result<(), EncodeError> {
        let column = match self.metadata {
            Metadata::Full => *column,
            Metadata::Compact => column.compact(),
        };
        let is_galaxy = self.header.is_galaxy();
        let mut frame = self.begin(ServerKind::ColumnMetaData);
        let original_type = Some(number(column.original_type as i32));
        put_number(&mut frame, 1, Some(number(column.field_type as i32)));
        // The older dialect has the original type at the end, and all other fields one number
        // lower.
        let shift = if is_galaxy { 1 } else { 0 };
        if !is_galaxy {
            put_number(&mut frame, 2, original_type);
        }
        let names = [
            (3, column.name),
            (4, column.original_name),
            (5, column.table),
            (6, column.original_table),
            (7, column.schema),
            (8, column.catalog),
        ];
        for (field, name) in names {
            if let Some(name) = name {
                frame
                    .word(tag(field, shift, WireType::Bytes).then(Word::varint(name.len() as u64)));
                frame.bytes(name)?;
            }
        }
        let numbers = [
            (9, column.collation),
            (10, column.fractional_digits.map(u64::from)),
            (11, column.length.map(u64::from)),
            (12, column.flags.map(u64::from)),
            (13, column.content_type.map(u64::from)),
        ];
        for (field, value) in numbers {
            put_number(&mut frame, u32::saturating_sub(field, shift), value);
        }
        if is_galaxy {
            put_number(&mut frame, 20, original_type);
        } else {
            put_number(&mut frame, 14, column.original_flags.map(u64::from));
        }
        frame.finish()
    }
}

#[inline]
fn put_number(frame: &mut Frame<'_>, field: u32, value: Option<u64>) {
    if let Some(value) = value {
        frame.word(tag(field, 0, WireType::Varint).then(Word::varint(value)));
    }
}

#[inline]
const fn tag(field: u32, shift: u32, kind: WireType) -> Word {
    Word::varint(kind.tag(field.saturating_sub(shift)))
}

/// Number of an enum value; none is negative.
fn number(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}
