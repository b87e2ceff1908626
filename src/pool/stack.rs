//! [`Stack`]: connections of one backend and the callers that wait for them, as a pure state machine.
//!
//! ```text
//!                checkout                          checkin
//!   idle ─────────────────────▶ in use ─────────────────────────▶ idle, on top
//!     ▲                           ▲ │ ▲                             or to the first waiter
//!     │ from the host             │ │ └─ to the first waiter
//!     └────────── connecting ─────┘ └─ broken, of an old version, too old, too many: closed,
//!                  ▲       │           and the first waiter may connect
//!      a slot is   │       └─ failed: a pause, then the next try
//!      free ───────┘
//! ```
//!
//! The stack knows no lock, no thread and no clock. Each call gets the time, changes the state, and
//! returns in [`Effects`] the work that the caller does outside its lock. `C` is a connection, `W`
//! the way to reach a waiting caller. Rules:
//!
//! * Connections are handed out last in, first out. Waiters are served first in, first out. While a
//!   caller waits no connection is idle: a returned one goes to the first waiter.
//! * `max` bounds idle, used and connecting ones of the current version together. The slot of a
//!   connect counts from before it begins.
//! * A waiter with a thread makes the connection itself if it has time for a whole connect and no
//!   connection is in use that could come back earlier. Otherwise the host connects, and the first
//!   waiter gets whichever comes first.
//! * Invariant after each call: no waiter is left that could be served.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::panic::Location;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use slab::Slab;

use super::config::Limits;
use super::error::Cause;
use super::manage::{ManageError, Version};
use super::status::{BackendState, BackendStatus, Discard, Leaving, Totals};
use crate::sync::mutant::mutant;

/// Connections of one backend.
#[derive(Debug)]
pub(super) struct Stack<C, W> {
    limits: Limits,
    /// True if the limits were set for this backend alone.
    own_limits: bool,
    state: BackendState,
    version: Version,
    /// A slot for each connection, from before it is made until it is closed.
    slots: Slab<Slot<C>>,
    /// Idle connections, the coldest first.
    idle: VecDeque<Ticket>,
    counts: Counts,
    /// Counts of old versions.
    leaving: Vec<(Version, Counts)>,
    waiters: Waiters<W>,
    /// Connects that the host makes for waiters and for `min_idle`.
    host_connects: usize,
    trouble: Trouble,
    /// Time for which the host was asked to call `due`.
    armed: Option<Instant>,
    last_asked: Instant,
    /// Callers of `pause` and `close` that wait until no connection is in use.
    awaiting_quiet: usize,
    totals: Totals,
    random: fastrand::Rng,
}

/// Connections of one version that are not idle.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Counts {
    pub(super) in_use: usize,
    pub(super) connecting: usize,
}

/// Failures of connects since one succeeded.
#[derive(Debug, Default)]
struct Trouble {
    failures: u32,
    /// Start of the last pause.
    failed_at: Option<Instant>,
    /// End of the pause: no connect begins before.
    retry_at: Option<Instant>,
    last_error: Option<Arc<dyn Error + Send + Sync>>,
}

/// Names a connection while it exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ticket(usize);

/// User of a connection, for the report of leaks.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) location: &'static Location<'static>,
    pub(super) thread: Thread,
}

impl Holder {
    #[inline]
    pub(super) fn new(location: &'static Location<'static>) -> Self {
        Self { location, thread: thread::current() }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Slot<C> {
    pub(super) version: Version,
    /// Start of its present state.
    pub(super) since: Instant,
    /// End of its life. `None`: unlimited.
    expires: Option<Instant>,
    /// Longest time for which it stays idle.
    idle_timeout: Duration,
    state: State<C>,
    /// Its last user.
    pub(super) holder: Option<Holder>,
}

#[derive(Debug)]
enum State<C> {
    Connecting { by_host: bool },
    Idle(C),
    InUse,
}

impl<C> Slot<C> {
    /// Takes the connection of an idle slot, which is in use from now on.
    #[inline]
    fn take(&mut self, now: Instant) -> C {
        self.since = now;
        match std::mem::replace(&mut self.state, State::InUse) {
            State::Idle(conn) => conn,
            State::Connecting { .. } | State::InUse => {
                unreachable!("the slot is in the list of idle ones")
            }
        }
    }

    /// Notes a new user.
    #[inline]
    fn hold(&mut self, holder: &Holder) {
        match &mut self.holder {
            // Most users come back to their connection. Then no reference is counted.
            Some(last) if last.thread.id() == holder.thread.id() => last.location = holder.location,
            last => *last = Some(holder.clone()),
        }
    }

    /// Time from which an idle connection has been idle for too long.
    #[inline]
    fn idle_until(&self) -> Option<Instant> {
        self.since.checked_add(self.idle_timeout)
    }
}

/// Names a waiter. Never used twice; its order is that in which waiters are served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WaiterId(i64);

/// Waiters in the order in which they are served.
#[derive(Debug)]
struct Waiters<W> {
    queue: BTreeMap<WaiterId, Waiter<W>>,
    /// Deadlines of waiters that have no thread to give up by itself.
    expiries: BTreeSet<(Instant, WaiterId)>,
    first: i64,
    last: i64,
}

/// A caller that waits.
#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) what: W,
    pub(super) patience: Patience,
    pub(super) holder: Holder,
}

/// Duration and manner of a caller's wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) deadline: Option<Instant>,
    /// True if a thread sleeps: it can connect, and gives up by itself.
    pub(super) has_thread: bool,
}

impl Patience {
    fn expiry(&self, id: WaiterId) -> Option<(Instant, WaiterId)> {
        self.deadline.filter(|_| !self.has_thread).map(|deadline| (deadline, id))
    }
}

impl<W> Waiters<W> {
    const fn new() -> Self {
        Self { queue: BTreeMap::new(), expiries: BTreeSet::new(), first: 0, last: 0 }
    }

    fn add(&mut self, waiter: Waiter<W>, turn: Turn) -> WaiterId {
        let id = match turn {
            Turn::First => {
                self.last += 1;
                WaiterId(self.last)
            }
            Turn::Again => {
                self.first -= 1;
                WaiterId(self.first)
            }
        };
        self.expiries.extend(waiter.patience.expiry(id));
        self.queue.insert(id, waiter);
        id
    }

    /// Returns `None` if the waiter has left.
    fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.queue.remove(&id)?;
        if let Some(expiry) = waiter.patience.expiry(id) {
            self.expiries.remove(&expiry);
        }
        Some(waiter)
    }

    fn pop_first(&mut self) -> Option<Waiter<W>> {
        let (&id, _) = self.queue.first_key_value()?;
        self.remove(id)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Answer to a caller that asks for a connection.
#[derive(Debug)]
pub(super) enum Checkout<C> {
    Ready(Ready<C>),
    /// The caller may make one.
    Connect(Ticket, Version),
    /// The caller has to call [`Stack::wait`] under the same lock.
    Wait,
    Refused(Refused),
}

/// An idle connection, in use from now on.
#[derive(Debug)]
pub(super) struct Ready<C> {
    pub(super) conn: C,
    pub(super) ticket: Ticket,
    pub(super) version: Version,
    pub(super) fitness: Fitness,
    /// True if fewer than `min_idle` are idle now: [`Stack::serve`] is to be called.
    pub(super) more: bool,
}

/// Work of a caller on a connection before it uses the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fitness {
    Fresh,
    /// The connection was idle for long: call `is_valid`.
    Check,
    /// The connection is past its age: discard it.
    TooOld,
}

/// Reason not to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    Disabled,
    Closed,
    TooMany(usize),
}

/// A thread that asks for a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) holder: &'a Holder,
    pub(super) asked: Instant,
    /// `None`: [`Limits::wait_timeout`].
    pub(super) deadline: Option<Instant>,
    pub(super) turn: Turn,
}

impl Ask<'_> {
    /// `None`: never.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        self.deadline.or_else(|| self.asked.checked_add(limits.wait_timeout))
    }
}

/// Place of a caller in the queue: at its end, or in front if it asks again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    First,
    Again,
}

/// Result for a waiter.
#[derive(Debug)]
pub(super) enum Grant<C> {
    Conn(C, Ticket, Version),
    /// The waiter may make a connection. Only for waiters with a thread.
    Connect(Ticket, Version),
    Refused(Refused),
    /// The deadline of the waiter has passed. Only for waiters without a thread.
    Expired(Cause),
}

/// Work to be done outside the lock.
#[derive(Debug)]
pub(super) struct Effects<C, W> {
    pub(super) grants: Vec<(W, Grant<C>)>,
    pub(super) close: Vec<(C, Version, Discard)>,
    /// An error that is not kept any more, to be dropped.
    pub(super) error: Option<Arc<dyn Error + Send + Sync>>,
    /// Connects for the host.
    pub(super) connect: Vec<(Ticket, Version)>,
    /// Time at which the host is to call `due`.
    pub(super) arm: Option<Instant>,
    /// A caller waits until no connection is in use, and none is any more.
    pub(super) quiet: bool,
    /// The backend is not used and may vanish.
    pub(super) unused: bool,
}

impl<C, W> Default for Effects<C, W> {
    fn default() -> Self {
        let (grants, close, connect) = (Vec::new(), Vec::new(), Vec::new());
        Self { grants, close, error: None, connect, arm: None, quiet: false, unused: false }
    }
}

impl<C, W> Effects<C, W> {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.grants.is_empty()
            && self.close.is_empty()
            && self.error.is_none()
            && self.connect.is_empty()
            && self.arm.is_none()
            && !self.quiet
            && !self.unused
    }
}

/// Outcome of a connection that a caller made for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Connected {
    /// It is in use by the caller.
    Kept,
    /// The backend was failed over, paused or closed meanwhile: the caller drops it and asks again.
    Unwanted(Discard),
}

/// Checkout and checkin.
impl<C, W> Stack<C, W> {
    pub(super) fn new(limits: Limits, random: u64, now: Instant) -> Self {
        Self {
            limits,
            own_limits: false,
            state: BackendState::Open,
            version: Version::FIRST,
            slots: Slab::new(),
            idle: VecDeque::new(),
            counts: Counts::default(),
            leaving: Vec::new(),
            waiters: Waiters::new(),
            host_connects: 0,
            trouble: Trouble::default(),
            armed: None,
            last_asked: now,
            awaiting_quiet: 0,
            totals: Totals::default(),
            random: fastrand::Rng::with_seed(random),
        }
    }

    /// Asks for a connection.
    #[inline]
    pub(super) fn checkout(&mut self, now: Instant, ask: &Ask<'_>) -> Checkout<C> {
        self.last_asked = now;
        if let Some(refused) = self.refuses() {
            return Checkout::Refused(refused);
        }
        if let Some(ready) = self.checkout_idle(now, ask.holder, ask.turn) {
            return Checkout::Ready(ready);
        }
        let must_wait = ask.turn == Turn::First && !self.waiters.is_empty();
        if must_wait
            || !self.may_connect(now)
            || !self.connects_itself(now, ask.deadline(&self.limits))
        {
            return Checkout::Wait;
        }
        let ticket = self.begin_connect(now, Some(ask.holder.clone()));
        Checkout::Connect(ticket, self.version)
    }

    /// Takes the hottest idle connection, if no other caller waits for it.
    #[inline]
    pub(super) fn checkout_idle(
        &mut self,
        now: Instant,
        holder: &Holder,
        turn: Turn,
    ) -> Option<Ready<C>> {
        self.last_asked = now;
        if self.state != BackendState::Open || (turn == Turn::First && !self.waiters.is_empty()) {
            return None;
        }
        let ticket = self.idle.pop_back()?;
        let slot = &mut self.slots[ticket.0];
        let fitness = if slot.expires.is_some_and(|expires| expires <= now) {
            Fitness::TooOld
        } else if now.saturating_duration_since(slot.since) >= self.limits.check_after {
            Fitness::Check
        } else {
            Fitness::Fresh
        };
        let conn = slot.take(now);
        slot.hold(holder);
        self.counts.in_use += 1;
        self.totals.handed_out += 1;
        let more = self.idle.len() < self.limits.min_idle;
        Some(Ready { conn, ticket, version: self.version, fitness, more })
    }

    /// Reason for which no caller gets a connection or waits.
    const fn refuses(&self) -> Option<Refused> {
        match self.state {
            BackendState::Open | BackendState::Paused => None,
            BackendState::Disabled => Some(Refused::Disabled),
            BackendState::Closed => Some(Refused::Closed),
        }
    }

    /// Adds a waiter, for a caller to which [`checkout`](Self::checkout) said so.
    pub(super) fn wait(
        &mut self,
        now: Instant,
        waiter: Waiter<W>,
        turn: Turn,
        fx: &mut Effects<C, W>,
    ) -> Result<WaiterId, (W, Refused)> {
        if let Some(refused) = self.refuses() {
            return Err((waiter.what, refused));
        }
        if turn == Turn::First && self.waiters.len() >= self.limits.max_waiting {
            self.totals.refused += 1;
            return Err((waiter.what, Refused::TooMany(self.limits.max_waiting)));
        }
        let id = self.waiters.add(waiter, turn);
        self.serve(now, fx);
        self.rearm(now, fx);
        Ok(id)
    }

    /// Removes a waiter whose deadline has passed. Returns the reason why it got nothing. `None`:
    /// it was served, and its grant will arrive.
    pub(super) fn leave(&mut self, id: WaiterId) -> Option<Cause> {
        self.waiters.remove(id)?;
        Some(self.expire_now())
    }

    /// Counts a caller whose deadline has passed. Returns the reason why there is no connection.
    pub(super) fn expire_now(&mut self) -> Cause {
        self.totals.timed_out += 1;
        self.cause()
    }

    /// Takes back a connection.
    #[inline]
    pub(super) fn checkin(
        &mut self,
        now: Instant,
        ticket: Ticket,
        conn: C,
        fx: &mut Effects<C, W>,
    ) {
        let slot = &self.slots[ticket.0];
        let (version, expires) = (slot.version, slot.expires);
        self.count(version).in_use -= 1;
        let unfit = self
            .unfit(version)
            .or_else(|| expires.is_some_and(|expires| expires <= now).then_some(Discard::TooOld));
        match unfit {
            None => self.offer(now, ticket, conn, fx),
            Some(why) => {
                self.close(ticket, conn, why, fx);
                self.serve(now, fx);
            }
        }
        self.look_for_quiet(fx);
    }

    /// Reason for which an uncounted connection of this version is closed.
    fn unfit(&self, version: Version) -> Option<Discard> {
        if mutant!(version != self.version, OldVersionKept => false) {
            Some(Discard::FailedOver)
        } else if mutant!(self.state != BackendState::Open, PauseHandsOver => false) {
            Some(self.state.discard())
        } else if self.total() >= self.limits.max {
            Some(Discard::Resized)
        } else {
            None
        }
    }

    /// Forgets a connection that was in use. The caller has it.
    pub(super) fn discard(&mut self, now: Instant, ticket: Ticket, fx: &mut Effects<C, W>) {
        let version = self.slots[ticket.0].version;
        self.count(version).in_use -= 1;
        self.totals.discarded += 1;
        self.forget(ticket);
        mutant!(self.serve(now, fx), DeathServesNobody => {});
        self.look_for_quiet(fx);
    }

    /// Gives an uncounted connection of the current version to the first waiter, or keeps it idle.
    fn offer(&mut self, now: Instant, ticket: Ticket, conn: C, fx: &mut Effects<C, W>) {
        let slot = &mut self.slots[ticket.0];
        slot.since = now;
        if let Some(waiter) = mutant!(self.waiters.pop_first(), ReturnServesNobody => None) {
            slot.state = State::InUse;
            slot.hold(&waiter.holder);
            self.counts.in_use += 1;
            self.totals.handed_out += 1;
            self.totals.waited += 1;
            fx.grants.push((waiter.what, Grant::Conn(conn, ticket, self.version)));
            return;
        }
        slot.state = State::Idle(conn);
        let until = slot.idle_until();
        self.idle.push_back(ticket);
        // Connections that were idle before expire earlier, but for their random part.
        if self.armed.is_none_or(|armed| until.is_some_and(|until| until < armed)) {
            self.rearm(now, fx);
        }
    }

    /// Closes an uncounted connection.
    fn close(&mut self, ticket: Ticket, conn: C, why: Discard, fx: &mut Effects<C, W>) {
        fx.close.push((conn, self.slots[ticket.0].version, why));
        self.totals.discarded += 1;
        self.forget(ticket);
    }

    /// Frees a slot, and removes old versions without connections.
    fn forget(&mut self, ticket: Ticket) {
        self.slots.remove(ticket.0);
        self.leaving.retain(|(_, counts)| *counts != Counts::default());
    }

    /// Connections of the current version, connecting ones included.
    fn total(&self) -> usize {
        self.idle.len() + self.counts.in_use + self.counts.connecting
    }

    fn count(&mut self, version: Version) -> &mut Counts {
        if version == self.version {
            return &mut self.counts;
        }
        let found = self.leaving.iter_mut().find(|(leaving, _)| *leaving == version);
        &mut found.expect("a version is kept while a connection of it is").1
    }

    /// Returns the duration, shorter by up to one part in `parts`, so that not all end at once.
    fn jittered(&mut self, duration: Duration, parts: u32) -> Duration {
        let most = u64::try_from((duration / parts).as_nanos()).unwrap_or(u64::MAX);
        duration - Duration::from_nanos(self.random.u64(0..=most))
    }
}

/// Shortest pause after a failed connect. Without one, a host that drops a connect would be asked for
/// the next one inside that call, again and again.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// Lives of connections are shorter by up to one part in this many.
const JITTER: u32 = 10;

/// Connects.
impl<C, W> Stack<C, W> {
    fn may_connect(&self, now: Instant) -> bool {
        // After a failure one connect at a time finds out whether the backend is back.
        let most = if self.trouble.failures == 0 { self.limits.max_connecting } else { 1 };
        self.state == BackendState::Open
            && self.total() < self.limits.max
            && self.counts.connecting < most
            && self.trouble.retry_at.is_none_or(|retry_at| retry_at <= now)
    }

    /// Returns true if a thread with this deadline is to make its connection itself.
    ///
    /// With less time than a connect may take, a backend that answers slowly would never be reached.
    fn connects_itself(&self, now: Instant, deadline: Option<Instant>) -> bool {
        let enough = now.checked_add(self.limits.connect_timeout);
        self.counts.in_use == 0 && deadline.is_none_or(|deadline| Some(deadline) >= enough)
    }

    /// Begins a connect of the holder, or of the host if there is none.
    fn begin_connect(&mut self, now: Instant, holder: Option<Holder>) -> Ticket {
        let by_host = holder.is_none();
        self.host_connects += usize::from(by_host);
        self.counts.connecting += 1;
        let (version, idle_timeout) = (self.version, Duration::MAX);
        let state = State::Connecting { by_host };
        let slot = Slot { version, since: now, expires: None, idle_timeout, state, holder };
        Ticket(self.slots.insert(slot))
    }

    /// Begins connects for waiters and for `min_idle`, as far as the limits allow.
    ///
    /// Every call that frees a slot, ends a connect, takes an idle connection or changes limits does
    /// this.
    pub(super) fn serve(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        while self.host_connects < self.waiters.len() && self.may_connect(now) {
            let (_, first) = self.waiters.queue.first_key_value().expect("there are waiters");
            let Patience { deadline, has_thread } = first.patience;
            if has_thread
                && self.connects_itself(now, deadline)
                && let Some(waiter) = self.waiters.pop_first()
            {
                let ticket = self.begin_connect(now, Some(waiter.holder));
                fx.grants.push((waiter.what, Grant::Connect(ticket, self.version)));
            } else {
                self.connect_by_host(now, fx);
            }
        }
        while self.spare() < self.limits.min_idle && self.may_connect(now) {
            self.connect_by_host(now, fx);
        }
        if self.trouble.retry_at.is_some() && (!self.waiters.is_empty() || self.wants_more()) {
            self.rearm(now, fx);
        }
    }

    /// Returns true if a connect may begin for a waiter or for `min_idle`, given the number that
    /// the host makes. Never true after a call.
    #[cfg(all(any(test, feature = "internal"), not(loom)))]
    pub(super) fn could_serve(&self, now: Instant, by_host: usize) -> bool {
        let spare = self.idle.len() + by_host.saturating_sub(self.waiters.len());
        (by_host < self.waiters.len() || spare < self.limits.min_idle) && self.may_connect(now)
    }

    fn connect_by_host(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        let ticket = self.begin_connect(now, None);
        fx.connect.push((ticket, self.version));
    }

    /// Idle connections, once the host has connected and all waiters are served.
    fn spare(&self) -> usize {
        self.idle.len() + self.host_connects.saturating_sub(self.waiters.len())
    }

    fn wants_more(&self) -> bool {
        self.state == BackendState::Open
            && self.spare() < self.limits.min_idle
            && self.total() < self.limits.max
    }

    /// Ends a connect of a caller, which has the connection.
    pub(super) fn connected(
        &mut self,
        now: Instant,
        ticket: Ticket,
        fx: &mut Effects<C, W>,
    ) -> Connected {
        let outcome = match self.made(now, ticket) {
            Some(why) => {
                self.totals.discarded += 1;
                self.forget(ticket);
                Connected::Unwanted(why)
            }
            None => {
                self.slots[ticket.0].state = State::InUse;
                self.counts.in_use += 1;
                self.totals.handed_out += 1;
                Connected::Kept
            }
        };
        self.serve(now, fx);
        outcome
    }

    /// Ends a connect of the host.
    pub(super) fn connected_by_host(
        &mut self,
        now: Instant,
        ticket: Ticket,
        conn: C,
        fx: &mut Effects<C, W>,
    ) {
        match self.made(now, ticket) {
            Some(why) => self.close(ticket, conn, why, fx),
            None => self.offer(now, ticket, conn, fx),
        }
        self.serve(now, fx);
    }

    /// Ends a connect that has succeeded. The caller then counts the connection as idle or in use, or
    /// closes it. Returns the reason to close it, if there is one.
    fn made(&mut self, now: Instant, ticket: Ticket) -> Option<Discard> {
        let version = self.end_connect(ticket);
        self.totals.connects += 1;
        if version == self.version {
            self.trouble.failures = 0;
            self.trouble.retry_at = None;
        }
        let unfit = self.unfit(version);
        let age = self.jittered(self.limits.max_age, JITTER);
        let idle = self.jittered(self.limits.idle_timeout, JITTER);
        let slot = &mut self.slots[ticket.0];
        slot.since = now;
        slot.expires = now.checked_add(age);
        slot.idle_timeout = idle;
        unfit
    }

    /// Ends a connect that has failed. A pause begins, unless one has begun since the connect did.
    pub(super) fn connect_failed(
        &mut self,
        now: Instant,
        ticket: Ticket,
        error: ManageError,
        fx: &mut Effects<C, W>,
    ) {
        let began = self.slots[ticket.0].since;
        let version = self.end_connect(ticket);
        self.forget(ticket);
        self.totals.connect_failures += 1;
        fx.error = Some(Arc::from(error));
        if version == self.version {
            std::mem::swap(&mut self.trouble.last_error, &mut fx.error);
            if self.trouble.failed_at.is_none_or(|failed_at| began >= failed_at) {
                let doubled = 1_u32.checked_shl(self.trouble.failures.min(20)).unwrap_or(u32::MAX);
                let pause = self.limits.backoff_initial.saturating_mul(doubled);
                let pause = self.jittered(pause.min(self.limits.backoff_max), 2).max(LEAST_PAUSE);
                self.trouble.failures = self.trouble.failures.saturating_add(1);
                self.trouble.failed_at = Some(now);
                self.trouble.retry_at = now.checked_add(pause);
            }
        }
        self.serve(now, fx);
    }

    /// Ends a connect that was not begun. The next waiter may connect.
    pub(super) fn connect_abandoned(
        &mut self,
        now: Instant,
        ticket: Ticket,
        fx: &mut Effects<C, W>,
    ) {
        self.end_connect(ticket);
        self.forget(ticket);
        self.serve(now, fx);
    }

    fn end_connect(&mut self, ticket: Ticket) -> Version {
        let Slot { version, state: State::Connecting { by_host }, .. } = self.slots[ticket.0]
        else {
            unreachable!("a connect ends once");
        };
        if version == self.version && by_host {
            self.host_connects -= 1;
        }
        self.count(version).connecting -= 1;
        version
    }
}

/// Work that is due at certain times.
impl<C, W> Stack<C, W> {
    /// Does what has become due: expires waiters without a thread, closes idle connections, ends a pause
    /// between connects, and reports a backend that is not used. A call too many does no harm.
    pub(super) fn due(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        self.armed = self.armed.filter(|armed| *armed > now);
        while let Some(&(deadline, id)) = self.waiters.expiries.first()
            && deadline <= now
        {
            let waiter =
                self.waiters.remove(id).expect("a waiter that leaves takes its deadline along");
            fx.grants.push((waiter.what, Grant::Expired(self.expire_now())));
        }
        self.reap(now, fx);
        self.serve(now, fx);
        fx.unused = self.is_unused(now);
        self.rearm(now, fx);
    }

    /// Closes idle connections past their age, and the coldest of those that were idle for too long.
    fn reap(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        let mut n = 0;
        while let Some(&ticket) = self.idle.get(n) {
            let slot = &mut self.slots[ticket.0];
            if slot.expires.is_none_or(|expires| expires > now) {
                n += 1;
                continue;
            }
            let conn = slot.take(now);
            self.idle.remove(n);
            self.close(ticket, conn, Discard::TooOld, fx);
        }
        while self.idle.len() > self.limits.min_idle
            && let Some(coldest) = self.idle.front()
            && self.slots[coldest.0].idle_until().is_some_and(|until| until <= now)
        {
            self.close_coldest(Discard::Idle, fx);
        }
    }

    /// Returns true if no caller has asked for long, no connection is in use, and the backend has
    /// no settings that would be lost with it.
    pub(super) fn is_unused(&self, now: Instant) -> bool {
        self.may_vanish()
            && self.counts == Counts::default()
            && self.leaving.is_empty()
            && self.waiters.is_empty()
            && self.unused_at().is_some_and(|at| at <= now)
    }

    fn may_vanish(&self) -> bool {
        self.state == BackendState::Open && self.version == Version::FIRST && !self.own_limits
    }

    fn unused_at(&self) -> Option<Instant> {
        self.last_asked.checked_add(self.limits.unused_after)
    }

    /// Asks the host for the next call of [`due`](Self::due), if none comes early enough.
    fn rearm(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        let Some(next) = self.next_due(now) else { return };
        if self.armed.is_none_or(|armed| next < armed) {
            self.armed = Some(next);
            fx.arm = Some(next);
        }
    }

    fn next_due(&self, now: Instant) -> Option<Instant> {
        let slot = |ticket: &Ticket| &self.slots[ticket.0];
        let expiry = self.waiters.expiries.first().map(|&(deadline, _)| deadline);
        let wants =
            self.state == BackendState::Open && (!self.waiters.is_empty() || self.wants_more());
        let retry = self.trouble.retry_at.filter(|retry_at| wants && *retry_at > now);
        let coldest = self.idle.front().filter(|_| self.idle.len() > self.limits.min_idle);
        let idle = coldest.and_then(|ticket| slot(ticket).idle_until());
        let old = self.idle.iter().filter_map(|ticket| slot(ticket).expires).min();
        // If the backend is in use at that time, the next look comes after as long again.
        let unused = self.unused_at().filter(|_| self.may_vanish()).map(|at| {
            let again = now.checked_add(self.limits.unused_after).unwrap_or(at);
            if at > now { at } else { again }
        });
        [expiry, retry, idle, old, unused].into_iter().flatten().min()
    }
}

/// Changes and reports for operators.
impl<C, W> Stack<C, W> {
    pub(super) const fn state(&self) -> BackendState {
        self.state
    }

    pub(super) const fn version(&self) -> Version {
        self.version
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes the state. No change leads out of `Closed`.
    pub(super) fn set_state(&mut self, now: Instant, state: BackendState, fx: &mut Effects<C, W>) {
        if self.state == BackendState::Closed {
            return;
        }
        self.state = state;
        // Callers of `pause` also check the state.
        fx.quiet = self.awaiting_quiet > 0;
        if state == BackendState::Open {
            self.last_asked = now;
            self.trouble.retry_at = None;
            self.serve(now, fx);
            self.rearm(now, fx);
            return;
        }
        self.close_idle(0, state.discard(), fx);
        if let Some(refused) = self.refuses() {
            while let Some(waiter) = mutant!(self.waiters.pop_first(), CloseForgets => None) {
                fx.grants.push((waiter.what, Grant::Refused(refused)));
            }
        }
    }

    /// Makes the next version. If another caller was quicker, returns the present version as an error.
    pub(super) fn fail_over(
        &mut self,
        now: Instant,
        from: Version,
        fx: &mut Effects<C, W>,
    ) -> Result<Version, Version> {
        if self.version != from || self.state == BackendState::Closed {
            return Err(self.version);
        }
        self.close_idle(0, Discard::FailedOver, fx);
        let left = std::mem::take(&mut self.counts);
        if left != Counts::default() {
            self.leaving.push((from, left));
        }
        self.version = from.next();
        self.host_connects = 0;
        fx.error = std::mem::take(&mut self.trouble).last_error;
        self.totals.failed_over += 1;
        self.serve(now, fx);
        self.rearm(now, fx);
        Ok(self.version)
    }

    /// Changes the limits: those that were set for this backend alone, if `own`.
    pub(super) fn set_limits(
        &mut self,
        now: Instant,
        limits: Limits,
        own: bool,
        fx: &mut Effects<C, W>,
    ) {
        self.own_limits |= own;
        self.limits = limits;
        let used = self.counts.in_use + self.counts.connecting;
        self.close_idle(self.limits.max.saturating_sub(used), Discard::Resized, fx);
        self.serve(now, fx);
        self.rearm(now, fx);
    }

    pub(super) const fn has_own_limits(&self) -> bool {
        self.own_limits
    }

    /// Closes the coldest idle connections until `keep` are left.
    fn close_idle(&mut self, keep: usize, why: Discard, fx: &mut Effects<C, W>) {
        while self.idle.len() > keep {
            self.close_coldest(why, fx);
        }
    }

    fn close_coldest(&mut self, why: Discard, fx: &mut Effects<C, W>) {
        let Some(ticket) = self.idle.pop_front() else { return };
        let slot = &mut self.slots[ticket.0];
        let conn = slot.take(slot.since);
        self.close(ticket, conn, why, fx);
    }

    /// Counts a caller that begins or ends to wait until no connection is in use.
    pub(super) const fn await_quiet(&mut self, begins: bool) {
        if begins {
            self.awaiting_quiet += 1;
        } else {
            self.awaiting_quiet -= 1;
        }
    }

    /// Returns true if no connection of any version is in use.
    pub(super) fn is_quiet(&self) -> bool {
        self.counts.in_use == 0 && self.leaving.iter().all(|(_, counts)| counts.in_use == 0)
    }

    fn look_for_quiet(&self, fx: &mut Effects<C, W>) {
        if mutant!(self.awaiting_quiet > 0, QuietUntold => false) && self.is_quiet() {
            fx.quiet = true;
        }
    }

    /// Connections in use.
    pub(super) fn held(&self) -> impl Iterator<Item = &Slot<C>> {
        let slots = self.slots.iter().map(|(_, slot)| slot);
        slots.filter(|slot| matches!(slot.state, State::InUse))
    }

    pub(super) fn status<K>(&self, key: K) -> BackendStatus<K> {
        let leaving =
            |&(version, Counts { in_use, connecting }): &_| Leaving { version, in_use, connecting };
        BackendStatus {
            key,
            version: self.version,
            state: self.state,
            idle: self.idle.len(),
            in_use: self.counts.in_use,
            connecting: self.counts.connecting,
            max: self.limits.max,
            waiting: self.waiters.len(),
            failures: self.trouble.failures,
            last_error: self.trouble.last_error.clone(),
            leaving: self.leaving.iter().map(leaving).collect(),
            totals: self.totals,
        }
    }

    /// Reason why waiters have no connection.
    fn cause(&self) -> Cause {
        let Counts { in_use, connecting } = self.counts;
        match (&self.trouble.last_error, self.trouble.failures) {
            _ if self.state == BackendState::Paused => Cause::Paused,
            (Some(error), failures @ 1..) if in_use < self.limits.max => {
                Cause::ConnectFails { failures, last_error: Arc::clone(error) }
            }
            _ if connecting > 0 => Cause::Connecting { connecting },
            _ if in_use < self.limits.max => Cause::NoTime,
            _ => Cause::AllBusy { in_use, max: self.limits.max },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
