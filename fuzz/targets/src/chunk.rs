//! Columnar results. Arbitrary bytes end in rows or an error and take little memory. Rows of any table
//! come back from the output of the writer.
//!
//! ```text
//! part = number of columns u8 │ kind u8 … │ (length u16 LE, body of a frame) …
//! ```
//!
//! A kind is an index into `BlockKind::ALL`, modulo its length. If the last body is shorter than its
//! length says, the length belongs to the body. The kinds and the bodies are also a table: the bytes of
//! the bodies are its values.

use arbitrary::Unstructured;
use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkJoiner, ChunkWriter, Member};
use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::error::MessageError;
use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ServerKind, ServerMessage};
use epoll_group::codec::value::{Date, DateTime, Decimal, Set, Time, Value};

use crate::input::piece;
use crate::memory::bounded;
use crate::row::same;

/// Bound on the columns. Wider results run the same code.
const MAX_COLUMNS: usize = 40;

pub(crate) fn check(input: &[u8]) {
    let Some((&columns, rest)) = input.split_first() else {
        return;
    };
    let Some((kinds, mut rest)) = rest.split_at_checked(usize::from(columns) % MAX_COLUMNS) else {
        return;
    };
    let kind = |&byte: &u8| BlockKind::ALL[usize::from(byte) % BlockKind::ALL.len()];
    let kinds: Vec<_> = kinds.iter().map(kind).collect();
    table(&kinds, rest);
    let mut bodies = rest;
    compare(piece(&mut bodies).unwrap_or(rest));
    bounded(input.len(), || {
        let mut joiner = ChunkJoiner::new(&kinds, input.len());
        while !rest.is_empty() {
            let body = piece(&mut rest).unwrap_or_else(|| std::mem::take(&mut rest));
            read(&mut joiner, body);
        }
    });
}

/// Compares a frame that is read in place with the message that prost decodes.
fn compare(body: &[u8]) {
    let Ok(frame) = ChunkFrame::parse(body) else {
        return;
    };
    let kind = ServerKind::Chunk.number();
    match ServerMessage::decode(Dialect::Legacy, kind, body, &Limits::default()) {
        Ok(ServerMessage::Chunk(message)) => {
            assert_eq!(message.row_count, frame.row_count());
            assert_eq!(message.columns.len(), frame.column_count());
            for (column, block) in message.columns.iter().zip(frame.columns()) {
                let fixed = column.fixed_size_column.as_ref().map(|column| &column.value[..]);
                let variable = column.variable_size_column.as_ref().map(|column| &column.value[..]);
                let values = match block.member {
                    Member::Fixed => (Some(block.values), None),
                    Member::Variable => (None, Some(block.values)),
                };
                assert_eq!((fixed, variable), values);
                assert_eq!(column.null_bitmap.as_deref(), block.nulls);
            }
        }
        Ok(other) => panic!("{other:?} is no chunk"),
        // The message needs the required fields in each piece of a member, and has limits. The
        // frame checks neither.
        Err(MessageError::Missing { .. } | MessageError::Elements { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Reads a chunk by row and by column, and compares the values.
fn read(joiner: &mut ChunkJoiner, body: &[u8]) {
    let Ok(frame) = ChunkFrame::parse(body) else {
        return;
    };
    assert_eq!(frame.columns().count(), frame.column_count());
    let Ok(Some(chunk)) = joiner.push(frame) else {
        return;
    };
    let columns = chunk.columns().count();
    let mut rows = chunk.rows();
    let mut by_column: Vec<_> = (0..columns).map(|column| chunk.values(column)).collect();
    let mut count = 0;
    loop {
        match rows.next_row() {
            Ok(Some(row)) => {
                assert_eq!(row.len(), columns);
                for (value, other) in row.iter().zip(&mut by_column) {
                    let other = other.next().expect("a value for each row").expect("the same");
                    assert!(same(value, &other), "{value:?} {other:?}");
                }
                count += 1;
            }
            Ok(None) => {
                assert_eq!(count, chunk.row_count());
                assert!(by_column.iter_mut().all(|column| column.next().is_none()));
                return;
            }
            Err(error) => {
                assert_eq!(rows.next_row(), Err(error));
                return;
            }
        }
    }
}

/// Writes rows with values from the bytes, and reads them back.
fn table(kinds: &[BlockKind], bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let max_rows = u32::from(bytes.arbitrary::<u8>().unwrap_or_default());
    let mut writer = ChunkWriter::new(kinds);
    let mut joiner = ChunkJoiner::new(kinds, usize::MAX);
    let mut rows = Vec::new();
    while !bytes.is_empty() && !kinds.is_empty() {
        let mut places = vec![Vec::new(); kinds.len()];
        let row: Vec<_> = (kinds.iter().zip(&mut places))
            .map(|(&kind, place)| value(kind, &mut bytes, place).unwrap_or(Value::Null))
            .collect();
        writer.row(&row).expect("the kinds are right");
        rows.push(row.iter().map(owned).collect::<Vec<_>>());
        if writer.is_full() || writer.row_count() >= max_rows || bytes.is_empty() {
            back(&mut joiner, &mut writer, &rows);
            rows.clear();
        }
    }
}

fn back(joiner: &mut ChunkJoiner, writer: &mut ChunkWriter, rows: &[Vec<String>]) {
    let mut buffer = OutBuffer::default();
    writer.write_to(&mut Encoder::new(&mut buffer, 0)).expect("it is far below the limit");
    let mut decoder = Decoder::new(Limits::default());
    decoder.feed(&buffer.to_vec());
    while let Some(frame) = decoder.next_frame().expect("it is right") {
        let frame = ChunkFrame::parse(frame.body()).expect("it is right");
        let Some(chunk) = joiner.push(frame).expect("it is right") else {
            continue;
        };
        let mut found = chunk.rows();
        for row in rows {
            let found = found.next_row().expect("it is right").expect("no row is missing");
            assert!(row.iter().zip(found).all(|(value, found)| *value == owned(found)));
        }
        assert_eq!(found.next_row(), Ok(None));
    }
}

/// A value without its borrows, bit by bit.
fn owned(value: &Value<'_>) -> String {
    match value {
        Value::Float(value) => format!("float {:x}", value.to_bits()),
        Value::Double(value) => format!("double {:x}", value.to_bits()),
        value => format!("{value:?}"),
    }
}

#[expect(
    single_use_lifetimes,
    reason = "a value borrows from the bytes for as long as from `place`"
)]
fn value<'v, 'a: 'v>(
    kind: BlockKind,
    bytes: &mut Unstructured<'a>,
    place: &'v mut Vec<u8>,
) -> Option<Value<'v>> {
    if bytes.ratio(1, 4).ok()? {
        return Some(Value::Null);
    }
    let number = bytes.arbitrary::<u64>().ok()?;
    let number = number >> (number % 64);
    Some(match kind {
        BlockKind::Signed => Value::Signed(bytes.arbitrary().ok()?),
        BlockKind::Unsigned => Value::Unsigned(number),
        BlockKind::Bit => Value::Bit(number),
        BlockKind::Float => Value::Float(bytes.arbitrary().ok()?),
        BlockKind::Double => Value::Double(bytes.arbitrary().ok()?),
        BlockKind::Decimal => {
            let scale = bytes.int_in_range(0..=30).ok()?;
            Value::Decimal(Decimal::from_coefficient(bytes.arbitrary().ok()?, scale).ok()?)
        }
        BlockKind::Date => Value::Date(Date::from_packed(number).ok()?),
        BlockKind::DateTime => Value::DateTime(DateTime::from_packed(number).ok()?),
        BlockKind::Time => Value::Time(Time::from_packed(number.cast_signed()).ok()?),
        BlockKind::Bytes => Value::Bytes(bytes.arbitrary().ok()?),
        BlockKind::Enum => Value::Enum(bytes.arbitrary().ok()?),
        BlockKind::Set => Value::Set(Set::new(bytes.arbitrary::<Vec<&[u8]>>().ok()?, place)),
        _ => return None,
    })
}
