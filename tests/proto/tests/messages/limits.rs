//! Lengths, depths, numbers and texts at their limits and one above; malformed bodies.

use epoll_group::codec::error::{MessageError, Scope, WireError};
use epoll_group::codec::frame::{Decoder, Dialect, Frame, HeaderError};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientKind, ClientMessage, ServerMessage};

fn header(length: u32) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend(length.to_le_bytes());
    bytes.push(101);
    bytes
}

#[test]
fn lengths_at_the_edges() {
    let limits = Limits::default();
    let parse = |length| {
        let bytes = header(length);
        let mut decoder = Decoder::new(limits);
        decoder.feed(&bytes);
        let fed = decoder.next_frame().map(|frame| frame.map(|frame| frame.body().len()));
        let parsed = Frame::parse(&bytes, Dialect::Legacy, &limits);
        assert_eq!(parsed.map(|frame| frame.map(|(frame, _)| frame.body().len())), fed);
        fed
    };
    let too_long = |length| Err(HeaderError::TooLong { length, limit: limits.frame_bytes });
    assert_eq!(parse(0), Err(HeaderError::ZeroLength));
    assert_eq!(parse(1), Ok(Some(0)));
    assert_eq!(parse(limits.frame_bytes), Ok(None));
    assert_eq!(parse(limits.frame_bytes + 1), too_long(limits.frame_bytes + 1));
    assert_eq!(parse(u32::MAX), too_long(u32::MAX));
}

#[test]
fn before_login_frames_are_short() {
    let limits = Limits::default();
    let mut decoder = Decoder::new(limits.before_login());
    decoder.feed(&header(4097));
    let error = HeaderError::TooLong { length: 4097, limit: 4096 };
    assert_eq!(decoder.next_frame(), Err(error));
    assert_eq!(error.scope(), Scope::Connection);
    decoder.feed(&header(1));
    assert_eq!(decoder.next_frame(), Err(error), "behind an error there is nothing");
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn limits_that_change_do_not_concern_a_frame_that_began() {
    let mut decoder = Decoder::new(Limits::default());
    decoder.feed(&header(100));
    assert_eq!(decoder.next_frame(), Ok(None));
    let mut low = Limits::default();
    low.frame_bytes = 50;
    decoder.set_limits(low);
    decoder.feed(&[0; 99]);
    assert_eq!(decoder.next_frame().map(|frame| frame.map(|f| f.body().len())), Ok(Some(99)));
    decoder.feed(&header(100));
    let error = HeaderError::TooLong { length: 100, limit: 50 };
    assert_eq!(decoder.next_frame(), Err(error));
}

/// A field of bytes: its number, its length, its value.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len();
    let low = |shift: usize| u8::try_from(length >> shift & 0x7f).expect("seven bits");
    [&[number << 3 | 2, low(0) | 0x80, low(7) | 0x80, low(14)], value].concat()
}

fn decode(kind: ClientKind, body: &[u8], limits: &Limits) -> Result<ClientMessage, MessageError> {
    ClientMessage::decode(kind.number(), body, limits)
}

#[test]
fn messages_nest_to_the_limit_and_no_deeper() {
    // An argument that is an array of an array of …: two levels each.
    let argument = |arrays: usize| {
        (0..arrays).fold(b"\x08\x03".to_vec(), |inside, _| {
            [b"\x08\x03".as_slice(), &field(4, &field(1, &inside))].concat()
        })
    };
    let body = |arrays| field(2, &argument(arrays));
    let limits = Limits::default();
    assert!(decode(ClientKind::ExecSql, &body(49), &limits).is_ok());
    let error = MessageError::Depth { limit: 99 };
    assert_eq!(decode(ClientKind::ExecSql, &body(50), &limits), Err(error));
    assert_eq!(decode(ClientKind::ExecSql, &body(2000), &limits), Err(error));
    assert_eq!(error.scope(), Scope::Request);
    let mut limits = limits;
    limits.depth = 3;
    assert!(decode(ClientKind::ExecSql, &body(1), &limits).is_ok());
    let error = MessageError::Depth { limit: 3 };
    assert_eq!(decode(ClientKind::ExecSql, &body(2), &limits), Err(error));
    // Groups of unknown fields count as well.
    assert!(
        decode(ClientKind::ExecSql, &[[0x9b, 6].repeat(3), [0x9c, 6].repeat(3)].concat(), &limits)
            .is_ok()
    );
    assert_eq!(decode(ClientKind::ExecSql, &[0x9b, 6].repeat(4), &limits), Err(error));
    // The highest limit still ends at 99 levels, so that the decoder's stack does not overflow.
    limits.depth = u32::MAX;
    assert!(decode(ClientKind::ExecSql, &body(49), &limits).is_ok());
    let error = MessageError::Depth { limit: 99 };
    assert_eq!(decode(ClientKind::ExecSql, &body(50), &limits), Err(error));
}

#[test]
fn every_list_has_its_limit() {
    let mut limits = Limits::default();
    limits.parameters = 3;
    limits.columns = 4;
    limits.elements = 5;
    let argument = field(2, b"\x08\x03");
    let error = |message, field, limit| Err(MessageError::Elements { message, field, limit });
    let sql = |count| decode(ClientKind::ExecSql, &argument.repeat(count), &limits).map(drop);
    assert_eq!(sql(3), Ok(()));
    assert_eq!(sql(4), error("sql.StmtExecute", 2, 3));
    let row = |count| {
        let body = field(1, b"").repeat(count);
        ServerMessage::decode(Dialect::Legacy, 13, &body, &limits).map(drop)
    };
    assert_eq!(row(4), Ok(()));
    assert_eq!(row(5), error("resultset.Row", 1, 4));
    let conditions = |count| {
        decode(ClientKind::ExpectOpen, &field(2, b"\x08\x01").repeat(count), &limits).map(drop)
    };
    assert_eq!(conditions(5), Ok(()));
    assert_eq!(conditions(6), error("expect.Open", 2, 5));
}

#[test]
fn the_largest_number_of_arguments_is_within_the_defaults() {
    let argument = field(
        2,
        &field(2, b"\x08\x01\x10\x0e").iter().chain(b"\x08\x01").copied().collect::<Vec<_>>(),
    );
    let limits = Limits::default();
    let body = argument.repeat(65_535);
    assert!(decode(ClientKind::ExecSql, &body, &limits).is_ok());
    let body = argument.repeat(65_536);
    let error = MessageError::Elements { message: "sql.StmtExecute", field: 2, limit: 65_535 };
    assert_eq!(decode(ClientKind::ExecSql, &body, &limits), Err(error));
}

#[test]
fn texts_have_a_limit_and_statements_have_not() {
    let long = vec![b'x'; 65_537];
    let limits = Limits::default();
    assert!(decode(ClientKind::ExecSql, &field(1, &long), &limits).is_ok());
    let error =
        MessageError::Text { message: "sql.StmtExecute", field: 5, bytes: 65_537, limit: 65_536 };
    assert_eq!(decode(ClientKind::ExecSql, &field(5, &long), &limits), Err(error));
    assert!(decode(ClientKind::ExecSql, &field(5, &long[1..]), &limits).is_ok());
}

#[test]
fn malformed_bodies_have_errors_of_their_own() {
    let limits = Limits::default();
    let cases: [(ClientKind, &[u8], MessageError); 3] = [
        (
            ClientKind::SessionKill,
            b"\x10\x02",
            MessageError::Missing { message: "session.KillSession", field: 1, value: None },
        ),
        (
            ClientKind::SessionKill,
            b"\x08\x09\x10\x02",
            MessageError::Missing { message: "session.KillSession", field: 1, value: Some(9) },
        ),
        (
            ClientKind::ExecSql,
            b"\x08\x01",
            MessageError::WireType { message: "sql.StmtExecute", field: 1, found: 0 },
        ),
    ];
    for (kind, body, expected) in cases {
        assert_eq!(decode(kind, body, &limits), Err(expected));
    }
    let error = |body: &[u8]| decode(ClientKind::ExecSql, body, &limits).map(drop);
    for (body, offset, fault) in [
        (&b"\x0a\x08sele"[..], 1, WireError::Truncated),
        (b"\x40\xff", 1, WireError::Truncated),
        (b"\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 1, WireError::VarintTooLong),
        (b"\x00", 0, WireError::Tag),
        (b"\x0f", 0, WireError::Tag),
        (b"\x40\x01\x0c", 2, WireError::Tag),
        (b"\x9b\x06", 2, WireError::Truncated),
        (b"\x9b\x06\xa4\x06", 2, WireError::Tag),
        // Offsets inside a nested message count from the start of the body.
        (b"\x12\x04\x08\x01\x12\x09", 5, WireError::Truncated),
    ] {
        assert_eq!(error(body), Err(MessageError::Wire { offset, error: fault }), "{body:?}");
    }
}

#[test]
fn unknown_kinds_survive_as_bytes() {
    let limits = Limits::default();
    for kind in [8, 17, 18, 19, 20, 127, 255] {
        let message = ClientMessage::decode(kind, b"\xff\x00", &limits).expect("any bytes will do");
        assert_eq!(message, ClientMessage::Unknown(kind, b"\xff\x00".to_vec()));
        assert_eq!(message.kind(), kind);
        let mut out = Vec::new();
        message.encode(Dialect::Legacy, 1, &mut out).expect("it is small");
        assert_eq!(out[8..], [&[3, 0, 0, 0, kind], b"\xff\x00".as_slice()].concat());
    }
}
