//! Fields that a newer peer sends and this crate does not know, for proxies that pass them on.
//!
//! Decoding drops them. A proxy that passes a frame on unchanged has its bytes
//! ([`Frame::bytes`](super::decoder::Frame::bytes)). A proxy that changes a message takes the
//! unknown fields out of the old body and encodes the new message with them:
//!
//! ```
//! use epoll_group::codec::dialect::Dialect;
//! use epoll_group::codec::limits::Limits;
//! use epoll_group::codec::message::ClientMessage;
//!
//! let (kind, body) = (112, b"\x08\x05\x98\x06\x01"); // TOKEN_OFFER, field 1 and a field 99
//! let limits = Limits::default();
//! let unknown = ClientMessage::unknown_fields(kind, body, &limits)?;
//! let ClientMessage::TokenOffer(mut offer) = ClientMessage::decode(kind, body, &limits)? else {
//!     unreachable!();
//! };
//! offer.token = Some(6);
//! let mut out = Vec::new();
//! ClientMessage::TokenOffer(offer).encode_with(&unknown, Dialect::Legacy, 2, &mut out)?;
//! assert_eq!(out[13..], *b"\x08\x06\x98\x06\x01");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::check::{Kind, Place, Schema};
use super::error::MessageError;
use super::reader::{Reader, Tag};

/// Unknown fields of one body, also those inside nested messages.
///
/// *Shape*: the body without its known fields, except the messages around unknown fields. Never
/// larger than the body, and without memory if there are no unknown fields.
///
/// Each field returns to its place: the same nested message, and for list elements the element with
/// the same index. Fields without such a place are dropped. Their order among the known fields is
/// not kept: they follow the known fields, which means the same.
#[derive(Clone, Debug, Default)]
pub struct UnknownFields {
    left: Vec<u8>,
}

impl UnknownFields {
    /// Returns true if there are no unknown fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Unknown fields of a body that passed the check against this schema.
    pub(super) fn of(body: &[u8], schema: &'static Schema) -> Result<Self, MessageError> {
        let mut left = Vec::new();
        if strip(Reader::new(body), schema, &mut left)? {
            Ok(Self { left })
        } else {
            Ok(Self::default())
        }
    }

    /// Appends `body`, which was encoded from a message with this schema, with these fields in it.
    pub(super) fn merge(
        &self,
        body: &[u8],
        schema: &'static Schema,
        out: &mut Vec<u8>,
    ) -> Result<(), MessageError> {
        merge(Reader::new(body), &[&self.left], schema, out)
    }
}

/// Appends the unknown fields and returns true if there were any. Elements of lists leave an empty
/// message if nothing in them is unknown, so that later elements keep their index. A message with
/// such elements also leaves an empty message, because it may come once more and continue the list.
fn strip(
    mut reader: Reader<'_>,
    schema: &'static Schema,
    out: &mut Vec<u8>,
) -> Result<bool, MessageError> {
    let mut found = false;
    loop {
        let before = reader.rest();
        let Some(tag) = reader.tag()? else {
            return Ok(found);
        };
        let field = schema.field(tag.number);
        match field.kind {
            Kind::Unknown => {
                reader.skip(tag)?;
                out.extend_from_slice(passed(before, &reader));
                found = true;
            }
            Kind::Message(inner) => {
                let start = out.len();
                let inside = reader.message()?;
                let is_element = matches!(field.place, Place::List(_));
                let (unknown, is_empty) = with_length(out, tag, |out| {
                    let start = out.len();
                    let unknown = strip(inside, inner, out)?;
                    Ok((unknown, out.len() == start))
                })?;
                found |= unknown;
                if !unknown && (is_element || is_empty) {
                    out.truncate(start);
                    if is_element {
                        with_length(out, tag, |_| Ok(()))?;
                    }
                }
            }
            _ => reader.skip(tag)?,
        }
    }
}

/// Appends `body`. The fields of `left` go to its end and to the ends of its nested messages;
/// `left` may come in several parts. The parts are borrowed at every depth, so deep messages cost
/// no more than flat ones.
fn merge(
    mut body: Reader<'_>,
    left: &[&[u8]],
    schema: &'static Schema,
    out: &mut Vec<u8>,
) -> Result<(), MessageError> {
    // Progress through `left`, for each list.
    let mut lists = Vec::<(u32, Messages<'_, '_>)>::new();
    loop {
        let before = body.rest();
        let Some(tag) = body.tag()? else {
            break;
        };
        let Kind::Message(inner) = schema.field(tag.number).kind else {
            body.skip(tag)?;
            out.extend_from_slice(passed(before, &body));
            continue;
        };
        let inside = body.message()?;
        let parts = if let Place::List(_) = schema.field(tag.number).place {
            if !lists.iter().any(|&(number, _)| number == tag.number) {
                lists.push((tag.number, Messages::new(left, tag.number)));
            }
            let list = lists.iter_mut().find(|&&mut (number, _)| number == tag.number);
            let part = list.and_then(|(_, list)| list.next()).transpose()?;
            part.filter(|part| !part.is_empty()).into_iter().collect()
        } else {
            // A message that comes twice is one, with the fields of both.
            let mut parts = Vec::with_capacity(Messages::new(left, tag.number).count());
            for part in Messages::new(left, tag.number) {
                parts.push(part?);
            }
            parts
        };
        if parts.is_empty() {
            out.extend_from_slice(passed(before, &body));
        } else {
            with_length(out, tag, |out| merge(inside, &parts, inner, out))?;
        }
    }
    for &part in left {
        let mut part = Reader::new(part);
        loop {
            let before = part.rest();
            let Some(tag) = part.tag()? else {
                break;
            };
            part.skip(tag)?;
            if matches!(schema.field(tag.number).kind, Kind::Unknown) {
                out.extend_from_slice(passed(before, &part));
            }
        }
    }
    Ok(())
}

/// Messages that are the values of one field, in all parts of a message.
struct Messages<'l, 'a> {
    part: Reader<'a>,
    later: std::slice::Iter<'l, &'a [u8]>,
    number: u32,
}

impl<'l, 'a> Messages<'l, 'a> {
    fn new(parts: &'l [&'a [u8]], number: u32) -> Self {
        Self { part: Reader::new(&[]), later: parts.iter(), number }
    }
}

impl<'a> Iterator for Messages<'_, 'a> {
    type Item = Result<&'a [u8], MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = next_message(&mut self.part, self.number).transpose() {
                if found.is_err() {
                    // Nothing can be read behind an error.
                    (self.part, self.later) = (Reader::new(&[]), [].iter());
                }
                return Some(found.map(|message| message.rest()));
            }
            self.part = Reader::new(self.later.next()?);
        }
    }
}

/// Returns the next message that is the value of this field.
fn next_message<'a>(
    reader: &mut Reader<'a>,
    number: u32,
) -> Result<Option<Reader<'a>>, MessageError> {
    while let Some(tag) = reader.tag()? {
        if tag.number == number {
            return reader.message().map(Some);
        }
        reader.skip(tag)?;
    }
    Ok(None)
}

/// Bytes between the former and the current position of the reader.
fn passed<'a>(before: &'a [u8], now: &Reader<'_>) -> &'a [u8] {
    let bytes = before.len().saturating_sub(now.rest().len());
    before.get(..bytes).unwrap_or_default()
}

/// Appends a field with a length, which is known only after the value is written.
fn with_length<T>(
    out: &mut Vec<u8>,
    tag: Tag,
    value: impl FnOnce(&mut Vec<u8>) -> Result<T, MessageError>,
) -> Result<T, MessageError> {
    varint(out, u64::from(tag.number) << 3 | u64::from(tag.wire));
    let start = out.len();
    let result = value(out)?;
    let mut length = Vec::new();
    let bytes = out.len().saturating_sub(start);
    varint(&mut length, u64::try_from(bytes).unwrap_or(u64::MAX));
    out.splice(start..start, length);
    Ok(result)
}

fn varint(out: &mut Vec<u8>, value: u64) {
    prost::encoding::encode_varint(value, out);
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test may panic on its own mistakes")]
mod tests {
    use crate::codec::dialect::Dialect;
    use crate::codec::limits::Limits;
    use crate::codec::message::ClientMessage;

    /// Field 99, a varint, and field 100, a group with a fixed number in it.
    const EXTRA: &[u8] = b"\x98\x06\x01\xa3\x06\x0d\0\0\0\0\xa4\x06";

    const EXTRA_BYTES: u8 = 12;

    fn again(kind: u8, body: &[u8]) -> Vec<u8> {
        let limits = Limits::default();
        let message = ClientMessage::decode(kind, body, &limits).expect("it is right");
        let unknown = ClientMessage::unknown_fields(kind, body, &limits).expect("it is right");
        let mut out = Vec::new();
        message.encode_with(&unknown, Dialect::Legacy, 0, &mut out).expect("it is small");
        let mut plain = Vec::new();
        message.encode(Dialect::Legacy, 0, &mut plain).expect("it is small");
        assert_eq!(unknown.is_empty(), out == plain);
        out.split_off(13)
    }

    #[test]
    fn the_extra_bytes_are_counted_right() {
        assert_eq!(EXTRA.len(), usize::from(EXTRA_BYTES));
    }

    #[test]
    fn a_body_without_unknown_fields_stays_as_it_is() {
        let body = b"\x0a\x08select 1\x40\x80\x50\x48\x01";
        assert_eq!(again(101, body), body);
        assert_eq!(again(110, b""), b"");
    }

    #[test]
    fn unknown_fields_stay_in_their_message() {
        let nothing = [0x12, 6, 8, 1, 0x12, 2, 8, 3].as_slice();
        let mut inside = vec![0x12, 6 + EXTRA_BYTES, 8, 1, 0x12, 2 + EXTRA_BYTES, 8, 3];
        inside.extend(EXTRA);
        let body = [nothing, &inside, nothing, EXTRA].concat();
        assert_eq!(again(101, &body), body);
    }

    #[test]
    fn unknown_fields_stay_in_their_element_of_a_list_that_comes_in_two_parts() {
        let part = |argument: &[u8]| {
            let bytes = u8::try_from(argument.len()).expect("it is short");
            [&[0x22, bytes + 2, 0x0a, bytes], argument].concat()
        };
        let argument = [&[8, 3][..], &part(b"\x08\x01"), &part(b"\x08\x02\x78\x00")].concat();
        let body = [&[0x12, 16][..], &argument].concat();
        assert_eq!(
            again(101, &body),
            b"\x12\x0e\x08\x03\x22\x0a\x0a\x02\x08\x01\x0a\x04\x08\x02\x78\0"
        );
    }

    #[test]
    fn unknown_fields_move_behind_the_known_ones() {
        let body = [EXTRA, b"\x40\x01"].concat();
        assert_eq!(again(101, &body), [b"\x40\x01", EXTRA].concat());
    }

    #[test]
    fn a_message_without_known_fields_keeps_them_too() {
        assert_eq!(again(110, EXTRA), EXTRA);
    }

    #[test]
    fn what_has_no_place_any_more_is_dropped() {
        let limits = Limits::default();
        let body = [&[0x12, 6 + EXTRA_BYTES, 8, 1, 0x12, 2, 8, 3], EXTRA].concat();
        let unknown = ClientMessage::unknown_fields(101, &body, &limits).expect("it is right");
        let mut out = Vec::new();
        let message = ClientMessage::ExecSql(Default::default());
        message.encode_with(&unknown, Dialect::Legacy, 0, &mut out).expect("it is small");
        assert_eq!(out.len(), 13);
    }
}
