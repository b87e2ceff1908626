//! Bodies of every kind. The decoder does not panic and takes little memory. Decode, encode, decode gives
//! the same message, with its unknown fields and without.
//!
//! ```text
//! part = 0 client, 1 server, 2 server in the older dialect │ kind u8 │ body
//! ```

use epoll_group::codec::dialect::Dialect;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};

use crate::memory::bounded;

/// Memory that a message may take besides four times its body. Small, so that short bodies reach it.
const OVERHEAD_BYTES: u32 = 16 << 10;

pub(crate) fn check(input: &[u8]) {
    let [direction, kind, body @ ..] = input else {
        return;
    };
    let kind = *kind;
    let mut limits = Limits::default();
    limits.overhead_bytes = OVERHEAD_BYTES;
    let galaxy = Dialect::Galaxy { version: 0 };
    match direction % 3 {
        0 => client(kind, body, &limits),
        1 => server(Dialect::Legacy, kind, body, &limits),
        _ => server(galaxy, kind, body, &limits),
    }
}

macro_rules! round_trip {
    ($decode:expr, $unknown:expr, $dialect:expr, $body:expr, $limits:expr) => {{
        let decoded = bounded($body.len(), || $decode($body, $limits));
        let unknown = bounded($body.len(), || $unknown($body, $limits));
        let Ok(message) = decoded else {
            assert!(unknown.is_err(), "the fields of a message that is none");
            return;
        };
        let unknown = unknown.expect("the message could be decoded");

        let mut again = Vec::new();
        message.encode_body(&mut again);
        assert_eq!(message.body_bytes(), again.len());
        // The encoded body may be larger: it has the defaults of required fields, for example.
        let mut limits = *$limits;
        limits.overhead_bytes = u32::MAX;
        let other = $decode(&again, &limits).expect("it was encoded from a message");
        let mut third = Vec::new();
        other.encode_body(&mut third);
        // By their bytes, because NaN is not equal to itself.
        assert_eq!(third, again, "decode, encode, decode gives another message");

        let mut frame = Vec::new();
        message.encode_with(&unknown, $dialect, 0, &mut frame).expect("it is small");
        let with = &frame[$dialect.header_bytes()..];
        let kept = $decode(with, &limits).expect("it was encoded from a message");
        third.clear();
        kept.encode_body(&mut third);
        assert_eq!(third, again, "unknown fields change the message");
        let fields = $unknown(with, &limits).expect("it was encoded from a message");
        let mut once_more = Vec::new();
        kept.encode_with(&fields, $dialect, 0, &mut once_more).expect("it is small");
        assert_eq!(once_more, frame, "the unknown fields do not come back");
    }};
}

fn client(kind: u8, body: &[u8], limits: &Limits) {
    let decode = |body: &[u8], limits: &Limits| ClientMessage::decode(kind, body, limits);
    let unknown = |body: &[u8], limits: &Limits| ClientMessage::unknown_fields(kind, body, limits);
    round_trip!(decode, unknown, Dialect::Legacy, body, limits);
}

fn server(dialect: Dialect, kind: u8, body: &[u8], limits: &Limits) {
    let decode = |body: &[u8], limits: &Limits| ServerMessage::decode(dialect, kind, body, limits);
    let unknown =
        |body: &[u8], limits: &Limits| ServerMessage::unknown_fields(dialect, kind, body, limits);
    round_trip!(decode, unknown, dialect, body, limits);
}
