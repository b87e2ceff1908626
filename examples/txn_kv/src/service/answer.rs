//! Results of the store as replies.

use epoll_group::codec::row::{Column, ColumnType};
use epoll_group::session::{Reply, Row, SessionError};

use super::unread::{Share, Unread};
use crate::store::Store;
use crate::txn::{Entry, Found, OpResult, Outcome};

/// Display lengths that fit the limits of a store by default.
const KEY_BYTES: u32 = 1 << 10;
const VALUE_BYTES: u32 = 1 << 20;
/// The collation of utf8mb4 texts.
const COLLATION: u64 = 45;

/// Writes the result of a transaction. With `tells`, also its branch.
pub(super) fn txn(
    reply: &mut Reply<'_>,
    outcome: Outcome,
    tells: bool,
    unread: &Share,
) -> Result<(), SessionError> {
    let ending = reply.ending();
    ending.insert_id = outcome.revision;
    if tells {
        ending.info = if outcome.succeeded { "then" } else { "else" }.into();
    }
    let (mut affected, mut reads) = (0, false);
    for result in &outcome.results {
        match result {
            OpResult::Put => affected += 1,
            OpResult::Deleted(keys) => affected += keys,
            OpResult::Found(_) => reads = true,
        }
    }
    ending.affected = affected;
    if !reads {
        return Ok(());
    }
    let results = (0..).zip(outcome.results);
    let found = results.flat_map(|(operation, result)| {
        let entries = match result {
            OpResult::Found(entries) => entries,
            OpResult::Put | OpResult::Deleted(_) => Vec::new(),
        };
        entries.into_iter().map(move |entry| (operation, entry))
    });
    entries(reply, found.collect(), unread)
}

/// Writes the result of a read.
pub(super) fn found(
    reply: &mut Reply<'_>,
    found: Found,
    unread: &Share,
) -> Result<(), SessionError> {
    reply.ending().insert_id = found.revision;
    entries(reply, found.entries.into_iter().map(|entry| (0, entry)).collect(), unread)
}

/// A row for each entry, with the number of the operation that found it.
fn entries(
    reply: &mut Reply<'_>,
    found: Vec<(u64, Entry)>,
    unread: &Share,
) -> Result<(), SessionError> {
    // Before the client hears of the result.
    let held = unread.hold(found.iter().map(|(_, entry)| entry.record.bytes()).sum());
    reply.columns(&[
        Column::unsigned("op"),
        Column::new("key", ColumnType::Binary { length: KEY_BYTES }),
        Column::new("value", ColumnType::Binary { length: VALUE_BYTES }),
        Column::unsigned("created"),
        Column::unsigned("modified"),
        Column::unsigned("version"),
    ])?;
    let mut found = found.into_iter();
    reply.source(move |row: &mut Row<'_>| {
        // Moved into the closure: the bytes count until the source is dropped.
        let _ = &held;
        let Some((operation, Entry { revision, record })) = found.next() else {
            return Ok(false);
        };
        row.uint(operation);
        row.text(&*record.key);
        row.text(record.value.as_deref().unwrap_or_default());
        row.uint(record.created);
        row.uint(revision.main);
        row.uint(record.version);
        Ok(true)
    });
    Ok(())
}

/// Writes the state of the store, and these notes about it.
pub(super) fn status(
    reply: &mut Reply<'_>,
    store: &Store,
    unread: &Unread,
    notes: &[(&'static str, String)],
) -> Result<(), SessionError> {
    let stats = store.stats();
    let lines = [
        ("revision", store.revision().to_string()),
        ("compacted", store.compacted().to_string()),
        ("keys", store.keys().to_string()),
        ("transactions", stats.transactions.to_string()),
        ("flushes", stats.flushes.to_string()),
        ("transactions per flush", format!("{:.1}", stats.per_flush())),
        ("failed flushes", stats.failed_flushes.to_string()),
        ("found in the index", stats.indexed.to_string()),
        ("read from the engine", stats.read.to_string()),
        ("unread bytes", unread.bytes().to_string()),
    ];
    reply.columns(&[
        Column::text("name", COLLATION, 4 * 64),
        Column::text("value", COLLATION, 4 * 64),
    ])?;
    for (name, value) in lines.iter().chain(notes) {
        reply.row(|row| {
            row.text(name);
            row.text(value);
        })?;
    }
    Ok(())
}
