//! Cost of decoding a request, of encoding a result directly and by prost, and of a chunk against rows.
//! Guards regressions.
//!
//! Every function that is measured has a name of its own and is not inlined, so that instructions can
//! be counted where time is noisy (`benches/README.md` says how).

mod timing;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use epoll_group::codec::chunk::{BlockKind, ChunkWriter};
use epoll_group::codec::encoder::{Encoder, OutBuffer, PagePool};
use epoll_group::codec::frame::{Decoder, Dialect, Frame, Header};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::resultset::Row;
use epoll_group::codec::proto::sql;
use epoll_group::codec::row::RowReader;
use epoll_group::codec::value::{Date, DateTime, Value};
use prost::Message;
use prost::encoding::encode_varint;

const SID: u64 = 2;
const ROWS: usize = 1000;
const ROW: u8 = 13;

// A request: header and `EXEC_SQL`, against prost on the body alone.

/// `select 1`, token 10240, reset_error.
const REQUEST: &[u8] = &[
    2, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 101, //
    0x0a, 8, b's', b'e', b'l', b'e', b'c', b't', b' ', b'1', 0x40, 0x80, 0x50, 0x48, 1,
];

#[inline(never)]
fn decode_frame(input: &[u8], limits: &Limits) -> ClientMessage {
    let frame = Frame::parse(input, Dialect::Legacy, limits).expect("a header");
    let (frame, bytes) = frame.expect("a whole frame");
    assert_eq!((frame.session(), bytes), (SID, input.len()));
    frame.client_message(limits).expect("a message")
}

#[inline(never)]
fn decode_stream(input: &[u8], decoder: &mut Decoder, limits: &Limits) -> ClientMessage {
    decoder.feed(input);
    let frame = decoder.next_frame().expect("a header").expect("a whole frame");
    frame.client_message(limits).expect("a message")
}

#[inline(never)]
fn decode_by_prost(body: &[u8]) -> sql::StmtExecute {
    sql::StmtExecute::decode(body).expect("a message")
}

fn request(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec");
    let limits = Limits::default();
    let body = &REQUEST[13..];
    let expected = decode_by_prost(body);
    assert_eq!(expected.stmt.as_deref(), Some(&b"select 1"[..]));
    assert_eq!(decode_frame(REQUEST, &limits), ClientMessage::ExecSql(expected));
    group.bench_function("EXEC_SQL select 1, header and message", |b| {
        b.iter(|| decode_frame(black_box(REQUEST), &limits));
    });
    let mut decoder = Decoder::new(limits);
    group.bench_function("EXEC_SQL select 1, through the decoder", |b| {
        b.iter(|| decode_stream(black_box(REQUEST), &mut decoder, &limits));
    });
    group.bench_function("EXEC_SQL select 1, message by prost alone", |b| {
        b.iter(|| decode_by_prost(black_box(body)));
    });
    group.finish();
}

// A result: int, bigint, varchar(60), datetime.

#[derive(Clone, Debug)]
struct Record {
    id: i32,
    account: i64,
    name: String,
    at: DateTime,
}

fn records() -> Vec<Record> {
    let record = |n: i32| Record {
        id: n,
        account: i64::from(n) * 7_919_000_003 - 4_000_000_000_000,
        name: format!("{:-<width$}", format!("customer {n} "), width = 20 + (n as usize * 7) % 41),
        at: DateTime::new(
            Date::new(2024, 1 + (n % 12) as u8, 1 + (n % 28) as u8).expect("a day"),
            (n % 24) as u8,
            (n % 60) as u8,
            (n % 59) as u8,
            if n % 4 == 0 { 0 } else { n as u32 * 997 },
        )
        .expect("a time"),
    };
    (0..ROWS as i32).map(record).collect()
}

#[inline(never)]
fn encode_directly(records: &[Record], buffer: &mut OutBuffer) {
    let mut out = Encoder::new(buffer, SID);
    for record in records {
        let row = out.row(|row| {
            row.int(record.id.into());
            row.int(record.account);
            row.text(&record.name);
            row.value(&Value::DateTime(record.at));
        });
        row.expect("short");
    }
}

/// Maps small numbers of either sign to small unsigned ones.
const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

#[inline(never)]
fn encode_by_prost(records: &[Record], out: &mut Vec<u8>) {
    for record in records {
        let varint = |value| {
            let mut cell = Vec::with_capacity(10);
            encode_varint(value, &mut cell);
            cell
        };
        let mut name = Vec::with_capacity(record.name.len() + 1);
        name.extend_from_slice(record.name.as_bytes());
        name.push(0);
        let (date, at) = (record.at.date(), record.at);
        let mut time = Vec::with_capacity(10);
        let year = date.year();
        time.extend([(year & 0x7f) as u8 | 0x80, (year >> 7) as u8, date.month(), date.day()]);
        let parts = [at.hour().into(), at.minute().into(), at.second().into(), at.microsecond()];
        let count = parts.iter().rposition(|&part| part != 0).map_or(0, |last| last + 1);
        parts[..count].iter().for_each(|&part| encode_varint(part.into(), &mut time));
        let id = varint(zigzag(record.id.into()));
        let row = Row { field: vec![id, varint(zigzag(record.account)), name, time] };
        let header = Header::new(SID, ROW, row.encoded_len() as u32);
        out.extend_from_slice(&header.encode());
        row.encode(out).expect("room");
    }
}

#[inline(never)]
fn append_to_vector(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|frame| out.extend_from_slice(frame));
    out
}

fn result(c: &mut Criterion) {
    let mut group = c.benchmark_group("result of 1 000 rows x 4");
    group.throughput(Throughput::Elements(ROWS as u64));
    let records = records();
    let mut expected = Vec::new();
    encode_by_prost(&records, &mut expected);

    for page_bytes in [4 << 10, 16 << 10, 64 << 10, 1 << 20] {
        let pages = format!("{} KiB", page_bytes >> 10);
        let mut buffer = OutBuffer::new(&PagePool::new(page_bytes, 256));
        encode_directly(&records, &mut buffer);
        assert_eq!(buffer.to_vec(), expected);
        group.bench_function(format!("direct, warm pages of {pages}"), |b| {
            b.iter(|| {
                buffer.clear();
                encode_directly(&records, &mut buffer);
                assert_eq!(buffer.len(), expected.len());
            });
        });
        group.bench_function(format!("direct, cold pages of {pages}"), |b| {
            b.iter(|| {
                let mut buffer = OutBuffer::new(&PagePool::new(page_bytes, 256));
                encode_directly(&records, &mut buffer);
                assert_eq!(buffer.len(), expected.len());
            });
        });
    }

    let mut out = expected.clone();
    group.bench_function("prost messages, warm vector", |b| {
        b.iter(|| {
            out.clear();
            encode_by_prost(&records, &mut out);
            assert_eq!(out.len(), expected.len());
        });
    });
    assert_eq!(out, expected);

    // The cost of growing without encoding: the same frames, appended one by one.
    let mut frames = Vec::new();
    for record in &records {
        let mut frame = Vec::new();
        encode_by_prost(std::slice::from_ref(record), &mut frame);
        frames.push(frame);
    }
    group.bench_function("frames appended to a growing vector", |b| {
        b.iter(|| assert_eq!(append_to_vector(&frames).len(), expected.len()));
    });
    group.bench_function("frames read back, all columns", |b| {
        b.iter(|| assert_eq!(read_rows(&expected), 499_500));
    });
    group.finish();
}

/// The sum of the first column, with all others read.
#[inline(never)]
fn read_rows(mut bytes: &[u8]) -> i64 {
    let limits = Limits::default();
    let (mut reader, mut sum) = (RowReader::default(), 0);
    while let Some((frame, used)) = Frame::parse(bytes, Dialect::Legacy, &limits).expect("frames") {
        let row = reader.row(frame.body()).expect("a row");
        sum += row.cell(0).expect("a cell").signed().expect("an int").expect("not null");
        black_box(row.cell(1).expect("a cell").signed().expect("a bigint"));
        black_box(row.cell(2).expect("a cell").bytes().expect("a string"));
        black_box(row.cell(3).expect("a cell").datetime().expect("a datetime"));
        bytes = &bytes[used..];
    }
    sum
}

// Chunks against rows: eight integers.

const WIDTH: usize = 8;

fn integers() -> Vec<[i64; WIDTH]> {
    // From one byte on the wire to eight.
    let number = |row: usize, column: usize| (row as i64 - 500) << (5 * column);
    (0..ROWS).map(|row| std::array::from_fn(|column| number(row, column))).collect()
}

#[inline(never)]
fn integers_as_rows(rows: &[[i64; WIDTH]], buffer: &mut OutBuffer) {
    let mut out = Encoder::new(buffer, SID);
    for values in rows {
        out.row(|row| values.iter().for_each(|&value| row.int(value))).expect("short");
    }
}

#[inline(never)]
fn integers_as_chunks(rows: &[[i64; WIDTH]], chunk: &mut ChunkWriter, buffer: &mut OutBuffer) {
    let mut out = Encoder::new(buffer, SID);
    for values in rows {
        chunk.row(&values.map(Value::Signed)).expect("eight integers");
        if chunk.is_full() {
            chunk.write_to(&mut out).expect("small");
        }
    }
    chunk.write_to(&mut out).expect("small");
}

fn chunks(c: &mut Criterion) {
    let mut group = c.benchmark_group("1 000 x 8 integers");
    group.throughput(Throughput::Elements(ROWS as u64));
    let rows = integers();
    let mut chunk = ChunkWriter::new(&[BlockKind::Signed; WIDTH]);
    let mut buffer = OutBuffer::default();
    integers_as_rows(&rows, &mut buffer);
    let row_bytes = buffer.len();
    buffer.clear();
    integers_as_chunks(&rows, &mut chunk, &mut buffer);
    let chunk_bytes = buffer.len();
    // The sizes are part of the answer.
    assert_eq!((row_bytes, chunk_bytes), (ROW_BYTES, CHUNK_BYTES));

    group.bench_function(format!("rows, {row_bytes} bytes"), |b| {
        b.iter(|| {
            buffer.clear();
            integers_as_rows(&rows, &mut buffer);
            assert_eq!(buffer.len(), row_bytes);
        });
    });
    group.bench_function(format!("chunks, {chunk_bytes} bytes"), |b| {
        b.iter(|| {
            buffer.clear();
            integers_as_chunks(&rows, &mut chunk, &mut buffer);
            assert_eq!(buffer.len(), chunk_bytes);
        });
    });
    group.finish();
}

const ROW_BYTES: usize = 62_833;
const CHUNK_BYTES: usize = 34_009;

criterion_group! {
    name = benches;
    config = timing::criterion();
    targets = request, result, chunks
}
criterion_main!(benches);
