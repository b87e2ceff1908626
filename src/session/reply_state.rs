//! [`ReplyState`]: state of a reply, and its encoding.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::credit::Credit;
use super::ending::Ending;
use super::error::SessionError;
use super::output::Output;
use super::relay::{Relayed, Relaying, ResultPosition};
use super::row::{Cells, Row, RowSource};
use super::session_shared::SessionShared;
use crate::codec::chunk::ChunkWriter;
use crate::codec::encoder::{Encoder, Metadata};
use crate::codec::message::ServerKind;
use crate::runtime::log_some;
use crate::stats::Counter;
use crate::sync::shim::lock;

/// State of a reply beside its rows.
pub(super) struct ReplyState {
    pub(super) shared: Arc<SessionShared>,
    pub(super) form: ReplyForm,
    pub(super) chunks: Option<ChunkWriter>,
    /// Number of columns of the current result; 0 without one.
    pub(super) columns: usize,
    /// Set when the reply has a result.
    pub(super) results: bool,
    pub(super) ending: Ending,
    /// Credit of the client; `None` if it takes all rows.
    pub(super) left: Option<Credit>,
    pub(super) feed: Option<Feed>,
    /// Set if the feed had a turn since it last waited for the client.
    had_turn: bool,
    pub(super) deferral: Option<Arc<Deferral>>,
}

/// Form of the reply that the client asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyForm {
    metadata: Metadata,
    pub(super) chunks: bool,
    credit: Option<Credit>,
    /// Set if the client wants to know the cost of the statement.
    feedback: bool,
    /// Set if a bare OK ends the reply, without the end of a statement.
    pub(super) plain: bool,
}

impl ReplyForm {
    /// Form of a reply that is a bare OK.
    pub(super) const PLAIN: Self = Self {
        metadata: Metadata::Full,
        chunks: false,
        credit: None,
        feedback: false,
        plain: true,
    };

    /// Form of the reply to a statement or plan. `token` is its credit in KiB; -1 means no limit.
    pub(super) fn of(
        compact: Option<bool>,
        chunks: Option<bool>,
        token: Option<i32>,
        feedback: Option<bool>,
    ) -> Result<Self, SessionError> {
        let credit = match token {
            None | Some(-1) => None,
            Some(kilobytes @ 0..) => Some(Credit::new(i64::from(kilobytes) * 1024)),
            Some(_) => return Err(SessionError::unsupported("Invalid Token")),
        };
        let metadata = if compact == Some(true) { Metadata::Compact } else { Metadata::Full };
        let chunks = chunks.unwrap_or_default();
        let feedback = feedback.unwrap_or_default();
        Ok(Self { metadata, chunks, credit, feedback, plain: false })
    }
}

/// Source of the rest of a reply.
pub(super) enum Feed {
    Rows(Box<dyn RowSource>),
    Relay(Relaying),
}

/// Reason why a reply cannot continue now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// The client must grant credit.
    Credit,
    /// The client must read.
    Room,
    /// The relay must get a frame.
    Relay,
}

/// Result of a turn of a feed.
#[derive(Debug)]
pub(super) enum Pulled {
    /// The feed is exhausted.
    Done,
    /// The feed may have more. Other work goes first.
    Budget,
    /// The feed must wait.
    Blocked(Blocked),
}

/// Bytes that a source or relay may send in a turn.
const FEED_BUDGET: usize = 256 << 10;
/// Bytes that the source or relay may send in its first turn. A longer reply goes behind shorter
/// ones.
const FIRST_FEED_BUDGET: usize = 32 << 10;

impl ReplyState {
    pub(super) fn new(shared: Arc<SessionShared>, form: ReplyForm) -> Self {
        Self {
            shared,
            form,
            chunks: None,
            columns: 0,
            results: false,
            ending: Ending::default(),
            left: form.credit,
            feed: None,
            had_turn: false,
            deferral: None,
        }
    }

    pub(super) fn write<R>(
        &self,
        out: &Output,
        code: impl FnOnce(&mut Encoder<'_>) -> R,
    ) -> (R, usize) {
        out.write(self.shared.id.wire, self.form.metadata, code)
    }

    fn charge(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            left.charge(bytes);
        }
    }

    /// Writes one row, as a row or into the chunk. The caller has checked credit and room.
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

    /// Returns the reason why no row can be written now. Adds offered credit before.
    pub(super) fn blocked(&mut self, out: &Output) -> Option<Blocked> {
        if let Some(left) = &mut self.left
            && left.is_spent()
        {
            left.add(self.shared.mail(|mail| mail.take_offers()));
            if left.is_spent() {
                return Some(Blocked::Credit);
            }
        }
        (out.is_pressed() && out.conn().is_full()).then_some(Blocked::Room)
    }

    pub(super) fn report_blocked(&self, out: &Output, blocked: Blocked) {
        if blocked == Blocked::Credit {
            self.write(out, |encoder| encoder.token_done());
            out.conn().count(Counter::TokenWaits);
        }
        out.flush();
    }

    /// Sends rows or frames of the feed for a turn, while the client has credit and room.
    /// `panicked` maps a panic of the feed to an error.
    pub(super) fn pull(
        &mut self,
        out: &Output,
        panicked: impl FnOnce(Box<dyn Any + Send>) -> SessionError,
    ) -> Result<Pulled, SessionError> {
        let Some(mut feed) = self.feed.take() else { return Ok(Pulled::Done) };
        let pulled = catch_unwind(AssertUnwindSafe(|| self.pull_from(&mut feed, out)));
        // The feed is put back after a panic too: its drop may panic again, which `finish` catches.
        self.feed = Some(feed);
        pulled.unwrap_or_else(|payload| Err(panicked(payload)))
    }

    fn pull_from(&mut self, feed: &mut Feed, out: &Output) -> Result<Pulled, SessionError> {
        let start = out.sent_or_written();
        let first = !std::mem::replace(&mut self.had_turn, true);
        let budget = if first { FIRST_FEED_BUDGET } else { FEED_BUDGET };
        loop {
            if self.shared.must_end() {
                return Err(SessionError::interrupted());
            }
            if let Some(blocked) = self.blocked(out) {
                self.report_blocked(out, blocked);
                self.had_turn = false;
                return Ok(Pulled::Blocked(blocked));
            }
            if out.sent_or_written().wrapping_sub(start) >= budget {
                return Ok(Pulled::Budget);
            }
            let pulled = match feed {
                Feed::Rows(source) => self.pull_row(&mut **source, out),
                Feed::Relay(relaying) => self.pull_frame(relaying, out),
            };
            if let Some(pulled) = pulled? {
                return Ok(pulled);
            }
        }
    }

    /// Writes one row. Returns `None` if there may be more.
    fn pull_row(
        &mut self,
        source: &mut dyn RowSource,
        out: &Output,
    ) -> Result<Option<Pulled>, SessionError> {
        if self.columns == 0 {
            return Err(SessionError::unsupported(NO_COLUMNS));
        }
        let more = self.put_row(out, |row| source.next(row))?;
        Ok((!more).then_some(Pulled::Done))
    }

    /// Writes one frame. Returns `None` if there may be more.
    fn pull_frame(
        &mut self,
        relaying: &mut Relaying,
        out: &Output,
    ) -> Result<Option<Pulled>, SessionError> {
        let Relaying { relay, wake, position, .. } = relaying;
        wake.ask();
        match relay.next(wake)? {
            Relayed::Frame { kind, body } => {
                *position = self.check_frame(*position, kind)?;
                self.put_frame(out, kind, body)?;
                Ok(None)
            }
            Relayed::Later => {
                self.report_blocked(out, Blocked::Relay);
                Ok(Some(Pulled::Blocked(Blocked::Relay)))
            }
            Relayed::End(ending) => {
                self.ending.replace_by(ending)?;
                if *position == ResultPosition::Between {
                    return Err(self.out_of_place("the end"));
                }
                Ok(Some(Pulled::Done))
            }
        }
    }

    /// Returns the position behind a relayed frame, or an error if the client must not get it.
    fn check_frame(
        &self,
        position: ResultPosition,
        kind: ServerKind,
    ) -> Result<ResultPosition, SessionError> {
        let unasked = kind == ServerKind::Chunk && !self.form.chunks;
        match position.after(kind) {
            Some(next) if !self.form.plain && !unasked => Ok(next),
            _ => Err(self.out_of_place(kind.protocol_name())),
        }
    }

    fn out_of_place(&self, what: &str) -> SessionError {
        self.shared.conn.count(Counter::RelaysRefused);
        let (group, session) = (self.shared.conn.group(), self.shared.id);
        log_some!(group, Relay, WARN, warn, %session, what, "relayed out of place");
        SessionError::unsupported(format!("{what} was relayed out of place"))
    }

    /// Writes one frame of a relay.
    fn put_frame(
        &mut self,
        out: &Output,
        kind: ServerKind,
        body: &[u8],
    ) -> Result<(), SessionError> {
        // Rows that the handler wrote itself come before.
        self.put_chunk(out)?;
        let (written, bytes) = self.write(out, |encoder| encoder.frame(kind.number(), &[body]));
        written?;
        self.results = true;
        if matches!(kind, ServerKind::Row | ServerKind::Chunk) {
            self.charge(bytes);
        }
        out.row_written();
        Ok(())
    }

    /// Returns true if the reason of the wait is gone.
    pub(super) fn is_unblocked(&mut self, blocked: Blocked, out: &Output) -> bool {
        match blocked {
            Blocked::Credit => {
                let before = self.left;
                let blocked = self.blocked(out) == Some(Blocked::Credit);
                // The new credit does not suffice. The client must learn that, or both sides would
                // wait.
                if blocked && self.left != before {
                    self.report_blocked(out, Blocked::Credit);
                }
                !blocked
            }
            Blocked::Room => out.conn().has_room(),
            Blocked::Relay => match &self.feed {
                Some(Feed::Relay(relaying)) => relaying.wake.is_made(),
                _ => true,
            },
        }
    }

    /// Handles the return of a handler: writes the end of the reply, unless the rest comes later.
    pub(super) fn conclude(
        mut self: Box<Self>,
        out: &Output,
        result: Result<(), SessionError>,
    ) -> Outcome {
        let result = result.and_then(|()| self.ending.take_error());
        let result = result.map_err(|error| self.shared.reason(error));
        match (result, self.deferral.take()) {
            (Ok(()), Some(deferral)) => Outcome::Deferred(deferral, None),
            (Err(error), Some(deferral)) => match deferral.claim() {
                // The holder of the deferred handle comes too late.
                Some(state) => state.end(out, Err(error)),
                // It has answered or is answering, and that answer counts.
                None => Outcome::Deferred(deferral, Some(error).filter(SessionError::is_fatal)),
            },
            (Ok(()), None) if self.feed.is_some() => Outcome::Fed(self, None),
            (result, None) => self.end(out, result),
        }
    }

    /// Writes the end of a reply, unless the session ends with it.
    pub(super) fn end(
        mut self: Box<Self>,
        out: &Output,
        result: Result<(), SessionError>,
    ) -> Outcome {
        match result {
            Err(error) if error.is_fatal() => Outcome::Failed(self, error),
            result => Outcome::Ended(self.finish(out, result)),
        }
    }

    /// Writes the end of a reply.
    pub(super) fn finish(
        &mut self,
        out: &Output,
        result: Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        // Foreign value: its drop may panic.
        if let Some(feed) = self.feed.take() {
            self.shared.conn.group().guard("drop", || drop(feed));
        }
        let result = result.and_then(|()| self.put_chunk(out));
        self.shared.set_answered();
        if !self.form.feedback {
            self.ending.feedback = None;
        }
        self.write(out, |encoder| match &result {
            Ok(()) if self.form.plain => encoder.ok(None),
            Ok(()) => self.ending.put(encoder, self.results),
            Err(error) => self.ending.put_failed(encoder, error),
        });
        result
    }
}

/// Part of a [`Deferred`](super::Deferred) that its session shares.
pub(super) struct Deferral {
    /// Taken by the side that answers. So a cancelled request keeps no connection, however late its
    /// service drops the handle.
    state: Mutex<Option<Box<ReplyState>>>,
    outcome: Mutex<Option<Outcome>>,
}

/// State of a request after its handler or [`Deferred::finish`] has returned.
pub(super) enum Outcome {
    /// The request was answered completely.
    Ended(Result<(), SessionError>),
    /// The request failed with a fatal error, which the worker of the session writes. It closes the
    /// mailbox with it, so the client gets an answer to each later request.
    Failed(Box<ReplyState>, SessionError),
    /// The rest of the reply comes from a feed, which waits for a condition or not.
    Fed(Box<ReplyState>, Option<Blocked>),
    /// The request was deferred. Beside it the error of the handler, if it ends the session after the
    /// answer.
    Deferred(Arc<Deferral>, Option<SessionError>),
}

impl Deferral {
    pub(super) fn new(state: Option<Box<ReplyState>>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), outcome: Mutex::default() })
    }

    /// Claims the right to answer. Only the first caller gets it. The state may contain a source or
    /// relay, whose drop runs foreign code.
    pub(super) fn claim(&self) -> Option<Box<ReplyState>> {
        lock(&self.state).take()
    }

    /// Returns true if the request was cancelled or answered.
    pub(super) fn is_cancelled(&self) -> bool {
        lock(&self.state).as_ref().is_none_or(|state| state.shared.must_end())
    }

    pub(super) fn set_outcome(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
    }

    pub(super) fn take_outcome(&self) -> Option<Outcome> {
        lock(&self.outcome).take()
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        // The session has ended, so it does not take the rest of the answer, which is a foreign value.
        let rest = match self.take_outcome() {
            Some(Outcome::Deferred(again, _)) => again.claim(),
            Some(Outcome::Fed(state, _) | Outcome::Failed(state, _)) => Some(state),
            _ => None,
        };
        if let Some(state) = rest {
            let shared = Arc::clone(&state.shared);
            shared.conn.group().guard("drop", || drop(state));
        }
    }
}

pub(super) const NO_COLUMNS: &str = "a row without columns";
