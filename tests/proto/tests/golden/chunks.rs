//! Columnar results: they decode to what the client's decoders returned, and encode to their bytes.

use std::collections::HashMap;

use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkJoiner, ChunkWriter, Member};
use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::frame::{Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::proto::resultset::{Chunk, ColumnMetaData, FieldType, OriginalType};
use epoll_group::codec::value::Value;
use prost::Message;
use serde_json::Value as Json;

use crate::{Vector, hex, is_other_folder, vectors};

#[test]
fn chunks_decode_to_what_the_client_decoded() {
    for vector in vectors("chunks.jsonl") {
        let body = vector.bytes("body_hex");
        let kinds = kinds(&vector);
        let mut joiner = ChunkJoiner::new(&kinds, 0);
        let frame = ChunkFrame::parse(&body).unwrap_or_else(|error| panic!("{vector}: {error}"));
        let chunk = joiner.push(frame).ok().flatten().unwrap_or_else(|| panic!("{vector}"));
        let mut rows = chunk.rows();
        let expected = vector.json["decoded_rows"].as_array().expect("rows");
        assert_eq!(chunk.row_count() as usize, expected.len(), "{vector}");
        for (at, expected) in expected.iter().enumerate() {
            let row = rows.next_row().unwrap_or_else(|error| panic!("{vector}: {error}"));
            let expected = expected.as_array().expect("a row");
            let row = row.unwrap_or_else(|| panic!("{vector}: row {at} is missing"));
            assert_eq!(row.len(), expected.len(), "{vector}");
            for (value, expected) in row.iter().zip(expected) {
                assert!(is_equal(value, expected), "{vector}, row {at}: {value:?} {expected}");
            }
        }
        assert_eq!(rows.next_row(), Ok(None), "{vector}");
    }
}

#[test]
fn chunks_encode_to_their_bytes() {
    for vector in vectors("chunks.jsonl") {
        let body = vector.bytes("body_hex");
        let frame = ChunkFrame::parse(&body).unwrap_or_else(|error| panic!("{vector}: {error}"));
        let message = Chunk::decode(&body[..]).unwrap_or_else(|error| panic!("{vector}: {error}"));
        assert_eq!(message.row_count, frame.row_count(), "{vector}");
        for (column, block) in message.columns.iter().zip(frame.columns()) {
            let fixed = column.fixed_size_column.as_ref().map(|column| &column.value[..]);
            let variable = column.variable_size_column.as_ref().map(|column| &column.value[..]);
            let values = match block.member {
                Member::Fixed => (Some(block.values), None),
                Member::Variable => (None, Some(block.values)),
            };
            assert_eq!((fixed, variable), values, "{vector}");
            assert_eq!(column.null_bitmap.as_deref(), block.nulls, "{vector}");
        }
        assert_eq!(message.columns.len(), frame.column_count(), "{vector}");
        assert_eq!(message.encode_to_vec(), body, "{vector}");
        // A writer without rows writes no frame.
        if frame.row_count() == 0 {
            continue;
        }
        let kinds = kinds(&vector);
        let again = written(&kinds, &frame);
        if is_canonical(&kinds, &frame) {
            assert_eq!(again, body, "{vector}");
        } else {
            let again = ChunkFrame::parse(&again).expect("it was written");
            assert_eq!(values(&kinds, again), values(&kinds, frame), "{vector}");
        }
    }
}

#[test]
fn chunks_of_recorded_conversations_have_the_rows_that_they_say() {
    let mut columns = HashMap::<u64, Vec<BlockKind>>::new();
    let mut joiners = HashMap::<u64, ChunkJoiner>::new();
    let mut chunks = 0;
    let lines = vectors("sessions/chunk.jsonl");
    for vector in &lines {
        let body = vector.bytes("body_hex");
        match vector.text("direction") {
            "s2c" => {}
            "c2s" => {
                columns.remove(&vector.number("sid"));
                joiners.remove(&vector.number("sid"));
                continue;
            }
            _ => continue,
        }
        let columns = columns.entry(vector.number("sid")).or_default();
        match vector.kind() {
            12 => {
                let column = ColumnMetaData::decode(&body[..]).expect("metadata");
                columns.extend(BlockKind::of_types(column.r#type, column.original_type));
            }
            21 => {
                let new = || ChunkJoiner::new(columns, 64 << 20);
                let joiner = joiners.entry(vector.number("sid")).or_insert_with(new);
                let frame = ChunkFrame::parse(&body).expect("a chunk");
                let Some(chunk) = joiner.push(frame).expect("it fits") else { continue };
                let mut rows = chunk.rows();
                for _ in 0..chunk.row_count() {
                    assert!(rows.next_row().expect("it is right").is_some(), "{vector}");
                }
                assert_eq!(rows.next_row(), Ok(None), "{vector}");
                chunks += 1;
            }
            _ => {}
        }
    }
    assert!(chunks > 0 || is_other_folder(), "there is no chunk");
}

/// Kinds of the columns by their metadata.
fn kinds(vector: &Vector) -> Vec<BlockKind> {
    let kind = |meta: &Json| {
        let name = |key: &str| meta[key].as_str().unwrap_or_default().to_owned();
        let field = FieldType::from_protocol_name(&name("type"))?;
        let original = OriginalType::from_protocol_name(&name("original_type"))?;
        BlockKind::of_types(field, original)
    };
    let metas = vector.json["metas"].as_array().expect("metadata");
    metas.iter().map(|meta| kind(meta).unwrap_or_else(|| panic!("{vector}: {meta}"))).collect()
}

/// True if an encoder writes these bytes. Readers take more forms: a bitmap without NULLs, numbers
/// among the values of variable size, and two marks of the empty set.
fn is_canonical(kinds: &[BlockKind], frame: &ChunkFrame<'_>) -> bool {
    kinds.iter().zip(frame.columns()).all(|(&kind, block)| {
        let member = match kind {
            BlockKind::Decimal | BlockKind::Bytes | BlockKind::Enum | BlockKind::Set => {
                Member::Variable
            }
            _ => Member::Fixed,
        };
        let nulls = block.nulls.is_some();
        let usual = member == block.member && nulls == (block.null_count(frame.row_count()) > 0);
        usual && (kind != BlockKind::Set || !has_other_mark(block.values))
    })
}

/// True if one of these sets is the single byte 01.
fn has_other_mark(mut sets: &[u8]) -> bool {
    while let Ok(length) = prost::encoding::decode_varint(&mut sets) {
        let Some((set, rest)) =
            usize::try_from(length).ok().and_then(|at| sets.split_at_checked(at))
        else {
            return false;
        };
        if set == [1] {
            return true;
        }
        sets = rest;
    }
    false
}

/// All values, as they are shown.
fn values(kinds: &[BlockKind], frame: ChunkFrame<'_>) -> Vec<String> {
    let mut joiner = ChunkJoiner::new(kinds, 0);
    let chunk = joiner.push(frame).expect("it fits").expect("it is whole");
    let mut rows = chunk.rows();
    let mut values = Vec::new();
    while let Some(row) = rows.next_row().expect("it is right") {
        values.push(format!("{row:?}"));
    }
    values
}

/// The rows of `frame`, of which there is one at least, written anew.
fn written(kinds: &[BlockKind], frame: &ChunkFrame<'_>) -> Vec<u8> {
    let mut joiner = ChunkJoiner::new(kinds, 0);
    let chunk = joiner.push(*frame).expect("it fits").expect("it is whole");
    let mut writer = ChunkWriter::new(kinds);
    let mut rows = chunk.rows();
    while let Some(row) = rows.next_row().expect("it is right") {
        writer.row(row).expect("it fits");
    }
    let mut buffer = OutBuffer::default();
    writer.write_to(&mut Encoder::new(&mut buffer, 0)).expect("it is small");
    let bytes = buffer.to_vec();
    let frame = Frame::parse(&bytes, Dialect::Legacy, &Limits::default()).expect("it is right");
    let (frame, length) = frame.expect("it is whole");
    assert_eq!(length, bytes.len());
    frame.body().to_vec()
}

/// True if the client decoded this value.
fn is_equal(value: &Value<'_>, expected: &Json) -> bool {
    let text = |key: &str| expected[key].as_str().unwrap_or_default();
    let bits = |key: &str| u64::from_str_radix(expected[key]["bits"].as_str().unwrap_or(""), 16);
    match value {
        Value::Null => expected["null"] == true,
        Value::Signed(value) => text("long") == value.to_string(),
        Value::Unsigned(value) | Value::Bit(value) => text("ulong") == value.to_string(),
        Value::Double(value) => bits("double") == Ok(value.to_bits()),
        Value::Float(value) => bits("float") == Ok(value.to_bits().into()),
        Value::Decimal(value) => {
            value.to_string() == plain(text("decimal"))
                && expected["scale"].as_u64() == Some(value.scale().into())
        }
        Value::Date(value) => text("packed") == value.to_packed().to_string(),
        Value::DateTime(value) => text("packed") == value.to_packed().to_string(),
        Value::Time(value) => text("packed") == value.to_packed().to_string(),
        Value::Bytes(bytes) | Value::Enum(bytes) => hex(text("string_hex")) == *bytes,
        Value::Set(set) => {
            let items = expected["items_hex"].as_array().expect("items");
            items.iter().map(|item| hex(item.as_str().unwrap_or_default())).eq(set.iter())
        }
        _ => false,
    }
}

/// A decimal without an exponent: the recording has one for very small numbers.
fn plain(text: &str) -> String {
    match text.split_once("E-") {
        Some((digit, zeros)) => {
            let zeros: usize = zeros.parse().expect("an exponent");
            format!("0.{}{digit}", "0".repeat(zeros - digit.len()))
        }
        None => text.to_owned(),
    }
}
