use std::error::Error;
use std::fmt;

use super::proof::{Proof, TextError};
use crate::codec::error::Scope;

/// Client's answer to a challenge: its name, and the proof.
///
/// ```text
/// schema 00 user 00 [ * 40 hexadecimal digits ]
/// ```
///
/// *Shape*: borrows the names. Both are bytes without 00, in UTF-8 by custom. `Debug` hides the
/// proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply<'a> {
    /// Database to check access to; sessions do not start in it. Clients leave it empty.
    pub schema: &'a [u8],
    /// Account name. An empty name can be read here; a server refuses it.
    pub user: &'a [u8],
    /// Proof that the client knows the password; none for an empty password.
    pub proof: Option<Proof>,
}

impl<'a> Reply<'a> {
    /// A reply without a schema.
    #[must_use]
    pub const fn new(user: &'a [u8], proof: Option<Proof>) -> Self {
        Self { schema: b"", user, proof }
    }

    /// Reads the data of the client's second frame.
    ///
    /// # Errors
    ///
    /// [`ReplyError`]: the bytes have another form. The login fails, the connection may live.
    pub fn parse(data: &'a [u8]) -> Result<Self, ReplyError> {
        let (schema, rest) = until_nul(data).ok_or(ReplyError::NoSeparator { found: 0 })?;
        let (user, proof) = until_nul(rest).ok_or(ReplyError::NoSeparator { found: 1 })?;
        let proof = match proof {
            [] => None,
            text => Some(Proof::parse(text).map_err(ReplyError::Proof)?),
        };
        Ok(Self { schema, user, proof })
    }

    /// Returns the bytes to send.
    ///
    /// # Errors
    ///
    /// [`ReplyError::NulInName`]: schema or user hold a 00, which separates them. It is the
    /// caller's mistake.
    pub fn encode(&self) -> Result<Vec<u8>, ReplyError> {
        if self.schema.contains(&0) || self.user.contains(&0) {
            return Err(ReplyError::NulInName);
        }
        let proof = self.proof.map(|proof| proof.to_text());
        let proof = proof.as_ref().map_or(&[][..], |text| text);
        Ok([self.schema, &[0], self.user, &[0], proof].concat())
    }
}

/// Reason why bytes are no reply, or a reply has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// Fewer than two 00 separate the three parts.
    NoSeparator {
        /// Number of 00 bytes.
        found: u8,
    },
    /// The bytes behind the user are neither empty nor a proof.
    Proof(TextError),
    /// A name to be sent holds a 00.
    NulInName,
}

impl ReplyError {
    /// Scope of the error: the login. Another one may follow on the connection.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSeparator { found } => write!(f, "{found} separators in place of 2"),
            Self::Proof(_) => f.write_str("malformed proof"),
            Self::NulInName => f.write_str("zero byte in a name"),
        }
    }
}

impl Error for ReplyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Proof(error) => Some(error),
            Self::NoSeparator { .. } | Self::NulInName => None,
        }
    }
}

/// Returns the bytes before the first 00 and those behind it.
fn until_nul(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = data.iter().position(|&byte| byte == 0)?;
    let (before, rest) = data.split_at_checked(at)?;
    Some((before, rest.split_first()?.1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_part_may_be_empty() {
        let reply = Reply::parse(b"\0\0");
        assert_eq!(reply, Ok(Reply::new(b"", None)));
        let reply = Reply::parse(b"db\0me\0");
        assert_eq!(reply, Ok(Reply { schema: b"db", user: b"me", proof: None }));
        assert_eq!(reply.and_then(|reply| reply.encode()), Ok(b"db\0me\0".to_vec()));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(Reply::parse(b""), Err(ReplyError::NoSeparator { found: 0 }));
        assert_eq!(Reply::parse(b"root"), Err(ReplyError::NoSeparator { found: 0 }));
        assert_eq!(Reply::parse(b"\0root"), Err(ReplyError::NoSeparator { found: 1 }));
        let error = ReplyError::Proof(TextError::Length { length: 1 });
        assert_eq!(Reply::parse(b"\0root\0*"), Err(error));
        assert_eq!(Reply::parse(b"\0root\0\0"), Err(error));
        assert_eq!(error.source().map(ToString::to_string), Some("length 1 is not 41".into()));
    }

    #[test]
    fn a_name_with_a_zero_byte_is_not_sent() {
        assert_eq!(Reply::new(b"a\0b", None).encode(), Err(ReplyError::NulInName));
        let reply = Reply { schema: b"\0", user: b"", proof: None };
        assert_eq!(reply.encode(), Err(ReplyError::NulInName));
    }

    proptest! {
        #[test]
        fn any_reply_reads_back(
            schema in prop::collection::vec(1_u8.., 0..9),
            user in prop::collection::vec(1_u8.., 0..9),
            proof: Option<[u8; 20]>,
        ) {
            let proof = proof.map(Proof::from_bytes);
            let reply = Reply { schema: &schema, user: &user, proof };
            let bytes = reply.encode().unwrap_or_default();
            prop_assert_eq!(Reply::parse(&bytes), Ok(reply));
        }

        #[test]
        fn any_bytes_that_are_a_reply_encode_to_themselves(data: Vec<u8>) {
            let mut data = data;
            data.make_ascii_lowercase();
            if let Ok(reply) = Reply::parse(&data) {
                prop_assert_eq!(reply.encode(), Ok(data.clone()));
            }
        }
    }
}
