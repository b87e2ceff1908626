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
use std::time::{Duration, Instant};

use super::accounts::Place;
use super::credit::{Credit, Offers};
use super::error::{CancelReason, SessionError};
use crate::codec::proto::expect;
use crate::codec::proto::plan::ExecPlan;
use crate::codec::proto::sql::StmtExecute;
use crate::codec::proto::tso::AutoSp;
use crate::runtime::is_late;

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
    Plan(Box<ExecPlan>),
    Savepoint(AutoSp),
    ExpectOpen(expect::Open),
    ExpectClose,
    /// Message beyond the limits of the codec.
    Broken(SessionError),
    /// Transfer of files, which is not supported.
    File,
    Close,
}

impl Queued {
    /// `memory_bytes`: memory of the message beside its own size.
    pub(super) const fn new(
        command: SessionCommand,
        memory_bytes: usize,
        arrived: Instant,
    ) -> Self {
        let bytes = memory_bytes + size_of::<Self>() + size_of::<StmtExecute>();
        Self { bytes, command, arrived, cancelled: None, place: None }
    }

    /// Returns true for a statement, plan or savepoint. A client may cancel these, and they have a
    /// deadline.
    pub(super) const fn is_request(&self) -> bool {
        matches!(
            self.command,
            SessionCommand::Sql(_) | SessionCommand::Plan(_) | SessionCommand::Savepoint(_)
        )
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
    _place: Option<Place>,
}

/// Wait of the reader for a place in a full mailbox.
#[derive(Clone, Copy, Debug)]
struct ReaderWait {
    /// Time at which the session is closed, unless it had no chance to run.
    until: Instant,
    /// Set when a request has begun since.
    begun: bool,
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
                if (begun || self.running.is_some()) && !is_late(until, now) =>
            {
                Err(NotQueued::Full)
            }
            _ => {
                let until = now + FULL_MAILBOX_TIMEOUT;
                self.reader_wait = Some(ReaderWait { until, begun: false });
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

    pub(super) fn set_used(&mut self, now: Instant) {
        self.used.get_or_insert(now);
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
        match self.queue.iter_mut().find(|queued| queued.is_request()) {
            Some(first) if first.cancelled.is_none() => {
                first.cancelled = Some(reason);
                Cancelled::Waiting
            }
            _ => Cancelled::Nothing,
        }
    }

    /// Cancels the handler that waits for credit or room, if it waits still.
    pub(super) fn cancel_writer(&mut self) -> Cancelled {
        match &mut self.running {
            Some(running) if self.handler_waits => running.cancel(CancelReason::Deadline),
            _ => Cancelled::Nothing,
        }
    }

    /// Cancels the running request if it is older than `timeout`.
    pub(super) fn cancel_late(&mut self, now: Instant, timeout: Duration) -> Cancelled {
        match &mut self.running {
            Some(running)
                if running.is_request && left(running.arrived, now, timeout).is_zero() =>
            {
                running.cancel(CancelReason::Deadline)
            }
            _ => Cancelled::Nothing,
        }
    }

    /// Cancels waiting requests that are older than `timeout`. Returns true if the running request is,
    /// and the time until the next one is.
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

    /// Takes the next command. Returns true beside it if the reader, which waits, may go on, because
    /// at most half of `limit` commands wait.
    pub(super) fn begin(&mut self, limit: usize) -> Option<(Queued, bool)> {
        let mut queued = self.queue.pop_front()?;
        self.running = Some(RunningCommand {
            arrived: queued.arrived,
            is_request: queued.is_request(),
            cancelled: None,
            offered: Offers::default(),
            _place: queued.place.take(),
        });
        let resumes = self.reader_wait.is_some() && self.queue.len() <= limit / 2;
        if resumes {
            self.reader_wait = None;
        } else if let Some(reader_wait) = &mut self.reader_wait {
            reader_wait.begun = true;
        }
        Some((queued, resumes))
    }

    /// Ends the running command. Returns the reason if it was cancelled.
    pub(super) fn end(&mut self) -> Option<CancelReason> {
        self.running.take().and_then(|running| running.cancelled)
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

    /// Closes the mailbox if the session is idle. Returns true if it did.
    pub(super) const fn close_if_idle(&mut self) -> bool {
        let idle = !self.closed && self.is_idle();
        self.closed |= idle;
        idle
    }

    /// Returns true if the session has no work and all its output was sent.
    pub(super) const fn is_idle(&self) -> bool {
        self.hold.is_none()
    }

    /// Closes the mailbox, in a drain, if the session has done all its work. Returns true if it did.
    pub(super) fn close_if_done(&mut self) -> bool {
        // Without a hold the session was idle: the drain has closed it, or will.
        let done = !self.closed && self.hold.is_some() && self.queue.is_empty();
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
        if draining && !self.closed {
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
    timeout.saturating_sub(now.saturating_duration_since(arrived))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn request(arrived: Instant) -> Queued {
        Queued::new(SessionCommand::Savepoint(AutoSp::default()), 0, arrived)
    }

    /// A mailbox with requests that arrived at these times.
    fn mailbox(arrivals: &[Instant]) -> Mailbox<()> {
        let mut mailbox = Mailbox::default();
        arrivals.iter().for_each(|arrived| mailbox.add(request(*arrived), || ()));
        mailbox
    }

    /// Begins the next command. Returns the reason if it was cancelled before.
    fn begin(mailbox: &mut Mailbox<()>) -> Option<CancelReason> {
        mailbox.begin(100).expect("a command").0.cancelled
    }

    #[test]
    fn it_gives_the_memory_of_a_burst_back() {
        let mut mailbox = mailbox(&[Instant::now(); 100]);
        while mailbox.begin(100).is_some() {
            assert_eq!(mailbox.end(), None);
        }
        assert!(mailbox.queue.capacity() >= 100);
        assert_eq!(mailbox.settle(false, false), (Settled::Idle, Some(())));
        assert_eq!(mailbox.queue.capacity(), KEPT_CAPACITY);
    }

    /// The drain leaves a busy session to itself.
    #[test]
    fn a_session_that_was_busy_when_a_drain_began_ends_itself() {
        let mut mailbox = mailbox(&[Instant::now()]);
        assert!(!mailbox.close_if_done());
        begin(&mut mailbox);
        assert!(!mailbox.close_if_idle());
        assert_eq!(mailbox.settle(false, true), (Settled::Busy, None));
        mailbox.end();
        assert_eq!(mailbox.settle(false, true), (Settled::ToEnd, None));
        assert!(mailbox.close_if_done() && !mailbox.close_if_done());
        assert_eq!(mailbox.settle(false, true), (Settled::Idle, Some(())));
        assert!(!mailbox.close_if_idle(), "it is closed");
    }

    #[test]
    fn a_session_of_one_statement_is_over_after_it() {
        let mut mailbox = mailbox(&[Instant::now()]);
        begin(&mut mailbox);
        mailbox.end();
        assert_eq!(mailbox.settle(true, true), (Settled::Over, Some(())));
        assert_eq!(mailbox.admit(1, Instant::now(), || true), Err(NotQueued::Closed));
    }

    #[test]
    fn a_cancel_means_the_oldest_unanswered_request_once() {
        let mut mailbox = mailbox(&[Instant::now(); 2]);
        mailbox.queue.push_front(Queued::new(SessionCommand::Open, 0, Instant::now()));
        begin(&mut mailbox);
        // The opening of a session is no request.
        assert_eq!(mailbox.cancel(CancelReason::Query, false), Cancelled::Waiting);
        assert_eq!(mailbox.cancel(CancelReason::Query, false), Cancelled::Nothing);
        assert_eq!((mailbox.cancelled(), mailbox.end()), (None, None));
        assert_eq!(begin(&mut mailbox), Some(CancelReason::Query));
        mailbox.end();
        assert_eq!(begin(&mut mailbox), None);
        assert_eq!(mailbox.cancel(CancelReason::Query, true), Cancelled::Nothing);
        assert_eq!(mailbox.cancel(CancelReason::Query, false), Cancelled::Running);
        assert_eq!(mailbox.cancel(CancelReason::Session, false), Cancelled::Nothing);
        assert_eq!(mailbox.end(), Some(CancelReason::Query));
        assert_eq!(mailbox.cancelled(), None);
    }

    #[test]
    fn the_end_of_a_session_cancels_whatever_runs() {
        let mut mailbox = mailbox(&[]);
        assert_eq!(mailbox.cancel(CancelReason::Session, false), Cancelled::Nothing);
        mailbox.add(Queued::new(SessionCommand::Close, 0, Instant::now()), || ());
        begin(&mut mailbox);
        assert_eq!(mailbox.cancel(CancelReason::Session, true), Cancelled::Running);
    }

    #[test]
    fn requests_older_than_the_timeout_are_cancelled() {
        let start = Instant::now();
        let mut mailbox = mailbox(&[start, start + SECOND, start + 2 * SECOND]);
        assert_eq!(mailbox.check_deadline(start, 5 * SECOND), (false, Some(5 * SECOND)));
        begin(&mut mailbox);
        let now = start + 6 * SECOND;
        // The second of the three is late too, and waits.
        assert_eq!(mailbox.check_deadline(now, 5 * SECOND), (true, Some(SECOND)));
        assert_eq!(mailbox.cancel_late(now - 2 * SECOND, 5 * SECOND), Cancelled::Nothing);
        assert_eq!(mailbox.cancel_late(now, 5 * SECOND), Cancelled::Running);
        assert_eq!(mailbox.check_deadline(now, 5 * SECOND), (false, Some(SECOND)));
        assert_eq!(mailbox.end(), Some(CancelReason::Deadline));
        assert_eq!(begin(&mut mailbox), Some(CancelReason::Deadline));
        mailbox.end();
        assert_eq!(begin(&mut mailbox), None);
        assert_eq!(mailbox.check_deadline(now, 5 * SECOND), (false, Some(SECOND)));
        mailbox.end();
        // Other commands have no deadline.
        mailbox.add(Queued::new(SessionCommand::Open, 0, start), || ());
        assert_eq!(mailbox.check_deadline(now, SECOND), (false, None));
    }

    #[test]
    fn the_reader_waits_for_a_place_while_the_session_has_no_chance_or_goes_on() {
        let (now, full) = (Instant::now(), Err(NotQueued::Full));
        let later = |since: Instant| Err(NotQueued::Later(since + FULL_MAILBOX_TIMEOUT));
        let mut mailbox = mailbox(&[now; 4]);
        let admit = |mailbox: &mut Mailbox<()>, now| mailbox.admit(4, now, || true);
        assert_eq!(mailbox.admit(4, now, || false), full);
        assert_eq!(mailbox.admit(5, now, || false), Ok(()));
        assert_eq!(admit(&mut mailbox, now), later(now));
        let until = now + FULL_MAILBOX_TIMEOUT;
        assert_eq!(admit(&mut mailbox, until - SECOND / 10), later(now));
        // It has not run, so it gets another time.
        assert_eq!(admit(&mut mailbox, until), later(until));
        // It runs, and has not begun half of its requests in time.
        assert!(!mailbox.begin(4).expect("a command").1);
        mailbox.add(request(now), || ());
        let until = until + FULL_MAILBOX_TIMEOUT;
        assert_eq!(admit(&mut mailbox, until), full);
        // The end was noticed late, so the session could not run either.
        assert_eq!(admit(&mut mailbox, until + 10 * SECOND), later(until + 10 * SECOND));
        mailbox.end();
        let resumes = [(); 4].map(|()| mailbox.begin(4).expect("a command").1);
        assert_eq!(resumes, [false, true, false, false]);
    }

    #[test]
    fn a_handler_goes_on_with_credit_and_room_or_to_ask_for_more() {
        let spent = || {
            let mut credit = Credit::new(0);
            credit.charge(100);
            Some(credit)
        };
        for (offer, left, has_room, is_finished, expected) in [
            (None, None, true, false, Some(true)),
            (None, None, false, true, None),
            (None, Some(Credit::new(0)), true, true, Some(true)),
            (None, Some(Credit::new(0)), false, false, None),
            (None, spent(), true, false, None),
            (None, spent(), true, true, Some(false)),
            // The offer does not suffice: the client must learn that.
            (Some(99), spent(), false, false, Some(true)),
            (Some(100), spent(), false, false, None),
            (Some(100), spent(), true, false, Some(true)),
        ] {
            let mut mailbox = mailbox(&[Instant::now()]);
            assert!(!mailbox.offer(1), "no request runs");
            begin(&mut mailbox);
            assert!(offer.is_none_or(|bytes| mailbox.offer(bytes)));
            let go_on = mailbox.may_write(&mut { left }, has_room, is_finished);
            assert_eq!(go_on, expected, "{offer:?} {left:?} {has_room} {is_finished}");
            assert_eq!(mailbox.take_offers(), Offers::default());
        }
    }

    #[test]
    fn a_waiting_handler_is_cancelled_and_no_other() {
        let mut mailbox = mailbox(&[Instant::now()]);
        begin(&mut mailbox);
        assert_eq!(mailbox.cancel_writer(), Cancelled::Nothing);
        mailbox.handler_waits = true;
        assert_eq!(mailbox.cancel_writer(), Cancelled::Running);
        assert_eq!(mailbox.end(), Some(CancelReason::Deadline));
        assert_eq!(mailbox.cancel_writer(), Cancelled::Nothing);
    }

    #[test]
    fn a_closed_mailbox_keeps_its_connection_until_the_running_request_ends() {
        let mut mailbox = mailbox(&[Instant::now(); 3]);
        begin(&mut mailbox);
        let (refused, reader_waits, hold) = mailbox.close();
        assert_eq!((refused.len(), reader_waits, hold), (2, false, None));
        mailbox.end();
        assert_eq!(mailbox.close().2, Some(()));
    }

    #[test]
    fn the_arrival_of_the_oldest_unanswered_request_counts() {
        let start = Instant::now();
        let mut mailbox = mailbox(&[]);
        assert!(mailbox.is_unused());
        mailbox.add(Queued::new(SessionCommand::Open, 0, start), || ());
        assert!(mailbox.is_unused());
        mailbox.add(request(start + SECOND), || ());
        mailbox.add(request(start + 2 * SECOND), || ());
        let arrived =
            |mailbox: &Mailbox<()>| [0, 1, 2].map(|at| mailbox.arrived_at(start + at * SECOND));
        assert_eq!(arrived(&mailbox), [false, true, false]);
        begin(&mut mailbox);
        mailbox.end();
        begin(&mut mailbox);
        mailbox.end();
        // The first use of the session counts as well.
        assert_eq!(arrived(&mailbox), [false, true, true]);
    }
}
