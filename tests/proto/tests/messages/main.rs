//! Every message, made up at random from the `.proto` files: what is encoded decodes to the same,
//! however it was written; what is cut, mutated or mere noise is refused or not, and never panics.

mod forge;
mod limits;

use epoll_group::codec::error::{MessageError, Scope};
use epoll_group::codec::frame::{Decoder, Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};
use forge::{Entropy, Forge};
use proptest::prelude::*;

const GALAXY: Dialect = Dialect::Galaxy { version: 0 };

/// One direction and dialect: a message is decoded and encoded through these alone.
#[derive(Clone, Copy, Debug)]
enum Side {
    Client,
    Server(Dialect),
}

impl Side {
    /// The body, decoded and encoded again.
    fn again(self, kind: u8, body: &[u8], limits: &Limits) -> Result<Vec<u8>, MessageError> {
        let mut again = Vec::new();
        let body_bytes = match self {
            Self::Client => {
                let message = ClientMessage::decode(kind, body, limits)?;
                message.encode_body(&mut again);
                assert_eq!(message.kind(), kind);
                message.body_bytes()
            }
            Self::Server(dialect) => {
                let message = ServerMessage::decode(dialect, kind, body, limits)?;
                message.encode_body(dialect, &mut again);
                message.body_bytes(dialect)
            }
        };
        assert_eq!(body_bytes, again.len());
        Ok(again)
    }
}

/// Every kind whose body is described, with the name of the message in it.
fn kinds() -> Vec<(Side, u8, &'static str)> {
    let client = proto::client_kinds()
        .filter_map(|kind| Some((Side::Client, kind.number(), proto::client_message(kind)?)));
    let server = [Dialect::Legacy, GALAXY].into_iter().flat_map(|dialect| {
        let message = move |kind| {
            let name = proto::server_message(kind, dialect == GALAXY)?;
            Some((Side::Server(dialect), kind.number(), name))
        };
        proto::server_kinds().filter_map(message)
    });
    // Only the description of columns depends on the dialect.
    let columns = "resultset.ColumnMetaDataCompatible";
    let is_new = |(side, _, name): &(Side, u8, &str)| match side {
        Side::Server(GALAXY) => *name == columns,
        _ => true,
    };
    let kinds: Vec<_> = client.chain(server).filter(is_new).collect();
    // All but the four of the document store, which are not described.
    let all = proto::client_kinds().count() + proto::server_kinds().count();
    assert_eq!(kinds.len(), all - 4 + 1);
    kinds
}

/// A kind, and random bytes to make a message of this kind from.
fn cases() -> impl Strategy<Value = ((Side, u8, &'static str), Vec<u8>)> {
    (prop::sample::select(kinds()), prop::collection::vec(any::<u8>(), 0..600))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_encoded_decodes_to_the_same((kind, noise) in cases()) {
        let (side, number, name) = kind;
        let body = Forge::new(name).plain(&mut Entropy::new(&noise));
        prop_assert_eq!(side.again(number, &body, &Limits::default())?, body, "{}", name);
    }

    #[test]
    fn order_padding_and_unknown_fields_make_no_difference((kind, noise) in cases()) {
        let (side, number, name) = kind;
        let body = Forge::new(name).plain(&mut Entropy::new(&noise));
        let odd = Forge::new(name).odd(&mut Entropy::new(&noise));
        prop_assert_eq!(side.again(number, &odd, &Limits::default())?, body, "{}", name);
    }

    #[test]
    fn a_body_that_is_cut_inside_a_field_is_refused((kind, noise) in cases()) {
        let (side, number, name) = kind;
        let body = Forge::new(name).plain(&mut Entropy::new(&noise));
        for cut in 0..body.len() {
            let result = side.again(number, &body[..cut], &Limits::default());
            match result {
                Ok(again) => prop_assert_eq!(&again[..], &body[..cut], "{}", name),
                Err(error) => prop_assert_eq!(error.scope(), Scope::Connection, "{}", error),
            }
        }
    }

    #[test]
    fn mutated_bodies_never_panic(
        (kind, noise) in cases(), flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..5),
    ) {
        let (side, number, name) = kind;
        let mut body = Forge::new(name).odd(&mut Entropy::new(&noise));
        for (at, mask) in flips {
            let bytes = body.len().max(1);
            if let Some(byte) = body.get_mut(at % bytes) {
                *byte ^= mask;
            }
        }
        encodes_again(side, number, &body)?;
    }

    #[test]
    fn any_bytes_never_panic(kind: u8, body in prop::collection::vec(any::<u8>(), 0..64)) {
        encodes_again(Side::Client, kind, &body)?;
        encodes_again(Side::Server(Dialect::Legacy), kind, &body)?;
        encodes_again(Side::Server(GALAXY), kind, &body)?;
    }

    #[test]
    fn any_bytes_are_frames_of_a_stream_or_none(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..200),
        version in prop::option::of(0_u8..2),
        piece in 1_usize..20,
    ) {
        let mut limits = Limits::default();
        limits.frame_bytes = 40;
        let dialect = version.map_or(Dialect::Legacy, |version| Dialect::Galaxy { version });
        let mut expected = Vec::new();
        let mut rest = &bytes[..];
        let end = loop {
            match Frame::parse(rest, dialect, &limits) {
                Ok(Some((frame, used))) => {
                    expected.push(frame.bytes().to_vec());
                    rest = &rest[used..];
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let mut decoder = Decoder::with_dialect(limits, dialect);
        let mut found = Vec::new();
        let mut error = None;
        for piece in bytes.chunks(piece) {
            decoder.feed(piece);
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => found.push(frame.bytes().to_vec()),
                    Ok(None) => break,
                    Err(one) => {
                        error = Some(one);
                        break;
                    }
                }
            }
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(error, end);
        prop_assert_eq!(decoder.held_bytes(), if end.is_some() { 0 } else { rest.len() });
    }
}

/// Checks that a body that decodes also encodes, and that the result decodes to the same.
fn encodes_again(side: Side, kind: u8, body: &[u8]) -> Result<(), TestCaseError> {
    let limits = Limits::default();
    match side.again(kind, body, &limits) {
        Ok(again) => prop_assert_eq!(side.again(kind, &again, &limits)?, again),
        Err(error) => {
            prop_assert!(!matches!(error, MessageError::Depth { .. }), "{error} in a short body");
            prop_assert!(!error.to_string().is_empty());
        }
    }
    Ok(())
}
