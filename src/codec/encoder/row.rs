//! Cells of a row.

use super::frame::Frame;
use crate::codec::error::EncodeError;
use crate::codec::row::Cell;
use crate::codec::row::field::{self, CELL};
use crate::codec::value::{Set, Value};
use crate::codec::wire::{Word, varint_bytes};

/// Writer of the cells of one row, one call per column, in the order of the columns.
///
/// *Shape*: lives for the closure that fills the row, or until it is finished. A cell that does not
/// fit makes the whole row fail. Cells behind it are rolled back with the rest.
#[derive(Debug)]
pub struct RowWriter<'b> {
    frame: Frame<'b>,
    failed: Option<EncodeError>,
}

impl<'b> RowWriter<'b> {
    #[inline]
    pub(super) const fn new(frame: Frame<'b>) -> Self {
        Self { frame, failed: None }
    }

    /// Completes the row.
    ///
    /// # Errors
    ///
    /// [`EncodeError::TooLong`], and nothing of it is written; the request fails.
    #[inline]
    pub fn finish(self) -> Result<(), EncodeError> {
        match self.failed {
            None => self.frame.finish(),
            Some(error) => Err(error),
        }
    }

    /// NULL, in a column of any type.
    #[inline]
    pub fn null(&mut self) {
        self.frame.word(field::NULL);
    }

    /// A signed integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        self.word(field::signed(value));
    }

    /// An unsigned integer, a year, or the bits of a BIT column, the first bit being the highest.
    #[inline]
    pub fn uint(&mut self, value: u64) {
        self.word(Word::varint(value));
    }

    /// A string, a blob, the name of an ENUM's member, JSON or a geometry, without an end mark.
    /// Text is in the character set of the result.
    #[inline]
    pub fn text(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.begin(bytes.len().saturating_add(1));
        self.append(bytes);
        self.frame.word(Word::constant([0]));
    }

    /// A SET with members of these names.
    pub fn set<T: AsRef<[u8]>>(&mut self, members: impl IntoIterator<Item = T, IntoIter: Clone>) {
        let members = members.into_iter();
        let cell_bytes = members.clone().fold(0_usize, |sum, member| {
            let length = member.as_ref().len();
            sum.saturating_add(varint_bytes(length as u64)).saturating_add(length)
        });
        if cell_bytes == 0 {
            return self.frame.word(EMPTY_SET);
        }
        self.begin(cell_bytes);
        for member in members {
            self.frame.word(Word::varint(member.as_ref().len() as u64));
            self.append(member.as_ref());
        }
    }

    /// A value of any type.
    #[inline]
    pub fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.null(),
            Value::Signed(value) => self.int(*value),
            Value::Unsigned(value) | Value::Bit(value) => self.uint(*value),
            Value::Float(value) => self.word(field::float(*value)),
            Value::Double(value) => self.word(field::double(*value)),
            Value::Decimal(value) => self.raw(value.as_packed()),
            Value::Date(value) => self.word(field::date(*value)),
            Value::DateTime(value) => self.word(field::datetime(*value)),
            Value::Time(value) => self.word(field::time(*value)),
            Value::Bytes(bytes) | Value::Enum(bytes) => self.text(bytes),
            Value::Set(set) => self.set_as_read(set),
        }
    }

    /// A cell that was read elsewhere, unchecked: for a proxy.
    #[inline]
    pub fn cell(&mut self, cell: Cell<'_>) {
        self.raw(cell.as_bytes());
    }

    fn set_as_read(&mut self, set: &Set<'_>) {
        if set.is_empty() {
            self.frame.word(EMPTY_SET);
        } else {
            self.raw(set.as_wire());
        }
    }

    /// Writes a short cell.
    #[inline]
    fn word(&mut self, cell: Word) {
        self.frame.word(field::field(cell));
    }

    #[inline]
    fn raw(&mut self, cell: &[u8]) {
        self.begin(cell.len());
        self.append(cell);
    }

    /// Tag and length of a cell.
    #[inline]
    fn begin(&mut self, cell_bytes: usize) {
        self.frame.head(CELL, cell_bytes);
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.frame.bytes(bytes).err();
        }
    }
}

/// The cell of a set without members.
const EMPTY_SET: Word = Word::constant([CELL, 1, 0]);
