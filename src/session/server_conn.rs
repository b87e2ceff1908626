//! [`ServerConn`]: a connection with its sessions, without the type of their service.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::accounts::{Place, Resource};
use super::conn_shared::ConnShared;
use super::error::{CancelReason, SessionError};
use super::output::Output;
use super::session_shared::{SessionId, SessionShared};
use crate::net::{Cork, Held};
use crate::runtime::{Class, Cost, Pace, Timer, Work, WorkerContext, after, is_late};
use crate::stats::Counter;
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};

/// Sessions that one receive may put into the run queue. Further ones go to the background queue.
const SHARE: u64 = 16;
/// Length of a turn. After it, a session, or the sessions of one connection together, go to the
/// background queue.
pub(super) const TURN: Duration = Duration::from_millis(1);

pub(super) struct ServerConn {
    pub(super) conn: Arc<ConnShared>,
    table: Mutex<HashMap<u64, Arc<dyn AnySession>>>,
    /// Sessions and timestamp requests that are runnable and were not started.
    ready: Mutex<Ready>,
    /// Cost of a task that runs the ready queue.
    turn_cost: Cost,
    /// Set while a timer checks for requests that take too long.
    watched: AtomicBool,
    /// Timer of the login, and later the timer that checks deadlines.
    timer: Mutex<Option<Timer>>,
}

/// Selects whether [`ServerConn::cancel_timer`] cancels a timer. A connection has at most one such timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancellable {
    No,
    Yes,
    /// Like `Yes`, and after the login the timer is not set. It may begin anew while the login succeeds,
    /// and would then take the place of the next one.
    UntilLogin,
}

/// Runnable work of a connection, in order of arrival.
#[derive(Default)]
struct Ready {
    /// Work in transactions, which goes first.
    urgent: VecDeque<Arc<dyn Runnable>>,
    ordinary: VecDeque<Arc<dyn Runnable>>,
}

/// Work that can run in place, on the thread that made it runnable.
pub(super) trait Runnable: Work {
    /// Notes that there is work. Returns true if the caller must queue or run it.
    fn becomes_runnable(&self) -> bool;

    /// Runs the queued work from `now` on, and returns the time at the end. No other thread runs it
    /// before its output is passed on.
    fn run_here(self: Arc<Self>, out: &Output, now: Instant) -> Instant;
}

/// Session without the type of its service.
pub(super) trait AnySession: Runnable {
    fn shared(&self) -> &Arc<SessionShared>;
}

/// Reason why a session was not opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// The connection has a session with this id.
    Duplicate,
    /// The connection, the account or the server has too many sessions.
    Limit(SessionError),
}

impl ServerConn {
    pub(super) fn new(conn: ConnShared) -> Self {
        Self {
            conn: Arc::new(conn),
            table: Mutex::default(),
            ready: Mutex::default(),
            turn_cost: Cost::unknown(),
            watched: AtomicBool::new(false),
            timer: Mutex::default(),
        }
    }

    pub(super) fn find(&self, id: u64) -> Option<Arc<dyn AnySession>> {
        lock(&self.table).get(&id).cloned()
    }

    /// Opens the session that `new` creates, if the limits allow it and the id is free.
    pub(super) fn open(
        &self,
        id: u64,
        new: impl FnOnce(SessionId, Place) -> Arc<dyn AnySession>,
    ) -> Result<Arc<dyn AnySession>, NotOpened> {
        let conn = &self.conn;
        let config = conn.config();
        let mut table = lock(&self.table);
        if table.get(&id).is_some_and(|session| !session.shared().mail(|mail| mail.is_closed())) {
            return Err(NotOpened::Duplicate);
        }
        // A session of one statement whose mailbox is closed is not counted any more, so the mailbox was
        // checked first. Only this thread opens sessions of the connection.
        if conn.sessions.load(Ordering::Relaxed) >= config.max_sessions_per_connection {
            return Err(NotOpened::Limit(too_many()));
        }
        if !conn.group().usage().session_opens(config.max_sessions) {
            return Err(NotOpened::Limit(too_many()));
        }
        let place = conn.account_use().take(Resource::Session, &conn.account().limits).map_err(
            |error| {
                conn.account_use().note_refused();
                conn.group().usage().session_closed();
                NotOpened::Limit(error)
            },
        )?;
        let session = new(SessionId { wire: id, number: conn.server.next_number() }, place);
        let gone = table.insert(id, Arc::clone(&session));
        drop(table);
        // The drop of a session runs foreign code: not under the lock.
        drop(gone);
        Ok(session)
    }

    /// Removes a session from the table, unless a newer session has its place.
    pub(super) fn forget(&self, id: SessionId) {
        let gone = match lock(&self.table).entry(id.wire) {
            Entry::Occupied(entry) if entry.get().shared().id == id => Some(entry.remove()),
            _ => None,
        };
        // The drop of a session runs foreign code: not under the lock.
        drop(gone);
    }

    /// All sessions, in the order of their ids.
    pub(super) fn sessions(&self) -> Vec<Arc<dyn AnySession>> {
        in_order(lock(&self.table).values().cloned().collect())
    }

    /// Ends all sessions when the connection has ended.
    pub(super) fn end(&self) {
        // The timer would otherwise stay for `request_timeout` after each short connection.
        self.cancel_timer();
        self.conn.end();
        let sessions = std::mem::take(&mut *lock(&self.table));
        for session in in_order(sessions.into_values().collect()) {
            session.shared().kill(CancelReason::Connection);
        }
        // Workers run the ends, which may wait.
        self.push_ready();
    }

    /// Ends the sessions after `half_close_timeout`, unless all are idle and nothing is `asked`.
    /// The peer has finished sending, and may be gone.
    pub(super) fn end_later(self: &Arc<Self>, asked: bool) {
        let is_idle = |session: &Arc<dyn AnySession>| session.shared().mail(|mail| mail.is_idle());
        if !asked && self.sessions().iter().all(is_idle) {
            return;
        }
        let delay = self.conn.config().half_close_timeout;
        // If the connection has ended before, `end` finds no session.
        self.later(Class::InProgress, delay, Cancellable::No, |server_conn| server_conn.end());
    }

    /// Calls `code` after `delay`, unless the connection is gone by then. The timer does not keep
    /// it alive.
    ///
    /// If the timer fires late, the server did not serve the peer meanwhile. So the delay begins
    /// anew, once.
    pub(super) fn later(
        self: &Arc<Self>,
        class: Class,
        delay: Duration,
        cancellable: Cancellable,
        code: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let due = clock::now() + delay;
        self.call_after(class, delay, cancellable, move |server_conn| {
            if is_late(due, clock::now()) {
                server_conn.call_after(class, delay, cancellable, code);
            } else {
                code(server_conn);
            }
        });
    }

    fn call_after(
        self: &Arc<Self>,
        class: Class,
        delay: Duration,
        cancellable: Cancellable,
        code: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let server_conn = Arc::downgrade(self);
        let call = move || {
            if let Some(server_conn) = server_conn.upgrade() {
                code(&server_conn);
            }
        };
        // Locked before the timer starts. A timer that is due at once may set its successor, which
        // must come second.
        let mut place = lock(&self.timer);
        // After `end` the timer would not be cancelled, and has nothing to do.
        if self.conn.net.is_closed() {
            return;
        }
        if cancellable == Cancellable::UntilLogin && self.conn.is_logged_in() {
            return;
        }
        let timer = after(self.conn.group(), class, delay, Box::new(call));
        match cancellable {
            Cancellable::Yes | Cancellable::UntilLogin => *place = Some(timer),
            Cancellable::No => timer.detach(),
        }
    }

    pub(super) fn cancel_timer(&self) {
        let timer = lock(&self.timer).take();
        drop(timer);
    }

    /// Leaves the runnable work to other workers.
    pub(super) fn push_ready(&self) {
        while let Some((next, _)) = self.next_ready() {
            self.conn.group().count(Counter::SessionRunsQueued, 1);
            self.conn.group().push_work(next);
        }
    }

    /// Queues work to run in `released`, after the receiving side of the connection was given up.
    pub(super) fn make_ready(&self, runnable: Arc<dyn Runnable>) {
        let urgent = runnable.class().is_urgent();
        let mut ready = lock(&self.ready);
        if urgent { &mut ready.urgent } else { &mut ready.ordinary }.push_back(runnable);
    }

    /// Takes one item, urgent items first. Returns true beside it if more are left.
    fn next_ready(&self) -> Option<(Arc<dyn Runnable>, bool)> {
        let mut ready = lock(&self.ready);
        let next = ready.urgent.pop_front().or_else(|| ready.ordinary.pop_front())?;
        Some((next, !(ready.urgent.is_empty() && ready.ordinary.is_empty())))
    }

    /// Runs quick work in place. Work of unknown cost runs in place if nothing waits behind it. Other
    /// work goes to the run queue. If nothing waits behind slow work, it is left to this worker.
    pub(super) fn dispatch(self: &Arc<Self>, now: Instant, is_last: bool) {
        // Another thread may have taken the work of this receive.
        let Some(first) = self.next_ready() else { return };
        let last = Output::with(&self.conn, |out| self.run_ready(out, first, now, is_last));
        if let Some(last) = last {
            self.conn.group().put_stealable(last);
        }
    }

    /// Runs or queues the ready work, from `first` on. Returns slow work that nothing waits behind.
    fn run_ready(
        self: &Arc<Self>,
        out: &Output,
        mut first: (Arc<dyn Runnable>, bool),
        mut now: Instant,
        is_last: bool,
    ) -> Option<Arc<dyn Work>> {
        let until = now + TURN;
        let urgent_alone = self.conn.group().runs_urgent_alone();
        // Output of several sessions leaves in one send for each connection.
        let mut cork = None;
        let (mut inline, mut queued, mut last) = (0, 0, None);
        loop {
            let (next, more) = first;
            let may_run = !urgent_alone || next.class().is_urgent();
            let waits_behind = more || !is_last;
            let here = match next.cost().pace() {
                Pace::Cheap => may_run,
                Pace::Unknown => may_run && !waits_behind,
                Pace::Dear => false,
            };
            if here {
                inline += 1;
                if more {
                    cork.get_or_insert_with(Cork::new);
                }
                if cork.is_some() {
                    self.show(out);
                }
                now = next.run_here(out, now);
            } else {
                queued += 1;
                if queued > SHARE || self.conn.net.brings_much() {
                    self.conn.group().push_spent_work(next);
                } else if queued == 1 && may_run && !waits_behind {
                    last = Some(next as Arc<dyn Work>);
                } else {
                    self.conn.group().push_work(next);
                }
            }
            // The peer may send more for each reply, so other connections go first after a
            // turn.
            if more && now >= until {
                let rest = RemainingWork { server_conn: Arc::clone(self), held: None };
                self.conn.group().push_spent_work(Arc::new(rest));
                break;
            }
            match self.next_ready() {
                Some(next) => first = next,
                None => break,
            }
            // Another thread has made more work ready. Nothing may wait behind it unseen.
            if let Some(last) = last.take() {
                self.conn.group().push_work(last);
            }
        }
        self.conn.group().count(Counter::SessionRunsInline, inline);
        self.conn.group().count(Counter::SessionRunsQueued, queued);
        last
    }

    /// Makes the ready queue visible to other workers, see [`Output::show`].
    pub(super) fn show(self: &Arc<Self>, out: &Output) {
        out.show(|held| Arc::new(RemainingWork { server_conn: Arc::clone(self), held }));
    }

    /// Starts the timer that checks for late requests, after a request was queued.
    pub(super) fn watch(self: &Arc<Self>) {
        if self.watched.load(Ordering::Relaxed) {
            return;
        }
        let timeout = self.conn.config().request_timeout;
        // AcqRel: pairs with the swap in `look_for_late`.
        if !timeout.is_zero() && !self.watched.swap(true, Ordering::AcqRel) {
            self.look_later(timeout);
        }
    }

    fn look_later(self: &Arc<Self>, delay: Duration) {
        let delay = delay.max(SHORTEST_LOOK);
        self.later(Class::InProgress, delay, Cancellable::Yes, Self::look_for_late);
    }

    fn look_for_late(self: &Arc<Self>) {
        if let Some(delay) = self.cancel_late() {
            return self.look_later(delay);
        }
        // AcqRel: a request queued while the flag was set is visible to the check below.
        self.watched.swap(false, Ordering::AcqRel);
        if let Some(delay) = self.cancel_late()
            && !self.watched.swap(true, Ordering::AcqRel)
        {
            self.look_later(delay);
        }
    }

    /// Cancels requests that take too long. Returns the time until the next one does.
    fn cancel_late(&self) -> Option<Duration> {
        let timeout = self.conn.config().request_timeout;
        if timeout.is_zero() {
            return None;
        }
        let now = clock::now();
        let sessions = self.sessions();
        sessions.iter().filter_map(|session| session.shared().check_deadline(now, timeout)).min()
    }
}

fn too_many() -> SessionError {
    SessionError::unsupported("max_connections limit exceed")
}

/// Sorts sessions by id, so that results do not depend on the order of a hash table.
fn in_order(mut sessions: Vec<Arc<dyn AnySession>>) -> Vec<Arc<dyn AnySession>> {
    sessions.sort_unstable_by_key(|session| session.shared().id.wire);
    sessions
}

/// Shortest time between two checks of deadlines.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

/// Task that runs the ready queue. Another worker takes it over if a session that runs in place is
/// stuck. It is also queued after a full turn.
struct RemainingWork {
    server_conn: Arc<ServerConn>,
    /// Output that the stuck worker holds back.
    held: Option<Arc<Held>>,
}

impl Work for RemainingWork {
    fn run(self: Arc<Self>, context: &mut WorkerContext<'_>) {
        self.held.iter().for_each(|held| held.relieve());
        let server_conn = &self.server_conn;
        server_conn.dispatch(context.lap.now, true);
        context.charge(&server_conn.turn_cost);
    }

    fn class(&self) -> Class {
        if lock(&self.server_conn.ready).urgent.is_empty() {
            Class::Ordinary
        } else {
            Class::InProgress
        }
    }

    fn cost(&self) -> &Cost {
        &self.server_conn.turn_cost
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests;
