//! Whole tables of any shape, and bytes that are no tables.

use proptest::prelude::*;

use prost::Message;

use super::super::body::MAX_FRAME_COLUMNS;
use super::*;
use crate::codec::encoder::{Encoder, OutBuffer};
use crate::codec::frame::Header;
use crate::codec::proto::resultset;
use crate::codec::value::Decimal;

/// A value of this kind, or NULL.
fn value(kind: BlockKind) -> BoxedStrategy<Value<'static>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..9);
    let number = (any::<u64>(), 0..64_u32).prop_map(|(value, shift)| value >> shift);
    let value = match kind {
        BlockKind::Signed => {
            (any::<i64>(), 0..64_u32).prop_map(|(v, s)| Value::Signed(v >> s)).boxed()
        }
        BlockKind::Unsigned => number.prop_map(Value::Unsigned).boxed(),
        BlockKind::Bit => number.prop_map(Value::Bit).boxed(),
        BlockKind::Float => prop::num::f32::ANY
            .prop_filter("comparable", |value| !value.is_nan())
            .prop_map(Value::Float)
            .boxed(),
        BlockKind::Double => prop::num::f64::ANY
            .prop_filter("comparable", |value| !value.is_nan())
            .prop_map(Value::Double)
            .boxed(),
        BlockKind::Decimal => (any::<i128>(), 0..30_u8)
            .prop_map(|(n, scale)| Value::Decimal(Decimal::from_coefficient(n, scale).unwrap()))
            .boxed(),
        BlockKind::Date => (0..10_000_u16, 0..13_u8, 0..32_u8)
            .prop_map(|(year, month, day)| Value::Date(Date::new(year, month, day).unwrap()))
            .boxed(),
        BlockKind::DateTime => (0..10_000_u64, 0..13_u64, 0..32_u64, 0..24_u64, 0..60_u64)
            .prop_map(|(year, month, day, hour, minute)| {
                let packed = ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6;
                Value::DateTime(DateTime::from_packed(packed << 24 | 999_999).unwrap())
            })
            .boxed(),
        BlockKind::Time => (any::<bool>(), 0..839_i64, 0..60_i64, 0..1_000_000_i64)
            .prop_map(|(below, hour, minute, microsecond)| {
                let packed = (hour << 12 | minute << 6 | minute) << 24 | microsecond;
                Value::Time(Time::from_packed(if below { -packed } else { packed }).unwrap())
            })
            .boxed(),
        BlockKind::Bytes => bytes.prop_map(|bytes| Value::Bytes(bytes.leak())).boxed(),
        BlockKind::Enum => bytes.prop_map(|bytes| Value::Enum(bytes.leak())).boxed(),
        BlockKind::Set => prop::collection::vec(bytes, 0..4)
            .prop_map(|members| Value::Set(Set::new(members, Box::leak(Box::default()))))
            .boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 3 => value].boxed()
}

fn kinds(columns: std::ops::Range<usize>) -> impl Strategy<Value = Vec<BlockKind>> {
    prop::collection::vec(prop::sample::select(BlockKind::ALL), columns)
}

/// Kinds, and rows of them.
fn table() -> impl Strategy<Value = (Vec<BlockKind>, Vec<Vec<Value<'static>>>)> {
    (kinds(1..25), 0..20_usize).prop_flat_map(|(kinds, rows)| {
        let row: Vec<_> = kinds.iter().map(|&kind| value(kind)).collect();
        (Just(kinds), prop::collection::vec(row, rows))
    })
}

fn write(kinds: &[BlockKind], rows: &[Vec<Value<'_>>]) -> ChunkWriter {
    let mut writer = ChunkWriter::new(kinds);
    rows.iter().for_each(|row| writer.row(row).unwrap());
    writer
}

proptest! {
    #[test]
    fn rows_come_back_from_any_table_and_cut((kinds, rows) in table(), limit in 500..5000_usize) {
        let writer = write(&kinds, &rows);
        let mut joiner = ChunkJoiner::new(&kinds, LIMIT);
        // The second pass checks that the joiner reuses its memory correctly.
        for _ in 0..2 {
            let bodies = bodies(&writer, limit);
            for (at, body) in bodies.iter().enumerate() {
                let frame = ChunkFrame::parse(body).unwrap();
                prop_assert!(frame.column_count() <= MAX_FRAME_COLUMNS && body.len() <= limit);
                let last = at + 1 == bodies.len();
                let Some(chunk) = joiner.push(frame).unwrap() else {
                    prop_assert!(!last);
                    continue;
                };
                prop_assert!(last);
                let mut found = chunk.rows();
                for row in &rows {
                    prop_assert_eq!(found.next_row(), Ok(Some(&row[..])));
                }
                prop_assert_eq!(found.next_row(), Ok(None));
                for column in 0..kinds.len() {
                    let values: Result<Vec<_>, _> = chunk.values(column).collect();
                    let expected: Vec<_> = rows.iter().map(|row| row[column]).collect();
                    prop_assert_eq!(values, Ok(expected));
                }
            }
        }
    }

    #[test]
    fn bodies_are_what_prost_writes((kinds, rows) in table()) {
        let mut writer = write(&kinds, &rows);
        let bodies = writer.bodies(LIMIT).unwrap();
        for body in &bodies {
            let message = resultset::Chunk::decode(&body[..]).unwrap();
            prop_assert_eq!(&message.encode_to_vec(), body);
            let frame = ChunkFrame::parse(body).unwrap();
            let shape = (message.row_count, message.columns.len());
            prop_assert_eq!(shape, (frame.row_count(), frame.column_count()));
            for (block, column) in frame.columns().zip(&message.columns) {
                let fixed = column.fixed_size_column.as_ref().map(|column| &column.value[..]);
                let variable = column.variable_size_column.as_ref().map(|column| &column.value[..]);
                prop_assert_eq!(Some(block.values), fixed.or(variable));
                prop_assert_eq!(block.nulls, column.null_bitmap.as_deref());
            }
        }
        let framed = bodies.iter().map(|body| {
            let header = Header::new(2, 21, u32::try_from(body.len()).unwrap()).encode();
            [&header[..], body].concat()
        });
        let framed = if rows.is_empty() { vec![] } else { framed.collect::<Vec<_>>().concat() };
        let mut buffer = OutBuffer::default();
        writer.write_to(&mut Encoder::new(&mut buffer, 2)).unwrap();
        prop_assert_eq!(buffer.to_vec(), framed);
    }

    #[test]
    fn any_bytes_end_in_rows_or_an_error(
        kinds in kinds(0..4),
        rows in 0..12_u32,
        blocks in prop::collection::vec(
            (any::<Option<Vec<u8>>>(), prop::collection::vec(any::<u8>(), 0..20)), 0..4),
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3),
    ) {
        let columns = blocks.into_iter().map(|(null_bitmap, value)| resultset::Column {
            null_bitmap,
            fixed_size_column: Some(resultset::FixedSizeColumn { value }),
            variable_size_column: None,
        });
        let mut body =
            resultset::Chunk { row_count: rows, columns: columns.collect() }.encode_to_vec();
        for (at, byte) in flips {
            let length = body.len();
            body[at % length] = byte;
        }
        let mut joiner = ChunkJoiner::new(&kinds, LIMIT);
        if let Ok(frame) = ChunkFrame::parse(&body)
            && let Ok(Some(chunk)) = joiner.push(frame)
        {
            let mut rows = chunk.rows();
            let mut count = 0_u32;
            while let Ok(Some(row)) = rows.next_row() {
                prop_assert_eq!(row.len(), chunk.columns().count());
                count += 1;
            }
            prop_assert!(count <= chunk.row_count());
        }
    }
}
