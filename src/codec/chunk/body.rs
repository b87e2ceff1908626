use super::block::{Block, Member};
use super::column::ColumnBlock;
use super::error::ChunkWriteError;
use super::frame::{COLUMN, FIXED, NULL_BITMAP, ROW_COUNT, VALUE, VARIABLE};
use crate::codec::encoder::Encoder;
use crate::codec::error::EncodeError;
use crate::codec::wire::{WireType, put_varint, varint_bytes};

/// Greatest number of columns that a writer puts into one chunk frame. A reader accepts any number.
pub const MAX_FRAME_COLUMNS: usize = 10;

/// Returns the bodies of the frames of one chunk. A new frame begins behind the tenth column, and
/// earlier if a body would be above `max_body_bytes`.
pub(super) fn chunk_bodies(
    columns: &[ColumnBlock],
    max_body_bytes: usize,
) -> Result<ChunkBodies<'_>, ChunkWriteError> {
    let rows = columns.first().map_or(0, ColumnBlock::row_count);
    for (column, block) in columns.iter().enumerate() {
        let bytes = count_bytes(rows).saturating_add(Sizes::of(&block.as_block()).whole);
        if bytes > max_body_bytes {
            return Err(ChunkWriteError::TooLarge { column, bytes, limit: max_body_bytes });
        }
    }
    Ok(ChunkBodies { columns, rows, max_body_bytes, started: false })
}

/// The bodies of the frames of one chunk, in order.
#[derive(Clone, Debug)]
pub(super) struct ChunkBodies<'a> {
    columns: &'a [ColumnBlock],
    rows: u32,
    max_body_bytes: usize,
    started: bool,
}

impl<'a> Iterator for ChunkBodies<'a> {
    type Item = ChunkBody<'a>;

    fn next(&mut self) -> Option<ChunkBody<'a>> {
        // A chunk without columns is one frame, too.
        if self.columns.is_empty() && std::mem::replace(&mut self.started, true) {
            return None;
        }
        self.started = true;
        let mut bytes = count_bytes(self.rows);
        let mut count = 0_usize;
        for column in self.columns.iter().take(MAX_FRAME_COLUMNS) {
            let sum = bytes.saturating_add(Sizes::of(&column.as_block()).whole);
            if count > 0 && sum > self.max_body_bytes {
                break;
            }
            bytes = sum;
            count = count.saturating_add(1);
        }
        let (columns, rest) = self.columns.split_at_checked(count)?;
        self.columns = rest;
        Some(ChunkBody { rows: self.rows, columns, bytes })
    }
}

/// The body of one chunk frame, to be written.
///
/// *Shape*: borrows the columns; its length is known before it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkBody<'a> {
    rows: u32,
    columns: &'a [ColumnBlock],
    bytes: usize,
}

impl ChunkBody<'_> {
    /// Writes the frame. Bitmaps and values are copied once, into the buffer.
    pub(super) fn write_to(&self, out: &mut Encoder<'_>) -> Result<(), EncodeError> {
        // Bytes before bitmaps and values, and the offsets in them at which these follow.
        let mut heads = Vec::new();
        let mut ends = Vec::new();
        put_count(self.rows, &mut heads);
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
        out.chunk(&parts)
    }

    /// The body alone.
    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes);
        put_count(self.rows, &mut out);
        for column in self.columns {
            put_block(&column.as_block(), &mut out);
        }
        out
    }
}

/// Appends one column with its tag.
pub(super) fn put_block(block: &Block<'_>, out: &mut Vec<u8>) {
    let sizes = Sizes::of(block);
    put_column_head(block, &sizes, out);
    out.extend_from_slice(block.nulls.unwrap_or_default());
    put_values_head(block, &sizes, out);
    out.extend_from_slice(block.values);
}

fn put_count(rows: u32, out: &mut Vec<u8>) {
    put_varint(out, WireType::Varint.tag(ROW_COUNT));
    put_varint(out, rows.into());
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
