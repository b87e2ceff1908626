//! [`RowSource`]: rows that the layer fetches while the client takes them.

use super::error::SessionError;
use super::row::Row;

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
