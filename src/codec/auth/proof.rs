use std::error::Error;
use std::fmt;

use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;

use crate::codec::error::Scope;

/// Bytes of a proof, and of the hash that it is checked against: the length of a SHA-1.
const PROOF_BYTES: usize = 20;

/// Bytes of a proof or a stored hash as text: `*` and two digits a byte.
const PROOF_TEXT_BYTES: usize = 41;

/// Proof that a client knows the password, for one challenge only.
///
/// *Shape*: 20 bytes, `Copy`. `Debug` hides them; `==` takes the same time for any two.
#[derive(Clone, Copy)]
pub struct Proof([u8; PROOF_BYTES]);

impl Proof {
    /// Computes the proof for `password`. Returns `None` for an empty one, for which the client
    /// sends no proof.
    ///
    /// `challenge` may have any length and hold any bytes: all of them are hashed.
    #[must_use]
    pub fn new(password: &[u8], challenge: &[u8]) -> Option<Self> {
        if password.is_empty() {
            return None;
        }
        let stage1: [u8; PROOF_BYTES] = Sha1::digest(password).into();
        let stage2: [u8; PROOF_BYTES] = Sha1::digest(stage1).into();
        Some(Self(xor(stage1, mask(challenge, &stage2))))
    }

    /// A proof from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; PROOF_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; PROOF_BYTES] {
        &self.0
    }

    /// Reads `*` and 40 hexadecimal digits of either case.
    ///
    /// # Errors
    ///
    /// [`TextError`]: the text has another form. The login fails, the connection may live.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, TextError> {
        parse(text).map(Self)
    }

    /// Text form: `*` and 40 lower-case hexadecimal digits, as clients send it.
    pub(super) fn to_text(self) -> [u8; PROOF_TEXT_BYTES] {
        format(&self.0, LOWER)
    }
}

impl PartialEq for Proof {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Proof {}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

/// Form in which a server stores a password: `SHA1(SHA1(password))`, or the fact that there is
/// none.
///
/// *Shape*: 21 bytes, `Copy`. `Debug` shows only the presence of a password; `==` takes the same
/// time for any two hashes.
#[derive(Clone, Copy)]
pub struct StoredPassword(pub(crate) Option<[u8; PROOF_BYTES]>);

impl StoredPassword {
    /// Stored form of `password`; an empty one is no password.
    #[must_use]
    pub fn of(password: &[u8]) -> Self {
        if password.is_empty() {
            return Self(None);
        }
        Self(Some(Sha1::digest(Sha1::digest(password)).into()))
    }

    /// Reads the text form of an account table: `*` and 40 hexadecimal digits of either case, or
    /// nothing for an account without a password.
    ///
    /// # Errors
    ///
    /// [`TextError`]: the text has another form.
    pub fn parse(text: &[u8]) -> Result<Self, TextError> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        parse(text).map(|hash| Self(Some(hash)))
    }

    /// Text form: `*` and 40 upper-case hexadecimal digits, unless there is no password.
    #[must_use]
    pub fn to_text(&self) -> Option<[u8; PROOF_TEXT_BYTES]> {
        self.0.as_ref().map(|hash| format(hash, UPPER))
    }

    /// Returns true if `proof` shows that the client knows the password.
    ///
    /// `challenge` is the hashed part: [`Challenge::hashed`](super::Challenge::hashed) of the
    /// challenge that was sent. An account without a password accepts only a missing proof.
    #[must_use]
    pub fn accepts(&self, challenge: &[u8], proof: Option<&Proof>) -> bool {
        match (&self.0, proof) {
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
            (Some(stored), Some(proof)) => {
                let stage1 = xor(proof.0, mask(challenge, stored));
                let stage2: [u8; PROOF_BYTES] = Sha1::digest(stage1).into();
                stage2.ct_eq(stored).into()
            }
        }
    }
}

impl PartialEq for StoredPassword {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => a.ct_eq(b).into(),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Eq for StoredPassword {}

impl fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "StoredPassword(..)" } else { "StoredPassword(none)" })
    }
}

/// Reason why a text is no proof and no stored password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextError {
    /// Its length is not 41: `*` and two digits a byte.
    Length {
        /// Its length in bytes.
        length: usize,
    },
    /// It does not begin with `*`.
    NoAsterisk,
    /// A byte is no hexadecimal digit.
    NoDigit {
        /// Offset of the byte from the start of the text; that of `*` is 0.
        at: usize,
    },
}

impl TextError {
    /// Scope of the error: the login. Another one may follow on the connection.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { length } => write!(f, "length {length} is not {PROOF_TEXT_BYTES}"),
            Self::NoAsterisk => f.write_str("no asterisk at the start"),
            Self::NoDigit { at } => write!(f, "no hexadecimal digit at {at}"),
        }
    }
}

impl Error for TextError {}

fn mask(challenge: &[u8], stage2: &[u8; PROOF_BYTES]) -> [u8; PROOF_BYTES] {
    Sha1::new().chain_update(challenge).chain_update(stage2).finalize().into()
}

fn xor(mut a: [u8; PROOF_BYTES], b: [u8; PROOF_BYTES]) -> [u8; PROOF_BYTES] {
    for (a, b) in a.iter_mut().zip(b) {
        *a ^= b;
    }
    a
}

fn parse(text: &[u8]) -> Result<[u8; PROOF_BYTES], TextError> {
    let Ok(&[asterisk, ref digits @ ..]) = <&[u8; PROOF_TEXT_BYTES]>::try_from(text) else {
        return Err(TextError::Length { length: text.len() });
    };
    if asterisk != b'*' {
        return Err(TextError::NoAsterisk);
    }
    let (pairs, _) = digits.as_chunks::<2>();
    let mut bytes = [0; PROOF_BYTES];
    for (index, (byte, &[high, low])) in bytes.iter_mut().zip(pairs).enumerate() {
        let at = index.saturating_mul(2).saturating_add(1);
        *byte = match (digit(high), digit(low)) {
            (Some(high), Some(low)) => high << 4 | low,
            (None, _) => return Err(TextError::NoDigit { at }),
            (_, None) => return Err(TextError::NoDigit { at: at.saturating_add(1) }),
        };
    }
    Ok(bytes)
}

fn format(bytes: &[u8; PROOF_BYTES], digits: &[u8; 16]) -> [u8; PROOF_TEXT_BYTES] {
    let mut text = [b'*'; PROOF_TEXT_BYTES];
    let [_, places @ ..] = &mut text;
    let (pairs, _) = places.as_chunks_mut::<2>();
    for ([high, low], byte) in pairs.iter_mut().zip(bytes) {
        *high = nibble(byte >> 4, digits);
        *low = nibble(byte & 15, digits);
    }
    text
}

/// The value of a hexadecimal digit of either case.
pub(super) fn digit(text: u8) -> Option<u8> {
    char::from(text).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

pub(super) fn nibble(value: u8, digits: &[u8; 16]) -> u8 {
    // Every value here has four bits.
    digits.get(usize::from(value)).copied().unwrap_or(b'?')
}

pub(super) const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may panic on its own mistakes"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STORED: &[u8] = b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";

    #[test]
    fn the_published_example() {
        let challenge: Vec<u8> = (1..=20).collect();
        let proof = Proof::new(b"secret", &challenge).unwrap();
        assert_eq!(&proof.to_text(), b"*b32bb3a583e1340c0a1108d58b1be49781ad8c2f");
        let stored = StoredPassword::of(b"secret");
        assert_eq!(stored.to_text().as_ref().map(<[u8; 41]>::as_slice), Some(STORED));
        assert_eq!(StoredPassword::parse(STORED), Ok(stored));
        assert!(stored.accepts(&challenge, Some(&proof)));
    }

    #[test]
    fn no_password_is_proved_by_no_proof_and_by_nothing_else() {
        let none = StoredPassword::of(b"");
        assert_eq!(StoredPassword::parse(b""), Ok(none));
        assert_eq!(none.to_text(), None);
        assert_eq!(Proof::new(b"", b"challenge"), None);
        assert!(none.accepts(b"challenge", None));
        assert!(!none.accepts(b"challenge", Proof::new(b"x", b"challenge").as_ref()));
        assert!(!StoredPassword::of(b"x").accepts(b"challenge", None));
        assert_ne!(none, StoredPassword::of(b"x"));
    }

    #[test]
    fn a_text_of_another_form_says_what_is_wrong() {
        let mut text = *b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";
        assert_eq!(Proof::parse(&text[1..]), Err(TextError::Length { length: 40 }));
        assert_eq!(Proof::parse(b""), Err(TextError::Length { length: 0 }));
        for at in 1..text.len() {
            let digit = std::mem::replace(&mut text[at], b'g');
            assert_eq!(Proof::parse(&text), Err(TextError::NoDigit { at }));
            text[at] = digit;
        }
        text[0] = b'+';
        assert_eq!(Proof::parse(&text), Err(TextError::NoAsterisk));
        assert_eq!(TextError::Length { length: 40 }.to_string(), "length 40 is not 41");
    }

    #[test]
    fn debug_shows_no_secret() {
        let proof = Proof::new(b"secret", b"").unwrap();
        let stored = StoredPassword::of(b"secret");
        let shown = format!("{proof:?} {stored:?} {:?}", StoredPassword::of(b""));
        assert_eq!(shown, "Proof(..) StoredPassword(..) StoredPassword(none)");
    }

    proptest! {
        #[test]
        fn a_proof_is_accepted_for_its_password_and_challenge_only(
            password in prop::collection::vec(any::<u8>(), 1..40),
            challenge in prop::collection::vec(any::<u8>(), 0..40),
            bit in 0..160_usize,
        ) {
            let stored = StoredPassword::of(&password);
            let proof = Proof::new(&password, &challenge).unwrap();
            prop_assert!(stored.accepts(&challenge, Some(&proof)));
            let mut wrong = *proof.as_bytes();
            wrong[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!stored.accepts(&challenge, Some(&Proof::from_bytes(wrong))));
            let longer = [&challenge[..], b"x"].concat();
            prop_assert!(!stored.accepts(&longer, Some(&proof)));
        }

        #[test]
        fn text_forms_read_back_in_either_case(bytes: [u8; 20]) {
            let proof = Proof::from_bytes(bytes);
            prop_assert_eq!(Proof::parse(&proof.to_text()), Ok(proof));
            prop_assert_eq!(Proof::parse(&proof.to_text().to_ascii_uppercase()), Ok(proof));
            let stored = StoredPassword(Some(bytes));
            prop_assert_eq!(StoredPassword::parse(&stored.to_text().unwrap()), Ok(stored));
        }
    }
}
