//! The bytes of a record and of the head. Numbers are little-endian.
//!
//! ```text
//!  record
//!  0      1         9         17           21             25
//!  ┌──────┬─────────┬─────────┬────────────┬──────────────┬───────┬─────────┐
//!  │ kind │ created │ version │ key length │ value length │  key  │  value  │
//!  │  u8  │   u64   │   u64   │    u32     │     u32      │ bytes │  bytes  │
//!  └──────┴─────────┴─────────┴────────────┴──────────────┴───────┴─────────┘
//!  kind: 0 a deletion, whose numbers are 0 and which has no value; 1 a value
//!
//!  head
//!  0        1          9           17
//!  ┌────────┬──────────┬───────────┐
//!  │ format │ revision │ compacted │
//!  │ u8: 1  │   u64    │    u64    │
//!  └────────┴──────────┴───────────┘
//! ```

use std::error::Error;
use std::fmt;

use crate::engine::Head;
use crate::record::Record;

/// Writes the record's bytes in place of what is there.
pub(super) fn encode_record(record: &Record, bytes: &mut Vec<u8>) {
    let value = record.value.as_deref();
    bytes.clear();
    bytes.reserve(RECORD_HEADER + record.key.len() + value.map_or(0, <[u8]>::len));
    bytes.push(if value.is_some() { VALUE } else { DELETION });
    bytes.extend_from_slice(&record.created.to_le_bytes());
    bytes.extend_from_slice(&record.version.to_le_bytes());
    bytes.extend_from_slice(&length(&record.key).to_le_bytes());
    bytes.extend_from_slice(&length(value.unwrap_or_default()).to_le_bytes());
    bytes.extend_from_slice(&record.key);
    bytes.extend_from_slice(value.unwrap_or_default());
}

/// Decodes a record. The bytes must be one record and nothing else.
pub(super) fn decode_record(bytes: &[u8]) -> Result<Record, Damaged> {
    let mut rest = bytes;
    let kind = take::<1>(&mut rest, "kind")?[0];
    let created = u64::from_le_bytes(take(&mut rest, "created")?);
    let version = u64::from_le_bytes(take(&mut rest, "version")?);
    let key_length = u32::from_le_bytes(take(&mut rest, "key length")?);
    let value_length = u32::from_le_bytes(take(&mut rest, "value length")?);
    let key = take_slice(&mut rest, key_length, "key")?;
    let value = take_slice(&mut rest, value_length, "value")?;
    if !rest.is_empty() {
        return Err(Damaged("bytes after the value"));
    }
    if key.is_empty() {
        return Err(Damaged("key without bytes"));
    }
    let value = match kind {
        DELETION if created == 0 && version == 0 && value.is_empty() => None,
        DELETION => return Err(Damaged("deletion with a value or with numbers")),
        VALUE => Some(value.into()),
        _ => return Err(Damaged("kind")),
    };
    Ok(Record { key: key.into(), created, version, value })
}

pub(super) fn encode_head(head: Head) -> [u8; 17] {
    let mut bytes = [FORMAT; 17];
    bytes[1..9].copy_from_slice(&head.revision.to_le_bytes());
    bytes[9..].copy_from_slice(&head.compacted.to_le_bytes());
    bytes
}

pub(super) fn decode_head(bytes: &[u8]) -> Result<Head, Damaged> {
    let mut rest = bytes;
    if take(&mut rest, "format")? != [FORMAT] {
        return Err(Damaged("format: not one of this version"));
    }
    let revision = u64::from_le_bytes(take(&mut rest, "revision")?);
    let compacted = u64::from_le_bytes(take(&mut rest, "compacted")?);
    if rest.is_empty() { Ok(Head { revision, compacted }) } else { Err(Damaged("length of head")) }
}

/// Part of the stored bytes that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged(&'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stored bytes are damaged: {}", self.0)
    }
}

impl Error for Damaged {}

fn take<const N: usize>(rest: &mut &[u8], what: &'static str) -> Result<[u8; N], Damaged> {
    let (first, after) = rest.split_first_chunk().ok_or(Damaged(what))?;
    *rest = after;
    Ok(*first)
}

fn take_slice<'a>(
    rest: &mut &'a [u8],
    length: u32,
    what: &'static str,
) -> Result<&'a [u8], Damaged> {
    let length = usize::try_from(length).map_err(|_| Damaged(what))?;
    let (first, after) = rest.split_at_checked(length).ok_or(Damaged(what))?;
    *rest = after;
    Ok(first)
}

/// The store's limits are far below what does not fit.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a key or value is shorter than 4 GiB")
}

const DELETION: u8 = 0;
const VALUE: u8 = 1;
const FORMAT: u8 = 1;
const RECORD_HEADER: usize = 25;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = Record> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40);
        let key = prop::collection::vec(any::<u8>(), 1..20);
        (key, any::<u64>(), any::<u64>(), prop::option::of(bytes())).prop_map(
            |(key, created, version, value)| {
                let there = u64::from(value.is_some());
                let (created, version) = (created * there, version * there);
                Record { key: key.into(), created, version, value: value.map(Into::into) }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_shorter_or_longer(record in record()) {
            let mut bytes = vec![1, 2, 3];
            encode_record(&record, &mut bytes);
            prop_assert_eq!(decode_record(&bytes), Ok(record));
            for end in 0..bytes.len() {
                prop_assert!(decode_record(&bytes[..end]).is_err());
            }
            bytes.push(0);
            prop_assert!(decode_record(&bytes).is_err());
        }

        #[test]
        fn damaged_bytes_are_an_error_or_another_record(
            record in record(), at in any::<prop::sample::Index>(), flip in 1..=u8::MAX,
        ) {
            let mut bytes = Vec::new();
            encode_record(&record, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert_ne!(decode_record(&bytes), Ok(record));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (decode_record(&bytes), decode_head(&bytes));
        }

        #[test]
        fn heads_are_read_back(revision: u64, compacted: u64) {
            let head = Head { revision, compacted };
            let bytes = encode_head(head);
            prop_assert_eq!(decode_head(&bytes), Ok(head));
            prop_assert!(decode_head(&bytes[..16]).is_err());
            prop_assert!(decode_head(&[&bytes[..], &[0]].concat()).is_err());
        }
    }
}
