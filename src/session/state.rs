//! [`State`]: what a reply consists of, and how it is written.

use std::sync::Arc;

use super::answers::put_error;
use super::channel::Channel;
use super::credit::Credit;
use super::deferred::Deferral;
use super::error::SessionError;
use super::output::Output;
use super::row::{Cells, Row};
use super::source::RowSource;
use crate::codec::chunk::ChunkWriter;
use crate::codec::encoder::{Encoder, Metadata};
use crate::codec::message::notice::warning::Level;
use crate::runtime::guard;
use crate::stats::Counter;

/// What a reply consists of beside its rows.
pub(super) struct State {
    pub(super) channel: Arc<Channel>,
    metadata: Metadata,
    pub(super) wants_chunks: bool,
    pub(super) chunks: Option<ChunkWriter>,
    /// Of the result that is being written; 0 when none is.
    pub(super) columns: usize,
    /// There was a result.
    pub(super) results: bool,
    /// Answered by a bare OK, and not by the ends of a statement.
    pub(super) plain: bool,
    pub(super) affected: u64,
    pub(super) insert_id: u64,
    pub(super) info: Vec<u8>,
    pub(super) warnings: Vec<(Level, u32, Vec<u8>)>,
    /// Bytes of rows that the client still takes; without, it takes all.
    pub(super) left: Option<Credit>,
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

    pub(super) fn write<R>(
        &self,
        out: &Output,
        code: impl FnOnce(&mut Encoder<'_>) -> R,
    ) -> (R, usize) {
        out.write(self.channel.id.wire, self.metadata, code)
    }

    fn charge(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            left.charge(bytes);
        }
    }

    /// One row, as a row or into the chunk. No credit or room is looked at.
    pub(super) fn put_row<E: From<SessionError>>(
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

    pub(super) fn put_chunk(&mut self, out: &Output) -> Result<(), SessionError> {
        let Some(mut chunks) = self.chunks.take() else { return Ok(()) };
        let (written, bytes) = self.write(out, |encoder| chunks.write_to(encoder));
        self.chunks = Some(chunks);
        self.charge(bytes);
        out.row_written();
        Ok(written?)
    }

    /// Whether a row can be written now. Credit that was offered is taken first.
    pub(super) fn blocked(&mut self, out: &Output) -> Option<Blocked> {
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

    pub(super) fn tell_blocked(&self, out: &Output, blocked: Blocked) {
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

pub(super) const NO_COLUMNS: &str = "a row without columns";
