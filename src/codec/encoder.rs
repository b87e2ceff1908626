//! Encoder of the hot path: frames of a server, written straight into the output buffer.
//!
//! ```text
//!  header          tag  len  cell      tag  len  cell
//! ┌─────┬─────┬──┐┌────┬────┬────────┐┌────┬────┬──────┄┄┐
//! │ sid │ len │ k││ 0a │ 03 │ c6 06 …││ 0a │ 0b │ h e l  0│      one word each: in registers, then
//! └─────┴──▲──┴──┘└────┴────┴────────┘└────┴────┴──────┄┄┘      one store; text behind its two bytes
//!          └─ patched when the row is complete
//! ```
//!
//! No message is built in memory first. The length of each cell is known before it is written. Only
//! the length in the header is patched, and no length is padded. Frames of one shape (the end of a
//! result, a number of rows) are constants into which numbers are put.
//!
//! A frame is written whole or not at all. It fails if it is longer than 64 MiB, or if the code that
//! fills it fails or panics. Then its bytes are removed again.
//!
//! # Buffers
//!
//! Output buffers for frames: pages from a bounded pool.
//!
//! ```text
//!  PagePool ── spare pages, for all buffers, up to a number
//!     ▲ │
//!     │ ▼ one lock per page
//!  OutBuffer   ┌──────────────┐┌──────────────┐┌───────╌╌╌╌╌╌╌┐
//!              │ sent ▏  full ││         full ││ open  ▏ room │     + a few spare pages of its own
//!              └──────────────┘└──────────────┘└───────╌╌╌╌╌╌╌┘
//!                     └────── slices, for a vectored send ──┘
//! ```
//!
//! A frame may span pages; a header, an integer or a date does not. Written bytes never move, so a
//! large result costs no copies of earlier bytes. Sent bytes go back page by page. The pages are
//! plain `Vec<u8>`, and nothing here is unsafe.
//!
//! Pages replace one growing vector for the sake of memory, not of speed. A result of 1 000 rows
//! (92 KB) takes the same 460 instructions and 26 ns a row with pages of 4 KiB, 16 KiB or 64 KiB. A
//! page of 1 MiB, which is one vector large enough, takes the same. Growing a vector costs 3 ns a
//! row once (`benches/codec.rs`, November 2026).
//!
//! A buffer that once held a large result keeps ten spare pages at most, not the result. The
//! session layer keeps one buffer for each thread that writes replies, and none for a session.
//! Pages that a slow peer has taken are free for other sessions while it takes the rest. Pages of
//! 16 KiB make a result of that size six slices for one system call.

mod buffer;
mod frame;
mod metadata;
mod notice;
mod row;

pub use buffer::{OutBuffer, PagePool};
use frame::Frame;
pub use row::RowWriter;

use crate::codec::error::EncodeError;
use crate::codec::frame::Dialect;
use crate::codec::message::{ServerKind, ServerMessage};
use crate::codec::proto::generic::Severity;
use crate::codec::wire::Word;

/// Extent of the description of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Metadata {
    /// All known metadata.
    #[default]
    Full,
    /// Metadata without names, as the request can ask for: `compact_metadata`.
    Compact,
}

/// Writer of the frames of one session into a buffer.
///
/// *Shape*: borrows the buffer while it writes. Making one costs a few registers, so it is made
/// anew for each reply. It keeps no state between frames: the caller decides their order.
///
/// # Errors
///
/// A frame above 64 MiB, body and kind byte, is an [`EncodeError`]: both existing peers accept no
/// more. Nothing of it is written; the request fails.
///
/// # Examples
///
/// A whole result:
///
/// ```
/// use epoll_group::codec::encoder::{Encoder, OutBuffer};
/// use epoll_group::codec::row::Column;
///
/// let mut buffer = OutBuffer::default();
/// let mut out = Encoder::new(&mut buffer, 2);
/// out.column(&Column::signed("1"))?;
/// out.row(|row| row.int(1))?;
/// out.fetch_done();
/// out.rows_affected(0);
/// out.execute_ok();
/// # assert_eq!(buffer.to_vec().last(), Some(&17));
/// # Ok::<(), epoll_group::codec::error::EncodeError>(())
/// ```
#[derive(Debug)]
pub struct Encoder<'b> {
    buffer: &'b mut OutBuffer,
    header: Template,
    max_length: u32,
    metadata: Metadata,
}

/// Header of all frames of a session, without length and kind.
#[derive(Clone, Copy, Debug)]
struct Template {
    bits: u128,
    /// Offset of the length: 8, or 9 behind a version byte.
    length_at: usize,
}

impl<'b> Encoder<'b> {
    /// Largest length of a frame: 64 MiB, the limit of both existing peers.
    const DEFAULT_MAX_LENGTH: u32 = 64 << 20;

    /// Encoder for frames of `session`, with the header of 13 bytes.
    #[must_use]
    pub fn new(buffer: &'b mut OutBuffer, session: u64) -> Self {
        Self::with_dialect(buffer, Dialect::Legacy, session)
    }

    /// Encoder for frames of `session` in either dialect: with its header, and its message for
    /// metadata.
    #[must_use]
    pub fn with_dialect(buffer: &'b mut OutBuffer, dialect: Dialect, session: u64) -> Self {
        let session = u128::from(session);
        let header = match dialect {
            Dialect::Legacy => Template { bits: session, length_at: 8 },
            Dialect::Galaxy { version } => {
                Template { bits: session | u128::from(version) << 64, length_at: 9 }
            }
        };
        Self { buffer, header, max_length: Self::DEFAULT_MAX_LENGTH, metadata: Metadata::Full }
    }

    /// Sets the largest length of a frame, body and kind byte.
    #[cfg(test)]
    pub(crate) fn max_length(self, bytes: u32) -> Self {
        Self { max_length: bytes, ..self }
    }

    /// Sets the extent of the description of columns.
    #[must_use]
    pub fn metadata(self, metadata: Metadata) -> Self {
        Self { metadata, ..self }
    }

    /// Writes a row. `fill` writes its cells, one per column, in their order.
    #[inline]
    pub fn row(&mut self, fill: impl FnOnce(&mut RowWriter<'_>)) -> Result<(), EncodeError> {
        let mut row = self.begin_row();
        fill(&mut row);
        row.finish()
    }

    /// Begins a row that is written cell by cell and then [finished](RowWriter::finish). If it is
    /// dropped before, nothing of it is written. So the source of the cells may fail half-way.
    #[inline]
    pub fn begin_row(&mut self) -> RowWriter<'_> {
        RowWriter::new(self.begin(ServerKind::Row))
    }

    /// Writes a frame of any kind whose body exists already, in parts: a chunk, or a frame that a
    /// proxy passes on.
    pub fn frame(&mut self, kind: u8, body: &[&[u8]]) -> Result<(), EncodeError> {
        let mut frame = self.begin_any(kind);
        for part in body {
            frame.bytes(part)?;
        }
        frame.finish()
    }

    /// Largest body that a frame can have.
    pub(super) fn max_body_bytes(&self) -> usize {
        usize::try_from(self.max_length).unwrap_or(usize::MAX).saturating_sub(1)
    }

    /// Writes a message of the generated types: for rare replies.
    pub fn message(&mut self, message: &ServerMessage) -> Result<(), EncodeError> {
        let dialect = self.header.dialect();
        // The length is computed first, so that a message that is too long is not built at all.
        let length = message.body_bytes(dialect).saturating_add(1);
        if u32::try_from(length).is_ok_and(|length| length <= self.max_length) {
            let mut body = Vec::with_capacity(length);
            message.encode_body(dialect, &mut body);
            self.frame(message.kind(), &[&body])
        } else {
            Err(EncodeError::TooLong { length, limit: self.max_length })
        }
    }

    /// Writes an error: the last frame of a reply.
    ///
    /// `sql_state` is five characters, `text` in the character set of the result.
    pub fn error(
        &mut self,
        severity: Severity,
        code: u32,
        sql_state: &[u8; 5],
        text: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), EncodeError> {
        let severity = match severity {
            Severity::Error => Word::constant([0x08, 0, 0x10]),
            Severity::Fatal => Word::constant([0x08, 1, 0x10]),
        };
        let text = text.as_ref();
        let mut frame = self.begin(ServerKind::Error);
        frame.word(severity.then(Word::varint(code.into())));
        frame.field(0x1a, text)?;
        frame.field(0x22, sql_state)?;
        frame.finish()
    }

    /// Writes the end of the rows, and of the results of this request.
    pub fn fetch_done(&mut self) {
        self.constant(ServerKind::FetchDone, Word::constant([]));
    }

    /// Writes the end of the rows; the metadata of another result follows.
    pub fn fetch_done_more_resultsets(&mut self) {
        self.constant(ServerKind::FetchDoneMoreResultsets, Word::constant([]));
    }

    /// Writes that the budget of the result is used up: no rows follow until the peer offers more.
    pub fn token_done(&mut self) {
        self.constant(ServerKind::TokenDone, Word::constant([]));
    }

    /// Writes the end of a statement.
    pub fn execute_ok(&mut self) {
        self.constant(ServerKind::StmtExecuteOk, Word::constant([]));
    }

    /// Writes the reply to a request that returns nothing. The reply to a new session can name the
    /// connection.
    pub fn ok(&mut self, connection_id: Option<u32>) {
        let body = match connection_id {
            None => Word::constant([]),
            Some(id) => Word::constant([0x10]).then(Word::varint(id.into())),
        };
        self.constant(ServerKind::Ok, body);
    }

    /// Writes a run of timestamps from `first` on.
    pub fn timestamps(&mut self, first: u64) {
        self.constant(ServerKind::Tso, Word::constant([0x08, 0, 0x10]).then(Word::varint(first)));
    }

    /// Writes a frame whose body is so short that it is a word. The limit is not checked: the
    /// smallest sensible limit is above it.
    #[inline]
    fn constant(&mut self, kind: ServerKind, body: Word) {
        self.buffer.put(self.header.word(kind.number(), body.len()));
        self.buffer.put(body);
    }

    /// Begins a frame, to be finished or rolled back.
    #[inline]
    fn begin(&mut self, kind: ServerKind) -> Frame<'_> {
        self.begin_any(kind.number())
    }

    #[inline]
    fn begin_any(&mut self, kind: u8) -> Frame<'_> {
        Frame::new(self.buffer, self.header, kind, self.max_length)
    }
}

impl Template {
    /// Header of a frame with a body of `body_bytes`, which is short.
    #[inline]
    const fn word(self, kind: u8, body_bytes: usize) -> Word {
        let length = body_bytes.saturating_add(1) as u128 | (kind as u128) << 32;
        let bits = self.bits | if self.is_galaxy() { length << 72 } else { length << 64 };
        Word::new(bits, if self.is_galaxy() { 14 } else { 13 })
    }

    #[inline]
    const fn bytes(self) -> usize {
        self.length_at.saturating_add(5)
    }

    const fn is_galaxy(self) -> bool {
        self.length_at == 9
    }

    /// Dialect of the bodies, which do not depend on the version.
    const fn dialect(self) -> Dialect {
        if self.is_galaxy() { Dialect::Galaxy { version: 0 } } else { Dialect::Legacy }
    }
}

#[cfg(test)]
mod tests;
