//! The kinds of login that are compared.

use epoll_group::codec::auth::{Proof, Reply};

pub(crate) const KNOWN: &str = "alice";
/// As long as the other.
pub(crate) const UNKNOWN: &str = "mallo";
pub(crate) const PASSWORD: &[u8] = b"a password";

/// What somebody sends who wants to get in, and does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A proof of nothing, of a user that exists.
    Wrong,
    /// The same, of one that does not exist.
    Unknown,
    /// So many bytes of the proof are right.
    Right(usize),
    /// A proof that is too short, of a user that exists.
    Short,
    /// The same, of one that does not exist.
    ShortUnknown,
    /// No proof, of a user that exists and has a password.
    Nothing,
    /// The same, of one that does not exist.
    NothingUnknown,
}

/// Place of the bytes that are wrong whatever the kind.
const LAST: usize = 19;

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Wrong => "wrong password",
            Self::Unknown => "unknown user",
            Self::Right(0) => "no byte of the proof right",
            Self::Right(10) => "10 bytes right",
            Self::Right(_) => "19 bytes right",
            Self::Short => "short proof",
            Self::ShortUnknown => "short proof, unknown user",
            Self::Nothing => "no proof",
            Self::NothingUnknown => "no proof, unknown user",
        }
    }

    pub(crate) const fn user_exists(self) -> bool {
        !matches!(self, Self::Unknown | Self::ShortUnknown | Self::NothingUnknown)
    }

    /// What answers the challenge.
    pub(crate) fn answer(self, challenge: &[u8]) -> Vec<u8> {
        let user = if self.user_exists() { KNOWN } else { UNKNOWN };
        let right = Proof::new(PASSWORD, challenge).map(|proof| *proof.as_bytes());
        let mut proof = right.expect("a password that is not empty");
        let right = match self {
            Self::Right(bytes) => bytes,
            _ => 0,
        };
        for byte in &mut proof[right.min(LAST)..] {
            *byte ^= 0x5a;
        }
        let sent = match self {
            Self::Nothing | Self::NothingUnknown => None,
            _ => Some(Proof::from_bytes(proof)),
        };
        let mut answer = Reply::new(user.as_bytes(), sent).encode().expect("no zeros in a name");
        if matches!(self, Self::Short | Self::ShortUnknown) {
            answer.truncate(answer.len() - 3);
        }
        answer
    }
}
