//! Values and bytes in a form to be read.

use epoll_group::codec::value::Value;

/// Longest text and longest row of digits that are shown whole.
const MAX_CHARACTERS: usize = 200;
const MAX_BYTES: usize = 48;

/// A value as SQL would have it.
pub(crate) fn value(value: &Value<'_>) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Signed(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::Bit(value) => format!("b'{value:b}'"),
        Value::Float(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Decimal(value) => value.to_string(),
        Value::Date(value) => format!("'{value}'"),
        Value::DateTime(value) => format!("'{value}'"),
        Value::Time(value) => format!("'{value}'"),
        Value::Bytes(bytes) | Value::Enum(bytes) => text(bytes),
        Value::Set(set) => {
            format!("({})", set.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Text in quotes if the bytes are text, else hex digits.
pub(crate) fn text(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && !c.is_ascii_whitespace()) => {
            let mut shown: String = text.chars().take(MAX_CHARACTERS).collect();
            if shown.len() < text.len() {
                shown.push('…');
            }
            format!("'{}'", shown.replace('\n', "\\n").replace('\r', "\\r"))
        }
        _ => digits(bytes),
    }
}

/// Bytes as hex digits.
pub(crate) fn digits(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().take(MAX_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > MAX_BYTES { "…" } else { "" };
    format!("x'{shown}{more}' ({} bytes)", bytes.len())
}
