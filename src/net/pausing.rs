//! Pauses of reading, and the delivery of input that was kept during a pause.

use std::mem;
use std::sync::atomic::Ordering;

use super::close::CloseReason;
use super::phase::Phase;
use super::read_buf::Outcome;
use super::receive::{Call, Round, received};
use super::recv_state::{Ending, Next, Recv, Stage};
use crate::stats::Counter;
use crate::sys::clock;

impl Round<'_> {
    /// Notes if the connection is read. Events of a paused connection come here too, so only the change
    /// is counted.
    pub(super) fn set_paused(&self, recv: &mut Recv, paused: bool) {
        if mem::replace(&mut recv.paused, paused) != paused {
            self.conn.group.usage().paused.change(paused);
            let counter = if paused { Counter::ReadsPaused } else { Counter::ReadsResumed };
            self.conn.count(counter, 1);
        }
    }

    /// Notes that the user has paused a connection that has no input.
    pub(super) fn note_pause(&self, recv: &mut Recv, next: Next) {
        if next == Next::Rest && self.conn.is_paused() && recv.stage == Stage::Open {
            self.set_paused(recv, true);
        }
    }

    /// Ends a pause with the connection.
    pub(super) fn forget_pause(&self, recv: &mut Recv) {
        if mem::take(&mut recv.paused) {
            self.conn.group.usage().paused.change(false);
        }
    }

    /// Handles [`RESUME`]: the backlog is low again.
    pub(super) fn room_again(&self, recv: &mut Recv) {
        recv.full = false;
        if recv.paused {
            self.set_paused(recv, self.conn.is_paused());
            self.renew_deadlines(recv);
        }
        self.drain_if_late(recv);
        let drained = || self.conn.protocol().drained(self.connection);
        if self.conn.group.guard("drained", drained).is_none() {
            recv.ending = Some(Ending::Close(CloseReason::Panic));
        }
    }

    /// Handles [`UNPAUSED`]: the user has resumed reading. If the backlog is full, the pause goes on.
    pub(super) fn unpaused(&mut self, recv: &mut Recv) {
        if !self.is_full(recv) {
            let was_paused = self.conn.was_paused.swap(false, Ordering::Relaxed);
            if recv.paused || was_paused {
                self.set_paused(recv, false);
                self.renew_deadlines(recv);
            }
        }
        self.drain_if_late(recv);
        if recv.buf.is_empty() || !self.delivers(recv) {
            return;
        }
        if recv.ended {
            // No more is received, so the bytes that were kept come now.
            self.deliver_again(recv, received);
        } else {
            recv.again = true;
        }
    }

    /// Lets the deadlines of the input begin anew after a pause, in which the peer was not heard.
    pub(super) fn renew_deadlines(&self, recv: &mut Recv) {
        let now = clock::now();
        self.renew_silence(recv, now);
        if recv.silent_until.is_none() {
            self.arm_idle(recv, now);
        }
        self.time_frame(recv, true);
    }

    /// Returns true if the protocol gets input: a callback, or the user, has not closed the connection.
    pub(super) fn delivers(&self, recv: &Recv) -> bool {
        recv.stage == Stage::Open && self.conn.phase() < Phase::Closing
    }

    /// Handles [`NOTIFIED`].
    pub(super) fn notified(&mut self, recv: &mut Recv) {
        let outcome =
            self.deliver_again(recv, |handler, conn, input| handler.notified(conn, input));
        let breaks = matches!(recv.ending, Some(Ending::Close(_) | Ending::Abort(_)));
        let goes_on = self.delivers(recv) && !breaks && !self.conn.is_paused();
        // The rest of the bytes that the callback has read is for `received`.
        if outcome.has_read && outcome.left > 0 && goes_on {
            self.deliver_again(recv, received);
        }
    }

    /// Calls the protocol with the bytes that were kept. Consumed ones count as received.
    pub(super) fn deliver_again(&mut self, recv: &mut Recv, call: Call) -> Outcome {
        self.timed = true;
        let outcome = self.deliver(recv, None, call);
        self.received += outcome.all_consumed();
        outcome
    }
}
