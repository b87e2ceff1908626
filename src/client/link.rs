//! [`Link`]: one connection of a client on the runtime's workers. The only file with a socket.
//!
//! The worker that receives looks at the frames, puts what came where it is waited for, and tells who
//! waits: a thread is woken, a closure is called on this worker when all of the input was looked at.
//!
//! What several threads send at the same time leaves in one call: the first of them sends for all.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::error::{Error, ErrorKind};
use super::exchange::{Job, Watcher};
use super::fleet::Fleet;
use super::options::Options;
use super::state::State;
use crate::net::{Close, CloseReason, Connection, Cork, Held, Hold, Input, Protocol, flush_corked};
use crate::runtime::{Class, Cost, Group, Handle, Lent, Timer, Turn, Work, after, guard};
use crate::sync::shim::lock;
use crate::sync::stall::before_wait;

/// One connection.
pub(super) struct Link {
    fleet: Weak<Fleet>,
    /// For the log, and for people.
    pub(super) number: u64,
    pub(super) since: Instant,
    inner: Mutex<Inner>,
    /// The group that serves it, from when it was begun.
    group: OnceLock<Arc<Group>>,
    jobs: Mutex<VecDeque<Job>>,
    cost: Cost,
}

struct Inner {
    state: State,
    /// Until it ends.
    conn: Option<Connection>,
    /// As long as answers are to come: a drain waits for them.
    hold: Option<Hold>,
    /// Somebody sends, for all.
    sending: bool,
    timer: Option<(Instant, Timer)>,
    /// The fleet knows that it is ready.
    told_ready: bool,
    told_lost: bool,
}

/// What is to be done when the lock is free.
#[derive(Default)]
struct After {
    events: Vec<Watcher>,
    close: Option<(Connection, String)>,
    ready: bool,
    lost: bool,
    dropped: Option<Hold>,
}

impl Link {
    /// Begins to connect.
    pub(super) fn connect(
        fleet: &Arc<Fleet>,
        handle: &Handle,
        options: &Arc<Options>,
        number: u64,
    ) -> Arc<Self> {
        let now = Instant::now();
        let inner = Inner {
            state: State::new(Arc::clone(options), now),
            conn: None,
            hold: None,
            sending: false,
            timer: None,
            told_ready: false,
            told_lost: false,
        };
        let link = Arc::new(Self {
            fleet: Arc::downgrade(fleet),
            number,
            since: now,
            inner: Mutex::new(inner),
            group: OnceLock::new(),
            jobs: Mutex::default(),
            cost: Cost::unknown(),
        });
        match handle.connect(options.address.as_str(), Wire(Arc::clone(&link))) {
            Ok(conn) => {
                let _ = link.group.set(Arc::clone(conn.group()));
                link.attach(&conn);
                link.act(|_, _| ());
            }
            Err(error) => {
                let error = Error::not_sent(ErrorKind::Connect(error.to_string().into()));
                // Whoever begins to connect holds locks, and is told by what this returns.
                let mut inner = lock(&link.inner);
                inner.state.lose(&error);
                inner.told_lost = true;
            }
        }
        link
    }

    fn attach(&self, conn: &Connection) {
        let mut inner = lock(&self.inner);
        if inner.conn.is_none() && inner.state.lost().is_none() {
            inner.conn = Some(conn.clone());
        }
    }

    /// Why it ended.
    pub(super) fn lost(&self) -> Option<Error> {
        lock(&self.inner).state.lost().cloned()
    }

    pub(super) fn is_ready(&self) -> bool {
        lock(&self.inner).state.is_ready()
    }

    pub(super) fn open_sessions(&self) -> usize {
        lock(&self.inner).state.open_sessions()
    }

    /// Opens a session, which the server hears of with its first request.
    pub(super) fn open(&self) -> Option<u64> {
        lock(&self.inner).state.try_open()
    }

    pub(super) fn outstanding(&self) -> usize {
        lock(&self.inner).state.outstanding()
    }

    /// Looks at the state, or changes it, and does what follows.
    pub(super) fn act<R>(self: &Arc<Self>, code: impl FnOnce(&mut State, Instant) -> R) -> R {
        let (result, after) = self.change(code);
        self.follow(after, false);
        result
    }

    /// Ends the connection, and all that was asked on it.
    pub(super) fn end(self: &Arc<Self>, error: &Error) {
        self.act(|state, _| state.lose(error));
    }

    fn change<R>(self: &Arc<Self>, code: impl FnOnce(&mut State, Instant) -> R) -> (R, After) {
        let now = Instant::now();
        let mut inner = lock(&self.inner);
        let result = code(&mut inner.state, now);
        let after = self.look(&mut inner, now);
        drop(self.flush(inner));
        (result, after)
    }

    /// What follows from what has changed.
    fn look(self: &Arc<Self>, inner: &mut Inner, now: Instant) -> After {
        let mut after = After { events: inner.state.take_events(), ..After::default() };
        if let Some(error) = inner.state.lost() {
            let error = error.to_string();
            after.close = inner.conn.take().map(|conn| (conn, error));
            after.lost = !std::mem::replace(&mut inner.told_lost, true);
            inner.timer = None;
        } else {
            after.ready = inner.state.is_ready() && !std::mem::replace(&mut inner.told_ready, true);
            self.arm(inner, now);
        }
        let idle = inner.state.outstanding() == 0;
        match &inner.conn {
            Some(conn) if !idle && inner.hold.is_none() => inner.hold = Some(conn.hold()),
            Some(_) if !idle => {}
            _ => after.dropped = inner.hold.take(),
        }
        after
    }

    /// Sends what is to be sent, unless somebody does that.
    fn flush<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        if inner.sending {
            return inner;
        }
        while let Some(conn) = inner.conn.clone() {
            let out = inner.state.take_out();
            if out.is_empty() {
                break;
            }
            inner.sending = true;
            drop(inner);
            conn.send(&out);
            inner = lock(&self.inner);
            inner.sending = false;
            let full = conn.pending_bytes() > inner.state.max_unsent_bytes();
            if full {
                inner.state.set_full(true);
                conn.tell_when_low();
            }
        }
        inner
    }

    /// With the lock free.
    fn follow(self: &Arc<Self>, after: After, here: bool) {
        if let Some((conn, reason)) = after.close {
            conn.close(reason);
        }
        drop(after.dropped);
        let mut jobs = false;
        for event in after.events {
            match event {
                Watcher::Thread(thread) => thread.unpark(),
                Watcher::Call(job) => {
                    lock(&self.jobs).push_back(job);
                    jobs = true;
                }
            }
        }
        match self.fleet.upgrade() {
            Some(fleet) if after.lost => fleet.link_lost(self),
            Some(fleet) if after.ready => fleet.link_ready(self),
            None if after.ready => self.end(&Error::not_sent(ErrorKind::Closed)),
            _ => {}
        }
        if jobs && !here {
            self.push_jobs();
        }
    }

    fn push_jobs(self: &Arc<Self>) {
        match self.group.get() {
            Some(group) => group.push_work(Arc::clone(self) as Arc<dyn Work>),
            // It was never begun: nobody could ask it anything.
            None => self.run_jobs(None),
        }
    }

    /// Calls what is to be called. Another worker may do so at the same time.
    fn run_jobs(self: &Arc<Self>, group: Option<&Arc<Group>>) {
        loop {
            let Some(job) = lock(&self.jobs).pop_front() else { return };
            match group {
                Some(group) => drop(guard(group, "answer", job)),
                None => job(),
            }
        }
    }

    /// The same on the worker that has received. What stands behind a job that waits goes to others.
    fn run_jobs_here(self: &Arc<Self>) {
        let Some(group) = self.group.get() else { return };
        let count = lock(&self.jobs).len();
        let several = count > 1;
        if count == 0 {
            return;
        }
        if !several {
            return self.run_jobs(Some(group));
        }
        // What they send leaves together.
        let _cork = Cork::new();
        let before = before_wait(Some(flush_corked));
        if before.is_some() {
            // That does so as well.
            before_wait(before);
        }
        group.set_aside(Arc::new(Behind { link: Arc::clone(self), held: Cork::held() }));
        self.run_jobs(Some(group));
        drop(group.take_aside());
    }

    /// Sees to it that time is looked at when it has to be.
    fn arm(self: &Arc<Self>, inner: &mut Inner, now: Instant) {
        let Some(due) = inner.state.poll_timeout() else { return };
        let Some(group) = self.group.get() else { return };
        if inner.timer.as_ref().is_some_and(|&(armed, _)| armed <= due) {
            return;
        }
        if let Some((_, timer)) = inner.timer.take() {
            timer.cancel();
        }
        let link = Arc::downgrade(self);
        let look = move || {
            if let Some(link) = link.upgrade() {
                lock(&link.inner).timer = None;
                link.act(State::handle_timeout);
            }
        };
        let delay = due.saturating_duration_since(now).max(SHORTEST_LOOK);
        let timer = after(group, Class::InProgress, delay, Box::new(look));
        inner.timer = Some((now + delay, timer));
    }
}

/// Time is looked at no more often than this.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What stands behind a job that is stuck, when another worker comes for it.
struct Behind {
    link: Arc<Link>,
    held: Option<Arc<Held>>,
}

impl Work for Behind {
    fn run(self: Arc<Self>, lent: &mut Lent<'_>) {
        self.held.iter().for_each(|held| held.flush());
        Arc::clone(&self.link).run(lent);
    }

    fn class(&self) -> Class {
        self.link.class()
    }

    fn cost(&self) -> &Cost {
        self.link.cost()
    }
}

impl Work for Link {
    fn run(self: Arc<Self>, lent: &mut Lent<'_>) {
        self.run_jobs(self.group.get());
        lent.charge(&self.cost);
    }

    fn class(&self) -> Class {
        Class::InProgress
    }

    fn cost(&self) -> &Cost {
        &self.cost
    }
}

/// The protocol above the socket.
struct Wire(Arc<Link>);

impl Protocol for Wire {
    type State = ();

    fn opened(&self, conn: &Connection) {
        let _ = self.0.group.set(Arc::clone(conn.group()));
        self.0.attach(conn);
        conn.set_class(Class::InProgress);
        self.0.act(State::handle_connected);
    }

    fn connect_failed(&self, _conn: &Connection, reason: &CloseReason) {
        let reason = match reason {
            CloseReason::ConnectFailed(error) => error.to_string(),
            other => other.to_string(),
        };
        self.0.end(&Error::not_sent(ErrorKind::Connect(reason.into())));
    }

    fn received(
        &self,
        _conn: &Connection,
        (): &mut (),
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        let bytes = input.bytes();
        let ((taken, need), after) = self.0.change(|state, now| state.handle_input(bytes, now));
        input.consume(taken);
        if let Some(total) = need {
            input.need(total);
        }
        self.0.follow(after, true);
        Ok(())
    }

    fn released(&self, _conn: &Connection, _turn: Turn) {
        self.0.run_jobs_here();
    }

    fn drained(&self, _conn: &Connection) {
        self.0.act(|state, _| state.set_full(false));
    }

    fn closed(&self, _conn: &Connection, (): (), reason: &CloseReason) {
        self.0.end(&Error::unknown(ErrorKind::Lost(reason.to_string().into())));
    }
}
