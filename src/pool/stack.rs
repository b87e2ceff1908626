//! [`Stack`]: connections of one backend and the callers that wait for them, as a pure state machine.
//!
//! ```text
//!                  ask                             checkin
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
//! * Connections are handed out last in, first out. Waiters are served in the order in which they
//!   first asked. While a caller waits no connection is idle: a returned one goes to the first waiter.
//! * `max` bounds idle, used and connecting ones of the current version together. The slot of a
//!   connect counts from before it begins.
//! * A waiter with a thread makes the connection itself if it has time for a whole connect and no
//!   connection is in use that could come back earlier. Otherwise the host connects, and the first
//!   waiter gets whichever comes first.
//! * Invariant after each call: no waiter is left that could be served.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::sys::clock::Instant;
use slab::Slab;

#[cfg(all(any(test, feature = "internal"), not(loom)))]
pub(super) mod exercise;
mod maintenance;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiters;

pub(super) use waiters::{Ask, Holder, Waiter, WaiterId};

use waiters::Waiters;

use super::config::Limits;
use super::error::{Cause, GetError};
use super::manage::{BoxError, Version};
use super::status::{BackendState, Discard, Totals};
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
    /// Idle connections, the coldest first. Empty unless the state is `Open`.
    idle: VecDeque<Ticket>,
    /// While a thread checks the idle connections: number of the coldest ones that it has not checked.
    unchecked: Option<usize>,
    /// Number of connections in [`State::Checked`], 0 or 1.
    checked: usize,
    /// Connections of the current version that are not idle. A checked one counts as in use.
    counts: Counts,
    /// Connections of all old versions.
    left: Counts,
    waiters: Waiters<W>,
    /// Connects that the host makes for waiters and for `min_idle`.
    host_connects: usize,
    trouble: Trouble,
    /// Times for which the host has a timer that calls `due`, the first one last: a timer is only added
    /// for an earlier time.
    armed: Vec<Instant>,
    /// Last time at which a caller asked for a connection or gave one back.
    last_used: Instant,
    /// Last time at which the backend was reported as unused.
    reported_unused: Option<Instant>,
    /// Callers of `pause` and `close` that wait until no connection is in use.
    awaiting_quiet: usize,
    totals: Totals,
    random: fastrand::Rng,
}

/// Numbers of connections that are not idle.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    in_use: usize,
    connecting: usize,
}

/// Failures of connects since one succeeded.
#[derive(Debug, Default)]
struct Trouble {
    /// Number of pauses. Connects that fail together are one failure.
    failures: u32,
    /// Start of the last pause.
    failed_at: Option<Instant>,
    /// End of the pause: no connect begins before.
    retry_at: Option<Instant>,
    last_error: Option<Arc<dyn Error + Send + Sync>>,
    /// True if the last error is permanent. Callers do not wait for the end of the pause then.
    is_permanent: bool,
}

/// Names a connection while it exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    slot: usize,
    /// Version of the backend for which the connection is made.
    pub(super) version: Version,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Slot<C> {
    pub(super) version: Version,
    /// Start of its present state.
    pub(super) since: Instant,
    /// Time at which its connect ended, or began if it has not ended.
    made: Instant,
    /// Random number from 0 to 1: age and idle time are shorter by this part of a tenth.
    chance: f64,
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
    Connecting {
        by_host: bool,
    },
    Idle(C),
    /// An idle connection that a thread checks. It counts as in use.
    Checked,
    InUse,
}

impl<C> Slot<C> {
    /// Takes the connection of an idle slot, which is in use from now on.
    #[inline]
    fn take(&mut self, now: Instant) -> C {
        self.since = now;
        match std::mem::replace(&mut self.state, State::InUse) {
            State::Idle(conn) => conn,
            State::Connecting { .. } | State::Checked | State::InUse => {
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

    /// Sets the limits of its age and idle time.
    fn limit(&mut self, limits: &Limits) {
        let age = shortened(limits.max_age, JITTER, self.chance);
        self.expires = self.made.checked_add(age);
        self.idle_timeout = shortened(limits.idle_timeout, JITTER, self.chance);
    }

    fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Work on the connection after it was idle.
    #[inline]
    fn fitness(&self, now: Instant, limits: &Limits) -> Fitness {
        if self.is_expired(now) {
            Fitness::TooOld
        } else if now.duration_since(self.since) >= limits.check_after {
            Fitness::Check
        } else {
            Fitness::Look
        }
    }

    /// Time from which an idle connection has been idle for too long.
    #[inline]
    fn idle_until(&self) -> Option<Instant> {
        self.since.checked_add(self.idle_timeout)
    }
}

/// Answer to a caller.
#[derive(Debug)]
pub(super) enum Grant<C> {
    /// A connection, in use from now on.
    Conn(C, Ticket, Fitness),
    /// The caller may make a connection. Only for callers with a thread.
    Connect(Ticket),
    Refused(GetError),
}

/// Work of a caller on a connection before it uses the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fitness {
    /// The connection was just made or returned.
    Fit,
    /// The connection was idle: call `has_broken`.
    Look,
    /// The connection was idle for long: call `is_valid` too.
    Check,
    /// The connection is past its age: discard it.
    TooOld,
}

/// Outcome of [`Stack::ask`].
#[derive(Debug)]
pub(super) enum Asked<C> {
    Now(Grant<C>),
    /// The caller waits, at most until this time.
    Waits(WaiterId, Option<Instant>),
}

/// Work to be done outside the lock.
#[derive(Debug)]
pub(super) struct Effects<C, W> {
    pub(super) grants: Vec<(Waiter<W>, Grant<C>)>,
    pub(super) close: Vec<(C, Version, Discard)>,
    /// An error that is not kept any more, to be dropped.
    pub(super) error: Option<Arc<dyn Error + Send + Sync>>,
    /// Connects for the host.
    pub(super) connect: Vec<Ticket>,
    /// Time at which the host is to call `disarm` and `due`.
    pub(super) arm: Option<Instant>,
    /// Callers that wait until no connection is in use must look again.
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

/// Checkout and checkin.
impl<C, W> Stack<C, W> {
    pub(super) fn new(limits: Limits, random: u64, now: Instant) -> Self {
        Self {
            limits,
            own_limits: false,
            state: BackendState::Open,
            version: Version::default(),
            slots: Slab::new(),
            idle: VecDeque::new(),
            unchecked: None,
            checked: 0,
            counts: Counts::default(),
            left: Counts::default(),
            waiters: Waiters::new(),
            host_connects: 0,
            trouble: Trouble::default(),
            armed: Vec::new(),
            last_used: now,
            reported_unused: None,
            awaiting_quiet: 0,
            totals: Totals::default(),
            random: fastrand::Rng::with_seed(random),
        }
    }

    /// Asks for a connection. If the caller has to wait, `way` makes the way to reach it.
    #[inline]
    pub(super) fn ask(
        &mut self,
        now: Instant,
        ask: &Ask,
        way: impl FnOnce() -> W,
        fx: &mut Effects<C, W>,
    ) -> Asked<C> {
        match mutant!(self.take_idle(now, ask, fx), WaitWithoutLook => None) {
            Some(grant) => Asked::Now(grant),
            None => self.connect_or_wait(now, ask, way, fx),
        }
    }

    /// Takes the hottest idle connection, unless a caller waits that asked before.
    #[inline]
    pub(super) fn take_idle(
        &mut self,
        now: Instant,
        ask: &Ask,
        fx: &mut Effects<C, W>,
    ) -> Option<Grant<C>> {
        self.last_used = now;
        if !self.is_first(ask) {
            return None;
        }
        let ticket = self.idle.pop_back()?;
        let slot = &mut self.slots[ticket.slot];
        let fitness = slot.fitness(now, &self.limits);
        let conn = slot.take(now);
        slot.hold(&ask.holder);
        self.counts.in_use += 1;
        self.totals.handed_out += 1;
        if self.idle.len() < self.limits.min_idle {
            self.serve(now, fx);
        }
        Some(Grant::Conn(conn, ticket, fitness))
    }

    fn is_first(&self, ask: &Ask) -> bool {
        self.waiters.first().is_none_or(|first| ask.asked < first.asked)
    }

    #[cold]
    fn connect_or_wait(
        &mut self,
        now: Instant,
        ask: &Ask,
        way: impl FnOnce() -> W,
        fx: &mut Effects<C, W>,
    ) -> Asked<C> {
        if let Some(refused) = self.refuses(now) {
            return Asked::Now(Grant::Refused(refused));
        }
        let ask = Ask { deadline: ask.deadline(&self.limits), ..ask.clone() };
        if self.is_first(&ask) && self.may_connect(now) && self.connects_itself(now, &ask) {
            return Asked::Now(Grant::Connect(self.begin_connect(now, Some(ask.holder))));
        }
        if let Some(late) = self.fail_if_late(now, &ask) {
            return Asked::Now(Grant::Refused(late));
        }
        let max = self.limits.max_waiting;
        // A connect can begin for this caller if every waiter before it has one.
        let connects = self.host_connects >= self.waiters.len() && self.may_connect(now);
        if !ask.again && !connects && self.waiters.len() >= max {
            self.totals.refused += 1;
            return Asked::Now(Grant::Refused(GetError::TooManyWaiting { max }));
        }
        let deadline = ask.deadline;
        let id = self.waiters.add(Waiter { way: way(), ask });
        self.serve(now, fx);
        self.rearm(now, fx);
        Asked::Waits(id, deadline)
    }

    /// Reason for which no caller gets a new connection or waits.
    fn refuses(&self, now: Instant) -> Option<GetError> {
        let Trouble { is_permanent, retry_at, last_error, .. } = &self.trouble;
        match self.state {
            BackendState::Open if retry_at.is_some_and(|retry_at| now < retry_at) => last_error
                .as_ref()
                .filter(|_| *is_permanent)
                .map(|error| GetError::ConnectFailed { error: Arc::clone(error) }),
            BackendState::Open | BackendState::Paused => None,
            BackendState::Disabled => Some(GetError::Disabled),
            BackendState::Closed => Some(GetError::Closed),
        }
    }

    /// If no caller may wait, refuses all waiters, and returns their error.
    fn refuse_waiters(&mut self, now: Instant, fx: &mut Effects<C, W>) -> Option<GetError> {
        let refused = self.refuses(now)?;
        while let Some(waiter) = mutant!(self.waiters.pop_first(), CloseForgets => None) {
            fx.grants.push((waiter, Grant::Refused(refused.clone())));
        }
        Some(refused)
    }

    /// Removes a waiter whose deadline has passed. `None`: it was served, and its grant will arrive.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        id: WaiterId,
        fx: &mut Effects<C, W>,
    ) -> Option<GetError> {
        let waiter = self.waiters.remove(id)?;
        self.look_for_disuse(now, fx);
        Some(self.time_out(now, &waiter.ask))
    }

    /// If the deadline of the caller has passed, counts the caller and returns its error.
    pub(super) fn fail_if_late(&mut self, now: Instant, ask: &Ask) -> Option<GetError> {
        self.is_late(now, ask).then(|| self.time_out(now, ask))
    }

    pub(super) fn is_late(&self, now: Instant, ask: &Ask) -> bool {
        ask.deadline(&self.limits).is_some_and(|deadline| deadline <= now)
    }

    /// Counts a caller whose deadline has passed. Returns its error.
    pub(super) fn time_out(&mut self, now: Instant, ask: &Ask) -> GetError {
        self.totals.timed_out += 1;
        let waited = now.duration_since(ask.asked);
        GetError::Timeout { waited, cause: self.cause() }
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

    /// Takes back a connection that was in use or was checked. Returns false if it is closed.
    #[inline]
    pub(super) fn checkin(
        &mut self,
        now: Instant,
        ticket: Ticket,
        conn: C,
        fx: &mut Effects<C, W>,
    ) -> bool {
        self.count(ticket.version).in_use -= 1;
        let slot = &mut self.slots[ticket.slot];
        if matches!(slot.state, State::InUse) {
            slot.since = now;
            self.last_used = now;
        } else {
            self.checked = 0;
        }
        let too_old = slot.is_expired(now);
        let why = self.unfit(ticket.version).or_else(|| too_old.then_some(Discard::TooOld));
        match why {
            None => self.offer(now, ticket, conn, fx),
            Some(why) => {
                self.close(ticket, conn, why, fx);
                self.serve(now, fx);
            }
        }
        self.look_for_quiet(fx);
        self.look_for_disuse(now, fx);
        why.is_none()
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

    /// Forgets a connection that was in use or was checked. The caller has it.
    pub(super) fn discard(&mut self, now: Instant, ticket: Ticket, fx: &mut Effects<C, W>) {
        self.count(ticket.version).in_use -= 1;
        self.totals.discarded += 1;
        if matches!(self.slots.remove(ticket.slot).state, State::InUse) {
            self.last_used = now;
        } else {
            self.checked = 0;
        }
        mutant!(self.serve(now, fx), DeathServesNobody => {});
        self.look_for_quiet(fx);
        self.look_for_disuse(now, fx);
    }

    /// Gives an uncounted connection of the current version to the first waiter, or keeps it idle.
    fn offer(&mut self, now: Instant, ticket: Ticket, conn: C, fx: &mut Effects<C, W>) {
        let slot = &mut self.slots[ticket.slot];
        let was_idle = matches!(slot.state, State::Checked);
        if let Some(waiter) = mutant!(self.waiters.pop_first(), ReturnServesNobody => None) {
            let returned = matches!(slot.state, State::InUse);
            let fitness = if was_idle { slot.fitness(now, &self.limits) } else { Fitness::Fit };
            slot.state = State::InUse;
            slot.hold(&waiter.ask.holder);
            self.counts.in_use += 1;
            self.totals.handed_out += 1;
            self.totals.waited += u64::from(returned);
            fx.grants.push((waiter, Grant::Conn(conn, ticket, fitness)));
            // The host may have lost the timer of those that still wait.
            return self.rearm(now, fx);
        }
        slot.state = State::Idle(conn);
        let until = slot.idle_until().into_iter().chain(slot.expires).min();
        if was_idle {
            let since = slot.since;
            let is_colder = |idle: &Ticket| self.slots[idle.slot].since <= since;
            self.idle.insert(self.idle.partition_point(is_colder), ticket);
        } else {
            self.idle.push_back(ticket);
        }
        // Connections that were idle before end earlier, but for their random part and their age.
        self.rearm_for(now, until, fx);
    }

    /// Closes an uncounted connection.
    fn close(&mut self, ticket: Ticket, conn: C, why: Discard, fx: &mut Effects<C, W>) {
        fx.close.push((conn, ticket.version, why));
        self.totals.discarded += 1;
        self.slots.remove(ticket.slot);
    }

    /// Connections of the current version, connecting ones included.
    fn total(&self) -> usize {
        self.idle.len() + self.counts.in_use + self.counts.connecting
    }

    fn count(&mut self, version: Version) -> &mut Counts {
        if version == self.version { &mut self.counts } else { &mut self.left }
    }
}

/// Returns the duration, shorter by up to one part in `parts`, so that not all end at once. `chance` is
/// from 0 to 1.
fn shortened(duration: Duration, parts: u32, chance: f64) -> Duration {
    duration - (duration / parts).mul_f64(chance)
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

    /// Returns true if the caller is to make its connection itself.
    ///
    /// With less time than a connect may take, a backend that answers slowly would never be reached.
    fn connects_itself(&self, now: Instant, ask: &Ask) -> bool {
        let enough = now.checked_add(self.limits.connect_timeout);
        let has_time =
            ask.deadline.is_none_or(|deadline| enough.is_some_and(|enough| deadline >= enough));
        ask.has_thread && has_time && self.counts.in_use == 0
    }

    /// Begins a connect of the holder, or of the host if there is none.
    fn begin_connect(&mut self, now: Instant, holder: Option<Holder>) -> Ticket {
        let by_host = holder.is_none();
        self.host_connects += usize::from(by_host);
        self.counts.connecting += 1;
        let version = self.version;
        let slot = Slot {
            version,
            since: now,
            made: now,
            chance: self.random.f64(),
            expires: None,
            idle_timeout: Duration::MAX,
            state: State::Connecting { by_host },
            holder,
        };
        Ticket { slot: self.slots.insert(slot), version }
    }

    /// Begins connects for waiters and for `min_idle`, as far as the limits allow.
    ///
    /// Every call that frees a slot, ends a connect, takes an idle connection or changes limits does
    /// this.
    fn serve(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        while self.host_connects < self.waiters.len() && self.may_connect(now) {
            if self.waiters.first().is_some_and(|first| self.connects_itself(now, first))
                && let Some(waiter) = self.waiters.pop_first()
            {
                let ticket = self.begin_connect(now, Some(waiter.ask.holder.clone()));
                fx.grants.push((waiter, Grant::Connect(ticket)));
            } else {
                fx.connect.push(self.begin_connect(now, None));
            }
        }
        while self.spare() < self.limits.min_idle && self.may_connect(now) {
            fx.connect.push(self.begin_connect(now, None));
        }
        if self.trouble.retry_at.is_some() && (!self.waiters.is_empty() || self.wants_more()) {
            self.rearm(now, fx);
        }
    }

    /// Idle connections, once the host has connected and all waiters are served.
    fn spare(&self) -> usize {
        let idle = self.idle.len() + self.checked;
        idle + self.host_connects.saturating_sub(self.waiters.len())
    }

    fn wants_more(&self) -> bool {
        self.state == BackendState::Open
            && self.spare() < self.limits.min_idle
            && self.total() < self.limits.max
    }

    /// Deadline of a connect that begins now, for a caller or for the host.
    pub(super) fn connect_deadline(&self, now: Instant, ask: Option<&Ask>) -> Instant {
        let limit = now + self.limits.connect_timeout;
        let own = ask.and_then(|ask| ask.deadline(&self.limits));
        own.map_or(limit, |deadline| deadline.min(limit))
    }

    /// Ends a connect that has succeeded. Returns the connection if its caller keeps it.
    pub(super) fn connected(
        &mut self,
        now: Instant,
        ticket: Ticket,
        conn: C,
        fx: &mut Effects<C, W>,
    ) -> Option<C> {
        let by_host = self.end_connect(ticket);
        self.totals.connects += 1;
        if ticket.version == self.version {
            self.trouble.failures = 0;
            self.trouble.retry_at = None;
        }
        let slot = &mut self.slots[ticket.slot];
        (slot.since, slot.made) = (now, now);
        slot.limit(&self.limits);
        let kept = match self.unfit(ticket.version) {
            Some(why) => {
                self.close(ticket, conn, why, fx);
                None
            }
            None if by_host => {
                self.offer(now, ticket, conn, fx);
                None
            }
            None => {
                self.slots[ticket.slot].state = State::InUse;
                self.counts.in_use += 1;
                self.totals.handed_out += 1;
                Some(conn)
            }
        };
        self.serve(now, fx);
        self.look_for_disuse(now, fx);
        kept
    }

    /// Ends a connect that has failed. A pause begins, unless one began after the start of this
    /// connect. If that pause is over, a permanent error begins another one. If no caller may wait,
    /// returns the error for the caller of this connect.
    pub(super) fn connect_failed(
        &mut self,
        now: Instant,
        ticket: Ticket,
        error: BoxError,
        is_permanent: bool,
        fx: &mut Effects<C, W>,
    ) -> Option<GetError> {
        let began = self.slots[ticket.slot].since;
        self.end_connect(ticket);
        self.slots.remove(ticket.slot);
        self.totals.connect_failures += 1;
        fx.error = Some(Arc::from(error));
        let mut refused = None;
        if ticket.version == self.version {
            let is_late = self.trouble.failed_at.is_some_and(|failed_at| began < failed_at);
            // A passing error of an older connect says nothing against a permanent one.
            if is_permanent || !is_late || !self.trouble.is_permanent {
                std::mem::swap(&mut self.trouble.last_error, &mut fx.error);
                self.trouble.is_permanent = is_permanent;
            }
            let pauses = self.trouble.retry_at.is_some_and(|retry_at| now < retry_at);
            if !is_late || is_permanent && !pauses {
                let doubled = 1_u32.checked_shl(self.trouble.failures.min(20)).unwrap_or(u32::MAX);
                let pause = self.limits.backoff_initial.saturating_mul(doubled);
                let pause = pause.min(self.limits.backoff_max);
                let pause = shortened(pause, 2, self.random.f64()).max(LEAST_PAUSE);
                self.trouble.failures = self.trouble.failures.saturating_add(1);
                self.trouble.failed_at = Some(now);
                self.trouble.retry_at = Some(now + pause);
            }
            refused = self.refuse_waiters(now, fx);
        }
        self.serve(now, fx);
        self.look_for_disuse(now, fx);
        refused
    }

    /// Ends a connect that its caller did not start. The next waiter may connect.
    pub(super) fn connect_abandoned(
        &mut self,
        now: Instant,
        ticket: Ticket,
        fx: &mut Effects<C, W>,
    ) {
        self.end_connect(ticket);
        self.slots.remove(ticket.slot);
        self.serve(now, fx);
        self.look_for_disuse(now, fx);
    }

    /// Returns true if the host made the connect.
    fn end_connect(&mut self, ticket: Ticket) -> bool {
        let State::Connecting { by_host } = self.slots[ticket.slot].state else {
            unreachable!("a connect ends once");
        };
        if by_host && ticket.version == self.version {
            self.host_connects -= 1;
        }
        self.count(ticket.version).connecting -= 1;
        by_host
    }
}
