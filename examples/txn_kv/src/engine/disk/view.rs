//! [`View`]: the database as of one commit, and how its head is kept.

use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, WriteTransaction};

use super::{HEAD, Key, REVISIONS, format};
use crate::engine::{EngineError, Head};

/// The database as of one commit. As long as it lives, the pages that it shows are not written.
pub(super) struct View {
    pub(super) head: Head,
    pub(super) revisions: ReadOnlyTable<Key, &'static [u8]>,
}

impl View {
    /// Opens the view of the last commit, which has brought this head.
    pub(super) fn at(database: &Database, head: Head) -> Result<Self, redb::Error> {
        let revisions = database.begin_read()?.open_table(REVISIONS)?;
        Ok(Self { head, revisions })
    }

    /// Opens the view of the last commit.
    pub(super) fn open(database: &Database) -> Result<Self, EngineError> {
        let failed = |error: redb::Error| EngineError::new("open the database", error);
        let (stored, revisions) = read_tables(database).map_err(failed)?;
        let stored = format::decode_head(&stored)
            .map_err(|error| EngineError::new("read the head", error))?;
        let head = told(stored, &revisions).map_err(failed)?;
        Ok(Self { head, revisions })
    }
}

/// Makes the tables of a new database.
pub(super) fn create_tables(database: &Database) -> Result<(), redb::Error> {
    let there = database.begin_read()?.list_tables()?.next().is_some();
    if there {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    transaction.open_table(REVISIONS)?;
    transaction.open_table(HEAD)?.insert((), &format::encode_head(Head::default())[..])?;
    transaction.commit()?;
    Ok(())
}

/// Writes the head, unless the revisions tell it.
pub(super) fn write_head(
    transaction: &WriteTransaction,
    revisions: &Table<'_, Key, &'static [u8]>,
    head: Head,
) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(HEAD)?;
    let stored = table.get(())?.and_then(|bytes| format::decode_head(bytes.value()).ok());
    let known = match stored {
        Some(stored) => told(stored, revisions)? == head,
        None => false,
    };
    if !known {
        table.insert((), &format::encode_head(head)[..])?;
    }
    Ok(())
}

type Tables = (Vec<u8>, ReadOnlyTable<Key, &'static [u8]>);

fn read_tables(database: &Database) -> Result<Tables, redb::Error> {
    let transaction = database.begin_read()?;
    let stored = transaction.open_table(HEAD)?.get(())?.map(|bytes| bytes.value().to_vec());
    Ok((stored.unwrap_or_default(), transaction.open_table(REVISIONS)?))
}

/// Returns the head. Its revision is that of the newest record, or the stored one if that record
/// was removed.
fn told(
    stored: Head,
    revisions: &impl ReadableTable<Key, &'static [u8]>,
) -> Result<Head, redb::Error> {
    let newest = revisions.last()?.map_or(0, |(key, _)| key.value().0);
    Ok(Head { revision: stored.revision.max(newest), ..stored })
}
