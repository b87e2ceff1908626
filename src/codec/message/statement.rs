//! Fast decoder of the most frequent message: a statement in text form without arguments.
//!
//! One pass over the body decodes it. Any body that it does not expect, from arguments to malformed
//! bytes, goes to the general decoder, which alone returns errors.
//!
//! The function is inlined into the caller, about 3 KB each time. Thus the message, 256 bytes and
//! more, is written to its final place: moving freshly written memory in small pieces costs 20 ns.
//! Header and message of an `EXEC_SQL` of `select 1` are 462 instructions this way, and 51 ns with
//! the drop. prost needs 865 instructions and 84 ns for the body alone (callgrind and
//! `benches/codec.rs`, November 2026).

use crate::codec::limits::Limits;
use crate::codec::proto::sql::StmtExecute;
use crate::codec::wire::Reader;

/// Decodes `body`. Returns `None` if the body needs the general decoder.
///
/// Owned values are made at the end, when the whole body is known to be good. Therefore no value is
/// built twice, moved, or dropped early.
#[inline(always)]
pub(super) fn decode(body: &[u8], limits: &Limits) -> Option<StmtExecute> {
    let mut fields = Fields::default();
    let mut reader = Reader::new(body);
    while !reader.is_empty() {
        // A tag: number and wire type of the next field.
        let tag = reader.varint().ok()?;
        // A number or a length follows; this message has no other wire type.
        let value = reader.varint().ok()?;
        match tag {
            0x0a => fields.stmt = Some(bytes(&mut reader, value)?),
            0x1a => fields.namespace = Some(text(&mut reader, value, limits)?),
            0x20 => fields.compact_metadata = Some(value != 0),
            0x2a => fields.schema_name = Some(text(&mut reader, value, limits)?),
            0x3a => fields.encoding = Some(text(&mut reader, value, limits)?),
            0x40 => fields.token = Some(int32(value)),
            0x48 => fields.reset_error = Some(value != 0),
            0x50 => fields.snapshot_seq = Some(value),
            0x58 => fields.commit_seq = Some(value),
            0x62 => fields.stmt_digest = Some(bytes(&mut reader, value)?),
            0x6a => fields.hint = Some(bytes(&mut reader, value)?),
            0x70 => fields.chunk_result = Some(value != 0),
            0x78 => fields.use_cts_transaction = Some(value != 0),
            0x80 => fields.feed_back = Some(value != 0),
            0x88 => fields.capabilities = Some(value),
            0x90 => fields.mark_distributed = Some(value != 0),
            0x98 => fields.query_via_flashback_area = Some(value != 0),
            _ => return None,
        }
    }
    Some(StmtExecute {
        stmt: fields.stmt.map(<[u8]>::to_vec),
        args: Vec::new(),
        namespace: fields.namespace.map(owned),
        compact_metadata: fields.compact_metadata,
        schema_name: fields.schema_name.map(owned),
        session_variables: Vec::new(),
        encoding: fields.encoding.map(owned),
        token: fields.token,
        reset_error: fields.reset_error,
        snapshot_seq: fields.snapshot_seq,
        commit_seq: fields.commit_seq,
        stmt_digest: fields.stmt_digest.map(owned),
        hint: fields.hint.map(owned),
        chunk_result: fields.chunk_result,
        use_cts_transaction: fields.use_cts_transaction,
        feed_back: fields.feed_back,
        capabilities: fields.capabilities,
        mark_distributed: fields.mark_distributed,
        query_via_flashback_area: fields.query_via_flashback_area,
    })
}

/// Fields of a [`StmtExecute`], borrowed from the body. If a field comes twice, the last one
/// counts.
#[derive(Default)]
struct Fields<'a> {
    stmt: Option<&'a [u8]>,
    namespace: Option<&'a [u8]>,
    compact_metadata: Option<bool>,
    schema_name: Option<&'a [u8]>,
    encoding: Option<&'a [u8]>,
    token: Option<i32>,
    reset_error: Option<bool>,
    snapshot_seq: Option<u64>,
    commit_seq: Option<u64>,
    stmt_digest: Option<&'a [u8]>,
    hint: Option<&'a [u8]>,
    chunk_result: Option<bool>,
    use_cts_transaction: Option<bool>,
    feed_back: Option<bool>,
    capabilities: Option<u64>,
    mark_distributed: Option<bool>,
    query_via_flashback_area: Option<bool>,
}

/// Out-of-line copy of a rare field.
#[inline(never)]
fn owned(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

#[inline]
fn bytes<'a>(reader: &mut Reader<'a>, length: u64) -> Option<&'a [u8]> {
    reader.take(usize::try_from(length).ok()?).ok()
}

#[inline]
fn text<'a>(reader: &mut Reader<'a>, length: u64, limits: &Limits) -> Option<&'a [u8]> {
    if length > u64::from(limits.text_bytes) {
        return None;
    }
    bytes(reader, length)
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
            if let Some(message) = decode(&body, &Limits::default()) {
                prop_assert_eq!(StmtExecute::decode(&body[..]), Ok(message));
            }
        }
    }

    #[test]
    fn a_plain_statement_goes_the_short_way_and_others_do_not() {
        let way = |body: &[u8]| decode(body, &Limits::default());
        assert!(way(b"\x0a\x08select 1\x40\x80\x50\x48\x01\x98\x01\x01").is_some());
        assert!(way(b"\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").is_some());
        for body in [b"\x12\x02\x08\x03".as_slice(), b"\xf8\x07\x01", b"\x0a\x08sel", b"\x08\x01"] {
            assert!(way(body).is_none(), "{body:?}");
        }
        let limits = Limits { text_bytes: 2, ..Limits::default() };
        assert!(decode(b"\x2a\x02ab", &limits).is_some());
        assert!(decode(b"\x2a\x03abc", &limits).is_none());
    }
}
