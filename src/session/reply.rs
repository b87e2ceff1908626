//! [`Reply`]: how a request is answered.

use std::fmt;
use std::sync::Arc;

use super::answers::put_error;
use super::channel::Channel;
use super::credit::Credit;
use super::deferred::{Deferral, Deferred};
use super::error::SessionError;
use super::output::Output;
use super::row::{Cells, Row};
use super::source::RowSource;
use crate::codec::chunk::{BlockKind, ChunkWriter};
use crate::codec::column::Column;
use crate::codec::encoder::{Encoder, Metadata};
use crate::codec::message::notice::warning::Level;
use crate::runtime::guard;
use crate::stats::Counter;

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

/// What a reply consists of beside its rows.
pub(super) struct State {
    pub(super) channel: Arc<Channel>,
    metadata: Metadata,
    wants_chunks: bool,
    chunks: Option<ChunkWriter>,
    /// Of the result that is being written; 0 when none is.
    columns: usize,
    /// There was a result.
    results: bool,
    /// Answered by a bare OK, and not by the ends of a statement.
    plain: bool,
    affected: u64,
    insert_id: u64,
    info: Vec<u8>,
    warnings: Vec<(Level, u32, Vec<u8>)>,
    /// Bytes of rows that the client still takes; without, it takes all.
    left: Option<Credit>,
    pub(super) source: Option<Box<dyn RowSource>>,
    pub(super) deferral: Option<Arc<Deferral>>,
}

/// What the client wants of the form of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) compact: bool,
    pub(super) chunks: bool,
    /// Credit in bytes.
    pub(super) credit: Option<i64>,
    /// Answered by a bare OK.
    pub(super) plain: bool,
}

impl Form {
    /// A bare OK.
    pub(super) const PLAIN: Self =
        Self { compact: false, chunks: false, credit: None, plain: true };

    /// Of a statement or plan; `token` is its credit in KiB, -1 for all there is.
    pub(super) fn of(
        compact: bool,
        chunks: bool,
        token: Option<i32>,
    ) -> Result<Self, SessionError> {
        let credit = match token {
            None | Some(-1) => None,
            Some(kilobytes @ 0..) => Some(i64::from(kilobytes) * 1024),
            Some(_) => return Err(SessionError::unsupported("Invalid Token")),
        };
        Ok(Self { compact, chunks, credit, plain: false })
    }
}

/// Why no row can be written at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// The client has to grant more.
    Credit,
    /// The client has to read.
    Room,
}

/// What became of a source.
#[derive(Debug)]
pub(super) enum Pulled {
    /// It has no more rows.
    Done,
    /// It may have more; others should have their turn first.
    Budget,
    /// It has to wait.
    Blocked(Blocked),
}

impl State {
    pub(super) fn new(channel: Arc<Channel>, form: Form) -> Self {
        Self {
            channel,
            metadata: if form.compact { Metadata::Compact } else { Metadata::Full },
            wants_chunks: form.chunks,
            chunks: None,
            columns: 0,
            results: false,
            plain: form.plain,
            affected: 0,
            insert_id: 0,
            info: Vec::new(),
            warnings: Vec::new(),
            left: form.credit.map(Credit::new),
            source: None,
            deferral: None,
        }
    }

    fn write<R>(&self, out: &Output, code: impl FnOnce(&mut Encoder<'_>) -> R) -> (R, usize) {
        out.write(self.channel.id.wire, self.metadata, code)
    }

    fn charge(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            left.charge(bytes);
        }
    }

    /// One row, as a row or into the chunk. No credit or room is looked at.
    fn put_row<E: From<SessionError>>(
        &mut self,
        out: &Output,
        fill: impl FnOnce(&mut Row<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        if let Some(chunks) = &mut self.chunks {
            let mut row = Row(Cells::Chunk(chunks.begin_row()));
            if !fill(&mut row)? {
                return Ok(false);
            }
            row.finish()?;
            if chunks.is_full() {
                self.put_chunk(out)?;
            }
            return Ok(true);
        }
        let (written, bytes) = self.write(out, |encoder| {
            let mut row = Row(Cells::Row(encoder.begin_row()));
            let written = fill(&mut row)?;
            if written {
                row.finish()?;
            }
            Ok::<_, E>(written)
        });
        self.charge(bytes);
        out.row_written();
        written
    }

    fn put_chunk(&mut self, out: &Output) -> Result<(), SessionError> {
        let Some(mut chunks) = self.chunks.take() else { return Ok(()) };
        let (written, bytes) = self.write(out, |encoder| chunks.write_to(encoder));
        self.chunks = Some(chunks);
        self.charge(bytes);
        out.row_written();
        Ok(written?)
    }

    /// Whether a row can be written now. Credit that was offered is taken first.
    fn blocked(&mut self, out: &Output) -> Option<Blocked> {
        if let Some(left) = &mut self.left
            && left.is_spent()
        {
            left.add(self.channel.take_offers());
            if left.is_spent() {
                return Some(Blocked::Credit);
            }
        }
        (out.is_pressed() && out.line().is_full()).then_some(Blocked::Room)
    }

    fn tell_blocked(&self, out: &Output, blocked: Blocked) {
        if blocked == Blocked::Credit {
            self.write(out, |encoder| encoder.token_done());
            out.line().count(Counter::TokenWaits);
        }
        out.flush();
    }

    /// Sends rows of the source while there is credit and room, and for as long as `more` says so.
    pub(super) fn pull(
        &mut self,
        out: &Output,
        budget_bytes: usize,
    ) -> Result<Pulled, SessionError> {
        let Some(mut source) = self.source.take() else { return Ok(Pulled::Done) };
        if self.columns == 0 {
            return Err(SessionError::unsupported(NO_COLUMNS));
        }
        let start = out.sent_or_written();
        loop {
            if self.channel.is_interrupted() {
                return Err(SessionError::interrupted());
            }
            let blocked = self.blocked(out);
            let pulled = if let Some(blocked) = blocked {
                self.tell_blocked(out, blocked);
                Pulled::Blocked(blocked)
            } else if out.sent_or_written() - start >= budget_bytes {
                Pulled::Budget
            } else if self.put_row(out, |row| source.next(row))? {
                continue;
            } else {
                return Ok(Pulled::Done);
            };
            self.source = Some(source);
            return Ok(pulled);
        }
    }

    /// Credit or room has come, for a source that waits for it.
    pub(super) fn is_unblocked(&mut self, blocked: Blocked, out: &Output) -> bool {
        match blocked {
            Blocked::Credit => {
                let before = self.left;
                let blocked = self.blocked(out) == Some(Blocked::Credit);
                // What came is not enough: the client would wait for us.
                if blocked && self.left != before {
                    self.tell_blocked(out, Blocked::Credit);
                }
                !blocked
            }
            Blocked::Room => out.line().has_room(),
        }
    }

    /// The end of a reply, good or bad.
    pub(super) fn finish(
        &mut self,
        out: &Output,
        result: Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        // Of a request that failed. It is the user's, and may panic.
        if let Some(source) = self.source.take() {
            guard(self.channel.line.group(), "drop", || drop(source));
        }
        let result = result.and_then(|()| self.put_chunk(out));
        match &result {
            Ok(()) if self.plain => {
                self.write(out, |encoder| encoder.ok(None));
            }
            Ok(()) => {
                self.write(out, |encoder| {
                    if self.results {
                        encoder.fetch_done();
                    }
                    self.put_warnings(encoder);
                    encoder.rows_affected(self.affected);
                    if self.insert_id > 0 {
                        encoder.last_insert_id(self.insert_id);
                    }
                    if !self.info.is_empty() {
                        // One that is too long is not worth failing for.
                        let _ = encoder.produced_message(&self.info);
                    }
                    encoder.execute_ok();
                });
            }
            Err(error) => {
                self.write(out, |encoder| {
                    self.put_warnings(encoder);
                    put_error(encoder, error);
                });
            }
        }
        result
    }

    fn put_warnings(&self, encoder: &mut Encoder<'_>) {
        for (level, code, text) in &self.warnings {
            // As above.
            let _ = encoder.warning(*level, *code, text);
        }
    }
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
        self.state.source = Some(Box::new(rows));
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
            return Deferred::late(State::new(channel, form));
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
        self.state.affected = rows;
    }

    /// The first number that the database gave to a row of the statement; 0 for none.
    pub fn last_insert_id(&mut self, id: u64) {
        self.state.insert_id = id;
    }

    /// A text for people about what was done.
    pub fn info(&mut self, text: impl Into<Vec<u8>>) {
        self.state.info = text.into();
    }

    /// A warning. Of more than 64 only the first are kept.
    pub fn warning(&mut self, level: Level, code: u32, text: impl Into<Vec<u8>>) {
        if self.state.warnings.len() < MOST_WARNINGS {
            self.state.warnings.push((level, code, text.into()));
        }
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

const NO_COLUMNS: &str = "a row without columns";

/// What MySQL keeps by default (`max_error_count`).
const MOST_WARNINGS: usize = 64;

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("session", &self.state.channel.id).finish_non_exhaustive()
    }
}
