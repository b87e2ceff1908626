#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic on its own mistakes"
)]

mod inputs;

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::codec::encoder::PagePool;
use crate::codec::frame::Dialect;
use crate::codec::limits::Limits;
use crate::codec::message::Notice;
use crate::codec::proto::Enumeration;
use crate::codec::proto::notice::{Level, Parameter, SessionStateChanged, Warning};
use crate::codec::proto::resultset::{
    Chunk, ColumnMetaData, ColumnMetaDataCompatible, FetchDone, FieldType, OriginalType, Row,
    TokenDone,
};
use crate::codec::proto::{generic, notice, tso, value};
use crate::codec::row::{Column, ColumnType, field};
use crate::codec::value::{DateTime, Set, Time, Value};
use inputs::{cell, metadata};

const SID: u64 = 0x8000_0000_0000_0003;

/// Bytes that `write` leaves in a buffer whose pages are so small that frames span them.
fn written(write: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut buffer = OutBuffer::new(&PagePool::new(64, 8));
    write(&mut Encoder::new(&mut buffer, SID));
    buffer.to_vec()
}

/// A frame put together by other means.
fn framed(kind: u8, message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let length = u32::try_from(body.len() + 1).unwrap();
    [&SID.to_le_bytes()[..], &length.to_le_bytes(), &[kind], &body].concat()
}

#[test]
fn select_1_is_the_worked_example() {
    let mut buffer = OutBuffer::default();
    let mut out = Encoder::new(&mut buffer, 2);
    out.column(&Column::signed("1").length(2).not_null()).unwrap();
    out.row(|row| row.int(1)).unwrap();
    out.fetch_done();
    out.rows_affected(0);
    out.execute_ok();
    let expected = [
        "02000000000000001e0000000c",
        "080110081a013122002a0032003a00420364656648",
        "3f58026010708101",
        "0200000000000000040000000d0a0102",
        "0200000000000000010000000e",
        "02000000000000000f0000000b080310021a0808041204080218",
        "00",
        "02000000000000000100000011",
    ]
    .concat();
    let hex: String = buffer.to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected);
}

#[test]
fn compact_metadata_has_no_names() {
    let mut buffer = OutBuffer::default();
    let mut out = Encoder::new(&mut buffer, 2).metadata(Metadata::Compact);
    out.column(&Column::signed("1").length(2).not_null()).unwrap();
    let body = [0x08, 0x01, 0x10, 0x08, 0x48, 0x3f, 0x58, 0x02, 0x60, 0x10, 0x70, 0x81, 0x01];
    assert_eq!(buffer.to_vec().split_off(13), body);
}

#[test]
fn the_older_dialect_has_its_header_and_its_metadata() {
    let mut buffer = OutBuffer::default();
    let mut out = Encoder::with_dialect(&mut buffer, Dialect::Galaxy { version: 7 }, 2);
    out.execute_ok();
    assert_eq!(buffer.to_vec(), [2, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0, 17]);
    buffer.clear();

    let decimal = ColumnType::Decimal { digits: 10, scale: 2 };
    let column = Column { table: Some(b"t"), ..Column::new("price", decimal).not_null() };
    Encoder::with_dialect(&mut buffer, Dialect::Galaxy { version: 0 }, 2).column(&column).unwrap();
    let frame = buffer.to_vec();
    let message = ColumnMetaDataCompatible {
        r#type: FieldType::Decimal,
        name: Some(b"price".to_vec()),
        original_name: Some(vec![]),
        table: Some(b"t".to_vec()),
        original_table: Some(vec![]),
        schema: Some(vec![]),
        catalog: Some(b"def".to_vec()),
        collation: Some(63),
        fractional_digits: Some(2),
        length: Some(12),
        flags: Some(16),
        content_type: None,
        original_type: OriginalType::MysqlTypeNewdecimal,
    };
    assert_eq!(frame.get(14..), Some(&message.encode_to_vec()[..]));
    assert_eq!(
        frame.get(9..13),
        Some(&(u32::try_from(frame.len() - 13).unwrap()).to_le_bytes()[..])
    );
}

#[test]
fn a_row_at_the_limit_passes_and_one_byte_more_leaves_nothing() {
    // Kind byte, tag, length, text, its end: 4 bytes and the text.
    for page_bytes in [64, 16 << 10] {
        let mut buffer = OutBuffer::new(&PagePool::new(page_bytes, 8));
        let mut out = Encoder::new(&mut buffer, 2).max_length(105 - 1);
        out.execute_ok();
        let error = out.row(|row| row.text([7; 101])).unwrap_err();
        assert_eq!(error.to_string(), "length 105 exceeds 104");
        assert_eq!(out.buffer.len(), 13);
        out.row(|row| row.text([7; 100])).unwrap();
        let ints = out.row(|row| (0..60).for_each(|_| row.int(-1)));
        assert!(matches!(ints, Err(EncodeError::TooLong { length: 181, limit: 104 })));
        assert_eq!(out.buffer.len(), 13 + 13 + 103);
        // A cell that does not fit is not copied first, and neither are the cells behind it.
        let far = out.row(|row| {
            row.text(vec![0; 1 << 20]);
            row.text(vec![0; 1 << 20]);
            row.int(1);
        });
        assert!(far.is_err());
        out.execute_ok();
        assert_eq!(buffer.len(), 13 + 13 + 103 + 13);
    }
}

#[test]
fn a_row_that_fails_or_panics_half_way_leaves_nothing() {
    let bytes = written(|out| {
        out.row(|row| row.int(1)).unwrap();
        let mut failed = out.begin_row();
        failed.int(2);
        failed.text([7; 1000]);
        drop(failed);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            out.row(|row| {
                row.text([7; 1000]);
                panic!("storage");
            })
        }));
        assert!(panicked.is_err());
        out.error(Severity::Fatal, 8001, b"HY000", "Session unexpected killed.").unwrap();
    });
    let row = Row { field: vec![vec![2]] };
    let error = generic::ErrorReply {
        severity: Some(Severity::Fatal),
        code: 8001,
        msg: b"Session unexpected killed.".to_vec(),
        sql_state: b"HY000".to_vec(),
    };
    assert_eq!(bytes, [framed(13, &row), framed(1, &error)].concat());
}

#[test]
fn frames_of_one_shape_are_what_prost_writes() {
    for number in [0, 1, 127, 128, u64::from(u32::MAX), u64::MAX] {
        let local = Some(notice::Scope::Local);
        let state = |param: Parameter| {
            let scalar = value::Scalar {
                r#type: value::ScalarType::VUint,
                v_unsigned_int: Some(number),
                ..Default::default()
            };
            let payload = SessionStateChanged { param, value: Some(scalar) };
            let payload = Some(payload.encode_to_vec());
            framed(11, &notice::Frame { r#type: 3, scope: local, payload })
        };
        let bytes = written(|out| {
            out.rows_affected(number);
            out.state(Parameter::GeneratedInsertId, number);
            out.state(Parameter::RowsFound, number);
            out.timestamps(number);
        });
        let expected = [
            state(Parameter::RowsAffected),
            state(Parameter::GeneratedInsertId),
            state(Parameter::RowsFound),
            framed(20, &tso::ResultTso { error_no: 0, ts: number }),
        ];
        assert_eq!(bytes, expected.concat(), "{number}");
    }
    let bytes = written(|out| {
        out.fetch_done();
        out.fetch_done_more_resultsets();
        out.token_done();
        out.ok(None);
        out.ok(Some(300));
    });
    let expected = [
        framed(14, &FetchDone::default()),
        framed(16, &FetchDone::default()),
        framed(19, &TokenDone::default()),
        framed(0, &generic::OkReply::default()),
        framed(0, &generic::OkReply { msg: None, connection_id: Some(300) }),
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn the_state_of_the_server_is_global() {
    let notice = Notice::ServerState(1).to_frame();
    assert_eq!(notice.scope, Some(notice::Scope::Global));
    assert_eq!(written(|out| out.state(Parameter::ExtraServerState, 1)), framed(11, &notice));
}

proptest! {
    #[test]
    fn rows_are_what_prost_writes(cells in prop::collection::vec(cell(), 0..12)) {
        let bytes = written(|out| {
            out.row(|row| cells.iter().for_each(|(value, _)| row.value(value))).unwrap();
        });
        let field = cells.into_iter().map(|(_, cell)| cell).collect();
        prop_assert_eq!(bytes, framed(13, &Row { field }));
    }

    #[test]
    fn sets_of_names_are_sets_as_read(members in prop::collection::vec(".{0,9}", 0..5)) {
        let mut place = Vec::new();
        let set = Set::new(&members, &mut place);
        let read = written(|out| out.row(|row| row.value(&Value::Set(set))).unwrap());
        prop_assert_eq!(written(|out| out.row(|row| row.set(&members)).unwrap()), read);
    }

    #[test]
    fn metadata_is_what_prost_writes(message in metadata()) {
        let column = Column::from_message(&message);
        prop_assert_eq!(written(|out| out.column(&column).unwrap()), framed(12, &message));
    }

    #[test]
    fn a_message_describes_a_column_in_the_form_of_the_dialect(column in metadata()) {
        let message = ServerMessage::ColumnMetaData(column.clone());
        for dialect in [Dialect::Legacy, Dialect::Galaxy { version: 0 }] {
            let (mut buffer, mut bytes) = (OutBuffer::default(), Vec::new());
            Encoder::with_dialect(&mut buffer, dialect, SID)
                .column(&Column::from_message(&column))
                .unwrap();
            message.encode(dialect, SID, &mut bytes).unwrap();
            prop_assert_eq!(buffer.to_vec(), bytes.as_slice());
            buffer.clear();
            Encoder::with_dialect(&mut buffer, dialect, SID).message(&message).unwrap();
            prop_assert_eq!(buffer.to_vec(), bytes.as_slice());
            let body = bytes.split_off(dialect.header_bytes());
            let read = ServerMessage::decode(dialect, 12, &body, &Limits::default());
            let original_flags = match dialect {
                Dialect::Legacy => column.original_flags,
                Dialect::Galaxy { .. } => None,
            };
            let expected = ColumnMetaData { original_flags, ..column.clone() };
            prop_assert_eq!(read, Ok(ServerMessage::ColumnMetaData(expected)));
        }
    }

    #[test]
    fn texts_beside_the_rows_are_what_prost_writes(
        text in prop::collection::vec(any::<u8>(), 0..300), code: u32, level in 1..=3_i32,
    ) {
        let level = Level::from_number(level).unwrap();
        let warning = Warning { level: Some(level), code, msg: text.clone() };
        let bytes = written(|out| {
            out.error(Severity::Error, code, b"42000", &text).unwrap();
            out.notice(&Notice::Warning(warning.clone())).unwrap();
            out.notice(&Notice::Produced(text.clone())).unwrap();
            out.frame(21, &[&[0x08, 1, 0x12], &[0]]).unwrap();
        });
        let error = generic::ErrorReply {
            severity: Some(Severity::Error), code, msg: text.clone(), sql_state: b"42000".to_vec(),
        };
        let local = Some(notice::Scope::Local);
        let scalar = value::Scalar {
            r#type: value::ScalarType::VString,
            v_string: Some(value::ScalarString { value: text, collation: None }),
            ..Default::default()
        };
        let state = SessionStateChanged {
            param: Parameter::ProducedMessage, value: Some(scalar),
        };
        let expected = [
            framed(1, &error),
            framed(11, &notice::Frame {
                r#type: 1, scope: local, payload: Some(warning.encode_to_vec()),
            }),
            framed(11, &notice::Frame {
                r#type: 3, scope: local, payload: Some(state.encode_to_vec()),
            }),
            framed(21, &Chunk { row_count: 1, columns: vec![Default::default()] }),
        ];
        prop_assert_eq!(bytes, expected.concat());
    }
}

#[test]
fn fields_are_as_long_as_they_must_be() {
    assert_eq!(field::field(Word::varint(u64::MAX)).len(), 12);
    let last: DateTime = "9999-12-31 23:59:59.999999".parse().unwrap();
    assert_eq!(field::field(field::datetime(last)).len(), 12);
    assert_eq!(field::field(field::time(Time::MIN)).len(), 10);
}
