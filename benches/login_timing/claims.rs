//! The kinds of login that are compared.

use epoll_group::codec::auth::{Proof, Reply};

pub(crate) const KNOWN: &str = "alice";
/// Has the length of the other name.
pub(crate) const UNKNOWN: &str = "mallo";
pub(crate) const PASSWORD: &[u8] = b"a password";

/// A login that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A wrong proof, of a user that exists.
    Wrong,
    /// A wrong proof, of a user that does not exist.
    Unknown,
    /// A proof whose first bytes are right.
    Right(usize),
    /// A proof that is too short, of a user that exists.
    Short,
    /// A proof that is too short, of a user that does not exist.
    ShortUnknown,
    /// No proof, of a user that exists and has a password.
    Nothing,
    /// No proof, of a user that does not exist.
    NothingUnknown,
}

/// The bytes from here on are wrong in every kind.
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

    /// The answer to a challenge.
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
