//! What happens by itself, in time: deadlines of who has no thread, the end of a pause between
//! connects, the reaping of idle connections, the end of a backend that nobody uses.

use std::time::Instant;

use super::{Effects, Expiry, Grant, Mode, Stack};
use crate::pool::manage::Version;
use crate::pool::status::Discard;

/// The index of deadlines is swept when it has more than this many entries of waiters that have left.
const SWEEP_MIN: usize = 64;

impl<C, W> Stack<C, W> {
    /// The time that was asked for has come. Calls for nothing do no harm.
    pub(in crate::pool) fn due(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        self.armed = self.armed.filter(|armed| *armed > now);
        self.expire(now, fx);
        self.reap(now, fx);
        self.serve(now, fx);
        fx.unused = self.is_unused(now);
        self.rearm(now, fx);
    }

    /// Those without a thread whose deadline has passed.
    fn expire(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        while let Some(Expiry(deadline, id)) = self.expiries.peek().copied()
            && deadline.0 <= now
        {
            self.expiries.pop();
            if let Some(waiter) = self.remove_waiter(id) {
                self.totals.timed_out += 1;
                fx.grants.push((waiter.what, Grant::Expired(self.cause())));
            }
        }
        if self.expiries.len() > 2 * self.threadless + SWEEP_MIN {
            self.expiries.retain(|Expiry(_, id)| self.waiters.contains(*id));
        }
    }

    /// Idle ones that are past their age, and the coldest of those that were idle for too long.
    fn reap(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        let mut n = 0;
        while let Some(&ticket) = self.idle.get(n) {
            let slot = self.slots.at(ticket);
            if slot.expires.is_none_or(|expires| expires > now) {
                n += 1;
                continue;
            }
            let conn = slot.conn.take().expect("an idle slot holds a connection");
            self.idle.remove(n);
            self.close(ticket, conn, Discard::TooOld, fx);
        }
        while self.idle.len() > self.limits.min_idle
            && let Some(&coldest) = self.idle.front()
            && self.slots.look(coldest).idle_until().is_some_and(|until| until <= now)
        {
            self.close_coldest(Discard::Idle, fx);
        }
    }

    /// Nobody has asked for long, nothing is in use, and nothing would be forgotten with it.
    pub(in crate::pool) fn is_unused(&self, now: Instant) -> bool {
        self.may_vanish()
            && self.counts == super::Counts::default()
            && self.leaving.is_empty()
            && self.waiters.is_empty()
            && self.unused_at().is_some_and(|at| at <= now)
    }

    fn may_vanish(&self) -> bool {
        self.mode == Mode::Open && self.version == Version::FIRST && !self.own_limits
    }

    fn unused_at(&self) -> Option<Instant> {
        self.last_asked.checked_add(self.limits.unused_after)
    }

    /// Asks the host for the next call of [`due`](Self::due), if none comes early enough.
    pub(super) fn rearm(&mut self, now: Instant, fx: &mut Effects<C, W>) {
        let Some(next) = self.next_due(now) else { return };
        if self.armed.is_none_or(|armed| next < armed) {
            self.armed = Some(next);
            fx.arm = Some(next);
        }
    }

    fn next_due(&self, now: Instant) -> Option<Instant> {
        let expiry = self.expiries.peek().map(|Expiry(deadline, _)| deadline.0);
        let wants = self.mode == Mode::Open && (!self.waiters.is_empty() || self.wants_more());
        let retry = self.trouble.retry_at.filter(|retry_at| wants && *retry_at > now);
        let coldest = self.idle.front().filter(|_| self.idle.len() > self.limits.min_idle);
        let idle = coldest.and_then(|&ticket| self.slots.look(ticket).idle_until());
        let old = self.idle.iter().filter_map(|&ticket| self.slots.look(ticket).expires).min();
        // Looked at again after as long, when it was in use then.
        let unused = self.unused_at().filter(|_| self.may_vanish()).map(|at| {
            let again = now.checked_add(self.limits.unused_after).unwrap_or(at);
            if at > now { at } else { again }
        });
        [expiry, retry, idle, old, unused].into_iter().flatten().min()
    }
}
