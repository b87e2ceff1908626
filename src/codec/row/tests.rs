#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test may panic on its own mistakes"
)]

use proptest::prelude::*;

use super::field::CELL;
use super::*;
use crate::codec::proto::resultset::{FieldType, OriginalType};
use crate::codec::value::{Date, DateTime, Time};

fn datetime(text: &str) -> DateTime {
    text.parse().expect(text)
}

/// One cell, by the protocol's description.
#[test]
fn known_cells_are_read() {
    let cell = Cell::new;
    for (bytes, value) in [
        (&[0x00][..], 0),
        (&[0x02], 1),
        (&[0x01], -1),
        (&[0x7e], 63),
        (&[0x7f], -64),
        (&[0x80, 0x01], 64),
        (&[0xd8, 0x04], 300),
        (&[0xd7, 0x04], -300),
        (&[0x82, 0x80, 0x80, 0x00], 1),
    ] {
        assert_eq!(cell(bytes).signed(), Ok(Some(value)));
    }
    assert_eq!(cell(&[0, 0, 0xc0, 0x3f]).float(), Ok(Some(1.5)));
    assert_eq!(cell(&[0, 0, 0, 0, 0, 0, 0x02, 0xc0]).double(), Ok(Some(-2.25)));
    assert_eq!(cell(b"abc\0").text(), Ok(Some("abc")));
    assert_eq!(cell(b"\0").text(), Ok(Some("")));
    assert_eq!(cell(b"").text(), Ok(None));
    let at = datetime("2024-02-29 13:05:09.000123");
    let bytes = [0xe8, 0x0f, 0x02, 0x1d, 0x0d, 0x05, 0x09, 0x7b];
    assert_eq!(cell(&bytes).datetime(), Ok(Some(at)));
    for zero in [&[0x80, 0, 0, 0][..], &[0, 0, 0], &[0, 0, 0, 0, 0, 0, 0]] {
        assert_eq!(cell(zero).datetime(), Ok(Some(DateTime::default())));
        assert_eq!(cell(zero).date(), Ok(Some(Date::default())));
    }
    assert_eq!(cell(&[1, 0xc6, 0x06, 0x3b, 0x3b]).time(), Ok("-838:59:59".parse().ok()));
    for zero in [&[0][..], &[0, 0, 0, 0, 0], &[1]] {
        assert_eq!(cell(zero).time(), Ok(Some(Time::default())));
    }
    let set = cell(&[1, b'a', 1, b'b']).set().unwrap().unwrap();
    assert_eq!(set.iter().collect::<Vec<_>>(), [b"a", b"b"]);
}

#[test]
fn cells_that_are_no_value_are_refused() {
    let cell = Cell::new;
    assert_eq!(cell(&[0, 0]).signed(), Err(ValueError::Trailing { bytes: 1 }));
    assert_eq!(cell(&[0x80]).unsigned(), Err(ValueError::Wire(WireError::Truncated)));
    assert_eq!(cell(b"abc").bytes(), Err(ValueError::Unterminated));
    assert_eq!(cell(&[0xff, 0]).text(), Err(ValueError::NotUtf8));
    assert!(cell(&[1, 2, 3]).float().is_err());
    assert!(cell(&[0xe8, 0x0f, 13, 1]).datetime().is_err());
    assert!(cell(&[0xe8, 0x0f, 2]).datetime().is_err());
    assert!(cell(&[0xe8, 0x0f, 2, 29, 1]).date().is_err());
    assert!(cell(&[0xe8, 0x0f, 2, 29, 0, 0, 0, 0, 0]).datetime().is_err());
    assert!(cell(&[2, 1]).time().is_err());
    assert!(cell(&[0, 0xc7, 0x06]).time().is_err());
    assert!(cell(&[3, b'a']).set().is_err());
}

#[test]
fn rows_are_read_by_column_and_in_order() {
    let body = [0x0a, 1, 0x01, 0x0a, 0, 0x10, 5, 0x0a, 4, b'a', b'b', b'c', 0];
    let mut reader = RowReader::default();
    let row = reader.row(&body).expect("well-formed");
    assert_eq!(row.len(), 3);
    let expected = [&[0x01][..], b"", b"abc\0"].map(|bytes| Ok(Cell::new(bytes)));
    assert_eq!([0, 1, 2].map(|index| row.cell(index)), expected);
    assert_eq!(row.cell(3), Err(ValueError::NoColumn { index: 3, columns: 3 }));
    let in_order: Result<Vec<_>, _> = cells(&body).collect();
    assert_eq!(in_order.expect("well-formed").len(), 3);

    assert_eq!(reader.row(&[]).expect("a row without columns").len(), 0);
    let truncated = [Err(ValueError::Wire(WireError::Truncated))];
    assert_eq!(cells(&[0x0a, 5, 0]).collect::<Vec<_>>(), truncated);
    let nulls = [CELL, 0].repeat(4097);
    let most = reader.row(nulls.get(2..).unwrap_or_default()).map(|row| row.len());
    assert_eq!(most, Ok(4096));
    let more = reader.row(&nulls).map(|row| row.len());
    assert_eq!(more, Err(ValueError::TooManyColumns { max: 4096 }));
}

const FIELD_TYPES: [FieldType; 11] = [
    FieldType::Sint,
    FieldType::Uint,
    FieldType::Double,
    FieldType::Float,
    FieldType::Bytes,
    FieldType::Time,
    FieldType::Datetime,
    FieldType::Set,
    FieldType::Enum,
    FieldType::Bit,
    FieldType::Decimal,
];

proptest! {
    /// A value that was read from any bytes is written to bytes that are read as the same value.
    #[test]
    fn any_bytes_are_a_value_or_an_error(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(0..24_u8, 0..9),
        ],
    ) {
        for field_type in FIELD_TYPES {
            for original in [OriginalType::MysqlTypeDate, OriginalType::MysqlTypeDatetime] {
                let Ok(value) = Cell::new(&bytes).value(field_type, original) else { continue };
                let mut buffer = crate::codec::encoder::OutBuffer::default();
                let mut out = crate::codec::encoder::Encoder::new(&mut buffer, 1);
                out.row(|row| row.value(&value)).unwrap();
                let body = buffer.to_vec().split_off(13);
                let cell = cells(&body).next().unwrap().unwrap();
                let again = cell.value(field_type, original).unwrap();
                // NaN is not equal to itself, but shown the same.
                prop_assert_eq!(format!("{again:?}"), format!("{value:?}"));
            }
        }
    }

    #[test]
    fn any_body_is_a_row_or_an_error(body in prop::collection::vec(any::<u8>(), 0..64)) {
        let in_order: Result<Vec<_>, _> = cells(&body).collect();
        let mut reader = RowReader::default();
        match reader.row(&body) {
            Ok(row) => {
                let by_number: Vec<_> = (0..row.len()).map(|at| row.cell(at).unwrap()).collect();
                prop_assert_eq!(in_order, Ok(by_number));
            }
            Err(error) => prop_assert_eq!(in_order.unwrap_err(), error),
        }
    }
}
