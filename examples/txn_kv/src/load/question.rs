//! [`Shape`]: the requests of a load, and the check of their answers.

use fastrand::Rng;

use super::keys::Keys;
use super::values;
use super::workload::Workload;
use crate::client::Done;
use crate::statement::Encoded;
use crate::txn::{Found, KeyRange, Op, Txn};

/// Keys and values of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The keys.
    pub keys: Keys,
    /// Length of a value.
    pub value_bytes: usize,
    /// Seed of the random keys and values.
    pub seed: u64,
}

/// One request.
#[derive(Debug)]
pub(super) enum Question {
    /// Puts, in one transaction.
    Write(Txn),
    Read(Read),
}

/// A read of keys in a row, all of which are there.
#[derive(Clone, Debug)]
pub(super) struct Read {
    range: KeyRange,
    limit: usize,
    first: u64,
    count: u64,
}

impl Question {
    /// Returns the text and the arguments of the request.
    pub(super) fn encoded(&self) -> Encoded {
        match self {
            Self::Write(txn) => Encoded::txn(txn),
            Self::Read(read) => Encoded::read(&read.range, read.limit, None),
        }
    }
}

impl Shape {
    /// # Errors
    ///
    /// Values have no room for their key.
    pub(super) fn check(&self) -> Result<(), String> {
        let least = values::least_bytes(self.keys.bytes());
        if self.value_bytes < least {
            return Err(format!("values need {least} bytes at least, not {}", self.value_bytes));
        }
        Ok(())
    }

    /// Returns the transaction with this number: one put to a random key. It is the same for the same
    /// seed.
    #[must_use]
    pub fn put(&self, number: u64) -> Txn {
        self.puts(number, self.random(number).u64(..self.keys.count()), 1)
    }

    /// Returns so many puts to keys in a row, from `first` on. Other numbers write other values.
    #[must_use]
    pub fn puts(&self, number: u64, first: u64, operations: u64) -> Txn {
        let mut random = self.random(!number);
        let put = |operation| {
            let key = self.keys.key(first + operation);
            let value = values::make(&key, &mut random, self.value_bytes);
            Op::Put { key, value }
        };
        Txn { then: (0..operations).map(put).collect(), ..Txn::default() }
    }

    /// Returns the request with this number; the same for the same seed.
    pub(super) fn question(&self, workload: Workload, number: u64) -> Question {
        let mut random = self.random(number);
        let first = random.u64(..self.keys.count());
        let write = |first, operations| Question::Write(self.puts(number, first, operations));
        match workload {
            Workload::Put { operations } => write(first, operations),
            Workload::Get => self.read(first, 1),
            Workload::Range { limit } => self.read(first, limit),
            Workload::Mixed { reads_per_100 } if random.u64(..100) < reads_per_100 => {
                self.read(first, 1)
            }
            Workload::Mixed { .. } => write(first, 1),
            Workload::Fill { operations } => {
                let first = number * operations;
                write(first, operations.min(self.keys.count() - first))
            }
        }
    }

    fn random(&self, number: u64) -> Rng {
        Rng::with_seed(self.seed.rotate_left(32) ^ number)
    }

    fn read(&self, first: u64, limit: u64) -> Question {
        let (range, count) = self.keys.span(first, limit);
        Question::Read(Read { range, limit: limit as usize, first, count })
    }

    /// Checks what a read found, for a client that has seen revision `newest`.
    pub(super) fn check_found(
        &self,
        read: &Read,
        found: &Found,
        newest: u64,
    ) -> Result<(), String> {
        let Found { revision, entries } = found;
        if *revision < newest {
            return Err(format!("a read at revision {revision} after revision {newest} was seen"));
        }
        if entries.len() as u64 != read.count {
            let (is, should) = (entries.len(), read.count);
            return Err(format!("{is} of {should} keys from {:?} on", read.range));
        }
        for (number, entry) in (read.first..).zip(entries) {
            let (key, record) = (self.keys.key(number), &entry.record);
            if record.key != key {
                let (is, should) = (record.key.escape_ascii(), key.escape_ascii());
                return Err(format!("key {is} in place of {should}"));
            }
            if entry.revision.main > *revision || record.created > entry.revision.main {
                let (key, written) = (key.escape_ascii(), entry.revision);
                let created = record.created;
                return Err(format!(
                    "key {key} was created at {created} and written at {written}, read at {revision}"
                ));
            }
            values::check(&key, record.value.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Checks that so many puts were done, for a client that has seen revision `newest`.
pub(super) fn check_written(done: &Done, operations: u64, newest: u64) -> Result<(), String> {
    let Done { revision, succeeded, affected, found, .. } = done;
    if !succeeded || *affected != operations || !found.is_empty() {
        return Err(format!("{affected} of {operations} keys written: {done:?}"));
    }
    if *revision <= newest {
        return Err(format!("a put has revision {revision} after revision {newest} was seen"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
