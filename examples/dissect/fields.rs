//! The fields of any message by the names of its `.proto` file.

use std::io::{self, Write};

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, Value};

use super::values::text;

/// Writes the fields that are present, one a line. Fields of nested messages are indented.
pub(crate) fn write(out: &mut impl Write, message: &str, body: &[u8]) -> io::Result<()> {
    let message = proto::pool().get_message_by_name(message);
    match message.and_then(|message| DynamicMessage::decode(message, body).ok()) {
        Some(message) => fields(out, &message, 1),
        None => Ok(()),
    }
}

fn fields(out: &mut impl Write, message: &DynamicMessage, depth: usize) -> io::Result<()> {
    for (field, value) in message.fields() {
        match value {
            Value::List(values) => {
                for (at, value) in values.iter().enumerate() {
                    one(out, &format!("{}[{at}]", field.name()), &field, value, depth)?;
                }
            }
            value => one(out, field.name(), &field, value, depth)?,
        }
    }
    for field in message.unknown_fields() {
        writeln!(out, "{:1$}field {2} (unknown)", "", INDENT * depth, field.number())?;
    }
    Ok(())
}

fn one(
    out: &mut impl Write,
    name: &str,
    field: &FieldDescriptor,
    value: &Value,
    depth: usize,
) -> io::Result<()> {
    write!(out, "{:1$}{name}: ", "", INDENT * depth)?;
    match value {
        Value::Bool(value) => writeln!(out, "{value}"),
        Value::I32(value) => writeln!(out, "{value}"),
        Value::I64(value) => writeln!(out, "{value}"),
        Value::U32(value) => writeln!(out, "{value}"),
        Value::U64(value) => writeln!(out, "{value}"),
        Value::F32(value) => writeln!(out, "{value}"),
        Value::F64(value) => writeln!(out, "{value}"),
        Value::String(value) => writeln!(out, "{}", text(value.as_bytes())),
        Value::Bytes(value) => writeln!(out, "{}", text(value)),
        Value::EnumNumber(number) => match field.kind() {
            Kind::Enum(values) => match values.get_value(*number) {
                Some(value) => writeln!(out, "{}", value.name()),
                None => writeln!(out, "{number} (unknown)"),
            },
            _ => writeln!(out, "{number}"),
        },
        Value::Message(message) => {
            writeln!(out)?;
            fields(out, message, depth + 1)
        }
        // This protocol has no maps, and a list cannot hold lists.
        Value::List(_) | Value::Map(_) => writeln!(out, "…"),
    }
}

/// Spaces of each level.
const INDENT: usize = 4;
