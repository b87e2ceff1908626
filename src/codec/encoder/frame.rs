//! [`Frame`]: a frame that has been begun, to be finished or rolled back.

use super::Template;
use super::buffer::{Mark, OutBuffer};
use crate::codec::error::EncodeError;
use crate::codec::wire::Word;

/// A frame that has been begun.
///
/// If it is dropped before it is finished, because of an error or of a panic in the closure that
/// fills it, the buffer is as before.
#[derive(Debug)]
pub(super) struct Frame<'b> {
    buffer: &'b mut OutBuffer,
    header: Template,
    mark: Mark,
    max_length: u32,
    finished: bool,
}

impl<'b> Frame<'b> {
    #[inline]
    pub(super) fn new(
        buffer: &'b mut OutBuffer,
        header: Template,
        kind: u8,
        max_length: u32,
    ) -> Self {
        let mark = buffer.mark();
        buffer.put(header.word(kind, 0));
        Self { buffer, header, mark, max_length, finished: false }
    }

    /// Appends a word. Words are short and few; `finish` checks the limit.
    #[inline]
    pub(super) fn word(&mut self, word: Word) {
        self.buffer.put(word);
    }

    /// Appends bytes of any length, if they fit.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.check(bytes.len())?;
        self.buffer.put_bytes(bytes);
        Ok(())
    }

    /// Appends a field of bytes: tag of one byte, length, content.
    #[inline]
    pub(super) fn field(&mut self, tag: u8, content: &[u8]) -> Result<(), EncodeError> {
        self.head(tag, content.len());
        self.bytes(content)
    }

    /// Appends tag and length of a field of bytes.
    #[inline]
    pub(super) fn head(&mut self, tag: u8, content_bytes: usize) {
        let tag = Word::new(tag.into(), 1);
        self.word(tag.then(Word::varint(content_bytes as u64)));
    }

    /// Checks that `more` bytes fit.
    #[inline]
    pub(super) fn check(&self, more: usize) -> Result<(), EncodeError> {
        let length = self.length().saturating_add(more);
        match u32::try_from(length) {
            Ok(length) if length <= self.max_length => Ok(()),
            _ => Err(EncodeError::TooLong { length, limit: self.max_length }),
        }
    }

    /// Writes the length. From now on the frame is part of the buffer.
    #[inline]
    pub(super) fn finish(mut self) -> Result<(), EncodeError> {
        self.check(0)?;
        let length = u32::try_from(self.length()).unwrap_or(u32::MAX);
        self.buffer.patch(self.mark, self.header.length_at, length);
        self.finished = true;
        Ok(())
    }

    /// Length on the wire so far: kind byte and body.
    #[inline]
    fn length(&self) -> usize {
        self.buffer.since(self.mark).saturating_sub(self.header.bytes().saturating_sub(1))
    }
}

impl Drop for Frame<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.finished {
            self.buffer.roll_back(self.mark);
        }
    }
}
