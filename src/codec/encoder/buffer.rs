//! Output buffers for frames: pages from a bounded pool.

mod pool;

use std::collections::VecDeque;
use std::fmt;

pub use pool::PagePool;

use crate::codec::wire::Word;

/// Bytes to be sent, in the order in which they were written.
///
/// *Shape*: owned by one session or connection at a time and written through an
/// [`Encoder`](crate::codec::encoder::Encoder). It grows until its owner sends: look at [`len`](Self::len)
/// between frames, and [`advance`](Self::advance) by the bytes that were sent. It holds the written
/// bytes, one page that is being filled and up to ten spare ones.
///
/// ```
/// use epoll_group::codec::encoder::{Encoder, OutBuffer, PagePool};
///
/// let pool = PagePool::default();
/// let mut buffer = OutBuffer::new(&pool);
/// Encoder::new(&mut buffer, 2).execute_ok();
/// assert_eq!(buffer.len(), 13);
///
/// // A socket that takes ten bytes, then the rest.
/// buffer.advance(10);
/// let rest: Vec<u8> = buffer.slices().flatten().copied().collect();
/// assert_eq!(rest, [0, 0, 17]);
/// buffer.advance(3);
/// assert!(buffer.is_empty());
/// ```
pub struct OutBuffer {
    pool: PagePool,
    /// Complete pages, none empty.
    full: VecDeque<Vec<u8>>,
    /// Bytes of `full`, those sent included.
    full_bytes: usize,
    /// The page that is being filled; without capacity before the first byte.
    open: Vec<u8>,
    /// Bytes of the first page that were sent.
    sent: usize,
    /// Pages that were sent and have not gone back.
    spare: Vec<Vec<u8>>,
}

/// Position in a buffer to return to. Valid until bytes before it are sent or rolled back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Pages before that of the place.
    pages: usize,
    /// Bytes of that page before the place.
    used: usize,
    /// Bytes of the buffer before the place, those sent included.
    position: usize,
}

impl OutBuffer {
    /// Spare pages that a buffer keeps for itself; the others go back to the pool. Ten, as in the
    /// reference server, where this is `max_cached_output_buffer_pages`.
    const CACHED_PAGES: usize = 10;

    /// An empty buffer, which takes its pages from `pool`.
    #[must_use]
    pub fn new(pool: &PagePool) -> Self {
        Self {
            pool: pool.clone(),
            full: VecDeque::new(),
            full_bytes: 0,
            open: Vec::new(),
            sent: 0,
            spare: Vec::new(),
        }
    }

    /// Bytes that wait to be sent.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.position().saturating_sub(self.sent)
    }

    /// Returns true if no bytes wait to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that wait to be sent, in order, one slice per page, none empty.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let pages = self.full.iter().chain(std::iter::once(&self.open)).enumerate();
        pages
            .map(
                |(at, page)| {
                    if at == 0 {
                        page.get(self.sent..).unwrap_or_default()
                    } else {
                        page.as_slice()
                    }
                },
            )
            .filter(|slice| !slice.is_empty())
    }

    /// Copy of the bytes that wait to be sent.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.slices().for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }

    /// Removes `count` sent bytes from the front. Stops when the buffer is empty.
    pub fn advance(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count);
        while let Some(first) = self.full.front() {
            if self.sent < first.len() {
                return;
            }
            self.sent = self.sent.saturating_sub(first.len());
            self.full_bytes = self.full_bytes.saturating_sub(first.len());
            if let Some(page) = self.full.pop_front() {
                self.recycle(page);
            }
        }
        if self.sent >= self.open.len() {
            self.open.clear();
            self.sent = 0;
        }
    }

    /// Removes all bytes, sent or not.
    pub fn clear(&mut self) {
        self.advance(usize::MAX);
    }

    /// Gives the spare pages back to the pool.
    fn trim(&mut self) {
        for page in self.spare.drain(..) {
            self.pool.give(page);
        }
        if self.open.is_empty() {
            self.pool.give(std::mem::take(&mut self.open));
        }
    }

    /// Bytes in `full` and `open`, those sent included. Only differences have a meaning.
    #[inline]
    pub(super) fn position(&self) -> usize {
        self.full_bytes.saturating_add(self.open.len())
    }

    /// Appends the bytes of `word`, all in one page.
    #[inline]
    pub(super) fn put(&mut self, word: Word) {
        self.need_word();
        // A store of fixed width and a shortened length are cheaper than a copy of varying width.
        let end = self.open.len().saturating_add(word.len());
        self.open.extend_from_slice(&word.to_array());
        self.open.truncate(end);
    }

    /// Appends `bytes`, over as many pages as it takes.
    #[inline]
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        if bytes.len() <= self.room() {
            self.open.extend_from_slice(bytes);
        } else {
            self.put_over_pages(bytes);
        }
    }

    #[cold]
    fn put_over_pages(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.room() == 0 {
                self.next_page();
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.room()));
            self.open.extend_from_slice(now);
            bytes = later;
        }
    }

    /// End of the written bytes, with room behind it for a word in the same page.
    #[inline]
    pub(super) fn mark(&mut self) -> Mark {
        self.need_word();
        Mark { pages: self.full.len(), used: self.open.len(), position: self.position() }
    }

    /// Bytes written since `mark`.
    #[inline]
    pub(super) fn since(&self, mark: Mark) -> usize {
        self.position().saturating_sub(mark.position)
    }

    /// Removes the bytes that were written since `mark`.
    #[cold]
    pub(super) fn roll_back(&mut self, mark: Mark) {
        while self.full.len() > mark.pages {
            let Some(page) = self.full.pop_back() else { break };
            self.full_bytes = self.full_bytes.saturating_sub(page.len());
            let later = std::mem::replace(&mut self.open, page);
            self.recycle(later);
        }
        self.open.truncate(mark.used);
    }

    /// Overwrites four bytes, `offset` behind `mark`. They lie in the page of the mark.
    #[inline]
    pub(super) fn patch(&mut self, mark: Mark, offset: usize, value: u32) {
        let page = self.full.get_mut(mark.pages).unwrap_or(&mut self.open);
        let place = page.get_mut(mark.used.saturating_add(offset)..);
        if let Some(place) = place.and_then(|place| place.first_chunk_mut()) {
            *place = value.to_le_bytes();
        }
    }

    #[inline]
    fn room(&self) -> usize {
        self.open.capacity().saturating_sub(self.open.len())
    }

    #[inline]
    fn need_word(&mut self) {
        if self.room() < Word::MAX_BYTES {
            self.next_page();
        }
    }

    #[cold]
    fn next_page(&mut self) {
        let page = self.spare.pop().unwrap_or_else(|| self.pool.take());
        let filled = std::mem::replace(&mut self.open, page);
        if filled.is_empty() {
            self.recycle(filled);
        } else {
            self.full_bytes = self.full_bytes.saturating_add(filled.len());
            self.full.push_back(filled);
        }
    }

    fn recycle(&mut self, mut page: Vec<u8>) {
        page.clear();
        if self.spare.len() < Self::CACHED_PAGES && page.capacity() != 0 {
            self.spare.push(page);
        } else {
            self.pool.give(page);
        }
    }
}

impl fmt::Debug for OutBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutBuffer")
            .field("len", &self.len())
            .field("pages", &self.full.len().saturating_add(1))
            .field("spare", &self.spare.len())
            .finish_non_exhaustive()
    }
}

impl Default for OutBuffer {
    /// Buffer with a pool of its own, for use without other buffers.
    fn default() -> Self {
        Self::new(&PagePool::default())
    }
}

impl Drop for OutBuffer {
    fn drop(&mut self) {
        self.clear();
        self.trim();
    }
}

#[cfg(test)]
mod tests;
