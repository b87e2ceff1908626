//! What an operator does to a backend: pause, resume, disable, fail over, resize, close.

use std::time::Instant;

use super::{Counts, Effects, Grant, Refused, Stack, Trouble, Version};
use crate::pool::limits::Limits;
use crate::pool::slots::Slot;
use crate::pool::status::Discard;
use crate::sync::mutant::mutant;

/// Whether connections are to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pool) enum Mode {
    Open,
    /// Who asks waits.
    Paused,
    /// Who asks is refused.
    Disabled,
    /// For good.
    Closed,
}

impl Mode {
    /// Why a connection that comes back is closed.
    pub(super) const fn discard(self) -> Discard {
        match self {
            Self::Open | Self::Paused => Discard::Paused,
            Self::Disabled => Discard::Disabled,
            Self::Closed => Discard::Closed,
        }
    }
}

impl<C, W> Stack<C, W> {
    pub(in crate::pool) const fn mode(&self) -> Mode {
        self.mode
    }

    pub(in crate::pool) const fn version(&self) -> Version {
        self.version
    }

    pub(in crate::pool) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// No change leads out of `Closed`.
    pub(in crate::pool) fn set_mode(&mut self, now: Instant, mode: Mode, fx: &mut Effects<C, W>) {
        if self.mode == Mode::Closed {
            return;
        }
        self.mode = mode;
        // Who waits in a pause looks at the mode.
        fx.quiet = self.awaiting_quiet > 0;
        let refused = match mode {
            Mode::Open => {
                self.last_asked = now;
                self.trouble.retry_at = None;
                self.serve(now, fx);
                self.rearm(now, fx);
                return;
            }
            Mode::Paused => None,
            Mode::Disabled => Some(Refused::Disabled),
            Mode::Closed => Some(Refused::Closed),
        };
        self.close_idle(0, mode.discard(), fx);
        if let Some(refused) = refused {
            while let Some(waiter) = mutant!(self.next_waiter(), CloseForgets => None) {
                fx.grants.push((waiter.what, Grant::Refused(refused)));
            }
        }
    }

    /// The next version, unless somebody was quicker: then the version that it is now.
    pub(in crate::pool) fn fail_over(
        &mut self,
        now: Instant,
        from: Version,
        fx: &mut Effects<C, W>,
    ) -> Result<Version, Version> {
        if self.version != from || self.mode == Mode::Closed {
            return Err(self.version);
        }
        self.close_idle(0, Discard::FailedOver, fx);
        let left = std::mem::take(&mut self.counts);
        self.leaving.push((from, left));
        self.version = from.next();
        self.forget_left();
        self.host_connects = 0;
        self.trouble = Trouble::default();
        self.totals.failed_over += 1;
        self.serve(now, fx);
        self.rearm(now, fx);
        Ok(self.version)
    }

    pub(in crate::pool) fn set_limits(
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

    /// Whether others than [`set_limits`](Self::set_limits) with `own` may change the limits.
    pub(in crate::pool) const fn has_own_limits(&self) -> bool {
        self.own_limits
    }

    /// Closes the coldest until so many are left.
    fn close_idle(&mut self, keep: usize, why: Discard, fx: &mut Effects<C, W>) {
        while self.idle.len() > keep && self.close_coldest(why, fx) {}
    }

    pub(super) fn close_coldest(&mut self, why: Discard, fx: &mut Effects<C, W>) -> bool {
        let Some(ticket) = self.idle.pop_front() else { return false };
        let conn = self.slots.at(ticket).conn.take().expect("an idle slot holds a connection");
        self.close(ticket, conn, why, fx);
        true
    }

    /// Somebody waits until nothing is in use, or gives that up.
    pub(in crate::pool) const fn await_quiet(&mut self, begins: bool) {
        if begins {
            self.awaiting_quiet += 1;
        } else {
            self.awaiting_quiet -= 1;
        }
    }

    /// Nothing is in use, of any version.
    pub(in crate::pool) fn is_quiet(&self) -> bool {
        self.counts.in_use == 0 && self.leaving.iter().all(|(_, counts)| counts.in_use == 0)
    }

    pub(super) fn look_for_quiet(&self, fx: &mut Effects<C, W>) {
        if mutant!(self.awaiting_quiet > 0, QuietUntold => false) && self.is_quiet() {
            fx.quiet = true;
        }
    }

    /// Those in use.
    pub(in crate::pool) fn held(&self) -> impl Iterator<Item = &Slot<C>> {
        self.slots.iter().filter(|slot| slot.is_in_use())
    }

    pub(in crate::pool) fn leaving(&self) -> &[(Version, Counts)] {
        &self.leaving
    }
}
