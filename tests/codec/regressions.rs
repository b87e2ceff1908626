//! Faults of the codec that were found and fixed, each by its symptom.

use epoll_group::codec::auth::{Challenge, Reply, StoredPassword};
use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkWriter};
use epoll_group::codec::error::{MessageError, Scope};
use epoll_group::codec::frame::{Decoder, Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ServerMessage;
use epoll_group::codec::row::Cell;
use epoll_group::codec::value::{Date, DateTime, ValueError};

/// Found by the fuzz target `message`: the first value satisfied the check, the last one was taken,
/// and what it was encoded to could not be decoded again.
#[test]
fn an_unknown_value_behind_a_known_one_does_not_pass_for_a_required_enum() {
    let decode = |body: &[u8]| ServerMessage::decode(Dialect::Legacy, 12, body, &Limits::default());
    let missing = MessageError::Missing { message: "resultset.ColumnMetaData", field: 1 };
    assert_eq!(decode(b"\x08\x01\x10\x08\x08\x09"), Err(missing));
    assert!(decode(b"\x08\x09\x10\x08\x08\x01").is_ok());
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
