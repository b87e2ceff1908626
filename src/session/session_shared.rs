//! [`SessionShared`]: joins the [`Mailbox`] of a session to its connection and to other threads. It
//! does not depend on the type of the service.
//!
//! The reader of the connection queues requests and offers credit. Any thread may cancel a request
//! or end the session. The worker that runs the session takes the requests out, one after the
//! other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::conn_shared::ConnShared;
use super::credit::Credit;
use super::error::{CancelReason, SessionError};
use super::mailbox::{Cancelled, Mailbox, NotQueued, Queued, Settled};
use super::signal::Signal;
use super::writers::WaitsForRoom;
use crate::net::Hold;
use crate::runtime::Class;
use crate::stall::{self, Wait};
use crate::sync::shim::lock;
use crate::sys::clock::Instant;

pub(super) struct SessionShared {
    pub(super) id: SessionId,
    pub(super) conn: Arc<ConnShared>,
    /// The session, to be woken.
    runner: Weak<dyn Wakeable>,
    /// Set when the session has ended: its frames are dropped from then on. A kill writes it under
    /// the connection's send lock, the session's worker under the lock of `mail`.
    dead: AtomicBool,
    /// Set while the running request is cancelled. Written under the lock of `mail`.
    interrupted: AtomicBool,
    /// Set when the end of the answer is written. The client may have received it, so a kill that
    /// arrives later is meant for the next request.
    answered: AtomicBool,
    /// A [`Class`] by what the service said last. Written by the worker that runs the session.
    class: AtomicU8,
    /// Number of outcomes of deferred requests that no worker has looked at. Until then the service
    /// cannot say if the session holds locks. A session that has ended leaves them, and its clean-up is
    /// urgent anyway.
    outcomes: AtomicU32,
    mail: Mutex<Mailbox<Hold>>,
    /// Set while the session is in the connection's list of sessions that wait for room.
    waits_for_room: AtomicBool,
    /// Notified when a waiting writer may have got credit, room or a cancellation.
    changed: Signal,
    /// Locked while the callback runs. The end of a cancelled request takes the lock too, so the
    /// call is over before the next request begins. Taken before `mail`.
    cancel: Mutex<Cancel>,
}

/// Session that can be woken without its type.
pub(super) trait Wakeable: Send + Sync {
    fn wake(self: Arc<Self>);

    /// Makes it run as urgent work, also if it is queued already. `answered`: the answer is written, and its
    /// result does not end the session. Then the thread that has answered may end the request itself.
    fn wake_with_outcome(self: Arc<Self>, answered: bool);
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
            outcomes: AtomicU32::new(0),
            mail: Mutex::default(),
            waits_for_room: AtomicBool::new(false),
            changed: Signal::default(),
            cancel: Mutex::new(Cancel::default()),
        }
    }

    // ---- called by the reader of the connection ----

    /// Queues a command, or gives it back with the reason of the refusal.
    pub(super) fn queue(&self, queued: Queued) -> Result<(), (NotQueued, Queued)> {
        let limit = self.conn.config().max_queued_messages;
        // On the reserve thread an ordinary session must not make the reader wait: all other
        // threads may wait for this client.
        let may_wait = || !self.conn.group().runs_urgent_alone() || self.class().is_urgent();
        let mut mail = lock(&self.mail);
        let admitted = mail.admit(limit, queued.arrived, may_wait);
        let reserve = || self.conn.reserve(queued.bytes).map_err(NotQueued::Bytes);
        match admitted.and_then(|()| reserve()) {
            Ok(()) => {
                mail.add(queued, || self.conn.net.hold());
                Ok(())
            }
            Err(refusal) => Err((refusal, queued)),
        }
    }

    /// Offers credit to the running request. Returns false if no request runs.
    pub(super) fn offer(&self, bytes: i64) -> bool {
        let runs = lock(&self.mail).offer(bytes);
        if runs {
            self.wake();
        }
        runs
    }

    // ---- called by any thread ----

    /// Runs `code`, which must not wait, on the mailbox.
    pub(super) fn mail<R>(&self, code: impl FnOnce(&mut Mailbox<Hold>) -> R) -> R {
        code(&mut lock(&self.mail))
    }

    /// Makes a waiting writer check its condition again, and makes the session run.
    pub(super) fn wake(&self) {
        self.wake_runner(<dyn Wakeable>::wake);
    }

    /// Has `set` set the outcome of a deferred request, and makes the session run as urgent work.
    /// `answered` as in [`Wakeable::wake_with_outcome`].
    pub(super) fn give_outcome(&self, answered: bool, set: impl FnOnce()) {
        // Counted before a worker can take it.
        self.outcomes.fetch_add(1, Ordering::Relaxed);
        set();
        self.wake_runner(|runner| runner.wake_with_outcome(answered));
    }

    fn wake_runner(&self, wake: impl FnOnce(Arc<dyn Wakeable>)) {
        // A waiting writer checks its condition under this lock. So it sees the change, or is
        // woken.
        let waits = lock(&self.mail).handler_waits;
        if waits {
            // This is a system call even if no thread waits.
            self.changed.notify_all();
        }
        if let Some(runner) = self.runner.upgrade() {
            wake(runner);
        }
    }

    /// Returns true if the session has ended and its frames are dropped.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Returns true if the running request is cancelled.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns true if the request that is being answered must end: it is cancelled, or its session has
    /// ended.
    pub(super) fn must_end(&self) -> bool {
        self.is_interrupted() || self.is_dead()
    }

    /// Cancels the oldest unanswered request. Returns false if there is none.
    pub(super) fn cancel(&self, reason: CancelReason) -> bool {
        let cancel = |mail: &mut Mailbox<_>| mail.cancel(reason, self.is_answered());
        self.cancel_by(reason, cancel) != Cancelled::Nothing
    }

    fn is_answered(&self) -> bool {
        // Acquire: pairs with `set_answered`.
        self.answered.load(Ordering::Acquire)
    }

    /// Interrupts the running command if `cancel` has cancelled it.
    fn cancel_by(
        &self,
        reason: CancelReason,
        cancel: impl FnOnce(&mut Mailbox<Hold>) -> Cancelled,
    ) -> Cancelled {
        let callback = lock(&self.cancel);
        {
            let mut mail = lock(&self.mail);
            let cancelled = cancel(&mut mail);
            if cancelled != Cancelled::Running {
                return cancelled;
            }
            self.interrupted.store(true, Ordering::Relaxed);
        }
        self.conn.group().guard("cancel", || callback.call(reason));
        drop(callback);
        self.wake();
        Cancelled::Running
    }

    /// Ends the session. After the return no frame of it is sent. Returns false if it had ended
    /// before.
    pub(super) fn kill(&self, reason: CancelReason) -> bool {
        let mut first = false;
        self.conn.exclude_sends(|| first = !self.dead.swap(true, Ordering::AcqRel));
        if !first {
            return false;
        }
        self.refuse(|_| ());
        self.cancel(reason);
        // The session must run to clean up, even if nothing was cancelled.
        self.wake();
        true
    }

    /// Ends the session by its own worker, which has sent the final message. Called under the lock of
    /// `mail`, so no other thread sends a frame of the session behind that message.
    pub(super) fn end(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Closes the mailbox, and drops the requests in it. `say` may send the final message, with an
    /// answer to each waiting request, and must not wait. It runs under the lock, so no other thread
    /// reports the end of the session earlier.
    pub(super) fn refuse(&self, say: impl FnOnce(&VecDeque<Queued>)) {
        let mut mail = lock(&self.mail);
        let (mut queue, reader_waits, hold) = mail.close();
        for queued in &mut queue {
            queued.place = None;
            self.conn.release(queued.bytes);
        }
        say(&queue);
        drop(mail);
        self.resume_if(reader_waits);
        drop(hold);
    }

    /// Cancels requests that are older than `timeout`. Returns the time until the next request
    /// becomes so old.
    pub(super) fn check_deadline(&self, now: Instant, timeout: Duration) -> Option<Duration> {
        let (late, next) = lock(&self.mail).check_deadline(now, timeout);
        if late {
            // The next request may run by now. It is not late, so the mailbox checks again.
            let cancel = |mail: &mut Mailbox<_>| mail.cancel_late(now, timeout, self.is_answered());
            let _ = self.cancel_by(CancelReason::Deadline, cancel);
        }
        next
    }

    /// Class of the next run of the session.
    pub(super) fn class(&self) -> Class {
        let class = Class::from_u8(self.class.load(Ordering::Relaxed));
        let has_outcome = self.outcomes.load(Ordering::Relaxed) > 0;
        if has_outcome { class.or(Class::InProgress) } else { class }
    }

    /// Has `send` send an answer with timestamps, which must not wait. It runs under the lock, so the
    /// final message of the session does not leave between its check for the end and the answer.
    pub(super) fn answer_timestamps(&self, send: impl FnOnce()) {
        let mut mail = lock(&self.mail);
        send();
        let ends = mail.timestamps_answered(self.conn.is_draining(), || self.conn.net.hold());
        drop(mail);
        if ends {
            self.wake();
        }
    }

    // ---- called by the worker that runs the session ----

    /// Takes the next command from the mailbox.
    pub(super) fn next(&self) -> Option<Queued> {
        let limit = self.conn.config().max_queued_messages;
        let (queued, resumes) = {
            let mut mail = lock(&self.mail);
            let begun = mail.begin(limit)?;
            self.answered.store(false, Ordering::Relaxed);
            begun
        };
        self.conn.release(queued.bytes);
        self.resume_if(resumes);
        Some(queued)
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
        self.conn.is_draining() && lock(&self.mail).close_if_done()
    }

    /// Called when the output of the session has been sent. If the session is over, `uncount` runs under
    /// the lock: a thread that sees the mailbox closed may open the next session.
    pub(super) fn settle(&self, uncount: impl FnOnce()) -> Settled {
        let mut mail = lock(&self.mail);
        let (settled, hold) = mail.settle(self.id.is_auto_commit(), self.conn.is_draining());
        if settled == Settled::Over {
            uncount();
        }
        drop(mail);
        drop(hold);
        settled
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
            self.interrupted.store(false, Ordering::Relaxed);
            mail.end()
        };
        if cancelled.is_some() {
            drop(lock(&self.cancel));
        }
        cancelled
    }

    /// Replaces the error of an interrupted request by the error of the cancel reason.
    pub(super) fn reason(&self, error: SessionError) -> SessionError {
        match self.mail(|mail| mail.cancelled()) {
            Some(reason) if error.is_interrupted() => SessionError::cancelled(reason),
            _ => error,
        }
    }

    pub(super) fn set_cancel(&self, cancel: Cancel) {
        let before = std::mem::replace(&mut *lock(&self.cancel), cancel);
        // Foreign value: its drop may panic.
        self.conn.group().guard("drop", || drop(before));
    }

    pub(super) fn note_outcome_taken(&self) {
        self.outcomes.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn set_class(&self, class: Class) {
        let before = Class::from_u8(self.class.load(Ordering::Relaxed));
        if class != before {
            self.class.store(class as u8, Ordering::Relaxed);
            self.conn.note_class(before, class);
        }
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
        lock(&self.mail).handler_waits = true;
        let writers = &conn.server.writers;
        if let Some(longest) = writers.enter(group, self.waiting(), limit)
            && longest.cancel_writer()
        {
            conn.count(crate::stats::Counter::WritersCut);
        }
        conn.group().usage().waiting_writers.change(true);
        // The handler may hold locks, so what its client sends must be read even if all ordinary
        // threads wait for them.
        conn.note_urgent(true);
        let go_on = stall::run_as(Wait::Network, || {
            let mut mail = lock(&self.mail);
            loop {
                if self.must_end() || conn.net.is_closed() {
                    return false;
                }
                let has_room = conn.has_room();
                if let Some(go_on) = mail.may_write(left, has_room, conn.is_finished()) {
                    return go_on;
                }
                if !has_room {
                    self.wake_when_room();
                }
                mail = self.changed.wait(&self.mail, mail);
            }
        });
        conn.note_urgent(false);
        conn.group().usage().waiting_writers.change(false);
        writers.leave(group, &self.waiting());
        lock(&self.mail).handler_waits = false;
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
        self.cancel_by(CancelReason::Deadline, Mailbox::cancel_writer) == Cancelled::Running
    }
}

/// Id of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SessionId {
    /// Id that the client chose, unique among the open sessions of its connection.
    pub wire: u64,
    /// Number that the server chose, from 1. It repeats after 2³² sessions. Clients see it as
    /// `connection_id()`.
    pub number: u32,
}

/// Bit of a session id that marks a session of one statement.
pub(super) const AUTO_COMMIT: u64 = 1 << 63;

impl SessionId {
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

/// Callback that interrupts a session from another thread. *Default* none: the requests end by
/// themselves, or check [`Reply::is_cancelled`](super::Reply::is_cancelled).
#[derive(Default)]
pub struct Cancel(Option<Box<dyn Fn(CancelReason) + Send + Sync>>);

impl Cancel {
    /// Creates a callback. The layer calls `code` at most once per request, while the request runs.
    /// `code` must be quick and must not wait for the request. Its effect, such as an error of the
    /// engine, is returned by [`Service::execute`](super::Service::execute).
    #[must_use]
    pub fn new(code: impl Fn(CancelReason) + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(code)))
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
    use crate::session::mailbox::SessionCommand;
    use crate::session::server_shared::ServerShared;

    struct Idle;

    impl Wakeable for Idle {
        fn wake(self: Arc<Self>) {}

        fn wake_with_outcome(self: Arc<Self>, _answered: bool) {}
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
        let queued = Queued::new(SessionCommand::Open, 0, Instant::now());
        shared.queue(queued).map_err(|(refusal, _)| refusal)
    }

    fn queue(shared: &SessionShared) {
        try_queue(shared).expect("there is room");
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

    /// All other threads may wait for the client of the full mailbox.
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
