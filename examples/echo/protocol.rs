//! The server: a [`Protocol`] that sends every frame back as it came.
//!
//! Two kinds of frame make it work or wait first, so that a slow handler can be studied:
//!
//! | kind | first four bytes of the body, little-endian | before the echo |
//! |---|---|---|
//! | 0x7e | microseconds | burns so much CPU time on the handling thread |
//! | 0x7d | microseconds | sleeps so long there, announced to nobody |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use epoll_group::codec::header::{HEADER_BYTES, Header};
use epoll_group::net::{Close, CloseReason, Connection, Input, Protocol};

use super::cpu;

/// Frame that burns CPU time before it is echoed.
const BURN: u8 = 0x7e;
/// Frame that sleeps before it is echoed.
const SLEEP: u8 = 0x7d;
/// Longest frame accepted: its kind byte and body.
const LONGEST: u32 = 64 << 20;

/// Echoes frames, and counts them. A clone shares the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo {
    /// Written by `closed`, read by whoever asks. Relaxed: a count, it orders nothing.
    answered: Arc<AtomicU64>,
}

/// What stands at the start of some input.
struct Opening {
    /// Whole plain frames, one after the other: they leave in one send.
    plain_frames: u64,
    plain_bytes: usize,
    /// What follows them.
    next: Next,
}

enum Next {
    /// The start of a frame; its size, once the header is there to tell it.
    Partial(Option<usize>),
    /// A whole frame that wants something done before it is echoed.
    Slow { frame_bytes: usize, work: Work },
    /// Nothing that can be answered.
    Broken(Close),
}

enum Work {
    Burn(Duration),
    Sleep(Duration),
}

impl Echo {
    /// Frames answered on all connections that have been closed.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

impl Protocol for Echo {
    /// Frames answered on this connection: only one thread at a time is in `received`, so this
    /// needs no atomic.
    type State = u64;

    fn opened(&self, _conn: &Connection) -> u64 {
        0
    }

    fn received(
        &self,
        conn: &Connection,
        answered: &mut u64,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        loop {
            let opening = Opening::of(input.bytes());
            if opening.plain_bytes > 0 {
                // Before any work: nobody's answer waits for a slow frame behind it. What the
                // socket does not take now leaves later, and while much of it waits, the
                // connection is not read: no need to look at what `send` returns.
                conn.send(input.take(opening.plain_bytes));
                *answered += opening.plain_frames;
            }
            match opening.next {
                Next::Partial(size) => {
                    if let Some(frame_bytes) = size {
                        input.need(frame_bytes);
                    }
                    return Ok(());
                }
                Next::Slow { frame_bytes, work } => {
                    work.perform();
                    conn.send(input.take(frame_bytes));
                    *answered += 1;
                }
                Next::Broken(close) => return Err(close),
            }
        }
    }

    fn closed(&self, _conn: &Connection, answered: u64, _reason: &CloseReason) {
        self.answered.fetch_add(answered, Ordering::Relaxed);
    }
}

impl Opening {
    /// Goes through the frames at the start of `input` up to the first that is not both whole
    /// and plain.
    fn of(input: &[u8]) -> Self {
        let mut plain_frames = 0;
        let mut plain_bytes = 0;
        let next = loop {
            let rest = &input[plain_bytes..];
            let header = match Header::parse(rest, LONGEST) {
                Ok(Some(header)) => header,
                Ok(None) => break Next::Partial(None),
                Err(error) => break Next::Broken(Close::error(error)),
            };
            let frame_bytes = header.frame_bytes();
            let Some(frame) = rest.get(..frame_bytes) else {
                break Next::Partial(Some(frame_bytes));
            };
            match Work::asked_by(header.kind, &frame[HEADER_BYTES..]) {
                Ok(None) => {}
                Ok(Some(work)) => break Next::Slow { frame_bytes, work },
                Err(close) => break Next::Broken(close),
            }
            plain_frames += 1;
            plain_bytes += frame_bytes;
        };
        Self { plain_frames, plain_bytes, next }
    }
}

impl Work {
    fn asked_by(kind: u8, body: &[u8]) -> Result<Option<Self>, Close> {
        let work = match kind {
            BURN => Self::Burn,
            SLEEP => Self::Sleep,
            _ => return Ok(None),
        };
        let Some(&micros) = body.first_chunk() else {
            let bytes = body.len();
            return Err(Close::new(format!(
                "body of {bytes} bytes in a frame of kind {kind:#04x}, which needs at least 4"
            )));
        };
        Ok(Some(work(Duration::from_micros(u32::from_le_bytes(micros).into()))))
    }

    fn perform(&self) {
        match *self {
            Self::Burn(time) => cpu::burn(time),
            Self::Sleep(time) => thread::sleep(time),
        }
    }
}
