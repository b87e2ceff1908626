//! The server: a [`Protocol`] that sends every frame back as it came. Frames have the header of the
//! codec; any other framing would do.
//!
//! Some kinds of frame make it work or wait first, so that a slow handler can be studied:
//!
//! | kind | first four bytes of the body, little-endian | before the echo |
//! |---|---|---|
//! | 0x7e | microseconds | burns that much CPU time on the handling thread |
//! | 0x7d | microseconds | sleeps that long on the handling thread, without announcing it |
//! | 0x7c | number of a lock | takes the lock for the connection; waits, announced, while another has it |
//! | 0x7b | number of a lock | gives the lock back, if the connection has it |
//!
//! A lock is held from one request to a later one, as a transaction holds a row.

use std::array;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use epoll_group::Class;
use epoll_group::codec::frame::{Dialect, HEADER_BYTES};
use epoll_group::net::{Close, Connection, Input, Protocol};
use epoll_group::sync::{Condvar, Mutex};
use lab::cpu;

/// Frame that burns CPU time before it is echoed.
const BURN: u8 = 0x7e;
/// Frame that sleeps before it is echoed.
const SLEEP: u8 = 0x7d;
/// Frame that takes a lock before it is echoed.
pub(crate) const LOCK: u8 = 0x7c;
/// Frame that gives a lock back.
pub(crate) const UNLOCK: u8 = 0x7b;
/// Longest frame accepted, its kind byte and body.
const LONGEST: u32 = 64 << 20;

/// Echoes frames and counts them. Clones share the count and the locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo {
    answered: Arc<Answered>,
    locks: Arc<Locks>,
}

/// Frames answered. Threads count in different cache lines, so that they do not wait for one
/// another's writes.
#[derive(Debug)]
struct Answered([Count; COUNTS]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

const COUNTS: usize = 64;

thread_local! {
    /// Index of this thread's count.
    static PLACE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % COUNTS
    };
}

/// The frames at the start of some input.
struct Opening {
    /// Whole plain frames in a row. They leave in one send.
    plain_frames: u64,
    plain_bytes: usize,
    next: Next,
}

enum Next {
    /// The start of a frame, and its size if the header is complete.
    Partial(Option<usize>),
    /// A whole frame that needs work before it is echoed.
    Slow { frame_bytes: usize, work: Work },
    /// Bytes that are no frame.
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
    /// Locks that the connection has taken. Dropped with the connection, they go back.
    type State = Held;

    fn opened(&self, _conn: &Connection) -> Result<Held, Close> {
        Ok(Held { locks: Arc::clone(&self.locks), numbers: Vec::new() })
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
                // Before any work, so that no answer waits for a slow frame behind it. The result
                // of `send` needs no look: bytes that the socket does not take leave later, and
                // while many of them wait the connection is not read.
                conn.send(input.take(opening.plain_bytes));
                self.answered.add(opening.plain_frames);
            }
            match opening.next {
                Next::Partial(size) => {
                    // The buffer grows once, to the whole frame.
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
    /// Goes through the frames of `input` up to the first that is not both whole and plain.
    fn of(input: &[u8]) -> Self {
        let mut plain_frames = 0;
        let mut plain_bytes = 0;
        let next = loop {
            let rest = &input[plain_bytes..];
            let header = match Dialect::Legacy.parse(rest, LONGEST) {
                Ok(Some(header)) => header,
                Ok(None) => break Next::Partial(None),
                Err(error) => break Next::Broken(Close::error(error)),
            };
            let frame_bytes = Dialect::Legacy.frame_bytes(&header);
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
            return Err(Close::from(format!(
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
            // A connection that holds locks always gets a thread, so that others do not wait for it.
            conn.set_class(if held.numbers.is_empty() {
                Class::Ordinary
            } else {
                Class::InProgress
            });
        }
        Ok(())
    }
}

/// Locks with the numbers below [`LOCKS`].
#[derive(Debug)]
struct Locks(Vec<Lock>);

/// A lock of the library's types. A handler that waits for it announces the wait, and another thread
/// goes on.
#[derive(Debug, Default)]
struct Lock {
    taken: Mutex<bool>,
    free: Condvar,
}

/// The locks that one connection has. Dropped, they are given back.
#[derive(Debug)]
pub(crate) struct Held {
    locks: Arc<Locks>,
    numbers: Vec<u32>,
}

const LOCKS: u32 = 256;

impl Held {
    /// Takes a lock; waits while another connection has it.
    fn take(&mut self, number: u32) -> Result<(), Close> {
        if self.numbers.contains(&number) {
            return Err(format!("lock {number} is this connection's already").into());
        }
        let Some(lock) = self.locks.0.get(number as usize) else {
            return Err(format!("lock {number} is not below {LOCKS}").into());
        };
        let taken = lock.free.wait_while(lock.taken(), |taken| *taken);
        *taken.unwrap_or_else(PoisonError::into_inner) = true;
        self.numbers.push(number);
        Ok(())
    }

    /// Gives a lock back; does nothing if this connection does not have it.
    fn give_back(&mut self, number: u32) {
        if let Some(place) = self.numbers.iter().position(|held| *held == number) {
            self.numbers.swap_remove(place);
            self.locks.0[number as usize].give_back();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for &number in &self.numbers {
            self.locks.0[number as usize].give_back();
        }
    }
}

impl Lock {
    fn give_back(&self) {
        *self.taken() = false;
        self.free.notify_one();
    }

    fn taken(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Locks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Lock::default()).collect())
    }
}
