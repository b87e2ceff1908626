//! [`ServerConn`]: the server's side of one connection, with its sessions.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use md5::{Digest, Md5};

use super::accounts::{AccountUse, Peer, Resource};
use super::cache::Put;
use super::conn_shared::ConnShared;
use super::error::{CancelReason, SessionError};
use super::output::Output;
use super::run::{Session, TURN};
use super::server::ServerShared;
use super::service::Service;
use super::session_shared::SessionId;
use super::timestamps::TimestampQueue;
use crate::codec::proto::plan::AnyPlan;
use crate::net::{Cork, Held};
use crate::runtime::{Class, Cost, Pace, Timer, Work, WorkerContext, after, is_late, note_panic};
use crate::stats::Counter;
use crate::sync::shim::lock;
use crate::sys::clock;

/// Sessions that one receive may put into the run queue. Further ones go to the background queue.
const SHARE: u32 = 16;

pub(super) struct ServerConn<S: Service> {
    pub(super) conn: Arc<ConnShared>,
    pub(super) server: Arc<ServerShared<S>>,
    /// Set by the login, before the first session.
    pub(super) peer: OnceLock<Peer>,
    /// Use of the account, set before `peer`.
    pub(super) account: OnceLock<Arc<AccountUse>>,
    table: Mutex<HashMap<u64, Arc<Session<S>>>>,
    /// Sessions that were removed from the table and have not ended yet.
    lingering: AtomicUsize,
    timestamps: OnceLock<Arc<TimestampQueue<S>>>,
    /// Sessions and timestamp requests that are runnable and were not started.
    ready: Mutex<Ready>,
    /// Cost of a statement in a session of its own.
    pub(super) statement_cost: Cost,
    /// Cost of a task that runs the ready queue.
    turn_cost: Cost,
    /// Set while a timer checks for requests that take too long.
    watched: AtomicBool,
    /// Timer of the login, and later the timer that checks deadlines.
    timer: Mutex<Option<Timer>>,
}

/// Selects whether [`ServerConn::cancel_timer`] cancels a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancellable {
    No,
    /// The call cancels the timer. A connection has at most one such timer.
    Yes,
}

/// Runnable work of a connection, in order of arrival.
#[derive(Default)]
struct Ready {
    /// Work in transactions, which goes first.
    urgent: VecDeque<Arc<dyn Runnable>>,
    ordinary: VecDeque<Arc<dyn Runnable>>,
}

/// Cached plan, with its text for the audit log.
#[derive(Debug)]
pub(super) struct KeptPlan {
    pub(super) plan: AnyPlan,
    pub(super) audit: Box<[u8]>,
}

/// Work that can run in place, on the thread that made it runnable.
pub(super) trait Runnable: Work {
    /// Runs the queued work from `now` on, and returns the time at the end. No other thread runs it
    /// before its output is passed on.
    fn run_here(self: Arc<Self>, out: &Output, now: Instant) -> Instant;
}

/// Result of opening a session.
#[derive(Debug)]
pub(super) enum Opening<T> {
    Opened(T),
    /// The connection has a session with this id.
    Duplicate,
    /// The connection, the account or the server has too many sessions.
    Limit(SessionError),
}

impl<S: Service> ServerConn<S> {
    pub(super) fn new(conn: ConnShared, server: Arc<ServerShared<S>>) -> Self {
        Self {
            conn: Arc::new(conn),
            server,
            peer: OnceLock::new(),
            account: OnceLock::new(),
            table: Mutex::default(),
            lingering: AtomicUsize::new(0),
            timestamps: OnceLock::new(),
            ready: Mutex::default(),
            statement_cost: Cost::unknown(),
            turn_cost: Cost::unknown(),
            watched: AtomicBool::new(false),
            timer: Mutex::default(),
        }
    }

    /// The peer after its login.
    pub(super) fn peer(&self) -> &Peer {
        self.peer.get().expect("sessions are opened after the login only")
    }

    /// Use of the account after the login.
    pub(super) fn account(&self) -> &Arc<AccountUse> {
        self.account.get().expect("set by the login")
    }

    pub(super) fn note_panic(&self, payload: Box<dyn Any + Send>) {
        self.conn.count(Counter::RequestPanics);
        note_panic(self.conn.group(), "session", payload);
    }

    pub(super) fn find(&self, id: u64) -> Option<Arc<Session<S>>> {
        lock(&self.table).get(&id).cloned()
    }

    /// Opens a session, if the limits allow it and the id is free.
    pub(super) fn open(self: &Arc<Self>, id: u64) -> Opening<Arc<Session<S>>> {
        let config = self.conn.config();
        let mut table = lock(&self.table);
        // Killed sessions count until they have ended. Otherwise a client could start any number.
        let sessions = table.len() + self.lingering.load(Ordering::Relaxed);
        if sessions >= config.max_sessions_per_connection {
            return Opening::Limit(too_many());
        }
        if table.get(&id).is_some_and(|session| !session.shared.is_closed()) {
            return Opening::Duplicate;
        }
        if !self.conn.group().usage().session_opens(config.max_sessions) {
            return Opening::Limit(too_many());
        }
        let limits = &self.peer().account().limits;
        let place = match self.account().take(Resource::Session, limits) {
            Ok(place) => place,
            Err(error) => {
                self.account().note_refused();
                self.conn.group().usage().session_closed();
                return Opening::Limit(error);
            }
        };
        let number = self.server.next_number();
        let session = Session::new(SessionId { wire: id, number }, self, place);
        let gone = table.insert(id, Arc::clone(&session));
        drop(table);
        // The drop of a session runs foreign code: not under the lock.
        drop(gone);
        Opening::Opened(session)
    }

    /// Removes a session from the table, unless a newer session has its place.
    pub(super) fn forget(&self, id: SessionId) {
        let gone = match lock(&self.table).entry(id.wire()) {
            Entry::Occupied(entry) if entry.get().shared.id == id => Some(entry.remove()),
            _ => None,
        };
        // The drop of a session runs foreign code: not under the lock.
        drop(gone);
    }

    /// Counts a session that was removed from the table before its end, from the removal until the
    /// end.
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

    /// Ends all sessions when the connection has ended.
    pub(super) fn end(&self) {
        // The timer would otherwise stay for `request_timeout` after each short connection.
        self.cancel_timer();
        let sessions = std::mem::take(&mut *lock(&self.table));
        for session in in_order(sessions.into_values().collect()) {
            session.shared.kill(CancelReason::Connection);
        }
        // Workers run the ends, which may wait.
        self.push_ready();
    }

    /// Ends the sessions after `half_close_timeout`. The peer has finished sending, and may be
    /// gone.
    pub(super) fn end_later(self: &Arc<Self>) {
        if self.sessions().iter().all(|session| session.shared.is_idle()) {
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
        let timer = after(self.conn.group(), class, delay, Box::new(call));
        match cancellable {
            Cancellable::Yes => *place = Some(timer),
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
            self.conn.group().push_work(next);
        }
    }

    pub(super) fn timestamps(self: &Arc<Self>) -> &Arc<TimestampQueue<S>> {
        self.timestamps.get_or_init(|| Arc::new(TimestampQueue::new(Arc::downgrade(self))))
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

    /// Runs quick work in place. Work of unknown cost runs in place if nothing waits behind it.
    /// Other work goes to the run queue.
    pub(super) fn dispatch(self: &Arc<Self>, mut now: Instant, is_last: bool) {
        // Another thread may have taken the work of this receive.
        let Some(mut first) = self.next_ready() else { return };
        let until = now + TURN;
        Output::with(&self.conn, |out| {
            let urgent_alone = self.conn.group().runs_urgent_alone();
            // Output of several sessions leaves in one send for each connection.
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
                    if more {
                        cork.get_or_insert_with(Cork::new);
                    }
                    if cork.is_some() {
                        out.show(self);
                    }
                    now = next.run_here(out, now);
                } else if queued < SHARE && !self.conn.net.brings_much() {
                    queued += 1;
                    self.conn.group().push_work(next);
                } else {
                    self.conn.group().push_spent_work(next);
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
            }
        });
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
        sessions.iter().filter_map(|session| session.shared.check_deadline(now, timeout)).min()
    }

    pub(super) fn kept_sql(&self, digest: &[u8]) -> Option<Arc<[u8]>> {
        let kept = self.server.sql.get(self.peer().account().name().as_bytes(), digest);
        self.conn.count(if kept.is_some() { Counter::SqlHit } else { Counter::SqlMiss });
        kept
    }

    /// Keeps a text under its digest, unless the digest is that of another text. Otherwise a client
    /// that uses the digest later would run a text that it does not expect.
    pub(super) fn keep_sql(&self, digest: &[u8], text: &[u8]) {
        let longest = self.conn.config().request_cache_max_length;
        // A longer text is not kept in any case, so its digest is not computed.
        if text.len() <= longest && !is_of(digest, text) {
            return;
        }
        let put =
            self.server
                .sql
                .put(&self.peer().account().key(), digest, text.len(), longest, || text.into());
        self.note_evicted(put, Counter::SqlEvict);
    }

    pub(super) fn kept_plan(&self, digest: &[u8]) -> Option<Arc<KeptPlan>> {
        let kept = self.server.plans.get(self.peer().account().name().as_bytes(), digest);
        self.conn.count(if kept.is_some() { Counter::PlanHit } else { Counter::PlanMiss });
        kept
    }

    /// `bytes`: memory of the message with the plan.
    pub(super) fn keep_plan(&self, digest: &[u8], plan: &AnyPlan, audit: &[u8], bytes: usize) {
        let longest = self.conn.config().request_cache_max_length;
        let kept = || Arc::new(KeptPlan { plan: plan.clone(), audit: audit.into() });
        let put = self.server.plans.put(&self.peer().account().key(), digest, bytes, longest, kept);
        self.note_evicted(put, Counter::PlanEvict);
    }

    fn note_evicted(&self, put: Put, counter: Counter) {
        if let Put::Kept { evicted: evicted @ 1.. } = put {
            self.conn.group().count(counter, evicted as u64);
        }
    }
}

fn too_many() -> SessionError {
    SessionError::unsupported("max_connections limit exceed")
}

/// Sorts sessions by id, so that results do not depend on the order of a hash table.
fn in_order<S: Service>(mut sessions: Vec<Arc<Session<S>>>) -> Vec<Arc<Session<S>>> {
    sessions.sort_unstable_by_key(|session| session.shared.id.wire());
    sessions
}

/// Returns true if the text may have this digest. A digest of 16 bytes must be the MD5 of the text.
/// Clients may choose other digests freely.
fn is_of(digest: &[u8], text: &[u8]) -> bool {
    let md5 = || Md5::digest(text);
    digest.len() != <Md5 as Digest>::output_size() || *md5() == *digest
}

/// Shortest time between two checks of deadlines.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

/// Task that runs the ready queue. Another worker takes it over if a session that runs in place is
/// stuck. It is also queued after a full turn.
pub(super) struct RemainingWork<S: Service> {
    pub(super) server_conn: Arc<ServerConn<S>>,
    /// Output that the stuck worker holds back.
    pub(super) held: Option<Arc<Held>>,
}

impl<S: Service> Work for RemainingWork<S> {
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
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use super::*;
    use crate::codec::encoder::{Metadata, PagePool};
    use crate::codec::frame::Dialect;
    use crate::codec::message::ClientMessage;
    use crate::codec::proto::sql::StmtExecute;
    use crate::codec::row::Column;
    use crate::config::Config;
    use crate::net::{Address, Deaf, FULL, Served};
    use crate::runtime::Simulated;
    use crate::runtime::source::Source;
    use crate::session::queued::{Queued, SessionCommand};
    use crate::session::session_shared::Wakeable;
    use crate::session::{
        Account, AuthError, Cancel, Login, Reply, Request, Row, Server, SessionError,
    };

    struct Nothing;

    impl Service for Nothing {
        type Session = ();

        fn authenticate(&self, _: &Login<'_>) -> Result<Account, AuthError> {
            Ok(Account::new("anybody"))
        }

        fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
            Ok(((), Cancel::none()))
        }

        fn execute(
            &self,
            (): &mut (),
            _: Request<'_>,
            _: &mut Reply<'_>,
        ) -> Result<(), SessionError> {
            Ok(())
        }
    }

    /// A service that runs the same code for each request. Its sessions are their wire ids.
    struct Calling<F> {
        code: F,
        /// Number of sessions that were closed.
        closed: AtomicUsize,
    }

    impl<F> Calling<F>
    where
        F: Fn(u64, &mut Reply<'_>) -> Result<(), SessionError> + Send + Sync + 'static,
    {
        fn new(code: F) -> Self {
            Self { code, closed: AtomicUsize::new(0) }
        }
    }

    impl<F> Service for Calling<F>
    where
        F: Fn(u64, &mut Reply<'_>) -> Result<(), SessionError> + Send + Sync + 'static,
    {
        type Session = u64;

        fn authenticate(&self, _: &Login<'_>) -> Result<Account, AuthError> {
            Ok(Account::new("anybody"))
        }

        fn open(&self, _: &Peer, id: SessionId) -> Result<(u64, Cancel), SessionError> {
            Ok((id.wire(), Cancel::none()))
        }

        fn execute(
            &self,
            session: &mut u64,
            _: Request<'_>,
            reply: &mut Reply<'_>,
        ) -> Result<(), SessionError> {
            (self.code)(*session, reply)
        }

        fn closed(&self, _: u64) {
            self.closed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection of a simulated runtime, and its peer.
    fn connect(runtime: &Simulated) -> (Arc<ServerConn<Nothing>>, UnixStream) {
        connect_to(runtime, Nothing)
    }

    fn connect_to<S: Service>(runtime: &Simulated, service: S) -> (Arc<ServerConn<S>>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        theirs.set_nonblocking(true).expect("a socket");
        let peer = Address::Unix("".into());
        let conn = Served::new(Deaf).accept(runtime.group(), ours.into(), peer);
        let conn = conn.expect("there is room");
        let server = Arc::clone(Server::new(service).of(&conn));
        let peer = Peer {
            account: Account::new("anybody"),
            address: conn.peer_addr().clone(),
            connection: conn.id(),
        };
        let shared = ConnShared::new(conn, Dialect::default(), PagePool::default(), Arc::default());
        let server_conn = ServerConn::new(shared, server);
        let account = server_conn.server.accounts.of(peer.account().name(), clock::now());
        let _ = server_conn.account.set(account);
        let _ = server_conn.peer.set(peer);
        while runtime.take_task(false) {
            runtime.run(0, None);
        }
        (Arc::new(server_conn), theirs)
    }

    /// Opens a session with this number of requests.
    fn open<S: Service>(
        server_conn: &Arc<ServerConn<S>>,
        id: u64,
        requests: usize,
    ) -> Arc<Session<S>> {
        let Opening::Opened(session) = server_conn.open(id) else { panic!("there is room") };
        for _ in 0..requests {
            let statement = StmtExecute { stmt: Some(Vec::new()), ..StmtExecute::default() };
            let command = SessionCommand::Sql(Box::new(statement));
            session.shared.queue(&mut Some(Queued::new(command, 0, clock::now()))).expect("room");
        }
        session
    }

    fn timers_set(runtime: &Simulated) -> u64 {
        runtime.handle().stats().get(Counter::TimersSet)
    }

    #[test]
    fn a_connection_that_has_ended_starts_no_timer() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, _peer) = connect(&runtime);
        let start = |cancellable| {
            let before = timers_set(&runtime);
            server_conn.later(Class::Login, Duration::from_secs(1), cancellable, |_| {});
            timers_set(&runtime) - before
        };
        let both = [Cancellable::Yes, Cancellable::No];
        assert_eq!(both.map(start), [1, 1]);
        runtime.end_draining(true);
        while runtime.take_task(false) {
            runtime.run(0, None);
        }
        assert!(server_conn.conn.net.is_closed());
        server_conn.end();
        assert_eq!(both.map(start), [0, 0]);
    }

    #[test]
    fn without_a_request_timeout_no_timer_is_set_and_no_request_is_late() {
        let config = Config::default().request_timeout(Duration::ZERO);
        let runtime = Simulated::new(config).expect("descriptors");
        let (server_conn, _peer) = connect(&runtime);
        let session = open(&server_conn, 2, 1);
        let before = timers_set(&runtime);
        server_conn.watch();
        assert_eq!(timers_set(&runtime), before);
        // The timeout may be switched off while a timer runs.
        assert_eq!(server_conn.cancel_late(), None);
        assert!(session.shared.next().expect("it is queued").cancelled.is_none());
    }

    #[test]
    fn work_left_to_others_is_urgent_if_a_part_of_it_is() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, _peer) = connect(&runtime);
        let class = || RemainingWork { server_conn: Arc::clone(&server_conn), held: None }.class();
        let mut classes = Vec::new();
        for (id, session_class) in [(2, Class::Ordinary), (3, Class::InProgress)] {
            let session = open(&server_conn, id, 0);
            session.shared.set_class(session_class);
            server_conn.make_ready(session);
            classes.push(class());
        }
        assert_eq!(classes, [Class::Ordinary, Class::InProgress]);
    }

    #[test]
    fn the_cost_of_work_left_to_others_is_measured() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, _peer) = connect(&runtime);
        let rest = RemainingWork { server_conn: Arc::clone(&server_conn), held: None };
        runtime.group().push_work(Arc::new(rest));
        assert_eq!(server_conn.turn_cost.nanos(), None);
        assert!(runtime.take_task(false));
        runtime.run(0, None);
        assert!(server_conn.turn_cost.nanos().is_some());
    }

    #[test]
    fn work_that_others_have_taken_is_shown_again() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, _peer) = connect(&runtime);
        let queued = Output::with(&server_conn.conn, |out| {
            // Other workers have the work of this thread at once, as it is no worker.
            [(); 2].map(|()| {
                out.show(&server_conn);
                runtime.queued()
            })
        });
        assert_eq!(queued, [1, 2]);
    }

    #[test]
    fn work_is_shown_to_others_only_if_a_reply_is_held_back() {
        clock::simulate(Some(clock::now()));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, _peer) = connect(&runtime);
        let queued = [1, 2].map(|requests| {
            // The first reply of several is held back.
            let session = open(&server_conn, 1 + requests, requests as usize);
            assert!(session.becomes_runnable());
            Output::with(&server_conn.conn, |out| session.run_here(out, clock::now()));
            let queued = runtime.queued();
            while runtime.take_task(false) {
                runtime.run(0, None);
            }
            queued
        });
        clock::simulate(None);
        assert_eq!(queued, [0, 1]);
    }

    #[test]
    fn short_rows_share_one_look_at_the_clock() {
        clock::simulate(Some(clock::now()));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, _peer) = connect(&runtime);
        let looks = Rc::new(Cell::new(0));
        let count = Rc::clone(&looks);
        Output::with(&server_conn.conn, |out| {
            out.begin(None);
            clock::at_each_look(move || count.set(count.get() + 1));
            for _ in 0..10 {
                out.write(0, Metadata::Full, |encoder| encoder.ok(None));
                out.row_written();
            }
            clock::at_each_look(|| ());
        });
        clock::simulate(None);
        assert_eq!(looks.get(), 1);
    }

    #[test]
    fn quick_sessions_of_one_receive_run_in_one_turn() {
        clock::simulate(Some(clock::now()));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, _peer) = connect(&runtime);
        for id in 2..5 {
            let session = open(&server_conn, id, 1);
            session.cost().add(Duration::from_micros(1));
            assert!(session.becomes_runnable());
            server_conn.make_ready(session);
        }
        server_conn.dispatch(clock::now(), true);
        clock::simulate(None);
        assert!(server_conn.next_ready().is_none());
    }

    #[test]
    fn sessions_of_a_connection_that_brings_much_run_behind_others() {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let service = || {
            let ran = Arc::clone(&ran);
            Calling::new(move |session, _: &mut Reply<'_>| {
                lock(&ran).push(session);
                Ok(())
            })
        };
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let conns = [(); 2].map(|()| connect_to(&runtime, service()));
        // An estimate grows by a factor of four at most.
        (0..8).for_each(|_| conns[0].0.conn.net.cost().add(Duration::from_millis(1)));
        for ((server_conn, _), id) in conns.iter().zip(2..) {
            let session = open(server_conn, id, 1);
            session.cost().add(Duration::from_millis(1));
            assert!(session.becomes_runnable());
            server_conn.make_ready(session);
            server_conn.dispatch(clock::now(), true);
        }
        while runtime.take_task(false) {
            runtime.run(0, None);
        }
        assert_eq!(*lock(&ran), [3, 2]);
    }

    #[test]
    fn the_reply_of_a_request_that_is_not_quick_leaves_before_the_next_request_runs() {
        clock::simulate(Some(clock::now()));
        let (received, theirs) = (Arc::new(Mutex::new(Vec::new())), Arc::new(OnceLock::new()));
        let (also_received, also_theirs) = (Arc::clone(&received), Arc::clone(&theirs));
        let service = Calling::new(move |_, _: &mut Reply<'_>| {
            let theirs: &UnixStream = also_theirs.get().expect("it is set");
            lock(&also_received).push((&mut &*theirs).read(&mut [0; 1024]).is_ok());
            clock::simulate(Some(clock::now() + Duration::from_micros(50)));
            Ok(())
        });
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, peer) = connect_to(&runtime, service);
        theirs.set(peer).expect("once");
        let session = open(&server_conn, 2, 2);
        assert!(session.becomes_runnable());
        Output::with(&server_conn.conn, |out| session.run_here(out, clock::now()));
        clock::simulate(None);
        assert_eq!(*lock(&received), [false, true]);
    }

    struct Fragile;

    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("a source that cannot be dropped");
        }
    }

    #[test]
    fn the_service_learns_of_the_end_of_a_session_whose_source_cannot_be_dropped() {
        let service = Calling::new(|_, reply: &mut Reply<'_>| {
            reply.columns(&[Column::signed("n")])?;
            let fragile = Fragile;
            reply.source(move |row: &mut Row<'_>| {
                let _ = &fragile;
                row.int(1);
                Ok(true)
            });
            Ok(())
        });
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (server_conn, _peer) = connect_to(&runtime, service);
        let session = open(&server_conn, 2, 1);
        assert!(session.becomes_runnable());
        Output::with(&server_conn.conn, |out| Arc::clone(&session).run_here(out, clock::now()));
        session.shared.kill(CancelReason::Session);
        Arc::clone(&session).wake();
        while runtime.take_task(false) {
            runtime.run(0, None);
        }
        assert_eq!(server_conn.server.service.closed.load(Ordering::Relaxed), 1);
    }

    /// Otherwise a peer could make the server collect the answers to a whole receive.
    #[test]
    fn answers_of_the_reader_leave_when_they_are_many() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (ours, mut theirs) = UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        let conn = Served::new(Server::new(Nothing)).accept(
            runtime.group(),
            ours.into(),
            Address::Unix("".into()),
        );
        conn.expect("there is room");
        let mut probes = Vec::new();
        for _ in 0..1000 {
            let probe = ClientMessage::CapabilitiesGet;
            probe.encode(Dialect::default(), 0, &mut probes).expect("it is small");
        }
        theirs.write_all(&probes).expect("the socket has room");
        let mut answers = vec![0; 1 << 20];
        runtime.take_events();
        while runtime.take_task(false) || runtime.in_hands() > 0 {
            runtime.run(0, None);
        }
        let bytes = theirs.read(&mut answers).expect("answers");
        let count = |counter| runtime.handle().stats().get(counter);
        assert_eq!(count(Counter::Receives), 1);
        assert_eq!(count(Counter::SendCalls), (bytes / FULL) as u64 + 1);
    }
}
