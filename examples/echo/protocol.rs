//! The server: a [`Protocol`] that sends every frame back as it came.
//!
//! Some kinds of frame make it work or wait first, so that a slow handler can be studied:
//!
//! | kind | first four bytes of the body, little-endian | before the echo |
//! |---|---|---|
//! | 0x7e | microseconds | burns so much CPU time on the handling thread |
//! | 0x7d | microseconds | sleeps so long there, announced to nobody |
//! | 0x7c | number of a lock | takes it for the connection; waits, announced, while another has it |
//! | 0x7b | number of a lock | gives it back, if the connection has it |

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use epoll_group::Class;
use epoll_group::codec::header::{HEADER_BYTES, Header};
use epoll_group::net::{Close, CloseReason, Connection, ConnectionId, Input, Protocol};

use super::cpu;

#[path = "protocol/locks.rs"]
mod locks;

use locks::{Held, Locks};

/// Frame that burns CPU time before it is echoed.
const BURN: u8 = 0x7e;
/// Frame that sleeps before it is echoed.
const SLEEP: u8 = 0x7d;
/// Frame that takes a lock before it is echoed.
const LOCK: u8 = 0x7c;
/// Frame that gives one back.
const UNLOCK: u8 = 0x7b;
/// Longest frame accepted: its kind byte and body.
const LONGEST: u32 = 64 << 20;

/// Echoes frames, and counts them. A clone shares the count, and the locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo {
    /// Locked when a connection opens or ends and when somebody asks, never for a frame.
    tally: Arc<Mutex<Tally>>,
    locks: Arc<Locks>,
}

/// What belongs to one connection.
#[derive(Debug)]
pub(crate) struct Peer {
    answered: Arc<Answered>,
    held: Held,
}

#[derive(Debug, Default)]
struct Tally {
    /// Frames answered on connections that have ended.
    ended: u64,
    open: HashMap<ConnectionId, Arc<Answered>>,
}

/// Frames answered on one connection. Only one thread at a time is in `received`, so it loads and
/// stores; relaxed, as a count orders nothing. Alone in its cache lines, as another thread may
/// write its neighbour.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Answered(AtomicU64);

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
    Lock(u32),
    Unlock(u32),
}

impl Echo {
    /// Frames answered so far.
    pub(crate) fn answered(&self) -> u64 {
        let tally = self.tally();
        tally.ended + tally.open.values().map(|answered| answered.get()).sum::<u64>()
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answered {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, frames: u64) {
        self.0.store(self.get() + frames, Ordering::Relaxed);
    }
}

impl Protocol for Echo {
    type State = Peer;

    fn opened(&self, conn: &Connection) -> Peer {
        let answered = Arc::<Answered>::default();
        self.tally().open.insert(conn.id(), Arc::clone(&answered));
        Peer { answered, held: Held::of(&self.locks) }
    }

    fn received(
        &self,
        conn: &Connection,
        peer: &mut Peer,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        loop {
            let opening = Opening::of(input.bytes());
            if opening.plain_bytes > 0 {
                // Before any work: nobody's answer waits for a slow frame behind it. What the
                // socket does not take now leaves later, and while much of it waits, the
                // connection is not read: no need to look at what `send` returns.
                conn.send(input.take(opening.plain_bytes));
                peer.answered.add(opening.plain_frames);
            }
            match opening.next {
                Next::Partial(size) => {
                    if let Some(frame_bytes) = size {
                        input.need(frame_bytes);
                    }
                    return Ok(());
                }
                Next::Slow { frame_bytes, work } => {
                    work.perform(conn, &mut peer.held)?;
                    conn.send(input.take(frame_bytes));
                    peer.answered.add(1);
                }
                Next::Broken(close) => return Err(close),
            }
        }
    }

    /// Its locks go back when the state is dropped, at the end of this.
    fn closed(&self, conn: &Connection, peer: Peer, _reason: &CloseReason) {
        let mut tally = self.tally();
        tally.open.remove(&conn.id());
        tally.ended += peer.answered.get();
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
        if !matches!(kind, BURN | SLEEP | LOCK | UNLOCK) {
            return Ok(None);
        }
        let Some(&number) = body.first_chunk() else {
            let bytes = body.len();
            return Err(Close::new(format!(
                "body of {bytes} bytes in a frame of kind {kind:#04x}, which needs at least 4"
            )));
        };
        let number = u32::from_le_bytes(number);
        let time = Duration::from_micros(number.into());
        Ok(Some(match kind {
            BURN => Self::Burn(time),
            SLEEP => Self::Sleep(time),
            LOCK => Self::Lock(number),
            _ => Self::Unlock(number),
        }))
    }

    fn perform(&self, conn: &Connection, held: &mut Held) -> Result<(), Close> {
        match *self {
            Self::Burn(time) => cpu::burn(time),
            Self::Sleep(time) => thread::sleep(time),
            Self::Lock(number) => held.take(number)?,
            Self::Unlock(number) => held.give_back(number),
        }
        if let Self::Lock(_) | Self::Unlock(_) = self {
            // Who holds what others wait for always gets a thread.
            conn.set_class(if held.is_empty() { Class::Ordinary } else { Class::InProgress });
        }
        Ok(())
    }
}
