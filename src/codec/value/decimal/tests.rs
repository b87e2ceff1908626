#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test may panic on its own mistakes"
)]

use proptest::prelude::*;

use super::*;

#[test]
fn known_bytes_both_ways() {
    for (text, packed) in [
        ("0", &[0x00, 0x0c][..]),
        ("123", &[0x00, 0x12, 0x3c]),
        ("-123", &[0x00, 0x12, 0x3d]),
        ("1.5", &[0x01, 0x15, 0xc0]),
        ("0.00", &[0x02, 0x00, 0x0c]),
        ("-12.3401", &[0x04, 0x12, 0x34, 0x01, 0xd0]),
        ("-0.05", &[0x02, 0x00, 0x5d]),
        ("-0.5", &[0x01, 0x05, 0xd0]),
        ("100.00", &[0x02, 0x10, 0x00, 0x0c]),
    ] {
        let decimal: Decimal = text.parse().expect(text);
        assert_eq!(decimal.as_packed(), packed, "{text}");
        assert_eq!(Decimal::from_packed(packed), Ok(decimal));
        assert_eq!(decimal.to_string(), text);
    }
}

#[test]
fn readers_take_missing_and_superfluous_zeros_and_other_signs() {
    for (packed, text) in [
        (&[0x02, 0x5d][..], "-0.05"),
        (&[0x00, 0x00, 0x00, 0x1c], "1"),
        (&[0x02, 0x12, 0x3a], "1.23"),
        (&[0x02, 0x12, 0x3e], "1.23"),
        (&[0x02, 0x12, 0x3f], "1.23"),
        (&[0x02, 0x12, 0x3b], "-1.23"),
        (&[0x01, 0x00, 0xd0], "0.0"),
    ] {
        assert_eq!(Decimal::from_packed(packed).expect(text).to_string(), text);
    }
    let zeros = [&[0_u8; 200][..], &[0x7c]].concat();
    assert_eq!(Decimal::from_packed(&zeros), "7".parse());
}

#[test]
fn malformed_packed_decimals_are_refused() {
    for packed in [
        &[][..],
        &[0],
        &[0, 0xc0],
        &[0, 0x12],
        &[0, 0x1c, 0x00],
        &[0, 0x12, 0xc1],
        &[0, 0xcc, 0x1c],
    ] {
        assert_eq!(Decimal::from_packed(packed), Err(ValueError::BadDecimal), "{packed:x?}");
    }
    let scale = ValueError::OutOfRange { part: "scale", value: 65, max: 64 };
    assert_eq!(Decimal::from_packed(&[65, 0x1c]), Err(scale));
}

#[test]
fn sixty_five_digits_and_no_more() {
    let most = "9".repeat(65);
    assert_eq!(most.parse::<Decimal>().expect("fits").to_string(), most);
    assert!("9".repeat(66).parse::<Decimal>().is_err());
    let behind = format!("0.{}", "9".repeat(64));
    assert_eq!(behind.parse::<Decimal>().expect("fits").to_string(), behind);
    assert!(format!("0.{}", "9".repeat(65)).parse::<Decimal>().is_err());
    assert!(format!("10.{}", "9".repeat(64)).parse::<Decimal>().is_err());
    assert_eq!(
        Decimal::from_packed("9".repeat(65).parse::<Decimal>().unwrap().as_packed()),
        most.parse()
    );
}

#[test]
fn texts_that_are_no_decimals() {
    for text in ["", "-", ".", "1e5", " 1", "1 ", "--1", "1.2.3", "0x1", "١"] {
        assert_eq!(text.parse::<Decimal>(), Err(ValueError::Syntax), "{text}");
    }
    for (text, shown) in [(".5", "0.5"), ("7.", "7"), ("+3", "3"), ("-0", "0"), ("007", "7")] {
        assert_eq!(text.parse::<Decimal>().expect(text).to_string(), shown);
    }
}

#[test]
fn conversions_to_numbers() {
    let lowest = Decimal::from_coefficient(i128::MIN, 10).expect("39 digits fit");
    assert_eq!(lowest.coefficient(), Some(i128::MIN));
    assert_eq!("9".repeat(40).parse::<Decimal>().expect("fits").coefficient(), None);
    assert!(("-12.3401".parse::<Decimal>().expect("fits").to_f64() + 12.3401).abs() < 1e-12);
    assert_eq!(Decimal::from_coefficient(0, 0), "0".parse());
}

proptest! {
    #[test]
    fn texts_come_back(text in "-?(0|[1-9][0-9]{0,34})(\\.[0-9]{1,30})?") {
        let decimal: Decimal = text.parse().unwrap();
        let is_zero = text.bytes().all(|byte| matches!(byte, b'-' | b'.' | b'0'));
        let expected = if is_zero { text.trim_start_matches('-') } else { &text };
        prop_assert_eq!(decimal.to_string(), expected);
        prop_assert_eq!(Decimal::from_packed(decimal.as_packed()), Ok(decimal));
    }

    #[test]
    fn packing_is_the_naive_one(coefficient: i64, scale in 0..=30_u8) {
        let decimal = Decimal::from_coefficient(i128::from(coefficient), scale).unwrap();
        let width = usize::from(scale) + 1;
        let mut hex = format!("{:0width$}", coefficient.unsigned_abs());
        hex.push(if coefficient < 0 { 'd' } else { 'c' });
        if hex.len() % 2 == 1 {
            hex.push('0');
        }
        let naive: String = decimal.as_packed().iter().skip(1).map(|b| format!("{b:02x}")).collect();
        prop_assert_eq!(naive, hex);
        prop_assert_eq!(decimal.coefficient(), Some(i128::from(coefficient)));
    }

    #[test]
    fn any_bytes_are_a_decimal_or_an_error(packed in prop::collection::vec(any::<u8>(), 0..50)) {
        if let Ok(decimal) = Decimal::from_packed(&packed) {
            prop_assert_eq!(Decimal::from_packed(decimal.as_packed()), Ok(decimal));
            prop_assert_eq!(decimal.to_string().parse(), Ok(decimal));
        }
    }
}
