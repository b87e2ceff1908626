//! [`Exchange`]: the requests of one session that are on their way, in order.
//!
//! ```text
//!  oldest                                                  newest
//!  ┌──────────┬──────────┬──────────┬──────────┬─────────────────┐
//!  │ answered │ answered │ sent     │ sent     │ held            │
//!  │ not taken│ taken    │ receiving│ waits    │ not on the wire │
//!  └──────────┴──────────┴────▲─────┴──────────┴─────────────────┘
//!                             └ what a frame of the session belongs to
//! ```
//!
//! A reply has no number: it belongs to the oldest request that is not answered. So a request that
//! nobody waits for any more keeps its place until its answer has come.

use std::collections::VecDeque;
use std::thread::Thread;
use std::time::Instant;

use super::error::Error;
use crate::codec::kind::ServerKind;
use crate::codec::message::ClientMessage;

/// What a request asks for, and so which frames answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The session is opened: OK. Nobody waits for it.
    Open,
    /// A statement or a plan: a result.
    Statement,
    /// A savepoint: OK.
    Plain,
    /// Timestamps.
    Timestamps,
    /// The session is closed: OK. Nobody waits for it.
    Close,
}

/// How far the request is.
#[derive(Debug)]
pub(super) enum Place {
    /// Waits to be sent.
    Held(Box<ClientMessage>),
    /// It is on the wire.
    Sent,
    /// Its last frame has come.
    Answered,
}

/// Which frame may come next, for [`Asked::Statement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    Columns,
    Rows,
    Fetched,
}

/// What is called when there is something to take.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Who is told when there is something to take.
pub(super) enum Watcher {
    Thread(Thread),
    Call(Job),
}

/// What a frame did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It belongs to the answer, more will come.
    More,
    /// The answer is whole.
    End,
    /// It is an error, and the last frame of the answer.
    Error,
    /// The server waits for an offer.
    Stopped,
    /// It must not come here.
    Illegal,
}

/// One request.
pub(super) struct Slot {
    asked: Asked,
    phase: Phase,
    /// Chunks were asked for: the answer may have them.
    chunks: bool,
    pub(super) place: Place,
    /// With its text, for a server that does not know the digest.
    pub(super) again: Option<Box<ClientMessage>>,
    /// Frames of the answer that were not taken yet.
    pub(super) bytes: Vec<u8>,
    /// Bytes that the server may still send; without, it sends all.
    pub(super) left: Option<i64>,
    /// The server waits for an offer.
    pub(super) stopped: bool,
    /// How it ended, for who waits; perhaps before its answer came.
    pub(super) result: Option<Result<(), Error>>,
    /// The result was taken, or nobody wants it.
    pub(super) taken: bool,
    /// Its statement was interrupted, because nobody wants the answer.
    pub(super) killed: bool,
    /// It was interrupted by its user before it was known whether its digest is enough.
    pub(super) cancelled: bool,
    pub(super) deadline: Option<Instant>,
    watcher: Option<(usize, Watcher)>,
}

impl Slot {
    pub(super) fn new(asked: Asked, message: ClientMessage) -> Self {
        let chunks = match &message {
            ClientMessage::ExecSql(sql) => sql.chunk_result(),
            ClientMessage::ExecPlan(plan) => plan.chunk_result(),
            _ => false,
        };
        Self {
            asked,
            phase: Phase::Start,
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

    pub(super) const fn is_answered(&self) -> bool {
        matches!(self.place, Place::Answered)
    }

    /// Its last frame has come, or none is to come: `unanswered` is one less.
    pub(super) fn answer(&mut self, unanswered: &mut usize) {
        if !self.is_answered() {
            self.place = Place::Answered;
            *unanswered -= 1;
        }
    }

    /// Nothing of its answer has come.
    pub(super) const fn is_untouched(&self) -> bool {
        matches!(self.phase, Phase::Start) && self.bytes.is_empty()
    }

    /// Nobody waits for the answer any more, which is still to come.
    pub(super) fn is_left(&self) -> bool {
        let own = matches!(self.asked, Asked::Open | Asked::Close);
        self.is_sent() && !own && (self.taken || self.result.is_some())
    }

    /// Somebody waits for the answer, which is still to come.
    fn is_wanted(&self) -> bool {
        !self.is_answered() && !self.taken && self.result.is_none()
    }

    /// A frame of this kind has come.
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
                (Phase::Start | Phase::Columns, Kind::ColumnMetaData) => {
                    (Phase::Columns, Step::More)
                }
                (Phase::Columns | Phase::Rows, Kind::Row) => (Phase::Rows, Step::More),
                (Phase::Columns | Phase::Rows, Kind::Chunk) if self.chunks => {
                    (Phase::Rows, Step::More)
                }
                (Phase::Columns | Phase::Rows, Kind::FetchDone) => (Phase::Fetched, Step::More),
                (
                    Phase::Columns | Phase::Rows,
                    Kind::FetchDoneMoreResultsets | Kind::FetchDoneMoreOutParams,
                ) => (Phase::Start, Step::More),
                (Phase::Columns | Phase::Rows, Kind::TokenDone) => (phase, Step::Stopped),
                (Phase::Start | Phase::Fetched, Kind::StmtExecuteOk) => (phase, Step::End),
                _ => (phase, Step::Illegal),
            },
            (_, phase, _) => (phase, Step::Illegal),
        };
        self.phase = phase;
        step
    }

    /// There is something to take for who wants `least` bytes or the end.
    pub(super) fn is_ready(&self, least: usize) -> bool {
        let stopped = self.stopped && !self.bytes.is_empty();
        self.result.is_some() || self.bytes.len() >= least || stopped
    }

    /// Who watched before is not told any more, and is to be dropped where no lock is held.
    #[must_use]
    pub(super) fn watch(&mut self, least: usize, watcher: Watcher) -> Option<Watcher> {
        self.watcher.replace((least, watcher)).map(|(_, before)| before)
    }

    /// Who is to be told now.
    pub(super) fn take_watcher(&mut self) -> Option<Watcher> {
        let &(least, _) = self.watcher.as_ref()?;
        if self.is_ready(least) { Some(self.watcher.take()?.1) } else { None }
    }

    /// Nobody wants the answer any more. Who watched for it is not told, and is to be dropped where no
    /// lock is held.
    #[must_use]
    pub(super) fn forget(&mut self) -> Option<Watcher> {
        self.taken = true;
        self.bytes = Vec::new();
        self.again = None;
        self.watcher.take().map(|(_, watcher)| watcher)
    }

    /// How it ended. The first counts.
    pub(super) fn finish(&mut self, result: Result<(), Error>) {
        self.again = None;
        self.result.get_or_insert(result);
    }
}

/// The requests of one session.
pub(super) struct Exchange {
    slots: VecDeque<Slot>,
    /// Number of the first of them.
    first: u64,
    /// What it died of; nothing more is sent for it.
    pub(super) dead: Option<Error>,
    /// It lasts for one request.
    pub(super) once: bool,
    /// The session was opened at the server, or is about to be.
    pub(super) opened: bool,
    /// No more requests: it goes when those that it has are done.
    pub(super) closing: bool,
}

impl Exchange {
    pub(super) const fn new(once: bool) -> Self {
        let slots = VecDeque::new();
        Self { slots, first: 0, dead: None, once, opened: false, closing: once }
    }

    pub(super) fn push(&mut self, slot: Slot) -> u64 {
        self.slots.push_back(slot);
        self.first + self.slots.len() as u64 - 1
    }

    pub(super) fn slot(&mut self, seq: u64) -> Option<&mut Slot> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(index)
    }

    pub(super) fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    /// The one that the next frame belongs to.
    pub(super) fn current(&mut self) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.is_sent())
    }

    /// Nothing was sent behind the one that the next frame belongs to.
    pub(super) fn is_current_last(&self) -> bool {
        self.slots.iter().filter(|slot| slot.is_sent()).nth(1).is_none()
    }

    /// Whether somebody waits for one of the answers that are to come.
    pub(super) fn is_wanted(&self) -> bool {
        self.slots.iter().any(Slot::is_wanted)
    }

    /// Requests that are on the wire, and whether nobody wants one of them any more.
    pub(super) fn in_flight(&self) -> (usize, bool) {
        let sent = self.slots.iter().filter(|slot| slot.is_sent());
        sent.fold((0, false), |(count, left), slot| (count + 1, left || slot.is_left()))
    }

    /// Number of the first that is still known.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// Number of the one that the next frame belongs to.
    pub(super) fn current_seq(&self) -> u64 {
        let index = self.slots.iter().position(Slot::is_sent).unwrap_or(self.slots.len());
        self.first + index as u64
    }

    /// The first that waits to be sent.
    pub(super) fn first_held(&mut self) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.is_held())
    }

    /// The last deadline of those that are not answered.
    pub(super) fn last_deadline(&self) -> Option<Instant> {
        let open = self.slots.iter().filter(|slot| !slot.is_answered());
        open.filter_map(|slot| slot.deadline).max()
    }

    /// Forgets what is answered and taken. Whether nothing is left.
    pub(super) fn tidy(&mut self) -> bool {
        while self.slots.front().is_some_and(|slot| slot.is_answered() && slot.taken) {
            self.slots.pop_front();
            self.first += 1;
        }
        self.slots.is_empty()
    }

    /// Nothing of it is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.iter().all(Slot::is_answered)
    }
}
