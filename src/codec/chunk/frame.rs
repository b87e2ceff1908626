use super::block::{Block, Member};
use super::error::ChunkError;
use crate::codec::error::WireError;
use crate::codec::wire::{Reader, WireType};

/// Body of one chunk frame, checked and borrowed.
///
/// *Shape*: the bytes, the row count and the column count, `Copy`. Iteration over the columns walks
/// the bytes once more; it skips values and does not read them.
#[derive(Clone, Copy, Debug)]
pub struct ChunkFrame<'a> {
    body: &'a [u8],
    rows: u32,
    columns: usize,
}

impl<'a> ChunkFrame<'a> {
    /// Checks the message, and that each column has one set of values. The values are not checked.
    ///
    /// Fields may come in any order, and unknown ones are skipped.
    ///
    /// # Errors
    ///
    /// [`ChunkError`], except the variants that depend on kinds or on several frames.
    pub fn parse(body: &'a [u8]) -> Result<Self, ChunkError> {
        let mut reader = Reader::new(body);
        let mut rows = None;
        let mut columns = 0_usize;
        while let Some((field, wire)) = reader.field().map_err(malformed)? {
            match field {
                ROW_COUNT => {
                    expect(field, wire, WireType::Varint)?;
                    let count = reader.varint().map_err(malformed)?;
                    let small = u32::try_from(count);
                    rows = Some(small.map_err(|_| ChunkError::RowCountTooLarge { rows: count })?);
                }
                COLUMN => {
                    expect(field, wire, WireType::Bytes)?;
                    let column = u32::try_from(columns).unwrap_or(u32::MAX);
                    let bytes = reader.bytes().map_err(malformed);
                    let block = bytes.and_then(|bytes| block(bytes, column));
                    block.map_err(|error| error.in_column(column))?;
                    columns = columns.saturating_add(1);
                }
                _ => reader.skip(field, wire).map_err(malformed)?,
            }
        }
        let rows = rows.ok_or(ChunkError::NoRowCount)?;
        if columns == 0 && rows > 0 {
            return Err(ChunkError::NoColumns { rows });
        }
        Ok(Self { body, rows, columns })
    }

    /// Number of rows of the chunk.
    #[must_use]
    pub const fn row_count(&self) -> u32 {
        self.rows
    }

    /// Number of columns of this frame.
    #[must_use]
    pub const fn column_count(&self) -> usize {
        self.columns
    }

    /// The columns of this frame.
    pub fn columns(&self) -> impl Iterator<Item = Block<'a>> + Clone + use<'a> {
        let mut reader = Reader::new(self.body);
        std::iter::from_fn(move || {
            loop {
                // The body was checked when it was parsed, so an error occurs only at its end.
                match reader.field().ok()?? {
                    (COLUMN, _) => return block(reader.bytes().ok()?, 0).ok(),
                    (field, wire) => reader.skip(field, wire).ok()?,
                }
            }
        })
    }

    /// The whole body.
    pub(super) const fn body(&self) -> &'a [u8] {
        self.body
    }
}

/// Reads the message of one column.
fn block(bytes: &[u8], column: u32) -> Result<Block<'_>, ChunkError> {
    let mut reader = Reader::new(bytes);
    let mut nulls = None;
    let mut values = None;
    while let Some((field, wire)) = reader.field().map_err(malformed)? {
        let member = match field {
            NULL_BITMAP => {
                nulls = Some(content(&mut reader, field, wire)?);
                continue;
            }
            FIXED => Member::Fixed,
            VARIABLE => Member::Variable,
            _ => {
                reader.skip(field, wire).map_err(malformed)?;
                continue;
            }
        };
        let found = value(content(&mut reader, field, wire)?)?;
        values = match values {
            // If a member comes in pieces, the later one counts, as anywhere in protobuf.
            Some((other, before)) if other == member => Some((member, found.or(before))),
            None => Some((member, found)),
            Some(_) => return Err(ChunkError::NoValues { column }),
        };
    }
    match values {
        Some((member, Some(values))) => Ok(Block::new(nulls, values, member)),
        _ => Err(ChunkError::NoValues { column }),
    }
}

/// Reads the message around the values.
fn value(bytes: &[u8]) -> Result<Option<&[u8]>, ChunkError> {
    let mut reader = Reader::new(bytes);
    let mut value = None;
    while let Some((field, wire)) = reader.field().map_err(malformed)? {
        if field == VALUE {
            value = Some(content(&mut reader, field, wire)?);
        } else {
            reader.skip(field, wire).map_err(malformed)?;
        }
    }
    Ok(value)
}

/// Reads the content of `field`, which must be bytes.
fn content<'a>(
    reader: &mut Reader<'a>,
    field: u32,
    found: WireType,
) -> Result<&'a [u8], ChunkError> {
    expect(field, found, WireType::Bytes)?;
    reader.bytes().map_err(malformed)
}

fn expect(field: u32, found: WireType, expected: WireType) -> Result<(), ChunkError> {
    if found == expected { Ok(()) } else { Err(ChunkError::WireType { column: None, field }) }
}

/// A fault of the bytes. If it is in a column, the caller adds its number.
const fn malformed(error: WireError) -> ChunkError {
    ChunkError::Wire { column: None, error }
}

// Field numbers of the messages.
pub(super) const ROW_COUNT: u32 = 1;
pub(super) const COLUMN: u32 = 2;
pub(super) const NULL_BITMAP: u32 = 1;
pub(super) const FIXED: u32 = 2;
pub(super) const VARIABLE: u32 = 3;
pub(super) const VALUE: u32 = 1;
