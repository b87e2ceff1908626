//! Conversion of a value to the bytes of its cell, for cells that fit into a [`Word`].
//!
//! A field of a row is its tag, its length and the cell: [`Word`]s of at most 12 bytes, so each such
//! field is one store.

use crate::codec::value::{Date, DateTime, Sign, Time};
use crate::codec::wire::{Word, zigzag};

/// Tag of a cell in a row: field 1, bytes.
pub(in crate::codec) const CELL: u8 = 0x0a;

/// NULL: tag and length 0.
pub(in crate::codec) const NULL: Word = Word::constant([CELL, 0]);

/// Tag, length and `cell`, which is at most 14 bytes.
#[inline]
pub(in crate::codec) const fn field(cell: Word) -> Word {
    let head = Word::new(CELL as u128 | (cell.len() as u128) << 8, 2);
    head.then(cell)
}

#[inline]
pub(in crate::codec) const fn signed(value: i64) -> Word {
    Word::varint(zigzag(value))
}

#[inline]
pub(in crate::codec) const fn float(value: f32) -> Word {
    Word::new(value.to_bits() as u128, 4)
}

#[inline]
pub(in crate::codec) const fn double(value: f64) -> Word {
    Word::new(value.to_bits() as u128, 8)
}

/// A date with its year as a varint of minimal length: one byte or two.
#[inline]
pub(in crate::codec) const fn date(value: Date) -> Word {
    let month = Word::new(value.month() as u128, 1);
    let day = Word::new(value.day() as u128, 1);
    Word::varint(value.year() as u64).then(month).then(day)
}

/// A date-time with its year in two bytes, always, and without trailing zero parts.
#[inline]
pub(in crate::codec) const fn datetime(value: DateTime) -> Word {
    let (date, year) = (value.date(), value.date().year() as u128);
    let bits = (year & 0x7f | 0x80)
        | (year >> 7) << 8
        | (date.month() as u128) << 16
        | (date.day() as u128) << 24
        | (value.hour() as u128) << 32
        | (value.minute() as u128) << 40
        | (value.second() as u128) << 48;
    let len = match (value.hour(), value.minute(), value.second(), value.microsecond()) {
        (0, 0, 0, 0) => 4,
        (_, 0, 0, 0) => 5,
        (_, _, 0, 0) => 6,
        (_, _, _, 0) => 7,
        _ => return Word::new(bits, 7).then(Word::varint(value.microsecond() as u64)),
    };
    Word::new(bits, len)
}

/// A sign and a time without trailing zero parts.
#[inline]
pub(in crate::codec) const fn time(value: Time) -> Word {
    let sign = Word::new((value.sign() as u8 == Sign::Minus as u8) as u128, 1);
    if value.to_packed() == 0 {
        return sign;
    }
    let word = sign.then(Word::varint(value.hour() as u64));
    let ms = Word::new(value.minute() as u128 | (value.second() as u128) << 8, 2);
    match (value.minute(), value.second(), value.microsecond()) {
        (0, 0, 0) => word,
        (minute, 0, 0) => word.then(Word::new(minute as u128, 1)),
        (_, _, 0) => word.then(ms),
        (.., microsecond) => word.then(ms).then(Word::varint(microsecond as u64)),
    }
}
