//! [`Backend`] and [`Pooled`], and the lock around a [`Stack`].

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkout::{Caller, Got, Then, connect_by_host};
use super::error::GetError;
use super::guard::{Wait, guarded, in_turn, shielded, waiting};
use super::manage::{Manage, Target, Version};
use super::shared::Shared;
use super::stack::{Effects, Fitness, Grant, Ready, Stack, Ticket};
use super::status::{BackendState, BackendStatus, Discard, Held};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};
use crate::sys::clock;

/// One backend. While its lock is held, no code of the user runs.
pub(super) struct Inner<M: Manage> {
    key: M::Key,
    stack: Mutex<Machine<M>>,
    /// Notified when no connection is in use any more, or the state changes.
    quiet: Condvar,
    shared: Arc<Shared<M>>,
}

type Machine<M> = Stack<<M as Manage>::Connection, Caller<M>>;
pub(super) type Fx<M> = Effects<<M as Manage>::Connection, Caller<M>>;
/// A connection that can be handed out.
pub(super) type Fit<M> = (<M as Manage>::Connection, Ticket, Version);

impl<M: Manage> Inner<M> {
    pub(super) fn new(key: M::Key, shared: Arc<Shared<M>>, now: Instant) -> Self {
        let stack = Mutex::new(Stack::new(shared.limits(), fastrand::u64(..), now));
        Self { key, stack, quiet: Condvar::new(), shared }
    }

    pub(super) const fn key(&self) -> &M::Key {
        &self.key
    }

    pub(super) const fn shared(&self) -> &Arc<Shared<M>> {
        &self.shared
    }

    pub(super) const fn target(&self, version: Version) -> Target<'_, M::Key> {
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
        let mut fx = Fx::<M>::default();
        let result = step(&mut lock(&self.stack), &mut fx);
        if !fx.is_empty() {
            self.run(fx);
        }
        result
    }

    /// Runs effects: first wake-ups of threads, last effects that may take long.
    #[cold]
    fn run(self: &Arc<Self>, fx: Fx<M>) {
        let mut callbacks = Vec::new();
        for (caller, grant) in fx.grants {
            match caller {
                Caller::Thread(seat) => seat.fill(grant),
                Caller::Callback(then) => callbacks.push((then, grant)),
            }
        }
        if fx.quiet {
            self.quiet.notify_all();
        }
        for (ticket, version) in fx.connect {
            connect_by_host(self, ticket, version);
        }
        if let Some(at) = fx.arm {
            self.arm(at);
        }
        for (then, grant) in callbacks {
            self.call(then, grant);
        }
        for (conn, version, why) in fx.close {
            self.drop_conn(conn, version, why);
        }
        shielded(|| drop(fx.error));
        if fx.unused {
            Shared::vanish(&self.shared, self);
        }
    }

    fn arm(self: &Arc<Self>, at: Instant) {
        let weak = Arc::downgrade(self);
        // Timers that follow each other closely become one.
        let delay = at.saturating_duration_since(clock::now()).max(Duration::from_millis(1));
        let code = move || {
            if let Some(inner) = weak.upgrade() {
                inner.apply(|stack, fx| stack.due(clock::now(), fx));
            }
        };
        self.shared.ask_host(|host| host.after(delay, Box::new(code)));
    }

    pub(super) fn call(self: &Arc<Self>, then: Then<M>, grant: Grant<M::Connection>) {
        let result = match grant {
            Grant::Conn(conn, ticket, version) => {
                Ok(self.hand_out((conn, ticket, version), then.asked))
            }
            Grant::Expired(cause) => {
                let waited = clock::since(then.asked);
                Err(self.refused(GetError::Timeout { waited, cause }))
            }
            Grant::Refused(refused) => Err(self.refused(refused.into())),
            Grant::Connect(..) => unreachable!("only for callers with a thread"),
        };
        in_turn(move || (then.code)(result));
    }

    #[inline]
    pub(super) fn hand_out(
        self: &Arc<Self>,
        (conn, ticket, version): Fit<M>,
        asked: Instant,
    ) -> Pooled<M> {
        self.shared.observe(|observer| {
            observer.handed_out(&self.target(version), clock::since(asked));
        });
        Pooled { conn: Some(conn), ticket, version, backend: Arc::clone(self) }
    }

    /// Tells the observer of an error.
    pub(super) fn refused(&self, error: GetError) -> GetError {
        self.shared.observe(|observer| observer.refused(&self.key, &error));
        error
    }

    /// Drops a connection that is not counted any more.
    pub(super) fn drop_conn(&self, conn: M::Connection, version: Version, why: Discard) {
        self.shared.observe(|observer| observer.discarded(&self.target(version), why));
        shielded(|| drop(conn));
    }

    #[inline]
    fn give_back(self: &Arc<Self>, mut conn: M::Connection, ticket: Ticket, version: Version) {
        let unfit = if std::thread::panicking() {
            Some(Discard::Panicked)
        } else {
            self.unfit(&mut conn, version)
        };
        if let Some(why) = unfit {
            return self.discard(conn, ticket, version, why);
        }
        self.apply(|stack, fx| stack.checkin(clock::now(), ticket, conn, fx));
        self.shared.observe(|observer| observer.returned(&self.target(version)));
    }

    /// Reason for which a returned connection cannot be used again.
    #[inline]
    fn unfit(&self, conn: &mut M::Connection, version: Version) -> Option<Discard> {
        let (target, manage) = (self.target(version), &self.shared.manage);
        let mut why = None;
        let looked = shielded(|| {
            why = if manage.has_broken(&target, conn) {
                Some(Discard::Broken)
            } else {
                manage.reset(&target, conn).is_err().then_some(Discard::NotReset)
            };
        });
        if looked { why } else { Some(Discard::Panicked) }
    }

    /// Closes a connection that is in use.
    pub(super) fn discard(
        self: &Arc<Self>,
        conn: M::Connection,
        ticket: Ticket,
        version: Version,
        why: Discard,
    ) {
        self.detach(ticket);
        self.drop_conn(conn, version, why);
    }

    fn detach(self: &Arc<Self>, ticket: Ticket) {
        self.apply(|stack, fx| stack.discard(clock::now(), ticket, fx));
    }

    /// Checks a connection that was idle. If it cannot be handed out, closes it and returns `None`.
    #[inline]
    pub(super) fn fit(self: &Arc<Self>, ready: Ready<M::Connection>) -> Option<Fit<M>> {
        let Ready { mut conn, ticket, version, fitness, more } = ready;
        if more {
            self.apply(|stack, fx| stack.serve(clock::now(), fx));
        }
        let (target, manage) = (self.target(version), &self.shared.manage);
        let why = if fitness == Fitness::TooOld {
            Some(Discard::TooOld)
        } else {
            let mut broken = true;
            let looked = shielded(|| broken = manage.has_broken(&target, &mut conn));
            if !looked {
                Some(Discard::Panicked)
            } else if broken {
                Some(Discard::Broken)
            } else if fitness == Fitness::Check {
                let check = || guarded(|| manage.is_valid(&target, &mut conn));
                let valid = waiting(Wait::Network, check);
                valid.is_err().then_some(Discard::Invalid)
            } else {
                None
            }
        };
        let Some(why) = why else { return Some((conn, ticket, version)) };
        self.discard(conn, ticket, version, why);
        None
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
            let limit = deadline.map(|at| at.saturating_duration_since(clock::now()));
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
            let held_for = now.saturating_duration_since(slot.since);
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

/// A backend of a pool, found once: its methods do not look it up again.
///
/// *Shape*: a cheap reference. While one exists the backend does not vanish. If the backend is
/// [retired](super::Pool::retire), all calls return [`GetError::Closed`].
pub struct Backend<M: Manage> {
    pub(super) inner: Arc<Inner<M>>,
}

impl<M: Manage> Backend<M> {
    /// [`Pool::get`](super::Pool::get).
    ///
    /// # Errors
    ///
    /// Those of [`Pool::get`](super::Pool::get).
    #[track_caller]
    #[inline]
    pub fn get(&self) -> Result<Pooled<M>, GetError> {
        self.inner.get(None, Location::caller())
    }

    /// [`Pool::get_before`](super::Pool::get_before).
    ///
    /// # Errors
    ///
    /// Those of [`Pool::get_before`](super::Pool::get_before).
    #[track_caller]
    pub fn get_before(&self, deadline: Instant) -> Result<Pooled<M>, GetError> {
        self.inner.get(Some(deadline), Location::caller())
    }

    /// [`Pool::try_get`](super::Pool::try_get).
    #[track_caller]
    #[must_use]
    pub fn try_get(&self) -> Option<Pooled<M>> {
        self.inner.try_get(Location::caller())
    }

    /// [`Pool::get_then`](super::Pool::get_then).
    #[track_caller]
    pub fn get_then(&self, deadline: Instant, then: impl FnOnce(Got<M>) + Send + 'static) {
        self.inner.get_then(deadline, Box::new(then), Location::caller());
    }

    /// Key of the backend.
    #[must_use]
    pub fn key(&self) -> &M::Key {
        self.inner.key()
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
        f.debug_struct("Backend").field("key", self.key()).finish_non_exhaustive()
    }
}

/// A connection in use. Its drop returns it to the pool.
///
/// If its thread panics meanwhile, the drop closes it instead, because its state is unknown.
///
/// Its own operations are functions, not methods, because it dereferences to the connection:
/// `Pooled::discard(conn)`.
#[must_use = "dropped, it goes back at once"]
pub struct Pooled<M: Manage> {
    /// Present until the drop.
    conn: Option<M::Connection>,
    ticket: Ticket,
    version: Version,
    backend: Arc<Inner<M>>,
}

impl<M: Manage> Pooled<M> {
    /// Key of its backend.
    #[must_use]
    pub fn key(this: &Self) -> &M::Key {
        this.backend.key()
    }

    /// Version of its backend when it was made. [`fail_over`](super::Pool::fail_over) needs it when the
    /// connection turns out to be dead.
    #[must_use]
    pub const fn version(this: &Self) -> Version {
        this.version
    }

    /// Returns true if the backend was failed over since. The connection is closed when it is returned.
    #[must_use]
    pub fn is_leaving(this: &Self) -> bool {
        this.backend.with(|stack| stack.version()) != this.version
    }

    /// Closes the connection. The first waiter may make another one.
    pub fn discard(mut this: Self) {
        if let Some(conn) = this.conn.take() {
            this.backend.discard(conn, this.ticket, this.version, Discard::Unwanted);
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
            self.backend.give_back(conn, self.ticket, self.version);
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
            .field("key", self.backend.key())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
