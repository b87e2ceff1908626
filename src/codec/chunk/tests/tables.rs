//! Whole tables of any shape, and bytes that are no tables.

use proptest::prelude::*;

use super::super::body::put_block;
use super::*;
use crate::codec::encoder::{Encoder, OutBuffer};
use crate::codec::frame::Header;
use crate::codec::value::Decimal;

/// A value that owns its content.
#[derive(Clone, Debug)]
enum Cell {
    Plain(Value<'static>),
    Bytes(Vec<u8>),
    Enum(Vec<u8>),
    Set(Vec<u8>),
}

impl Cell {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Plain(value) => *value,
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Enum(bytes) => Value::Enum(bytes),
            Self::Set(members) => Value::Set(Set::from_cell(members).unwrap()),
        }
    }
}

fn cell(kind: BlockKind) -> BoxedStrategy<Cell> {
    fn plain<T: Into<Value<'static>>>(value: T) -> Cell {
        Cell::Plain(value.into())
    }
    let bytes = prop::collection::vec(any::<u8>(), 0..9);
    let number = (any::<u64>(), 0..64_u32).prop_map(|(value, shift)| value >> shift);
    let value = match kind {
        BlockKind::Signed => (any::<i64>(), 0..64_u32).prop_map(|(v, s)| plain(v >> s)).boxed(),
        BlockKind::Unsigned => number.prop_map(plain).boxed(),
        BlockKind::Bit => number.prop_map(|value| Cell::Plain(Value::Bit(value))).boxed(),
        BlockKind::Float => prop::num::f32::ANY
            .prop_filter("comparable", |value| !value.is_nan())
            .prop_map(plain)
            .boxed(),
        BlockKind::Double => prop::num::f64::ANY
            .prop_filter("comparable", |value| !value.is_nan())
            .prop_map(plain)
            .boxed(),
        BlockKind::Decimal => (any::<i128>(), 0..30_u8)
            .prop_map(|(number, scale)| plain(Decimal::from_coefficient(number, scale).unwrap()))
            .boxed(),
        BlockKind::Date => (0..10_000_u16, 0..13_u8, 0..32_u8)
            .prop_map(|(year, month, day)| plain(Date::new(year, month, day).unwrap()))
            .boxed(),
        BlockKind::DateTime => (0..10_000_u64, 0..13_u64, 0..32_u64, 0..24_u64, 0..60_u64)
            .prop_map(|(year, month, day, hour, minute)| {
                let packed = ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6;
                plain(DateTime::from_packed(packed << 24 | 999_999).unwrap())
            })
            .boxed(),
        BlockKind::Time => (any::<bool>(), 0..839_i64, 0..60_i64, 0..1_000_000_i64)
            .prop_map(|(below, hour, minute, microsecond)| {
                let packed = (hour << 12 | minute << 6 | minute) << 24 | microsecond;
                plain(Time::from_packed(if below { -packed } else { packed }).unwrap())
            })
            .boxed(),
        BlockKind::Bytes => bytes.prop_map(Cell::Bytes).boxed(),
        BlockKind::Enum => bytes.prop_map(Cell::Enum).boxed(),
        BlockKind::Set => prop::collection::vec(bytes, 0..4)
            .prop_map(|members| {
                let mut place = Vec::new();
                let empty = Set::new(members, &mut place).is_empty();
                Cell::Set(if empty { vec![0] } else { place })
            })
            .boxed(),
    };
    prop_oneof![1 => Just(Cell::Plain(Value::Null)), 3 => value].boxed()
}

fn kinds(columns: std::ops::Range<usize>) -> impl Strategy<Value = Vec<BlockKind>> {
    prop::collection::vec(prop::sample::select(BlockKind::ALL), columns)
}

/// Kinds, and rows of them.
fn table() -> impl Strategy<Value = (Vec<BlockKind>, Vec<Vec<Cell>>)> {
    (kinds(1..25), 0..20_usize).prop_flat_map(|(kinds, rows)| {
        let row: Vec<_> = kinds.iter().map(|&kind| cell(kind)).collect();
        (Just(kinds), prop::collection::vec(row, rows))
    })
}

fn write(kinds: &[BlockKind], rows: &[Vec<Cell>]) -> ChunkWriter {
    let mut writer = ChunkWriter::new(kinds);
    for row in rows {
        let row: Vec<_> = row.iter().map(Cell::value).collect();
        writer.row(&row).unwrap();
    }
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
                    let row: Vec<_> = row.iter().map(Cell::value).collect();
                    prop_assert_eq!(found.next_row(), Ok(Some(&row[..])));
                }
                prop_assert_eq!(found.next_row(), Ok(None));
                for column in 0..kinds.len() {
                    let values: Result<Vec<_>, _> = chunk.values(column).collect();
                    let expected: Vec<_> = rows.iter().map(|row| row[column].value()).collect();
                    prop_assert_eq!(values, Ok(expected));
                }
            }
        }
    }

    #[test]
    fn bodies_are_what_prost_writes((kinds, rows) in table()) {
        use crate::codec::proto::resultset;
        use prost::Message;

        let mut writer = write(&kinds, &rows);
        let bodies = writer.bodies(LIMIT).unwrap();
        for body in &bodies {
            let message = resultset::Chunk::decode(&body[..]).unwrap();
            prop_assert_eq!(&message.encode_to_vec(), body);
            let frame = ChunkFrame::parse(body).unwrap();
            let shape = (message.row_count, message.columns.len());
            prop_assert_eq!(shape, (frame.row_count(), frame.column_count()));
            let mut again = vec![];
            frame.columns().for_each(|block| put_block(&block, &mut again));
            prop_assert!(body.ends_with(&again));
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
        let mut body = vec![8, u8::try_from(rows).unwrap()];
        for (nulls, values) in &blocks {
            put_block(&Block::new(nulls.as_deref(), values, Member::Fixed), &mut body);
        }
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
