//! [`Mailbox`]: the commands of a session that wait, and the one that runs.
//!
//! ```text
//!   add ──▶ waiting ──▶ running ──▶ (deferred | waiting for credit or room) ──▶ ended ─┐
//!              ▲                                                                       │
//!              └──────────────────────────── the next one ◀────────────────────────────┘
//! ```
//!
//! It decides which request a cancel, a kill or a deadline means, how much credit a handler gets, when
//! the reader must stop, and when the session may end. It is pure: it knows no lock, no connection and
//! no clock. A call takes data and the time, and returns what the caller has to do. `H` keeps the
//! connection from ending while the session has work.

use std::collections::VecDeque;
use std::time::Duration;

use super::accounts::Place;
use super::credit::{Credit, Offers};
use super::error::{CancelReason, SessionError};
use crate::codec::proto::expect;
use crate::codec::proto::plan::ExecPlan;
use crate::codec::proto::sql::StmtExecute;
use crate::codec::proto::tso::AutoSp;
use crate::runtime::is_late;
use crate::sys::clock::Instant;

/// Command that a session executes in order with its others.
#[derive(Debug)]
pub(super) struct Queued {
    /// Bytes that count against the limits of queued requests.
    pub(super) bytes: usize,
    pub(super) command: SessionCommand,
    /// Time of arrival.
    pub(super) arrived: Instant,
    /// Set when the request was cancelled before it began.
    pub(super) cancelled: Option<CancelReason>,
    /// Its place among the requests of its account.
    pub(super) place: Option<Place>,
}

#[derive(Debug)]
pub(super) enum SessionCommand {
    Open,
    Sql(Box<StmtExecute>),
    /// The request, and the bytes of memory that its plan takes in the cache if the plan is to be
    /// kept.
    Plan(Box<ExecPlan>, usize),
    Savepoint(AutoSp),
    ExpectOpen(expect::Open),
    ExpectClose,
    /// Request that was refused before its turn: beyond a limit, or in a drain.
    Broken(SessionError),
    /// Request of a kind that is not supported: a transfer of files, or `GALAXY_PREPARE_EXECUTE`.
    Unsupported,
    Close,
}

impl Queued {
    /// `memory_bytes`: memory of the message beside its own size.
    pub(super) const fn new(
        command: SessionCommand,
        memory_bytes: usize,
        arrived: Instant,
    ) -> Self {
        let message = match command {
            SessionCommand::Plan(..) => size_of::<ExecPlan>(),
            _ => size_of::<StmtExecute>(),
        };
        let bytes = memory_bytes + size_of::<Self>() + message;
        Self { bytes, command, arrived, cancelled: None, place: None }
    }

    /// Returns true for a statement, plan or savepoint. A client may cancel these, and they have a
    /// deadline.
    pub(super) const fn is_request(&self) -> bool {
        matches!(
            self.command,
            SessionCommand::Sql(_) | SessionCommand::Plan(..) | SessionCommand::Savepoint(_)
        )
    }

    const fn is_close(&self) -> bool {
        matches!(self.command, SessionCommand::Close)
    }
}

#[derive(Debug)]
pub(super) struct Mailbox<H> {
    queue: VecDeque<Queued>,
    running: Option<RunningCommand>,
    /// Set while the handler waits for credit or room.
    pub(super) handler_waits: bool,
    /// Set while the reader of the connection waits for a place in the mailbox.
    reader_wait: Option<ReaderWait>,
    /// Set when the mailbox accepts no more requests.
    closed: bool,
    /// Set when a command to close the session was added.
    closing: bool,
    /// Number of the session's requests for timestamps without an answer. They are answered elsewhere,
    /// but before the end of the session.
    timestamps: usize,
    /// Arrival of the first request, or of the first request for a timestamp.
    used: Option<Instant>,
    /// Present while the session has work, or output that was not sent.
    hold: Option<H>,
}

#[derive(Debug)]
struct RunningCommand {
    arrived: Instant,
    /// See [`Queued::is_request`].
    is_request: bool,
    /// Reason why the command is cancelled.
    cancelled: Option<CancelReason>,
    /// Credit offered and not taken yet.
    offered: Offers,
    /// Place among the requests of its account.
    place: Option<Place>,
}

/// Wait of the reader for a place in a full mailbox.
#[derive(Clone, Copy, Debug)]
struct ReaderWait {
    /// Time at which the session is closed, unless it had no chance to run.
    until: Instant,
    /// Number of commands begun since.
    begun: usize,
}

/// Time within which a running session must begin half of a full mailbox. Meanwhile its connection
/// is not read.
const FULL_MAILBOX_TIMEOUT: Duration = Duration::from_millis(500);

/// Capacity that an empty mailbox keeps.
const KEPT_CAPACITY: usize = 4;

/// Reason why a request was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotQueued {
    /// The session has ended or is ending.
    Closed,
    /// The mailbox is full, and the session does not begin its requests.
    Full,
    /// The mailbox is full, but the session begins its requests, or had no chance to run. The
    /// reader tries again when the connection is [resumed](crate::net::Connection::resume), at the
    /// latest at this time.
    Later(Instant),
    /// Waiting requests would exceed this limit of bytes.
    Bytes(usize),
}

/// Request that a cancel means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Cancelled {
    /// The running one. The caller interrupts it.
    Running,
    /// A waiting one. It is answered when its turn comes.
    Waiting,
    /// None, or one that was cancelled before.
    Nothing,
}

/// State of a session when its output has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Settled {
    /// The session has more work.
    Busy,
    /// The session has no work, and the connection may end.
    Idle,
    /// The session has no work, but a drain has begun: the session ends first.
    ToEnd,
    /// The session of one statement is done and accepts no more requests. It does not end before
    /// its reply is sent: the reply to the next statement on the same id could overtake it.
    Over,
}

impl<H> Default for Mailbox<H> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            running: None,
            handler_waits: false,
            reader_wait: None,
            closed: false,
            closing: false,
            timestamps: 0,
            used: None,
            hold: None,
        }
    }
}

impl<H> Mailbox<H> {
    /// Returns an error if the mailbox has no place for a command that has arrived `now`. `may_wait`:
    /// the reader may wait for a place.
    pub(super) fn admit(
        &mut self,
        limit: usize,
        now: Instant,
        may_wait: impl FnOnce() -> bool,
    ) -> Result<(), NotQueued> {
        if self.closed {
            return Err(NotQueued::Closed);
        }
        if self.queue.len() < limit {
            return Ok(());
        }
        if !may_wait() {
            return Err(NotQueued::Full);
        }
        match self.reader_wait {
            Some(ReaderWait { until, .. }) if now < until => Err(NotQueued::Later(until)),
            // A deadline noticed late does not count, because the session could not run either.
            Some(ReaderWait { until, begun })
                if (begun > 0 || self.running.is_some()) && !is_late(until, now) =>
            {
                Err(NotQueued::Full)
            }
            _ => {
                let until = now + FULL_MAILBOX_TIMEOUT;
                self.reader_wait = Some(ReaderWait { until, begun: 0 });
                Err(NotQueued::Later(until))
            }
        }
    }

    /// Adds an admitted command.
    pub(super) fn add(&mut self, queued: Queued, hold: impl FnOnce() -> H) {
        if self.hold.is_none() {
            self.hold = Some(hold());
        }
        if queued.is_request() {
            self.set_used(queued.arrived);
        }
        self.closing |= queued.is_close();
        self.queue.push_back(queued);
    }

    /// Offers credit to the running request. Returns false if no request runs.
    pub(super) fn offer(&mut self, bytes: i64) -> bool {
        self.running.as_mut().map(|running| running.offered.add(bytes)).is_some()
    }

    pub(super) fn take_offers(&mut self) -> Offers {
        self.running
            .as_mut()
            .map(|running| std::mem::take(&mut running.offered))
            .unwrap_or_default()
    }

    fn set_used(&mut self, now: Instant) {
        self.used.get_or_insert(now);
    }

    /// Counts a request for timestamps that has arrived `now`. Returns false if it comes behind the
    /// end of the session. Then it counts as a request on an id without a session.
    pub(super) fn ask_timestamps(&mut self, now: Instant) -> bool {
        self.set_used(now);
        let is_open = !self.closed && !self.closing;
        self.timestamps += usize::from(is_open);
        is_open
    }

    /// Called when a request for timestamps was answered. Returns true if the session must run, because
    /// its end has waited for this answer.
    pub(super) fn timestamps_answered(&mut self, draining: bool, hold: impl FnOnce() -> H) -> bool {
        self.timestamps -= 1;
        let may_end = self.timestamps == 0 && !self.closed;
        if may_end && draining {
            self.hold.get_or_insert_with(hold);
        }
        may_end && (draining || self.closing)
    }

    /// Returns true if the session never got a request.
    pub(super) const fn is_unused(&self) -> bool {
        self.used.is_none()
    }

    /// Returns true if the oldest unanswered request, or the first use of the session, arrived at
    /// `now`.
    pub(super) fn arrived_at(&self, now: Instant) -> bool {
        let running = self.running.iter().filter(|running| running.is_request);
        let waiting = self.queue.iter().filter(|queued| queued.is_request());
        let arrivals = running.map(|running| running.arrived).chain(waiting.map(|one| one.arrived));
        self.used == Some(now) || arrivals.take(1).any(|arrived| arrived == now)
    }

    /// Cancels the oldest unanswered request. `answered`: the end of the running request's answer is
    /// written. A client that has the answer means its next request.
    pub(super) fn cancel(&mut self, reason: CancelReason, answered: bool) -> Cancelled {
        let ends_session = matches!(reason, CancelReason::Session | CancelReason::Connection);
        if let Some(running) = &mut self.running
            && (running.is_request && !answered || ends_session)
        {
            return running.cancel(reason);
        }
        for queued in &mut self.queue {
            if queued.is_request() && queued.cancelled.is_none() {
                queued.cancelled = Some(reason);
                return Cancelled::Waiting;
            }
            // A request that was cancelled or refused before has its error.
            let is_refused =
                matches!(queued.command, SessionCommand::Broken(_) | SessionCommand::Unsupported);
            if queued.is_request() || is_refused {
                break;
            }
        }
        Cancelled::Nothing
    }

    /// Cancels the handler that waits for credit or room, if it waits still.
    pub(super) fn cancel_writer(&mut self) -> Cancelled {
        match &mut self.running {
            Some(running) if self.handler_waits => running.cancel(CancelReason::Deadline),
            _ => Cancelled::Nothing,
        }
    }

    /// Cancels the running request if it is older than `timeout` and not `answered`.
    pub(super) fn cancel_late(
        &mut self,
        now: Instant,
        timeout: Duration,
        answered: bool,
    ) -> Cancelled {
        match &mut self.running {
            Some(running)
                if running.is_request
                    && !answered
                    && left(running.arrived, now, timeout).is_zero() =>
            {
                running.cancel(CancelReason::Deadline)
            }
            _ => Cancelled::Nothing,
        }
    }

    /// Cancels waiting requests that are older than `timeout`. Returns true if the running request
    /// is older too, and the time until the next request becomes so old.
    pub(super) fn check_deadline(
        &mut self,
        now: Instant,
        timeout: Duration,
    ) -> (bool, Option<Duration>) {
        let running = self.running.iter().find(|running| {
            // Other commands have no deadline.
            running.is_request && running.cancelled.is_none()
        });
        let running = running.map(|running| left(running.arrived, now, timeout));
        let mut next = running.filter(|left| !left.is_zero());
        let waiting = self.queue.iter_mut().filter(|queued| queued.is_request());
        // The queue is in the order of arrival, so the first request in time ends the search.
        for queued in waiting.filter(|queued| queued.cancelled.is_none()) {
            let left = left(queued.arrived, now, timeout);
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
                break;
            }
            // The request is answered when its turn comes.
            queued.cancelled = Some(CancelReason::Deadline);
        }
        (running.is_some_and(|left| left.is_zero()), next)
    }

    /// Reason why the running request was cancelled.
    pub(super) fn cancelled(&self) -> Option<CancelReason> {
        self.running.as_ref().and_then(|running| running.cancelled)
    }

    /// Takes the next command, unless it closes the session while an earlier request for timestamps has
    /// no answer. Returns true beside it if the reader, which waits, may go on, because half of
    /// `limit` commands were begun since.
    pub(super) fn begin(&mut self, limit: usize) -> Option<(Queued, bool)> {
        if self.timestamps > 0 && self.queue.front().is_some_and(Queued::is_close) {
            return None;
        }
        let mut queued = self.queue.pop_front()?;
        self.running = Some(RunningCommand {
            arrived: queued.arrived,
            is_request: queued.is_request(),
            cancelled: None,
            offered: Offers::default(),
            place: queued.place.take(),
        });
        let resumes = self.reader_wait.as_mut().is_some_and(|wait| {
            wait.begun += 1;
            2 * wait.begun >= limit
        });
        if resumes {
            self.reader_wait = None;
        }
        Some((queued, resumes))
    }

    /// Ends the running command. Returns the reason if it was cancelled.
    pub(super) fn end(&mut self) -> Option<CancelReason> {
        self.running.take().and_then(|running| running.cancelled)
    }

    /// Takes the place of the running request, because its client may have the answer.
    pub(super) fn take_place(&mut self) -> Option<Place> {
        self.running.as_mut().and_then(|running| running.place.take())
    }

    /// Decides whether a waiting handler goes on: to write, or to ask for more credit. `false` ends
    /// its request, and `None` makes it wait. Adds offers to `left`.
    pub(super) fn may_write(
        &mut self,
        left: &mut Option<Credit>,
        has_room: bool,
        is_finished: bool,
    ) -> Option<bool> {
        let offered = self.take_offers();
        let Some(left) = left else { return has_room.then_some(true) };
        if left.add(offered) && left.is_spent() {
            return Some(true);
        }
        if left.is_spent() {
            // The client grants no more.
            return is_finished.then_some(false);
        }
        has_room.then_some(true)
    }

    /// Returns true if the mailbox accepts no more requests.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Closes the mailbox, and returns the requests in it. Returns true beside them if the reader
    /// waits. The hold is returned if no command runs.
    pub(super) fn close(&mut self) -> (VecDeque<Queued>, bool, Option<H>) {
        self.closed = true;
        let hold = if self.running.is_none() { self.hold.take() } else { None };
        (std::mem::take(&mut self.queue), self.reader_wait.take().is_some(), hold)
    }

    /// Closes the mailbox if the session is idle. Returns true if it did. In a drain a busy session
    /// closes itself, by [`close_if_done`](Self::close_if_done).
    pub(super) const fn close_if_idle(&mut self) -> bool {
        let idle = !self.closed && self.is_idle();
        self.closed |= idle;
        idle
    }

    /// Returns true if the session has no work and all its output was sent.
    pub(super) const fn is_idle(&self) -> bool {
        self.hold.is_none() && self.timestamps == 0
    }

    /// Closes the mailbox, in a drain, if the session has done all its work. Returns true if it did.
    pub(super) fn close_if_done(&mut self) -> bool {
        // Without a hold the session was idle: the drain has closed it, or will.
        let has_work = self.timestamps > 0 || !self.queue.is_empty();
        let done = !self.closed && self.hold.is_some() && !has_work;
        self.closed |= done;
        done
    }

    /// Called when the output of the session has been sent. `over`: the session accepts no more
    /// requests after its first. Returns the hold if the connection may end.
    pub(super) fn settle(&mut self, over: bool, draining: bool) -> (Settled, Option<H>) {
        if self.running.is_some() || !self.queue.is_empty() {
            return (Settled::Busy, None);
        }
        self.closed |= over;
        if draining && !self.closed && self.timestamps == 0 {
            return (Settled::ToEnd, None);
        }
        // After a burst the capacity would stay allocated as long as the session.
        self.queue.shrink_to(KEPT_CAPACITY);
        (if over { Settled::Over } else { Settled::Idle }, self.hold.take())
    }
}

impl RunningCommand {
    fn cancel(&mut self, reason: CancelReason) -> Cancelled {
        if self.cancelled.is_some() {
            return Cancelled::Nothing;
        }
        self.cancelled = Some(reason);
        Cancelled::Running
    }
}

/// Time until a request is late.
fn left(arrived: Instant, now: Instant, timeout: Duration) -> Duration {
    timeout.saturating_sub(now.duration_since(arrived))
}

#[cfg(test)]
mod tests;
