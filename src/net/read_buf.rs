//! Input: the bytes a protocol looks at, and where those stay that it could not use yet.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::sys::socket::{self, Family, Received};

/// Received bytes that were not consumed yet, in order and in one piece.
///
/// A protocol takes what it can use. What it leaves is there again, with more behind it, when more
/// has arrived.
pub struct Input<'a> {
    bytes: &'a [u8],
    consumed: usize,
    needed: usize,
    aside_until: Option<Instant>,
}

impl<'a> Input<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, consumed: 0, needed: 0, aside_until: None }
    }

    /// What was not consumed yet.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        &self.bytes[self.consumed..]
    }

    /// How many bytes were not consumed yet.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() - self.consumed
    }

    /// Everything was consumed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Consumes `count` bytes, or all if there are fewer.
    pub fn consume(&mut self, count: usize) {
        self.take(count);
    }

    /// Consumes and returns `count` bytes, or all if there are fewer.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let taken = &self.bytes()[..count.min(self.len())];
        self.consumed += taken.len();
        self.needed = 0;
        taken
    }

    /// Consumes and returns everything.
    pub fn take_all(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    /// Says that what was not consumed belongs to a frame of `total` bytes, so that the buffer grows
    /// towards that size as bytes arrive, and so that one beyond the limit is refused at once.
    pub fn need(&mut self, total: usize) {
        self.needed = total;
    }

    /// Says that there is no room yet for what was not consumed. Nothing is received, and what is there
    /// does not come again, before [`resume`](super::Connection::resume) or that time.
    #[cfg(feature = "server")]
    pub(crate) fn set_aside(&mut self, until: Instant) {
        self.aside_until = Some(until);
    }

    pub(super) const fn aside_until(&self) -> Option<Instant> {
        self.aside_until
    }

    pub(super) const fn consumed(&self) -> usize {
        self.consumed
    }

    pub(super) const fn needed(&self) -> usize {
        self.needed
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("len", &self.len()).field("needed", &self.needed).finish()
    }
}

/// A connection's own buffer: it holds the beginning of a frame whose end has not arrived.
///
/// A frame that fits into the worker's buffer is completed there, behind a copy of what is here; only
/// a larger one is received into this. Memory follows what was received: capacity is at most twice
/// that, or the first size. Empty, it holds nothing, but for a large one that is kept for the next
/// large frame until [`shrink`](Self::shrink).
#[derive(Debug, Default)]
pub(super) struct ReadBuf {
    bytes: Vec<u8>,
    /// Consumed bytes at the front.
    start: usize,
    /// What the protocol said that the frame at the front needs.
    needed: usize,
}

impl ReadBuf {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.len() == self.start
    }

    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// What the protocol said that the frame at the front needs; 0 if it did not say.
    pub(super) const fn needed(&self) -> usize {
        self.needed
    }

    /// Takes what is left of bytes that were looked at elsewhere, in place of what is here.
    pub(super) fn replace(&mut self, rest: &[u8], needed: usize, first_size: usize) {
        self.clear();
        if !rest.is_empty() {
            self.append(rest, needed, first_size);
        }
        self.release_if_small(first_size);
    }

    /// Adds bytes that were received elsewhere.
    pub(super) fn append(&mut self, bytes: &[u8], needed: usize, first_size: usize) {
        self.needed = needed;
        if self.bytes.capacity() == 0 && !bytes.is_empty() {
            self.bytes.reserve_exact(bytes.len().max(first_size));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Notes what was consumed of `bytes`.
    pub(super) fn consume(&mut self, count: usize, needed: usize, first_size: usize) {
        self.start += count;
        self.needed = needed;
        if self.is_empty() {
            self.clear();
        }
        self.release_if_small(first_size);
    }

    fn release_if_small(&mut self, first_size: usize) {
        if self.is_empty() && self.bytes.capacity() <= first_size {
            self.bytes = Vec::new();
        }
    }

    /// By how much the capacity has to grow for the next receive.
    pub(super) fn growth(&self, first_size: usize) -> usize {
        if self.spare_after_compaction() > 0 {
            return 0;
        }
        let doubled = (self.bytes.len() * 2).max(first_size);
        let target =
            if self.needed > self.bytes.len() { doubled.min(self.needed) } else { doubled };
        target - self.bytes.capacity().min(target)
    }

    fn spare_after_compaction(&self) -> usize {
        self.bytes.capacity() - (self.bytes.len() - self.start)
    }

    /// Grows by what [`growth`](Self::growth) said.
    pub(super) fn grow(&mut self, growth: usize) {
        let spare = self.bytes.capacity() - self.bytes.len();
        self.bytes.reserve_exact(spare + growth);
    }

    /// Receives behind what is there. Returns bytes asked for, and what came.
    pub(super) fn recv(
        &mut self,
        fd: BorrowedFd<'_>,
        family: Family,
    ) -> io::Result<(usize, Received)> {
        self.compact();
        let asked = self.bytes.capacity() - self.bytes.len();
        let received = socket::recv_append(fd, family, &mut self.bytes)?;
        Ok((asked, received))
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Gives back what an empty buffer, or one much too large, holds.
    pub(super) fn shrink(&mut self, first_size: usize) {
        if self.is_empty() {
            self.clear();
            self.bytes = Vec::new();
        } else if self.needed <= first_size {
            self.bytes.shrink_to(first_size);
        }
    }

    /// Gives everything back.
    pub(super) fn release(&mut self) {
        *self = Self::default();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
        self.needed = 0;
    }
}
