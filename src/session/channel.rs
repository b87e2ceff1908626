//! [`Channel`]: the part of a session that does not depend on the type of the service. It holds the
//! mailbox, and other threads cancel or end the session through it.
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
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use super::credit::{Credit, Offers};
use super::error::SessionError;
use super::line::Line;
use super::post::Post;
use super::service::{Cancel, CancelReason, SessionId};
use crate::net::Hold;
use crate::runtime::{Class, guard, is_late};
use crate::sync::shim::lock;
use crate::sync::stall::{self, Wait};
use crate::sys::clock;

pub(super) struct Channel {
    pub(super) id: SessionId,
    pub(super) line: Arc<Line>,
    /// The session, to be woken.
    runner: Weak<dyn Wakeable>,
    /// Set when the session has ended: its frames are dropped from then on. Written while no thread
    /// sends, under the connection's send lock.
    dead: AtomicBool,
    /// Set while the running request is cancelled. Written under the lock of `mail`.
    interrupted: AtomicBool,
    /// Set when the end of the answer is written. The client may have it, so a later kill means the
    /// next request.
    answered: AtomicBool,
    /// A [`Class`]. Written by the worker that runs the session.
    class: AtomicU8,
    mail: Mutex<Mail>,
    /// Set while the session is in the connection's list of sessions that wait for room.
    pub(super) waits_for_room: AtomicBool,
    /// Notified when the condition of a waiting writer may hold.
    changed: Condvar,
    /// Held during the call. The end of a cancelled request takes the lock too, so the call is over
    /// before the next request begins. Taken before `mail`.
    cancel: Mutex<Cancel>,
}

/// Capacity that an empty mailbox keeps.
const KEPT_POSTS: usize = 4;

/// Session that can be woken without its type.
pub(super) trait Wakeable: Send + Sync {
    fn wake(self: Arc<Self>);
}

#[derive(Debug, Default)]
struct Mail {
    queue: VecDeque<Post>,
    /// The running command.
    running: Option<Begun>,
    /// Reason why the running request is cancelled.
    cancelled: Option<CancelReason>,
    /// Credit offered to the running request and not taken yet.
    offered: Offers,
    /// Set while the handler waits for credit or room.
    waits: bool,
    /// Set while the reader of the connection waits for a place in the mailbox.
    awaited: Option<Awaited>,
    /// Set when the mailbox accepts no more requests.
    closed: bool,
    /// Arrival of the first request, or of the first request for a timestamp.
    used: Option<Instant>,
    /// Keeps the connection from ending in good order while the session has work.
    hold: Option<Hold>,
}

/// Wait of the reader for a place in a full mailbox.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// Time at which the session is closed, unless it had no chance to run.
    until: Instant,
    /// Set when a request has begun since.
    begun: bool,
}

/// Time within which a running session must begin half of a full mailbox. Meanwhile its connection
/// is not read.
const PATIENCE: Duration = Duration::from_millis(500);

/// The running command of a session.
#[derive(Clone, Copy, Debug)]
struct Begun {
    came: Instant,
    /// Set if a client may cancel this command alone.
    is_request: bool,
}

/// Reason why a request was not queued.
#[derive(Debug)]
pub(super) enum Refused {
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
    /// its reply is sent: the reply of its successor on the same id could overtake.
    Over,
}

impl Channel {
    pub(super) fn new(id: SessionId, line: Arc<Line>, runner: Weak<dyn Wakeable>) -> Self {
        let class = line.class;
        Self {
            id,
            line,
            runner,
            dead: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            class: AtomicU8::new(class as u8),
            mail: Mutex::default(),
            waits_for_room: AtomicBool::new(false),
            changed: Condvar::new(),
            cancel: Mutex::new(Cancel::none()),
        }
    }

    // ---- called by the reader of the connection ----

    /// Queues a request. If the request is refused, it stays in `post`.
    pub(super) fn post(&self, post: &mut Option<Post>) -> Result<(), Refused> {
        let limit = self.line.config().max_queued_messages;
        let mut mail = lock(&self.mail);
        if mail.closed {
            return Err(Refused::Closed);
        }
        if mail.queue.len() >= limit {
            let now = post.as_ref().map_or_else(clock::now, |post| post.came);
            return Err(self.overflow(&mut mail, now));
        }
        let bytes = post.as_ref().map_or(0, |post| post.bytes);
        self.line.reserve(bytes).map_err(Refused::Bytes)?;
        if mail.hold.is_none() {
            mail.hold = Some(self.line.conn.hold());
        }
        if let Some(request) = post.as_ref().filter(|post| post.is_request()) {
            mail.used.get_or_insert(request.came);
        }
        mail.queue.extend(post.take());
        Ok(())
    }

    /// Decides about a request for which the mailbox has no place.
    fn overflow(&self, mail: &mut Mail, now: Instant) -> Refused {
        // The request would wait for a thread, and all threads may wait for this client.
        if self.line.group().runs_urgent_alone() && !self.class().is_urgent() {
            return Refused::Full;
        }
        let runs = mail.running.is_some();
        match mail.awaited {
            Some(Awaited { until, .. }) if now < until => Refused::Later(until),
            // A deadline noticed late does not count, because the session could not run either.
            Some(Awaited { until, begun }) if (begun || runs) && !is_late(until, now) => {
                Refused::Full
            }
            _ => {
                let until = now + PATIENCE;
                mail.awaited = Some(Awaited { until, begun: false });
                Refused::Later(until)
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
    pub(super) fn has_come_at(&self, now: Instant) -> bool {
        let mail = lock(&self.mail);
        if mail.used == Some(now) {
            return true;
        }
        let running = mail.running.filter(|begun| begun.is_request).map(|begun| begun.came);
        let waiting = || mail.queue.iter().find(|post| post.is_request()).map(|post| post.came);
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
            let is_meant = |begun: Begun| begun.is_request && !answered || ends_session;
            if mail.running.is_some_and(is_meant) {
                return true;
            }
            // The request is answered when its turn comes.
            if let Some(first) = mail.queue.iter_mut().find(|post| post.is_request()) {
                waited = first.cancelled.is_none();
                first.cancelled.get_or_insert(reason);
            }
            false
        });
        ran || waited
    }

    /// Cancels the handler that waits for credit or room. Returns false if it waits no longer.
    fn cut_writer(&self) -> bool {
        self.cancel_if(CancelReason::Deadline, |mail| mail.waits)
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
        guard(self.line.group(), "cancel", || cancel.call(reason));
        drop(cancel);
        self.wake();
        true
    }

    /// Ends the session. After the return no frame of it is sent. Returns false if it had ended
    /// before.
    pub(super) fn kill(&self, reason: CancelReason) -> bool {
        let mut first = false;
        self.line.between_sends(|| first = !self.dead.swap(true, Ordering::AcqRel));
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

    /// Closes the mailbox, and returns the requests that waited in it.
    pub(super) fn refuse(&self) -> VecDeque<Post> {
        let mut mail = lock(&self.mail);
        mail.closed = true;
        let queue = std::mem::take(&mut mail.queue);
        let awaited = mail.awaited.take().is_some();
        let hold = if mail.running.is_none() { mail.hold.take() } else { None };
        drop(mail);
        self.resume_if(awaited);
        drop(hold);
        queue.iter().for_each(|post| self.line.release(post.bytes));
        queue
    }

    /// Closes the mailbox. `say` sends the final message, with an answer to each waiting request,
    /// and must not wait. It runs under the lock, so no other thread reports the end of the session
    /// earlier.
    pub(super) fn refuse_after<R>(&self, say: impl FnOnce(&VecDeque<Post>) -> R) -> R {
        let mut mail = lock(&self.mail);
        mail.closed = true;
        let queue = std::mem::take(&mut mail.queue);
        let said = say(&queue);
        let awaited = mail.awaited.take().is_some();
        drop(mail);
        self.resume_if(awaited);
        queue.iter().for_each(|post| self.line.release(post.bytes));
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
        let left = |came| timeout.saturating_sub(now.saturating_duration_since(came));
        let is_late = |mail: &Mail| {
            mail.running.is_some_and(|begun| begun.is_request && left(begun.came).is_zero())
        };
        let (late, next) = {
            let mut mail = lock(&self.mail);
            let waiting = mail.queue.iter_mut().filter(|post| post.is_request());
            let mut next = None;
            // The queue is in the order of arrival, so the first request in time ends the search.
            for post in waiting.filter(|post| post.cancelled.is_none()) {
                let left = left(post.came);
                if !left.is_zero() {
                    next = Some(left);
                    break;
                }
                // The request is answered when its turn comes.
                post.cancelled = Some(CancelReason::Deadline);
            }
            let late = is_late(&mail);
            let running = mail.running.filter(|begun| {
                // Other commands have no deadline.
                begun.is_request && !late && mail.cancelled.is_none()
            });
            (late, running.map(|begun| left(begun.came)).into_iter().chain(next).min())
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
    pub(super) fn next(&self) -> Option<Post> {
        let mut mail = lock(&self.mail);
        let post = mail.queue.pop_front()?;
        mail.running = Some(Begun { came: post.came, is_request: post.is_request() });
        self.answered.store(false, Ordering::Relaxed);
        mail.offered = Offers::default();
        let has_room = mail.awaited.is_some() && self.note_begun(&mut mail);
        drop(mail);
        self.line.release(post.bytes);
        self.resume_if(has_room);
        Some(post)
    }

    /// Notes a begun request while the reader waits. Returns true if the mailbox has enough room
    /// now.
    fn note_begun(&self, mail: &mut Mail) -> bool {
        let has_room = mail.queue.len() <= self.line.config().max_queued_messages / 2;
        mail.awaited = mail.awaited.filter(|_| !has_room);
        mail.awaited.iter_mut().for_each(|awaited| awaited.begun = true);
        has_room
    }

    /// Makes the connection readable again if this session had stopped it.
    fn resume_if(&self, was_awaited: bool) {
        if was_awaited {
            self.line.conn.resume();
        }
    }

    /// Closes the mailbox if the connection drains and the session has done all its work. Returns
    /// true if it did.
    pub(super) fn close_if_done(&self) -> bool {
        if !self.line.is_draining() {
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
        if self.line.is_draining() && !mail.closed {
            return Settled::ToEnd;
        }
        // After a burst the capacity would stay allocated as long as the session.
        mail.queue.shrink_to(KEPT_POSTS);
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
        guard(self.line.group(), "drop", || drop(before));
    }

    pub(super) fn take_offers(&self) -> Offers {
        std::mem::take(&mut lock(&self.mail).offered)
    }

    pub(super) fn set_class(&self, class: Class) {
        let before = Class::from_u8(self.class.swap(class as u8, Ordering::Relaxed));
        self.line.note_class(before, class);
    }

    /// Waits, as an announced stall, until the writer has credit and room. It also returns when
    /// offered credit does not suffice, so that the client learns it. Adds offers to `left`.
    /// Returns false if the request must end.
    pub(super) fn wait_for_room(self: &Arc<Self>, left: &mut Option<Credit>) -> bool {
        let line = &self.line;
        let limit = line.config().max_waiting_writers;
        let group = line.group().index();
        lock(&self.mail).waits = true;
        if let Some(longest) = line.writers.enter(group, self, limit)
            && longest.cut_writer()
        {
            line.count(crate::stats::Counter::WritersCut);
        }
        line.group().usage().waiting_writers_changed(true);
        let go_on = stall::run_as(Wait::Network, || {
            let mut mail = lock(&self.mail);
            loop {
                if self.is_interrupted() || self.is_dead() || line.conn.is_closed() {
                    return false;
                }
                let offered = std::mem::take(&mut mail.offered);
                if let Some(left) = left
                    && left.add(offered)
                    && left.is_spent()
                {
                    return true;
                }
                if left.as_ref().is_some_and(Credit::is_spent) && line.is_finished() {
                    return false;
                }
                let has_room = line.has_room();
                if left.as_ref().is_none_or(|left| !left.is_spent()) && has_room {
                    return true;
                }
                if !has_room {
                    line.wake_when_room(self);
                }
                mail = self.changed.wait(mail).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        });
        line.group().usage().waiting_writers_changed(false);
        line.writers.leave(group, self);
        lock(&self.mail).waits = false;
        go_on
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("id", &self.id)
            .field("dead", &self.is_dead())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use super::*;
    use crate::codec::buffer::PagePool;
    use crate::codec::dialect::Dialect;
    use crate::config::Config;
    use crate::net::{Address, Deaf, Served};
    use crate::runtime::Simulated;
    use crate::session::post::Errand;

    struct Idle;

    impl Wakeable for Idle {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_mailbox_gives_the_memory_of_a_burst_back() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (ours, _peer) = std::os::unix::net::UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        let served = Served::new(Deaf);
        let peer = Address::Unix("".into());
        let conn = served.accept(runtime.group(), ours.into(), peer).expect("there is room");
        let pages = PagePool::new(PagePool::MIN_PAGE_BYTES, 1);
        let line = Line::new(conn, Dialect::default(), pages, Arc::default());
        let id = SessionId { wire: 2, number: 1 };
        let channel = Channel::new(id, Arc::new(line), Weak::<Idle>::new());
        for _ in 0..100 {
            let post = Post::new(Errand::Open, 0, Instant::now());
            channel.post(&mut Some(post)).expect("there is room");
        }
        while channel.next().is_some() {
            channel.end_request();
        }
        assert!(lock(&channel.mail).queue.capacity() >= 100);
        assert_eq!(channel.settle(), Settled::Idle);
        assert_eq!(lock(&channel.mail).queue.capacity(), KEPT_POSTS);
    }
}
