//! [`Row`] and [`RowSource`]: rows, and where the layer fetches them.

use super::error::SessionError;
use crate::codec::chunk::ChunkRow;
use crate::codec::encoder::RowWriter;
use crate::codec::value::Value;

/// One row of a result. Each call writes the next column.
#[derive(Debug)]
pub struct Row<'a>(pub(super) Cells<'a>);

#[derive(Debug)]
pub(super) enum Cells<'a> {
    Row(RowWriter<'a>),
    Chunk(ChunkRow<'a>),
}

impl Row<'_> {
    pub(super) fn finish(self) -> Result<(), SessionError> {
        match self.0 {
            Cells::Row(row) => Ok(row.finish()?),
            Cells::Chunk(row) => Ok(row.finish()?),
        }
    }

    /// Writes a value of any type.
    #[inline]
    pub fn value(&mut self, value: Value<'_>) {
        match &mut self.0 {
            Cells::Row(row) => row.value(&value),
            Cells::Chunk(row) => row.value(&value),
        }
    }

    /// Writes NULL, in a column of any type.
    #[inline]
    pub fn null(&mut self) {
        self.value(Value::Null);
    }

    /// Writes a signed integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        self.value(Value::Signed(value));
    }

    /// Writes an unsigned integer, or a year.
    #[inline]
    pub fn uint(&mut self, value: u64) {
        self.value(Value::Unsigned(value));
    }

    /// Writes a text, or binary data.
    #[inline]
    pub fn text(&mut self, bytes: impl AsRef<[u8]>) {
        self.value(Value::Bytes(bytes.as_ref()));
    }
}

/// Source of the rows of a large result.
///
/// [`Reply::source`](super::Reply::source) takes it. The layer asks it for one row after the other
/// while the client grants credit and reads. Between rows no thread waits: any worker may fetch the
/// next rows. So the source must own its data. The layer drops it after its last row, after an
/// error, and if the request is cancelled.
///
/// A closure can be a source:
///
/// ```
/// # use epoll_group::session::{Reply, Row, SessionError};
/// # fn count(reply: &mut Reply<'_>) -> Result<(), SessionError> {
/// let mut numbers = 0..1_000_000;
/// reply.source(move |row: &mut Row<'_>| match numbers.next() {
///     Some(number) => {
///         row.int(number);
///         Ok(true)
///     }
///     None => Ok(false),
/// });
/// # Ok(())
/// # }
/// ```
pub trait RowSource: Send {
    /// Writes the next row. Returns false after the last row; then nothing of `row` is sent. Should not
    /// wait: the rows of up to 0.1 ms before are sent when it returns. A source whose rows come later is
    /// a [`relay`](super::Reply::relay).
    ///
    /// # Errors
    ///
    /// An error ends the request. Values already written to `row` are removed.
    fn next(&mut self, row: &mut Row<'_>) -> Result<bool, SessionError>;
}

impl<F> RowSource for F
where
    F: FnMut(&mut Row<'_>) -> Result<bool, SessionError> + Send,
{
    fn next(&mut self, row: &mut Row<'_>) -> Result<bool, SessionError> {
        self(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encoder::{Encoder, OutBuffer};

    /// Frame of a row with these cells.
    fn frame(fill: impl FnOnce(&mut Row<'_>)) -> Vec<u8> {
        let mut buffer = OutBuffer::default();
        let mut encoder = Encoder::new(&mut buffer, 1);
        let mut row = Row(Cells::Row(encoder.begin_row()));
        fill(&mut row);
        row.finish().expect("it is short");
        buffer.slices().collect::<Vec<_>>().concat()
    }

    #[test]
    fn the_method_of_a_type_writes_a_value_of_the_type() {
        assert_eq!(frame(|row| row.null()), frame(|row| row.value(Value::Null)));
        assert_eq!(frame(|row| row.int(-1)), frame(|row| row.value(Value::Signed(-1))));
        assert_eq!(frame(|row| row.uint(1)), frame(|row| row.value(Value::Unsigned(1))));
        assert_eq!(frame(|row| row.text("a")), frame(|row| row.value(Value::Bytes(b"a"))));
    }
}
