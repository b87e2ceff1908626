//! Rows: the bytes of each cell, for reading and writing.
//!
//! A row is a list of cells in the order of the columns. A cell without bytes is NULL; every other
//! value has one byte at least:
//!
//! ```text
//!  Signed            zigzag varint                          -2              03
//!  Unsigned, Bit     varint                                 300             ac 02
//!  Float, Double     4 or 8 bytes, little-endian            1.5             00 00 c0 3f
//!  Bytes, Enum       the bytes, then 00                     'abc', ''       61 62 63 00, 00
//!  Decimal           scale, packed digits, sign             -12.3401        04 12 34 01 d0
//!  Date              year, month, day, varints              2024-02-29      e8 0f 02 1d
//!  DateTime          year in two bytes, month, day[, hour[, minute[, second[, microsecond]]]]
//!  Time              00 or 01 (below zero)[, hour[, minute[, second[, microsecond]]]]
//!  Set               (length, bytes) of each member; 00 without members
//! ```
//!
//! Trailing zero parts of a [`DateTime`] and a [`Time`] are left out. The year of a [`DateTime`]
//! always has two bytes, because the existing server writes it so and existing readers expect it.
//! Other varints are as short as possible. Readers accept any varint, trailing zeros, and the sign
//! nibbles and leading zeros that [`Decimal::from_packed`] accepts.
//!
//! Only the column tells the type of a cell; the bytes do not. [`Cell`] has one reader per type;
//! [`Cell::value`] selects the reader by the types of the metadata.
//!
//! [`DateTime`]: crate::codec::value::DateTime
//! [`Decimal::from_packed`]: crate::codec::value::Decimal::from_packed
//! [`Time`]: crate::codec::value::Time

mod cell;
mod column;
pub(super) mod field;

pub use cell::Cell;
pub use column::{Column, ColumnType};

use crate::codec::error::WireError;
use crate::codec::value::{ValueError, read_bytes};
use crate::codec::wire::{Reader, WireType};

/// Returns the cells of the row with this body, one after the other. Other fields are skipped.
///
/// *Shape*: borrows the body, allocates nothing. After an error the iterator ends.
///
/// # Errors
///
/// [`ValueError::Wire`], when the body is malformed at this place. It ends the request.
pub fn cells(body: &[u8]) -> impl Iterator<Item = Result<Cell<'_>, ValueError>> {
    let mut reader = Reader::new(body);
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let cell = next_cell(&mut reader).transpose();
        failed = matches!(cell, Some(Err(_)));
        cell
    })
}

#[inline]
fn next_cell<'a>(reader: &mut Reader<'a>) -> Result<Option<Cell<'a>>, ValueError> {
    while let Some((number, kind)) = reader.field().map_err(ValueError::Wire)? {
        if (number, kind) == (1, WireType::Bytes) {
            return read_bytes(reader).map(|bytes| Some(Cell::new(bytes)));
        }
        reader.skip(number, kind).map_err(ValueError::Wire)?;
    }
    Ok(None)
}

/// Index of the cells of a row, for reads in any order.
///
/// *Shape*: owned by the reader of a result and used for all its rows. It holds eight bytes per
/// column, allocated with the first row.
///
/// ```
/// use epoll_group::codec::row::RowReader;
///
/// let body = [0x0a, 1, 0x01, 0x0a, 0, 0x0a, 4, b'a', b'b', b'c', 0];
/// let mut reader = RowReader::default();
/// let row = reader.row(&body)?;
/// assert_eq!(row.cell(2)?.text()?, Some("abc"));
/// assert_eq!(row.cell(0)?.signed()?, Some(-1));
/// assert_eq!(row.cell(1)?.text()?, None);
/// # Ok::<(), epoll_group::codec::value::ValueError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RowReader {
    /// Begin and end of each cell.
    places: Vec<(u32, u32)>,
}

impl RowReader {
    /// Greatest number of columns: as many as a MySQL table can have.
    pub(crate) const MAX_COLUMNS: usize = 4096;

    /// Finds the cells of the row with this body.
    ///
    /// # Errors
    ///
    /// [`ValueError::Wire`] when the body is malformed, [`ValueError::TooManyColumns`]; either ends
    /// the request. The values of the cells are not checked.
    pub fn row<'a>(&'a mut self, body: &'a [u8]) -> Result<Row<'a>, ValueError> {
        self.places.clear();
        let mut reader = Reader::new(body);
        while let Some(cell) = next_cell(&mut reader)? {
            if self.places.len() == Self::MAX_COLUMNS {
                return Err(ValueError::TooManyColumns { max: Self::MAX_COLUMNS });
            }
            let end = body.len().saturating_sub(reader.rest().len());
            let start = end.saturating_sub(cell.as_bytes().len());
            // A body is shorter than 4 GiB, because its length field is.
            let place = u32::try_from(start).ok().zip(u32::try_from(end).ok());
            self.places.push(place.ok_or(ValueError::Wire(WireError::Truncated))?);
        }
        Ok(Row { body, places: &self.places })
    }
}

/// A row whose cells are read by their number, from 0.
///
/// *Shape*: borrows the body of the frame and the reader that made it. Its cells borrow the body.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    body: &'a [u8],
    places: &'a [(u32, u32)],
}

impl<'a> Row<'a> {
    /// Number of cells.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there are no cells.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the cell of a column.
    ///
    /// # Errors
    ///
    /// [`ValueError::NoColumn`].
    #[inline]
    pub fn cell(&self, index: usize) -> Result<Cell<'a>, ValueError> {
        let place = self.places.get(index).and_then(|&(start, end)| {
            self.body.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
        });
        place.map(Cell::new).ok_or(ValueError::NoColumn { index, columns: self.len() })
    }
}

#[cfg(test)]
mod tests;
