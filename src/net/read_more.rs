//! [`Input::read_more`](super::Input::read_more): a handler that waits for its peer.

use std::fmt;
use std::io;
use std::mem;
use std::time::Duration;

use super::close::{Close, CloseReason};
use super::conn::{ABORT, AT_ONCE, CLOSE, Conn, HUNG_UP, READABLE, RESET, UNPAUSED};
use super::read_buf::ReadBuf;
use super::receive::Round;
use super::recv_state::{Ending, Recv, Stage};
use crate::runtime::source::{CUT, DRAIN, OVER};
use crate::stall::{Wait, run_as};
use crate::sync::runner::Marks;
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};

/// Reason why [`Input::read_more`](super::Input::read_more) brought no bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReadMoreError {
    /// The peer has finished sending.
    Finished,
    /// The connection ends for this reason: it broke, a limit is reached, or a thread has closed
    /// it. Or a drain begins: then a [held](super::Connection::hold) connection may go on if the
    /// handler returns `Ok`.
    Ending(CloseReason),
    /// The deadline has passed.
    Deadline,
    /// The input is that of a [`Layer`](super::Layer), which must not wait, or a layer
    /// [was started](super::Connection::start_layer) with it: the callback has to return first.
    Unavailable,
}

impl fmt::Display for ReadMoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("read_more: the peer has finished sending"),
            Self::Ending(reason) => write!(f, "read_more: the connection ends: {reason}"),
            Self::Deadline => f.write_str("read_more: no bytes came before the deadline"),
            Self::Unavailable => f.write_str("read_more: no callback may wait with this input"),
        }
    }
}

impl std::error::Error for ReadMoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Ending(reason) => Some(reason),
            Self::Finished | Self::Deadline | Self::Unavailable => None,
        }
    }
}

/// For `?` in a handler. The connection ends for the reason for which no bytes came.
impl From<ReadMoreError> for Close {
    fn from(error: ReadMoreError) -> Self {
        match error {
            ReadMoreError::Finished => Self(CloseReason::ByPeer),
            ReadMoreError::Ending(reason) => Self(reason),
            ReadMoreError::Deadline | ReadMoreError::Unavailable => Self::error(error),
        }
    }
}

/// Source of further bytes for an [`Input`](super::Input).
pub(super) trait ReadMore {
    /// Keeps the unconsumed bytes, of a frame of `needed` bytes. Called before the first read.
    fn keep(&mut self, unconsumed: &[u8], needed: usize);
    /// Drops kept bytes that were consumed.
    fn consume(&mut self, count: usize, needed: usize);
    /// Adds bytes to the kept ones.
    fn read(&mut self, deadline: Instant) -> Result<(), ReadMoreError>;
    /// Returns the kept bytes.
    fn kept(&self) -> &[u8];
}

/// The receiver of a connection, while its handler runs.
pub(super) struct Reader<'r, 'a> {
    pub(super) round: &'r mut Round<'a>,
    pub(super) recv: &'r mut Recv,
}

/// Marks after which the socket is read again. They are put back for the turn that follows.
const AGAIN: Marks = READABLE.or(HUNG_UP).or(UNPAUSED);

/// Marks that end a wait. They stay for the turn that follows.
const OVER_WITH: Marks = AT_ONCE.or(CLOSE).or(DRAIN);

/// Time after which a handler looks at its socket without a mark. If all threads wait in handlers,
/// none polls for events.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl ReadMore for Reader<'_, '_> {
    fn keep(&mut self, unconsumed: &[u8], needed: usize) {
        // The callback has these bytes. If it is `notified`, `Round::notified` delivers the rest.
        self.recv.again = false;
        self.change_buf(|buf, first_size| buf.replace(unconsumed, needed, first_size));
    }

    fn consume(&mut self, count: usize, needed: usize) {
        self.change_buf(|buf, first_size| buf.consume(count, needed, first_size));
    }

    fn read(&mut self, deadline: Instant) -> Result<(), ReadMoreError> {
        let conn = self.round.conn;
        let mut taken = Marks::NONE;
        let mut waited = Duration::ZERO;
        let result = loop {
            // Bytes that come from here on leave the mark again.
            taken |= conn.recv.take(AGAIN);
            if let Some(error) = self.ended() {
                break Err(error);
            }
            let received = if conn.is_paused() {
                self.look_while_paused(taken.has(HUNG_UP))
            } else {
                self.receive()
            };
            match received {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(error) => break Err(error),
            }
            // Bytes that had arrived were read before a drain counts.
            if self.marks().has(DRAIN | OVER) || self.recv.drain_later {
                break Err(ReadMoreError::Ending(CloseReason::Draining));
            }
            let now = clock::now();
            if now >= deadline {
                break Err(ReadMoreError::Deadline);
            }
            let limit = Some((deadline - now).min(LONGEST_SLEEP));
            run_as(Wait::Network, || conn.recv.wait(AGAIN | OVER_WITH, &conn.bell, limit));
            waited += clock::now().duration_since(now);
        };
        self.postpone(waited);
        if self.recv.undecoded {
            // Bytes that the layers keep leave no mark.
            taken |= READABLE;
        }
        conn.recv.put_back(taken);
        result
    }

    fn kept(&self) -> &[u8] {
        self.recv.buf.bytes()
    }
}

impl Reader<'_, '_> {
    /// Changes the connection's own buffer. `change` gets the first size of a buffer too.
    fn change_buf(&mut self, change: impl FnOnce(&mut ReadBuf, usize)) {
        let before = self.recv.buf.capacity();
        change(&mut self.recv.buf, self.round.conn.group.config().tcp_fixed_dealing_buf);
        self.round.account(self.recv, before);
    }

    /// Returns the marks that are left, and those of the turn that calls the handler.
    fn marks(&self) -> Marks {
        self.round.conn.recv.marks() | self.round.marks
    }

    /// Moves the deadlines for the peer's input, which do not run during a wait.
    fn postpone(&mut self, waited: Duration) {
        let now = clock::now();
        let Recv { silent_until, heard_at, frame_until, .. } = &mut *self.recv;
        silent_until.iter_mut().chain(frame_until).for_each(|until| *until += waited);
        heard_at.iter_mut().for_each(|at| *at = now.min(*at + waited));
    }

    /// Returns the reason why nothing may be read any more, if there is one.
    fn ended(&self) -> Option<ReadMoreError> {
        let conn: &Conn = self.round.conn;
        let marks = self.marks();
        let reason = match &self.recv.ending {
            Some(Ending::Close(reason) | Ending::Abort(reason)) => reason.clone(),
            Some(Ending::EndOfStream) => return Some(ReadMoreError::Finished),
            None if marks.has(CUT) => CloseReason::Cut,
            None if marks.has(ABORT | RESET | CLOSE) => {
                lock(&conn.reason).as_deref().cloned().unwrap_or(CloseReason::Draining)
            }
            None if self.recv.ended => return Some(ReadMoreError::Finished),
            None if self.recv.stage == Stage::Open => return None,
            None => self.recv.reason.as_deref().cloned().unwrap_or(CloseReason::Draining),
        };
        Some(ReadMoreError::Ending(reason))
    }

    /// Looks for a reset, which no read reports.
    fn look_while_paused(&mut self, hung_up: bool) -> Result<bool, ReadMoreError> {
        if hung_up {
            self.round.look_for_reset(self.recv);
        }
        self.ended().map_or(Ok(false), Err)
    }

    /// Receives until there are new bytes. Returns false if the socket has none.
    fn receive(&mut self) -> Result<bool, ReadMoreError> {
        loop {
            let before = self.recv.buf.bytes().len();
            let received = if mem::take(&mut self.recv.undecoded) {
                self.decode(&[]);
                Ok(())
            } else if self.round.conn.is_layered() {
                self.receive_encoded()
            } else {
                self.receive_plain()
            };
            match received {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    let reason = CloseReason::from_io(error);
                    self.recv.ending.get_or_insert(Ending::Abort(reason));
                }
            }
            let after = self.recv.buf.bytes().len();
            if after > before {
                self.round.received += after - before;
                self.round.check_left_over(self.recv, after);
            }
            match self.ended() {
                None | Some(ReadMoreError::Finished) if after > before => return Ok(true),
                // Bytes that a layer keeps are decoded when the user resumes.
                None if self.round.conn.is_paused() => return Ok(false),
                None => {}
                Some(error) => return Err(error),
            }
        }
    }

    /// Receives once, behind the bytes that are kept.
    fn receive_plain(&mut self) -> io::Result<()> {
        let (asked, received) = self.round.recv_into_own(self.recv)?;
        // 0 means that memory was short: the connection ends.
        if asked > 0 {
            self.note(received.bytes);
        }
        Ok(())
    }

    /// Receives once for the layers.
    fn receive_encoded(&mut self) -> io::Result<()> {
        let mut encoded = [0; 8 << 10];
        let received = self.round.recv_into(&mut encoded)?;
        self.note(received.bytes);
        self.decode(&encoded[..received.bytes]);
        Ok(())
    }

    fn note(&mut self, bytes: usize) {
        match bytes {
            0 => self.recv.ending = Some(self.end_of_stream()),
            _ => self.round.heard(self.recv, clock::now()),
        }
    }

    /// Asks the layers if the stream may end here.
    fn end_of_stream(&self) -> Ending {
        match self.round.conn.end_layers() {
            Ok(()) => Ending::EndOfStream,
            Err(Close(reason)) => Ending::Close(reason),
        }
    }

    fn decode(&mut self, encoded: &[u8]) {
        let (_, mut pass) = self.round.pass_up(self.recv, encoded);
        self.round.look_at_pass(self.recv, &mut pass);
    }
}
