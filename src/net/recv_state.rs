//! State of the receiving side of a connection.

use std::mem;
use std::time::Duration;

use super::close::CloseReason;
use super::conn::{NOTIFIED, RESUME, UNPAUSED};
use super::handler::Handler;
use super::read_buf::ReadBuf;
use super::route::Route;
use crate::runtime::source::DRAIN;
use crate::runtime::{Excuse, Origin};
use crate::sync::runner::Marks;
use crate::sys::clock::{self, Instant};

/// State that only one receiver at a time may touch.
#[derive(Default)]
pub(super) struct Recv {
    pub(super) stage: Stage,
    /// Number of times that the size of a receive in pieces was doubled.
    pub(super) doublings: u8,
    /// Set when the socket is hung up or in error. Reads then continue to the end, however many
    /// bytes a read returns.
    pub(super) hung_up: bool,
    /// Set when the end of the stream was read.
    pub(super) ended: bool,
    /// End that takes effect once the received bytes have been released.
    pub(super) ending: Option<Ending>,
    /// Marks that wait for `opened`.
    pub(super) later: Marks,
    /// Set until `opened` is called, for an outgoing connection.
    pub(super) unopened: bool,
    /// Further addresses of the server, until an outgoing connection is established.
    pub(super) route: Option<Box<Route>>,
    /// Time by which the layers must be ready.
    pub(super) handshake_until: Option<Instant>,
    /// Set if the next step of the handshake has been left to the background once.
    pub(super) deferred: bool,
    /// Set if the layers can decode more although nothing arrives.
    pub(super) undecoded: bool,
    /// Set while a layer keeps the beginning of a record.
    pub(super) partial: bool,
    /// Set if the unconsumed bytes are to be delivered again, although none have arrived.
    pub(super) again: bool,
    /// Set when the drain came while the connection was paused, or held and not yet established.
    pub(super) drain_later: bool,
    /// Set when the drain will end the connection with its last hold. Until then it is read.
    pub(super) awaiting: bool,
    /// Set while the connection is counted as paused.
    pub(super) paused: bool,
    /// Set from the time at which the backlog stopped the reads until it is low.
    pub(super) full: bool,
    pub(super) closing: bool,
    /// Set if input had arrived when the drain came.
    pub(super) busy: bool,
    /// Set when all input that had arrived before the drain has been received.
    pub(super) dry: bool,
    /// Number of bytes of that input that are still to be received; `None` until a turn of the drain has
    /// left some in the socket.
    pub(super) drain_left: Option<usize>,
    /// Set if no input had arrived and no output waited when the drain came.
    pub(super) idle: bool,
    /// Time by which a peer that has not sent anything must send its first bytes.
    pub(super) silent_until: Option<Instant>,
    /// Set when the peer has sent its first bytes; those of a handshake do not count when it is over.
    pub(super) has_spoken: bool,
    /// Time of the last receive.
    pub(super) heard_at: Option<Instant>,
    /// Time by which the unconsumed bytes must be a whole frame.
    pub(super) frame_until: Option<Instant>,
    /// Set when that time has passed. Unless the bytes that have arrived complete the frame, the
    /// connection ends.
    pub(super) frame_late: bool,
    /// Excuse of the peer for late first bytes, a late handshake or a late frame.
    pub(super) frame_excuse: Excuse,
    /// Set while the protocol has no room for the unconsumed bytes. Nothing is received before
    /// [`RESUME`] or this time.
    pub(super) aside_until: Option<Instant>,
    /// Time at which a large empty buffer is freed.
    pub(super) shrink_at: Option<Instant>,
    pub(super) buf: ReadBuf,
    pub(super) handler: Option<Box<dyn Handler>>,
    /// Reason for which the connection closes. On the heap, as few connections close at a time.
    pub(super) reason: Option<Box<CloseReason>>,
}

/// State of the receiving side; see the picture in [`super`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Outgoing connection that is not established, with the time by which it must be.
    Connecting {
        until: Option<Instant>,
    },
    /// No event has been handled yet.
    #[default]
    New,
    /// The layers are not ready.
    Handshaking,
    Open,
    /// No longer read. The connection closes when its held requests have ended.
    Finishing,
    /// No new sends. The connection waits for its backlog to leave.
    Flushing,
    /// The sending direction is shut down. The rest of the peer's bytes is read and dropped.
    Lingering {
        until: Instant,
        left: usize,
    },
    Closed,
}

impl Stage {
    pub(super) const fn is_connecting(self) -> bool {
        matches!(self, Self::Connecting { .. })
    }

    /// Returns true if the connection is read.
    pub(super) const fn reads(self) -> bool {
        matches!(self, Self::Open | Self::Handshaking)
    }

    /// Returns the time at which this stage must be over, if it has one.
    pub(super) const fn deadline(self) -> Option<Instant> {
        match self {
            Self::Lingering { until, .. } | Self::Connecting { until: Some(until) } => Some(until),
            _ => None,
        }
    }
}

/// End of a connection that takes effect once the received bytes have been released.
#[derive(Debug)]
pub(super) enum Ending {
    EndOfStream,
    Close(CloseReason),
    Abort(CloseReason),
}

/// Result of one turn of a [`Round`](super::receive::Round).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// No work until a mark comes.
    Rest,
    /// More work is left, but other connections have their turn first.
    Requeue,
    /// Reading stops. [`RESUME`] will come if the backlog is high or the protocol has no room, and
    /// [`UNPAUSED`] if the user has paused.
    Paused,
    /// The connection is about to end, but the received bytes must be released first. These marks
    /// are left for afterwards.
    Release(Marks),
}

impl Recv {
    /// State of an accepted connection.
    pub(super) fn accepted(
        silent_until: Option<Instant>,
        handshake_until: Option<Instant>,
    ) -> Self {
        Self { silent_until, handshake_until, ..Self::default() }
    }

    /// State of an outgoing connection.
    pub(super) fn outgoing(until: Option<Instant>, route: Route) -> Self {
        let route = Some(Box::new(route));
        Self { stage: Stage::Connecting { until }, unopened: true, route, ..Self::default() }
    }

    pub(super) const fn origin(&self) -> Origin {
        match self.stage {
            Stage::Connecting { .. } => Origin::Outgoing,
            _ => Origin::Accepted,
        }
    }

    /// Returns true if bytes that arrive only have to be received and delivered.
    pub(super) const fn is_plain(&self) -> bool {
        let flags = self.hung_up | self.ended | self.frame_late;
        matches!(self.stage, Stage::Open)
            && !flags
            && self.later.is_empty()
            && self.ending.is_none()
            && self.aside_until.is_none()
            && self.handshake_until.is_none()
    }

    /// Returns the next step if no receive is allowed: the connection ends, or the protocol has no
    /// room.
    pub(super) const fn stops(&self) -> Option<Next> {
        if self.ending.is_some() {
            Some(Next::Rest)
        } else if self.aside_until.is_some() {
            Some(Next::Paused)
        } else {
            None
        }
    }

    /// Returns true if the protocol still has no room for the input that was set aside, as far as this
    /// side knows. In a drain it may take the input.
    pub(super) fn is_aside(&self, marks: Marks) -> bool {
        !marks.has(RESUME | DRAIN) && self.aside_until.is_some_and(|until| clock::now() < until)
    }

    /// Returns the marks to handle now. Those for the protocol wait for `opened`.
    pub(super) fn due(&mut self, marks: Marks) -> Marks {
        if self.handler.is_some() {
            return marks | mem::take(&mut self.later);
        }
        let for_protocol = NOTIFIED | RESUME | UNPAUSED;
        self.later |= marks.only(for_protocol);
        marks.without(for_protocol)
    }

    /// Returns the size of a receive in pieces.
    pub(super) const fn piece(&self) -> usize {
        PIECE << self.doublings
    }

    /// Notes how long a receive took. `full` if it was of [`piece`](Self::piece) bytes. A receive is
    /// never larger than the buffer of the worker.
    pub(super) fn note_piece(&mut self, took: Duration, full: bool, buffer: usize) {
        if took > PIECE_TIME {
            self.doublings = self.doublings.saturating_sub(1);
        } else if full && took <= PIECE_TIME / 2 && self.piece() < buffer {
            self.doublings += 1;
        }
    }
}

/// Least size of a receive if the turn must end in time. It doubles after a quick receive of that size, and
/// is halved after a slow one of any size.
pub(super) const PIECE: usize = 8 << 10;
/// A receive and its delivery are slow if they take longer, and quick if they take at most half of it.
const PIECE_TIME: Duration = Duration::from_micros(250);
