use super::block::{Block, Member};
use super::column::ColumnBlock;
use super::error::ChunkWriteError;
use super::frame::{COLUMN, FIXED, NULL_BITMAP, ROW_COUNT, VALUE, VARIABLE};
use crate::codec::wire::{WireType, put_varint, varint_bytes};

/// Greatest number of columns that a writer puts into one chunk frame. A reader accepts any number.
pub(super) const MAX_FRAME_COLUMNS: usize = 10;

/// Returns the bodies of the frames of one chunk. A new frame begins behind the tenth column, and
/// earlier if a body would be above `max_body_bytes`. A chunk without columns is one frame, too.
pub(super) fn chunk_bodies(
    columns: &[ColumnBlock],
    max_body_bytes: usize,
) -> Result<Vec<ChunkBody<'_>>, ChunkWriteError> {
    let rows = columns.first().map_or(0, ColumnBlock::row_count);
    let mut bodies = vec![ChunkBody { rows, columns: &[] }];
    let mut bytes = count_bytes(rows);
    let mut start = 0;
    for (column, block) in columns.iter().enumerate() {
        let whole = Sizes::of(&block.as_block()).whole;
        let alone = count_bytes(rows).saturating_add(whole);
        if alone > max_body_bytes {
            return Err(ChunkWriteError::TooLarge { column, bytes: alone, limit: max_body_bytes });
        }
        let sum = bytes.saturating_add(whole);
        let count = column.saturating_sub(start);
        if count == MAX_FRAME_COLUMNS || sum > max_body_bytes {
            bodies.push(ChunkBody { rows, columns: &[] });
            (start, bytes) = (column, alone);
        } else {
            bytes = sum;
        }
        if let Some(last) = bodies.last_mut() {
            last.columns = columns.get(start..=column).unwrap_or_default();
        }
    }
    Ok(bodies)
}

/// The body of one chunk frame, to be written.
///
/// *Shape*: borrows the columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkBody<'a> {
    rows: u32,
    columns: &'a [ColumnBlock],
}

impl ChunkBody<'_> {
    /// Calls `write` with the parts of the body. Bitmaps and values are not copied for it.
    pub(super) fn write<R>(&self, write: impl FnOnce(&[&[u8]]) -> R) -> R {
        // Bytes before bitmaps and values, and the offsets in them at which these follow.
        let mut heads = Vec::new();
        let mut ends = Vec::new();
        put_varint(&mut heads, WireType::Varint.tag(ROW_COUNT));
        put_varint(&mut heads, self.rows.into());
        for column in self.columns {
            let block = column.as_block();
            let sizes = Sizes::of(&block);
            put_column_head(&block, &sizes, &mut heads);
            ends.push((heads.len(), block.nulls.unwrap_or_default()));
            put_values_head(&block, &sizes, &mut heads);
            ends.push((heads.len(), block.values));
        }
        let mut parts = Vec::with_capacity(ends.len().saturating_mul(2).saturating_add(1));
        let mut start = 0;
        for (end, content) in ends {
            parts.extend(heads.get(start..end));
            parts.push(content);
            start = end;
        }
        parts.extend(heads.get(start..));
        write(&parts)
    }
}

/// Appends the bytes before the bitmap, or without one before the values.
fn put_column_head(block: &Block<'_>, sizes: &Sizes, out: &mut Vec<u8>) {
    put_head(COLUMN, sizes.column, out);
    if let Some(nulls) = block.nulls {
        put_head(NULL_BITMAP, nulls.len(), out);
    }
}

/// Appends the bytes between the bitmap and the values.
fn put_values_head(block: &Block<'_>, sizes: &Sizes, out: &mut Vec<u8>) {
    let member = match block.member {
        Member::Fixed => FIXED,
        Member::Variable => VARIABLE,
    };
    put_head(member, sizes.member, out);
    put_head(VALUE, block.values.len(), out);
}

/// Appends the tag of a field and its length.
fn put_head(field: u32, bytes: usize, out: &mut Vec<u8>) {
    put_varint(out, WireType::Bytes.tag(field));
    put_varint(out, bytes as u64);
}

/// Sizes of the nested messages in a column, which precede them.
struct Sizes {
    /// The member with the values.
    member: usize,
    /// The column.
    column: usize,
    /// The column with its tag and length.
    whole: usize,
}

impl Sizes {
    fn of(block: &Block<'_>) -> Self {
        let member = with_tag(block.values.len());
        let nulls = block.nulls.map_or(0, |nulls| with_tag(nulls.len()));
        let column = with_tag(member).saturating_add(nulls);
        Self { member, column, whole: with_tag(column) }
    }
}

/// Bytes of a field whose content has `bytes`. All tags here have one byte.
const fn with_tag(bytes: usize) -> usize {
    bytes.saturating_add(varint_bytes(bytes as u64)).saturating_add(1)
}

/// Bytes of the row count with its tag.
const fn count_bytes(rows: u32) -> usize {
    varint_bytes(rows as u64).saturating_add(1)
}
