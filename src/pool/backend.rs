//! [`Backend`]: a backend under its lock, and the effects of what happens to it.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::GetError;
use super::jobs::ConnectJob;
use super::manage::{Key, Target, Version};
use super::pooled::Pooled;
use super::seat::Seat;
use super::shared::Shared;
use super::slots::Ticket;
use super::stack::{Effects, Grant, Stack};
use super::status::{BackendState, BackendStatus, Discard, Held, Leaving};
use super::turns::{guarded, in_turn, shielded, waiting};
use super::{stack, turns};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};

/// One backend: its lock is its own, and nothing of the user runs under it.
pub(super) struct Inner<K: Key, C: Send + 'static> {
    key: K,
    stack: Mutex<Stack<C, Caller<K, C>>>,
    /// Nothing is in use any more, or nobody needs to wait for that.
    quiet: Condvar,
    shared: Arc<Shared<K, C>>,
}

/// What is given to a callback.
pub(super) type Got<K, C> = Result<Pooled<K, C>, GetError>;

/// Somebody who waits.
pub(super) enum Caller<K: Key, C: Send + 'static> {
    Thread(Arc<Seat<C>>),
    Callback(Then<K, C>),
}

/// A caller that does not wait: what to call, and since when.
pub(super) struct Then<K: Key, C: Send + 'static> {
    pub(super) code: Box<dyn FnOnce(Got<K, C>) + Send>,
    pub(super) asked: Instant,
}

/// What is done to a backend, and what follows from it.
pub(super) type Fx<K, C> = Effects<C, Caller<K, C>>;

impl<K: Key, C: Send + 'static> Inner<K, C> {
    pub(super) fn new(key: K, shared: Arc<Shared<K, C>>, now: Instant) -> Self {
        let stack = Mutex::new(Stack::new(shared.limits(), shared.random(), now));
        Self { key, stack, quiet: Condvar::new(), shared }
    }

    pub(super) const fn key(&self) -> &K {
        &self.key
    }

    pub(super) const fn shared(&self) -> &Arc<Shared<K, C>> {
        &self.shared
    }

    pub(super) const fn target(&self, version: Version) -> Target<'_, K> {
        Target { key: &self.key, version }
    }

    pub(super) fn version(&self) -> Version {
        lock(&self.stack).version()
    }

    /// Does something that has no effects.
    #[inline]
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Stack<C, Caller<K, C>>) -> R) -> R {
        step(&mut lock(&self.stack))
    }

    /// Does something, and then, outside the lock, what follows from it.
    #[inline]
    pub(super) fn apply<R>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Stack<C, Caller<K, C>>, &mut Fx<K, C>) -> R,
    ) -> R {
        let mut fx = Fx::default();
        let result = step(&mut lock(&self.stack), &mut fx);
        if !fx.is_empty() {
            self.run(fx);
        }
        result
    }

    /// First who sleeps, then what others do, then what may take long.
    #[cold]
    fn run(self: &Arc<Self>, fx: Fx<K, C>) {
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
            let job = ConnectJob::new(Arc::clone(self), ticket, version);
            self.shared.ask_host(|host| host.spawn(Box::new(|| job.run())));
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
        if fx.unused {
            Shared::vanish(&self.shared, self);
        }
    }

    fn arm(self: &Arc<Self>, at: Instant) {
        let weak = Arc::downgrade(self);
        // Timers that follow each other closely are one.
        let delay = at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let code = move || {
            if let Some(inner) = weak.upgrade() {
                inner.due();
            }
        };
        self.shared.ask_host(|host| host.after(delay, Box::new(code)));
    }

    pub(super) fn due(self: &Arc<Self>) {
        self.apply(|stack, fx| stack.due(Instant::now(), fx));
    }

    fn call(self: &Arc<Self>, then: Then<K, C>, grant: Grant<C>) {
        let result = match grant {
            Grant::Conn(conn, ticket, version) => {
                self.handed_out(version, then.asked);
                Ok(Pooled::new(conn, ticket, version, Arc::clone(self)))
            }
            Grant::Expired(cause) => {
                let waited = then.asked.elapsed();
                Err(self.refused(GetError::Timeout { waited, cause }))
            }
            Grant::Refused(refused) => Err(self.refused(refused.into())),
            Grant::Connect(..) => unreachable!("only for who has a thread"),
        };
        in_turn(move || (then.code)(result));
    }

    pub(super) fn handed_out(&self, version: Version, asked: Instant) {
        self.shared.observe(|observer| {
            observer.handed_out(&self.target(version), asked.elapsed());
        });
    }

    /// Tells of an error.
    pub(super) fn refused(&self, error: GetError) -> GetError {
        self.shared.observe(|observer| observer.refused(&self.key, &error));
        error
    }

    /// Drops a connection that is counted no more.
    pub(super) fn drop_conn(&self, conn: C, version: Version, why: Discard) {
        self.shared.observe(|observer| observer.discarded(&self.target(version), why));
        shielded(|| drop(conn));
    }

    #[inline]
    pub(super) fn give_back(self: &Arc<Self>, mut conn: C, ticket: Ticket, version: Version) {
        let unfit = if std::thread::panicking() {
            Some(Discard::Panicked)
        } else {
            self.unfit(&mut conn, version)
        };
        if let Some(why) = unfit {
            return self.discard(conn, ticket, version, why);
        }
        self.apply(|stack, fx| stack.checkin(Instant::now(), ticket, conn, fx));
        self.shared.observe(|observer| observer.returned(&self.target(version)));
    }

    /// Why a connection that comes back cannot be used again.
    #[inline]
    fn unfit(&self, conn: &mut C, version: Version) -> Option<Discard> {
        let target = self.target(version);
        let mut why = Some(Discard::Panicked);
        let looked = shielded(|| {
            why = if self.shared.manage.has_broken(&target, conn) {
                Some(Discard::Broken)
            } else {
                self.shared.manage.reset(&target, conn).is_err().then_some(Discard::NotReset)
            };
        });
        if looked { why } else { Some(Discard::Panicked) }
    }

    /// Closes a connection that is in use.
    pub(super) fn discard(
        self: &Arc<Self>,
        conn: C,
        ticket: Ticket,
        version: Version,
        why: Discard,
    ) {
        self.detach(ticket);
        self.drop_conn(conn, version, why);
    }

    pub(super) fn detach(self: &Arc<Self>, ticket: Ticket) {
        self.apply(|stack, fx| stack.discard(Instant::now(), ticket, fx));
    }

    /// Whether an idle connection can be handed out; else it is closed.
    #[inline]
    pub(super) fn fit(self: &Arc<Self>, ready: stack::Ready<C>) -> Option<(C, Ticket, Version)> {
        let stack::Ready { mut conn, ticket, version, fitness, more } = ready;
        if more {
            self.apply(|stack, fx| stack.keep_ahead(Instant::now(), fx));
        }
        let target = self.target(version);
        let why = if fitness == stack::Fitness::TooOld {
            Some(Discard::TooOld)
        } else {
            let mut broken = true;
            let looked = shielded(|| broken = self.shared.manage.has_broken(&target, &mut conn));
            if !looked {
                Some(Discard::Panicked)
            } else if broken {
                Some(Discard::Broken)
            } else if fitness == stack::Fitness::Check {
                let valid = guarded(|| self.shared.manage.is_valid(&target, &mut conn));
                valid.is_err().then_some(Discard::Invalid)
            } else {
                None
            }
        };
        let Some(why) = why else { return Some((conn, ticket, version)) };
        self.discard(conn, ticket, version, why);
        None
    }

    /// Waits until nothing is in use, or the mode is another one. `false`: the deadline passed first.
    pub(super) fn wait_quiet(&self, mode: stack::Mode, deadline: Option<Instant>) -> bool {
        waiting(turns::Wait::Other, || {
            let mut stack = lock(&self.stack);
            stack.await_quiet(true);
            let limit = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let busy = |stack: &mut Stack<_, _>| !stack.is_quiet() && stack.mode() == mode;
            let (mut stack, _) = wait_while(&self.quiet, stack, limit, busy);
            stack.await_quiet(false);
            stack.is_quiet() || stack.mode() != mode
        })
    }

    /// Connections in use for at least so long, and who has them.
    pub(super) fn held(&self, now: Instant, at_least: Duration) -> Vec<Held<K>> {
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

    pub(super) fn status(&self) -> BackendStatus<K> {
        let key = self.key.clone();
        let stack = lock(&self.stack);
        let leaving = stack.leaving().iter().map(|&(version, counts)| Leaving {
            version,
            in_use: counts.in_use,
            connecting: counts.connecting,
        });
        let leaving = leaving.collect();
        let state = match stack.mode() {
            stack::Mode::Open => BackendState::Open,
            stack::Mode::Paused => BackendState::Paused,
            stack::Mode::Disabled => BackendState::Disabled,
            stack::Mode::Closed => BackendState::Closed,
        };
        stack.status(key, state, leaving)
    }
}

impl<C, W> Effects<C, W> {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.grants.is_empty()
            && self.close.is_empty()
            && self.connect.is_empty()
            && self.arm.is_none()
            && !self.quiet
            && !self.unused
    }
}

impl From<stack::Refused> for GetError {
    fn from(refused: stack::Refused) -> Self {
        match refused {
            stack::Refused::Disabled => Self::Disabled,
            stack::Refused::Closed => Self::Closed,
            stack::Refused::TooMany(max) => Self::TooManyWaiting { max },
        }
    }
}

/// A backend of a pool, found once: [`get`](Self::get) does not look for it again.
///
/// While there is one its backend does not vanish. When the backend is
/// [retired](super::Pool::retire), it is of no more use: it says [`GetError::Closed`].
pub struct Backend<K: Key, C: Send + 'static> {
    pub(super) inner: Arc<Inner<K, C>>,
}

impl<K: Key, C: Send + 'static> Backend<K, C> {
    /// [`Pool::get`](super::Pool::get).
    ///
    /// # Errors
    ///
    /// The same.
    #[track_caller]
    #[inline]
    pub fn get(&self) -> Result<Pooled<K, C>, GetError> {
        self.inner.get(None, Location::caller())
    }

    /// [`Pool::get_before`](super::Pool::get_before).
    ///
    /// # Errors
    ///
    /// The same.
    #[track_caller]
    pub fn get_before(&self, deadline: Instant) -> Result<Pooled<K, C>, GetError> {
        self.inner.get(Some(deadline), Location::caller())
    }

    /// [`Pool::try_get`](super::Pool::try_get).
    #[track_caller]
    #[must_use]
    pub fn try_get(&self) -> Option<Pooled<K, C>> {
        self.inner.try_get(Location::caller())
    }

    /// [`Pool::get_then`](super::Pool::get_then).
    #[track_caller]
    pub fn get_then(&self, deadline: Instant, then: impl FnOnce(Got<K, C>) + Send + 'static) {
        self.inner.get_then(deadline, Box::new(then), Location::caller());
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &K {
        self.inner.key()
    }

    /// Its version at the moment.
    #[must_use]
    pub fn version(&self) -> Version {
        self.inner.version()
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> BackendStatus<K> {
        self.inner.status()
    }
}

impl<K: Key, C: Send + 'static> Clone for Backend<K, C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: Key + fmt::Debug, C: Send + 'static> fmt::Debug for Backend<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("key", self.key()).finish_non_exhaustive()
    }
}
