//! Input: the bytes that a protocol reads, and the buffer for those that it could not use yet.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::time;

use super::read_more::{ReadMore, ReadMoreError};
use crate::sys::clock::Instant;
use crate::sys::socket::{self, Family, Received};

/// Received bytes that were not consumed yet, in order and in one slice.
///
/// A protocol takes the bytes that it can use. Bytes that it leaves come again, in front of the
/// next bytes that arrive.
///
/// ```
/// # use epoll_group::net::{Close, Connection, Input};
/// const LONGEST_LINE: usize = 8192;
///
/// fn received(conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
///     while let Some(end) = input.bytes().iter().position(|&byte| byte == b'\n') {
///         let line = input.take(end + 1);
///         conn.send(line);
///     }
///     // Otherwise a line may have `max_allowed_packet` bytes, and each arrival searches all of them.
///     if input.len() > LONGEST_LINE {
///         return Err("a line has more than 8192 bytes".into());
///     }
///     Ok(())
/// }
/// ```
pub struct Input<'a> {
    /// Bytes that had arrived before the call.
    bytes: &'a [u8],
    /// Number of bytes: of `bytes`, or those that `more` keeps since the first `read_more`.
    total: usize,
    /// Number of these bytes that were consumed.
    consumed: usize,
    /// Number of bytes that were consumed before the last `read_more`.
    consumed_before: usize,
    needed: usize,
    aside_until: Option<Instant>,
    more: Option<&'a mut (dyn ReadMore + 'a)>,
    /// Set since the first `read_more`.
    has_read: bool,
    cut: bool,
}

impl<'a> Input<'a> {
    /// Input with the announcements of the last call. Each holds until it is replaced; consumed
    /// bytes end `needed`.
    pub(super) const fn new(bytes: &'a [u8], needed: usize, aside_until: Option<Instant>) -> Self {
        Self {
            bytes,
            total: bytes.len(),
            consumed: 0,
            consumed_before: 0,
            needed,
            aside_until,
            more: None,
            has_read: false,
            cut: false,
        }
    }

    /// Lets the callback read more.
    pub(super) fn set_more(&mut self, more: &'a mut (dyn ReadMore + 'a)) {
        self.more = Some(more);
    }

    /// Takes the unconsumed bytes out of the reach of the protocol, and returns them.
    pub(super) fn cut(&mut self) -> Vec<u8> {
        let rest = self.bytes().to_vec();
        self.total = self.consumed;
        self.needed = 0;
        self.cut = true;
        rest
    }

    /// Returns the bytes that were not consumed yet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.all()[self.consumed..self.total]
    }

    fn all(&self) -> &[u8] {
        match &self.more {
            Some(more) if self.has_read => more.kept(),
            _ => self.bytes,
        }
    }

    /// Returns the number of bytes that were not consumed yet.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.total - self.consumed
    }

    /// Returns true if all bytes were consumed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Consumes `count` bytes, or all if there are fewer.
    pub fn consume(&mut self, count: usize) {
        self.consumed += count.min(self.len());
        self.needed = 0;
    }

    /// Consumes and returns `count` bytes, or all if there are fewer.
    pub fn take(&mut self, count: usize) -> &[u8] {
        let count = count.min(self.len());
        self.consume(count);
        &self.all()[self.consumed - count..self.consumed]
    }

    /// Consumes and returns all bytes.
    pub fn take_all(&mut self) -> &[u8] {
        self.take(usize::MAX)
    }

    /// Waits for further bytes, which follow the unconsumed ones. So a protocol with a conversation in
    /// the middle of a request, such as another step of a login, is plain code.
    ///
    /// The wait is [announced](crate::stall), so other threads serve the other connections. Time-outs of
    /// the connection for its input do not run meanwhile. While reading is
    /// [paused](super::Connection::pause_reads), no bytes come. A high backlog is no pause: the handler
    /// decides how much it sends. The unconsumed bytes have the limits `max_allowed_packet` and
    /// `max_buffered_bytes`.
    ///
    /// # Errors
    ///
    /// If no bytes come: see [`ReadMoreError`]. The `?` of a handler ends the connection, for the same
    /// reason.
    pub fn read_more(&mut self, deadline: time::Instant) -> Result<(), ReadMoreError> {
        let Some(more) = self.more.as_deref_mut().filter(|_| !self.cut) else {
            return Err(ReadMoreError::Unavailable);
        };
        if mem::replace(&mut self.has_read, true) {
            more.consume(self.consumed, self.needed);
        } else {
            more.keep(&self.bytes[self.consumed..], self.needed);
        }
        self.consumed_before += mem::take(&mut self.consumed);
        let result = more.read(deadline.into());
        self.total = more.kept().len();
        result
    }

    /// Announces that the unconsumed bytes belong to a frame of `total` bytes. The buffer then
    /// grows towards that size as bytes arrive, and a frame beyond the limit is refused at once.
    pub fn need(&mut self, total: usize) {
        self.needed = total;
    }

    /// Announces that the protocol has no room for the unconsumed bytes yet. Until
    /// [`resume`](super::Connection::resume) or that time, nothing is received and these bytes do
    /// not come again.
    #[cfg(feature = "server")]
    pub(crate) fn set_aside(&mut self, until: Instant) {
        self.aside_until = Some(until);
    }

    /// Returns the number of bytes consumed since the last `read_more`.
    pub(super) const fn consumed(&self) -> usize {
        self.consumed
    }

    /// Returns what the callback has done with the input.
    pub(super) const fn outcome(&self) -> Outcome {
        let Self { consumed, consumed_before, needed, aside_until, has_read, cut, .. } = *self;
        Outcome { consumed, consumed_before, left: self.len(), needed, aside_until, has_read, cut }
    }
}

/// Effect of a callback on its [`Input`].
pub(super) struct Outcome {
    /// Bytes consumed since the last `read_more`.
    pub(super) consumed: usize,
    /// Bytes consumed before.
    pub(super) consumed_before: usize,
    pub(super) left: usize,
    pub(super) needed: usize,
    pub(super) aside_until: Option<Instant>,
    /// Set if `read_more` was called, so that the unconsumed bytes are kept already.
    pub(super) has_read: bool,
    /// Set if the unconsumed bytes are for a layer that the callback has started.
    pub(super) cut: bool,
}

impl Outcome {
    pub(super) const fn all_consumed(&self) -> usize {
        self.consumed_before + self.consumed
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("len", &self.len()).field("needed", &self.needed).finish()
    }
}

/// Buffer of a connection: it holds the beginning of a frame whose end has not arrived.
///
/// If a frame fits into the worker's buffer, it is completed there, after a copy of the bytes in
/// this buffer. Only a larger frame is received into this buffer. Memory follows the received
/// bytes: capacity is at most twice their number, or the first size. An empty buffer has no memory,
/// except that a large one is kept for the next large frame until [`shrink`](Self::shrink).
#[derive(Debug, Default)]
pub(super) struct ReadBuf {
    bytes: Vec<u8>,
    /// Consumed bytes at the front. 0 in an empty buffer.
    start: usize,
    /// Size of the frame at the front, as announced by the protocol. 0 in an empty buffer.
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

    /// Returns the announced size of the frame at the front, or 0.
    pub(super) const fn needed(&self) -> usize {
        self.needed
    }

    /// Buffer to append decoded bytes to.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        self.compact();
        &mut self.bytes
    }

    /// Replaces the content with the rest of bytes that the protocol saw in the worker's buffer.
    pub(super) fn replace(&mut self, rest: &[u8], needed: usize, first_size: usize) {
        if rest.is_empty() && self.capacity() == 0 {
            return;
        }
        self.clear();
        if !rest.is_empty() {
            self.append(rest, needed, first_size);
        }
        self.release_if_small(first_size);
    }

    /// Appends bytes that were received into the worker's buffer.
    pub(super) fn append(&mut self, bytes: &[u8], needed: usize, first_size: usize) {
        self.needed = needed;
        if self.bytes.capacity() == 0 && !bytes.is_empty() {
            self.bytes.reserve_exact(bytes.len().max(first_size));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops the first `count` bytes, which were consumed.
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

    /// Returns the growth of the capacity that the next receive needs.
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

    /// Grows by the result of [`growth`](Self::growth).
    pub(super) fn grow(&mut self, growth: usize) {
        let before = self.bytes.capacity();
        self.bytes.reserve_exact(before - self.bytes.len() + growth);
        // Otherwise the sum of buffer sizes would be wrong.
        debug_assert_eq!(self.bytes.capacity(), before + growth);
    }

    /// Receives after the present bytes. Returns the number of bytes asked for, and the received
    /// ones.
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

    /// Frees the memory of an empty buffer. Shrinks a buffer that is much too large.
    pub(super) fn shrink(&mut self, first_size: usize) {
        if self.is_empty() {
            self.bytes = Vec::new();
        } else if self.needed <= first_size {
            self.compact();
            self.bytes.shrink_to(first_size);
        }
    }

    /// Frees all memory.
    pub(super) fn release(&mut self) {
        *self = Self::default();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
        self.needed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_buffer_announces_no_frame() {
        let mut buf = ReadBuf::default();
        buf.append(&[1; 10], 100, 4096);
        assert_eq!(buf.needed(), 100);
        buf.replace(&[], 100, 4096);
        assert_eq!((buf.needed(), buf.capacity()), (0, 0));
        buf.append(&[1; 10], 100, 4096);
        buf.consume(10, 100, 4096);
        assert_eq!((buf.needed(), buf.capacity()), (0, 0));
    }

    #[test]
    fn a_buffer_that_is_much_too_large_shrinks_around_its_bytes() {
        let mut buf = ReadBuf::default();
        buf.append(&[[1; 5000], [2; 5000]].concat(), 10_000, 4096);
        buf.consume(9999, 100, 4096);
        buf.shrink(4096);
        assert_eq!((buf.bytes(), buf.capacity()), (&[2][..], 4096));
    }
}
