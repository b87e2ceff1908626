//! Maintenance: work that is due at certain times, changes by operators, and reports for them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Counts, Effects, Grant, Slot, Stack, State, Ticket};
use crate::pool::config::Limits;
use crate::pool::manage::Version;
use crate::pool::status::{BackendState, BackendStatus, Discard, Leaving};
use crate::sync::mutant::mutant;
use crate::sys::clock::Instant;

/// Shortest time until a timer. Timers that follow each other closely become one. If the host is late, the
/// stack adds one timer in this time at most.
const LEAST_DELAY: Duration = Duration::from_millis(1);

/// Shortest time between two reports that a backend is unused. A caller that keeps a `Backend` also
/// keeps the backend.
const LEAST_REPORT_DELAY: Duration = Duration::from_secs(1);

/// Work that is due at certain times.
impl<C, W> Stack<C, W> {
    /// Does what has become due: expires waiters without a thread, closes idle connections, ends a pause
    /// between connects, and reports a backend that is not used. A call too many does no harm.
    pub(in crate::pool) fn due(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        while let Some(waiter) = self.waiters.pop_expired(now) {
            let late = self.time_out(now, &waiter.ask);
            fx.grants.push((waiter, Grant::Refused(late)));
        }
        self.reap(now, fx);
        self.serve(now, fx);
        if self.is_unused(now) {
            fx.unused = true;
            self.reported_unused = Some(now);
        }
        self.rearm(now, fx);
    }

    /// Closes idle connections past their age, and the coldest of those that were idle for too long.
    fn reap(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        let mut n = 0;
        while let Some(&ticket) = self.idle.get(n) {
            let slot = &mut self.slots[ticket.slot];
            if !slot.is_expired(now) {
                n += 1;
                continue;
            }
            let conn = slot.take(now);
            self.idle.remove(n);
            self.close(ticket, conn, Discard::TooOld, fx);
        }
        while self.idle.len() > self.limits.min_idle
            && let Some(coldest) = self.idle.front()
            && self.slots[coldest.slot].idle_until().is_some_and(|until| until <= now)
        {
            self.close_coldest(Discard::Idle, fx);
        }
    }

    /// Begins to check all idle connections. Returns false if a thread checks them. That thread begins
    /// again, because a connection may have broken after its check.
    pub(in crate::pool) fn begin_check(&mut self) -> bool {
        let checks = self.unchecked.is_some();
        self.unchecked =
            mutant!(Some(usize::MAX), CheckOnce => self.unchecked.or(Some(usize::MAX)));
        !checks
    }

    /// Takes the hottest idle connection that was not checked. `None`: the check ends.
    pub(in crate::pool) fn take_unchecked(&mut self) -> Option<(C, Ticket)> {
        // Idle connections beyond this place were checked, or returned after the check began.
        self.unchecked = self.unchecked?.min(self.idle.len()).checked_sub(1);
        let ticket = self.idle.remove(self.unchecked?)?;
        let slot = &mut self.slots[ticket.slot];
        let conn = slot.take(slot.since);
        slot.state = State::Checked;
        self.checked = 1;
        self.counts.in_use += 1;
        Some((conn, ticket))
    }

    /// Returns true if no caller has used the backend for long, and it has no settings that would be
    /// lost with it.
    pub(in crate::pool) fn is_unused(&self, now: Instant) -> bool {
        self.unused_from().is_some_and(|from| from <= now)
    }

    /// Time from which the backend is unused, if no caller uses it until then.
    fn unused_from(&self) -> Option<Instant> {
        // A backend of the first version has no connections of old ones.
        let may_vanish = self.state == BackendState::Open
            && self.version == Version::default()
            && !self.own_limits
            && self.counts == Counts::default()
            && self.waiters.is_empty();
        self.last_used.checked_add(self.limits.unused_after).filter(|_| may_vanish)
    }

    /// Time of the next report that the backend is unused.
    fn unused_at(&self) -> Option<Instant> {
        let from = self.unused_from()?;
        let reported = self.reported_unused.filter(|reported| *reported > self.last_used);
        let pause = self.limits.unused_after.max(LEAST_REPORT_DELAY);
        reported.map_or(Some(from), |reported| reported.checked_add(pause))
    }

    /// Asks the host for a timer at the time from which the backend is unused. A backend in use has
    /// no such timer.
    pub(super) fn look_for_disuse(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        if let Some(at) = self.unused_at() {
            self.rearm_for(now, Some(at), fx);
        }
    }

    /// Does [`rearm`](Self::rearm) if no timer comes before `at`.
    pub(super) fn rearm_for(&mut self, now: Instant, at: Option<Instant>, fx: &mut Effects<C, W>) {
        let earlier = |armed| armed <= now || at.is_some_and(|at| at < armed);
        if self.armed.last().is_none_or(|&armed| earlier(armed)) {
            self.rearm(now, fx);
        }
    }

    /// Asks the host for the next call of [`due`](Self::due), if no timer comes early enough.
    pub(super) fn rearm(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        let Some(next) = self.next_due(now) else { return };
        // A timer whose time has passed may be lost, so the stack does not rely on it.
        while self.armed.pop_if(|armed| *armed <= now).is_some() {}
        let at = next.max(now + LEAST_DELAY);
        if self.armed.last().is_none_or(|armed| at < *armed) {
            self.armed.push(at);
            fx.arm = Some(at);
        }
    }

    /// Forgets a timer that has run, or that the host has dropped.
    pub(in crate::pool) fn disarm(&mut self, at: Instant) {
        // The earliest timer is the last element, and mostly the one that ran.
        if let Some(n) = self.armed.iter().rposition(|armed| *armed == at) {
            self.armed.remove(n);
        }
    }

    fn next_due(&self, now: Instant) -> Option<Instant> {
        let slot = |ticket: &Ticket| &self.slots[ticket.slot];
        let wants =
            self.state == BackendState::Open && (!self.waiters.is_empty() || self.wants_more());
        let retry = self.trouble.retry_at.filter(|retry_at| wants && *retry_at > now);
        let coldest = self.idle.front().filter(|_| self.idle.len() > self.limits.min_idle);
        let idle = coldest.and_then(|ticket| slot(ticket).idle_until());
        let old = self.idle.iter().filter_map(|ticket| slot(ticket).expires).min();
        [self.waiters.next_expiry(), retry, idle, old, self.unused_at()].into_iter().flatten().min()
    }
}

/// Changes and reports for operators.
impl<C, W> Stack<C, W> {
    pub(in crate::pool) const fn state(&self) -> BackendState {
        self.state
    }

    pub(in crate::pool) const fn version(&self) -> Version {
        self.version
    }

    /// Changes the state. No change leads out of `Closed`.
    pub(in crate::pool) fn set_state(
        &mut self,
        now: Instant,
        state: BackendState,
        fx: &mut Effects<C, W>,
    ) {
        if self.state == BackendState::Closed {
            return;
        }
        self.state = state;
        // Callers of `pause` also check the state.
        fx.quiet = self.awaiting_quiet > 0;
        if state == BackendState::Open {
            self.last_used = now;
            self.trouble.retry_at = None;
            self.serve(now, fx);
            self.rearm(now, fx);
            return;
        }
        self.close_idle(0, state.discard(), fx);
        self.refuse_waiters(now, fx);
    }

    /// Makes the next version. If another caller was quicker, returns the present version as an error.
    pub(in crate::pool) fn fail_over(
        &mut self,
        now: Instant,
        from: Version,
        fx: &mut Effects<C, W>,
    ) -> Result<Version, Version> {
        if self.version != from || self.state == BackendState::Closed {
            return Err(self.version);
        }
        self.close_idle(0, Discard::FailedOver, fx);
        let Counts { in_use, connecting } = std::mem::take(&mut self.counts);
        self.left.in_use += in_use;
        self.left.connecting += connecting;
        self.version = from.next();
        self.host_connects = 0;
        fx.error = std::mem::take(&mut self.trouble).last_error;
        self.totals.failed_over += 1;
        self.serve(now, fx);
        self.rearm(now, fx);
        Ok(self.version)
    }

    /// Changes the limits. `own`: they are set for this backend alone.
    pub(in crate::pool) fn set_limits(
        &mut self,
        now: Instant,
        limits: Limits,
        own: bool,
        fx: &mut Effects<C, W>,
    ) {
        self.own_limits |= own;
        self.limits = limits;
        self.slots.iter_mut().for_each(|(_, slot)| slot.limit(&self.limits));
        let used = self.counts.in_use + self.counts.connecting;
        self.close_idle(self.limits.max.saturating_sub(used), Discard::Resized, fx);
        self.serve(now, fx);
        self.rearm(now, fx);
    }

    pub(in crate::pool) const fn has_own_limits(&self) -> bool {
        self.own_limits
    }

    /// Closes the coldest idle connections until `keep` are left.
    fn close_idle(&mut self, keep: usize, why: Discard, fx: &mut Effects<C, W>) {
        while self.idle.len() > keep {
            self.close_coldest(why, fx);
        }
    }

    pub(super) fn close_coldest(&mut self, why: Discard, fx: &mut Effects<C, W>) {
        let Some(ticket) = self.idle.pop_front() else { return };
        let slot = &mut self.slots[ticket.slot];
        let conn = slot.take(slot.since);
        self.close(ticket, conn, why, fx);
    }

    /// Counts a caller that begins or ends to wait until no connection is in use.
    pub(in crate::pool) const fn await_quiet(&mut self, begins: bool) {
        if begins {
            self.awaiting_quiet += 1;
        } else {
            self.awaiting_quiet -= 1;
        }
    }

    /// Returns true if no connection of any version is in use.
    pub(in crate::pool) fn is_quiet(&self) -> bool {
        self.counts.in_use + self.left.in_use == 0
    }

    pub(super) fn look_for_quiet(&self, fx: &mut Effects<C, W>) {
        if mutant!(self.awaiting_quiet > 0, QuietUntold => false) && self.is_quiet() {
            fx.quiet = true;
        }
    }

    /// Connections in use.
    pub(in crate::pool) fn held(&self) -> impl Iterator<Item = &Slot<C>> {
        let slots = self.slots.iter().map(|(_, slot)| slot);
        slots.filter(|slot| matches!(slot.state, State::InUse))
    }

    pub(in crate::pool) fn status<K>(&self, key: K) -> BackendStatus<K> {
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
            leaving: self.leaving(),
            totals: self.totals,
        }
    }

    /// Connections of each old version.
    fn leaving(&self) -> Vec<Leaving> {
        let mut leaving = BTreeMap::new();
        if self.left != Counts::default() {
            for (_, slot) in self.slots.iter().filter(|(_, slot)| slot.version != self.version) {
                let version = slot.version;
                let none = Leaving { version, in_use: 0, connecting: 0 };
                let left = leaving.entry(version).or_insert(none);
                match slot.state {
                    State::Connecting { .. } => left.connecting += 1,
                    State::Idle(_) | State::Checked | State::InUse => left.in_use += 1,
                }
            }
        }
        leaving.into_values().collect()
    }
}
