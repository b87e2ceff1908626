//! Cells and metadata of all kinds.

use proptest::prelude::*;

use crate::codec::proto::Enumeration;
use crate::codec::proto::resultset::{ColumnMetaData, FieldType, OriginalType};
use crate::codec::value::{Date, DateTime, Decimal, Set, Sign, Time, Value};

/// One cell, and its expected bytes, derived by hand.
pub(super) fn cell() -> impl Strategy<Value = (Value<'static>, Vec<u8>)> {
    let number = (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift);
    let varint = |value: u64| {
        let mut out = Vec::new();
        prost::encoding::encode_varint(value, &mut out);
        out
    };
    let text = prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        Just((Value::Null, vec![])),
        number.clone().prop_map(move |value| (Value::Unsigned(value), varint(value))),
        number.clone().prop_map(move |value| {
            let signed = value.cast_signed();
            let doubled = i128::from(signed) * 2;
            let zigzag = if signed < 0 { -doubled - 1 } else { doubled };
            (Value::Signed(signed), varint(u64::try_from(zigzag).unwrap()))
        }),
        any::<f32>().prop_map(|v| (Value::Float(v), v.to_bits().to_le_bytes().to_vec())),
        any::<f64>().prop_map(|v| (Value::Double(v), v.to_bits().to_le_bytes().to_vec())),
        text.prop_map(|text| {
            let cell = [&text[..], &[0]].concat();
            (Value::Bytes(text.leak()), cell)
        }),
        number.prop_map(|value| {
            let decimal = Decimal::from_coefficient(value.into(), 0).unwrap();
            (Value::Decimal(decimal), decimal.as_packed().to_vec())
        }),
        (0..=9999_u16, 0..=12_u8, 0..=31_u8).prop_map(move |(year, month, day)| {
            let cell = [&varint(year.into())[..], &[month, day]].concat();
            (Value::Date(Date::new(year, month, day).unwrap()), cell)
        }),
        (any_clock(), 0..=9999_u16).prop_map(move |([h, m, s, us], year)| {
            let date = Date::new(year, 2, 29).unwrap();
            let [hour, minute, second] = [h % 24, m, s].map(|part| u8::try_from(part).unwrap());
            let at = DateTime::new(date, hour, minute, second, us).unwrap();
            let (low, high) = (year % 128, year / 128);
            let mut cell =
                vec![u8::try_from(low + 128).unwrap(), u8::try_from(high).unwrap(), 2, 29];
            cell.extend(parts([h % 24, m, s, us]));
            (Value::DateTime(at), cell)
        }),
        (any_clock(), any::<bool>()).prop_map(|([h, m, s, us], below)| {
            let sign = if below { Sign::Minus } else { Sign::Plus };
            let [minute, second] = [m, s].map(|part| u8::try_from(part).unwrap());
            let time = Time::new(sign, u16::try_from(h).unwrap(), minute, second, us).unwrap();
            let mut cell = vec![u8::from(below && [h, m, s, us] != [0; 4])];
            cell.extend(parts([h, m, s, us]));
            (Value::Time(time), cell)
        }),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..150), 0..4).prop_map(
            move |members| {
                let mut cell = Vec::new();
                for member in &members {
                    cell.extend(varint(member.len() as u64));
                    cell.extend(member);
                }
                if cell.is_empty() {
                    cell.push(0);
                }
                (Value::Set(Set::new(&members, Box::leak(Box::default()))), cell)
            }
        ),
    ]
}

/// Hour to microsecond, each often zero.
fn any_clock() -> impl Strategy<Value = [u32; 4]> {
    let part = |range: std::ops::Range<u32>| prop_oneof![Just(0), range];
    [part(0..839).boxed(), part(0..60).boxed(), part(0..60).boxed(), part(0..1_000_000).boxed()]
}

/// Varints without trailing zeros.
fn parts(values: [u32; 4]) -> Vec<u8> {
    let count = values.iter().rposition(|&value| value != 0).map_or(0, |last| last + 1);
    let mut out = Vec::new();
    for value in values.into_iter().take(count) {
        prost::encoding::encode_varint(value.into(), &mut out);
    }
    out
}

fn name() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..150))
}

pub(super) fn metadata() -> impl Strategy<Value = ColumnMetaData> {
    let field_type = (0..20_i32).prop_filter_map("a type", FieldType::from_number);
    let original = (0..256_i32).prop_filter_map("a type", OriginalType::from_number);
    let names = (name(), name(), name(), name(), name(), name());
    let numbers = prop::array::uniform5(prop::option::of(any::<u32>()));
    (field_type, original, names, any::<Option<u64>>(), numbers).prop_map(
        |(field_type, original, names, collation, numbers)| ColumnMetaData {
            r#type: field_type,
            original_type: original,
            name: names.0,
            original_name: names.1,
            table: names.2,
            original_table: names.3,
            schema: names.4,
            catalog: names.5,
            collation,
            fractional_digits: numbers[0],
            length: numbers[1],
            flags: numbers[2],
            content_type: numbers[3],
            original_flags: numbers[4],
        },
    )
}
