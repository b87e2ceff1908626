//! [`Index`]: which revisions a key has, in memory.
//!
//! ```text
//!  keys (ordered)      revisions, oldest first: transaction.write, times written
//!  ┌────────┐   ┌───────────┬───────────┬───────────┐
//!  │ "a"    │──▶│ 3.0   1x  │ 9.1   2x  │ 12.0   -  │  deleted by 12
//!  │ "b"    │──▶│ 9.0   1x  │           │           │
//!  └────────┘   └───────────┴───────────┴───────────┘
//!  newest that can be read: 12      compacted: 0
//! ```
//!
//! One read-write lock guards the whole index. A writer inserts a batch, and the number of its newest
//! transaction, under one write lock. So a reader sees all of a transaction or nothing, and all
//! transactions before it. Readers run concurrently. Under the read lock, a reader copies the revisions
//! that it needs and takes a snapshot of the engine. It reads the values without the lock. No value is
//! missing then, for two reasons. A revision is inserted after its data was written. And before its data
//! is removed, new readers of it are refused.
//!
//! In the designs that index first, see [`Design`], entries wait in here for their data.

pub(crate) mod compact;
mod entries;
#[cfg(all(test, feature = "model"))]
mod model;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use entries::Entries;

use crate::design::Design;
use crate::engine::Head;
use crate::error::StoreError;
use crate::record::{Key, Record, Revision};
use crate::shim::RwLock;
use crate::txn::KeyRange;

/// Index of the revisions of keys.
#[derive(Debug)]
pub struct Index {
    design: Design,
    tree: RwLock<Tree>,
}

#[derive(Debug)]
struct Tree {
    keys: BTreeMap<Key, Entries>,
    head: Head,
}

/// One revision of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRevision {
    /// When the key was written.
    pub revision: Revision,
    /// Number of the transaction that created the key; 0 for a deletion.
    pub created: u64,
    /// Number of writes since then; 0 for a deletion.
    pub version: u64,
    /// About how much memory its record takes.
    bytes: u32,
    /// True if its data is in the store. Only the designs that mark use it.
    available: bool,
}

/// Version and creation of the next write of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// The transaction that created the key; none if the next write does.
    pub created: Option<u64>,
    /// Number of writes with this one.
    pub version: u64,
}

/// Revisions that a reader found of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Newest revision that the reader may see.
    pub newest: KeyRevision,
    /// Revisions to try, newest first, if the data of `newest` is missing. Only the design that
    /// compensates has them.
    pub older: Vec<KeyRevision>,
}

/// Revisions that a reader found, and the snapshot of the engine that fits them.
#[derive(Debug)]
pub struct View<S> {
    /// The transaction up to which the reader sees all.
    pub revision: u64,
    /// In the order of keys.
    pub candidates: Vec<Candidate>,
    /// Has the data of all candidates, except with [`Design::Compensate`].
    pub snapshot: S,
}

impl Index {
    /// Returns an index without keys, for a store with this head.
    pub fn new(design: Design, head: Head) -> Self {
        Self { design, tree: RwLock::new(Tree { keys: BTreeMap::new(), head }) }
    }

    /// Inserts a revision of the engine while the store is opened. The revisions of a key come in
    /// order.
    pub fn recover(&self, revision: Revision, record: &Record) {
        self.write().insert(&record.key, KeyRevision::of(revision, record, true));
    }

    /// Order in which data and index are written.
    #[must_use]
    pub const fn design(&self) -> Design {
        self.design
    }

    /// Inserts revisions whose data is durable, and makes them visible up to `head`: all at once.
    pub fn insert_revisions(&self, records: &[(Revision, Arc<Record>)], head: Head) {
        let mut tree = self.write();
        match self.design {
            Design::Publish => tree.insert_all(records, true),
            Design::MarkAvailable => tree.mark(records, Entries::find_from_oldest),
            Design::MarkByHalving | Design::MarkPersisted => {
                tree.mark(records, Entries::find_by_halving);
            }
            Design::MarkByTraversal => tree.mark_by_traversal(records),
            Design::Compensate => {}
        }
        tree.head = head;
    }

    /// Inserts revisions whose data is not written yet, where the design is to index first.
    pub(crate) fn announce(&self, records: &[(Revision, Arc<Record>)]) {
        if self.design.indexes_first() {
            self.write().insert_all(records, false);
        }
    }

    /// Takes out revisions that were announced and could not be written.
    pub(crate) fn withdraw(&self, records: &[(Revision, Arc<Record>)]) {
        if self.design.indexes_first() {
            let mut tree = self.write();
            for (revision, record) in records {
                tree.remove(&record.key, *revision);
            }
        }
    }

    /// The newest revision of a key, a deletion as well.
    #[must_use]
    pub fn newest(&self, key: &[u8]) -> Option<KeyRevision> {
        self.read().keys.get(key).and_then(Entries::newest)
    }

    /// Finds the keys of a range that are there at a revision, or at the newest one, and takes a
    /// snapshot of the engine in which their data is. `snapshot` is called under the read lock.
    ///
    /// # Errors
    ///
    /// The revision was compacted or is in the future, or those of `snapshot`.
    pub fn view<S>(
        &self,
        range: &KeyRange,
        at: Option<u64>,
        limit: usize,
        snapshot: impl FnOnce() -> Result<S, StoreError>,
    ) -> Result<View<S>, StoreError> {
        let tree = self.read();
        let head = tree.head;
        match at {
            Some(asked) if asked < head.compacted => {
                return Err(StoreError::Compacted { asked, compacted: head.compacted });
            }
            Some(asked) if asked > head.revision => {
                return Err(StoreError::Future { asked, newest: head.revision });
            }
            _ => {}
        }
        let visible = at.unwrap_or(head.revision);
        let mut candidates = Vec::new();
        let mut certain = 0;
        tree.visit(range, |_, entries| {
            if limit == 0 {
                return false;
            }
            let found = match self.design {
                Design::Publish => entries.at(visible),
                Design::Compensate => {
                    let found = entries.down_from(at.unwrap_or(u64::MAX), visible);
                    // A revision that waits for its data may turn out to be a deletion.
                    certain += usize::from(found.as_ref().is_some_and(|found| {
                        found.newest.revision.main <= visible && !found.newest.is_deletion()
                    }));
                    candidates.extend(found);
                    return certain < limit;
                }
                _ => entries.available_at(visible),
            };
            candidates.extend(found.filter(|found| !found.is_deletion()).map(Candidate::from));
            candidates.len() < limit
        });
        Ok(View { revision: visible, candidates, snapshot: snapshot()? })
    }

    /// The keys of a range whose newest revision is no deletion. Revisions that wait for their data
    /// count, too.
    pub(crate) fn live(&self, range: &KeyRange, limit: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        self.read().visit(range, |key, entries| {
            let is_there = entries.newest().is_some_and(|newest| !newest.is_deletion());
            keys.extend(is_there.then(|| Key::clone(key)));
            keys.len() < limit
        });
        keys
    }

    /// Returns the head of the store for readers.
    #[must_use]
    pub fn head(&self) -> Head {
        self.read().head
    }

    /// Returns the number of keys, with those that were deleted and not compacted yet.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.read().keys.len()
    }

    /// All revisions that can be read, in no order, with a snapshot that was taken at the same time.
    pub(crate) fn revisions<S>(&self, snapshot: impl FnOnce() -> S) -> (Head, Vec<Revision>, S) {
        let tree = self.read();
        let all = tree.keys.values().flat_map(Entries::iter).map(|entry| entry.revision);
        let revisions = all.filter(|revision| revision.main <= tree.head.revision).collect();
        (tree.head, revisions, snapshot())
    }

    fn read(&self) -> impl std::ops::Deref<Target = Tree> + '_ {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> impl std::ops::DerefMut<Target = Tree> + '_ {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    fn insert(&mut self, key: &Key, entry: KeyRevision) {
        if let Some(entries) = self.keys.get_mut(key) {
            entries.push(entry);
        } else {
            self.keys.insert(Arc::clone(key), Entries::from(entry));
        }
    }

    fn insert_all(&mut self, records: &[(Revision, Arc<Record>)], available: bool) {
        for (revision, record) in records {
            self.insert(&record.key, KeyRevision::of(*revision, record, available));
        }
    }

    fn mark(
        &mut self,
        records: &[(Revision, Arc<Record>)],
        find: impl Fn(&Entries, Revision) -> Option<usize>,
    ) {
        for (revision, record) in records {
            let Some(entries) = self.keys.get_mut(&record.key) else { continue };
            if let Some(at) = find(entries, *revision) {
                entries.get_mut(at).available = true;
            }
        }
    }

    fn mark_by_traversal(&mut self, records: &[(Revision, Arc<Record>)]) {
        for (revision, _) in records {
            let mut all = self.keys.values_mut().flat_map(Entries::iter_mut);
            if let Some(entry) = all.find(|entry| entry.revision == *revision) {
                entry.available = true;
            }
        }
    }

    fn remove(&mut self, key: &Key, revision: Revision) {
        let Some(entries) = self.keys.get_mut(key) else { return };
        entries.remove(revision);
        if entries.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Shows the entries of the keys in a range, in their order, until `visit` says that it is enough.
    fn visit<'a>(&'a self, range: &KeyRange, mut visit: impl FnMut(&'a Key, &'a Entries) -> bool) {
        match range {
            KeyRange::One(key) => {
                if let Some((key, entries)) = self.keys.get_key_value(key) {
                    visit(key, entries);
                }
            }
            KeyRange::Span(from, Some(to)) if from >= to => {}
            KeyRange::Span(from, to) => {
                let end = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let from = Bound::Included(&**from);
                for (key, entries) in self.keys.range::<[u8], _>((from, end)) {
                    if !visit(key, entries) {
                        break;
                    }
                }
            }
        }
    }
}

impl KeyRevision {
    pub(crate) fn of(revision: Revision, record: &Record, available: bool) -> Self {
        let &Record { created, version, .. } = record;
        let bytes = u32::try_from(record.bytes()).unwrap_or(u32::MAX);
        Self { revision, created, version, bytes, available }
    }

    /// Returns true if this revision deletes the key.
    #[must_use]
    pub const fn is_deletion(&self) -> bool {
        self.version == 0
    }
}

impl From<KeyRevision> for Candidate {
    fn from(newest: KeyRevision) -> Self {
        Self { newest, older: Vec::new() }
    }
}

impl Registration {
    /// Returns what follows the newest revision of a key.
    pub(crate) fn after(newest: Option<KeyRevision>) -> Self {
        match newest {
            Some(newest) if !newest.is_deletion() => {
                Self { created: Some(newest.created), version: newest.version + 1 }
            }
            _ => Self { created: None, version: 1 },
        }
    }
}
