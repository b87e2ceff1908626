//! [`Backend`] and [`Pooled`]: one backend, which is a [`Stack`] under a lock, and its connections.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::time::{self, Duration};

use super::Shared;
use super::error::GetError;
use super::host::{Job, Wait, guarded, in_turn, waiting};
use super::manage::{Manage, Target, Version};
use super::stack::{Ask, Asked, Effects, Fitness, Grant, Holder, Stack, Ticket};
use super::status::{BackendState, BackendStatus, Discard, Held};
use crate::sync::mutant::mutant;
use crate::sync::payload::contain;
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};
use crate::sys::clock::{self, Instant};

/// A backend of a pool, found once: its methods do not look it up again.
///
/// *Shape*: a cheap reference. While one exists the backend does not vanish. If the backend is
/// [retired](super::Pool::retire), all calls return [`GetError::Closed`].
pub struct Backend<M: Manage> {
    pub(super) inner: Arc<Inner<M>>,
}

impl<M: Manage> Backend<M> {
    /// Returns a connection. Waits for one, at most for [`Limits::wait_timeout`](super::Limits::wait_timeout).
    ///
    /// A worker that waits counts as stalled.
    ///
    /// # Errors
    ///
    /// There was no connection in time; see [`GetError`].
    #[track_caller]
    #[inline]
    pub fn get(&self) -> Result<Pooled<M>, GetError> {
        self.inner.get(None, Location::caller())
    }

    /// [`get`](Self::get) with a deadline of its own.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    #[track_caller]
    pub fn get_before(&self, deadline: time::Instant) -> Result<Pooled<M>, GetError> {
        self.inner.get(Some(deadline.into()), Location::caller())
    }

    /// Returns an idle connection, if there is one. Neither connects nor waits for another caller.
    ///
    /// A connection that was idle for [`check_after`](super::Limits::check_after) is checked first, on
    /// this thread. That may wait for the backend.
    #[track_caller]
    #[must_use]
    pub fn try_get(&self) -> Option<Pooled<M>> {
        self.inner.try_get(Location::caller())
    }

    /// Gets a connection for a callback. No thread waits, and the call returns at once.
    ///
    /// The callback is called exactly once, with [`GetError::Timeout`] within some milliseconds of
    /// the deadline as long as the host runs. If a connection has been idle for less than
    /// [`check_after`](super::Limits::check_after), this thread calls the callback before
    /// `get_then` returns. If the connection was idle for longer, the [`Host`](super::Host) checks
    /// the connection and calls the callback. If no connection is idle and the caller may not wait
    /// (the deadline has passed, or another [`GetError`]), this thread calls it at once. Otherwise
    /// the host calls it, or the thread that returns a connection, removes broken ones, gets a
    /// permanent error of a connect, or disables, retires or closes the backend. So
    /// [close](super::Pool::close) the pool before its host ends: otherwise a waiting callback that
    /// owns a clone of the pool keeps both for ever.
    ///
    /// The callback should be quick, and must not wait for another callback. A thread runs
    /// callbacks one after the other. If a callback becomes due inside another one, it is called
    /// right after that. If an idle connection turns out to be unfit inside another callback, the pool
    /// tries the next one right after that, too. A panic ends the callback and nothing else.
    #[track_caller]
    pub fn get_then(
        &self,
        deadline: time::Instant,
        then: impl FnOnce(Result<Pooled<M>, GetError>) + Send + 'static,
    ) {
        self.inner.get_then(deadline.into(), then, Location::caller());
    }

    /// Present version of the backend.
    #[must_use]
    pub fn version(&self) -> Version {
        self.inner.with(|stack| stack.version())
    }

    /// State and numbers of the backend.
    #[must_use]
    pub fn status(&self) -> BackendStatus<M::Key> {
        self.inner.status()
    }
}

impl<M: Manage> Clone for Backend<M> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<M: Manage<Key: fmt::Debug>> fmt::Debug for Backend<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("key", &self.inner.key).finish_non_exhaustive()
    }
}

/// A connection in use. Its drop returns it to the pool.
///
/// If its thread panics meanwhile, the drop closes it instead, because its state is unknown. The drop
/// calls [`Manage::reset`], which says where a connection must not be dropped.
///
/// Its own operations are functions, not methods, because it dereferences to the connection:
/// `Pooled::discard(conn)`.
#[must_use = "dropped, it goes back at once"]
pub struct Pooled<M: Manage> {
    /// Present until the drop.
    conn: Option<M::Connection>,
    ticket: Ticket,
    backend: Arc<Inner<M>>,
}

impl<M: Manage> Pooled<M> {
    /// Version of its backend when it was made. [`fail_over`](super::Pool::fail_over) needs it when the
    /// connection turns out to be dead.
    #[must_use]
    pub const fn version(this: &Self) -> Version {
        this.ticket.version
    }

    /// Closes the connection. The first waiter may make another one.
    pub fn discard(mut this: Self) {
        if let Some(conn) = this.conn.take() {
            this.backend.discard(conn, this.ticket, Discard::Unwanted);
        }
    }

    /// Takes the connection out of the pool, which does not count it any more.
    #[must_use]
    pub fn detach(mut this: Self) -> M::Connection {
        let conn = this.conn.take().expect("present until the drop");
        this.backend.detach(this.ticket);
        conn
    }
}

impl<M: Manage> Drop for Pooled<M> {
    #[inline]
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.backend.give_back(conn, self.ticket);
        }
    }
}

impl<M: Manage> Deref for Pooled<M> {
    type Target = M::Connection;

    #[inline]
    fn deref(&self) -> &M::Connection {
        self.conn.as_ref().expect("present until the drop")
    }
}

impl<M: Manage> DerefMut for Pooled<M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut M::Connection {
        self.conn.as_mut().expect("present until the drop")
    }
}

impl<M: Manage<Key: fmt::Debug>> fmt::Debug for Pooled<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled")
            .field("key", &self.backend.key)
            .field("version", &self.ticket.version)
            .finish_non_exhaustive()
    }
}

/// Callback of a caller.
type Then<M> = Box<dyn FnOnce(Result<Pooled<M>, GetError>) + Send>;

/// Callback that gets a connection. It is not boxed if a connection is idle.
pub(super) trait Callback<M: Manage>:
    FnOnce(Result<Pooled<M>, GetError>) + Send + 'static
{
}

impl<M: Manage, F: FnOnce(Result<Pooled<M>, GetError>) + Send + 'static> Callback<M> for F {}

/// Way to reach a caller that waits.
pub(super) enum Caller<M: Manage> {
    Thread(Arc<Seat<M::Connection>>),
    Callback(Then<M>),
}

/// Place where one thread sleeps until it is granted something.
pub(super) struct Seat<C> {
    grant: Mutex<Option<Grant<C>>>,
    filled: Condvar,
}

impl<C> Seat<C> {
    fn new() -> Self {
        Self { grant: Mutex::new(None), filled: Condvar::new() }
    }

    /// Wakes the thread. Must not be called after the thread has left the queue.
    fn fill(&self, grant: Grant<C>) {
        *lock(&self.grant) = Some(grant);
        self.filled.notify_one();
    }

    /// Sleeps until there is a grant. `None`: the deadline has passed first.
    fn wait(&self, deadline: Option<Instant>) -> Option<Grant<C>> {
        let limit = deadline.map(|deadline| deadline.duration_since(clock::now()));
        let guard = lock(&self.grant);
        wait_while(&self.filled, guard, limit, |grant| grant.is_none()).0.take()
    }
}

/// State of a backend under a lock, and the work of callers outside the lock. While the lock is
/// held, no code of the user runs.
pub(super) struct Inner<M: Manage> {
    pub(super) key: M::Key,
    stack: Mutex<Machine<M>>,
    /// Notified when no connection is in use any more, or the state changes.
    quiet: Condvar,
    shared: Arc<Shared<M>>,
}

type Machine<M> = Stack<<M as Manage>::Connection, Caller<M>>;
pub(super) type Fx<M> = Effects<<M as Manage>::Connection, Caller<M>>;

impl<M: Manage> Inner<M> {
    pub(super) fn new(key: M::Key, shared: Arc<Shared<M>>, now: Instant) -> Self {
        let stack = Mutex::new(Stack::new(shared.limits(), fastrand::u64(..), now));
        Self { key, stack, quiet: Condvar::new(), shared }
    }

    const fn target(&self, version: Version) -> Target<'_, M::Key> {
        Target { key: &self.key, version }
    }

    /// Runs a step without effects under the lock.
    #[inline]
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Machine<M>) -> R) -> R {
        step(&mut lock(&self.stack))
    }

    /// Runs a step under the lock, and then its effects outside of it.
    #[inline]
    pub(super) fn apply<R>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Machine<M>, &mut Fx<M>) -> R,
    ) -> R {
        // The drop of effects that are empty would cost a tenth of a checkout.
        let mut fx = ManuallyDrop::new(Fx::<M>::default());
        let result = step(&mut lock(&self.stack), &mut fx);
        if !fx.is_empty() {
            self.run(ManuallyDrop::into_inner(fx));
        }
        result
    }

    /// Runs effects: first wake-ups of threads, last effects that may take long.
    #[cold]
    fn run(self: &Arc<Self>, fx: Fx<M>) {
        let mut callbacks = Vec::new();
        for (waiter, grant) in fx.grants {
            match waiter.way {
                Caller::Thread(seat) => seat.fill(grant),
                Caller::Callback(then) => callbacks.push((then, waiter.ask, grant)),
            }
        }
        if fx.quiet {
            self.quiet.notify_all();
        }
        for ticket in fx.connect {
            self.on_host(move |inner, runs| inner.connect_on_host(ticket, runs));
        }
        if let Some(at) = fx.arm {
            self.arm(at);
        }
        for (then, ask, grant) in callbacks {
            self.grant(then, ask, grant);
        }
        for (conn, version, why) in fx.close {
            self.drop_conn(conn, version, why);
        }
        contain(|| drop(fx.error));
        if fx.unused {
            Shared::vanish(&self.shared, self);
        }
    }

    fn arm(self: &Arc<Self>, at: Instant) {
        let weak = Arc::downgrade(self);
        let job = Job::new(move |runs| {
            let Some(inner) = weak.upgrade() else { return };
            inner.apply(|stack, fx| {
                stack.disarm(at);
                // A dropped timer does not ask for the next one: a host that drops each within `after`
                // would be asked again inside that call.
                if runs {
                    stack.due(clock::now(), fx);
                }
            });
        });
        let delay = at.duration_since(clock::now());
        self.shared.ask_host(|host| host.after(delay, Box::new(|| job.run())));
    }

    /// Runs code on the host. If the host drops the code, the thread that drops it calls it with
    /// false.
    fn on_host(self: &Arc<Self>, code: impl FnOnce(&Arc<Self>, bool) + Send + 'static) {
        let inner = Arc::clone(self);
        let job = Job::new(move |runs| code(&inner, runs));
        self.shared.ask_host(|host| host.spawn(Box::new(|| job.run())));
    }
}

/// Checkout on a thread that waits.
impl<M: Manage> Inner<M> {
    /// Gets a connection. Without a deadline the limits decide.
    #[inline]
    pub(super) fn get(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        location: &'static Location<'static>,
    ) -> Result<Pooled<M>, GetError> {
        let asked = clock::now();
        let holder = Holder::new(location);
        let mut ask = Ask { holder, asked, deadline, has_thread: true, again: false };
        // Most callers find an idle connection. They are spared the copies of a larger answer.
        if let Some(grant) = self.apply(|stack, fx| stack.take_idle(asked, &ask, fx)) {
            match self.accept(grant, &ask) {
                Ok(Some(conn)) => return Ok(conn),
                Ok(None) => ask.again = true,
                Err(error) => return Err(self.refused(error)),
            }
        }
        self.ask_until_answered(ask)
    }

    #[cold]
    fn ask_until_answered(self: &Arc<Self>, mut ask: Ask) -> Result<Pooled<M>, GetError> {
        loop {
            match self.accept(self.ask(&ask), &ask) {
                Ok(Some(conn)) => return Ok(conn),
                Ok(None) => ask.again = true,
                Err(error) => return Err(self.refused(error)),
            }
        }
    }

    /// Asks, and waits if there is no connection. The caller asks and joins the queue under one
    /// lock, so a connection that is returned in between is not missed.
    fn ask(self: &Arc<Self>, ask: &Ask) -> Grant<M::Connection> {
        let now = clock::now();
        let mut seat = None;
        let sit = || Caller::Thread(Arc::clone(seat.insert(Arc::new(Seat::new()))));
        match (self.apply(|stack, fx| stack.ask(now, ask, sit, fx)), seat) {
            (Asked::Now(grant), _) => grant,
            (Asked::Waits(id, deadline), Some(seat)) => waiting(Wait::Other, || {
                if let Some(grant) = seat.wait(deadline) {
                    return grant;
                }
                match self.apply(|stack, fx| stack.leave(clock::now(), id, fx)) {
                    Some(late) => Grant::Refused(late),
                    // Another thread has taken the waiter off the queue, and is about to fill the seat.
                    None => mutant!(
                        seat.wait(None).expect("without a deadline it waits"),
                        ExpiryIgnoresGrant => Grant::Refused(GetError::Timeout {
                            waited: Duration::ZERO,
                            cause: super::Cause::Paused,
                        })
                    ),
                }
            }),
            (Asked::Waits(..), None) => unreachable!("a caller that waits has a seat"),
        }
    }

    /// Gets an idle connection, if there is one.
    pub(super) fn try_get(
        self: &Arc<Self>,
        location: &'static Location<'static>,
    ) -> Option<Pooled<M>> {
        let (holder, asked) = (Holder::new(location), clock::now());
        let ask = Ask { holder, asked, deadline: None, has_thread: true, again: false };
        loop {
            let grant = self.apply(|stack, fx| stack.take_idle(clock::now(), &ask, fx))?;
            if let Grant::Conn(conn, ticket, fitness) = grant
                && let Some(conn) = self.fit(conn, ticket, fitness)
            {
                return Some(self.hand_out(conn, ticket, &ask));
            }
        }
    }

    /// Turns a grant into a connection. `Ok(None)`: it came to nothing, and the caller may ask again.
    #[inline]
    fn accept(
        self: &Arc<Self>,
        grant: Grant<M::Connection>,
        ask: &Ask,
    ) -> Result<Option<Pooled<M>>, GetError> {
        let (conn, ticket) = match grant {
            Grant::Conn(conn, ticket, fitness) => {
                let fit = self.fit(conn, ticket, fitness);
                if fit.is_none() && fitness == Fitness::Check {
                    self.fail_if_late(ask)?;
                }
                (fit, ticket)
            }
            Grant::Connect(ticket) => (self.connect_here(ticket, ask)?, ticket),
            Grant::Refused(error) => return Err(error),
        };
        Ok(conn.map(|conn| self.hand_out(conn, ticket, ask)))
    }

    /// The check of an invalid connection may have taken until the deadline. Then the caller fails,
    /// because the check of the next one would take as long.
    #[cold]
    fn fail_if_late(&self, ask: &Ask) -> Result<(), GetError> {
        self.with(|stack| stack.fail_if_late(clock::now(), ask)).map_or(Ok(()), Err)
    }

    /// Makes a connection on this thread. `None`: the connect failed or its result is unwanted.
    #[cold]
    fn connect_here(
        self: &Arc<Self>,
        ticket: Ticket,
        ask: &Ask,
    ) -> Result<Option<M::Connection>, GetError> {
        let now = clock::now();
        let deadline = self.apply(|stack, fx| {
            if !stack.is_late(now, ask) {
                return Ok(stack.connect_deadline(now, Some(ask)));
            }
            // First, so that the error does not count this connect.
            stack.connect_abandoned(now, ticket, fx);
            Err(stack.time_out(now, ask))
        });
        deadline.and_then(|deadline| self.connect(ticket, deadline))
    }

    fn connect_on_host(self: &Arc<Self>, ticket: Ticket, runs: bool) {
        let now = clock::now();
        if runs {
            let deadline = self.with(|stack| stack.connect_deadline(now, None));
            // The stack gives the connection to a waiter, or keeps it.
            let _ = self.connect(ticket, deadline);
        } else {
            let error = "the host did not run the connect".into();
            self.apply(|stack, fx| stack.connect_failed(now, ticket, error, false, fx));
        }
    }

    /// Calls [`Manage::connect`], and tells the observer of the outcome. Returns the connection if its
    /// caller keeps it, or the error if the caller does not wait for the next connect.
    fn connect(
        self: &Arc<Self>,
        ticket: Ticket,
        deadline: Instant,
    ) -> Result<Option<M::Connection>, GetError> {
        let (target, manage) = (self.target(ticket.version), &self.shared.manage);
        let (began, mut is_permanent) = (clock::now(), false);
        let connect = || {
            let result = manage.connect(&target, deadline.into());
            is_permanent = result.as_ref().is_err_and(|error| manage.is_permanent(error));
            result
        };
        let result = waiting(Wait::Network, || guarded(connect));
        self.shared.observe(|observer| match &result {
            Ok(_) => observer.connected(&target, clock::since(began)),
            Err(error) => observer.connect_failed(&target, &**error),
        });
        self.apply(|stack, fx| match result {
            Ok(conn) => Ok(stack.connected(clock::now(), ticket, conn, fx)),
            Err(error) => {
                let refused = stack.connect_failed(clock::now(), ticket, error, is_permanent, fx);
                refused.map_or(Ok(None), Err)
            }
        })
    }

    /// Checks a connection. If it cannot be handed out, closes it and returns `None`.
    #[inline]
    fn fit(
        self: &Arc<Self>,
        mut conn: M::Connection,
        ticket: Ticket,
        fitness: Fitness,
    ) -> Option<M::Connection> {
        let (target, manage) = (self.target(ticket.version), &self.shared.manage);
        let mut why = None;
        let looked = contain(|| {
            why = match fitness {
                Fitness::Fit => None,
                Fitness::TooOld => Some(Discard::TooOld),
                _ if manage.has_broken(&target, &mut conn) => Some(Discard::Broken),
                Fitness::Look => None,
                Fitness::Check => {
                    let check = || guarded(|| manage.is_valid(&target, &mut conn));
                    waiting(Wait::Network, check).is_err().then_some(Discard::Invalid)
                }
            };
        });
        let Some(why) = (if looked { why } else { Some(Discard::Panicked) }) else {
            return Some(conn);
        };
        self.discard(conn, ticket, why);
        None
    }

    #[inline]
    fn hand_out(self: &Arc<Self>, conn: M::Connection, ticket: Ticket, ask: &Ask) -> Pooled<M> {
        self.shared.observe(|observer| {
            observer.handed_out(&self.target(ticket.version), clock::since(ask.asked));
        });
        Pooled { conn: Some(conn), ticket, backend: Arc::clone(self) }
    }

    /// Tells the observer of an error.
    fn refused(&self, error: GetError) -> GetError {
        self.shared.observe(|observer| observer.refused(&self.key, &error));
        error
    }
}

/// Checkout by a callback.
impl<M: Manage> Inner<M> {
    pub(super) fn get_then(
        self: &Arc<Self>,
        deadline: Instant,
        then: impl Callback<M>,
        location: &'static Location<'static>,
    ) {
        let (holder, deadline) = (Holder::new(location), Some(deadline));
        let asked = clock::now();
        self.ask_then(then, Ask { holder, asked, deadline, has_thread: false, again: false });
    }

    fn ask_then(self: &Arc<Self>, then: impl Callback<M>, ask: Ask) {
        let now = clock::now();
        let mut then = Some(then);
        let way = || Caller::Callback(Box::new(then.take().expect("taken once")));
        let asked = self.apply(|stack, fx| stack.ask(now, &ask, way, fx));
        if let (Asked::Now(grant), Some(then)) = (asked, then) {
            self.grant(then, ask, grant);
        }
    }

    /// Answers a callback, after the host has checked the connection if that may take long.
    fn grant(self: &Arc<Self>, then: impl Callback<M>, ask: Ask, grant: Grant<M::Connection>) {
        match grant {
            Grant::Conn(conn, ticket, Fitness::Check) => self.on_host(move |inner, runs| {
                if runs {
                    return inner.answer(then, ask, Grant::Conn(conn, ticket, Fitness::Check));
                }
                inner.discard(conn, ticket, Discard::Invalid);
                inner.ask_again(then, ask);
            }),
            grant => self.answer(then, ask, grant),
        }
    }

    /// Calls the callback, or asks again if the grant comes to nothing.
    fn answer(self: &Arc<Self>, then: impl Callback<M>, ask: Ask, grant: Grant<M::Connection>) {
        let got = match self.accept(grant, &ask) {
            Ok(Some(conn)) => Ok(conn),
            Ok(None) => return self.ask_again(then, ask),
            Err(error) => Err(self.refused(error)),
        };
        in_turn(move || then(got));
    }

    /// Asks again, after the running callback of this thread. If the host drops each check inside
    /// `spawn`, nested calls for many idle connections would overflow the stack.
    fn ask_again(self: &Arc<Self>, then: impl Callback<M>, ask: Ask) {
        let inner = Arc::clone(self);
        in_turn(move || inner.ask_then(then, Ask { again: true, ..ask }));
    }
}

/// Checkin, and services for operators.
impl<M: Manage> Inner<M> {
    /// Drops a connection that is not counted any more.
    fn drop_conn(&self, conn: M::Connection, version: Version, why: Discard) {
        self.shared.observe(|observer| observer.discarded(&self.target(version), why));
        contain(|| drop(conn));
    }

    #[inline]
    fn give_back(self: &Arc<Self>, mut conn: M::Connection, ticket: Ticket) {
        let unfit = if std::thread::panicking() {
            Some(Discard::Panicked)
        } else {
            self.unfit(&mut conn, ticket.version)
        };
        if let Some(why) = unfit {
            return self.discard(conn, ticket, why);
        }
        if self.apply(|stack, fx| stack.checkin(clock::now(), ticket, conn, fx)) {
            self.shared.observe(|observer| observer.returned(&self.target(ticket.version)));
        }
    }

    /// Reason for which a returned connection cannot be used again.
    #[inline]
    fn unfit(&self, conn: &mut M::Connection, version: Version) -> Option<Discard> {
        let (target, manage) = (self.target(version), &self.shared.manage);
        let mut why = None;
        let looked = contain(|| {
            why = if manage.has_broken(&target, conn) {
                Some(Discard::Broken)
            } else {
                manage.reset(&target, conn).is_err().then_some(Discard::NotReset)
            };
        });
        if looked { why } else { Some(Discard::Panicked) }
    }

    /// Closes a connection that is in use.
    fn discard(self: &Arc<Self>, conn: M::Connection, ticket: Ticket, why: Discard) {
        self.detach(ticket);
        self.drop_conn(conn, ticket.version, why);
    }

    /// Closes the idle connections that are broken.
    pub(super) fn remove_broken(self: &Arc<Self>) {
        // A second thread would miss the connection that this one checks.
        if !self.with(|stack| stack.begin_check()) {
            return;
        }
        while let Some((conn, ticket)) = self.with(|stack| stack.take_unchecked()) {
            if let Some(conn) = self.fit(conn, ticket, Fitness::Look) {
                self.apply(|stack, fx| stack.checkin(clock::now(), ticket, conn, fx));
            }
        }
    }

    fn detach(self: &Arc<Self>, ticket: Ticket) {
        self.apply(|stack, fx| stack.discard(clock::now(), ticket, fx));
    }

    pub(super) fn set_state(self: &Arc<Self>, state: BackendState) {
        self.apply(|stack, fx| stack.set_state(clock::now(), state, fx));
    }

    /// Waits until no connection is in use, or the state is another one. Returns false if the deadline
    /// passed first.
    pub(super) fn wait_quiet(&self, state: BackendState, deadline: Option<Instant>) -> bool {
        waiting(Wait::Other, || {
            let mut stack = lock(&self.stack);
            stack.await_quiet(true);
            let limit = deadline.map(|at| at.duration_since(clock::now()));
            let busy = |stack: &mut Machine<M>| !stack.is_quiet() && stack.state() == state;
            let (mut stack, _) = wait_while(&self.quiet, stack, limit, busy);
            stack.await_quiet(false);
            stack.is_quiet() || stack.state() != state
        })
    }

    /// Connections in use for at least this long, and their users.
    pub(super) fn held(&self, now: Instant, at_least: Duration) -> Vec<Held<M::Key>> {
        let mut held = Vec::new();
        for slot in lock(&self.stack).held() {
            let held_for = now.duration_since(slot.since);
            if held_for >= at_least
                && let Some(holder) = &slot.holder
            {
                held.push((slot.version, held_for, holder.clone()));
            }
        }
        // Keys are cloned outside the lock.
        let held = held.into_iter().map(|(version, held_for, holder)| Held {
            key: self.key.clone(),
            version,
            held_for,
            location: holder.location,
            thread: holder.thread.name().map(str::to_owned),
        });
        held.collect()
    }

    pub(super) fn status(&self) -> BackendStatus<M::Key> {
        let key = self.key.clone();
        lock(&self.stack).status(key)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::pool::{Cause, Pool};

    struct Numbers;

    impl Manage for Numbers {
        type Key = u8;
        type Connection = u32;
        type Error = Infallible;

        fn connect(&self, _: &Target<'_, u8>, _: time::Instant) -> Result<u32, Infallible> {
            Ok(7)
        }
    }

    #[test]
    fn no_caller_waits_for_the_end_of_work_after_its_pause() {
        let pool = Pool::builder(Numbers).build().expect("a thread");
        let held = pool.get(&1).expect("it connects");
        assert!(pool.pause(&1, time::Instant::now()).is_err());
        let mut fx = Effects::default();
        held.backend.with(|stack| stack.set_state(clock::now(), BackendState::Paused, &mut fx));
        assert!(!fx.quiet);
    }

    #[test]
    fn a_caller_that_is_late_gives_its_connect_back() {
        let pool = Pool::builder(Numbers).build().expect("a thread");
        let inner = pool.backend(&1).expect("it is open").inner;
        let (now, holder) = (clock::now(), Holder::new(Location::caller()));
        let ask = Ask { holder, asked: now, deadline: None, has_thread: true, again: false };
        let asked = inner.apply(|stack, fx| stack.ask(now, &ask, || unreachable!(), fx));
        let Asked::Now(grant @ Grant::Connect(_)) = asked else { panic!("it may connect") };
        assert_eq!(inner.status().connecting, 1);
        let late = Ask { deadline: Some(now), ..ask };
        let error = inner.accept(grant, &late).expect_err("too late");
        assert!(matches!(error, GetError::Timeout { cause: Cause::NoTime, .. }), "{error:?}");
        assert_eq!((inner.status().connecting, inner.status().totals.connects), (0, 0));
    }
}
