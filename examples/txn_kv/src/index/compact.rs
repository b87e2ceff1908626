//! Forgetting old revisions.

use std::ops::Bound;

use super::Index;
use crate::record::{Key, Revision};

/// Revisions that are not in the index any more and can be removed from the store.
#[derive(Debug, Default)]
pub struct Compacted {
    /// Revisions of a key, the oldest first.
    pub removed: Vec<Removed>,
    /// The key to go on behind; none at the end.
    pub next: Option<Key>,
}

/// A revision that was taken out of the index.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// When its key was written.
    pub revision: Revision,
    /// About how much memory its record takes.
    pub bytes: u32,
}

impl Index {
    /// Takes out what no reader at this transaction, or a later one, sees: of `most` keys behind a key, or
    /// fewer keys if so many revisions come together, so that others get the lock between two calls.
    /// Readers at an earlier transaction must have been refused before.
    #[must_use]
    pub fn compact(&self, behind: Option<&Key>, at: u64, most: usize) -> Compacted {
        let mut compacted = Compacted::default();
        let from = behind.map_or(Bound::Unbounded, |key| Bound::Excluded(&**key));
        let mut empty = Vec::new();
        let mut tree = self.write();
        let mut left = tree.keys.range_mut::<[u8], _>((from, Bound::Unbounded));
        for (key, entries) in left.by_ref().take(most) {
            entries.compact(at, &mut compacted.removed);
            if entries.is_empty() {
                empty.push(Key::clone(key));
            }
            compacted.next = Some(Key::clone(key));
            if compacted.removed.len() >= most {
                break;
            }
        }
        if left.next().is_none() {
            compacted.next = None;
        }
        for key in empty {
            tree.keys.remove(&key);
        }
        compacted
    }
}
