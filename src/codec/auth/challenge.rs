use std::error::Error;
use std::fmt;

use super::crypt::{MAX_CRYPT_PASSWORD_BYTES, crypt_digest};
use super::proof::{LOWER, Proof, digit, nibble};
use crate::codec::error::Scope;

/// Random bytes of a challenge, and bytes of an account's salt.
pub const SALT_BYTES: usize = 20;

/// Bytes that a server asks the client to hash.
///
/// ```text
/// Classic  any bytes, 20 by custom
/// Salted   salt, 20 │ '0'
/// Crypted  salt, 20 │ rounds / 1000, three hexadecimal digits │ '$' │ account salt, 20 │ '1'
/// ```
///
/// *Shape*: borrows the bytes received. A challenge is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Challenge<'a> {
    /// All bytes are hashed. An empty challenge is legal here, but some servers use it for an
    /// error: a client ends the login rather than answer.
    Classic(&'a [u8]),
    /// The newer form, for an account whose password is kept as a twofold SHA-1.
    Salted {
        /// Bytes that are hashed.
        salt: &'a [u8; SALT_BYTES],
    },
    /// The newer form, for an account whose password is kept as a SHA-256-crypt digest.
    Crypted {
        /// Bytes that are hashed.
        salt: &'a [u8; SALT_BYTES],
        /// Rounds of the digest, a multiple of 1000.
        rounds: u32,
        /// Salt of the digest.
        account_salt: &'a [u8; SALT_BYTES],
    },
}

impl<'a> Challenge<'a> {
    /// Recognises the form: 21 bytes that end in `0` and 45 bytes that end in `1` are the newer
    /// forms, all others are classic.
    ///
    /// A classic challenge of 21 or 45 bytes may look the same by chance. A client that knows that
    /// the server speaks only the classic form makes a [`Challenge::Classic`] of the bytes.
    ///
    /// # Errors
    ///
    /// The 45 bytes do not have the form above: [`ChallengeError::NoRounds`],
    /// [`ChallengeError::NoSeparator`]. The login ends.
    pub fn parse(data: &'a [u8]) -> Result<Self, ChallengeError> {
        let Some((salt, rest)) = data.split_first_chunk::<SALT_BYTES>() else {
            return Ok(Self::Classic(data));
        };
        if rest == b"0" {
            return Ok(Self::Salted { salt });
        }
        let Some((&[d0, d1, d2, separator], rest)) = rest.split_first_chunk::<4>() else {
            return Ok(Self::Classic(data));
        };
        let Some((account_salt, b"1")) = rest.split_first_chunk::<SALT_BYTES>() else {
            return Ok(Self::Classic(data));
        };
        let rounds = rounds_of([d0, d1, d2])?;
        if separator != b'$' {
            return Err(ChallengeError::NoSeparator);
        }
        Ok(Self::Crypted { salt, rounds, account_salt })
    }

    /// Returns the bytes to send.
    ///
    /// # Errors
    ///
    /// [`ChallengeError::Rounds`]: the rounds are no multiple of 1000 in 1000..=4095000. It is the
    /// caller's mistake.
    pub fn encode(&self) -> Result<Vec<u8>, ChallengeError> {
        match *self {
            Self::Classic(data) => Ok(data.to_vec()),
            Self::Salted { salt } => Ok([&salt[..], b"0"].concat()),
            Self::Crypted { salt, rounds, account_salt } => {
                Ok(crypted_bytes(salt, &rounds_text(rounds)?, account_salt))
            }
        }
    }

    /// Part of the challenge that is hashed.
    #[must_use]
    pub const fn hashed(&self) -> &'a [u8] {
        match *self {
            Self::Classic(data) => data,
            Self::Salted { salt } | Self::Crypted { salt, .. } => salt,
        }
    }

    /// Returns the client's proof that it knows `password`; `None` if the password is empty.
    ///
    /// The digest of [`Challenge::Crypted`] costs about two SHA-256 blocks a round, and the server
    /// chooses the rounds. `max_rounds` bounds them; 0 refuses that form. MySQL's own default is
    /// 5000 rounds.
    ///
    /// # Errors
    ///
    /// [`ChallengeError::Rounds`], [`ChallengeError::Password`], both for the crypted form only.
    /// The login ends.
    pub fn prove(&self, password: &[u8], max_rounds: u32) -> Result<Option<Proof>, ChallengeError> {
        match *self {
            Self::Classic(_) | Self::Salted { .. } => Ok(Proof::new(password, self.hashed())),
            Self::Crypted { .. } if password.is_empty() => Ok(None),
            Self::Crypted { salt, rounds, account_salt } => {
                if rounds == 0 || rounds > max_rounds {
                    return Err(ChallengeError::Rounds { rounds, limit: max_rounds });
                }
                let digest = crypt_digest(password, account_salt, rounds)
                    .ok_or(ChallengeError::Password { length: password.len() })?;
                Ok(Proof::new(&digest, salt))
            }
        }
    }
}

/// Bytes of [`Challenge::Crypted`], with the rounds as text.
pub(super) fn crypted_bytes(
    salt: &[u8; SALT_BYTES],
    rounds: &[u8; 3],
    account_salt: &[u8; SALT_BYTES],
) -> Vec<u8> {
    [&salt[..], rounds, b"$", account_salt, b"1"].concat()
}

/// The rounds divided by 1000, in three hexadecimal digits.
pub(super) fn rounds_text(rounds: u32) -> Result<[u8; 3], ChallengeError> {
    let thousands = rounds / 1000;
    if !(1..=MAX_THOUSANDS).contains(&thousands) || !rounds.is_multiple_of(1000) {
        return Err(ChallengeError::Rounds { rounds, limit: MAX_ROUNDS });
    }
    let [low, high, _, _] = thousands.to_le_bytes();
    Ok([high & 15, low >> 4, low & 15].map(|digit| nibble(digit, LOWER)))
}

/// Number of rounds that three hexadecimal digits stand for.
pub(super) fn rounds_of(text: [u8; 3]) -> Result<u32, ChallengeError> {
    let [Some(d0), Some(d1), Some(d2)] = text.map(digit) else {
        return Err(ChallengeError::NoRounds);
    };
    let thousands = u32::from(d0) << 8 | u32::from(d1) << 4 | u32::from(d2);
    Ok(thousands.saturating_mul(1000))
}

/// Makes a salt for a challenge out of random bytes: printable 7-bit characters without `$`.
///
/// Such a salt survives software that treats it as text. It carries 6.5 random bits a byte.
///
/// # Examples
///
/// ```
/// let random = [7; 20]; // from the system's random numbers, fresh for each login
/// let salt = epoll_group::codec::auth::printable_salt(random);
/// assert!(salt.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'$'));
/// ```
#[must_use]
pub const fn printable_salt(mut random: [u8; SALT_BYTES]) -> [u8; SALT_BYTES] {
    let mut rest: &mut [u8] = &mut random;
    while let [byte, after @ ..] = rest {
        // There are 93 characters from '!' to '~' except '$'. The last one, '~', replaces '$'.
        let place = (*byte % 93).saturating_add(b'!');
        *byte = if place == b'$' { b'~' } else { place };
        rest = after;
    }
    random
}

/// Reason why a challenge cannot be read, written or answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChallengeError {
    /// The number of rounds is not written in hexadecimal digits.
    NoRounds,
    /// No `$` stands before the salt of the account.
    NoSeparator,
    /// There are no rounds, more than the caller allows, or no multiple of 1000.
    Rounds {
        /// Rounds of the challenge.
        rounds: u32,
        /// Greatest number of rounds allowed.
        limit: u32,
    },
    /// The text is not that of a digest: `$A$`, three digits, `$`, 20 bytes of salt, 43 characters.
    Digest {
        /// Length of the text in bytes; 70 are needed.
        length: usize,
    },
    /// The password is longer than 256 bytes, or empty. No account of that kind has such a
    /// password.
    Password {
        /// Length of the password in bytes.
        length: usize,
    },
}

impl ChallengeError {
    /// Scope of the error: the login. The caller decides whether the connection lives.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }
}

impl fmt::Display for ChallengeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRounds => f.write_str("rounds of the digest are no number"),
            Self::Digest { length } => {
                let form = "$A$, three digits, $, 20 bytes of salt, 43 characters";
                write!(f, "a text of {length} bytes is no digest: {form}")
            }
            Self::NoSeparator => f.write_str("no separator before the salt of the account"),
            Self::Rounds { rounds, limit } if (1..=*limit).contains(rounds) => {
                write!(f, "{rounds} rounds are no multiple of 1000")
            }
            Self::Rounds { rounds, limit } => write!(f, "{rounds} rounds are not in 1..={limit}"),
            Self::Password { length } => {
                write!(f, "password of {length} bytes, 1 to {MAX_CRYPT_PASSWORD_BYTES} are allowed")
            }
        }
    }
}

impl Error for ChallengeError {}

/// Largest value of three hexadecimal digits.
const MAX_THOUSANDS: u32 = 0xfff;
const MAX_ROUNDS: u32 = MAX_THOUSANDS * 1000;

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test may panic on its own mistakes"
)]
mod tests {
    use proptest::prelude::*;

    use super::super::StoredPassword;
    use super::*;

    const SALT: &[u8; 20] = b"0123456789abcdefghij";
    const ACCOUNT: &[u8; 20] = b"ABCDEFGHIJKLMNOPQRST";

    #[test]
    fn the_forms_are_told_by_length_and_last_byte() {
        for data in [&b""[..], b"0", SALT, b"0123456789abcdefghij\0", b"0123456789abcdefghij1"] {
            assert_eq!(Challenge::parse(data), Ok(Challenge::Classic(data)));
        }
        let salted = Challenge::parse(b"0123456789abcdefghij0");
        assert_eq!(salted, Ok(Challenge::Salted { salt: SALT }));
        let crypted = Challenge::parse(b"0123456789abcdefghij00a$ABCDEFGHIJKLMNOPQRST1");
        let expected = Challenge::Crypted { salt: SALT, rounds: 10_000, account_salt: ACCOUNT };
        assert_eq!(crypted, Ok(expected));
        let other_end = b"0123456789abcdefghij00a$ABCDEFGHIJKLMNOPQRST0";
        assert_eq!(Challenge::parse(other_end), Ok(Challenge::Classic(other_end)));
    }

    #[test]
    fn a_crypted_challenge_of_another_form_is_refused() {
        let data = b"0123456789abcdefghij0x5$ABCDEFGHIJKLMNOPQRST1";
        assert_eq!(Challenge::parse(data), Err(ChallengeError::NoRounds));
        let data = b"0123456789abcdefghij005/ABCDEFGHIJKLMNOPQRST1";
        assert_eq!(Challenge::parse(data), Err(ChallengeError::NoSeparator));
    }

    #[test]
    fn the_newer_forms_hash_the_salt_alone() {
        let classic = Challenge::Classic(SALT).prove(b"secret", 0);
        assert_eq!(Challenge::Salted { salt: SALT }.prove(b"secret", 0), classic);
        let crypted = Challenge::Crypted { salt: SALT, rounds: 1000, account_salt: ACCOUNT };
        let proof = crypted.prove(b"secret", 1000).unwrap();
        let stored = StoredPassword::of(&crypt_digest(b"secret", ACCOUNT, 1000).unwrap());
        assert!(stored.accepts(SALT, proof.as_ref()));
        assert_ne!(Ok(proof), classic);
        assert_eq!(crypted.prove(b"", 0), Ok(None));
    }

    #[test]
    fn the_server_cannot_ask_for_more_rounds_than_allowed() {
        let asks = |rounds| Challenge::Crypted { salt: SALT, rounds, account_salt: ACCOUNT };
        for (rounds, limit) in [(0, 5000), (6000, 5000), (1000, 0)] {
            let error = Err(ChallengeError::Rounds { rounds, limit });
            assert_eq!(asks(rounds).prove(b"secret", limit), error);
        }
        let long = [b'x'; MAX_CRYPT_PASSWORD_BYTES + 1];
        let error = Err(ChallengeError::Password { length: 257 });
        assert_eq!(asks(1000).prove(&long, 1000), error);
        for rounds in [0, 1, 1001, MAX_ROUNDS + 1000, u32::MAX] {
            let error = Err(ChallengeError::Rounds { rounds, limit: MAX_ROUNDS });
            assert_eq!(asks(rounds).encode(), error);
        }
    }

    #[test]
    fn the_error_says_what_is_wrong_with_the_rounds() {
        for (rounds, text) in [
            (0, "0 rounds are not in 1..=4095000"),
            (1001, "1001 rounds are no multiple of 1000"),
            (4_096_000, "4096000 rounds are not in 1..=4095000"),
        ] {
            let challenge = Challenge::Crypted { salt: SALT, rounds, account_salt: ACCOUNT };
            assert_eq!(challenge.encode().unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn a_salt_is_printable_whatever_the_random_bytes() {
        for byte in 0..=u8::MAX {
            let salt = printable_salt([byte; 20]);
            assert!(salt.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'$'));
        }
    }

    proptest! {
        #[test]
        fn every_form_reads_back(salt: [u8; 20], account: [u8; 20], thousands in 1..=0xfff_u32) {
            let rounds = thousands * 1000;
            for challenge in [
                Challenge::Classic(&salt),
                Challenge::Salted { salt: &salt },
                Challenge::Crypted { salt: &salt, rounds, account_salt: &account },
            ] {
                let bytes = challenge.encode().unwrap();
                prop_assert_eq!(Challenge::parse(&bytes), Ok(challenge));
            }
        }
    }
}
