//! Values that name the key for which they were written, with a checksum.
//!
//! ```text
//! 0          8           8 + key                         end
//! ┌──────────┬───────────┬──────────────────────────────┐
//! │ checksum │ key       │ random bytes                 │
//! └──────────┴───────────┴──────────────────────────────┘
//! ```

use std::hash::{DefaultHasher, Hasher};

use fastrand::Rng;

const CHECKSUM_BYTES: usize = 8;

/// Length of the shortest value for keys of so many bytes.
pub(super) const fn least_bytes(key_bytes: usize) -> usize {
    CHECKSUM_BYTES + key_bytes
}

/// Returns a value of so many bytes for this key. Puts with other random numbers write other values, if
/// there is room for them.
pub(super) fn make(key: &[u8], random: &mut Rng, bytes: usize) -> Box<[u8]> {
    let mut value = vec![0; bytes];
    let (checksum, rest) = value.split_at_mut(CHECKSUM_BYTES);
    let (of_key, filler) = rest.split_at_mut(key.len());
    of_key.copy_from_slice(key);
    random.fill(filler);
    checksum.copy_from_slice(&sum(rest).to_le_bytes());
    value.into()
}

/// Checks that a value was written for this key, and is as it was written.
pub(super) fn check(key: &[u8], value: &[u8]) -> Result<(), String> {
    let Some((kept, rest)) = value.split_first_chunk() else {
        let bytes = value.len();
        return Err(format!("key {} has a value of {bytes} bytes", key.escape_ascii()));
    };
    if u64::from_le_bytes(*kept) != sum(rest) {
        return Err(format!("the value of key {} is damaged", key.escape_ascii()));
    }
    if !rest.starts_with(key) {
        let other = rest.get(..key.len()).unwrap_or(rest);
        let (key, other) = (key.escape_ascii(), other.escape_ascii());
        return Err(format!("key {key} has the value of key {other}"));
    }
    Ok(())
}

fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_its_key() {
        for bytes in [16, 17, 23, 24, 25, 256] {
            let value = make(b"00000007", &mut Rng::with_seed(1), bytes);
            assert_eq!(value.len(), bytes);
            assert_eq!(check(b"00000007", &value), Ok(()));
            let error = check(b"00000008", &value).unwrap_err();
            assert_eq!(error, "key 00000008 has the value of key 00000007");
        }
        let of = |seed| make(b"k", &mut Rng::with_seed(seed), 64);
        assert_ne!(of(1), of(2));
        assert_eq!(of(1), of(1));
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let value = make(b"key", &mut Rng::with_seed(1), 50);
        for place in 0..value.len() {
            let mut changed = value.clone();
            changed[place] ^= 1;
            assert_eq!(check(b"key", &changed).unwrap_err(), "the value of key key is damaged");
        }
        assert!(check(b"key", &value[..49]).is_err());
        assert_eq!(check(b"key", b"short").unwrap_err(), "key key has a value of 5 bytes");
    }
}
