//! Allocations of the codec's hot path, counted by the allocator itself.

use std::cell::Cell;

use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::frame::{Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::row::{Column, RowReader};
use epoll_group::codec::value::{DateTime, Decimal, Time, Value};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn note(taken: usize) {
    // A thread may allocate when its thread-locals are gone already.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + u64::from(taken > 0)));
}

/// Allocations of this thread while `run` runs.
fn allocations<T>(run: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = run();
    (ALLOCATIONS.get() - before, result)
}

#[test]
fn a_statement_costs_the_allocation_of_its_text() {
    let bytes = [
        2, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 101, //
        0x0a, 8, b's', b'e', b'l', b'e', b'c', b't', b' ', b'1', 0x40, 0x80, 0x50, 0x48, 1,
    ];
    let limits = Limits::default();
    let (count, message) = allocations(|| {
        let (frame, _) = Frame::parse(&bytes, Dialect::Legacy, &limits).unwrap().unwrap();
        frame.client_message(&limits).unwrap()
    });
    assert!(
        matches!(message, ClientMessage::ExecSql(sql) if sql.stmt.as_deref() == Some(b"select 1"))
    );
    assert_eq!(count, 1);
}

/// A result of some pages.
fn write(buffer: &mut OutBuffer, price: &Decimal) {
    let last: DateTime = "9999-12-31 23:59:59.999999".parse().unwrap();
    let mut out = Encoder::new(buffer, 2);
    out.column(&Column::signed("id")).unwrap();
    for number in 0..2000 {
        out.row(|row| {
            row.int(number);
            row.null();
            row.text("some text that is not short at all");
            row.value(&Value::Decimal(*price));
            row.value(&Value::DateTime(last));
            row.value(&Value::Time(Time::MIN));
            row.set(["a", "b"]);
        })
        .unwrap();
    }
    out.fetch_done();
    out.rows_affected(0);
    out.execute_ok();
}

#[test]
fn a_result_costs_no_allocation_once_the_pages_are_there() {
    let price: Decimal = "-12.3401".parse().unwrap();
    let mut buffer = OutBuffer::default();
    write(&mut buffer, &price);
    let bytes = buffer.to_vec();
    buffer.clear();
    let (count, ()) = allocations(|| write(&mut buffer, &price));
    assert_eq!(count, 0);
    assert_eq!(buffer.to_vec(), bytes);
}

#[test]
fn reading_a_row_costs_no_allocation_once_the_reader_knows_its_width() {
    let mut buffer = OutBuffer::default();
    let zero = Decimal::from_coefficient(0, 0).unwrap();
    write(&mut buffer, &zero);
    let bytes = buffer.to_vec();
    let limits = Limits::default();
    let mut reader = RowReader::default();
    let mut read = || {
        let (mut rest, mut sum) = (&bytes[..], 0);
        while let Some((frame, used)) = Frame::parse(rest, Dialect::Legacy, &limits).unwrap() {
            if frame.kind() == 13 {
                let row = reader.row(frame.body()).unwrap();
                sum += row.cell(0).unwrap().signed().unwrap().unwrap();
                assert_eq!(row.cell(3).unwrap().decimal().unwrap(), Some(zero));
                assert_eq!(row.cell(5).unwrap().time().unwrap(), Some(Time::MIN));
                assert_eq!(row.cell(6).unwrap().set().unwrap().unwrap().iter().count(), 2);
            }
            rest = &rest[used..];
        }
        sum
    };
    assert_eq!(read(), 1_999_000);
    let (count, sum) = allocations(read);
    assert_eq!((count, sum), (0, 1_999_000));
}
