//! The two forms of the header.

use crate::codec::frame::{HEADER_BYTES, Header, HeaderError};

/// Form of the headers of a connection, the same in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// 13 bytes. Today's servers and clients use this form.
    #[default]
    Legacy,
    /// 14 bytes, one of them a version that must be the same in every frame. The older line of
    /// servers uses this form, and describes columns in another message.
    Galaxy {
        /// The version; existing clients know only 0.
        version: u8,
    },
}

impl Dialect {
    /// Bytes of a header.
    #[inline]
    #[must_use]
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Legacy => HEADER_BYTES,
            Self::Galaxy { .. } => HEADER_BYTES.saturating_add(1),
        }
    }

    /// Bytes of a frame with this header.
    #[inline]
    #[must_use]
    pub fn frame_bytes(self, header: &Header) -> usize {
        // Only a 16-bit or 32-bit `usize` can saturate, and a buffer of that size cannot exist.
        usize::try_from(header.body_bytes).unwrap_or(usize::MAX).saturating_add(self.header_bytes())
    }

    /// Reads the header at the start of `input`; `Ok(None)` asks for more bytes.
    ///
    /// `max_length` bounds the length on the wire, that is the body and one byte for the kind. The
    /// answer does not depend on how the input was split: no field is judged before the whole
    /// header is there.
    ///
    /// # Errors
    ///
    /// All are the peer's fault, see [`HeaderError`]. The rest of the stream cannot be read, so the
    /// connection ends.
    #[inline]
    pub const fn parse(self, input: &[u8], max_length: u32) -> Result<Option<Header>, HeaderError> {
        let Self::Galaxy { version } = self else {
            return Header::parse(input, max_length);
        };
        let Some(&[s0, s1, s2, s3, s4, s5, s6, s7, found, l0, l1, l2, l3, kind]) =
            input.first_chunk::<14>()
        else {
            return Ok(None);
        };
        // Without its ninth byte the header is that of the other dialect.
        let legacy = [s0, s1, s2, s3, s4, s5, s6, s7, l0, l1, l2, l3, kind];
        match Header::parse(&legacy, max_length) {
            Err(HeaderError::ZeroLength) => Err(HeaderError::ZeroLength),
            _ if found != version => Err(HeaderError::Version { found, expected: version }),
            result => result,
        }
    }

    /// Appends the header to `out`.
    pub fn encode(self, header: &Header, out: &mut Vec<u8>) {
        let bytes = header.encode();
        match self {
            Self::Legacy => out.extend_from_slice(&bytes),
            Self::Galaxy { version } => {
                let [s0, s1, s2, s3, s4, s5, s6, s7, rest @ ..] = bytes;
                out.extend_from_slice(&[s0, s1, s2, s3, s4, s5, s6, s7, version]);
                out.extend_from_slice(&rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GALAXY: Dialect = Dialect::Galaxy { version: 0 };

    #[test]
    fn known_bytes_both_ways() {
        let header = Header::new(2, 110, 0);
        let mut bytes = Vec::new();
        GALAXY.encode(&header, &mut bytes);
        assert_eq!(bytes, [2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x6e]);
        assert_eq!(GALAXY.parse(&bytes, 1), Ok(Some(header)));
        assert_eq!(GALAXY.frame_bytes(&Header::new(2, 101, 15)), 29);
        assert_eq!(Dialect::Legacy.frame_bytes(&Header::new(2, 101, 15)), 28);
        for (cut, _) in bytes.iter().enumerate() {
            assert_eq!(GALAXY.parse(bytes.get(..cut).unwrap_or_default(), 1), Ok(None));
        }
    }

    #[test]
    fn another_version_is_refused_but_length_zero_comes_first() {
        let mut bytes = [0; 14];
        bytes[8] = 7;
        assert_eq!(GALAXY.parse(&bytes, 1), Err(HeaderError::ZeroLength));
        bytes[9] = 2;
        let error = HeaderError::Version { found: 7, expected: 0 };
        assert_eq!(GALAXY.parse(&bytes, 1), Err(error));
        assert_eq!(error.to_string(), "version 7 is not 0");
        let seven = Dialect::Galaxy { version: 7 };
        assert_eq!(seven.parse(&bytes, 2), Ok(Some(Header::new(0, 0, 1))));
        assert_eq!(seven.parse(&bytes, 1), Err(HeaderError::TooLong { length: 2, limit: 1 }));
    }

    proptest! {
        #[test]
        fn encode_then_parse_gives_the_same_header(
            session: u64, kind: u8, version: u8, body_bytes in 0..=Header::MAX_BODY_BYTES,
        ) {
            let header = Header::new(session, kind, body_bytes);
            for dialect in [Dialect::Legacy, Dialect::Galaxy { version }] {
                let mut bytes = Vec::new();
                dialect.encode(&header, &mut bytes);
                prop_assert_eq!(bytes.len(), dialect.header_bytes());
                prop_assert_eq!(dialect.parse(&bytes, u32::MAX), Ok(Some(header)));
            }
        }
    }
}
