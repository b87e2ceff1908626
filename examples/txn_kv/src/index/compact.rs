//! Forgetting old revisions.

use std::ops::Bound;

use super::Index;
use crate::record::{Key, Revision};

/// Revisions that are not in the index any more and can be removed from the store.
#[derive(Debug)]
pub struct Compacted {
    /// Revisions in the order of keys, those of one key the oldest first.
    pub removed: Vec<Removed>,
    /// The key to go on from; none at the end.
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
    /// Takes out what no reader at this transaction, or a later one, sees. It looks at `most` keys from a
    /// key on, and takes out `most` revisions, so that others get the lock between two calls. Readers at
    /// an earlier transaction must have been refused before.
    #[must_use]
    pub fn compact(&self, from: Option<&Key>, at: u64, most: usize) -> Compacted {
        let (mut removed, mut next) = (Vec::new(), None);
        let from = from.map_or(Bound::Unbounded, |key| Bound::Included(&**key));
        let mut empty = Vec::new();
        let mut tree = self.write();
        let left = tree.keys.range_mut::<[u8], _>((from, Bound::Unbounded));
        for (looked_at, (key, entries)) in left.enumerate() {
            if looked_at < most {
                entries.compact(at, most, &mut removed);
            }
            if entries.is_empty() {
                empty.push(Key::clone(key));
            }
            // A key may have more revisions than one call takes out.
            if looked_at == most || removed.len() >= most {
                next = Some(Key::clone(key));
                break;
            }
        }
        for key in empty {
            tree.keys.remove(&key);
        }
        Compacted { removed, next }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::design::Design;
    use crate::engine::Head;
    use crate::record::Record;

    /// Keys "a" and "c" have five revisions each. "b" has five and is then deleted.
    #[test]
    fn each_call_takes_out_a_part_and_all_calls_take_out_all() {
        for most in 1..8 {
            let head = Head { revision: 6, compacted: 6 };
            let index = Index::new(Design::Publish, head);
            for (sub, key) in (0..).zip(["a", "b", "c"]) {
                for main in 1..=if key == "b" { 6 } else { 5 } {
                    let value = (main < 6).then(Box::default);
                    let version = main % 6;
                    let record = Record { key: key.as_bytes().into(), created: 1, version, value };
                    index.recover(Revision { main, sub }, &record);
                }
            }
            let (mut all, mut from) = (Vec::new(), None);
            loop {
                let Compacted { removed, next } = index.compact(from.as_ref(), 6, most);
                assert!(removed.len() <= most);
                all.extend(removed.iter().map(|removed| removed.revision));
                from = next;
                if from.is_none() {
                    break;
                }
            }
            let taken = (0..3).zip([4, 6, 4]);
            let taken =
                taken.flat_map(|(sub, last)| (1..=last).map(move |main| Revision { main, sub }));
            assert_eq!(all, taken.collect::<Vec<_>>(), "{most} at once");
            assert_eq!(index.keys(), 2);
        }
    }
}
