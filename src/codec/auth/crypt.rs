//! SHA-256-crypt without its text frame (`$5$rounds=…$salt$`), after the public description by
//! Ulrich Drepper, "Unix crypt using SHA-256 and SHA-512", version 0.6.

use sha2::{Digest, Sha256};

/// Characters of a digest.
const CRYPT_DIGEST_BYTES: usize = 43;

/// Longest password that has a digest: the limit of MySQL for such accounts. The time of the first
/// step grows with the square of the length.
pub const MAX_CRYPT_PASSWORD_BYTES: usize = 256;

/// Digest of SHA-256-crypt: the part behind the salt in its text form.
///
/// All bytes of `salt` count. Plain SHA-256-crypt cuts the salt at 16 bytes and starts at 1000
/// rounds. A caller that needs exactly that passes such values. Returns `None` if the password is
/// longer than [`MAX_CRYPT_PASSWORD_BYTES`].
///
/// Takes about a millisecond for 5000 rounds.
///
/// # Examples
///
/// ```
/// use epoll_group::codec::auth::crypt_digest;
///
/// // openssl passwd -5 -salt saltstring 'Hello world!'
/// let digest = crypt_digest(b"Hello world!", b"saltstring", 5000);
/// assert_eq!(digest.as_ref().unwrap(), b"5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5");
/// ```
#[must_use]
pub fn crypt_digest(password: &[u8], salt: &[u8], rounds: u32) -> Option<[u8; CRYPT_DIGEST_BYTES]> {
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
mod tests {
    use super::*;

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
    fn the_longest_password_has_a_digest_and_one_byte_more_has_none() {
        assert!(crypt_digest(&[b'x'; MAX_CRYPT_PASSWORD_BYTES], b"salt", 1).is_some());
        assert!(crypt_digest(&[b'x'; MAX_CRYPT_PASSWORD_BYTES + 1], b"salt", 1).is_none());
    }
}
