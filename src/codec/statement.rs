//! The short way for the most frequent message: a statement in text form without arguments.
//!
//! One pass over the body decodes it. Whatever it does not expect, from arguments to malformed
//! bytes, it leaves to the long way, which alone knows errors. Header, message and drop of an
//! `EXEC_SQL` of `select 1` are 670 instructions this way (callgrind, 2026-11-21); prost needs 1090
//! for the body alone.

use super::limits::Limits;
use super::message::sql::StmtExecute;
use super::reader::Reader;

/// Decodes `body` into `message`, or gives up; then `message` means nothing.
#[inline]
pub(super) fn decode(body: &[u8], limits: &Limits, message: &mut StmtExecute) -> Option<()> {
    let mut rest = body;
    while !rest.is_empty() {
        // A tag: number and wire type of the next field.
        match varint(&mut rest)? {
            0x0a => message.stmt = Some(bytes(&mut rest)?.to_vec()),
            0x1a => message.namespace = Some(text(&mut rest, limits)?),
            0x20 => message.compact_metadata = Some(varint(&mut rest)? != 0),
            0x2a => message.schema_name = Some(text(&mut rest, limits)?),
            0x3a => message.encoding = Some(text(&mut rest, limits)?),
            0x40 => message.token = Some(int32(varint(&mut rest)?)),
            0x48 => message.reset_error = Some(varint(&mut rest)? != 0),
            0x50 => message.snapshot_seq = Some(varint(&mut rest)?),
            0x58 => message.commit_seq = Some(varint(&mut rest)?),
            0x62 => message.stmt_digest = Some(bytes(&mut rest)?.to_vec()),
            0x6a => message.hint = Some(bytes(&mut rest)?.to_vec()),
            0x70 => message.chunk_result = Some(varint(&mut rest)? != 0),
            0x78 => message.use_cts_transaction = Some(varint(&mut rest)? != 0),
            0x80 => message.feed_back = Some(varint(&mut rest)? != 0),
            0x88 => message.capabilities = Some(varint(&mut rest)?),
            0x90 => message.mark_distributed = Some(varint(&mut rest)? != 0),
            0x98 => message.query_via_flashback_area = Some(varint(&mut rest)? != 0),
            _ => return None,
        }
    }
    Some(())
}

#[inline]
fn varint(rest: &mut &[u8]) -> Option<u64> {
    match **rest {
        [low, ref after @ ..] if low < 0x80 => {
            *rest = after;
            Some(u64::from(low))
        }
        [low, high, ref after @ ..] if high < 0x80 => {
            *rest = after;
            Some(u64::from(low & 0x7f) | u64::from(high) << 7)
        }
        _ => long_varint(rest),
    }
}

#[cold]
fn long_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut reader = Reader::new(rest);
    let value = reader.varint().ok()?;
    *rest = reader.rest();
    Some(value)
}

#[inline]
fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

#[inline]
fn text(rest: &mut &[u8], limits: &Limits) -> Option<Vec<u8>> {
    let bytes = bytes(rest)?;
    u32::try_from(bytes.len()).is_ok_and(|bytes| bytes <= limits.text_bytes).then(|| bytes.to_vec())
}

#[expect(clippy::cast_possible_truncation, reason = "32 bits, sign-extended on the wire")]
const fn int32(value: u64) -> i32 {
    value as i32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    proptest! {
        #[test]
        fn the_short_way_gives_what_the_long_way_gives(
            parts in prop::collection::vec((1_u8..20, prop::collection::vec(any::<u8>(), 0..12)), 0..8),
            tail in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let mut body = Vec::new();
            for (number, value) in parts {
                let is_bytes = matches!(number, 1 | 3 | 5 | 7 | 12 | 13);
                let tag = u64::from(number) << 3 | if is_bytes { 2 } else { 0 };
                prost::encoding::encode_varint(tag, &mut body);
                let bytes = u64::try_from(value.len()).unwrap_or(0);
                if is_bytes {
                    prost::encoding::encode_varint(bytes, &mut body);
                    body.extend(&value);
                } else {
                    let number = value.iter().fold(bytes, |all, &byte| all << 7 | u64::from(byte));
                    prost::encoding::encode_varint(number, &mut body);
                }
            }
            body.extend(tail);
            let mut message = StmtExecute::default();
            if decode(&body, &Limits::default(), &mut message).is_some() {
                prop_assert_eq!(StmtExecute::decode(&body[..]), Ok(message));
            }
        }
    }

    #[test]
    fn a_plain_statement_goes_the_short_way_and_others_do_not() {
        let way = |body: &[u8]| decode(body, &Limits::default(), &mut StmtExecute::default());
        assert!(way(b"\x0a\x08select 1\x40\x80\x50\x48\x01\x98\x01\x01").is_some());
        assert!(way(b"\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").is_some());
        for body in [b"\x12\x02\x08\x03".as_slice(), b"\xf8\x07\x01", b"\x0a\x08sel", b"\x08\x01"] {
            assert!(way(body).is_none(), "{body:?}");
        }
        let limits = Limits { text_bytes: 2, ..Limits::default() };
        assert!(decode(b"\x2a\x02ab", &limits, &mut StmtExecute::default()).is_some());
        assert!(decode(b"\x2a\x03abc", &limits, &mut StmtExecute::default()).is_none());
    }
}
