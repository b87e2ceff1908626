//! Single frames: they decode to the recorded fields and encode to the recorded bytes.

use epoll_group::codec::frame::{Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientKind, ClientMessage, ServerKind, ServerMessage};

use crate::fields::{fields, message_of, recorded};
use crate::{GALAXY, Vector, vectors};

#[test]
fn frames_of_the_client_decode_to_their_fields_and_encode_to_their_bytes() {
    vectors("c2s.jsonl").iter().for_each(|vector| compare(vector, Dialect::Legacy));
}

#[test]
fn frames_of_the_server_decode_to_their_fields_and_encode_to_their_bytes() {
    for vector in &vectors("s2c.jsonl") {
        if vector.kind() == 1 && vector.json["client_result"] == "ignored" {
            // A body that the client too could not read.
            let bytes = vector.bytes("frame_hex");
            let frame = whole_frame(vector, &bytes, Dialect::Legacy);
            assert!(frame.server_message(&Limits::default()).is_err(), "{vector}");
        } else {
            compare(vector, Dialect::Legacy);
        }
    }
}

#[test]
fn plans_decode_to_their_fields_and_encode_to_their_bytes() {
    vectors("exec_plan.jsonl").iter().for_each(|vector| compare(vector, Dialect::Legacy));
}

#[test]
fn frames_of_the_older_dialect_decode_to_their_fields_and_encode_to_their_bytes() {
    vectors("galaxy_header.jsonl").iter().for_each(|vector| compare(vector, GALAXY));
}

#[test]
fn payloads_of_notices_decode_to_their_fields() {
    for vector in vectors("s2c.jsonl") {
        if let Some(message) = vector.json["payload_message"].as_str() {
            let message = message.replace("Polarx.Notice.", "notice.");
            let payload = crate::hex(vector.json["fields"]["payload"].as_str().unwrap_or_default());
            let expected = recorded(&vector.json["payload_fields"]);
            assert_eq!(fields(&message, &payload), expected, "{vector}");
        }
    }
}

/// Decodes, compares the fields, encodes and compares the bytes.
pub(crate) fn compare(vector: &Vector, dialect: Dialect) {
    let bytes = vector.bytes("frame_hex");
    let frame = whole_frame(vector, &bytes, dialect);
    let limits = Limits::default();
    let mut body = Vec::new();
    let mut again = Vec::new();
    if vector.is_from_client() {
        let message = frame.client_message(&limits).unwrap_or_else(|e| panic!("{vector}: {e}"));
        message.encode_body(&mut body);
        message.encode(dialect, frame.session(), &mut again).expect("it is not too large");
        assert_eq!(message.body_bytes(), body.len(), "{vector}");
        let described = !matches!(message, ClientMessage::Unknown(..));
        assert_eq!(described, message_of(vector, false).is_some(), "{vector}");
        if let Some(kind) = ClientKind::from_number(frame.kind()) {
            assert_eq!(kind.protocol_name(), vector.text("type_name"), "{vector}");
        }
    } else {
        let message = frame.server_message(&limits).unwrap_or_else(|e| panic!("{vector}: {e}"));
        message.encode_body(dialect, &mut body);
        message.encode(dialect, frame.session(), &mut again).expect("it is not too large");
        assert_eq!(message.body_bytes(dialect), body.len(), "{vector}");
        let kind = ServerKind::from_number(frame.kind());
        let is_unknown = matches!(message, ServerMessage::Unknown(..));
        assert_eq!(is_unknown, kind.is_none(), "{vector}");
        match kind {
            None => {}
            Some(kind) if kind.number() == frame.kind() => {
                assert_eq!(kind.protocol_name(), vector.text("type_name"), "{vector}");
            }
            Some(kind) => {
                // The second number of the kind is read, but never written.
                assert_eq!(vector.number("client_type_id"), u64::from(kind.number()), "{vector}");
                again[dialect.header_bytes() - 1] = frame.kind();
            }
        }
    }
    assert_eq!(body, vector.bytes("body_hex"), "{vector}: the body");
    assert_eq!(again, bytes, "{vector}: the frame");
    // A line without fields is of a frame that the client skips.
    if let Some(message) = message_of(vector, dialect == GALAXY)
        && !vector.json["fields"].is_null()
    {
        assert_eq!(
            fields(message, &body),
            recorded(&vector.json["fields"]),
            "{vector}: the fields"
        );
    }
}

fn whole_frame<'a>(vector: &Vector, bytes: &'a [u8], dialect: Dialect) -> Frame<'a> {
    let (frame, used) = Frame::parse(bytes, dialect, &Limits::default())
        .unwrap_or_else(|error| panic!("{vector}: {error}"))
        .unwrap_or_else(|| panic!("{vector}: the frame is not whole"));
    assert_eq!(used, bytes.len(), "{vector}");
    assert_eq!(frame.bytes(), bytes, "{vector}");
    assert_eq!(frame.body(), vector.bytes("body_hex"), "{vector}");
    assert_eq!(frame.kind(), vector.kind(), "{vector}");
    assert_eq!(frame.session(), vector.number("sid"), "{vector}");
    frame
}
