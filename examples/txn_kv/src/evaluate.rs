//! [`Evaluation`]: computes the writes and results of a transaction before it has a revision.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crate::engine::{Engine, Snapshot};
use crate::error::StoreError;
use crate::index::{Index, KeyRevision, Registration};
use crate::record::{Key, Record, Revision};
use crate::rows::{Held, Staged};
use crate::store::Limits;
use crate::txn::{Compare, Entry, KeyRange, Op, OpResult, Outcome, Target, Txn};

/// Evaluation of a transaction that holds its rows. It sees the state after all transactions
/// before: of each row the staged write, or else the newest revision in the index.
pub(crate) struct Evaluation<'a> {
    engine: &'a dyn Engine,
    index: &'a Index,
    limits: &'a Limits,
    held: &'a Held<'a>,
    writes: Vec<Write>,
    /// Index of each key in `writes`.
    written: BTreeMap<Key, usize>,
    found_bytes: usize,
    /// Number of deleted keys.
    deleted: usize,
}

/// Writes and results of a transaction.
#[derive(Debug)]
pub(crate) struct Evaluated {
    pub(crate) writes: Vec<Write>,
    succeeded: bool,
    results: Vec<Done>,
    /// Bytes that it has found.
    pub(crate) found_bytes: usize,
}

/// A write that will have a revision.
#[derive(Debug)]
pub(crate) struct Write {
    key: Key,
    /// None deletes.
    value: Option<Box<[u8]>>,
    registration: Registration,
}

/// Result of one operation.
#[derive(Debug)]
enum Done {
    Put,
    Deleted(u64),
    Found(Vec<Seen>),
}

#[derive(Debug)]
enum Seen {
    Earlier(Entry),
    /// A write of the transaction itself.
    Own(usize),
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(
        engine: &'a dyn Engine,
        index: &'a Index,
        limits: &'a Limits,
        held: &'a Held<'a>,
    ) -> Self {
        let (writes, written) = (Vec::new(), BTreeMap::new());
        Self { engine, index, limits, held, writes, written, found_bytes: 0, deleted: 0 }
    }

    pub(crate) fn run(mut self, txn: Txn) -> Result<Evaluated, StoreError> {
        let mut succeeded = true;
        for compare in &txn.compares {
            succeeded &= self.holds(compare)?;
        }
        let branch = if succeeded { txn.then } else { txn.otherwise };
        let results = branch.into_iter().map(|op| self.run_op(op)).collect::<Result<_, _>>()?;
        let Self { writes, found_bytes, .. } = self;
        Ok(Evaluated { writes, succeeded, results, found_bytes })
    }

    fn holds(&self, compare: &Compare) -> Result<bool, StoreError> {
        let own = self.newest(&compare.key).filter(|newest| !newest.is_deletion());
        holds(compare, own, || self.entry(&compare.key))
    }

    fn run_op(&mut self, op: Op) -> Result<Done, StoreError> {
        match op {
            Op::Put { key, value } => {
                let registration = Registration::after(self.newest(&key));
                self.write(key, Some(value), registration)?;
                Ok(Done::Put)
            }
            Op::Delete(range) => {
                let keys = self.deletable(range);
                self.limits.count_deleted(&mut self.deleted, keys.len())?;
                let deleted = keys.len() as u64;
                for key in keys {
                    self.write(key, None, Registration::default())?;
                }
                Ok(Done::Deleted(deleted))
            }
            Op::Get { range, limit } => {
                Ok(Done::Found(self.find(&range, limit.min(self.limits.found))?))
            }
        }
    }

    fn write(
        &mut self,
        key: Key,
        value: Option<Box<[u8]>>,
        registration: Registration,
    ) -> Result<(), StoreError> {
        if self.written.insert(Key::clone(&key), self.writes.len()).is_some() {
            return Err(StoreError::WrittenTwice { key: key.to_vec() });
        }
        self.writes.push(Write { key, value, registration });
        Ok(())
    }

    /// The newest revision of a row, a deletion as well.
    fn newest(&self, key: &[u8]) -> Option<KeyRevision> {
        match self.held.staged(key) {
            Some(staged) => Some(staged.key_revision()),
            None => self.index.newest(key),
        }
    }

    /// The newest write of a row, if the key is there.
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        if let Some(staged) = self.held.staged(key) {
            return Ok(staged.entry());
        }
        // While the row is held, no compaction removes it: it stays the newest.
        match self.index.newest(key) {
            Some(newest) if !newest.is_deletion() => self.load(newest.revision).map(Some),
            _ => Ok(None),
        }
    }

    /// The keys of a range that are there, at most one more than a transaction may delete.
    fn deletable(&self, range: KeyRange) -> Vec<Key> {
        match range {
            KeyRange::One(key) if self.written.contains_key(&key) => vec![key],
            KeyRange::One(key) => {
                let newest = self.newest(&key).filter(|newest| !newest.is_deletion());
                newest.map(|_| key).into_iter().collect()
            }
            KeyRange::Span(..) => self.deletable_in(&range, self.limits.found.saturating_add(1)),
        }
    }

    /// The keys of a span that are there, at most `limit`. A deletion reads no values. All rows are
    /// held.
    fn deletable_in(&self, range: &KeyRange, limit: usize) -> Vec<Key> {
        let staged: Vec<_> = self.held.staged_in(range).collect();
        // Each key that was staged or written here hides one of the index at most.
        let enough = limit.saturating_add(staged.len() + self.written.len());
        let mut keys: BTreeSet<_> = self.index.live(range, enough).into_iter().collect();
        let written = self.written.iter().filter(|(key, _)| range.contains(key));
        let staged = staged.iter().map(|staged| (&staged.record.key, &staged.record.value));
        let later = staged.chain(written.map(|(key, at)| (key, &self.writes[*at].value)));
        for (key, value) in later {
            if value.is_some() {
                keys.insert(Key::clone(key));
            } else {
                keys.remove(key);
            }
        }
        keys.into_iter().take(limit).collect()
    }

    /// Finds the keys of a range in order, with the earlier writes of this transaction.
    fn find(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<Seen>, StoreError> {
        let later = self.later(range);
        let mut found = Vec::new();
        match range {
            _ if limit == 0 => {}
            KeyRange::One(key) if later.is_empty() => {
                if let Some(entry) = self.entry(key)? {
                    self.show(Seen::Earlier(entry), &mut found)?;
                }
            }
            KeyRange::One(_) => self.show_all(later.into_values(), limit, &mut found)?,
            KeyRange::Span(..) => self.merge(range, later, limit, &mut found)?,
        }
        Ok(found)
    }

    /// The writes to a range that are not visible yet: those of this transaction, or else the
    /// staged ones. `None` if the key was deleted. The rows are held.
    fn later(&self, range: &KeyRange) -> BTreeMap<Key, Option<Seen>> {
        let staged: Vec<_> = match range {
            KeyRange::One(key) => self.held.staged(key).into_iter().collect(),
            KeyRange::Span(..) => self.held.staged_in(range).collect(),
        };
        let staged = staged
            .into_iter()
            .map(|staged| (Key::clone(&staged.record.key), staged.entry().map(Seen::Earlier)));
        let written = self.written.iter().filter(|(key, _)| range.contains(key));
        let written = written.map(|(key, at)| {
            let is_there = self.writes[*at].value.is_some();
            (Key::clone(key), is_there.then_some(Seen::Own(*at)))
        });
        staged.chain(written).collect()
    }

    /// Finds the keys of a range in the index and among the later writes. A later write hides the
    /// revision in the index. All rows are held.
    fn merge(
        &mut self,
        range: &KeyRange,
        mut later: BTreeMap<Key, Option<Seen>>,
        limit: usize,
        found: &mut Vec<Seen>,
    ) -> Result<(), StoreError> {
        let waiting: HashSet<_> =
            self.held.staged_in(range).map(|staged| staged.revision).collect();
        // Each later write hides one of the index at most.
        let enough = limit.saturating_add(later.len());
        let view = self
            .index
            .view(range, None, enough, || self.engine.snapshot().map_err(StoreError::Read))?;
        for candidate in view.candidates {
            if found.len() >= limit {
                return Ok(());
            }
            if waiting.contains(&candidate.newest.revision) {
                continue;
            }
            let entry = read(&*view.snapshot, candidate.newest.revision)?;
            let rest = later.split_off(&entry.record.key);
            let before = std::mem::replace(&mut later, rest);
            self.show_all(before.into_values(), limit, found)?;
            let is_hidden = later.contains_key(&entry.record.key) || entry.record.value.is_none();
            if !is_hidden && found.len() < limit {
                self.show(Seen::Earlier(entry), found)?;
            }
        }
        self.show_all(later.into_values(), limit, found)
    }

    fn show_all(
        &mut self,
        seen: impl Iterator<Item = Option<Seen>>,
        limit: usize,
        found: &mut Vec<Seen>,
    ) -> Result<(), StoreError> {
        let room = limit.saturating_sub(found.len());
        seen.flatten().take(room).try_for_each(|seen| self.show(seen, found))
    }

    /// Adds an entry to `found` and counts its bytes.
    fn show(&mut self, seen: Seen, found: &mut Vec<Seen>) -> Result<(), StoreError> {
        let bytes = match &seen {
            Seen::Earlier(entry) => entry.record.bytes(),
            Seen::Own(at) => self.writes[*at].bytes(),
        };
        self.limits.count_found(&mut self.found_bytes, bytes)?;
        found.push(seen);
        Ok(())
    }

    /// Reads a record and drops the snapshot before the index is used again. A reader of the index
    /// waits for a snapshot while it has the lock of the index, so that a holder of a snapshot must
    /// not wait for this lock.
    fn load(&self, revision: Revision) -> Result<Entry, StoreError> {
        let snapshot = self.engine.snapshot().map_err(StoreError::Read)?;
        read(&*snapshot, revision)
    }
}

/// True if the comparison holds. `own` is the newest revision of the key unless that is a deletion, and
/// `entry` reads it.
pub(crate) fn holds(
    compare: &Compare,
    own: Option<KeyRevision>,
    entry: impl FnOnce() -> Result<Option<Entry>, StoreError>,
) -> Result<bool, StoreError> {
    let relation = compare.relation;
    let (own, other) = match &compare.target {
        Target::Value(other) => {
            return Ok(entry()?.is_some_and(|entry| {
                relation.holds(entry.record.value.as_deref().unwrap_or_default(), other)
            }));
        }
        Target::Version(other) => (own.map(|own| own.version), other),
        Target::Created(other) => (own.map(|own| own.created), other),
        Target::Modified(other) => (own.map(|own| own.revision.main), other),
    };
    Ok(relation.holds(&own.unwrap_or(0), other))
}

/// The record that the index names.
pub(crate) fn read(snapshot: &dyn Snapshot, revision: Revision) -> Result<Entry, StoreError> {
    let record = snapshot.get(revision).map_err(StoreError::Read)?;
    let record = record.ok_or(StoreError::Lost(revision))?;
    Ok(Entry { revision, record })
}

impl Evaluated {
    /// The records, and the outcome, of a transaction that has this number.
    pub(crate) fn numbered(self, main: u64) -> (Vec<(Revision, Arc<Record>)>, Outcome) {
        let records = (0..)
            .zip(self.writes)
            .map(|(sub, write)| (Revision { main, sub }, Arc::new(write.into_record(main))));
        let records: Vec<_> = records.collect();
        let results = self.results.into_iter().map(|done| match done {
            Done::Put => OpResult::Put,
            Done::Deleted(keys) => OpResult::Deleted(keys),
            Done::Found(seen) => OpResult::Found(
                seen.into_iter()
                    .map(|seen| match seen {
                        Seen::Earlier(entry) => entry,
                        Seen::Own(at) => {
                            let (revision, record) = &records[at];
                            Entry { revision: *revision, record: Arc::clone(record) }
                        }
                    })
                    .collect(),
            ),
        });
        let results = results.collect();
        (records, Outcome { revision: main, succeeded: self.succeeded, results })
    }
}

impl Write {
    /// Bytes of its record.
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |value| value.len()) + size_of::<Record>()
    }

    fn into_record(self, main: u64) -> Record {
        let Registration { created, version } = self.registration;
        let created = if self.value.is_some() { created.unwrap_or(main) } else { 0 };
        Record { key: self.key, created, version, value: self.value }
    }
}

impl Staged {
    fn key_revision(&self) -> KeyRevision {
        KeyRevision::of(self.revision, &self.record, true)
    }

    /// None if it is a deletion.
    fn entry(&self) -> Option<Entry> {
        let Self { revision, record } = self;
        record.value.is_some().then(|| Entry { revision: *revision, record: Arc::clone(record) })
    }
}
