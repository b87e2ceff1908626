//! Frame header: session, length and kind.

use std::error::Error;
use std::fmt;

use crate::codec::error::Scope;

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 13;

/// The header of one frame.
///
/// *Shape*: a small `Copy` value; it borrows nothing and owns no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Header {
    /// Session that the frame belongs to.
    pub session: u64,
    /// Kind of the body. Every value is accepted here; the layers above know its meaning.
    pub kind: u8,
    /// Bytes of the body that follows the header, at most 2³² − 2: the length field counts the kind
    /// byte too.
    pub body_bytes: u32,
}

impl Header {
    /// Largest body that the wire can express.
    pub(in crate::codec) const MAX_BODY_BYTES: u32 = u32::MAX - 1;

    /// Creates a header for a body of `body_bytes`.
    ///
    /// # Panics
    ///
    /// When `body_bytes` is above 2³² − 2: there is no header for such a body.
    /// [`Dialect::parse`](crate::codec::frame::Dialect::parse) never returns a larger one.
    #[must_use]
    pub const fn new(session: u64, kind: u8, body_bytes: u32) -> Self {
        assert!(body_bytes <= Self::MAX_BODY_BYTES, "body exceeds what the length field can hold");
        Self { session, kind, body_bytes }
    }

    /// Does what [`Dialect::parse`](crate::codec::frame::Dialect::parse) does for the legacy form.
    #[inline]
    pub(super) const fn parse(input: &[u8], max_length: u32) -> Result<Option<Self>, HeaderError> {
        let Some(&[s0, s1, s2, s3, s4, s5, s6, s7, l0, l1, l2, l3, kind]) =
            input.first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let Some(body_bytes) = length.checked_sub(1) else {
            return Err(HeaderError::ZeroLength);
        };
        if length > max_length {
            return Err(HeaderError::TooLong { length, limit: max_length });
        }
        let session = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        Ok(Some(Self { session, kind, body_bytes }))
    }

    /// Header in the form of [`Dialect::Legacy`](crate::codec::frame::Dialect::Legacy).
    ///
    /// A `body_bytes` set by hand above 2³² − 2 is written as that maximum.
    #[must_use]
    pub const fn encode(&self) -> [u8; HEADER_BYTES] {
        let [s0, s1, s2, s3, s4, s5, s6, s7] = self.session.to_le_bytes();
        let [l0, l1, l2, l3] = self.body_bytes.saturating_add(1).to_le_bytes();
        [s0, s1, s2, s3, s4, s5, s6, s7, l0, l1, l2, l3, self.kind]
    }
}

/// Reason why the bytes at the start of the input are no header. Ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The length is 0, but it counts the kind byte and so is at least 1.
    ZeroLength,
    /// The length is above the largest that the receiver accepts.
    TooLong {
        /// Length on the wire: body and kind byte.
        length: u32,
        /// Largest length accepted.
        limit: u32,
    },
    /// The version differs from that of this connection. Only in the galaxy dialect.
    Version {
        /// Version in the header.
        found: u8,
        /// Version of the connection.
        expected: u8,
    },
}

impl HeaderError {
    /// Scope of the error: always the connection, because the start of the next frame is unknown.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Connection
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLength => f.write_str("length 0 is below 1"),
            Self::TooLong { length, limit } => write!(f, "length {length} exceeds {limit}"),
            Self::Version { found, expected } => write!(f, "version {found} is not {expected}"),
        }
    }
}

impl Error for HeaderError {}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic on its own mistakes")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u32 = 64 << 20;

    fn bytes_with_length(length: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0xab; HEADER_BYTES];
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    #[test]
    fn known_bytes_both_ways() {
        let cases = [
            (Header::new(2, 110, 0), [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x6e]),
            (Header::new(2, 101, 15), [2, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0x65]),
            (
                Header::new(0x0102_0304_0506_0708, 9, 0x0a0b_0c0d - 1),
                [8, 7, 6, 5, 4, 3, 2, 1, 0x0d, 0x0c, 0x0b, 0x0a, 9],
            ),
            (Header::new(u64::MAX, u8::MAX, Header::MAX_BODY_BYTES), [0xff; HEADER_BYTES]),
        ];
        for (header, bytes) in cases {
            assert_eq!(header.encode(), bytes);
            assert_eq!(Header::parse(&bytes, u32::MAX), Ok(Some(header)));
        }
    }

    #[test]
    fn length_zero_is_refused_whatever_the_limit() {
        let bytes = bytes_with_length(0);
        for limit in [0, 1, LIMIT, u32::MAX] {
            for cut in 0..HEADER_BYTES {
                assert_eq!(Header::parse(&bytes[..cut], limit), Ok(None), "cut at {cut}");
            }
            assert_eq!(Header::parse(&bytes, limit), Err(HeaderError::ZeroLength));
        }
        assert_eq!(HeaderError::ZeroLength.to_string(), "length 0 is below 1");
    }

    #[test]
    fn the_limit_itself_passes_and_one_more_does_not() {
        let at = Header::parse(&bytes_with_length(LIMIT), LIMIT);
        assert_eq!(at.map(|header| header.map(|h| h.body_bytes)), Ok(Some(LIMIT - 1)));
        let error = HeaderError::TooLong { length: LIMIT + 1, limit: LIMIT };
        assert_eq!(Header::parse(&bytes_with_length(LIMIT + 1), LIMIT), Err(error));
        assert_eq!(error.to_string(), "length 67108865 exceeds 67108864");
    }

    #[test]
    #[should_panic(expected = "body exceeds")]
    fn a_body_that_has_no_header_is_the_callers_mistake() {
        let _ = Header::new(0, 0, u32::MAX);
    }

    #[test]
    fn a_body_size_set_by_hand_never_wraps_to_length_zero() {
        let mut header = Header::new(0, 0, 0);
        header.body_bytes = u32::MAX;
        assert_eq!(&header.encode()[8..12], [0xff; 4]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_to_an_answer_within_the_limit(
            input in prop::collection::vec(any::<u8>(), 0..32), limit: u32,
        ) {
            let parsed = Header::parse(&input, limit);
            prop_assert_eq!(parsed == Ok(None), input.len() < HEADER_BYTES);
            match parsed {
                Ok(None) => {}
                Ok(Some(header)) => {
                    prop_assert!(header.body_bytes < limit);
                    prop_assert_eq!(&header.encode()[..], &input[..HEADER_BYTES]);
                }
                Err(HeaderError::ZeroLength) => prop_assert_eq!(&input[8..12], [0; 4]),
                Err(HeaderError::TooLong { length, limit: l }) => {
                    prop_assert!(l == limit && length > limit);
                }
                Err(HeaderError::Version { .. }) => prop_assert!(false, "there is no version"),
            }
        }
    }
}
