//! [`Row`] and [`RowSource`]: rows, and where the layer fetches them.

use super::error::SessionError;
use crate::codec::chunk::ChunkRow;
use crate::codec::encoder::RowWriter;
use crate::codec::value::{Date, DateTime, Decimal, Time, Value};

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

    /// Writes a DOUBLE.
    #[inline]
    pub fn double(&mut self, value: f64) {
        self.value(Value::Double(value));
    }

    /// Writes a FLOAT.
    #[inline]
    pub fn float(&mut self, value: f32) {
        self.value(Value::Float(value));
    }

    /// Writes a text, or binary data.
    #[inline]
    pub fn text(&mut self, bytes: impl AsRef<[u8]>) {
        self.value(Value::Bytes(bytes.as_ref()));
    }

    /// Writes a DECIMAL.
    #[inline]
    pub fn decimal(&mut self, value: Decimal) {
        self.value(Value::Decimal(value));
    }

    /// Writes a DATE.
    #[inline]
    pub fn date(&mut self, value: Date) {
        self.value(Value::Date(value));
    }

    /// Writes a DATETIME or TIMESTAMP.
    #[inline]
    pub fn datetime(&mut self, value: DateTime) {
        self.value(Value::DateTime(value));
    }

    /// Writes a TIME.
    #[inline]
    pub fn time(&mut self, value: Time) {
        self.value(Value::Time(value));
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
    /// Writes the next row. Returns false after the last row; then nothing of `row` is sent.
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
