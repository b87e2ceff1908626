//! [`Kept`]: complete replies that wait a short time, to leave in one send.

use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Instant;

use super::channel::Channel;
use super::line::Line;
use super::link::Runnable;
use super::output::{FULL, OLD};
use crate::codec::buffer::OutBuffer;
use crate::net::Sent;
use crate::stats::Counter;
use crate::sync::shim::lock;

/// Session whose frames these are; `None` for frames of no session.
pub(super) type Owner = Option<Arc<Channel>>;

/// Replies that one thread has written. Another thread may send them if the first one is stuck.
///
/// The lock is held during the send, which does not wait. So replies leave in order.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Replies>);

#[derive(Default)]
struct Replies {
    bytes: Vec<u8>,
    /// Owner of each part of `bytes`, and the end of the part.
    parts: Vec<(Owner, usize)>,
    /// Time at which the first reply was complete.
    since: Option<Instant>,
    /// Work that wrote the replies, and does not run until they are sent.
    held: Vec<Arc<dyn Runnable>>,
}

impl Kept {
    /// Takes the reply in `buffer`. Returns true if it is time to send.
    pub(super) fn add(&self, buffer: &mut OutBuffer, owner: &Owner, now: Instant) -> bool {
        let replies = &mut *lock(&self.0);
        if !buffer.is_empty() {
            buffer.slices().for_each(|slice| replies.bytes.extend_from_slice(slice));
            buffer.clear();
            let end = replies.bytes.len();
            match replies.parts.last_mut() {
                Some((last, last_end)) if is_same(last, owner) => *last_end = end,
                _ => replies.parts.push((owner.clone(), end)),
            }
            replies.since.get_or_insert(now);
        }
        let old = |since| now.saturating_duration_since(since) >= OLD;
        replies.bytes.len() >= FULL || replies.since.is_some_and(old)
    }

    pub(super) fn hold(&self, runnable: Arc<dyn Runnable>) {
        lock(&self.0).held.push(runnable);
    }

    /// Sends the replies, and `buffer` behind them. Returns the work that may run again.
    pub(super) fn send_with(
        &self,
        line: &Line,
        buffer: &OutBuffer,
        owner: &Owner,
    ) -> (Sent, Vec<Arc<dyn Runnable>>) {
        let replies = &mut *lock(&self.0);
        let sent = replies.send_with(line, buffer, owner);
        (sent, std::mem::take(&mut replies.held))
    }

    /// Sends the replies by another thread, because their thread is stuck.
    pub(super) fn relieve(&self, line: &Line) {
        let held = {
            let mut replies = match self.0.try_lock() {
                Ok(replies) => replies,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The thread that has the lock is sending, so it is not stuck.
                Err(TryLockError::WouldBlock) => return,
            };
            replies.send_with(line, &OutBuffer::new(&line.pages), &None);
            std::mem::take(&mut replies.held)
        };
        held.into_iter().for_each(Runnable::settle);
    }
}

impl Replies {
    fn send_with(&mut self, line: &Line, buffer: &OutBuffer, owner: &Owner) -> Sent {
        self.since = None;
        if self.bytes.is_empty() && buffer.is_empty() {
            self.parts.clear();
            return Sent::Sent;
        }
        let sent = {
            let _sending = line.sending();
            if is_dead(owner) || self.parts.iter().any(|(owner, _)| is_dead(owner)) {
                line.conn.send(self.living(line, buffer, owner))
            } else if buffer.is_empty() {
                line.conn.send(&self.bytes)
            } else {
                let all = std::iter::once(&*self.bytes).chain(buffer.slices());
                let slices: Vec<_> = all.map(IoSlice::new).collect();
                line.conn.send_slices(&slices)
            }
        };
        self.bytes.clear();
        self.bytes.shrink_to(2 * FULL);
        self.parts.clear();
        sent
    }

    /// Bytes of the sessions that are not dead.
    fn living(&self, line: &Line, buffer: &OutBuffer, owner: &Owner) -> Vec<u8> {
        let mut living = Vec::new();
        let mut start = 0;
        for (owner, end) in &self.parts {
            if is_dead(owner) {
                line.count(Counter::FramesOfDeadSessionsDropped);
            } else {
                living.extend_from_slice(&self.bytes[start..*end]);
            }
            start = *end;
        }
        if is_dead(owner) {
            line.count(Counter::FramesOfDeadSessionsDropped);
        } else {
            buffer.slices().for_each(|slice| living.extend_from_slice(slice));
        }
        living
    }
}

pub(super) fn is_dead(owner: &Owner) -> bool {
    owner.as_ref().is_some_and(|channel| channel.is_dead())
}

fn is_same(one: &Owner, other: &Owner) -> bool {
    one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("bytes", &self.bytes.len())
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::codec::buffer::PagePool;
    use crate::codec::encoder::Encoder;
    use crate::codec::header::HEADER_BYTES;

    /// Keeps a reply of this length. Returns true if it is time to send.
    fn add(kept: &Kept, bytes: usize, now: Instant) -> bool {
        let mut buffer = OutBuffer::new(&PagePool::default());
        let body = vec![0; bytes - HEADER_BYTES];
        Encoder::new(&mut buffer, 1).frame(13, &[&body]).expect("short enough");
        assert_eq!(buffer.len(), bytes);
        kept.add(&mut buffer, &None, now)
    }

    #[test]
    fn replies_wait_until_they_are_many() {
        let (kept, now) = (Kept::default(), Instant::now());
        assert!(!add(&kept, 100, now));
        assert!(!add(&kept, FULL - 101, now), "one byte is missing");
        assert!(add(&kept, HEADER_BYTES, now));
        assert!(add(&Kept::default(), FULL, now));
    }

    #[test]
    fn replies_wait_until_the_first_is_old() {
        let (kept, now) = (Kept::default(), Instant::now());
        let nanosecond = Duration::from_nanos(1);
        assert!(!add(&kept, HEADER_BYTES, now));
        assert!(!add(&kept, HEADER_BYTES, now + OLD - nanosecond));
        assert!(add(&kept, HEADER_BYTES, now + OLD), "the age is that of the first");
    }
}
