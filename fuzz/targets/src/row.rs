//! Rows. Arbitrary bytes end in values or an error, without allocations. Values come back from the output
//! of the encoder.
//!
//! ```text
//! part = number of columns u8 │ type u8 … │ body of a row
//! ```
//!
//! A type is an index into `TYPES`, modulo its length.

use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::frame::HEADER_BYTES;
use epoll_group::codec::proto::resultset::{FieldType, OriginalType};
use epoll_group::codec::row::{Cell, RowReader, cells};
use epoll_group::codec::value::{Date, DateTime, Decimal, Time, Value};

use crate::memory::bounded;

pub(crate) fn check(input: &[u8]) {
    let Some((&columns, rest)) = input.split_first() else {
        return;
    };
    let Some((types, body)) = rest.split_at_checked(usize::from(columns % 64)) else {
        return;
    };
    let types: Vec<_> = types.iter().map(|&kind| TYPES[usize::from(kind) % TYPES.len()]).collect();
    let mut reader = RowReader::default();
    let Ok(row) = bounded(body.len(), || reader.row(body)) else {
        return;
    };
    let listed: Result<Vec<_>, _> = cells(body).collect();
    assert_eq!(listed.map(|cells| cells.len()), Ok(row.len()));

    let mut buffer = OutBuffer::default();
    let mut values = Vec::new();
    for (index, &(field, original)) in types.iter().enumerate().take(row.len()) {
        let cell = row.cell(index).expect("the row has so many");
        bounded(0, || every_reader(cell));
        match cell.value(field, original) {
            Ok(value) => values.push((field, original, value)),
            Err(error) => assert!(!cell.is_null() && !error.to_string().is_empty()),
        }
    }
    let mut out = Encoder::new(&mut buffer, 0);
    let written = out.row(|row| values.iter().for_each(|(_, _, value)| row.value(value)));
    written.expect("it is small");
    let again = buffer.to_vec();
    let mut reader = RowReader::default();
    let row = reader.row(&again[HEADER_BYTES..]).expect("it was just encoded");
    assert_eq!(row.len(), values.len());
    for (index, (field, original, value)) in values.iter().enumerate() {
        let cell = row.cell(index).expect("the row has so many");
        let found = cell.value(*field, *original).expect("it was just encoded");
        assert!(same(value, &found), "{value:?} came back as {found:?}");
    }
}

/// Calls every reader, whatever the column's type, and converts the values back.
fn every_reader(cell: Cell<'_>) {
    let _ = (cell.signed(), cell.unsigned(), cell.float(), cell.double());
    let _ = (cell.bytes(), cell.text());
    if let Ok(Some(set)) = cell.set() {
        assert_eq!(set.is_empty(), set.iter().next().is_none());
    }
    if let Ok(Some(decimal)) = cell.decimal() {
        assert_eq!(decimal.to_string().parse(), Ok(decimal));
        assert_eq!(Decimal::from_packed(decimal.as_packed()), Ok(decimal));
        if let Some(coefficient) = decimal.coefficient() {
            assert_eq!(Decimal::from_coefficient(coefficient, decimal.scale()), Ok(decimal));
        }
        let _ = decimal.to_f64();
    }
    if let Ok(Some(date)) = cell.date() {
        assert_eq!(Date::from_packed(date.to_packed()), Ok(date));
        assert_eq!(date.to_string().parse(), Ok(date));
    }
    if let Ok(Some(at)) = cell.datetime() {
        assert_eq!(DateTime::from_packed(at.to_packed()), Ok(at));
        assert_eq!(at.to_string().parse(), Ok(at));
    }
    if let Ok(Some(time)) = cell.time() {
        assert_eq!(Time::from_packed(time.to_packed()), Ok(time));
        assert_eq!(time.to_string().parse(), Ok(time));
    }
}

pub(crate) fn same(one: &Value<'_>, other: &Value<'_>) -> bool {
    // Bit by bit, because NaN is not equal to itself.
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => one.to_bits() == other.to_bits(),
        (Value::Double(one), Value::Double(other)) => one.to_bits() == other.to_bits(),
        _ => one == other,
    }
}

const TYPES: [(FieldType, OriginalType); 12] = [
    (FieldType::Sint, OriginalType::MysqlTypeLonglong),
    (FieldType::Uint, OriginalType::MysqlTypeLonglong),
    (FieldType::Bit, OriginalType::MysqlTypeBit),
    (FieldType::Float, OriginalType::MysqlTypeFloat),
    (FieldType::Double, OriginalType::MysqlTypeDouble),
    (FieldType::Decimal, OriginalType::MysqlTypeNewdecimal),
    (FieldType::Datetime, OriginalType::MysqlTypeDate),
    (FieldType::Datetime, OriginalType::MysqlTypeDatetime),
    (FieldType::Time, OriginalType::MysqlTypeTime),
    (FieldType::Bytes, OriginalType::MysqlTypeVarString),
    (FieldType::Enum, OriginalType::MysqlTypeEnum),
    (FieldType::Set, OriginalType::MysqlTypeSet),
];
