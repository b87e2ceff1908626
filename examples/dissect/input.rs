//! Forms of the input: vectors, hex digits, or the bytes of the conversation.

use std::error::Error;
use std::fmt;

use epoll_group::codec::proto::resultset::{FieldType, OriginalType};
use serde_json::Value;

use super::dissector::{Column, Side};

/// Bytes that follow one another in one direction of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Their sender, if it is written down.
    pub(crate) from: Option<Side>,
    pub(crate) connection: u64,
    pub(crate) bytes: Vec<u8>,
    /// Columns of the row or chunk in `bytes`, if the vector describes them.
    pub(crate) columns: Vec<Column>,
}

impl Part {
    const fn new(bytes: Vec<u8>) -> Self {
        Self { from: None, connection: 0, bytes, columns: Vec::new() }
    }
}

/// A line of a text that holds no hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoDigits {
    line: usize,
}

impl fmt::Display for NoDigits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is neither hex digits nor a vector", self.line)
    }
}

impl Error for NoDigits {}

/// Takes the input apart. A text that begins with a brace is vectors, any other text hex digits, and
/// everything else the bytes themselves: no header is all text.
pub(crate) fn read(input: &[u8]) -> Result<Vec<Part>, Box<dyn Error>> {
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    match str::from_utf8(input) {
        Ok(text) if text.trim_start().starts_with('{') => vectors(text),
        Ok(text) if input.iter().all(is_text) => {
            let mut bytes = Vec::new();
            for (line, text) in (1..).zip(text.lines()) {
                digits(text, &mut bytes).ok_or(NoDigits { line })?;
            }
            Ok(vec![Part::new(bytes)])
        }
        _ => Ok(vec![Part::new(input.to_vec())]),
    }
}

fn vectors(text: &str) -> Result<Vec<Part>, Box<dyn Error>> {
    let mut parts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let vector: Value = serde_json::from_str(line)?;
        // The end of a connection has no frame.
        let Some(frame) = vector["frame_hex"].as_str() else {
            continue;
        };
        let mut bytes = Vec::new();
        digits(frame, &mut bytes).ok_or(NoDigits { line: at + 1 })?;
        let from = match vector["direction"].as_str() {
            Some("c2s") => Some(Side::Client),
            Some("s2c") => Some(Side::Server),
            _ => None,
        };
        let connection = vector["conn"].as_u64().unwrap_or(0);
        let metas = vector["metas"].as_array().map(Vec::as_slice);
        let metas = metas.unwrap_or_else(|| std::slice::from_ref(&vector["meta"]));
        let columns = metas.iter().filter_map(column).collect();
        parts.push(Part { from, connection, bytes, columns });
    }
    Ok(parts)
}

/// A column as a vector describes it.
fn column(meta: &Value) -> Option<Column> {
    let mut name = Vec::new();
    digits(meta["name"].as_str()?, &mut name)?;
    let field_type = FieldType::from_protocol_name(meta["type"].as_str()?)?;
    let original_type = OriginalType::from_protocol_name(meta["original_type"].as_str()?)?;
    Some(Column { name: String::from_utf8_lossy(&name).into_owned(), field_type, original_type })
}

/// Appends the bytes of hex digits, between which there may be spaces.
fn digits(text: &str, bytes: &mut Vec<u8>) -> Option<()> {
    let mut high = None;
    for character in text.chars().filter(|character| !character.is_whitespace()) {
        let digit = u8::try_from(character.to_digit(16)?).ok()?;
        match high.take() {
            None => high = Some(digit << 4),
            Some(high) => bytes.push(high | digit),
        }
    }
    if high.is_none() { Some(()) } else { None }
}
