//! Bitmap of the NULL rows of a column: one bit a row, the highest of the first byte first.

/// Bytes of the bitmap of `rows` rows.
pub(super) const fn bytes(rows: usize) -> usize {
    rows.div_ceil(8)
}

/// Returns true if `row` is marked. A row behind the end is not.
pub(super) fn is_marked(bitmap: &[u8], row: usize) -> bool {
    bitmap.get(row / 8).is_some_and(|byte| byte & mask(row) != 0)
}

/// Number of marked rows among the first `rows`.
pub(super) fn marked(bitmap: &[u8], rows: usize) -> usize {
    let (whole, rest) = bitmap.split_at(bitmap.len().min(rows / 8));
    // Bits behind the last row are padding of any value.
    let padding = 0xff_u8.checked_shr(shift(rows)).unwrap_or(0);
    let rest = rest.first().map_or(0, |byte| byte & !padding);
    // A bitmap is far shorter than a `usize` of bits can count.
    whole.iter().fold(rest.count_ones() as usize, |sum, byte| {
        sum.saturating_add(byte.count_ones() as usize)
    })
}

/// Marks `row`, and grows the bitmap if need be.
pub(super) fn mark(bitmap: &mut Vec<u8>, row: usize) {
    let at = row / 8;
    if at >= bitmap.len() {
        bitmap.resize(at.saturating_add(1), 0);
    }
    if let Some(byte) = bitmap.get_mut(at) {
        *byte |= mask(row);
    }
}

/// Removes the marks from row `rows` on.
pub(super) fn cut(bitmap: &mut Vec<u8>, rows: usize) {
    bitmap.truncate(bytes(rows));
    // Without a remainder the last byte is whole, or there is none.
    if !rows.is_multiple_of(8)
        && let Some(last) = bitmap.last_mut()
    {
        *last &= !0xff_u8.checked_shr(shift(rows)).unwrap_or(0);
    }
}

/// The bit of `row` in its byte.
fn mask(row: usize) -> u8 {
    0x80_u8.checked_shr(shift(row)).unwrap_or(0)
}

fn shift(row: usize) -> u32 {
    // The remainder has three bits.
    u32::try_from(row % 8).unwrap_or(0)
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may panic on its own mistakes"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_row_is_the_highest_bit() {
        assert!(is_marked(&[0x80], 0));
        assert!(!is_marked(&[0x7f], 0));
        assert!(is_marked(&[0, 0x01], 15));
        assert!(!is_marked(&[0xff], 8));
        let mut bitmap = Vec::new();
        mark(&mut bitmap, 17);
        assert_eq!(bitmap, [0, 0, 0x40]);
    }

    #[test]
    fn padding_is_not_counted() {
        assert_eq!(marked(&[0xff, 0xff], 9), 9);
        assert_eq!(marked(&[0xff], 0), 0);
        assert_eq!(marked(&[0xff], 8), 8);
        assert_eq!(marked(&[], 0), 0);
    }

    proptest! {
        #[test]
        fn equal_to_a_list_of_flags(flags in prop::collection::vec(any::<bool>(), 0..70)) {
            // The naive twin: a text of binary digits.
            let mut digits: String = flags.iter().map(|&null| if null { '1' } else { '0' }).collect();
            while !digits.len().is_multiple_of(8) {
                digits.push('0');
            }
            let expected: Vec<u8> = (0..digits.len() / 8)
                .map(|at| u8::from_str_radix(&digits[at * 8..][..8], 2).unwrap())
                .collect();

            let mut bitmap = vec![0; bytes(flags.len())];
            for row in (0..flags.len()).filter(|&row| flags[row]) {
                mark(&mut bitmap, row);
            }
            prop_assert_eq!(&bitmap, &expected);
            for (row, &null) in flags.iter().enumerate() {
                prop_assert_eq!(is_marked(&bitmap, row), null);
                let before = flags[..row].iter().filter(|&&null| null).count();
                prop_assert_eq!(marked(&bitmap, row), before);
            }
        }
    }
}
