//! Short byte strings in registers.

use super::varint_len;

/// Up to 16 bytes under construction, in registers.
///
/// Byte 0 on the wire is the lowest of the number. Therefore words are joined by shifting, and the
/// result is stored little-endian on any machine. Bytes beyond `len` are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::codec) struct Word {
    bits: u128,
    len: u32,
}

impl Word {
    /// Greatest length.
    pub(in crate::codec) const MAX_BYTES: usize = 16;

    /// The low `len` bytes of `bits`, the others of which are zero.
    #[inline]
    pub(in crate::codec) const fn new(bits: u128, len: u32) -> Self {
        debug_assert!(len <= 16, "a word is 16 bytes");
        debug_assert!(len == 16 || bits >> len.saturating_mul(8) == 0, "bytes beyond the length");
        Self { bits, len }
    }

    /// A constant run of bytes, computed by the compiler.
    pub(in crate::codec) const fn constant<const N: usize>(bytes: [u8; N]) -> Self {
        const { assert!(N <= Self::MAX_BYTES) };
        let (mut bits, mut len) = (0, 0_u32);
        let mut rest: &[u8] = &bytes;
        while let Some((&last, before)) = rest.split_last() {
            bits = bits << 8 | last as u128;
            len = len.wrapping_add(1);
            rest = before;
        }
        Self { bits, len }
    }

    /// The shortest varint.
    #[inline]
    pub(in crate::codec) const fn varint(value: u64) -> Self {
        if value < 0x80 {
            return Self { bits: value as u128, len: 1 };
        }
        let len = varint_len(value);
        if value < 1 << 56 {
            // All bytes but the last carry the mark that one more follows.
            let marks = MORE & (u64::MAX >> 72_u32.wrapping_sub(len.wrapping_mul(8)));
            return Self { bits: (spread(value) | marks) as u128, len };
        }
        let low = spread(value & ((1 << 56) - 1)) | MORE;
        let high = value >> 56;
        let high = if high < 0x80 { high } else { high & 0x7f | 0x80 | high >> 7 << 8 };
        Self { bits: low as u128 | (high as u128) << 64, len }
    }

    #[inline]
    pub(in crate::codec) const fn len(self) -> usize {
        self.len as usize
    }

    /// Joins this word and `next` behind it; both together are at most 16 bytes.
    #[inline]
    pub(in crate::codec) const fn then(self, next: Self) -> Self {
        let len = self.len.wrapping_add(next.len);
        debug_assert!(len <= 16, "a word is 16 bytes");
        Self { bits: self.bits | next.bits.wrapping_shl(self.len.wrapping_mul(8)), len }
    }

    /// Returns this word with `bits` set in bytes that were zero.
    #[inline]
    pub(in crate::codec) const fn with(self, bits: u128) -> Self {
        Self::new(self.bits | bits, self.len)
    }

    /// All 16 bytes, zeros behind the last.
    #[inline]
    pub(in crate::codec) const fn to_array(self) -> [u8; Self::MAX_BYTES] {
        self.bits.to_le_bytes()
    }

    /// Bytes of the word, stored in `place`.
    #[cfg(test)]
    pub(in crate::codec) fn as_bytes(self, place: &mut [u8; Self::MAX_BYTES]) -> &[u8] {
        *place = self.to_array();
        place.get(..self.len()).unwrap_or_default()
    }
}

/// Distributes 56 bits over eight bytes, seven to each: halves, quarters, eighths.
#[inline]
const fn spread(value: u64) -> u64 {
    let v = value & 0x0000_0000_0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
    let v = v & 0x0000_3fff_0000_3fff | (v & 0x0fff_c000_0fff_c000) << 2;
    v & 0x007f_007f_007f_007f | (v & 0x3f80_3f80_3f80_3f80) << 1
}

/// The top bit of each of eight bytes.
const MORE: u64 = 0x8080_8080_8080_8080;
