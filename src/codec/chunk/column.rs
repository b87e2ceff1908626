use super::bitmap;
use super::block::{Block, index};
use super::error::ChunkWriteError;
use super::kind::{self, BlockKind};
use crate::codec::value::Value;
use crate::codec::wire::{MAX_VARINT_BYTES, put_varint, zigzag};

/// One column of a chunk under construction.
///
/// *Shape*: owns its values in their wire format, and a bit a row once there is a NULL. Clearing
/// keeps the memory.
#[derive(Clone, Debug)]
pub(super) struct ColumnBlock {
    kind: BlockKind,
    /// Bytes that the next value may take, see [`next_bytes`].
    next_bytes: usize,
    rows: u32,
    /// Empty while no row is NULL.
    nulls: Vec<u8>,
    values: Vec<u8>,
}

impl ColumnBlock {
    /// Creates a column without rows.
    pub(super) const fn new(kind: BlockKind) -> Self {
        let next_bytes = next_bytes(kind);
        Self { kind, next_bytes, rows: 0, nulls: Vec::new(), values: Vec::new() }
    }

    /// Number of rows.
    pub(super) const fn row_count(&self) -> u32 {
        self.rows
    }

    /// Content of the column.
    pub(super) fn as_block(&self) -> Block<'_> {
        let nulls = Some(&self.nulls[..]).filter(|nulls| !nulls.is_empty());
        Block::new(nulls, &self.values, self.kind.member())
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.rows = 0;
        self.nulls.clear();
        self.values.clear();
    }

    /// End of the column now, for [`Self::cut_to`].
    #[inline]
    pub(super) const fn end(&self) -> ColumnEnd {
        ColumnEnd { rows: self.rows, values: self.values.len(), nulls: !self.nulls.is_empty() }
    }

    /// Removes the rows that were pushed since `end`.
    pub(super) fn cut_to(&mut self, end: ColumnEnd) {
        self.rows = end.rows;
        self.values.truncate(end.values);
        if end.nulls {
            bitmap::cut(&mut self.nulls, index(end.rows));
        } else {
            self.nulls.clear();
        }
    }

    /// Checks that `value` can be in this column. The error names `column`.
    #[inline]
    pub(super) fn check_kind(
        &self,
        value: &Value<'_>,
        column: usize,
    ) -> Result<(), ChunkWriteError> {
        match BlockKind::of(value) {
            Some(found) if found != self.kind => {
                Err(ChunkWriteError::Kind { column, expected: self.kind, found })
            }
            _ => Ok(()),
        }
    }

    /// Appends one row after [`Self::check_kind`] succeeded and a row count below the limit.
    #[inline]
    pub(super) fn push_checked(&mut self, value: &Value<'_>) {
        let row = self.rows;
        self.rows = row.saturating_add(1);
        match value {
            // The most frequent kinds are inlined.
            Value::Signed(value) => put_varint(&mut self.values, zigzag(*value)),
            Value::Null => bitmap::mark(&mut self.nulls, index(row)),
            value => kind::put(value, &mut self.values),
        }
        // If there is a bitmap, it has a bit for each row.
        if !self.nulls.is_empty() {
            self.fill_nulls();
        }
    }

    #[inline(never)]
    fn fill_nulls(&mut self) {
        self.nulls.resize(bitmap::bytes(index(self.rows)), 0);
    }

    /// Returns true if the next value may not fit.
    #[inline]
    pub(super) const fn is_nearly_full(&self) -> bool {
        self.values.len().saturating_add(self.next_bytes) > BLOCK_BYTES
    }
}

/// Former end of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnEnd {
    rows: u32,
    values: usize,
    /// True if there was a bitmap.
    nulls: bool,
}

/// Bytes that are kept free for the next value.
const fn next_bytes(kind: BlockKind) -> usize {
    match kind {
        BlockKind::Float => 4,
        BlockKind::Double => 8,
        BlockKind::Decimal | BlockKind::Bytes | BlockKind::Enum | BlockKind::Set => VARIABLE_BYTES,
        _ => MAX_VARINT_BYTES,
    }
}

/// Bytes of the values of a column at which the chunk is full.
const BLOCK_BYTES: usize = 4096;

/// Bytes kept free for a value of any length: a prefix of five bytes, 32 of the value, and the byte
/// that ends it.
const VARIABLE_BYTES: usize = 5 + 32 + 1;
