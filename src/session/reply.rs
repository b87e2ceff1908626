//! [`Reply`]: the answer to a request.

use std::fmt;
use std::sync::Arc;

use super::deferred::Deferred;
use super::error::SessionError;
use super::output::Output;
use super::relay::{Relay, Relaying, ResultPosition};
use super::reply_state::{Feed, NO_COLUMNS, ReplyForm, ReplyState};
use super::row::{Row, RowSource};
use crate::codec::chunk::{BlockKind, ChunkWriter};
use crate::codec::proto::notice::Level;
use crate::codec::row::Column;

/// Answer to one request.
///
/// Rows are written directly into the send buffer, as rows or as chunks, as the client asked. The
/// buffer is sent when the request ends, when it has 16 KiB, when it is 0.1 ms old, and before an
/// [announced](crate::stall) wait of the handler.
///
/// ```
/// # use epoll_group::session::{Reply, SessionError};
/// # use epoll_group::codec::row::Column;
/// # fn select(reply: &mut Reply<'_>) -> Result<(), SessionError> {
/// reply.columns(&[Column::signed("id"), Column::text("name", 45, 80)])?;
/// for (id, name) in [(1, "one"), (2, "two")] {
///     reply.row(|row| {
///         row.int(id);
///         row.text(name);
///     })?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// A client can limit the bytes that it takes (credit), and it may read slowly. Then
/// [`row`](Self::row) waits, as an announced stall. If more than `max_waiting_writers` handlers of
/// a group wait, the longest waiting one is cancelled. For large results, use a
/// [`source`](Self::source): no thread waits for it.
pub struct Reply<'a> {
    pub(super) state: &'a mut ReplyState,
    pub(super) out: &'a Output,
}

impl Reply<'_> {
    /// Begins a result with at least one column.
    ///
    /// A second call begins another result. Not all clients accept more than one.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no columns, if the description of a column is too long, or if
    /// the client asked for chunks and a type cannot be in a chunk.
    pub fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError> {
        if columns.is_empty() {
            return Err(SessionError::unsupported("a result has at least one column"));
        }
        let state = &mut *self.state;
        if state.deferral.is_some() {
            return Err(SessionError::unsupported("a deferred request is answered elsewhere"));
        }
        if state.form.plain {
            return Err(SessionError::unsupported("a savepoint has no result"));
        }
        state.put_chunk(self.out)?;
        let another = state.results;
        let (written, _) = state.write(self.out, |encoder| {
            if another {
                encoder.fetch_done_more_resultsets();
            }
            columns.iter().try_for_each(|column| encoder.column(column))
        });
        written?;
        state.results = true;
        state.columns = columns.len();
        if state.form.chunks {
            let kinds = columns.iter().enumerate().map(|(at, column)| {
                BlockKind::of_types(column.field_type, column.original_type).ok_or_else(|| {
                    SessionError::unsupported(format!("column {at} cannot be in a chunk"))
                })
            });
            state.chunks = Some(ChunkWriter::new(&kinds.collect::<Result<Vec<_>, _>>()?));
        }
        Ok(())
    }

    /// Writes a row. `fill` writes the cells in the order of the columns, and should not wait. The
    /// call waits while the client takes no more.
    ///
    /// # Errors
    ///
    /// Returns an error if the row is too long, or in a chunk if its cells differ from the columns.
    /// Also if the request is cancelled, exceeds its deadline or loses its connection. The handler
    /// returns the error from [`Service::execute`](super::Service::execute).
    pub fn row(&mut self, fill: impl FnOnce(&mut Row<'_>)) -> Result<(), SessionError> {
        self.try_row(|row| {
            fill(row);
            Ok(())
        })
    }

    /// Writes a row whose cells can fail. After an error nothing of the row is sent.
    ///
    /// # Errors
    ///
    /// Returns the error of `fill`, or an error of [`row`](Self::row).
    pub fn try_row<E: From<SessionError>>(
        &mut self,
        fill: impl FnOnce(&mut Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.state.columns == 0 {
            return Err(SessionError::unsupported(NO_COLUMNS).into());
        }
        if self.state.shared.is_interrupted() {
            return Err(SessionError::interrupted().into());
        }
        // One offer of credit may be smaller than a row, so the loop may wait more than once.
        while let Some(blocked) = self.state.blocked(self.out) {
            self.state.report_blocked(self.out, blocked);
            let ReplyState { shared, left, .. } = &mut *self.state;
            if !shared.wait_for_room(left) {
                return Err(SessionError::interrupted().into());
            }
        }
        self.state.put_row(self.out, |row| fill(row).map(|()| true))?;
        Ok(())
    }

    /// Takes the remaining rows from `rows`. After the handler has returned, the layer fetches them
    /// as the client takes them. [`columns`](Self::columns) must be called before.
    pub fn source(&mut self, rows: impl RowSource + 'static) {
        self.feed_from(|_| Feed::Rows(Box::new(rows)));
    }

    /// Takes the rest of the reply from another server. After the handler has returned, the layer
    /// asks for frames as the client takes them. They continue a result that was begun here.
    ///
    /// The [`Ending`](super::Ending) of the relay replaces the changed rows, ids and texts set
    /// here, and adds its warnings. A request about a savepoint has no result, so its relay returns
    /// only an ending.
    pub fn relay(&mut self, relay: impl Relay + 'static) {
        self.feed_from(|state| {
            let position = if state.results { ResultPosition::Rows } else { ResultPosition::Start };
            Feed::Relay(Relaying::new(Box::new(relay), &state.shared, position))
        });
    }

    fn feed_from(&mut self, feed: impl FnOnce(&ReplyState) -> Feed) {
        // A deferred request is answered through its handle.
        if self.state.deferral.is_none() {
            self.state.feed = Some(feed(self.state));
        }
    }

    /// Defers the answer: any thread can finish the request through the returned handle. The
    /// session stays busy until then, without a thread.
    ///
    /// Later writes to this reply are refused. A second call returns a handle without effect.
    pub fn defer(&mut self) -> Deferred {
        let shared = Arc::clone(&self.state.shared);
        if self.state.deferral.is_some() {
            return Deferred::late();
        }
        // Another thread may finish the request before this thread sends.
        self.out.flush();
        let state = std::mem::replace(self.state, ReplyState::new(shared, ReplyForm::PLAIN));
        let deferred = Deferred::new(state);
        self.state.deferral = Some(deferred.deferral());
        deferred
    }

    /// Sets the number of changed rows.
    pub fn affected(&mut self, rows: u64) {
        self.state.ending.affected = rows;
    }

    /// Sets the first id that the database generated for a row of the statement; 0 for none.
    pub fn last_insert_id(&mut self, id: u64) {
        self.state.ending.insert_id = id;
    }

    /// Sets a text for people about the result.
    pub fn info(&mut self, text: impl Into<Vec<u8>>) {
        self.state.ending.info = text.into();
    }

    /// Adds a warning. The first 64 warnings are kept.
    pub fn warning(&mut self, level: Level, code: u32, text: impl Into<Vec<u8>>) {
        self.state.ending.add_warning(level, code, text.into());
    }

    /// Returns true if the request should end: the client cancelled it, it exceeded its deadline,
    /// or its connection has ended. Long handlers call it often, because it is cheap.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.shared.is_interrupted()
    }

    /// Sends the rows written so far.
    pub fn flush(&mut self) {
        self.out.flush();
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("session", &self.state.shared.id).finish_non_exhaustive()
    }
}
