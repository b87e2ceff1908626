//! [`Link`]: one connection with its sessions.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use md5::{Digest, Md5};

use super::cache::Put;
use super::clock::Clock;
use super::kept::Kept;
use super::line::Line;
use super::output::Output;
use super::run::{Session, TURN, is_quick};
use super::server::Shared;
use super::service::{Account, CancelReason, Peer, Service, SessionId};
use crate::codec::message::plan::AnyPlan;
use crate::net::{Cork, Held};
use crate::runtime::{Class, Cost, Lent, Pace, Timer, Work, after, is_late, note_panic};
use crate::stats::Counter;
use crate::sync::shim::lock;
use crate::sys::clock;

/// Sessions that one receive may queue among those of others; the rest goes behind.
const SHARE: u32 = 16;

pub(super) struct Link<S: Service> {
    pub(super) line: Arc<Line>,
    pub(super) server: Arc<Shared<S>>,
    /// Set by the login, before there are sessions.
    pub(super) peer: OnceLock<Peer>,
    table: Mutex<HashMap<u64, Arc<Session<S>>>>,
    /// Sessions that were ended from outside, and are out of the table, but not over.
    lingering: AtomicUsize,
    clock: OnceLock<Arc<Clock<S>>>,
    /// What became runnable and was not begun.
    ready: Mutex<Ready>,
    /// What a statement in a session of its own costs.
    pub(super) statement_cost: Cost,
    /// What it costs to run what is ready when that is a task.
    turn_cost: Cost,
    /// A timer looks for requests that take too long.
    watched: AtomicBool,
    /// Of the login, and behind that the one that looks.
    timer: Mutex<Option<Timer>>,
}

/// Who cancels what is to come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Canceller {
    Nobody,
    /// See [`Link::cancel_timer`]. There is one of these at a time.
    Link,
}

/// In the order in which they came.
#[derive(Default)]
struct Ready {
    /// Of transactions, first.
    urgent: VecDeque<Arc<dyn Runnable>>,
    ordinary: VecDeque<Arc<dyn Runnable>>,
}

/// A plan that is kept, with its text for the audit log.
#[derive(Debug)]
pub(super) struct KeptPlan {
    pub(super) plan: AnyPlan,
    pub(super) audit: Box<[u8]>,
}

/// What can be run in place, on the thread that made it runnable.
pub(super) trait Runnable: Work {
    /// Runs what was queued, from `now` on; returns the time at its end. What it has written is in
    /// `out`, which holds it until that has left: nobody else runs it before.
    fn run_here(self: Arc<Self>, out: &Output, now: Instant) -> Instant;

    /// What it had written has left.
    fn settle(self: Arc<Self>);
}

/// What became of a session that was to be opened.
#[derive(Debug)]
pub(super) enum Opening<T> {
    Opened(T),
    /// There is one with this id.
    Duplicate,
    /// There are too many.
    Limit,
}

impl<S: Service> Link<S> {
    pub(super) fn new(line: Line, server: Arc<Shared<S>>) -> Self {
        Self {
            line: Arc::new(line),
            server,
            peer: OnceLock::new(),
            table: Mutex::default(),
            lingering: AtomicUsize::new(0),
            clock: OnceLock::new(),
            ready: Mutex::default(),
            statement_cost: Cost::unknown(),
            turn_cost: Cost::unknown(),
            watched: AtomicBool::new(false),
            timer: Mutex::default(),
        }
    }

    /// Who logged in.
    pub(super) fn peer(&self) -> &Peer {
        self.peer.get().expect("sessions are opened after the login only")
    }

    pub(super) fn note_panic(&self, payload: Box<dyn Any + Send>) {
        self.line.count(Counter::RequestPanics);
        note_panic(self.line.group(), "session", payload);
    }

    // ---- sessions ----

    pub(super) fn find(&self, id: u64) -> Option<Arc<Session<S>>> {
        lock(&self.table).get(&id).cloned()
    }

    /// A new session, if there is room for it and none with its id.
    pub(super) fn open(self: &Arc<Self>, id: u64) -> Opening<Arc<Session<S>>> {
        let config = self.line.config();
        let mut table = lock(&self.table);
        // Whoever kills what it has begun gets no room for more before that has ended.
        let sessions = table.len() + self.lingering.load(Ordering::Relaxed);
        if sessions >= config.max_sessions_per_connection {
            return Opening::Limit;
        }
        if table.get(&id).is_some_and(|session| !session.channel.is_closed()) {
            return Opening::Duplicate;
        }
        if !self.line.group().usage().session_opens(config.max_sessions) {
            return Opening::Limit;
        }
        let number = self.server.next_number();
        let session = Session::new(SessionId { wire: id, number }, self);
        let gone = table.insert(id, Arc::clone(&session));
        drop(table);
        // Its end runs code of the user: not under the lock.
        drop(gone);
        Opening::Opened(session)
    }

    /// Takes a session out of the table, unless another has its place by now.
    pub(super) fn forget(&self, id: SessionId) {
        let gone = match lock(&self.table).entry(id.wire()) {
            Entry::Occupied(entry) if entry.get().channel.id == id => Some(entry.remove()),
            _ => None,
        };
        // Its end runs code of the user: not under the lock.
        drop(gone);
    }

    /// A session that is out of the table is not over yet, or is over now.
    pub(super) fn lingers(&self, begins: bool) {
        if begins {
            self.lingering.fetch_add(1, Ordering::Relaxed);
        } else {
            self.lingering.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// All sessions, in the order of their ids.
    pub(super) fn sessions(&self) -> Vec<Arc<Session<S>>> {
        in_order(lock(&self.table).values().cloned().collect())
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        // It would stay for all of `request_timeout`, after each connection that comes and goes.
        self.cancel_timer();
        let sessions = std::mem::take(&mut *lock(&self.table));
        for session in in_order(sessions.into_values().collect()) {
            session.channel.kill(CancelReason::Connection);
        }
        // To be ended by a worker, like the others.
        self.push_ready();
    }

    /// Ends what its peer, who has finished sending, and may be gone, waits for too long.
    pub(super) fn end_later(self: &Arc<Self>) {
        if self.sessions().iter().all(|session| session.channel.is_idle()) {
            return;
        }
        let delay = self.line.config().half_close_timeout;
        // When the connection has ended it finds nothing.
        self.later(Class::InProgress, delay, Canceller::Nobody, |link| link.end());
    }

    /// Calls `code` after some time, unless the link is gone by then; it does not keep it.
    ///
    /// When nobody looked at the time for long, nobody served the peer either: then the time begins
    /// anew, once.
    pub(super) fn later(
        self: &Arc<Self>,
        class: Class,
        delay: Duration,
        canceller: Canceller,
        code: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let due = clock::now() + delay;
        self.call_after(class, delay, canceller, move |link| {
            if is_late(due, clock::now()) {
                link.call_after(class, delay, canceller, code);
            } else {
                code(link);
            }
        });
    }

    fn call_after(
        self: &Arc<Self>,
        class: Class,
        delay: Duration,
        canceller: Canceller,
        code: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let link = Arc::downgrade(self);
        let call = move || {
            if let Some(link) = link.upgrade() {
                code(&link);
            }
        };
        // Taken before: when it is due at once and begins anew, that one comes second.
        let mut place = lock(&self.timer);
        // After `end` nobody would cancel it, and nothing is left to be done.
        if self.line.conn.is_closed() {
            return;
        }
        let timer = after(self.line.group(), class, delay, Box::new(call));
        if canceller == Canceller::Link {
            *place = Some(timer);
        }
    }

    /// Nobody is waited for any more.
    pub(super) fn cancel_timer(&self) {
        let timer = lock(&self.timer).take();
        if let Some(timer) = timer {
            timer.cancel();
        }
    }

    /// Leaves what is runnable to other workers.
    pub(super) fn push_ready(&self) {
        while let Some((next, _)) = self.next_ready() {
            self.line.group().push_work(next);
        }
    }

    pub(super) fn clock(self: &Arc<Self>) -> &Arc<Clock<S>> {
        self.clock.get_or_init(|| Arc::new(Clock::new(Arc::downgrade(self))))
    }

    // ---- what is runnable ----

    /// To be run when nobody holds the connection's receiving side.
    pub(super) fn make_ready(&self, runnable: Arc<dyn Runnable>) {
        let urgent = runnable.class().is_urgent();
        let mut ready = lock(&self.ready);
        if urgent { &mut ready.urgent } else { &mut ready.ordinary }.push_back(runnable);
    }

    /// Takes one out, of a transaction if there is one; says whether there are more.
    fn next_ready(&self) -> Option<(Arc<dyn Runnable>, bool)> {
        let mut ready = lock(&self.ready);
        let next = ready.urgent.pop_front().or_else(|| ready.ordinary.pop_front())?;
        Some((next, !(ready.urgent.is_empty() && ready.ordinary.is_empty())))
    }

    /// Runs here what is known to be quick, and the last one if nothing stands behind it and nobody
    /// knows; the others go to the queue.
    pub(super) fn dispatch(self: &Arc<Self>, mut now: Instant, is_last: bool) {
        // Most receives bring something; but what was brought may be taken by another thread.
        let Some(mut first) = self.next_ready() else { return };
        let until = now + TURN;
        Output::with(&self.line, |out| {
            let urgent_alone = self.line.group().runs_urgent_alone();
            // What several sessions send to others leaves together.
            let mut cork = None;
            let mut queued = 0;
            loop {
                let (next, more) = first;
                let here = match next.cost().pace() {
                    _ if urgent_alone && !next.class().is_urgent() => false,
                    Pace::Cheap => true,
                    Pace::Unknown => is_last && !more,
                    Pace::Dear => false,
                };
                if here {
                    if !is_quick(next.cost()) {
                        out.flush();
                    }
                    if more {
                        cork.get_or_insert_with(Cork::new);
                    }
                    if more || out.keeps() || cork.is_some() {
                        out.show(self);
                    }
                    now = next.run_here(out, now);
                } else if queued < SHARE && !self.line.conn.brings_much() {
                    queued += 1;
                    self.line.group().push_work(next);
                } else {
                    self.line.group().push_spent_work(next);
                }
                // Its client sends on as it gets replies: other connections want their turn.
                if more && now >= until {
                    let (link, kept) = (Arc::clone(self), Arc::default());
                    self.line.group().push_spent_work(Arc::new(Rest { link, kept, held: None }));
                    break;
                }
                match self.next_ready() {
                    Some(next) => first = next,
                    None => break,
                }
            }
        });
    }

    // ---- deadlines ----

    /// A request has come: somebody looks whether it takes too long.
    pub(super) fn watch(self: &Arc<Self>) {
        if self.watched.load(Ordering::Relaxed) {
            return;
        }
        let timeout = self.line.config().request_timeout;
        // AcqRel: see `look_for_late`.
        if !timeout.is_zero() && !self.watched.swap(true, Ordering::AcqRel) {
            self.look_later(timeout);
        }
    }

    fn look_later(self: &Arc<Self>, delay: Duration) {
        let delay = delay.max(SHORTEST_LOOK);
        self.later(Class::InProgress, delay, Canceller::Link, Self::look_for_late);
    }

    fn look_for_late(self: &Arc<Self>) {
        if let Some(delay) = self.cancel_late() {
            return self.look_later(delay);
        }
        // AcqRel: whoever finds it set before this swap has posted before, and is seen now.
        self.watched.swap(false, Ordering::AcqRel);
        if let Some(delay) = self.cancel_late()
            && !self.watched.swap(true, Ordering::AcqRel)
        {
            self.look_later(delay);
        }
    }

    /// Cancels what takes too long, and says when the next one will.
    fn cancel_late(&self) -> Option<Duration> {
        let timeout = self.line.config().request_timeout;
        if timeout.is_zero() {
            return None;
        }
        let now = clock::now();
        let sessions = self.sessions();
        sessions.iter().filter_map(|session| session.channel.check_deadline(now, timeout)).min()
    }

    // ---- the cache ----

    pub(super) fn kept_sql(&self, account: &Account, digest: &[u8]) -> Option<Arc<[u8]>> {
        let kept = self.server.sql.get(account.name().as_bytes(), digest);
        self.line.count(if kept.is_some() { Counter::SqlHit } else { Counter::SqlMiss });
        kept
    }

    /// Not if the digest is that of another text: whoever names it next would run what he did not mean.
    pub(super) fn keep_sql(&self, account: &Account, digest: &[u8], text: &[u8]) {
        let longest = self.line.config().request_cache_max_length;
        // What is too long is not kept in any case, and a digest of it is not worth while.
        if text.len() <= longest && !is_of(digest, text) {
            return;
        }
        let put = self.server.sql.put(&account.key(), digest, text.len(), longest, || text.into());
        self.note_evicted(put, Counter::SqlEvict);
    }

    pub(super) fn kept_plan(&self, account: &Account, digest: &[u8]) -> Option<Arc<KeptPlan>> {
        let kept = self.server.plans.get(account.name().as_bytes(), digest);
        self.line.count(if kept.is_some() { Counter::PlanHit } else { Counter::PlanMiss });
        kept
    }

    /// `bytes`: what the message with it takes in memory.
    pub(super) fn keep_plan(
        &self,
        account: &Account,
        digest: &[u8],
        plan: &AnyPlan,
        audit: &[u8],
        bytes: usize,
    ) {
        let longest = self.line.config().request_cache_max_length;
        let kept = || Arc::new(KeptPlan { plan: plan.clone(), audit: audit.into() });
        let put = self.server.plans.put(&account.key(), digest, bytes, longest, kept);
        self.note_evicted(put, Counter::PlanEvict);
    }

    fn note_evicted(&self, put: Put, counter: Counter) {
        if let Put::Kept { evicted: evicted @ 1.. } = put {
            self.line.group().count(counter, evicted as u64);
        }
    }
}

/// So that what follows does not hang on how a table hashes.
fn in_order<S: Service>(mut sessions: Vec<Arc<Session<S>>>) -> Vec<Arc<Session<S>>> {
    sessions.sort_unstable_by_key(|session| session.channel.id.wire());
    sessions
}

/// Whether a digest can be that of a text: one as long as MD5 is taken for that, another may be
/// whatever its client likes.
fn is_of(digest: &[u8], text: &[u8]) -> bool {
    let md5 = || Md5::digest(text);
    digest.len() != <Md5 as Digest>::output_size() || *md5() == *digest
}

/// Deadlines are looked at no more often than this.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

/// What stands behind a session that is stuck after all, when another worker comes for it; or what was
/// left when a turn was over.
pub(super) struct Rest<S: Service> {
    pub(super) link: Arc<Link<S>>,
    pub(super) kept: Arc<Kept>,
    /// What the sessions that were run have sent to others.
    pub(super) held: Option<Arc<Held>>,
}

impl<S: Service> Work for Rest<S> {
    fn run(self: Arc<Self>, lent: &mut Lent<'_>) {
        self.kept.relieve(&self.link.line);
        self.held.iter().for_each(|held| held.flush());
        let link = &self.link;
        link.dispatch(lent.lap.now, true);
        lent.charge(&link.turn_cost);
    }

    fn class(&self) -> Class {
        if lock(&self.link.ready).urgent.is_empty() { Class::Ordinary } else { Class::InProgress }
    }

    fn cost(&self) -> &Cost {
        &self.link.turn_cost
    }
}

impl<S: Service> fmt::Debug for Link<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("line", &self.line).finish_non_exhaustive()
    }
}
