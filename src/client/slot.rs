//! [`Slot`]: a request of a session, and its answer.

use std::thread::Thread;

use super::error::Error;
use crate::codec::message::{ClientMessage, ServerKind};
use crate::net::Job;
use crate::sys::clock::Instant;

/// Kind of a request, which decides about the frames of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Opens the session; the answer is OK. The client sends it without a call of the user.
    Open,
    /// Statement or plan; the answer is a result.
    Statement,
    /// Savepoint; the answer is OK.
    Plain,
    /// Request for timestamps.
    Timestamps,
    /// Closes the session; the answer is OK. The client sends it without a call of the user.
    Close,
}

/// Progress of a request.
#[derive(Debug)]
pub(super) enum Place {
    /// The request waits to be sent.
    Held(Box<ClientMessage>),
    /// The request is on the wire.
    Sent,
    /// The last frame of the answer has arrived.
    Answered,
}

/// Position within the answer to an [`Asked::Statement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    Columns,
    Rows,
    /// Behind a mark between two results, or a mark behind the last result. The columns of the next
    /// result stand before or behind the mark.
    Between,
    Fetched,
}

/// Receiver of the notification that a part of the answer is there.
pub(super) enum Watcher {
    Thread(Thread),
    Call(Job),
}

/// Meaning of a frame for the answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The frame belongs to the answer, which continues.
    More,
    /// The frame completes the answer.
    End,
    /// The frame is an error and ends the answer.
    Error,
    /// The server waits for an offer of credit.
    Stopped,
    /// The frame violates the protocol.
    Illegal,
}

/// Room for a usual short answer, in bytes.
const SHORT_ANSWER: usize = 256;

/// Request of a session.
pub(super) struct Slot {
    /// Number of the request in its session.
    pub(super) seq: u64,
    asked: Asked,
    phase: Phase,
    /// Set when a result was complete and another one may follow.
    has_result: bool,
    /// Set if the request asked for chunks, so the answer may have them.
    chunks: bool,
    pub(super) place: Place,
    /// The request with its text, for a server that does not know the digest.
    pub(super) again: Option<Box<ClientMessage>>,
    /// Frames of the answer that were not taken yet.
    pub(super) bytes: Vec<u8>,
    /// Credit in bytes; `None` if the server sends without limit.
    pub(super) left: Option<i64>,
    /// Set while the server waits for an offer of credit.
    pub(super) stopped: bool,
    /// Result of the request. It may be set before the answer has arrived.
    pub(super) result: Option<Result<(), Error>>,
    /// Set when the result was taken, or no caller wants it.
    pub(super) taken: bool,
    /// Set when the statement was interrupted because no caller wants the answer.
    pub(super) killed: bool,
    /// Set if the user interrupted the request before the server accepted its digest.
    pub(super) cancelled: bool,
    pub(super) deadline: Option<Instant>,
    watcher: Option<(usize, Watcher)>,
}

impl Slot {
    pub(super) fn new(asked: Asked, message: ClientMessage) -> Self {
        let chunks = match &message {
            ClientMessage::ExecSql(sql) => sql.chunk_result.unwrap_or_default(),
            ClientMessage::ExecPlan(plan) => plan.chunk_result.unwrap_or_default(),
            _ => false,
        };
        Self {
            seq: 0,
            asked,
            phase: Phase::Start,
            has_result: false,
            chunks,
            place: Place::Held(Box::new(message)),
            again: None,
            bytes: Vec::new(),
            left: None,
            stopped: false,
            result: None,
            taken: matches!(asked, Asked::Open | Asked::Close),
            killed: false,
            cancelled: false,
            deadline: None,
            watcher: None,
        }
    }

    pub(super) const fn asked(&self) -> Asked {
        self.asked
    }

    pub(super) const fn is_held(&self) -> bool {
        matches!(self.place, Place::Held(_))
    }

    pub(super) const fn is_sent(&self) -> bool {
        matches!(self.place, Place::Sent)
    }

    /// Returns true if a kill can reach the request, because it was sent and has no answer.
    pub(super) fn is_request_sent(&self) -> bool {
        self.is_sent() && self.asked != Asked::Open
    }

    pub(super) const fn is_answered(&self) -> bool {
        matches!(self.place, Place::Answered)
    }

    /// Returns true if the answer is complete, and its result was taken or no caller wants it.
    pub(super) const fn is_done(&self) -> bool {
        self.is_answered() && self.taken
    }

    /// Marks the request as answered, and decrements `unanswered` once.
    pub(super) fn answer(&mut self, unanswered: &mut usize) {
        if !self.is_answered() {
            self.place = Place::Answered;
            self.left = None;
            *unanswered -= 1;
        }
    }

    /// Adds a frame of the answer. Returns the size of the unread part if it exceeds `limit`.
    pub(super) fn receive(&mut self, frame: &[u8], limit: usize) -> Result<(), usize> {
        if let Some(left) = &mut self.left {
            *left -= i64::try_from(frame.len()).unwrap_or(i64::MAX);
        }
        if !self.taken && self.result.is_none() {
            if self.bytes.capacity() == 0 {
                self.bytes.reserve(SHORT_ANSWER.max(frame.len()));
            }
            self.bytes.extend_from_slice(frame);
        }
        if self.bytes.len() > limit { Err(self.bytes.len()) } else { Ok(()) }
    }

    /// Counts another window of credit, if little is unread, and little is left or the server has
    /// stopped. Returns true if the caller must send the offer.
    ///
    /// A stop may have crossed the last grant, or the server may have charged bytes that are not of
    /// this answer. The client cannot tell. Without a grant the server might wait for ever, so it
    /// gets one.
    pub(super) fn grant(&mut self, window: i64) -> bool {
        let Some(left) = &mut self.left else { return false };
        let unread = i64::try_from(self.bytes.len()).unwrap_or(i64::MAX);
        let granted = (self.stopped || *left < window / 5) && unread < window / 5;
        if granted {
            *left = window;
            self.stopped = false;
        }
        granted
    }

    /// Returns true if no part of the answer has arrived.
    pub(super) const fn is_untouched(&self) -> bool {
        matches!(self.phase, Phase::Start) && self.bytes.is_empty()
    }

    /// Returns true if the request is a call whose first result was complete. If it fails later,
    /// its earlier changes may last.
    pub(super) const fn has_result(&self) -> bool {
        self.has_result
    }

    /// Returns true if the request was sent, is unanswered, and no caller waits for its answer.
    pub(super) fn is_left(&self) -> bool {
        let own = matches!(self.asked, Asked::Open | Asked::Close);
        self.is_sent() && !own && (self.taken || self.result.is_some())
    }

    /// Returns true if the request is unanswered and a caller waits for its answer.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_answered() && !self.taken && self.result.is_none()
    }

    /// Handles a frame of this kind.
    pub(super) fn step(&mut self, kind: Option<ServerKind>) -> Step {
        use ServerKind as Kind;
        let (phase, step) = match (self.asked, self.phase, kind) {
            (_, phase, Some(Kind::Error)) => (phase, Step::Error),
            (Asked::Open | Asked::Plain | Asked::Close, phase, Some(Kind::Ok)) => {
                (phase, Step::End)
            }
            (Asked::Timestamps, phase, Some(Kind::Tso)) => (phase, Step::End),
            (_, phase, Some(Kind::Notice)) => (phase, Step::More),
            (Asked::Statement, phase, Some(kind)) => match (phase, kind) {
                (
                    Phase::Start | Phase::Columns | Phase::Rows | Phase::Between,
                    Kind::ColumnMetaData,
                ) => (Phase::Columns, Step::More),
                (Phase::Start | Phase::Between | Phase::Fetched, Kind::StmtExecuteOk) => {
                    (phase, Step::End)
                }
                (Phase::Start | Phase::Fetched, _) => (phase, Step::Illegal),
                (_, Kind::Row) => (Phase::Rows, Step::More),
                (_, Kind::Chunk) if self.chunks => (Phase::Rows, Step::More),
                (_, Kind::FetchDone) => (Phase::Fetched, Step::More),
                (_, Kind::FetchDoneMoreResultsets | Kind::FetchDoneMoreOutParams) => {
                    (Phase::Between, Step::More)
                }
                (_, Kind::TokenDone) => (phase, Step::Stopped),
                _ => (phase, Step::Illegal),
            },
            (_, phase, _) => (phase, Step::Illegal),
        };
        self.has_result |= phase == Phase::Between;
        self.phase = phase;
        step
    }

    /// Returns true if `least` bytes, the result, or all that a stopped server sent can be taken.
    pub(super) fn is_ready(&self, least: usize) -> bool {
        let stopped = self.stopped && !self.bytes.is_empty();
        self.result.is_some() || self.bytes.len() >= least || stopped
    }

    /// Sets the watcher. Returns the previous one, which is not notified. The caller drops it
    /// without a lock.
    #[must_use]
    pub(super) fn watch(&mut self, least: usize, watcher: Watcher) -> Option<Watcher> {
        self.watcher.replace((least, watcher)).map(|(_, before)| before)
    }

    /// Takes the watcher if it must be notified now.
    pub(super) fn take_watcher(&mut self) -> Option<Watcher> {
        let &(least, _) = self.watcher.as_ref()?;
        if self.is_ready(least) { Some(self.watcher.take()?.1) } else { None }
    }

    /// Discards the answer. Returns the watcher, which is not notified. The caller drops it without
    /// a lock.
    #[must_use]
    pub(super) fn forget(&mut self) -> Option<Watcher> {
        self.taken = true;
        self.bytes = Vec::new();
        self.again = None;
        self.watcher.take().map(|(_, watcher)| watcher)
    }

    /// Sets the result, unless it is set already.
    pub(super) fn finish(&mut self, result: Result<(), Error>) {
        self.again = None;
        self.result.get_or_insert(result);
    }
}
