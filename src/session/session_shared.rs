//! [`SessionShared`]: the part of a session that does not depend on the type of the service. It
//! holds the mailbox, and other threads cancel or end the session through it.
//!
//! ```text
//!   post ──▶ mailbox ──▶ running ──▶ (deferred | waiting for credit or room) ──▶ ended ─┐
//!              ▲                                                                        │
//!              └────────────────────────── the next one ◀───────────────────────────────┘
//! ```
//!
//! The reader of the connection queues requests and offers credit. Any thread may cancel a request
//! or end the session. The worker that runs the session takes the requests out, one after the
//! other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::accounts::Place;
use super::conn_shared::ConnShared;
use super::credit::{Credit, Offers};
use super::error::{CancelReason, SessionError};
use super::queued::Queued;
use super::signal::Signal;
use super::writers::WaitsForRoom;
use crate::net::Hold;
use crate::runtime::{Class, guard, is_late};
use crate::sync::shim::lock;
use crate::sync::stall::{self, Wait};
use crate::sys::clock;

pub(super) struct SessionShared {
    pub(super) id: SessionId,
    pub(super) conn: Arc<ConnShared>,
    /// The session, to be woken.
    runner: Weak<dyn Wakeable>,
    /// Set when the session has ended: its frames are dropped from then on. Written while no thread
    /// sends, under the connection's send lock.
    dead: AtomicBool,
    /// Set while the running request is cancelled. Written under the lock of `mail`.
    interrupted: AtomicBool,
    /// Set when the end of the answer is written. The client may have received it, so a kill that
    /// arrives later is meant for the next request.
    answered: AtomicBool,
    /// A [`Class`]. Written by the worker that runs the session.
    class: AtomicU8,
    mail: Mutex<Mail>,
    /// Set while the session is in the connection's list of sessions that wait for room.
    waits_for_room: AtomicBool,
    /// Notified when a waiting writer may have got credit, room or a cancellation.
    changed: Signal,
    /// Held during the call. The end of a cancelled request takes the lock too, so the call is over
    /// before the next request begins. Taken before `mail`.
    cancel: Mutex<Cancel>,
}

/// Capacity that an empty mailbox keeps.
const KEPT_CAPACITY: usize = 4;

/// Session that can be woken without its type.
pub(super) trait Wakeable: Send + Sync {
    fn wake(self: Arc<Self>);
}

#[derive(Debug, Default)]
struct Mail {
    queue: VecDeque<Queued>,
    /// The running command.
    running: Option<RunningCommand>,
    /// Place of the running request among those of its account.
    place: Option<Place>,
    /// Reason why the running request is cancelled.
    cancelled: Option<CancelReason>,
    /// Credit offered to the running request and not taken yet.
    offered: Offers,
    /// Set while the handler waits for credit or room.
    waits: bool,
    /// Set while the reader of the connection waits for a place in the mailbox.
    reader_wait: Option<ReaderWait>,
    /// Set when the mailbox accepts no more requests.
    closed: bool,
    /// Arrival of the first request, or of the first request for a timestamp.
    used: Option<Instant>,
    /// Keeps the connection from ending in good order while the session has work.
    hold: Option<Hold>,
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

/// The running command of a session.
#[derive(Clone, Copy, Debug)]
struct RunningCommand {
    arrived: Instant,
    /// See [`Queued::is_request`].
    is_request: bool,
}

/// Reason why a request was not queued.
#[derive(Debug)]
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

impl SessionShared {
    pub(super) fn new(id: SessionId, conn: Arc<ConnShared>, runner: Weak<dyn Wakeable>) -> Self {
        let class = conn.class;
        Self {
            id,
            conn,
            runner,
            dead: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            class: AtomicU8::new(class as u8),
            mail: Mutex::default(),
            waits_for_room: AtomicBool::new(false),
            changed: Signal::default(),
            cancel: Mutex::new(Cancel::none()),
        }
    }

    // ---- called by the reader of the connection ----

    /// Queues a request. If the request is refused, it stays in `queued`.
    pub(super) fn queue(&self, queued: &mut Option<Queued>) -> Result<(), NotQueued> {
        let limit = self.conn.config().max_queued_messages;
        let mut mail = lock(&self.mail);
        if mail.closed {
            return Err(NotQueued::Closed);
        }
        if mail.queue.len() >= limit {
            let now = queued.as_ref().map_or_else(clock::now, |queued| queued.arrived);
            return Err(self.overflow(&mut mail, now));
        }
        let bytes = queued.as_ref().map_or(0, |queued| queued.bytes);
        self.conn.reserve(bytes).map_err(NotQueued::Bytes)?;
        if mail.hold.is_none() {
            mail.hold = Some(self.conn.net.hold());
        }
        if let Some(request) = queued.as_ref().filter(|queued| queued.is_request()) {
            mail.used.get_or_insert(request.arrived);
        }
        mail.queue.extend(queued.take());
        Ok(())
    }

    /// Decides about a request for which the mailbox has no place.
    fn overflow(&self, mail: &mut Mail, now: Instant) -> NotQueued {
        // The request would wait for a thread, and all threads may wait for this client.
        if self.conn.group().runs_urgent_alone() && !self.class().is_urgent() {
            return NotQueued::Full;
        }
        let runs = mail.running.is_some();
        match mail.reader_wait {
            Some(ReaderWait { until, .. }) if now < until => NotQueued::Later(until),
            // A deadline noticed late does not count, because the session could not run either.
            Some(ReaderWait { until, begun }) if (begun || runs) && !is_late(until, now) => {
                NotQueued::Full
            }
            _ => {
                let until = now + FULL_MAILBOX_TIMEOUT;
                mail.reader_wait = Some(ReaderWait { until, begun: false });
                NotQueued::Later(until)
            }
        }
    }

    /// Offers credit to the running request. Returns false if no request runs.
    pub(super) fn offer(&self, bytes: i64) -> bool {
        {
            let mut mail = lock(&self.mail);
            if mail.running.is_none() {
                return false;
            }
            mail.offered.add(bytes);
        }
        self.wake();
        true
    }

    pub(super) fn set_used(&self, now: Instant) {
        lock(&self.mail).used.get_or_insert(now);
    }

    /// Returns true if the session never got a request.
    pub(super) fn is_unused(&self) -> bool {
        lock(&self.mail).used.is_none()
    }

    /// Returns true if the oldest unanswered request, or the first use of the session, arrived at
    /// `now`.
    pub(super) fn arrived_at(&self, now: Instant) -> bool {
        let mail = lock(&self.mail);
        if mail.used == Some(now) {
            return true;
        }
        let running = mail.running.filter(|begun| begun.is_request).map(|begun| begun.arrived);
        let waiting =
            || mail.queue.iter().find(|queued| queued.is_request()).map(|queued| queued.arrived);
        running.or_else(waiting) == Some(now)
    }

    // ---- called by any thread ----

    /// Makes a waiting writer check its condition again, and makes the session run.
    pub(super) fn wake(&self) {
        // A waiting writer checks its condition under this lock. So it sees the change, or is
        // woken.
        let waits = lock(&self.mail).waits;
        if waits {
            // This is a system call even if no thread waits.
            self.changed.notify_all();
        }
        if let Some(runner) = self.runner.upgrade() {
            runner.wake();
        }
    }

    /// Returns true if the session has ended and its frames are dropped.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Returns true if the mailbox accepts no more requests.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.mail).closed
    }

    /// Returns true if the running request is cancelled.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Cancels the oldest unanswered request. Returns false if there is none.
    pub(super) fn cancel(&self, reason: CancelReason) -> bool {
        let ends_session = matches!(reason, CancelReason::Session | CancelReason::Connection);
        let mut waited = false;
        let ran = self.cancel_if(reason, |mail| {
            // Acquire: pairs with `set_answered`. A client that has the answer means its next
            // request.
            let answered = self.answered.load(Ordering::Acquire);
            let is_meant = |begun: RunningCommand| begun.is_request && !answered || ends_session;
            if mail.running.is_some_and(is_meant) {
                return true;
            }
            // The request is answered when its turn comes.
            if let Some(first) = mail.queue.iter_mut().find(|queued| queued.is_request()) {
                waited = first.cancelled.is_none();
                first.cancelled.get_or_insert(reason);
            }
            false
        });
        ran || waited
    }

    /// Cancels the running command if `is_meant` holds and it was not cancelled before.
    fn cancel_if(&self, reason: CancelReason, is_meant: impl FnOnce(&mut Mail) -> bool) -> bool {
        let cancel = lock(&self.cancel);
        {
            let mut mail = lock(&self.mail);
            if !is_meant(&mut mail) || mail.cancelled.is_some() {
                return false;
            }
            mail.cancelled = Some(reason);
            self.interrupted.store(true, Ordering::Relaxed);
        }
        guard(self.conn.group(), "cancel", || cancel.call(reason));
        drop(cancel);
        self.wake();
        true
    }

    /// Ends the session. After the return no frame of it is sent. Returns false if it had ended
    /// before.
    pub(super) fn kill(&self, reason: CancelReason) -> bool {
        let mut first = false;
        self.conn.exclude_sends(|| first = !self.dead.swap(true, Ordering::AcqRel));
        if !first {
            return false;
        }
        self.refuse();
        self.cancel(reason);
        // The session must run to clean up, even if nothing was cancelled.
        self.wake();
        true
    }

    /// Ends the session by its own worker, whose final message is written already.
    pub(super) fn end(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Closes the mailbox, and drops the requests in it.
    pub(super) fn refuse(&self) {
        let mut mail = lock(&self.mail);
        mail.closed = true;
        let queue = std::mem::take(&mut mail.queue);
        let reader_wait = mail.reader_wait.take().is_some();
        let hold = if mail.running.is_none() { mail.hold.take() } else { None };
        drop(mail);
        self.resume_if(reader_wait);
        drop(hold);
        queue.iter().for_each(|queued| self.conn.release(queued.bytes));
    }

    /// Closes the mailbox. `say` sends the final message, with an answer to each waiting request,
    /// and must not wait. It runs under the lock, so no other thread reports the end of the session
    /// earlier.
    pub(super) fn refuse_after<R>(&self, say: impl FnOnce(&VecDeque<Queued>) -> R) -> R {
        let mut mail = lock(&self.mail);
        mail.closed = true;
        let queue = std::mem::take(&mut mail.queue);
        let said = say(&queue);
        let reader_wait = mail.reader_wait.take().is_some();
        drop(mail);
        self.resume_if(reader_wait);
        queue.iter().for_each(|queued| self.conn.release(queued.bytes));
        said
    }

    /// Closes the mailbox if the session is idle. Returns true if it did. In a drain a busy session
    /// closes itself, by [`close_if_done`](Self::close_if_done).
    pub(super) fn close_if_idle(&self) -> bool {
        let mut mail = lock(&self.mail);
        let idle = !mail.closed && mail.hold.is_none();
        mail.closed |= idle;
        idle
    }

    /// Returns true if the session has no work and all its output was sent.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.mail).hold.is_none()
    }

    /// Cancels requests that are older than `timeout`. Returns the time until the next one is.
    pub(super) fn check_deadline(&self, now: Instant, timeout: Duration) -> Option<Duration> {
        let left = |arrived| timeout.saturating_sub(now.saturating_duration_since(arrived));
        let is_late = |mail: &Mail| {
            mail.running.is_some_and(|begun| begun.is_request && left(begun.arrived).is_zero())
        };
        let (late, next) = {
            let mut mail = lock(&self.mail);
            let waiting = mail.queue.iter_mut().filter(|queued| queued.is_request());
            let mut next = None;
            // The queue is in the order of arrival, so the first request in time ends the search.
            for queued in waiting.filter(|queued| queued.cancelled.is_none()) {
                let left = left(queued.arrived);
                if !left.is_zero() {
                    next = Some(left);
                    break;
                }
                // The request is answered when its turn comes.
                queued.cancelled = Some(CancelReason::Deadline);
            }
            let late = is_late(&mail);
            let running = mail.running.filter(|begun| {
                // Other commands have no deadline.
                begun.is_request && !late && mail.cancelled.is_none()
            });
            (late, running.map(|begun| left(begun.arrived)).into_iter().chain(next).min())
        };
        // The next request may run by now. It is not late, so the condition is checked again.
        if late {
            self.cancel_if(CancelReason::Deadline, |mail| is_late(mail));
        }
        next
    }

    pub(super) fn class(&self) -> Class {
        Class::from_u8(self.class.load(Ordering::Relaxed))
    }

    // ---- called by the worker that runs the session ----

    /// Takes the next command from the mailbox.
    pub(super) fn next(&self) -> Option<Queued> {
        let mut mail = lock(&self.mail);
        let mut queued = mail.queue.pop_front()?;
        mail.place = queued.place.take();
        mail.running =
            Some(RunningCommand { arrived: queued.arrived, is_request: queued.is_request() });
        self.answered.store(false, Ordering::Relaxed);
        mail.offered = Offers::default();
        let has_room = mail.reader_wait.is_some() && self.note_progress(&mut mail);
        drop(mail);
        self.conn.release(queued.bytes);
        self.resume_if(has_room);
        Some(queued)
    }

    /// Notes a begun request while the reader waits. Returns true if the mailbox has enough room
    /// now.
    fn note_progress(&self, mail: &mut Mail) -> bool {
        let has_room = mail.queue.len() <= self.conn.config().max_queued_messages / 2;
        mail.reader_wait = mail.reader_wait.filter(|_| !has_room);
        mail.reader_wait.iter_mut().for_each(|reader_wait| reader_wait.begun = true);
        has_room
    }

    /// Makes the connection readable again if this session had stopped it.
    fn resume_if(&self, was_awaited: bool) {
        if was_awaited {
            self.conn.net.resume();
        }
    }

    /// Closes the mailbox if the connection drains and the session has done all its work. Returns
    /// true if it did.
    pub(super) fn close_if_done(&self) -> bool {
        if !self.conn.is_draining() {
            return false;
        }
        let mut mail = lock(&self.mail);
        // Without a hold the session was idle: the drain has closed it, or will.
        let done = !mail.closed && mail.hold.is_some() && mail.queue.is_empty();
        mail.closed |= done;
        done
    }

    /// Called when the output of the session has been sent.
    pub(super) fn settle(&self) -> Settled {
        let mut mail = lock(&self.mail);
        if mail.running.is_some() || !mail.queue.is_empty() {
            return Settled::Busy;
        }
        let over = self.id.is_auto_commit();
        mail.closed |= over;
        if self.conn.is_draining() && !mail.closed {
            return Settled::ToEnd;
        }
        // After a burst the capacity would stay allocated as long as the session.
        mail.queue.shrink_to(KEPT_CAPACITY);
        let hold = mail.hold.take();
        drop(mail);
        drop(hold);
        if over { Settled::Over } else { Settled::Idle }
    }

    /// Called before the end of the answer is written.
    pub(super) fn set_answered(&self) {
        self.answered.store(true, Ordering::Release);
    }

    /// Ends the running command. Returns the reason if it was cancelled; then the call of its
    /// [`Cancel`] is over.
    pub(super) fn end_request(&self) -> Option<CancelReason> {
        let cancelled = {
            let mut mail = lock(&self.mail);
            mail.running = None;
            mail.place = None;
            self.interrupted.store(false, Ordering::Relaxed);
            mail.cancelled.take()
        };
        if cancelled.is_some() {
            drop(lock(&self.cancel));
        }
        cancelled
    }

    /// Reason why the running request was cancelled.
    pub(super) fn cancelled(&self) -> Option<CancelReason> {
        lock(&self.mail).cancelled
    }

    /// Replaces the error of an interrupted request by the error of the cancel reason.
    pub(super) fn reason(&self, error: SessionError) -> SessionError {
        match self.cancelled() {
            Some(reason) if error.is_interrupted() => SessionError::cancelled(reason),
            _ => error,
        }
    }

    pub(super) fn set_cancel(&self, cancel: Cancel) {
        let before = std::mem::replace(&mut *lock(&self.cancel), cancel);
        // Foreign value: its drop may panic.
        guard(self.conn.group(), "drop", || drop(before));
    }

    pub(super) fn take_offers(&self) -> Offers {
        std::mem::take(&mut lock(&self.mail).offered)
    }

    pub(super) fn set_class(&self, class: Class) {
        let before = Class::from_u8(self.class.swap(class as u8, Ordering::Relaxed));
        self.conn.note_class(before, class);
    }

    fn waiting(self: &Arc<Self>) -> Weak<dyn WaitsForRoom> {
        let session: Weak<Self> = Arc::downgrade(self);
        session
    }

    /// Wakes the session when the peer has read enough, or at once if it has already.
    pub(super) fn wake_when_room(self: &Arc<Self>) {
        if !self.waits_for_room.swap(true, Ordering::AcqRel) {
            self.conn.wake_when_room(self.waiting());
        }
    }

    /// Waits, as an announced stall, until the writer has credit and room. It also returns when
    /// the offered credit does not suffice, so that the caller asks for more. Adds offers to
    /// `left`.
    /// Returns false if the request must end.
    pub(super) fn wait_for_room(self: &Arc<Self>, left: &mut Option<Credit>) -> bool {
        let conn = &self.conn;
        let limit = conn.config().max_waiting_writers;
        let group = conn.group().index();
        lock(&self.mail).waits = true;
        let writers = &conn.server.writers;
        if let Some(longest) = writers.enter(group, self.waiting(), limit)
            && longest.cancel_writer()
        {
            conn.count(crate::stats::Counter::WritersCut);
        }
        conn.group().usage().waiting_writers_changed(true);
        let go_on = stall::run_as(Wait::Network, || {
            let mut mail = lock(&self.mail);
            loop {
                if self.is_interrupted() || self.is_dead() || conn.net.is_closed() {
                    return false;
                }
                let offered = std::mem::take(&mut mail.offered);
                if let Some(left) = left
                    && left.add(offered)
                    && left.is_spent()
                {
                    return true;
                }
                if left.as_ref().is_some_and(Credit::is_spent) && conn.is_finished() {
                    return false;
                }
                let has_room = conn.has_room();
                if left.as_ref().is_none_or(|left| !left.is_spent()) && has_room {
                    return true;
                }
                if !has_room {
                    self.wake_when_room();
                }
                mail = self.changed.wait(&self.mail, mail);
            }
        });
        conn.group().usage().waiting_writers_changed(false);
        writers.leave(group, &self.waiting());
        lock(&self.mail).waits = false;
        go_on
    }
}

impl WaitsForRoom for SessionShared {
    fn wake_for_room(&self) {
        // Cleared before the session looks. If it finds no room, it registers again.
        self.waits_for_room.store(false, Ordering::Release);
        self.wake();
    }

    fn cancel_writer(&self) -> bool {
        self.cancel_if(CancelReason::Deadline, |mail| mail.waits)
    }
}

/// Id of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    pub(super) wire: u64,
    pub(super) number: u32,
}

/// Bit of a session id that marks a session of one statement.
pub(super) const AUTO_COMMIT: u64 = 1 << 63;

impl SessionId {
    /// Id that the client chose, unique among the open sessions of its connection.
    #[must_use]
    pub const fn wire(self) -> u64 {
        self.wire
    }

    /// Number that the server chose, from 1. It repeats after 2³² sessions. Clients see it as
    /// `connection_id()`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Returns true if the session runs one statement only, which commits by itself.
    #[must_use]
    pub const fn is_auto_commit(self) -> bool {
        self.wire & AUTO_COMMIT != 0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x})", self.number, self.wire)
    }
}

/// Callback that interrupts a session from another thread.
pub struct Cancel(Option<Box<dyn Fn(CancelReason) + Send + Sync>>);

impl Cancel {
    /// Creates a callback. The layer calls `code` at most once per request, while the request runs.
    /// `code` must be quick and must not wait for the request. Its effect, such as an error of the
    /// engine, is returned by [`Service::execute`].
    #[must_use]
    pub fn new(code: impl Fn(CancelReason) + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(code)))
    }

    /// Creates no callback: the requests end by themselves, or check [`Reply::is_cancelled`].
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    pub(super) fn call(&self, reason: CancelReason) {
        if let Some(code) = &self.0 {
            code(reason);
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("present", &self.0.is_some()).finish()
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::codec::frame::Dialect;
    use crate::config::Config;
    use crate::net::{Address, Deaf, Served};
    use crate::runtime::Simulated;
    use crate::session::accounts::Accounts;
    use crate::session::queued::SessionCommand;
    use crate::session::server_shared::ServerShared;

    struct Idle;

    impl Wakeable for Idle {
        fn wake(self: Arc<Self>) {}
    }

    /// A session of a connection, and the peer.
    fn shared(runtime: &Simulated) -> (SessionShared, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        let served = Served::new(Deaf);
        let peer = Address::Unix("".into());
        let conn = served.accept(runtime.group(), ours.into(), peer).expect("there is room");
        let server = ServerShared::new(conn.group().config(), Accounts::default());
        let conn = ConnShared::new(conn, Dialect::default(), Arc::new(server));
        let id = SessionId { wire: 2, number: 1 };
        (SessionShared::new(id, Arc::new(conn), Weak::<Idle>::new()), theirs)
    }

    fn try_queue(shared: &SessionShared) -> Result<(), NotQueued> {
        shared.queue(&mut Some(Queued::new(SessionCommand::Open, 0, Instant::now())))
    }

    fn queue(shared: &SessionShared) {
        try_queue(shared).expect("there is room");
    }

    #[test]
    fn a_mailbox_gives_the_memory_of_a_burst_back() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (shared, _peer) = shared(&runtime);
        (0..100).for_each(|_| queue(&shared));
        while shared.next().is_some() {
            shared.end_request();
        }
        assert!(lock(&shared.mail).queue.capacity() >= 100);
        assert_eq!(shared.settle(), Settled::Idle);
        assert_eq!(lock(&shared.mail).queue.capacity(), KEPT_CAPACITY);
    }

    /// The drain leaves a busy session to itself.
    #[test]
    fn a_session_that_was_busy_when_a_drain_began_ends_itself() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (shared, _peer) = shared(&runtime);
        queue(&shared);
        assert!(shared.next().is_some());
        shared.conn.drain();
        assert!(!shared.close_if_idle());
        shared.end_request();
        assert_eq!(shared.settle(), Settled::ToEnd);
        assert!(shared.close_if_done());
        assert_eq!(shared.settle(), Settled::Idle);
    }

    #[test]
    fn a_full_mailbox_makes_its_connection_readable_when_it_is_half_empty() {
        let config = Config::default();
        let limit = config.max_queued_messages;
        let runtime = Simulated::new(config).expect("descriptors");
        let (shared, _peer) = shared(&runtime);
        while runtime.take_task(false) {
            runtime.run(0, None);
        }
        (0..limit).for_each(|_| queue(&shared));
        assert!(matches!(try_queue(&shared), Err(NotQueued::Later(_))));
        for left in (0..limit).rev() {
            assert!(shared.next().is_some());
            shared.end_request();
            assert_eq!(runtime.queued() > 0, left <= limit / 2);
        }
    }

    /// All other threads may wait for that client.
    #[test]
    fn on_the_reserve_worker_a_full_mailbox_waits_only_for_a_session_in_a_transaction() {
        let config = Config::default();
        let limit = config.max_queued_messages;
        let runtime = Simulated::new(config).expect("descriptors");
        let (shared, _peer) = shared(&runtime);
        (0..limit).for_each(|_| queue(&shared));
        shared.set_class(Class::InProgress);
        let in_transaction = runtime.as_reserve(|| try_queue(&shared));
        assert!(matches!(in_transaction, Err(NotQueued::Later(_))), "{in_transaction:?}");
        shared.set_class(Class::Ordinary);
        let outside = runtime.as_reserve(|| try_queue(&shared));
        assert!(matches!(outside, Err(NotQueued::Full)), "{outside:?}");
    }

    #[test]
    fn a_connection_is_urgent_as_long_as_a_session_of_it_is() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (shared, _peer) = shared(&runtime);
        let classes = [Class::InProgress, Class::Ordinary].map(|class| {
            shared.set_class(class);
            shared.conn.net.class()
        });
        assert_eq!(classes, [Class::InProgress, Class::Ordinary]);
    }
}
