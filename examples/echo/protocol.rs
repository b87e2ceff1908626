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

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use epoll_group::Class;
use epoll_group::codec::header::{HEADER_BYTES, Header};
use epoll_group::net::{Close, Connection, Input, Protocol};

use lab::cpu;

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
    answered: Arc<Answered>,
    locks: Arc<Locks>,
}

/// Frames answered. Each thread counts in a place of its own, as far as they reach, so that it does
/// not wait for the memory that another one has just written.
#[derive(Debug)]
struct Answered([Count; COUNTS]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

const COUNTS: usize = 64;

thread_local! {
    /// Which count is this thread's.
    static PLACE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % COUNTS
    };
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
    Lock(u32),
    Unlock(u32),
}

impl Echo {
    /// Frames answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.0.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }
}

impl Default for Answered {
    fn default() -> Self {
        Self(array::from_fn(|_| Count::default()))
    }
}

impl Answered {
    fn add(&self, frames: u64) {
        PLACE.with(|place| self.0[*place].0.fetch_add(frames, Ordering::Relaxed));
    }
}

impl Protocol for Echo {
    /// The locks that a connection has taken. Dropped with it, they go back.
    type State = Held;

    fn opened(&self, _conn: &Connection) -> Held {
        Held::of(&self.locks)
    }

    fn received(
        &self,
        conn: &Connection,
        held: &mut Held,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        loop {
            let opening = Opening::of(input.bytes());
            if opening.plain_bytes > 0 {
                // Before any work: nobody's answer waits for a slow frame behind it. What the
                // socket does not take now leaves later, and while much of it waits, the
                // connection is not read: no need to look at what `send` returns.
                conn.send(input.take(opening.plain_bytes));
                self.answered.add(opening.plain_frames);
            }
            match opening.next {
                Next::Partial(size) => {
                    if let Some(frame_bytes) = size {
                        input.need(frame_bytes);
                    }
                    return Ok(());
                }
                Next::Slow { frame_bytes, work } => {
                    work.perform(conn, held)?;
                    conn.send(input.take(frame_bytes));
                    self.answered.add(1);
                }
                Next::Broken(close) => return Err(close),
            }
        }
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
