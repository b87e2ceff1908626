//! [`Joined`]: converts chunks into frames of rows, so that readers handle only rows.
//!
//! A NULL takes one bit of a chunk and two bytes of a row, and each row has a header. So the number
//! of rows limits a chunk before any row is written. The bytes limit it during the conversion.

use super::error::{Error, ErrorKind};
use crate::codec::chunk::{BlockKind, Chunk, ChunkFrame, ChunkJoiner};
use crate::codec::encoder::{Encoder, OutBuffer};
use crate::codec::frame::{Dialect, HEADER_BYTES};
use crate::codec::proto::resultset::ColumnMetaData;

/// Rows of the chunks of one result.
///
/// *Shape*: at most `max_bytes` of rows and one row more, removed as they are read. At most
/// `max_bytes` of incomplete chunks.
pub(super) struct Joined {
    max_bytes: usize,
    /// Set after the first chunk.
    parts: Option<(ChunkJoiner, OutBuffer)>,
    /// Body of the current row.
    row: Vec<u8>,
}

impl Joined {
    pub(super) const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, parts: None, row: Vec::new() }
    }

    /// Returns true if no row is left.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.as_ref().is_none_or(|(_, rows)| rows.is_empty())
    }

    /// Returns an error if the first frames of a chunk have come and not the last one.
    pub(super) fn check_whole(&self) -> Result<(), Error> {
        match &self.parts {
            Some((joiner, _)) if joiner.pending_columns() > 0 => {
                Err(Error::protocol("a chunk is not complete"))
            }
            _ => Ok(()),
        }
    }

    /// Begins another result.
    pub(super) fn clear(&mut self) {
        self.parts = None;
    }

    /// Adds a chunk of a result with these columns.
    pub(super) fn push(&mut self, columns: &[ColumnMetaData], body: &[u8]) -> Result<(), Error> {
        let (joiner, rows) = match &mut self.parts {
            Some(parts) => parts,
            none => none.insert((joiner(columns, self.max_bytes)?, OutBuffer::default())),
        };
        let frame = ChunkFrame::parse(body).map_err(Error::malformed)?;
        let Some(chunk) = joiner.push(frame).map_err(Error::malformed)? else { return Ok(()) };
        let written = write(&chunk, rows, self.max_bytes);
        if written.is_err() {
            rows.clear();
        }
        written
    }

    /// Moves to the next row. Returns false if there is none.
    pub(super) fn step(&mut self) -> Result<bool, Error> {
        if self.is_empty() {
            return Ok(false);
        }
        self.take(HEADER_BYTES);
        let header = Dialect::Legacy.parse(&self.row, u32::MAX).map_err(Error::malformed)?;
        self.take(header.map_or(0, |header| Dialect::Legacy.frame_bytes(&header) - HEADER_BYTES));
        Ok(true)
    }

    /// Body of the current row.
    pub(super) fn row(&self) -> &[u8] {
        &self.row
    }

    fn take(&mut self, bytes: usize) {
        let Some((_, rows)) = &mut self.parts else { return };
        self.row.clear();
        for slice in rows.slices() {
            let missing = bytes - self.row.len();
            if missing == 0 {
                break;
            }
            self.row.extend_from_slice(&slice[..slice.len().min(missing)]);
        }
        rows.advance(bytes);
    }
}

/// Most bytes of a chunk that arrives in parts: the size of the largest frame.
const MAX_CHUNK_BYTES: usize = 64 << 20;

fn joiner(columns: &[ColumnMetaData], max_bytes: usize) -> Result<ChunkJoiner, Error> {
    let kinds = columns.iter().map(|column| {
        let kind = BlockKind::of_types(column.r#type, column.original_type);
        kind.ok_or_else(|| Error::protocol("a chunk of a type that chunks cannot hold"))
    });
    let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
    Ok(ChunkJoiner::new(&kinds, MAX_CHUNK_BYTES.min(max_bytes)))
}

/// Writes the rows of a chunk.
fn write(chunk: &Chunk<'_>, rows: &mut OutBuffer, max_bytes: usize) -> Result<(), Error> {
    let allow = |bytes: usize| match bytes > max_bytes {
        true => Err(Error::unknown(ErrorKind::TooMuch { bytes, limit: max_bytes })),
        false => Ok(()),
    };
    let count = usize::try_from(chunk.row_count()).unwrap_or(usize::MAX);
    let least = HEADER_BYTES + chunk.columns().count() * LEAST_CELL_BYTES;
    allow(count.saturating_mul(least))?;
    let mut source = chunk.rows();
    while let Some(values) = source.next_row().map_err(Error::malformed)? {
        let row = Encoder::new(rows, 0).row(|row| values.iter().for_each(|value| row.value(value)));
        row.map_err(Error::malformed)?;
        allow(rows.len())?;
    }
    Ok(())
}

/// Size of a NULL in bytes: tag and length.
const LEAST_CELL_BYTES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::chunk::ChunkWriter;
    use crate::codec::message::ServerMessage;
    use crate::codec::row::{Column, RowReader};
    use crate::codec::value::Value;

    fn columns(column: &Column<'_>) -> Vec<ColumnMetaData> {
        let mut buffer = OutBuffer::default();
        Encoder::new(&mut buffer, 0).column(column).expect("it is short");
        let body = &buffer.to_vec()[HEADER_BYTES..];
        let kind = crate::codec::message::ServerKind::ColumnMetaData.number();
        let message = ServerMessage::decode(Default::default(), kind, body, &Default::default());
        match message.expect("it is right") {
            ServerMessage::ColumnMetaData(column) => vec![column],
            other => panic!("{other:?} is no column"),
        }
    }

    /// Chunk of one column that contains only NULL.
    fn nulls(rows: usize) -> Vec<u8> {
        let mut writer = ChunkWriter::new(&[BlockKind::Signed]);
        (0..rows).for_each(|_| writer.row(&[Value::Null]).expect("it fits"));
        body(&writer)
    }

    fn body(writer: &ChunkWriter) -> Vec<u8> {
        writer.bodies(64 << 20).expect("it fits").remove(0)
    }

    #[test]
    fn a_chunk_of_nulls_is_refused_before_a_row_is_written() {
        let columns = columns(&Column::signed("n"));
        let limit = 1 << 20;
        let most = limit / 15;
        let mut joined = Joined::new(limit);
        joined.push(&columns, &nulls(most)).expect("that many are allowed");
        for _ in 0..most {
            assert!(joined.step().expect("a row"));
            assert_eq!(joined.row(), [0x0a, 0]);
        }
        assert!(joined.is_empty() && !joined.step().expect("none"));
        for rows in [most + 1, 1 << 20] {
            let error = joined.push(&columns, &nulls(rows)).expect_err("too many");
            match error.kind() {
                &ErrorKind::TooMuch { bytes, limit: named } => {
                    assert_eq!((bytes, named), (rows * 15, limit));
                }
                other => panic!("{other:?}"),
            }
            assert!(joined.is_empty());
            let pages = joined.parts.as_ref().map_or(0, |(_, rows)| rows.slices().count());
            assert_eq!(pages, 0, "nothing was written");
        }
    }

    #[test]
    fn rows_that_are_larger_than_the_least_are_refused_as_they_grow() {
        let columns = columns(&Column::text("text", 45, 255));
        let text = [b'x'; 1000];
        let chunk = |rows| {
            let mut writer = ChunkWriter::new(&[BlockKind::Bytes]);
            (0..rows).for_each(|_| writer.row(&[Value::Bytes(&text)]).expect("it fits"));
            body(&writer)
        };
        let mut joined = Joined::new(100 << 10);
        let error = joined.push(&columns, &chunk(1000)).expect_err("too much");
        assert!(matches!(error.kind(), ErrorKind::TooMuch { bytes, .. } if *bytes < 102 << 10));
        assert!(joined.is_empty());
        // The rows span several pages.
        joined.push(&columns, &chunk(90)).expect("it is allowed");
        let mut reader = RowReader::default();
        for _ in 0..90 {
            assert!(joined.step().expect("a row"));
            let cell = reader.row(joined.row()).expect("a row").cell(0).expect("a cell");
            let value = cell.value(columns[0].r#type, columns[0].original_type);
            assert_eq!(value, Ok(Value::Bytes(&text)));
        }
        assert!(joined.is_empty());
    }
}
