//! [`Reply`]: an answer of the store, read to its end.

use std::sync::Arc;

use epoll_group::client::{Answer, Row, Summary};
use epoll_group::codec::value::Value;

use super::{Done, KvError};
use crate::record::{Record, Revision};
use crate::txn::{Entry, Found};

/// An answer of the store, read to its end: for callers that send an
/// [`Encoded`](crate::statement::Encoded) statement themselves.
#[derive(Debug)]
pub struct Reply {
    /// The rows: number of the operation, and what it found.
    found: Vec<(usize, Entry)>,
    summary: Summary,
}

impl Reply {
    /// Reads an answer. Waits for the part that has not come yet.
    ///
    /// # Errors
    ///
    /// The answer is no answer of the store, or its rest did not come.
    pub fn of(mut answer: Answer) -> Result<Self, KvError> {
        let mut found = Vec::new();
        while let Some(row) = answer.next_row()? {
            found.push(entry(&row)?);
        }
        Ok(Self { found, summary: answer.finish()? })
    }

    /// Returns the revision of a put.
    ///
    /// # Errors
    ///
    /// It is the answer to something else; likewise below.
    pub fn put(self) -> Result<u64, KvError> {
        self.summary.insert_id.ok_or(KvError::Malformed("a put without a revision"))
    }

    pub(super) fn affected(&self) -> u64 {
        self.summary.affected
    }

    pub(super) fn delete(self) -> Result<(u64, u64), KvError> {
        Ok((self.revision(), self.summary.affected))
    }

    /// Returns what a read found.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn read(self) -> Result<Found, KvError> {
        let revision = self.revision();
        Ok(Found { revision, entries: self.found.into_iter().map(|(_, entry)| entry).collect() })
    }

    /// Returns what a transaction did.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn txn(self) -> Result<Done, KvError> {
        let succeeded = match self.summary.info.as_slice() {
            // The server names no branch if there was no comparison.
            b"then" | b"" => true,
            b"else" => false,
            _ => return Err(KvError::Malformed("an unknown branch")),
        };
        let (revision, affected) = (self.revision(), self.summary.affected);
        Ok(Done { revision, succeeded, affected, found: self.found })
    }

    /// 0 is not sent.
    fn revision(&self) -> u64 {
        self.summary.insert_id.unwrap_or(0)
    }
}

fn entry(row: &Row<'_>) -> Result<(usize, Entry), KvError> {
    let operation = usize::try_from(number(row, 0)?);
    let operation = operation.map_err(|_| KvError::Malformed("an operation that was not asked"))?;
    let record = Record {
        key: bytes(row, 1)?.into(),
        value: Some(bytes(row, 2)?.into()),
        created: number(row, 3)?,
        version: number(row, 5)?,
    };
    let revision = Revision { main: number(row, 4)?, sub: 0 };
    Ok((operation, Entry { revision, record: Arc::new(record) }))
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, KvError> {
    match row.get(column)? {
        Value::Unsigned(number) => Ok(number),
        _ => Err(KvError::Malformed("a cell that is no number")),
    }
}

fn bytes<'a>(row: &Row<'a>, column: usize) -> Result<&'a [u8], KvError> {
    match row.get(column)? {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(KvError::Malformed("a cell that is no string")),
    }
}

/// The rows of an answer that has names and values.
pub(super) fn pairs(mut answer: Answer) -> Result<Vec<(String, String)>, KvError> {
    let mut pairs = Vec::new();
    while let Some(row) = answer.next_row()? {
        let text = |column| Ok::<_, KvError>(String::from_utf8_lossy(bytes(&row, column)?).into());
        pairs.push((text(0)?, text(1)?));
    }
    Ok(pairs)
}
