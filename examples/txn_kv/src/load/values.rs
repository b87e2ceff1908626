//! Values that tell for which key they were written, and whether they are whole.
//!
//! ```text
//! 0          8           8 + key                         end
//! ┌──────────┬───────────┬──────────────────────────────┐
//! │ checksum │ key       │ what no other put has written│
//! └──────────┴───────────┴──────────────────────────────┘
//! ```

use super::keys::draw;

const CHECKSUM_BYTES: usize = 8;

/// The shortest value for keys of so many bytes.
pub(super) const fn least_bytes(key_bytes: usize) -> usize {
    CHECKSUM_BYTES + key_bytes
}

/// A value of so many bytes for this key; puts with other numbers write other values, if there is room.
pub(super) fn make(key: &[u8], number: u64, bytes: usize) -> Box<[u8]> {
    let mut value = vec![0; bytes];
    let (checksum, rest) = value.split_at_mut(CHECKSUM_BYTES);
    let (of_key, filler) = rest.split_at_mut(key.len());
    of_key.copy_from_slice(key);
    for (place, word) in filler.chunks_mut(size_of::<u64>()).enumerate() {
        word.copy_from_slice(&draw(number, place as u64).to_le_bytes()[..word.len()]);
    }
    checksum.copy_from_slice(&sum(rest).to_le_bytes());
    value.into()
}

/// Whether a value was written for this key, and is as it was written.
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

/// Eight bytes at a time: it shall cost less than what it checks.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(bytes.len() as u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_its_key() {
        for bytes in [16, 17, 23, 24, 25, 256] {
            let value = make(b"00000007", 1, bytes);
            assert_eq!(value.len(), bytes);
            assert_eq!(check(b"00000007", &value), Ok(()));
            let error = check(b"00000008", &value).unwrap_err();
            assert_eq!(error, "key 00000008 has the value of key 00000007");
        }
        assert_ne!(make(b"k", 1, 64), make(b"k", 2, 64));
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let value = make(b"key", 1, 50);
        for place in 0..value.len() {
            let mut changed = value.clone();
            changed[place] ^= 1;
            assert_eq!(check(b"key", &changed).unwrap_err(), "the value of key key is damaged");
        }
        assert!(check(b"key", &value[..49]).is_err());
        assert_eq!(check(b"key", b"short").unwrap_err(), "key key has a value of 5 bytes");
    }
}
