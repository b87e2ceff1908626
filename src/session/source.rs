//! [`RowSource`]: rows that the layer fetches when there is somebody to take them.

use super::error::SessionError;
use super::row::Row;

/// Where the rows of a large result come from.
///
/// Given to [`Reply::source`](super::Reply::source), it is asked for one row after the other while the
/// client grants credit and reads what is sent. In between nobody waits: the rest is fetched later, on
/// any worker. So it owns what it needs. It is dropped when it has no more rows, when it fails, and when
/// the request is cancelled.
///
/// A closure can be one:
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
    /// Writes the next row; `false` when there is none, and nothing of `row` is sent then.
    ///
    /// # Errors
    ///
    /// Ends the request; what the row has of values is taken back.
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
