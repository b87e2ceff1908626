//! [`Keys`]: the keys that a load uses.

use crate::record::Key;
use crate::txn::KeyRange;

/// The keys of a key space: numbers from 0, as decimal digits of one width, so that they sort.
///
/// ```text
/// 8 bytes, 100 000 keys: 00000000, 00000001, ..., 00099999
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    bytes: usize,
    count: u64,
}

impl Keys {
    /// Returns a key space of `count` keys with `bytes` bytes each.
    ///
    /// # Errors
    ///
    /// The digits of the last one do not fit, or there is none.
    pub fn new(bytes: usize, count: u64) -> Result<Self, String> {
        let digits = count.saturating_sub(1).max(1).ilog10() as usize + 1;
        if count == 0 {
            return Err("a key space has one key at least".to_owned());
        }
        if bytes < digits {
            return Err(format!("{count} keys need {digits} bytes each, not {bytes}"));
        }
        Ok(Self { bytes, count })
    }

    /// Number of keys.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Length of a key.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The key with this number; numbers beyond the last begin again.
    #[must_use]
    pub fn key(&self, number: u64) -> Key {
        format!("{:0width$}", number % self.count, width = self.bytes).into_bytes().into()
    }

    /// Up to `limit` keys from this number on, and how many those are.
    pub(super) fn span(&self, first: u64, limit: u64) -> (KeyRange, u64) {
        let count = limit.min(self.count - first);
        if count == 1 {
            return (KeyRange::One(self.key(first)), 1);
        }
        // The first text that is greater than the last key.
        let last = self.key(first + count - 1);
        let end: Key = last.iter().copied().chain([0]).collect();
        (KeyRange::Span(self.key(first), Some(end)), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_width_and_sort_as_their_numbers() {
        let keys = Keys::new(8, 100_000).unwrap();
        assert_eq!((&*keys.key(7), &*keys.key(99_999)), (&b"00000007"[..], &b"00099999"[..]));
        assert_eq!(keys.key(100_000), keys.key(0));
        assert!((1..1000).all(|number| keys.key(number - 1) < keys.key(number)));
    }

    #[test]
    fn a_key_space_fits_its_bytes() {
        assert!(Keys::new(2, 100).is_ok());
        assert_eq!(Keys::new(2, 101).unwrap_err(), "101 keys need 3 bytes each, not 2");
        assert!(Keys::new(1, 1).is_ok() && Keys::new(0, 1).is_err() && Keys::new(8, 0).is_err());
    }

    #[test]
    fn a_span_ends_with_its_limit_or_with_the_last_key() {
        let keys = Keys::new(2, 100).unwrap();
        let (range, count) = keys.span(10, 3);
        assert_eq!(count, 3);
        let within = |number| range.contains(&keys.key(number));
        assert_eq!((9..15).filter(|&number| within(number)).collect::<Vec<_>>(), [10, 11, 12]);
        let (range, count) = keys.span(98, 3);
        assert_eq!(count, 2);
        assert!(range.contains(b"98") && range.contains(b"99"));
        assert_eq!(keys.span(99, 3), (KeyRange::One(keys.key(99)), 1));
    }
}
