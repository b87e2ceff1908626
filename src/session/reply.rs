//! [`Reply`]: how a request is answered.

use std::fmt;
use std::sync::Arc;

use super::deferred::Deferred;
use super::error::SessionError;
use super::output::Output;
use super::relay::{Place, Relay, Relaying};
use super::row::Row;
use super::source::RowSource;
use super::state::{Feed, Form, NO_COLUMNS, State};
use crate::codec::chunk::{BlockKind, ChunkWriter};
use crate::codec::column::Column;
use crate::codec::message::notice::warning::Level;

/// The answer to one request, on its way to the client.
///
/// Rows go straight into the buffer that is sent, as rows or as chunks, whatever the client asked for.
/// What was written leaves when the request ends, when 16 KiB are there or 0.1 ms have passed, and when
/// the handler waits and [says so](crate::stall).
///
/// ```
/// # use epoll_group::session::{Reply, SessionError};
/// # use epoll_group::codec::column::Column;
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
/// A client can limit what it takes at a time (credit), and read as slowly as it likes. Then
/// [`row`](Self::row) waits, as an announced stall; in a group `max_waiting_writers` handlers may do so,
/// beyond that the one that has waited longest is cancelled. Large results are better given as a
/// [`source`](Self::source), for which nobody waits.
pub struct Reply<'a> {
    pub(super) state: &'a mut State,
    pub(super) out: &'a Output,
}

impl Reply<'_> {
    /// Begins a result: describes its columns, of which there must be one at least.
    ///
    /// Behind a result that was begun before, it begins another one. Not all clients take more than
    /// one.
    ///
    /// # Errors
    ///
    /// When there are no columns, one is too long to be described, or a type cannot be in a chunk and
    /// the client asked for chunks.
    pub fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError> {
        if columns.is_empty() {
            return Err(SessionError::unsupported("a result has at least one column"));
        }
        let state = &mut *self.state;
        if state.plain {
            return Err(SessionError::unsupported("a savepoint has no result"));
        }
        if state.deferral.is_some() {
            return Err(SessionError::unsupported("a deferred request is answered elsewhere"));
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
        if state.wants_chunks {
            let kinds = columns.iter().enumerate().map(|(at, column)| {
                BlockKind::of_types(column.field_type, column.original_type).ok_or_else(|| {
                    SessionError::unsupported(format!("column {at} cannot be in a chunk"))
                })
            });
            state.chunks = Some(ChunkWriter::new(&kinds.collect::<Result<Vec<_>, _>>()?));
        }
        Ok(())
    }

    /// A row, whose cells `fill` writes in the order of the columns; it should not wait. This waits
    /// while the client takes no more.
    ///
    /// # Errors
    ///
    /// When the row is too long, or its cells are not what the columns say, and there are chunks; when
    /// the request is cancelled, its deadline passes, or the client goes away. To be returned from
    /// [`Service::execute`](super::Service::execute).
    pub fn row(&mut self, fill: impl FnOnce(&mut Row<'_>)) -> Result<(), SessionError> {
        self.try_row(|row| {
            fill(row);
            Ok(())
        })
    }

    /// A row whose cells come from something that can fail half-way; then nothing of it is sent.
    ///
    /// # Errors
    ///
    /// What `fill` returns, or as of [`row`](Self::row).
    pub fn try_row<E: From<SessionError>>(
        &mut self,
        fill: impl FnOnce(&mut Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.state.columns == 0 {
            return Err(SessionError::unsupported(NO_COLUMNS).into());
        }
        if self.state.channel.is_interrupted() {
            return Err(SessionError::interrupted().into());
        }
        // Credit may come in smaller pieces than rows.
        while let Some(blocked) = self.state.blocked(self.out) {
            self.state.tell_blocked(self.out, blocked);
            let State { channel, left, .. } = &mut *self.state;
            if !channel.wait_for_room(left) {
                return Err(SessionError::interrupted().into());
            }
        }
        self.state.put_row(self.out, |row| fill(row).map(|()| true))?;
        Ok(())
    }

    /// The rest of the rows comes from there: they are fetched, after the handler has returned, when
    /// the client takes them. [`columns`](Self::columns) comes before.
    pub fn source(&mut self, rows: impl RowSource + 'static) {
        self.feed_from(|_| Feed::Rows(Box::new(rows)));
    }

    /// The rest of the reply is what another server answers: it is asked for, after the handler has
    /// returned, when the client takes it. A result that was begun here it goes on with.
    ///
    /// Its [`Ending`](super::Ending) replaces what was said here of changed rows, of numbers and in
    /// texts, and adds to the warnings. A request about a savepoint has no result: an ending alone.
    pub fn relay(&mut self, relay: impl Relay + 'static) {
        self.feed_from(|state| {
            let place = if state.results { Place::Rows } else { Place::Start };
            Feed::Relay(Relaying::new(Box::new(relay), &state.channel, place))
        });
    }

    fn feed_from(&mut self, feed: impl FnOnce(&State) -> Feed) {
        // Otherwise it is answered elsewhere.
        if self.state.deferral.is_none() {
            self.state.feed = Some(feed(self.state));
        }
    }

    /// The request is finished later, from any thread, through what this returns. The session stays
    /// busy until then, without a thread.
    ///
    /// What is written here from then on is refused. Once a request is deferred, another handle for it
    /// comes too late: it answers nothing.
    pub fn defer(&mut self) -> Deferred {
        let channel = Arc::clone(&self.state.channel);
        let form = Form { compact: false, chunks: false, credit: None, plain: false };
        if self.state.deferral.is_some() {
            return Deferred::late();
        }
        // Whoever finishes it may be quicker than this thread.
        self.out.flush();
        let state = std::mem::replace(self.state, State::new(channel, form));
        let deferred = Deferred::new(state);
        self.state.deferral = Some(deferred.deferral());
        deferred
    }

    /// How many rows the statement changed.
    pub fn affected(&mut self, rows: u64) {
        self.state.ending.set_affected(rows);
    }

    /// The first number that the database gave to a row of the statement; 0 for none.
    pub fn last_insert_id(&mut self, id: u64) {
        self.state.ending.set_insert_id(id);
    }

    /// A text for people about what was done.
    pub fn info(&mut self, text: impl Into<Vec<u8>>) {
        self.state.ending.set_info(text.into());
    }

    /// A warning. Of more than 64 only the first are kept.
    pub fn warning(&mut self, level: Level, code: u32, text: impl Into<Vec<u8>>) {
        self.state.ending.add_warning(level, code, text.into());
    }

    /// Whether the client, a deadline or the end of the connection wants the request to end: for
    /// handlers that take long. Cheap.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.channel.is_interrupted()
    }

    /// Sends what was written so far.
    pub fn flush(&mut self) {
        self.out.flush();
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("session", &self.state.channel.id).finish_non_exhaustive()
    }
}
