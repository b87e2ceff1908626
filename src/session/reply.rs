//! [`Reply`]: the answer to a request. [`Deferred`]: a later answer, from any thread.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::ending::Ending;
use super::error::SessionError;
use super::output::Output;
use super::relay::{Relay, Relaying, ResultPosition};
use super::reply_state::{Deferral, Feed, NO_COLUMNS, Outcome, Pulled, ReplyForm, ReplyState};
use super::row::{Row, RowSource};
use super::session_shared::SessionShared;
use crate::codec::chunk::{BlockKind, ChunkWriter};
use crate::codec::proto::resultset::{FieldType, OriginalType};
use crate::codec::row::Column;
use crate::net::flush_corked;
use crate::runtime::Usage;
use crate::stats::Counter;

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
/// a server and group wait, the longest waiting one is cancelled. For large results, use a
/// [`source`](Self::source): no thread waits for it.
pub struct Reply<'a> {
    pub(super) state: &'a mut ReplyState,
    pub(super) out: &'a Output,
}

/// Longest string column, by its declared length in bytes, whose values come in chunks.
const MAX_CHUNKED_STRING: u32 = 2048;

/// Returns the kinds of the columns in a chunk. `None` if their result is to be sent as rows: a chunk
/// ends at a long value, so a chunk of long values would hold few.
fn chunk_kinds(columns: &[Column<'_>]) -> Result<Option<Vec<BlockKind>>, SessionError> {
    let needs_rows = |column: &Column<'_>| {
        let is_long = column.length.is_some_and(|length| length > MAX_CHUNKED_STRING);
        (column.field_type == FieldType::Bytes && is_long)
            || column.original_type == OriginalType::MysqlTypeGeometry
    };
    if columns.iter().any(needs_rows) {
        return Ok(None);
    }
    let kinds = columns.iter().enumerate().map(|(at, column)| {
        BlockKind::of_types(column.field_type, column.original_type)
            .ok_or_else(|| SessionError::unsupported(format!("column {at} cannot be in a chunk")))
    });
    kinds.collect::<Result<_, _>>().map(Some)
}

impl Reply<'_> {
    /// Begins a result with at least one column.
    ///
    /// A second call begins another result. Not all clients accept more than one.
    ///
    /// A result with a geometry, or with a string column of a declared length above 2048 bytes, is sent
    /// as rows even if the client asked for chunks.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no columns, or if the description of a column is too long. Also if
    /// the client asked for chunks and the two types of a column do not go together.
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
        let kinds = if state.form.chunks { chunk_kinds(columns)? } else { None };
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
        state.chunks = kinds.map(|kinds| ChunkWriter::new(&kinds));
        Ok(())
    }

    /// Writes a row. `fill` writes the cells in the order of the columns, and should not wait. The
    /// call waits while the client takes no more.
    ///
    /// # Errors
    ///
    /// Returns an error if [`columns`](Self::columns) was not called, if the row is too long, or in
    /// a chunk if its cells differ from the columns. Also if the request is cancelled, exceeds its
    /// deadline, loses its connection, or has no credit left in a drain or after its client has
    /// finished sending. The handler returns the error from
    /// [`Service::execute`](super::Service::execute).
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
        if self.state.shared.must_end() {
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
    /// The [`Ending`] of the relay replaces the changed rows, ids, texts and costs set here, and adds
    /// its warnings and its bits about the server. A request about a savepoint has no result, so its
    /// relay returns only an ending.
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

    /// The end of the reply: changed rows, generated id, texts, warnings. It is sent after the handler
    /// has returned.
    ///
    /// ```
    /// # fn inserted(reply: &mut epoll_group::session::Reply<'_>, id: u64) {
    /// let ending = reply.ending();
    /// ending.affected = 1;
    /// ending.insert_id = id;
    /// # }
    /// ```
    pub fn ending(&mut self) -> &mut Ending {
        &mut self.state.ending
    }

    /// Returns true if the request should end: the client cancelled it, it exceeded its deadline,
    /// or its connection has ended. Long handlers call it often, because it is cheap.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.shared.must_end()
    }

    /// Sends the rows written so far.
    pub fn flush(&mut self) {
        self.out.flush();
        // The rows may wait for replies of other sessions.
        flush_corked();
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("session", &self.state.shared.id).finish_non_exhaustive()
    }
}

/// Handle that answers a request from any thread, after its handler has returned.
///
/// [`Reply::defer`] creates it. Until it is finished the session runs no other request, and no
/// thread waits. If the request is cancelled, exceeds its deadline or loses its connection, the
/// layer answers it, and a later [`finish`](Self::finish) has no effect. A handle that is dropped
/// unfinished answers with an error.
///
/// *Shape*: keeps the context of its connection, with the descriptor, until it is finished, dropped
/// or cancelled. The layer cannot stop the work for a cancelled request: its owner checks
/// [`is_cancelled`](Self::is_cancelled) now and then. `deferred_requests` counts the handle until
/// it is dropped.
#[must_use = "dropped, it answers an error"]
pub struct Deferred {
    deferral: Arc<Deferral>,
    /// Counts the handle until it is finished or dropped.
    usage: Option<Arc<Usage>>,
}

impl Deferred {
    pub(super) fn new(state: ReplyState) -> Self {
        let usage = Arc::clone(state.shared.conn.group().usage());
        usage.deferred.change(true);
        Self { deferral: Deferral::new(Some(Box::new(state))), usage: Some(usage) }
    }

    /// Handle of a request that has another handle already. It answers nothing.
    pub(super) fn late() -> Self {
        Self { deferral: Deferral::new(None), usage: None }
    }

    pub(super) fn deferral(&self) -> Arc<Deferral> {
        Arc::clone(&self.deferral)
    }

    /// Returns true if the request was cancelled or answered, so that the work for it can stop. The
    /// result may change at any time.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.deferral.is_cancelled()
    }

    /// Answers the request. `code` writes the reply on this thread, like a handler, and the layer
    /// writes its end. Returns false, without a call of `code`, if the request was answered before.
    pub fn finish(mut self, code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>) -> bool {
        self.finish_in_place(code).is_some()
    }

    /// Returns the session if this call answered.
    fn finish_in_place(
        &mut self,
        code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>,
    ) -> Option<Arc<SessionShared>> {
        if let Some(usage) = self.usage.take() {
            usage.deferred.change(false);
        }
        let mut state = self.deferral.claim()?;
        let shared = Arc::clone(&state.shared);
        let mut panicked = None;
        let outcome = Output::with(&shared.conn, |out| {
            out.begin(Some(&shared));
            let mut reply = Reply { state: &mut state, out };
            let result = catch_unwind(AssertUnwindSafe(|| code(&mut reply)));
            let result = result.unwrap_or_else(|payload| {
                panicked = Some(payload);
                Err(SessionError::panicked())
            });
            let outcome = match state.conclude(out, result) {
                // Often the feed has the whole rest at once. Otherwise the session continues.
                Outcome::Fed(state, None) => feed(state, out, &mut panicked),
                outcome => outcome,
            };
            if matches!(outcome, Outcome::Ended(_)) {
                // The client may send its next request before a worker ends this one.
                drop(shared.mail(|mail| mail.take_place()));
            }
            outcome
        });
        let answered = matches!(&outcome, Outcome::Ended(result)
            if !result.as_ref().is_err_and(SessionError::is_fatal));
        shared.give_outcome(answered, || self.deferral.set_outcome(outcome));
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        Some(shared)
    }
}

/// Sends what the feed has at once.
fn feed(
    mut state: Box<ReplyState>,
    out: &Output,
    panicked: &mut Option<Box<dyn Any + Send>>,
) -> Outcome {
    let pulled = state.pull(out, |payload| {
        *panicked = Some(payload);
        SessionError::panicked()
    });
    match pulled {
        Ok(Pulled::Budget) => Outcome::Fed(state, None),
        Ok(Pulled::Blocked(blocked)) => Outcome::Fed(state, Some(blocked)),
        Ok(Pulled::Done) => Outcome::Ended(state.finish(out, Ok(()))),
        Err(error) => {
            let error = state.shared.reason(error);
            state.end(out, Err(error))
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let answered = self.finish_in_place(|_| Err(SessionError::dropped()));
        if let Some(shared) = answered {
            shared.conn.count(Counter::DeferredDropped);
        }
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}
