//! Forms of the input: vectors, a hex dump, or the bytes of the conversation.

use std::error::Error;
use std::fmt;

use epoll_group::codec::message::resultset::{FieldType, OriginalType};
use serde_json::Value;

use super::dissector::{Column, Side};

/// Bytes that follow one another in one direction of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Their sender, if it is written down.
    pub(crate) from: Option<Side>,
    pub(crate) connection: u64,
    pub(crate) bytes: Vec<u8>,
    /// The columns of the row or chunk that this is, where a vector describes them beside it.
    pub(crate) columns: Vec<Column>,
}

impl Part {
    const fn new(bytes: Vec<u8>) -> Self {
        Self { from: None, connection: 0, bytes, columns: Vec::new() }
    }
}

/// Where a text is no hex dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoDump {
    line: usize,
}

impl fmt::Display for NoDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is neither hex digits nor a vector", self.line)
    }
}

impl Error for NoDump {}

/// Takes the input apart. A text that begins with a brace is vectors, any other text a dump, and
/// everything else the bytes themselves: no header is all text.
pub(crate) fn read(input: &[u8]) -> Result<Vec<Part>, Box<dyn Error>> {
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    match str::from_utf8(input) {
        Ok(text) if text.trim_start().starts_with('{') => vectors(text),
        Ok(text) if input.iter().all(is_text) => Ok(vec![Part::new(dump(text)?)]),
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
        digits(frame, &mut bytes).ok_or(NoDump { line: at + 1 })?;
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
    let field_type = FieldType::from_str_name(meta["type"].as_str()?)?;
    let original_type = OriginalType::from_str_name(meta["original_type"].as_str()?)?;
    Some(Column { name: String::from_utf8_lossy(&name).into_owned(), field_type, original_type })
}

/// The bytes of a hex dump.
///
/// ```text
/// 00000000: 0200 0000 0000 0000 0100 0000 6e         ............n       xxd
/// 00000000  02 00 00 00 00 00 00 00  01 00 00 00 6e  |............n|     hexdump -C
/// 02 00 00 00 00 00 00 00  01 00 00 00  6e                              plain
/// ```
///
/// An offset is one only if it counts the bytes before it: `02000000  01…` may be plain. A `*`
/// stands for lines like the one before it, up to [`MAX_REPEATED`] bytes of them.
pub(crate) fn dump(text: &str) -> Result<Vec<u8>, NoDump> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut last = Vec::new();
    let mut repeated = false;
    for (at, line) in text.lines().enumerate() {
        let error = NoDump { line: at + 1 };
        let line = line.trim();
        if line == "*" {
            repeated = true;
            continue;
        }
        let (offset, line) = split_offset(line);
        let line = match offset {
            Some(offset) => {
                if repeated && !last.is_empty() {
                    let missing = offset.saturating_sub(bytes.len());
                    if missing > MAX_REPEATED {
                        return Err(error);
                    }
                    bytes.extend(last.repeat(missing.div_ceil(last.len())));
                }
                if bytes.len() == offset { without_text(line) } else { return Err(error) }
            }
            None => line,
        };
        repeated = false;
        last.clear();
        digits(line, &mut last).ok_or(error)?;
        bytes.extend(&last);
    }
    Ok(bytes)
}

/// An offset at the start of a line, and the rest.
fn split_offset(line: &str) -> (Option<usize>, &str) {
    let width = line.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (digits, rest) = line.split_at(width);
    let offset = usize::from_str_radix(digits, 16).ok();
    if let Some(rest) = rest.strip_prefix(':') {
        return (offset, rest);
    }
    // The last line of hexdump is an offset alone.
    let is_offset = (7..=8).contains(&width) && (rest.starts_with("  ") || rest.is_empty());
    if is_offset && offset.is_some_and(|offset| offset % 16 == 0 || rest.is_empty()) {
        return (offset, rest);
    }
    (None, line)
}

/// The column of hex digits without the characters behind it.
fn without_text(line: &str) -> &str {
    let line = line.trim_start();
    if let Some((digits, _)) = line.split_once('|') {
        return digits;
    }
    // xxd has two spaces there, and one between its groups.
    match line.split_once("  ") {
        Some((digits, text)) if !is_digits(text) || digits.len() >= 39 => digits,
        _ => line,
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b' ')
}

/// Most bytes that a `*` stands for: more than the largest frame. A wrong digit in an offset would
/// otherwise fill the memory.
const MAX_REPEATED: usize = 128 << 20;

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
