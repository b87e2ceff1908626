//! SHA-256-crypt without its text frame (`$5$rounds=…$salt$`), after the public description by
//! Ulrich Drepper, "Unix crypt using SHA-256 and SHA-512", version 0.6.

use std::fmt;

use sha2::{Digest, Sha256};

use super::challenge::{ChallengeError, SALT_BYTES, crypted_bytes, rounds_of, rounds_text};
use super::proof::StoredPassword;

/// Characters of a digest.
const CRYPT_DIGEST_BYTES: usize = 43;

/// Longest password that has a digest: the limit of MySQL for such accounts. The time of the first
/// step grows with the square of the length.
pub(super) const MAX_CRYPT_PASSWORD_BYTES: usize = 256;

/// Digest of SHA-256-crypt: the part behind the salt in its text form.
///
/// All bytes of `salt` count. Plain SHA-256-crypt cuts the salt at 16 bytes and starts at 1000
/// rounds. A caller that needs exactly that passes such values. Returns `None` if the password is
/// longer than [`MAX_CRYPT_PASSWORD_BYTES`].
///
/// Takes about a millisecond for 5000 rounds.
pub(super) fn crypt_digest(
    password: &[u8],
    salt: &[u8],
    rounds: u32,
) -> Option<[u8; CRYPT_DIGEST_BYTES]> {
    if password.len() > MAX_CRYPT_PASSWORD_BYTES {
        return None;
    }
    let mut digest = first_digest(password, salt);
    let password = spread(password, password.len());
    let salts = digest.first().map_or(0, |&byte| usize::from(byte)).saturating_add(16);
    let salt = spread(salt, salts);
    for round in 0..rounds {
        let odd = round % 2 == 1;
        let mut hash = Sha256::new();
        hash.update(if odd { &password } else { &digest[..] });
        if round % 3 != 0 {
            hash.update(&salt);
        }
        if round % 7 != 0 {
            hash.update(&password);
        }
        hash.update(if odd { &digest[..] } else { &password });
        digest = hash.finalize().into();
    }
    Some(text(digest))
}

/// Password of an account as a SHA-256-crypt digest: MySQL's `caching_sha2_password`.
///
/// A client that has the digest can log in without the password, so keep the digest as secret as a
/// password. A server needs only its [`salt`](Self::salt) and its [`stored`](Self::stored) hash, and no
/// client can log in with these.
///
/// *Shape*: 66 bytes. `Debug` hides the digest.
///
/// # Examples
///
/// ```
/// use epoll_group::codec::auth::PasswordDigest;
///
/// let salt = *b"0123456789abcdefghij"; // from the system's random numbers
/// let digest = PasswordDigest::of(b"secret", salt, 5000)?;
/// let text = digest.to_text(); // the column authentication_string of mysql.user
/// assert!(text.starts_with(b"$A$005$0123456789abcdefghij"));
/// assert_eq!(PasswordDigest::parse(&text)?.stored(), digest.stored());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PasswordDigest {
    salt: DigestSalt,
    digest: [u8; CRYPT_DIGEST_BYTES],
}

impl PasswordDigest {
    /// Digest of `password`, made in `rounds`. MySQL uses 5000 rounds, about a millisecond.
    ///
    /// # Errors
    ///
    /// [`ChallengeError::Rounds`]: the rounds are no multiple of 1000 in 1000..=4095000.
    /// [`ChallengeError::Password`]: the password is empty or too long.
    pub fn of(
        password: &[u8],
        salt: [u8; SALT_BYTES],
        rounds: u32,
    ) -> Result<Self, ChallengeError> {
        let digest_salt = DigestSalt::new(salt, rounds)?;
        let wrong_length = ChallengeError::Password { length: password.len() };
        if password.is_empty() {
            return Err(wrong_length);
        }
        let digest = crypt_digest(password, &salt, rounds).ok_or(wrong_length)?;
        Ok(Self { salt: digest_salt, digest })
    }

    /// Reads the text that MySQL stores: `$A$`, the rounds divided by 1000 in three hexadecimal
    /// digits, `$`, 20 bytes of salt and 43 characters. An account without a password has an empty
    /// text, which is no digest.
    ///
    /// # Errors
    ///
    /// [`ChallengeError::Digest`]: the text has another form. [`ChallengeError::Rounds`]: it says 0
    /// rounds.
    pub fn parse(text: &[u8]) -> Result<Self, ChallengeError> {
        let no_digest = ChallengeError::Digest { length: text.len() };
        let rest = text.strip_prefix(b"$A$").ok_or(no_digest)?;
        let (thousands, rest) = rest.split_first_chunk::<3>().ok_or(no_digest)?;
        let rest = rest.strip_prefix(b"$").ok_or(no_digest)?;
        let (salt, rest) = rest.split_first_chunk::<SALT_BYTES>().ok_or(no_digest)?;
        let digest = rest.try_into().map_err(|_| no_digest)?;
        let rounds = rounds_of(*thousands).map_err(|_| no_digest)?;
        Ok(Self { salt: DigestSalt::new(*salt, rounds)?, digest })
    }

    /// The text that [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_text(&self) -> Vec<u8> {
        let DigestSalt { thousands, salt } = &self.salt;
        [b"$A$", &thousands[..], b"$", salt, &self.digest].concat()
    }

    /// Returns the salt and the rounds.
    #[must_use]
    pub const fn salt(&self) -> DigestSalt {
        self.salt
    }

    /// Returns the hash that checks the proof of a client. It is made of the digest instead of the
    /// password.
    #[must_use]
    pub fn stored(&self) -> StoredPassword {
        StoredPassword::of(&self.digest)
    }
}

impl fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordDigest(..)")
    }
}

/// Salt and rounds of a [`PasswordDigest`]: what a client needs to make the digest of its password.
/// No secret.
///
/// *Shape*: 23 bytes, `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestSalt {
    /// Rounds divided by 1000, as text.
    thousands: [u8; 3],
    salt: [u8; SALT_BYTES],
}

impl DigestSalt {
    /// Creates the salt of an account.
    ///
    /// # Errors
    ///
    /// [`ChallengeError::Rounds`]: the rounds are no multiple of 1000 in 1000..=4095000.
    pub fn new(salt: [u8; SALT_BYTES], rounds: u32) -> Result<Self, ChallengeError> {
        Ok(Self { thousands: rounds_text(rounds)?, salt })
    }

    /// Returns the bytes of [`Challenge::Crypted`](super::Challenge::Crypted). `salt` is the one of
    /// this login.
    #[must_use]
    pub fn challenge(&self, salt: &[u8; SALT_BYTES]) -> Vec<u8> {
        crypted_bytes(salt, &self.thousands, &self.salt)
    }
}

fn first_digest(password: &[u8], salt: &[u8]) -> Sum {
    let mut hash = Sha256::new();
    for part in [password, salt, password] {
        hash.update(part);
    }
    let other: Sum = hash.finalize().into();

    let mut hash = Sha256::new();
    hash.update(password);
    hash.update(salt);
    hash.update(filled(&other, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        hash.update(if bits & 1 == 1 { &other[..] } else { password });
        bits >>= 1;
    }
    hash.finalize().into()
}

/// Hashes `part` repeated `times` times, and repeats the digest until it is as long as one `part`.
fn spread(part: &[u8], times: usize) -> Vec<u8> {
    let mut hash = Sha256::new();
    for _ in 0..times {
        hash.update(part);
    }
    filled(&hash.finalize().into(), part.len())
}

fn filled(digest: &Sum, length: usize) -> Vec<u8> {
    digest.iter().copied().cycle().take(length).collect()
}

/// Encodes three bytes as four characters, low bits first.
fn text(digest: Sum) -> [u8; CRYPT_DIGEST_BYTES] {
    let byte = |at: usize| u32::from(digest.get(at).copied().unwrap_or_default());
    let mut text = [0; CRYPT_DIGEST_BYTES];
    for (places, [high, middle, low]) in text.chunks_mut(4).zip(GROUPS) {
        let mut bits = byte(high) << 16 | byte(middle) << 8 | byte(low);
        for place in places {
            *place = usize::try_from(bits & 63)
                .ok()
                .and_then(|index| ALPHABET.get(index).copied())
                .unwrap_or_default();
            bits >>= 6;
        }
    }
    text
}

type Sum = [u8; 32];

/// Bytes of the digest in the order that the description fixes. The last group has two: the third is
/// behind the digest, and read as zero.
const GROUPS: [[usize; 3]; 11] = [
    [0, 10, 20],
    [21, 1, 11],
    [12, 22, 2],
    [3, 13, 23],
    [24, 4, 14],
    [15, 25, 5],
    [6, 16, 26],
    [27, 7, 17],
    [18, 28, 8],
    [9, 19, 29],
    [usize::MAX, 31, 30],
];

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#[cfg(test)]
#[expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic on its own mistakes"
)]
mod tests {
    use super::super::challenge::Challenge;
    use super::*;

    const SALT: &[u8; SALT_BYTES] = b"0123456789abcdefghij";

    /// Made with `openssl passwd -5` (5000 rounds) and `crypt(3)` of glibc (the others).
    #[test]
    fn equal_to_other_implementations() {
        let long = "the minimum number is still observed, and this one is longer than \
                    sixty-four bytes to be sure";
        let cases = [
            ("Hello world!", "saltstring", 5000, "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"),
            (
                "Hello world!",
                "saltstringsaltst",
                5000,
                "a5C8Ofk71MUIoKve2QuP9FMl.dwNgseF5tR1LGAL7iB",
            ),
            (
                "Hello world!",
                "saltstringsaltst",
                10_000,
                "3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA",
            ),
            ("a", "x", 5000, "85aGabM7xSEYcp0wkefjwtqWAYi1Rrq3b01Gtllmmh7"),
            ("", "abcd", 1000, "OvE6oFZ9uSaS6o9bpkjmpDprXymykXkIQAzPMyVXYi/"),
            (long, "roundstoolow", 1000, "vhmXZ3bI4qXaIbbmGfq95beYg0MqO4uBrPJnhJQcrZ7"),
        ];
        for (password, salt, rounds, expected) in cases {
            let digest = crypt_digest(password.as_bytes(), salt.as_bytes(), rounds);
            assert_eq!(digest.as_ref().map(<[u8; 43]>::as_slice), Some(expected.as_bytes()));
        }
    }

    #[test]
    fn every_byte_of_a_long_salt_counts() {
        let digest = |salt: &[u8]| crypt_digest(b"secret", salt, 1000);
        assert_ne!(digest(b"0123456789abcdefghij"), digest(b"0123456789abcdefghik"));
        assert_ne!(digest(b"0123456789abcdefghij"), digest(b"0123456789abcdef"));
    }

    #[test]
    fn a_digest_is_read_as_mysql_stores_it() {
        let digest = PasswordDigest::of(b"secret", *SALT, 5000).expect("short enough");
        let crypted = crypt_digest(b"secret", SALT, 5000).expect("short enough");
        let text = [b"$A$005$", &SALT[..], &crypted].concat();
        assert_eq!(digest.to_text(), text);
        let read = PasswordDigest::parse(&text).expect("its own text");
        assert_eq!(read.to_text(), text);
        assert!(read.stored() == StoredPassword::of(&crypted));
        let challenge = read.salt().challenge(b"ABCDEFGHIJKLMNOPQRST");
        let expected =
            Challenge::Crypted { salt: b"ABCDEFGHIJKLMNOPQRST", rounds: 5000, account_salt: SALT };
        assert_eq!(Challenge::parse(&challenge), Ok(expected));
        assert_eq!(format!("{read:?}"), "PasswordDigest(..)");
    }

    #[test]
    fn other_texts_are_no_digests() {
        let text = [b"$A$005$", &SALT[..], &[b'x'; 43]].concat();
        assert!(PasswordDigest::parse(&text).is_ok());
        for end in 0..text.len() {
            let error = PasswordDigest::parse(&text[..end]).expect_err("cut");
            assert!(!error.to_string().is_empty());
        }
        let error = PasswordDigest::parse(b"*14E6").expect_err("another form");
        assert_eq!(error, ChallengeError::Digest { length: 5 });
        let long = [&text[..], b"x"].concat();
        let error = PasswordDigest::parse(&long).expect_err("a byte too long");
        assert_eq!(error, ChallengeError::Digest { length: 71 });
        let with = |at: usize, byte: u8| {
            let mut text = text.clone();
            text[at] = byte;
            PasswordDigest::parse(&text).expect_err("another form")
        };
        assert_eq!(with(1, b'B'), ChallengeError::Digest { length: 70 });
        assert_eq!(with(4, b'x'), ChallengeError::Digest { length: 70 });
        assert_eq!(with(6, b'/'), ChallengeError::Digest { length: 70 });
        assert!(matches!(with(5, b'0'), ChallengeError::Rounds { rounds: 0, .. }));
        let long = PasswordDigest::of(&[b'x'; 257], *SALT, 5000).expect_err("too long");
        assert_eq!(long, ChallengeError::Password { length: 257 });
        let empty = PasswordDigest::of(b"", *SALT, 5000).expect_err("nobody could log in");
        assert_eq!(empty, ChallengeError::Password { length: 0 });
        let odd = PasswordDigest::of(b"secret", *SALT, 5001).expect_err("no multiple");
        assert!(matches!(odd, ChallengeError::Rounds { rounds: 5001, .. }));
    }

    #[test]
    fn the_longest_password_has_a_digest_and_one_byte_more_has_none() {
        assert!(crypt_digest(&[b'x'; MAX_CRYPT_PASSWORD_BYTES], b"salt", 1).is_some());
        assert!(crypt_digest(&[b'x'; MAX_CRYPT_PASSWORD_BYTES + 1], b"salt", 1).is_none());
    }
}
