use super::block::{Block, BlockValues};
use super::error::ChunkError;
use super::frame::ChunkFrame;
use super::kind::BlockKind;
use crate::codec::value::Value;

/// Joins frames to chunks: one frame of up to ten columns, or several.
///
/// *Shape*: owns the kinds of the columns, and a buffer for frames that wait for the rest of their
/// columns. A chunk that comes in one frame is borrowed from it. The buffer never holds more than
/// `max_bytes`, and keeps its memory for the next chunk.
///
/// # Examples
///
/// ```
/// use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkJoiner};
/// use epoll_group::codec::value::Value;
///
/// let mut joiner = ChunkJoiner::new(&[BlockKind::Signed, BlockKind::Unsigned], 1 << 20);
/// let first = ChunkFrame::parse(&[8, 1, 0x12, 5, 0x12, 3, 0x0a, 1, 5])?;
/// assert!(joiner.push(first)?.is_none());
/// let second = ChunkFrame::parse(&[8, 1, 0x12, 5, 0x12, 3, 0x0a, 1, 7])?;
/// let chunk = joiner.push(second)?.expect("both columns are there");
/// assert_eq!(chunk.rows().next_row()?, Some(&[Value::Signed(-3), Value::Unsigned(7)][..]));
/// # Ok::<(), epoll_group::codec::chunk::ChunkError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChunkJoiner {
    kinds: Vec<BlockKind>,
    max_bytes: usize,
    /// Bodies of earlier frames, one behind the other. By the rules of protobuf that is one body
    /// with the columns of all.
    body: Vec<u8>,
    columns: usize,
    rows: u32,
    /// True if the body belongs to a chunk that was returned.
    done: bool,
}

impl ChunkJoiner {
    /// Creates a joiner for columns of these kinds, in the order of the metadata. If a chunk has
    /// several frames, they may have up to `max_bytes` together.
    #[must_use]
    pub fn new(kinds: &[BlockKind], max_bytes: usize) -> Self {
        let kinds = kinds.to_vec();
        Self { kinds, max_bytes, body: Vec::new(), columns: 0, rows: 0, done: false }
    }

    /// Accepts the next frame. Returns the chunk, if all columns are there.
    ///
    /// # Errors
    ///
    /// [`ChunkError::TooManyColumns`], [`ChunkError::RowCountDiffers`], [`ChunkError::TooLarge`].
    /// The joiner drops the earlier frames; the result ends.
    pub fn push<'a>(&'a mut self, frame: ChunkFrame<'a>) -> Result<Option<Chunk<'a>>, ChunkError> {
        if std::mem::take(&mut self.done) {
            self.clear();
        }
        let expected = self.kinds.len();
        let columns = self.columns.saturating_add(frame.column_count());
        if columns > expected {
            self.clear();
            return Err(ChunkError::TooManyColumns { columns, expected });
        }
        let first = self.body.is_empty();
        // A frame without rows is legal, with columns and without.
        if first && (columns == expected || frame.column_count() == 0) {
            return Ok(Some(Chunk { frame, kinds: &self.kinds }));
        }
        let (rows, before) = (frame.row_count(), self.rows);
        if !first && rows != before {
            self.clear();
            return Err(ChunkError::RowCountDiffers { rows, expected: before });
        }
        let bytes = self.body.len().saturating_add(frame.body().len());
        if bytes > self.max_bytes {
            self.clear();
            return Err(ChunkError::TooLarge { bytes, limit: self.max_bytes });
        }
        self.body.extend_from_slice(frame.body());
        (self.columns, self.rows) = (columns, rows);
        if columns < expected {
            return Ok(None);
        }
        self.done = true;
        Ok(Some(Chunk { frame: ChunkFrame::parse(&self.body)?, kinds: &self.kinds }))
    }

    /// Columns of frames that wait for others; 0 between chunks.
    #[must_use]
    pub const fn pending_columns(&self) -> usize {
        if self.done { 0 } else { self.columns }
    }

    /// Drops frames that wait for others.
    pub fn clear(&mut self) {
        self.body.clear();
        self.columns = 0;
        self.done = false;
    }
}

/// Rows of a result, by column. All columns are there, or there are no rows.
///
/// *Shape*: borrows the frame, or the joiner.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    frame: ChunkFrame<'a>,
    kinds: &'a [BlockKind],
}

impl<'a> Chunk<'a> {
    /// Number of rows.
    #[must_use]
    pub const fn row_count(&self) -> u32 {
        self.frame.row_count()
    }

    /// Returns the columns of the chunk, each with its kind.
    pub fn columns(&self) -> impl Iterator<Item = (BlockKind, Block<'a>)> + Clone + use<'a> {
        self.kinds.iter().copied().zip(self.frame.columns())
    }

    /// Returns the values of one column, row by row. An absent column has none.
    pub fn values(
        &self,
        column: usize,
    ) -> impl Iterator<Item = Result<Value<'a>, ChunkError>> + use<'a> {
        let values = self
            .columns()
            .nth(column)
            .map(|(kind, block)| block.values(kind, self.row_count(), number(column)));
        let (values, error) = match values {
            Some(Ok(values)) => (Some(values), None),
            Some(Err(error)) => (None, Some(Err(error))),
            None => (None, None),
        };
        error.into_iter().chain(values.into_iter().flatten())
    }

    /// Returns the rows of the chunk.
    #[must_use]
    pub fn rows(&self) -> ChunkRows<'a> {
        let rows = self.row_count();
        let mut error = None;
        let mut columns = Vec::with_capacity(self.frame.column_count());
        for (column, (kind, block)) in self.columns().enumerate() {
            match block.cursor(kind, rows, number(column)) {
                Ok(values) => columns.push(values),
                Err(found) => error = error.or(Some(found)),
            }
        }
        ChunkRows { row: Vec::with_capacity(columns.len()), columns, rows, error }
    }
}

/// Cursor over the rows of a chunk.
///
/// *Shape*: a cursor a column and one row of values, which is lent and then reused.
#[derive(Clone, Debug)]
pub struct ChunkRows<'a> {
    columns: Vec<BlockValues<'a>>,
    row: Vec<Value<'a>>,
    /// Rows to come.
    rows: u32,
    error: Option<ChunkError>,
}

impl<'a> ChunkRows<'a> {
    /// Returns the values of the next row; `Ok(None)` behind the last.
    ///
    /// # Errors
    ///
    /// [`ChunkError`], for the first column concerned. The result ends; later calls return the same error.
    pub fn next_row(&mut self) -> Result<Option<&[Value<'a>]>, ChunkError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let Some(rows) = self.rows.checked_sub(1) else {
            // Each column checks for bytes behind its last value.
            for column in &mut self.columns {
                if let Err(error) = column.next_value() {
                    self.error = Some(error);
                    return Err(error);
                }
            }
            return Ok(None);
        };
        self.rows = rows;
        self.row.clear();
        for column in &mut self.columns {
            match column.next_value() {
                Ok(value) => self.row.extend(value),
                Err(error) => {
                    self.error = Some(error);
                    return Err(error);
                }
            }
        }
        Ok(Some(&self.row))
    }
}

/// Number of a column in errors.
fn number(column: usize) -> u32 {
    u32::try_from(column).unwrap_or(u32::MAX)
}
