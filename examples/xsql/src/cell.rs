//! Values as text.

use std::fmt::Write;

use epoll_group::codec::proto::resultset::{ColumnMetaData, FieldType};
use epoll_group::codec::value::Value;

use crate::table::Heading;

/// MySQL's collation of bytes that are no text.
const BINARY: u64 = 63;

/// Text for this value of this column, in one line.
pub(crate) fn text(value: Value<'_>, column: &ColumnMetaData) -> String {
    let binary = column.collation == Some(BINARY);
    let digits =
        column.fractional_digits.map(|digits| digits as usize).filter(|&digits| digits <= 6);
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Signed(number) => number.to_string(),
        Value::Unsigned(number) | Value::Bit(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Decimal(number) => number.to_string(),
        Value::Date(date) => date.to_string(),
        Value::DateTime(time) => match digits {
            Some(digits) => format!("{time:.digits$}"),
            None => time.to_string(),
        },
        Value::Time(time) => match digits {
            Some(digits) => format!("{time:.digits$}"),
            None => time.to_string(),
        },
        Value::Bytes(bytes) if binary => bytes_or_text(bytes),
        Value::Bytes(bytes) | Value::Enum(bytes) => one_line(&String::from_utf8_lossy(bytes)),
        Value::Set(set) => {
            let names: Vec<_> = set.iter().map(String::from_utf8_lossy).collect();
            one_line(&names.join(","))
        }
        other => format!("{other:?}"),
    }
}

/// The heading of a column; compact results have no labels.
pub(crate) fn heading(column: &ColumnMetaData, place: usize) -> Heading {
    let label = match &column.name {
        Some(name) if !name.is_empty() => one_line(&String::from_utf8_lossy(name)),
        _ => format!("column {}", place + 1),
    };
    let is_number = matches!(
        column.r#type,
        FieldType::Sint
            | FieldType::Uint
            | FieldType::Bit
            | FieldType::Float
            | FieldType::Double
            | FieldType::Decimal
    );
    Heading { label, is_number }
}

/// Text, or hexadecimal digits if the bytes are no text. Functions return some texts as bytes.
fn bytes_or_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.iter().fold("0x".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

/// Escapes line breaks and other control characters.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            char if char.is_control() => line.extend(char.escape_unicode()),
            char => line.push(char),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use epoll_group::codec::value::{Date, Set, Time};

    use super::*;

    fn shown(value: Value<'_>) -> String {
        text(value, &ColumnMetaData::default())
    }

    #[test]
    fn every_value_is_one_line() {
        assert_eq!(shown(Value::Null), "NULL");
        assert_eq!(shown(Value::Signed(-7)), "-7");
        assert_eq!(shown(Value::Unsigned(u64::MAX)), "18446744073709551615");
        assert_eq!(shown(Value::Double(0.5)), "0.5");
        assert_eq!(shown(Value::Decimal("-1.50".parse().expect("a number"))), "-1.50");
        assert_eq!(shown(Value::Date(Date::new(2024, 2, 29).expect("a day"))), "2024-02-29");
        assert_eq!(shown(Value::Time(Time::MIN)), "-838:59:59.999999");
        assert_eq!(shown(Value::Bytes("a\tb\nc\u{1b}[31m".as_bytes())), "a\\tb\\nc\\u{1b}[31m");
        assert_eq!(shown(Value::Enum(b"red")), "red");
        let mut out = Vec::new();
        assert_eq!(shown(Value::Set(Set::new(["a", "b"], &mut out))), "a,b");
    }

    #[test]
    fn times_have_the_digits_of_their_column() {
        let column = ColumnMetaData { fractional_digits: Some(3), ..ColumnMetaData::default() };
        assert_eq!(text(Value::Time(Time::MAX), &column), "838:59:59.999");
    }

    #[test]
    fn bytes_are_hexadecimal_unless_they_are_text() {
        let binary = ColumnMetaData { collation: Some(BINARY), ..ColumnMetaData::default() };
        let shown = |bytes| text(Value::Bytes(bytes), &binary);
        assert_eq!(shown(b"\x00\xff"), "0x00ff");
        assert_eq!(shown(b"8.0.32"), "8.0.32");
    }
}
