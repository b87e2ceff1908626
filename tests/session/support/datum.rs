//! Comparison of cells: which values mean the same.

use epoll_group::codec::value::Decimal;

use lab::xrpc::Datum;

fn decimal(coefficient: i128, scale: u8) -> Datum {
    Datum::Decimal(Decimal::from_coefficient(coefficient, scale).expect("a decimal"))
}

#[test]
fn numbers_are_compared_by_value_and_texts_by_bytes() {
    let same = [
        (Datum::Signed(1), Datum::Unsigned(1)),
        (Datum::Signed(1), Datum::Bit(1)),
        (Datum::Signed(1), decimal(100, 2)),
        (Datum::Double(1.5), Datum::Float(1.5)),
        (Datum::Double(0.1), Datum::Float(0.1)),
        (Datum::Double(-2.25e100), Datum::from("-2.25E100")),
        (decimal(-5, 2), Datum::from("-0.050")),
        (decimal(0, 0), Datum::Signed(0)),
        (Datum::Double(-12345678901234567890.123456789), decimal(-12345678901234567890123, 3)),
        (Datum::Enum(b"a".to_vec()), Datum::from("a")),
        (Datum::Null, Datum::Null),
    ];
    for (a, b) in same {
        assert!(a.same(&b) && b.same(&a), "{a:?} and {b:?}");
    }
    let different = [
        (Datum::Signed(-1), Datum::Unsigned(u64::MAX)),
        (Datum::Signed(1), decimal(101, 2)),
        (Datum::Double(1.5), Datum::Double(1.25)),
        (Datum::Double(1.5), Datum::from("one and a half")),
        (Datum::from("01"), Datum::from("1")),
        (Datum::from("a"), Datum::from("A")),
        (Datum::from(""), Datum::Null),
        (Datum::Signed(0), Datum::Null),
        (Datum::Set(vec![]), Datum::from("")),
    ];
    for (a, b) in different {
        assert!(!a.same(&b) && !b.same(&a), "{a:?} and {b:?}");
    }
}
