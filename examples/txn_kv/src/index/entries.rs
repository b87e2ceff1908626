//! The revisions of one key.

use std::collections::VecDeque;

use super::compact::Removed;
use super::{Candidate, KeyRevision};
use crate::record::Revision;

/// The revisions of one key, oldest first; seldom empty. A queue, because a compaction takes the oldest
/// ones out by parts.
#[derive(Debug, Default)]
pub(super) struct Entries(VecDeque<KeyRevision>);

impl Entries {
    pub(super) fn iter(&self) -> impl Iterator<Item = &KeyRevision> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut KeyRevision> {
        self.0.iter_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, entry: KeyRevision) {
        debug_assert!(self.newest().is_none_or(|newest| newest.revision < entry.revision));
        self.0.push_back(entry);
    }

    pub(super) fn newest(&self) -> Option<KeyRevision> {
        self.0.back().copied()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut KeyRevision {
        &mut self.0[at]
    }

    /// Returns the number of revisions of transactions up to this one.
    fn up_to(&self, main: u64) -> usize {
        // Most readers want the newest.
        match self.0.back() {
            Some(newest) if newest.revision.main <= main => self.0.len(),
            _ => self.0.partition_point(|entry| entry.revision.main <= main),
        }
    }

    /// The newest of the first `count`.
    fn before(&self, count: usize) -> Option<KeyRevision> {
        count.checked_sub(1).map(|newest| self.0[newest])
    }

    /// The newest up to this transaction.
    pub(super) fn at(&self, main: u64) -> Option<KeyRevision> {
        self.before(self.up_to(main))
    }

    /// The newest up to this transaction whose data is there.
    pub(super) fn available_at(&self, main: u64) -> Option<KeyRevision> {
        self.0.range(..self.up_to(main)).rfind(|entry| entry.available).copied()
    }

    /// The newest revision up to transaction `from`, and the older ones, down to the newest up to
    /// transaction `to`.
    pub(super) fn down_from(&self, from: u64, to: u64) -> Option<Candidate> {
        let mut before = self.0.range(..self.up_to(from)).rev();
        let mut last = before.next()?;
        let mut candidate = Candidate::from(*last);
        for entry in before {
            if last.revision.main <= to {
                break;
            }
            candidate.older.push(*entry);
            last = entry;
        }
        Some(candidate)
    }

    /// Finds a revision by looking at one after the other.
    pub(super) fn find_from_oldest(&self, revision: Revision) -> Option<usize> {
        self.0.iter().position(|entry| entry.revision == revision)
    }

    pub(super) fn find_by_halving(&self, revision: Revision) -> Option<usize> {
        self.0.binary_search_by_key(&revision, |entry| entry.revision).ok()
    }

    pub(super) fn remove(&mut self, revision: Revision) {
        if let Some(at) = self.find_by_halving(revision) {
            self.0.remove(at);
        }
    }

    /// Takes out what a reader at this transaction, or a later one, does not see, the oldest first, until
    /// `most` are taken out.
    pub(super) fn compact(&mut self, main: u64, most: usize, removed: &mut Vec<Removed>) {
        let visible = self.up_to(main);
        let Some(newest) = self.before(visible) else { return };
        let gone = if newest.is_deletion() { visible } else { visible - 1 };
        let gone = self.0.drain(..gone.min(most.saturating_sub(removed.len())));
        removed.extend(gone.map(|KeyRevision { revision, bytes, .. }| Removed { revision, bytes }));
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
    }
}

impl From<KeyRevision> for Entries {
    fn from(entry: KeyRevision) -> Self {
        Self(VecDeque::from([entry]))
    }
}
