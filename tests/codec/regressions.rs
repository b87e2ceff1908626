//! Faults of the codec that were found and fixed, each by its symptom.

use epoll_group::codec::auth::{Challenge, Reply, StoredPassword};
use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkWriter};
use epoll_group::codec::error::{MessageError, Scope};
use epoll_group::codec::frame::{Decoder, Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, Notice, ServerMessage};
use epoll_group::codec::proto::notice;
use epoll_group::codec::row::Cell;
use epoll_group::codec::value::{Date, DateTime, ValueError};

/// Found by the fuzz target `message`: the first value satisfied the check, the last one was taken,
/// and what it was encoded to could not be decoded again.
#[test]
fn an_unknown_value_of_a_required_enum_is_skipped_wherever_it_is() {
    let decode = |body: &[u8]| ServerMessage::decode(Dialect::Legacy, 12, body, &Limits::default());
    let missing =
        MessageError::Missing { message: "resultset.ColumnMetaData", field: 1, value: Some(9) };
    assert_eq!(decode(b"\x08\x09\x10\x08"), Err(missing));
    let plain = decode(b"\x08\x01\x10\x08");
    assert!(plain.is_ok());
    assert_eq!(decode(b"\x08\x01\x10\x08\x08\x09"), plain);
    assert_eq!(decode(b"\x08\x09\x10\x08\x08\x01"), plain);
    // 1 in the low 32 bits.
    assert_eq!(decode(b"\x08\x81\x80\x80\x80\x10\x10\x08"), plain);
}

/// Found by review: an enum value that is not listed was reported as an absent field.
#[test]
fn an_unknown_value_of_a_required_enum_is_named() {
    let text = |body: &[u8]| {
        let error = ServerMessage::decode(Dialect::Legacy, 12, body, &Limits::default());
        error.expect_err("a required field is absent").to_string()
    };
    let absent = "resultset.ColumnMetaData lacks field 1";
    assert_eq!(text(b""), absent);
    assert_eq!(text(b"\x08\x09"), "field 1 of resultset.ColumnMetaData has the unknown value 9");
    // If a field comes twice, the error has its last value, and none if one of them is listed.
    let negative = b"\x08\x01\x10\x14\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert_eq!(text(negative), "field 2 of resultset.ColumnMetaData has the unknown value -1");
    assert_eq!(text(b"\x10\x63\x10\x08"), absent);
}

/// Found by review: the pieces of an array were counted each by itself, and joined afterwards.
#[test]
fn an_array_in_pieces_is_not_joined_so_it_evades_no_limit() {
    let mut limits = Limits::default();
    limits.elements = 5;
    let piece =
        b"\x22\x14\x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x01";
    let body = |pieces: usize| {
        let array = [b"\x08\x03".as_slice(), &piece.repeat(pieces)].concat();
        let length = u8::try_from(array.len()).expect("it is short");
        [&[0x12, length], &*array].concat()
    };
    let decode = |body: &[u8]| ClientMessage::decode(101, body, &limits);
    assert!(decode(&body(1)).is_ok());
    assert_eq!(decode(&body(2)), decode(&body(1)), "the last piece counts");
}

/// Found by review: a notice with a parameter that a newer server has made a request fail.
#[test]
fn a_notice_of_an_unlisted_parameter_is_passed_on() {
    let read = |payload: &[u8]| {
        let payload = Some(payload.to_vec());
        Notice::read(&notice::Frame { r#type: 3, payload, scope: None }, &Limits::default())
    };
    for payload in [b"\x08\x0d".as_slice(), b""] {
        assert_eq!(read(payload), Ok(Notice::Other(3, payload.to_vec())));
    }
    let missing = MessageError::Missing { message: "value.Scalar", field: 1, value: None };
    assert_eq!(read(b"\x08\x0d\x12\x00"), Err(missing), "a value without a type");
}

/// Found by review: the message hid its proof, but the frame around it and the decoder printed it.
#[test]
fn a_proof_is_printed_neither_by_its_frame_nor_by_the_decoder() {
    let bytes = b"\0\0\0\0\0\0\0\0\x0a\0\0\0\x05\x0a\x07*secret";
    let mut decoder = Decoder::new(Limits::default());
    decoder.feed(bytes);
    let frame = Frame::parse(bytes, Dialect::Legacy, &Limits::default());
    let shown = format!("{frame:?} {decoder:?}");
    assert!(shown.contains("kind: 5") && shown.contains("held_bytes: 22"), "{shown}");
    assert!(!shown.contains("42, 115") && !shown.contains("secret"), "{shown}");
}

/// Found by review: errors of logins and chunks did not say what dies of them.
#[test]
fn errors_of_logins_and_chunks_say_what_dies() {
    let scopes = [
        ChunkFrame::parse(b"").map(drop).map_err(|error| error.scope()),
        ChunkWriter::new(&[BlockKind::Set]).row(&[]).map_err(|error| error.scope()),
        Reply::parse(b"").map(drop).map_err(|error| error.scope()),
        StoredPassword::parse(b"x").map(drop).map_err(|error| error.scope()),
        Challenge::Classic(b"").encode().map(drop).map_err(|error| error.scope()),
        Challenge::parse(&[b'1'; 45]).map(drop).map_err(|error| error.scope()),
    ];
    let no = Err(Scope::Request);
    assert_eq!(scopes, [no, no, no, no, Ok(()), no]);
}

/// Found by review: the error in a row gave the length of the whole cell as the bytes behind it.
#[test]
fn a_date_with_a_time_is_the_same_error_in_a_row_and_in_a_chunk() {
    let at = "2024-02-29 01:00:00".parse::<DateTime>().map(DateTime::to_packed);
    let in_chunk = at.and_then(Date::from_packed);
    assert!(matches!(in_chunk, Err(ValueError::OutOfRange { part: "time of a date", .. })));
    assert_eq!(Cell::new(b"\xe8\x0f\x02\x1d\x01").date(), in_chunk.map(Some));
}
