//! [`Stack`]: the connections of one backend and who waits for them, as a pure state machine.
//!
//! ```text
//!                checkout                          checkin
//!   idle ─────────────────────▶ in use ─────────────────────────▶ idle, on top
//!     ▲                           ▲ │ ▲                             or to the first who waits
//!     │ from the host             │ │ └─ to the first who waits
//!     └────────── connecting ─────┘ └─ discard, of an old version, too old, too many: closed,
//!                  ▲       │           and the first who waits may connect
//!      a slot is   │       └─ failed: a pause, then the next try
//!      free ───────┘
//! ```
//!
//! It knows no lock, no thread and no clock: each call gets the time, changes the state, and says in
//! [`Effects`] what is to be done outside the lock that it stands under. `C` is the connection, `W` how
//! to reach somebody who waits. Its rules:
//!
//! * Last in, first out for connections, first in, first out for who waits. While somebody waits no
//!   connection is idle and nobody else gets one: what comes back goes to the first of them.
//! * `max` bounds idle, used and connecting ones of the current version together. The slot of a
//!   connect counts from before it begins.
//! * Who waits on a thread of its own makes the connection itself, if it has time for a whole connect
//!   and none is in use that could come back earlier. Otherwise the host makes it, and whoever is
//!   first then gets what comes first.
//! * What is true after each call: nobody waits who could be served.

use std::collections::{BinaryHeap, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::Cause;
use super::limits::Limits;
use super::manage::Version;
use super::slots::{Holder, Slots, Ticket};
use super::status::{BackendState, BackendStatus, Discard, Leaving, Totals};
use super::waiters::{WaiterId, Waiters};
use crate::sync::mutant::mutant;

mod care;
mod connect;
mod modes;
mod step;
#[cfg(all(test, not(loom)))]
mod tests;

pub(super) use connect::Connected;
pub(super) use modes::Mode;
pub(super) use step::{
    Ask, Checkout, Effects, Fitness, Grant, Patience, Ready, Refused, Turn, Waiter,
};

/// The connections of one backend.
#[derive(Debug)]
pub(super) struct Stack<C, W> {
    limits: Limits,
    /// The limits are those of this backend alone.
    own_limits: bool,
    mode: Mode,
    version: Version,
    slots: Slots<C>,
    /// The coldest first.
    idle: VecDeque<Ticket>,
    counts: Counts,
    /// Of old versions.
    leaving: Vec<(Version, Counts)>,
    waiters: Waiters<Waiter<W>>,
    /// When waiters give up who have no thread to do it; also of some that have left.
    expiries: BinaryHeap<Expiry>,
    /// How many wait without a thread.
    threadless: usize,
    /// Of the connects, those of the host for who waits or for `min_idle`.
    host_connects: usize,
    trouble: Trouble,
    /// When the host is to call `due`, as far as it knows.
    armed: Option<Instant>,
    last_asked: Instant,
    /// Callers of `pause` and `close` wait until nothing is in use.
    awaiting_quiet: usize,
    totals: Totals,
    /// State of the random numbers.
    random: u64,
}

/// Of one version.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Counts {
    pub(super) in_use: usize,
    pub(super) connecting: usize,
}

/// What is wrong with connects.
#[derive(Debug, Default)]
struct Trouble {
    /// In a row.
    failures: u32,
    /// When the last pause began.
    failed_at: Option<Instant>,
    /// Nobody connects before.
    retry_at: Option<Instant>,
    last_error: Option<Arc<dyn Error + Send + Sync>>,
}

/// The earliest is the greatest, as a heap wants it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Expiry(std::cmp::Reverse<Instant>, WaiterId);

impl<C, W> Stack<C, W> {
    pub(super) fn new(limits: Limits, random: u64, now: Instant) -> Self {
        Self {
            limits,
            own_limits: false,
            mode: Mode::Open,
            version: Version::FIRST,
            slots: Slots::new(),
            idle: VecDeque::new(),
            counts: Counts::default(),
            leaving: Vec::new(),
            waiters: Waiters::new(),
            expiries: BinaryHeap::new(),
            threadless: 0,
            host_connects: 0,
            trouble: Trouble::default(),
            armed: None,
            last_asked: now,
            awaiting_quiet: 0,
            totals: Totals::default(),
            random: random | 1,
        }
    }

    /// Asks for a connection.
    #[inline]
    pub(super) fn checkout(&mut self, now: Instant, ask: &Ask<'_>) -> Checkout<C> {
        self.last_asked = now;
        match self.mode {
            Mode::Open => {}
            Mode::Paused => return Checkout::Wait,
            Mode::Disabled => return Checkout::Refused(Refused::Disabled),
            Mode::Closed => return Checkout::Refused(Refused::Closed),
        }
        if ask.turn == Turn::First && !self.waiters.is_empty() {
            return Checkout::Wait;
        }
        if let Some(ready) = self.pop_idle(now, ask.holder) {
            return Checkout::Ready(ready);
        }
        if !self.may_connect(now) || !self.connects_itself(now, ask.deadline(&self.limits)) {
            return Checkout::Wait;
        }
        let ticket = self.begin_connect(now, Some(ask.holder.clone()));
        Checkout::Connect(ticket, self.version)
    }

    /// An idle connection, if there is one and nobody else waits for it.
    pub(super) fn checkout_idle(
        &mut self,
        now: Instant,
        holder: &Holder,
        turn: Turn,
    ) -> Option<Ready<C>> {
        self.last_asked = now;
        if self.mode != Mode::Open || (turn == Turn::First && !self.waiters.is_empty()) {
            return None;
        }
        self.pop_idle(now, holder)
    }

    /// The hottest.
    #[inline]
    fn pop_idle(&mut self, now: Instant, holder: &Holder) -> Option<Ready<C>> {
        let ticket = self.idle.pop_back()?;
        let slot = self.slots.at(ticket);
        let idle_for = now.saturating_duration_since(slot.since);
        let fitness = if slot.expires.is_some_and(|expires| expires <= now) {
            Fitness::TooOld
        } else if idle_for >= self.limits.check_after {
            Fitness::Check
        } else {
            Fitness::Fresh
        };
        let conn = slot.conn.take().expect("an idle slot holds a connection");
        slot.since = now;
        slot.hold(holder);
        self.counts.in_use += 1;
        self.totals.handed_out += 1;
        let more = self.idle.len() < self.limits.min_idle;
        Some(Ready { conn, ticket, version: self.version, fitness, more })
    }

    /// Waits, when there is nothing to be had.
    pub(super) fn wait(
        &mut self,
        now: Instant,
        waiter: Waiter<W>,
        turn: Turn,
        fx: &mut Effects<C, W>,
    ) -> Result<WaiterId, (W, Refused)> {
        let closed = match self.mode {
            Mode::Open | Mode::Paused => None,
            Mode::Disabled => Some(Refused::Disabled),
            Mode::Closed => Some(Refused::Closed),
        };
        if let Some(refused) = closed {
            return Err((waiter.what, refused));
        }
        if turn == Turn::First && self.waiters.len() >= self.limits.max_waiting {
            self.totals.refused += 1;
            return Err((waiter.what, Refused::TooMany(self.limits.max_waiting)));
        }
        let patience = waiter.patience;
        let id = match turn {
            Turn::First => self.waiters.push_back(waiter),
            Turn::Again => self.waiters.push_front(waiter),
        };
        if !patience.has_thread {
            self.threadless += 1;
            if let Some(deadline) = patience.deadline {
                self.expiries.push(Expiry(std::cmp::Reverse(deadline), id));
            }
        }
        self.serve(now, fx);
        self.rearm(now, fx);
        Ok(id)
    }

    /// Leaves, because the deadline has passed: why nothing came. `None`: something did, and is on its
    /// way.
    pub(super) fn leave(&mut self, id: WaiterId) -> Option<Cause> {
        self.remove_waiter(id)?;
        self.totals.timed_out += 1;
        Some(self.cause())
    }

    /// Somebody does not wait, because the deadline has passed already: why there is nothing.
    pub(super) fn expire_now(&mut self) -> Cause {
        self.totals.timed_out += 1;
        self.cause()
    }

    fn remove_waiter(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.waiters.remove(id)?;
        self.threadless -= usize::from(!waiter.patience.has_thread);
        self.waiters.shrink();
        Some(waiter)
    }

    fn next_waiter(&mut self) -> Option<Waiter<W>> {
        let waiter = self.waiters.pop_front()?;
        self.threadless -= usize::from(!waiter.patience.has_thread);
        self.waiters.shrink();
        Some(waiter)
    }

    /// Takes back a connection that is fit for the next.
    #[inline]
    pub(super) fn checkin(
        &mut self,
        now: Instant,
        ticket: Ticket,
        conn: C,
        fx: &mut Effects<C, W>,
    ) {
        let slot = self.slots.at(ticket);
        let (version, expires) = (slot.version, slot.expires);
        self.count(version).in_use -= 1;
        let unfit = if mutant!(version != self.version, OldVersionKept => false) {
            Some(Discard::FailedOver)
        } else if mutant!(self.mode != Mode::Open, PauseHandsOver => false) {
            Some(self.mode.discard())
        } else if self.total() >= self.limits.max {
            Some(Discard::Resized)
        } else if expires.is_some_and(|expires| expires <= now) {
            Some(Discard::TooOld)
        } else {
            None
        };
        match unfit {
            None => self.offer(now, ticket, conn, fx),
            Some(why) => {
                self.close(ticket, conn, why, fx);
                self.serve(now, fx);
            }
        }
        self.look_for_quiet(fx);
    }

    /// A connection that was in use is of no more use, or not ours any more: the caller has it.
    pub(super) fn discard(&mut self, now: Instant, ticket: Ticket, fx: &mut Effects<C, W>) {
        let version = self.slots.at(ticket).version;
        self.count(version).in_use -= 1;
        self.slots.free(ticket);
        self.totals.discarded += 1;
        self.forget_left();
        mutant!(self.serve(now, fx), DeathServesNobody => {});
        self.look_for_quiet(fx);
    }

    /// Gives an uncounted connection of the current version to who waits longest, or keeps it.
    fn offer(&mut self, now: Instant, ticket: Ticket, conn: C, fx: &mut Effects<C, W>) {
        if let Some(waiter) = mutant!(self.next_waiter(), ReturnServesNobody => None) {
            let slot = self.slots.at(ticket);
            slot.since = now;
            slot.hold(&waiter.holder);
            self.counts.in_use += 1;
            self.totals.handed_out += 1;
            self.totals.waited += 1;
            fx.grants.push((waiter.what, Grant::Conn(conn, ticket, self.version)));
            return;
        }
        let slot = self.slots.at(ticket);
        slot.since = now;
        slot.conn = Some(conn);
        let until = slot.idle_until();
        self.idle.push_back(ticket);
        // Who was idle before expires earlier, but for the chance in it.
        if self.armed.is_none_or(|armed| until.is_some_and(|until| until < armed)) {
            self.rearm(now, fx);
        }
    }

    /// Closes an uncounted connection.
    fn close(&mut self, ticket: Ticket, conn: C, why: Discard, fx: &mut Effects<C, W>) {
        let version = self.slots.at(ticket).version;
        self.slots.free(ticket);
        self.totals.discarded += 1;
        fx.close.push((conn, version, why));
        self.forget_left();
    }

    /// How it stands.
    pub(super) fn status<K>(
        &self,
        key: K,
        state: BackendState,
        leaving: Vec<Leaving>,
    ) -> BackendStatus<K> {
        BackendStatus {
            key,
            version: self.version,
            state,
            idle: self.idle.len(),
            in_use: self.counts.in_use,
            connecting: self.counts.connecting,
            max: self.limits.max,
            waiting: self.waiters.len(),
            failures: self.trouble.failures,
            last_error: self.trouble.last_error.clone(),
            leaving,
            totals: self.totals,
        }
    }

    /// What stands in the way of who waits.
    pub(super) fn cause(&self) -> Cause {
        let Counts { in_use, connecting } = self.counts;
        match (&self.trouble.last_error, self.trouble.failures) {
            _ if self.mode == Mode::Paused => Cause::Paused,
            (Some(error), failures @ 1..) if in_use < self.limits.max => {
                Cause::ConnectFails { failures, last_error: Arc::clone(error) }
            }
            _ if connecting > 0 => Cause::Connecting { connecting },
            _ => Cause::AllBusy { in_use, max: self.limits.max },
        }
    }

    /// Connections of the current version, with those that are being made.
    fn total(&self) -> usize {
        self.idle.len() + self.counts.in_use + self.counts.connecting
    }

    fn count(&mut self, version: Version) -> &mut Counts {
        if version == self.version {
            return &mut self.counts;
        }
        let mut leaving = self.leaving.iter_mut();
        let found = leaving.find(|(leaving, _)| *leaving == version);
        &mut found.expect("a version is kept while something of it is").1
    }

    /// Old versions of which nothing is left.
    fn forget_left(&mut self) {
        if !self.leaving.is_empty() {
            self.leaving.retain(|(_, counts)| *counts != Counts::default());
        }
    }

    /// Xorshift: spreads what would otherwise happen at once.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// A little less than that: up to one part in so many.
    fn jittered(&mut self, duration: Duration, part: u32) -> Duration {
        let spread = duration / part;
        let nanos = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX);
        duration - Duration::from_nanos(self.random() % nanos.saturating_add(1).max(1))
    }
}
