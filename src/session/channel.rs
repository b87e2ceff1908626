//! [`Channel`]: one session without the type of its service: its mailbox, and what others may do to it.
//!
//! ```text
//!   post ──▶ mailbox ──▶ running ──▶ (deferred | waiting for credit or room) ──▶ ended ─┐
//!              ▲                                                                        │
//!              └────────────────────────── the next one ◀───────────────────────────────┘
//! ```
//!
//! Who reads the connection posts requests and offers credit; anybody may cancel or close; the one
//! thread that has the right to run the session takes requests out, one after the other.

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
    /// Who runs it.
    runner: Weak<dyn Wakeable>,
    /// It has ended: nothing that it writes is sent any more. Written under the line's gate.
    dead: AtomicBool,
    /// Its request is to end: written under the lock of `mail`.
    interrupted: AtomicBool,
    /// The end of its answer was written, and its client may have it: a kill means the next request.
    answered: AtomicBool,
    /// A [`Class`]; written by who runs it.
    class: AtomicU8,
    mail: Mutex<Mail>,
    /// It is in the line's list of those that wait for room.
    pub(super) waits_for_room: AtomicBool,
    /// Something that a waiting writer waits for has happened.
    changed: Condvar,
    /// Held while it is called, and by who ends a request that was cancelled, so that the call is over
    /// before the next one begins. Taken before `mail`.
    cancel: Mutex<Cancel>,
}

/// So much room an empty mailbox keeps.
const KEPT_POSTS: usize = 4;

/// Makes somebody look at a session again.
pub(super) trait Wakeable: Send + Sync {
    fn wake(self: Arc<Self>);
}

#[derive(Debug, Default)]
struct Mail {
    queue: VecDeque<Post>,
    /// What is being done.
    running: Option<Begun>,
    /// Why that is to end.
    cancelled: Option<CancelReason>,
    /// Credit that came for it.
    offered: Offers,
    /// Its handler waits for credit or room.
    waits: bool,
    /// Who reads the connection waits for a place.
    awaited: Option<Awaited>,
    /// Nothing is taken in any more.
    closed: bool,
    /// When the first request came, or the first question for the time.
    used: Option<Instant>,
    /// As long as there is something to do, the connection does not end in good order.
    hold: Option<Hold>,
}

/// A place in a mailbox that was full when more came.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// When it is over with the session, unless that had no chance.
    until: Instant,
    /// A request was begun since.
    begun: bool,
}

/// So long a session that is run has for half of a full mailbox. Meanwhile its connection is not read.
const PATIENCE: Duration = Duration::from_millis(500);

/// Something that is being done.
#[derive(Clone, Copy, Debug)]
struct Begun {
    came: Instant,
    /// Whether a client may cancel it by itself.
    is_request: bool,
}

/// Why a request was not taken in.
#[derive(Debug)]
pub(super) enum Refused {
    /// The session has ended, or is ending; so it is not to be found.
    Closed,
    /// So many wait already.
    Full,
    /// The same, but the session gets on with them, or had no chance to. It is to come again when the
    /// connection is [resumed](crate::net::Connection::resume), or then.
    Later(Instant),
    /// What waits is larger than this limit.
    Bytes(usize),
}

/// What is left of a session when all that it has written has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Settled {
    /// There is more to do.
    Busy,
    /// Nothing is to be done, and the connection may end.
    Idle,
    /// The same, but a drain has begun meanwhile: it is to end before.
    ToEnd,
    /// It was there for one statement, and takes nothing in any more. Were it to end before its reply
    /// has left, that of the next one on its id could be quicker.
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

    // ---- for who reads the connection ----

    /// Takes a request in; it stays where it is when there is no place for it.
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

    /// What becomes of a request for which there is no place.
    fn overflow(&self, mail: &mut Mail, now: Instant) -> Refused {
        // It would wait for a thread, and its client may be who gives one back.
        if self.line.group().runs_urgent_alone() && !self.class().is_urgent() {
            return Refused::Full;
        }
        let runs = mail.running.is_some();
        match mail.awaited {
            Some(Awaited { until, .. }) if now < until => Refused::Later(until),
            // Unless nobody has run for a while.
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

    /// More credit for the request that runs; `false` if none does, and nobody gets it.
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

    /// No request was ever taken in.
    pub(super) fn is_unused(&self) -> bool {
        lock(&self.mail).used.is_none()
    }

    /// Whether the oldest of its requests has come at that time and not before, or all it was used for.
    pub(super) fn has_come_at(&self, now: Instant) -> bool {
        let mail = lock(&self.mail);
        if mail.used == Some(now) {
            return true;
        }
        let running = mail.running.filter(|begun| begun.is_request).map(|begun| begun.came);
        let waiting = || mail.queue.iter().find(|post| post.is_request()).map(|post| post.came);
        running.or_else(waiting) == Some(now)
    }

    // ---- for anybody ----

    /// Makes the thread that waits for credit or room, or the next one that runs it, look again.
    pub(super) fn wake(&self) {
        // Who waits looks under the lock, and so either sees what happened or is woken.
        let waits = lock(&self.mail).waits;
        if waits {
            // A system call, also where nobody waits.
            self.changed.notify_all();
        }
        if let Some(runner) = self.runner.upgrade() {
            runner.wake();
        }
    }

    /// Its frames are not sent any more.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Nothing is taken in any more.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.mail).closed
    }

    /// Its request is to end.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Cancels the oldest request that has no answer yet; says whether there was one to cancel.
    pub(super) fn cancel(&self, reason: CancelReason) -> bool {
        let ends_session = matches!(reason, CancelReason::Session | CancelReason::Connection);
        let mut waited = false;
        let ran = self.cancel_if(reason, |mail| {
            // Acquire: pairs with `set_answered`. Who kills what it asked next has had that answer.
            let answered = self.answered.load(Ordering::Acquire);
            let is_meant = |begun: Begun| begun.is_request && !answered || ends_session;
            if mail.running.is_some_and(is_meant) {
                return true;
            }
            // Its turn comes, and then it is answered.
            if let Some(first) = mail.queue.iter_mut().find(|post| post.is_request()) {
                waited = first.cancelled.is_none();
                first.cancelled.get_or_insert(reason);
            }
            false
        });
        ran || waited
    }

    /// Cancels the handler that waits for credit or room; `false` if it has gone on already.
    fn cut_writer(&self) -> bool {
        self.cancel_if(CancelReason::Deadline, |mail| mail.waits)
    }

    /// Cancels what is being done, if it still is what is meant, and was not cancelled before.
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

    /// Ends it: no frame of it is sent once this has returned. `false` if it had ended before.
    pub(super) fn kill(&self, reason: CancelReason) -> bool {
        let mut first = false;
        self.line.between_sends(|| first = !self.dead.swap(true, Ordering::AcqRel));
        if !first {
            return false;
        }
        self.refuse();
        self.cancel(reason);
        // Who finds nothing to cancel has to see that it is dead.
        self.wake();
        true
    }

    /// The same by who runs it, whose own last word is written already.
    pub(super) fn end(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Takes nothing in any more, and gives back how many requests waited.
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

    /// Takes nothing in any more. `say` sends the last word, with an answer to each of those that
    /// waited; until it has, nobody learns that the session has ended. It must not wait.
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

    /// Takes nothing in any more if nothing is being done, nothing waits and all that was written has
    /// left; says whether that is so. In a drain the others see to it themselves, by
    /// [`close_if_done`](Self::close_if_done).
    pub(super) fn close_if_idle(&self) -> bool {
        let mut mail = lock(&self.mail);
        let idle = !mail.closed && mail.hold.is_none();
        mail.closed |= idle;
        idle
    }

    /// Nothing is being done, nothing waits, and all that was written has left.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.mail).hold.is_none()
    }

    /// Cancels what came longer ago than `timeout`, and says how much longer the next one may take.
    pub(super) fn check_deadline(&self, now: Instant, timeout: Duration) -> Option<Duration> {
        let left = |came| timeout.saturating_sub(now.saturating_duration_since(came));
        let is_late = |mail: &Mail| {
            mail.running.is_some_and(|begun| begun.is_request && left(begun.came).is_zero())
        };
        let (late, next) = {
            let mut mail = lock(&self.mail);
            let waiting = mail.queue.iter_mut().filter(|post| post.is_request());
            let mut next = None;
            // In the order in which they came.
            for post in waiting.filter(|post| post.cancelled.is_none()) {
                let left = left(post.came);
                if !left.is_zero() {
                    next = Some(left);
                    break;
                }
                // Its turn comes, and then it is answered.
                post.cancelled = Some(CancelReason::Deadline);
            }
            let late = is_late(&mail);
            let running = mail.running.filter(|begun| {
                // What is no request has no deadline.
                begun.is_request && !late && mail.cancelled.is_none()
            });
            (late, running.map(|begun| left(begun.came)).into_iter().chain(next).min())
        };
        // By now another one may run, which is not late.
        if late {
            self.cancel_if(CancelReason::Deadline, |mail| is_late(mail));
        }
        next
    }

    pub(super) fn class(&self) -> Class {
        Class::from_u8(self.class.load(Ordering::Relaxed))
    }

    // ---- for who runs it ----

    /// The next request.
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

    /// Who reads waits for a place. Whether there are enough by now.
    fn note_begun(&self, mail: &mut Mail) -> bool {
        let has_room = mail.queue.len() <= self.line.config().max_queued_messages / 2;
        mail.awaited = mail.awaited.filter(|_| !has_room);
        mail.awaited.iter_mut().for_each(|awaited| awaited.begun = true);
        has_room
    }

    /// The connection may be read again, if it was this that kept it.
    fn resume_if(&self, was_awaited: bool) {
        if was_awaited {
            self.line.conn.resume();
        }
    }

    /// Takes nothing in any more if a drain has begun while it was not idle, and nothing is left to be
    /// done; says whether that is so.
    pub(super) fn close_if_done(&self) -> bool {
        if !self.line.is_draining() {
            return false;
        }
        let mut mail = lock(&self.mail);
        // Without a hold it was idle: the drain has closed it, or comes to it.
        let done = !mail.closed && mail.hold.is_some() && mail.queue.is_empty();
        mail.closed |= done;
        done
    }

    /// What it has written has left.
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
        // A burst is over: its room would stay for as long as the session.
        mail.queue.shrink_to(KEPT_POSTS);
        let hold = mail.hold.take();
        drop(mail);
        drop(hold);
        if over { Settled::Over } else { Settled::Idle }
    }

    /// The end of the answer is about to be written.
    pub(super) fn set_answered(&self) {
        self.answered.store(true, Ordering::Release);
    }

    /// The request has ended. Says why it was cancelled, if it was; the call of its [`Cancel`] is over.
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

    /// Why the running request was cancelled, if it was.
    pub(super) fn cancelled(&self) -> Option<CancelReason> {
        lock(&self.mail).cancelled
    }

    /// A request whose time is over says so, whatever its engine calls that.
    pub(super) fn reason(&self, error: SessionError) -> SessionError {
        match self.cancelled() {
            Some(reason) if error.is_interrupted() => SessionError::cancelled(reason),
            _ => error,
        }
    }

    pub(super) fn set_cancel(&self, cancel: Cancel) {
        let before = std::mem::replace(&mut *lock(&self.cancel), cancel);
        // It is the user's: it may panic, and is not to be waited for.
        guard(self.line.group(), "drop", || drop(before));
    }

    /// Takes the credit that was offered.
    pub(super) fn take_offers(&self) -> Offers {
        std::mem::take(&mut lock(&self.mail).offered)
    }

    pub(super) fn set_class(&self, class: Class) {
        let before = Class::from_u8(self.class.swap(class as u8, Ordering::Relaxed));
        self.line.note_class(before, class);
    }

    /// Waits, as an announced stall, until there is credit (if `left` is spent) and room, or until
    /// some credit has come that is not enough. The credit is added to `left`. `false`: the request is
    /// to end.
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

    /// Runs nothing.
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
