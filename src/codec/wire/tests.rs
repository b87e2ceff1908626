#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    reason = "a test may panic on its own mistakes"
)]

use proptest::prelude::*;

use super::*;

/// Varint by its definition, one group of seven bits at a time.
fn naive_varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = u8::try_from(value % 128).expect("below 128");
        value /= 128;
        if value == 0 {
            out.push(low);
            return out;
        }
        out.push(low + 128);
    }
}

/// Reads a varint in arithmetic wide enough for ten full groups.
fn naive_read(bytes: &[u8]) -> Result<(u64, usize), WireError> {
    let mut value = 0_u128;
    for (at, &byte) in bytes.iter().enumerate().take(MAX_VARINT_BYTES) {
        value += u128::from(byte % 128) << (7 * at);
        if byte < 128 {
            return u64::try_from(value)
                .map(|value| (value, at + 1))
                .map_err(|_| WireError::VarintTooLong);
        }
    }
    Err(if bytes.len() < MAX_VARINT_BYTES {
        WireError::Truncated
    } else {
        WireError::VarintTooLong
    })
}

/// Numbers of which all magnitudes are equally likely, not only those near 2⁶⁴.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift)
}

#[test]
fn varints_at_every_power_of_two() {
    for bit in 0..64 {
        for value in [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, naive_varint(value), "{value}");
            assert_eq!(varint_bytes(value), out.len());
        }
    }
}

#[test]
fn padded_varints_are_read() {
    for bytes in [&[0x84, 0x80, 0x80, 0][..], &[0x84, 0x80, 0], &[0x84, 0], &[4]] {
        let mut reader = Reader::new(bytes);
        assert_eq!(reader.varint(), Ok(4));
        assert!(reader.is_empty());
    }
    assert_eq!(Reader::new(&[0xff; 9]).varint(), Err(WireError::Truncated));
    assert_eq!(Reader::new(&[0xff; 10]).varint(), Err(WireError::VarintTooLong));
    let overflow = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
    assert_eq!(Reader::new(&overflow).varint(), Err(WireError::VarintTooLong));
}

#[test]
fn fields_that_cannot_be_are_refused() {
    assert_eq!(Reader::new(&[]).field(), Ok(None));
    let mut tag = Vec::new();
    put_varint(&mut tag, (1 << 29) << 3);
    for bytes in [&[0x0e][..], &[0x0f], &[0x0c], &[0x02], &tag] {
        assert_eq!(Reader::new(bytes).field(), Err(WireError::Tag), "{bytes:?}");
    }
}

#[test]
fn groups_are_skipped_to_their_end() {
    let skip = |bytes: &[u8], depth| {
        let mut reader = Reader::new(bytes);
        let (number, kind) = reader.field()?.expect("there is a field");
        reader.skip_within(number, kind, depth)?;
        Ok(reader.rest().to_vec())
    };
    // Group 1 with field 2, and in it group 1 once more.
    assert_eq!(skip(&[0x0b, 0x10, 5, 0x0c, 7], 1), Ok(vec![7]));
    assert_eq!(skip(&[0x0b, 0x0b, 0x0c, 0x0c, 7], 2), Ok(vec![7]));
    assert_eq!(skip(&[0x0b, 0x0b, 0x0c, 0x0c, 7], 1), Err(WireError::TooDeep));
    assert_eq!(skip(&[0x0b, 0x14], 1), Err(WireError::Tag));
    assert_eq!(skip(&[0x0b, 0x10, 5], 1), Err(WireError::Truncated));
}

#[test]
fn fixed_width_is_little_endian() {
    let mut reader = Reader::new(&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(reader.fixed32(), Ok(1));
    assert_eq!(reader.fixed64(), Ok(2));
    assert_eq!(reader.fixed32(), Err(WireError::Truncated));
}

proptest! {
    #[test]
    fn varint_is_the_naive_one(value in number()) {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        prop_assert_eq!(&out, &naive_varint(value));
        prop_assert_eq!(varint_bytes(value), out.len());
        prop_assert_eq!(Reader::new(&out).varint(), Ok(value));
    }

    #[test]
    fn any_bytes_read_as_the_naive_reader_reads_them(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0x80..=0xff_u8], 0..12),
    ) {
        let mut reader = Reader::new(&bytes);
        let read = reader.varint().map(|value| (value, bytes.len() - reader.rest().len()));
        prop_assert_eq!(read, naive_read(&bytes));
    }

    #[test]
    fn zigzag_is_two_n_or_minus_two_n_minus_one(value: i64) {
        let wide = i128::from(value);
        let expected = if value < 0 { -2 * wide - 1 } else { 2 * wide };
        prop_assert_eq!(i128::from(zigzag(value)), expected);
        prop_assert_eq!(unzigzag(zigzag(value)), value);
    }

    #[test]
    fn words_are_their_bytes_in_order(a in number(), b in 0..1_u64 << 42) {
        let word = Word::varint(a).then(Word::varint(b));
        let expected = [naive_varint(a), naive_varint(b)].concat();
        let mut place = [0; 16];
        prop_assert_eq!(word.as_bytes(&mut place), &expected);
        prop_assert_eq!(word.len(), expected.len());
    }

    #[test]
    fn any_bytes_end_in_an_error_or_at_the_end(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut reader = Reader::new(&bytes);
        while let Ok(Some((number, kind))) = reader.field() {
            if reader.skip(number, kind).is_err() {
                break;
            }
        }
    }
}
