//! Bodies of every kind. The decoder does not panic and takes little memory. Decode, encode, decode gives
//! the same message.
//!
//! ```text
//! part = 0 client, 1 server, 2 server in the older dialect │ kind u8 │ body
//! ```

use epoll_group::codec::frame::Dialect;
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
    ($decode:expr, $body:expr, $limits:expr $(, $dialect:expr)?) => {{
        let Ok(message) = bounded($body.len(), || $decode($body, $limits)) else {
            return;
        };

        let mut again = Vec::new();
        message.encode_body($($dialect,)? &mut again);
        assert_eq!(message.body_bytes($($dialect)?), again.len());
        // The encoded body may be larger: it has the defaults of required fields, for example.
        let mut limits = *$limits;
        limits.overhead_bytes = u32::MAX;
        let other = $decode(&again, &limits).expect("it was encoded from a message");
        let mut third = Vec::new();
        other.encode_body($($dialect,)? &mut third);
        // By their bytes, because NaN is not equal to itself.
        assert_eq!(third, again, "decode, encode, decode gives another message");
    }};
}

fn client(kind: u8, body: &[u8], limits: &Limits) {
    let decode = |body: &[u8], limits: &Limits| ClientMessage::decode(kind, body, limits);
    round_trip!(decode, body, limits);
}

fn server(dialect: Dialect, kind: u8, body: &[u8], limits: &Limits) {
    let decode = |body: &[u8], limits: &Limits| ServerMessage::decode(dialect, kind, body, limits);
    round_trip!(decode, body, limits, dialect);
}
