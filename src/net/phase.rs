//! [`Phase`]: how far a connection is on its way to the end, and the reason of the close.

use std::sync::Arc;

use super::close::CloseReason;
use super::conn::Conn;
use crate::sync::mutant::mutant;
use crate::sync::runner::Marks;
use crate::sync::shim::atomic::Ordering;
use crate::sync::shim::lock;

/// Part of a connection's state that all threads may read. The receiving side owns the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Connecting, its layers are not ready, or no event has been handled yet.
    Opening,
    Open,
    /// Half-closed by the user: no new send begins. Reading goes on.
    HalfClosing,
    /// Half-closed, and all bytes have left. Set by the sending side.
    HalfClosed,
    /// The connection ends: no new send begins.
    Closing,
    /// Nothing leaves any more: all bytes have left, or the socket has failed. Set by the sending
    /// side.
    Shut,
    Closed,
}

impl Phase {
    const fn from_u8(phase: u8) -> Self {
        match phase {
            0 => Self::Opening,
            1 => Self::Open,
            2 => Self::HalfClosing,
            3 => Self::HalfClosed,
            4 => Self::Closing,
            5 => Self::Shut,
            _ => Self::Closed,
        }
    }

    /// Returns true if a new send may begin.
    pub(super) fn sends(self) -> bool {
        self < Self::HalfClosing
    }

    /// Returns true if nothing leaves any more.
    pub(super) fn is_shut(self) -> bool {
        self == Self::HalfClosed || self >= Self::Shut
    }
}

impl Conn {
    pub(super) fn phase(&self) -> Phase {
        Phase::from_u8(self.phase.load(Ordering::Acquire))
    }

    /// Moves to a later phase. Returns the phase before.
    pub(super) fn advance(&self, to: Phase) -> Phase {
        Phase::from_u8(self.phase.fetch_max(to as u8, Ordering::AcqRel))
    }

    /// Moves to `Closing`, or to `Shut` if all bytes have left already.
    pub(super) fn advance_to_closing(&self) {
        // An error means that the connection is closing already.
        let _ = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, |phase| {
            match Phase::from_u8(phase) {
                Phase::HalfClosed => Some(Phase::Shut as u8),
                phase if phase < Phase::Closing => Some(Phase::Closing as u8),
                _ => None,
            }
        });
    }

    /// Notes that all bytes have left and no later ones will: the phase was `HalfClosing` or `Closing`.
    pub(super) fn advance_to_shut(&self) {
        let _ = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, |phase| {
            match Phase::from_u8(phase) {
                Phase::HalfClosing => Some(Phase::HalfClosed as u8),
                Phase::Closing => Some(Phase::Shut as u8),
                _ => None,
            }
        });
    }

    /// Asks the receiving side to end the connection in the way that `mark` says. If several callers
    /// give a reason, the first one counts.
    pub(super) fn begin_close(&self, reason: CloseReason, mark: Marks) {
        self.note_close(reason);
        self.notify_recv(mark);
    }

    /// Asks the receiving side to end the connection at once in the way that `mark` says, without
    /// its backlog. A callback that waits for `drained` is told.
    pub(super) fn break_off(self: &Arc<Self>, reason: CloseReason, mark: Marks) {
        self.note_close(reason);
        self.notify_recv_and_callback(mark);
    }

    fn note_close(&self, reason: CloseReason) {
        let reason = Box::new(reason);
        let mut noted = lock(&self.reason);
        mutant!(noted.get_or_insert(reason), LastReasonCounts => noted.insert(reason));
        drop(noted);
        self.advance_to_closing();
    }
}
