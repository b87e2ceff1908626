#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may panic on its own mistakes"
)]

mod tables;

use super::column::ColumnBlock;
use super::*;
use crate::codec::encoder::{Encoder, OutBuffer};
use crate::codec::error::WireError;
use crate::codec::frame::Decoder;
use crate::codec::limits::Limits;
use crate::codec::value::{Date, DateTime, Set, Time, Value, ValueError};

const LIMIT: usize = 1 << 20;

#[test]
fn the_published_example() {
    let kinds = [BlockKind::Signed, BlockKind::Bytes];
    let rows = [
        [Value::Signed(1), Value::Bytes(b"a")],
        [Value::Null, Value::Bytes(b"")],
        [Value::Signed(-2), Value::Null],
    ];
    let mut writer = ChunkWriter::new(&kinds);
    for row in &rows {
        writer.row(row).unwrap();
    }
    let expected = [
        0x08, 0x03, 0x12, 0x09, 0x0a, 0x01, 0x40, 0x12, 0x04, 0x0a, 0x02, 0x02, 0x03, 0x12, 0x0c,
        0x0a, 0x01, 0x20, 0x1a, 0x07, 0x0a, 0x05, 0x02, 0x61, 0x00, 0x01, 0x00,
    ];
    assert_eq!(bodies(&writer, LIMIT), [expected]);

    let mut joiner = ChunkJoiner::new(&kinds, 0);
    let chunk = joiner.push(ChunkFrame::parse(&expected).unwrap()).unwrap().unwrap();
    let mut found = chunk.rows();
    for row in &rows {
        assert_eq!(found.next_row(), Ok(Some(&row[..])));
    }
    assert_eq!(found.next_row(), Ok(None));
}

#[test]
fn temporal_values_have_the_published_bytes() {
    let date = Date::new(2024, 2, 29).unwrap();
    let cases: [(Value<'_>, &[u8]); 4] = [
        (
            Value::DateTime(DateTime::from_packed(0x19b2_bad1_4900_007b).unwrap()),
            &[0xfb, 0x80, 0x80, 0xc8, 0x94, 0xda, 0xae, 0xd9, 0x19],
        ),
        (Value::Date(date), &[0x80, 0x80, 0x80, 0x80, 0x80, 0xc0, 0xae, 0xd9, 0x19]),
        (
            Value::Time(Time::from_packed(687_195_267_360).unwrap()),
            &[0xa0, 0xc2, 0x9e, 0x80, 0x80, 0x14],
        ),
        (
            Value::Time(Time::from_packed(-57_651_262_128_128).unwrap()),
            &[0x80, 0x80, 0x80, 0xa8, 0x90, 0xf2, 0xf2, 0xff, 0xff, 0x01],
        ),
    ];
    for (value, bytes) in cases {
        let kind = BlockKind::of(&value).unwrap();
        let mut column = ColumnBlock::new(kind);
        column.push_checked(&value);
        assert_eq!(column.as_block(), Block::new(None, bytes, Member::Fixed));
        let values: Result<Vec<_>, _> = column.as_block().values(kind, 1, 0).unwrap().collect();
        assert_eq!(values, Ok(vec![value]));
    }
}

/// Value of a column with one row.
fn one(kind: BlockKind, values: &[u8]) -> Result<Vec<Value<'_>>, ChunkError> {
    Block::new(None, values, Member::Variable).values(kind, 1, 7)?.collect()
}

#[test]
fn values_of_another_form_are_refused() {
    let bad = |error| Err(ChunkError::Value { column: 7, row: 0, error });
    let unterminated = bad(ValueError::Unterminated);
    assert_eq!(one(BlockKind::Bytes, &[2, b'a', b'b']), unterminated);
    assert_eq!(one(BlockKind::Enum, &[0, 0]), unterminated);
    assert_eq!(one(BlockKind::Set, &[0, 0]), unterminated);
    assert_eq!(one(BlockKind::Bytes, &[3, b'a', 0]), bad(ValueError::Wire(WireError::Truncated)));
    let long = [0xff; 10];
    assert_eq!(one(BlockKind::Signed, &long), bad(ValueError::Wire(WireError::VarintTooLong)));
    for mark in [0, 1] {
        assert_eq!(one(BlockKind::Set, &[1, mark]), Ok(vec![Value::Set(Set::default())]));
    }
    assert_eq!(one(BlockKind::Signed, &[0x80, 0x00]), Ok(vec![Value::Signed(0)]));
    let trailing = Err(ChunkError::Trailing { column: 7, bytes: 1 });
    assert_eq!(one(BlockKind::Signed, &[2, 2]), trailing);
}

#[test]
fn counts_are_compared_with_the_bytes_before_anything_is_read() {
    let check = |nulls, values, kind, rows| {
        Block::new(nulls, values, Member::Fixed).values(kind, rows, 0).map(|values| values.count())
    };
    let bitmap = |bytes, rows| Err(ChunkError::BitmapLength { column: 0, bytes, rows });
    assert_eq!(check(Some(&[0]), &[0; 9], BlockKind::Signed, 9), bitmap(1, 9));
    assert_eq!(check(Some(&[0, 0]), &[0; 8], BlockKind::Signed, 8), bitmap(2, 8));
    assert_eq!(check(Some(&[]), &[], BlockKind::Signed, u32::MAX), bitmap(0, u32::MAX));
    let count = |bytes, values| Err(ChunkError::ValueCount { column: 0, bytes, values });
    assert_eq!(check(None, &[], BlockKind::Signed, u32::MAX), count(0, u32::MAX));
    assert_eq!(check(None, &[0; 11], BlockKind::Signed, 1), count(11, 1));
    assert_eq!(check(None, &[0; 7], BlockKind::Double, 1), count(7, 1));
    assert_eq!(check(None, &[0; 9], BlockKind::Double, 1), count(9, 1));
    assert_eq!(check(Some(&[0x80]), &[0], BlockKind::Signed, 1), count(1, 0));
    // Padding of the bitmap has no meaning.
    assert_eq!(check(Some(&[0x7f]), &[0], BlockKind::Signed, 1), Ok(1));
    assert_eq!(check(Some(&[]), &[], BlockKind::Signed, 0), Ok(0));
}

#[test]
fn frames_of_another_form_are_refused() {
    let parse = |body| ChunkFrame::parse(body).map(|frame| frame.column_count());
    assert_eq!(parse(&[]), Err(ChunkError::NoRowCount));
    assert_eq!(parse(&[0x12, 4, 0x12, 2, 0x0a, 0]), Err(ChunkError::NoRowCount));
    assert_eq!(parse(&[8, 0]), Ok(0));
    assert_eq!(parse(&[8, 1]), Err(ChunkError::NoColumns { rows: 1 }));
    let rows = 1 << 32;
    let too_large = [8, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert_eq!(parse(&too_large), Err(ChunkError::RowCountTooLarge { rows }));
    assert_eq!(parse(&[0x0a, 0]), Err(ChunkError::WireType { column: None, field: 1 }));
    assert_eq!(parse(&[8, 0, 0x10, 0]), Err(ChunkError::WireType { column: None, field: 2 }));
    // No values, a member without its value, both members.
    let none = Err(ChunkError::NoValues { column: 0 });
    assert_eq!(parse(&[8, 0, 0x12, 0]), none);
    assert_eq!(parse(&[8, 0, 0x12, 2, 0x12, 0]), none);
    assert_eq!(parse(&[8, 0, 0x12, 8, 0x12, 2, 0x0a, 0, 0x1a, 2, 0x0a, 0]), none);
    // Columns before the count, unknown fields, a member in pieces.
    assert_eq!(parse(&[0x12, 4, 0x1a, 2, 0x0a, 0, 0x50, 9, 8, 0]), Ok(1));
    assert_eq!(parse(&[8, 0, 0x12, 6, 0x1a, 2, 0x0a, 0, 0x1a, 0]), Ok(1));
    let error = ChunkError::Wire { column: Some(0), error: WireError::Truncated };
    assert_eq!(parse(&[8, 0, 0x12]), Err(error));
}

#[test]
fn errors_in_a_column_name_it() {
    let text = |rest: &[u8]| {
        let body = [&[8, 0, 0x12, 4, 0x12, 2, 0x0a, 0], rest].concat();
        ChunkFrame::parse(&body).unwrap_err().to_string()
    };
    assert_eq!(text(&[0x12, 1, 0x12]), "column 1: bytes end inside a value");
    assert_eq!(text(&[0x12, 2, 0x0a]), "column 1: bytes end inside a value");
    assert_eq!(text(&[0x12, 2, 0x10, 0]), "field 2 of column 1 has another wire type");
    assert_eq!(text(&[0x10, 0]), "field 2 of the chunk has another wire type");
    assert_eq!(text(&[0x50]), "bytes end inside a value");
}

#[test]
fn frames_that_do_not_belong_together_are_refused() {
    let column = [0x12, 5, 0x12, 3, 0x0a, 1, 0];
    let frame = |rows, columns| [&[8, rows][..], &column.repeat(columns)].concat();
    let push = |joiner: &mut ChunkJoiner, rows, columns| {
        let body = frame(rows, columns);
        joiner.push(ChunkFrame::parse(&body).unwrap()).map(|chunk| chunk.is_some())
    };
    let mut joiner = ChunkJoiner::new(&[BlockKind::Bit; 5], 40);
    assert_eq!(push(&mut joiner, 1, 3), Ok(false));
    assert_eq!(joiner.pending_columns(), 3);
    let error = ChunkError::TooManyColumns { columns: 6, expected: 5 };
    assert_eq!(push(&mut joiner, 1, 3), Err(error));

    assert_eq!(push(&mut joiner, 1, 3), Ok(false));
    let error = ChunkError::RowCountDiffers { rows: 2, expected: 1 };
    assert_eq!(push(&mut joiner, 2, 2), Err(error));

    assert_eq!(push(&mut joiner, 1, 3), Ok(false));
    assert_eq!(push(&mut joiner, 1, 2), Ok(true));
    assert_eq!(joiner.pending_columns(), 0);
    // The limit is for several frames, not for one.
    assert_eq!(push(&mut joiner, 1, 5), Ok(true));
    for _ in 0..4 {
        assert_eq!(push(&mut joiner, 1, 1), Ok(false));
    }
    assert_eq!(push(&mut joiner, 1, 1), Err(ChunkError::TooLarge { bytes: 45, limit: 40 }));
    assert_eq!(push(&mut joiner, 0, 0), Ok(true));
}

#[test]
fn a_chunk_is_full_at_the_rows_and_when_a_block_nearly_is() {
    let rows_until_full = |value: Value<'_>| {
        let mut writer = ChunkWriter::new(&[BlockKind::of(&value).unwrap()]);
        while !writer.is_full() {
            writer.row(&[value]).unwrap();
        }
        writer.row_count()
    };
    assert_eq!(rows_until_full(Value::Double(0.0)), 512);
    assert_eq!(rows_until_full(Value::Float(0.0)), 1024);
    // Fewer than ten bytes are left.
    assert_eq!(rows_until_full(Value::Signed(0)), 4087);
    assert_eq!(rows_until_full(Value::Bytes(&[0; 5000])), 1);
    assert_eq!(rows_until_full(Value::Bytes(b"")), (4096 - 38) / 2 + 1);

    let mut writer = ChunkWriter::new(&[BlockKind::Signed; 2]);
    for row in 1..=4096 {
        writer.row(&[Value::Null, Value::Null]).unwrap();
        assert_eq!(writer.is_full(), row == 4096);
    }
    writer.clear();
    assert!(writer.is_empty() && !writer.is_full());
    assert_eq!(bodies(&writer, LIMIT).len(), 1);
}

#[test]
fn a_chunk_that_is_too_large_is_kept_and_one_without_rows_not_written() {
    let mut buffer = OutBuffer::default();
    let mut writer = ChunkWriter::new(&[BlockKind::Bytes; 3]);
    writer.write_to(&mut Encoder::new(&mut buffer, 2)).unwrap();
    assert!(buffer.is_empty());
    let row = [Value::Null, Value::Bytes(&[b'x'; 100]), Value::Null];
    writer.row(&row).unwrap();
    let mut out = Encoder::new(&mut buffer, 2).max_length(110);
    let error = ChunkWriteError::TooLarge { column: 1, bytes: 110, limit: 109 };
    assert_eq!(writer.write_to(&mut out), Err(error));
    assert!(buffer.is_empty() && writer.row_count() == 1);
    // One column per frame: the one in the middle has no room for another beside it.
    let mut out = Encoder::new(&mut buffer, 2).max_length(111);
    writer.write_to(&mut out).unwrap();
    assert!(writer.is_empty());
    let mut decoder = Decoder::new(Limits::default());
    decoder.feed(&buffer.to_vec());
    let mut count = 0;
    while let Some(frame) = decoder.next_frame().unwrap() {
        assert_eq!((frame.session(), frame.kind()), (2, 21));
        assert_eq!(ChunkFrame::parse(frame.body()).unwrap().column_count(), 1);
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn a_row_that_does_not_fit_leaves_nothing_behind() {
    let mut writer = ChunkWriter::new(&[BlockKind::Signed, BlockKind::Bytes]);
    let before = bodies(&writer, LIMIT);
    let error = ChunkWriteError::RowWidth { values: 1, columns: 2 };
    assert_eq!(writer.row(&[Value::Signed(1)]), Err(error));
    let (expected, found) = (BlockKind::Bytes, BlockKind::Unsigned);
    let error = ChunkWriteError::Kind { column: 1, expected, found };
    assert_eq!(writer.row(&[Value::Signed(1), Value::Unsigned(1)]), Err(error));
    assert_eq!(bodies(&writer, LIMIT), before);
}

#[test]
fn a_frame_stays_within_the_limit_and_one_column_cannot_be_cut() {
    let kinds = [BlockKind::Bytes; 5];
    let mut writer = ChunkWriter::new(&kinds);
    writer.row(&[Value::Bytes(&[b'x'; 100]); 5]).unwrap();
    // A column of 102 bytes of values makes a body of 110, each further one adds 108.
    let counts = |limit| {
        let bodies = bodies(&writer, limit);
        assert!(bodies.iter().all(|body| body.len() <= limit));
        bodies
            .iter()
            .map(|body| ChunkFrame::parse(body).unwrap().column_count())
            .collect::<Vec<_>>()
    };
    assert_eq!(counts(110), [1; 5]);
    assert_eq!(counts(218), [2, 2, 1]);
    assert_eq!(counts(542), [5]);
    let error = ChunkWriteError::TooLarge { column: 0, bytes: 110, limit: 109 };
    assert_eq!(writer.bodies(109), Err(error));
}

fn bodies(writer: &ChunkWriter, limit: usize) -> Vec<Vec<u8>> {
    writer.bodies(limit).unwrap()
}

#[test]
fn a_row_written_value_by_value_is_the_same_and_a_broken_one_leaves_nothing() {
    let kinds = [BlockKind::Signed, BlockKind::Bytes];
    let (mut whole, mut pieces) = (ChunkWriter::new(&kinds), ChunkWriter::new(&kinds));
    for number in 0..40 {
        let text = number.to_string();
        let second = if number % 3 == 1 { Value::Null } else { Value::Bytes(text.as_bytes()) };
        let row = [Value::Signed(number), second];
        whole.row(&row).unwrap();

        // Rows that are given up half-way, too short, too long, or of another kind leave no trace.
        let mut given_up = pieces.begin_row();
        given_up.value(&Value::Null);
        drop(given_up);
        for wrong in [
            &[Value::Null][..],
            &[Value::Null, Value::Null, Value::Null],
            &[Value::Null, Value::Double(1.0)],
        ] {
            let mut broken = pieces.begin_row();
            wrong.iter().for_each(|value| broken.value(value));
            assert!(broken.finish().is_err());
        }

        let mut good = pieces.begin_row();
        row.iter().for_each(|value| good.value(value));
        good.finish().unwrap();
    }
    assert_eq!(pieces.row_count(), whole.row_count());
    assert_eq!(bodies(&pieces, LIMIT), bodies(&whole, LIMIT));
}
