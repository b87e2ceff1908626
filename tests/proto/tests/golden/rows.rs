//! Rows: cells decode to what the client's decoders returned, and encode to their bytes.

use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::proto::resultset::{ColumnMetaData, FieldType, OriginalType, Row};
use epoll_group::codec::row::{Cell, Column, RowReader, cells};
use epoll_group::codec::value::Value;
use prost::Message;
use serde_json::Value as Json;

use crate::{Vector, hex, vectors};

/// A column of a row, and what the client made of its cell.
struct Expected {
    meta: Json,
    decoded: Json,
}

impl Expected {
    fn field_type(&self) -> FieldType {
        FieldType::from_protocol_name(self.meta["type"].as_str().expect("a type"))
            .expect("a known one")
    }

    fn original_type(&self) -> OriginalType {
        let name = self.meta["original_type"].as_str().expect("a type");
        OriginalType::from_protocol_name(name).expect("a known one")
    }

    fn is_date(&self) -> bool {
        matches!(self.original_type(), OriginalType::MysqlTypeDate | OriginalType::MysqlTypeNewdate)
    }

    /// Text in the character set of the column, as UTF-8.
    fn text(&self, bytes: &[u8]) -> Vec<u8> {
        const LATIN1: u64 = 8;
        match self.meta["collation"].as_str().and_then(|number| number.parse().ok()) {
            Some(LATIN1) => bytes.iter().map(|&byte| char::from(byte)).collect::<String>().into(),
            _ => bytes.to_vec(),
        }
    }

    /// True if the client decoded this value.
    fn is(&self, value: &Value<'_>) -> bool {
        let object = self.decoded["object"].as_str().unwrap_or_default();
        let text = hex(self.decoded["text_hex"].as_str().unwrap_or_default());
        match *value {
            Value::Null => self.decoded["null"] == true,
            Value::Signed(value) => object == value.to_string(),
            // As an object, a year is a date.
            Value::Unsigned(year) if self.original_type() == OriginalType::MysqlTypeYear => {
                text == format!("{year:04}").as_bytes()
            }
            Value::Unsigned(value) => object == value.to_string(),
            Value::Float(value) => object.parse().map(f32::to_bits) == Ok(value.to_bits()),
            Value::Double(value) => object.parse().map(f64::to_bits) == Ok(value.to_bits()),
            Value::Decimal(value) => java_decimal(object) == value.to_string(),
            Value::Date(value) => object == value.to_string(),
            Value::DateTime(value) => object == value.to_string(),
            Value::Time(value) => object == value.to_string(),
            Value::Bytes(bytes) => text == bytes,
            Value::Enum(bytes) => text == self.text(bytes),
            Value::Set(set) => {
                let members: Vec<_> = set.iter().map(|member| self.text(member)).collect();
                text == members.join(&b","[..])
            }
            Value::Bit(bits) => {
                // The client has a length of its own if the metadata has none.
                let length = self.meta["length"].as_u64().unwrap_or(8 * text.len() as u64);
                let bytes = usize::try_from(length).expect("small").div_ceil(8).min(8);
                let bits = bits.to_be_bytes();
                let (before, last) = bits.split_at(8 - bytes);
                before.iter().all(|&byte| byte == 0) && last == text
            }
            _ => panic!("{value:?} is new"),
        }
    }

    /// True if an encoder writes these bytes. Readers take more forms.
    fn is_canonical(&self, cell: &[u8]) -> bool {
        let ends_in_zero = cell.last() == Some(&0);
        match self.field_type() {
            FieldType::Decimal => cell
                .last()
                .is_none_or(|&last| matches!((last >> 4, last & 15), (12 | 13, 0) | (_, 12 | 13))),
            FieldType::Datetime if !self.is_date() => {
                let long_year = cell.first().is_none_or(|&first| first >= 128);
                long_year && (cell.len() <= 4 || !ends_in_zero)
            }
            FieldType::Time => cell.len() <= 1 || !ends_in_zero,
            FieldType::Set => cell != [1],
            _ => true,
        }
    }
}

/// The client's notation knows exponents: `1E-30`.
fn java_decimal(text: &str) -> String {
    let Some((digits, exponent)) = text.split_once('E') else { return text.to_owned() };
    let scale: i32 = exponent.parse().expect("an exponent");
    let scale = usize::try_from(-scale).expect("small numbers only");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    assert!(!digits.contains('.'), "one digit: {text}");
    let (whole, fraction) = (0, format!("{digits:0>scale$}"));
    format!("{sign}{whole}.{fraction}")
}

/// The columns of a row.
fn columns(vector: &Vector) -> Vec<Expected> {
    let json = &vector.json;
    match json["metas"].as_array() {
        None => vec![Expected { meta: json["meta"].clone(), decoded: json["decoded"].clone() }],
        Some(metas) => {
            let decoded = json["decoded_row"].as_array().expect("as many cells");
            assert_eq!(metas.len(), decoded.len(), "{vector}");
            metas
                .iter()
                .zip(decoded)
                .map(|(meta, decoded)| Expected { meta: meta.clone(), decoded: decoded.clone() })
                .collect()
        }
    }
}

#[test]
fn cells_decode_to_what_the_client_decoded() {
    let mut reader = RowReader::default();
    for vector in vectors("rows.jsonl") {
        let body = vector.bytes("body_hex");
        let row = reader.row(&body).unwrap_or_else(|error| panic!("{vector}: {error}"));
        let columns = columns(&vector);
        assert_eq!(row.len(), columns.len(), "{vector}");
        for (at, column) in columns.iter().enumerate() {
            let cell = row.cell(at).expect("counted");
            let value = cell.value(column.field_type(), column.original_type());
            let value = value.unwrap_or_else(|error| panic!("{vector}: {error}"));
            // A value that the client cannot read is the empty set of another protocol.
            let failed = vector.json.get("object_error").is_some();
            let expected =
                if failed { value == Value::Set(Default::default()) } else { column.is(&value) };
            assert!(expected, "{vector}: {value:?}, but {}", column.decoded);
        }
    }
}

#[test]
fn rows_encode_to_their_bytes() {
    let mut reader = RowReader::default();
    for vector in vectors("rows.jsonl") {
        let body = vector.bytes("body_hex");
        let row = reader.row(&body).unwrap_or_else(|error| panic!("{vector}: {error}"));
        let columns = columns(&vector);
        let value = |(at, column): (usize, &Expected)| {
            let cell = row.cell(at).expect("counted");
            cell.value(column.field_type(), column.original_type()).expect("decoded above")
        };
        let values: Vec<_> = columns.iter().enumerate().map(value).collect();

        let mut buffer = OutBuffer::default();
        let mut out = Encoder::new(&mut buffer, vector.number("sid"));
        out.row(|row| values.iter().for_each(|value| row.value(value))).expect("small");
        let again = buffer.to_vec();
        let cells: Vec<Cell<'_>> = cells(&body).map(|cell| cell.expect("read above")).collect();
        if cells.iter().zip(&columns).all(|(cell, column)| column.is_canonical(cell.as_bytes())) {
            assert_eq!(again, vector.bytes("frame_hex"), "{vector}");
        }
        let written = Row::decode(&again[13..]).expect("a row");
        for ((cell, column), value) in written.field.iter().zip(&columns).zip(&values) {
            let cell = Cell::new(cell).value(column.field_type(), column.original_type());
            assert_eq!(cell.as_ref(), Ok(value), "{vector}");
        }

        // A proxy passes on what it was given, canonical or not.
        buffer.clear();
        let mut out = Encoder::new(&mut buffer, vector.number("sid"));
        out.row(|row| cells.iter().for_each(|&cell| row.cell(cell))).expect("small");
        assert_eq!(buffer.to_vec(), vector.bytes("frame_hex"), "{vector}");
    }
}

#[test]
fn metadata_decodes_to_what_the_client_decoded_and_encodes_to_its_bytes() {
    for vector in vectors("column_meta.jsonl") {
        let message = ColumnMetaData::decode(&vector.bytes("body_hex")[..]).expect("metadata");
        let column = Column::from_message(&message);
        let fields = &vector.json["fields"];
        let name = |key: &str| fields[key].as_str().map(hex);
        let number = |key: &str| {
            let field = &fields[key];
            field.as_u64().or_else(|| field.as_str()?.parse().ok())
        };
        assert_eq!(fields["type"], column.field_type.protocol_name(), "{vector}");
        assert_eq!(fields["original_type"], column.original_type.protocol_name(), "{vector}");
        for (key, value) in [
            ("name", column.name),
            ("original_name", column.original_name),
            ("table", column.table),
            ("original_table", column.original_table),
            ("schema", column.schema),
            ("catalog", column.catalog),
        ] {
            assert_eq!(name(key).as_deref(), value, "{vector}: {key}");
        }
        for (key, value) in [
            ("collation", column.collation),
            ("fractional_digits", column.fractional_digits.map(u64::from)),
            ("length", column.length.map(u64::from)),
            ("flags", column.flags.map(u64::from)),
            ("content_type", column.content_type.map(u64::from)),
            ("original_flags", column.original_flags.map(u64::from)),
        ] {
            assert_eq!(number(key), value, "{vector}: {key}");
        }
        let is_unsigned = vector.text("client_type_name").ends_with("UNSIGNED");
        let unsigned = column.field_type == FieldType::Uint
            && column.original_type != OriginalType::MysqlTypeYear;
        assert_eq!(is_unsigned, unsigned, "{vector}");

        let mut buffer = OutBuffer::default();
        let mut out = Encoder::new(&mut buffer, vector.number("sid"));
        out.column(&column).expect("small");
        assert_eq!(buffer.to_vec(), vector.bytes("frame_hex"), "{vector}");
    }
}
