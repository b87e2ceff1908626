use super::body::chunk_bodies;
use super::column::{ColumnBlock, ColumnEnd};
use super::error::ChunkWriteError;
use super::kind::BlockKind;
use crate::codec::encoder::Encoder;
use crate::codec::error::EncodeError;
use crate::codec::message::ServerKind;
use crate::codec::value::Value;

/// Collects rows into a chunk and reports when the chunk is full.
///
/// *Shape*: the values of each column, whose memory is kept from chunk to chunk. A chunk is full at
/// 4 096 rows, or when a column holds about 4 KiB, as in the known servers. A reader must not rely
/// on that.
///
/// A full chunk accepts further rows; the caller has to send it.
#[derive(Clone, Debug)]
pub struct ChunkWriter {
    columns: Vec<ColumnBlock>,
    rows: u32,
    /// True if a column is nearly full.
    full: bool,
    /// Ends of the columns before the row that [`ChunkRow`] writes.
    ends: Vec<ColumnEnd>,
}

/// One row of a chunk, written value by value.
///
/// *Shape*: borrows the writer. If it is dropped without [`finish`](Self::finish), nothing of the
/// row remains.
#[derive(Debug)]
pub struct ChunkRow<'w> {
    writer: &'w mut ChunkWriter,
    /// Values so far.
    values: usize,
    failed: Option<ChunkWriteError>,
}

impl ChunkRow<'_> {
    /// Writes the value of the next column. A value of another kind makes the whole row fail.
    pub fn value(&mut self, value: &Value<'_>) {
        let at = self.values;
        self.values = at.saturating_add(1);
        let Some(column) = self.writer.columns.get_mut(at) else { return };
        if self.failed.is_some() {
            return;
        }
        match column.check_kind(value, at) {
            Err(error) => self.failed = Some(error),
            Ok(()) => {
                self.writer.ends.push(column.end());
                column.push_checked(value);
            }
        }
    }

    /// Completes the row.
    ///
    /// # Errors
    ///
    /// Those of [`ChunkWriter::row`]; nothing of the row is kept.
    pub fn finish(mut self) -> Result<(), ChunkWriteError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (values, columns) = (self.values, self.writer.columns.len());
        if values != columns {
            return Err(ChunkWriteError::RowWidth { values, columns });
        }
        if self.writer.rows == u32::MAX {
            return Err(ChunkWriteError::TooManyRows);
        }
        self.writer.ends.clear();
        self.writer.end_row();
        self.values = 0;
        Ok(())
    }
}

impl Drop for ChunkRow<'_> {
    fn drop(&mut self) {
        for (column, end) in self.writer.columns.iter_mut().zip(self.writer.ends.drain(..)) {
            column.cut_to(end);
        }
    }
}

impl ChunkWriter {
    /// Creates a writer for columns of these kinds.
    #[must_use]
    pub fn new(kinds: &[BlockKind]) -> Self {
        let columns = kinds.iter().map(|&kind| ColumnBlock::new(kind)).collect();
        let ends = Vec::with_capacity(kinds.len());
        Self { columns, rows: 0, full: false, ends }
    }

    /// Appends one row, a value a column.
    ///
    /// # Errors
    ///
    /// [`ChunkWriteError::RowWidth`], [`ChunkWriteError::Kind`], [`ChunkWriteError::TooManyRows`].
    /// They are the caller's mistakes; nothing of the row is kept.
    pub fn row(&mut self, values: &[Value<'_>]) -> Result<(), ChunkWriteError> {
        if values.len() != self.columns.len() {
            let columns = self.columns.len();
            return Err(ChunkWriteError::RowWidth { values: values.len(), columns });
        }
        if self.rows == u32::MAX {
            return Err(ChunkWriteError::TooManyRows);
        }
        for (at, (column, value)) in self.columns.iter().zip(values).enumerate() {
            column.check_kind(value, at)?;
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push_checked(value);
        }
        self.end_row();
        Ok(())
    }

    /// Begins a row that is written value by value.
    pub fn begin_row(&mut self) -> ChunkRow<'_> {
        self.ends.clear();
        ChunkRow { writer: self, values: 0, failed: None }
    }

    fn end_row(&mut self) {
        self.full |= self.columns.iter().any(ColumnBlock::is_nearly_full);
        self.rows = self.rows.saturating_add(1);
    }

    /// Rows since the last [`Self::clear`].
    #[must_use]
    pub const fn row_count(&self) -> u32 {
        self.rows
    }

    /// Returns true if there is no row.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns true if it is time to send the rows.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full || self.rows >= MAX_ROWS
    }

    /// Returns the bodies of the frames for the collected rows.
    #[cfg(test)]
    pub(crate) fn bodies(&self, max_body_bytes: usize) -> Result<Vec<Vec<u8>>, ChunkWriteError> {
        let bodies = chunk_bodies(&self.columns, max_body_bytes)?;
        Ok(bodies.iter().map(|body| body.write(|parts| parts.concat())).collect())
    }

    /// Writes the frames for the collected rows and begins the next chunk. A new frame begins
    /// behind the tenth column, and earlier if a frame would be above the limit of the encoder.
    /// Without rows it writes nothing.
    ///
    /// # Errors
    ///
    /// [`ChunkWriteError::TooLarge`]: one column alone is above the limit of the encoder. Nothing
    /// was written, and the rows are still here.
    ///
    /// # Examples
    ///
    /// ```
    /// use epoll_group::codec::encoder::{Encoder, OutBuffer};
    /// use epoll_group::codec::chunk::{BlockKind, ChunkWriter};
    /// use epoll_group::codec::value::Value;
    ///
    /// let mut buffer = OutBuffer::default();
    /// let mut out = Encoder::new(&mut buffer, 2);
    /// let mut writer = ChunkWriter::new(&[BlockKind::Signed]);
    /// for number in 0..10_000 {
    ///     writer.row(&[Value::Signed(number)])?;
    ///     if writer.is_full() {
    ///         writer.write_to(&mut out)?;
    ///     }
    /// }
    /// writer.write_to(&mut out)?;
    /// # assert!(buffer.len() > 10_000 && buffer.len() < 25_000);
    /// # Ok::<(), epoll_group::codec::chunk::ChunkWriteError>(())
    /// ```
    pub fn write_to(&mut self, out: &mut Encoder<'_>) -> Result<(), ChunkWriteError> {
        if self.is_empty() {
            return Ok(());
        }
        let kind = ServerKind::Chunk.number();
        for body in chunk_bodies(&self.columns, out.max_body_bytes())? {
            // The body was measured, so it fits.
            if let Err(EncodeError::TooLong { length, .. }) =
                body.write(|parts| out.frame(kind, parts))
            {
                let limit = out.max_body_bytes();
                return Err(ChunkWriteError::TooLarge { column: 0, bytes: length, limit });
            }
        }
        self.clear();
        Ok(())
    }

    /// Begins the next chunk.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(ColumnBlock::clear);
        self.rows = 0;
        self.full = false;
    }
}

/// Rows at which a chunk is full.
const MAX_ROWS: u32 = 4096;
