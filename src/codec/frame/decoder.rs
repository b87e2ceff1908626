//! Decoder: bytes in any pieces become whole frames.

use std::fmt;

use crate::codec::error::MessageError;
use crate::codec::frame::{Dialect, Header, HeaderError};
use crate::codec::limits::Limits;
use crate::codec::message::{ClientMessage, ServerMessage};

/// One whole frame, in the buffer of its bytes.
///
/// `Debug` shows the header and not the body, which may be a login.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    header: Header,
    dialect: Dialect,
    body: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the frame at the start of `input` and the number of its bytes, header included;
    /// `Ok(None)` asks for more bytes. It copies nothing.
    ///
    /// # Errors
    ///
    /// All are the peer's fault and end the connection, see [`HeaderError`].
    #[inline]
    pub fn parse(
        input: &'a [u8],
        dialect: Dialect,
        limits: &Limits,
    ) -> Result<Option<(Self, usize)>, HeaderError> {
        let Some(header) = dialect.parse(input, limits.frame_bytes)? else {
            return Ok(None);
        };
        Ok(Self::cut(input, dialect, header))
    }

    /// Returns the frame at the start of `input`, whose header is known, if all of it is there.
    #[inline]
    fn cut(input: &'a [u8], dialect: Dialect, header: Header) -> Option<(Self, usize)> {
        let bytes = input.get(..dialect.frame_bytes(&header))?;
        let body = bytes.get(dialect.header_bytes()..)?;
        Some((Self { header, dialect, body, bytes }, bytes.len()))
    }

    /// Number of the session to which the frame belongs.
    #[inline]
    #[must_use]
    pub const fn session(&self) -> u64 {
        self.header.session
    }

    /// Kind of the frame's body. Clients and servers use the same numbers with different meanings.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> u8 {
        self.header.kind
    }

    /// The form of its header.
    #[inline]
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Its body.
    #[inline]
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Bytes of header and body. A proxy that changes nothing passes these on.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Decodes the message of a client.
    ///
    /// # Errors
    ///
    /// If the body is malformed, the connection ends. If it is beyond `limits`, only the request
    /// ends: see [`MessageError::scope`].
    #[inline(always)]
    pub fn client_message(&self, limits: &Limits) -> Result<ClientMessage, MessageError> {
        ClientMessage::decode(self.header.kind, self.body, limits)
    }

    /// Decodes the message of a server.
    ///
    /// # Errors
    ///
    /// Those of [`Self::client_message`].
    #[inline]
    pub fn server_message(&self, limits: &Limits) -> Result<ServerMessage, MessageError> {
        ServerMessage::decode(self.dialect, self.header.kind, self.body, limits)
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("header", &self.header)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

/// Decoder of one direction of a connection. It accepts the bytes in any pieces and returns their
/// frames.
///
/// *Shape*: owned by the reader of the connection. It holds the bytes that were fed and not yet
/// taken as frames, and at most about as many bytes of taken frames. It never reserves memory for
/// an announced length. When it holds no bytes, it keeps at most 16 KiB.
///
/// A caller that has its bytes in a buffer already reads them there: [`Frame::parse`].
#[derive(Clone)]
pub struct Decoder {
    limits: Limits,
    dialect: Dialect,
    buffer: Vec<u8>,
    /// Bytes at the start of `buffer` that were returned as frames.
    taken: usize,
    /// Header at `taken`, after it was accepted. Later limits do not apply to it.
    header: Option<Header>,
    failed: Option<HeaderError>,
}

impl Decoder {
    /// Decoder for headers of 13 bytes.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self::with_dialect(limits, Dialect::Legacy)
    }

    /// Decoder for a dialect that is known at run time.
    #[must_use]
    pub const fn with_dialect(limits: Limits, dialect: Dialect) -> Self {
        Self { limits, dialect, buffer: Vec::new(), taken: 0, header: None, failed: None }
    }

    /// Sets other limits for frames whose headers were not read yet, for example after a login; see
    /// [`Limits::before_login`].
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Bytes that were fed and not yet returned as frames.
    #[inline]
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.taken)
    }

    /// Adds the next bytes of the connection, in any pieces. After an error they are dropped.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.tidy();
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole frame; `Ok(None)` asks for more bytes.
    ///
    /// # Errors
    ///
    /// All are the peer's fault and end the connection, see [`HeaderError`]. Earlier frames are
    /// returned first. After an error every call returns the same error.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, HeaderError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let header = match self.header {
            Some(header) => header,
            None => match self.next_header() {
                Ok(Some(header)) => header,
                Ok(None) => {
                    self.tidy();
                    return Ok(None);
                }
                Err(error) => {
                    self.failed = Some(error);
                    self.buffer = Vec::new();
                    self.taken = 0;
                    return Err(error);
                }
            },
        };
        if self.held_bytes() < self.dialect.frame_bytes(&header) {
            self.header = Some(header);
            self.tidy();
            return Ok(None);
        }
        self.header = None;
        let held = self.buffer.get(self.taken..).unwrap_or_default();
        Ok(Frame::cut(held, self.dialect, header).map(|(frame, bytes)| {
            self.taken = self.taken.saturating_add(bytes);
            frame
        }))
    }

    #[inline]
    fn next_header(&self) -> Result<Option<Header>, HeaderError> {
        let held = self.buffer.get(self.taken..).unwrap_or_default();
        self.dialect.parse(held, self.limits.frame_bytes)
    }

    /// Drops the returned bytes when they are half of the buffer. Therefore every byte is moved at
    /// most once on average, and the dead half is never larger than the live one.
    #[inline]
    fn tidy(&mut self) {
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
            if self.buffer.capacity() > KEEP_BYTES {
                self.buffer = Vec::new();
            }
        } else if self.taken >= self.held_bytes() {
            self.drop_taken();
        }
    }

    #[cold]
    fn drop_taken(&mut self) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        // After a large frame has been returned, a small rest does not keep its memory.
        if self.buffer.capacity() > KEEP_BYTES {
            self.buffer.shrink_to(self.buffer.len().saturating_mul(2));
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("limits", &self.limits)
            .field("dialect", &self.dialect)
            .field("held_bytes", &self.held_bytes())
            .field("header", &self.header)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Capacity that an empty decoder keeps, so that a connection with small frames does not allocate
/// for each of them.
const KEEP_BYTES: usize = 16 << 10;
