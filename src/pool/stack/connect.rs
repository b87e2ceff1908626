//! Connects: who may begin one, and what comes of it.

use std::sync::Arc;
use std::time::Instant;

use super::{Effects, Grant, Mode, Stack, Ticket, Version};
use crate::pool::manage::ManageError;
use crate::pool::slots::{Holder, State};
use crate::pool::status::Discard;

/// What comes of a connection that a caller made for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pool) enum Connected {
    /// It is in use by the caller.
    Kept,
    /// Meanwhile the backend was failed over, paused or closed: the caller drops it, and asks again.
    Unwanted(Discard),
}

impl<C, W> Stack<C, W> {
    pub(super) fn may_connect(&self, now: Instant) -> bool {
        // While it is uncertain that the backend is back, one tries.
        let most = if self.trouble.failures == 0 { self.limits.max_connecting } else { 1 };
        self.mode == Mode::Open
            && self.total() < self.limits.max
            && self.counts.connecting < most
            && self.trouble.retry_at.is_none_or(|retry_at| retry_at <= now)
    }

    /// Whether a thread that may wait so long is to make its connection itself.
    ///
    /// With less time than a connect may take, a backend that answers slowly would never be reached.
    pub(super) fn connects_itself(&self, now: Instant, deadline: Option<Instant>) -> bool {
        let enough = now.checked_add(self.limits.connect_timeout);
        self.counts.in_use == 0 && deadline.is_none_or(|deadline| Some(deadline) >= enough)
    }

    /// With a holder the caller connects, without one the host.
    pub(super) fn begin_connect(&mut self, now: Instant, holder: Option<Holder>) -> Ticket {
        let by_host = holder.is_none();
        self.host_connects += usize::from(by_host);
        self.counts.connecting += 1;
        self.slots.connect(self.version, now, by_host, holder)
    }

    /// Lets those connect who wait, and the host for `min_idle`, as far as the limits allow.
    ///
    /// Whoever frees a slot, ends a connect or changes limits calls this.
    pub(super) fn serve(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        while self.host_connects < self.waiters.len() && self.may_connect(now) {
            let patience = self.waiters.first().expect("there are some").patience;
            if patience.has_thread
                && self.connects_itself(now, patience.deadline)
                && let Some(waiter) = self.next_waiter()
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

    /// Whether somebody waits for a connect that may begin, or `min_idle` does, when the host makes so
    /// many. Never, after each call.
    #[cfg(all(any(test, feature = "internal"), not(loom)))]
    pub(in crate::pool) fn could_serve(&self, now: Instant, by_host: usize) -> bool {
        let spare = self.idle.len() + by_host.saturating_sub(self.waiters.len());
        (by_host < self.waiters.len() || spare < self.limits.min_idle) && self.may_connect(now)
    }

    /// Makes connections for `min_idle` after one of them was handed out.
    pub(in crate::pool) fn keep_ahead(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        self.serve(now, fx);
    }

    fn connect_by_host(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        let ticket = self.begin_connect(now, None);
        fx.connect.push((ticket, self.version));
    }

    /// Connections that are idle, or will be when the host has connected and nobody waits any more.
    fn spare(&self) -> usize {
        self.idle.len() + self.host_connects.saturating_sub(self.waiters.len())
    }

    pub(super) fn wants_more(&self) -> bool {
        self.mode == Mode::Open
            && self.spare() < self.limits.min_idle
            && self.total() < self.limits.max
    }

    /// A caller has made a connection.
    pub(in crate::pool) fn connected(
        &mut self,
        now: Instant,
        ticket: Ticket,
        fx: &mut Effects<C, W>,
    ) -> Connected {
        let outcome = match self.made(now, ticket) {
            Some(why) => {
                self.slots.free(ticket);
                self.totals.discarded += 1;
                self.forget_left();
                Connected::Unwanted(why)
            }
            None => {
                self.counts.in_use += 1;
                self.totals.handed_out += 1;
                Connected::Kept
            }
        };
        self.serve(now, fx);
        outcome
    }

    /// The host has made a connection.
    pub(in crate::pool) fn connected_by_host(
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

    /// Ends a connect; `Some`: what it made is not wanted any more. Counted nowhere after this.
    fn made(&mut self, now: Instant, ticket: Ticket) -> Option<Discard> {
        let version = self.end_connect(ticket);
        self.totals.connects += 1;
        if version != self.version {
            return Some(Discard::FailedOver);
        }
        self.trouble.failures = 0;
        self.trouble.retry_at = None;
        if self.mode != Mode::Open {
            return Some(self.mode.discard());
        }
        if self.total() >= self.limits.max {
            return Some(Discard::Resized);
        }
        let age = self.jittered(self.limits.max_age, JITTER);
        let idle = self.jittered(self.limits.idle_timeout, JITTER);
        let slot = self.slots.at(ticket);
        slot.state = State::Made;
        slot.since = now;
        slot.expires = now.checked_add(age);
        slot.idle_timeout = Some(idle);
        None
    }

    /// A connect came to nothing: a pause begins, unless it belongs to a round that has failed already.
    pub(in crate::pool) fn connect_failed(
        &mut self,
        now: Instant,
        ticket: Ticket,
        error: ManageError,
        fx: &mut Effects<C, W>,
    ) {
        let began = self.slots.look(ticket).since;
        let version = self.end_connect(ticket);
        self.slots.free(ticket);
        self.forget_left();
        self.totals.connect_failures += 1;
        if version == self.version {
            self.trouble.last_error = Some(Arc::from(error));
            if self.trouble.failed_at.is_none_or(|failed_at| began >= failed_at) {
                let doubled = 1_u32.checked_shl(self.trouble.failures.min(20)).unwrap_or(u32::MAX);
                let pause = self.limits.backoff_initial.saturating_mul(doubled);
                let pause = self.jittered(pause.min(self.limits.backoff_max), 2);
                self.trouble.failures = self.trouble.failures.saturating_add(1);
                self.trouble.failed_at = Some(now);
                self.trouble.retry_at = now.checked_add(pause);
            }
        }
        self.serve(now, fx);
    }

    /// Whoever was to connect does not: the next may.
    pub(in crate::pool) fn connect_abandoned(
        &mut self,
        now: Instant,
        ticket: Ticket,
        fx: &mut Effects<C, W>,
    ) {
        self.end_connect(ticket);
        self.slots.free(ticket);
        self.forget_left();
        self.serve(now, fx);
    }

    fn end_connect(&mut self, ticket: Ticket) -> Version {
        let slot = self.slots.look(ticket);
        let version = slot.version;
        debug_assert!(matches!(slot.state, State::Connecting { .. }), "a connect ends once");
        if version == self.version && slot.state == (State::Connecting { by_host: true }) {
            self.host_connects -= 1;
        }
        self.count(version).connecting -= 1;
        version
    }
}

/// Times of life are shorter by up to one part in so many.
const JITTER: u32 = 10;
