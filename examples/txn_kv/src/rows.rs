//! Row locks, and under them what was written to the rows and is not visible yet.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, MutexGuard, PoisonError};

use epoll_group::sync::Mutex;

use crate::record::{Key, Record, Revision};
use crate::txn::KeyRange;

/// Locks for rows. Rows whose keys have the same hash modulo [`STRIPES`] share a lock.
///
/// A transaction holds its rows while it compares and registers its revisions, and lets go before the
/// flush. The next one sees what it staged, and is not answered before that is durable. So a row does
/// not cost a flush for each of its transactions. Waiting for a row is an announced stall: the thread
/// that holds it may be reading the disk.
#[derive(Debug)]
pub(crate) struct Rows {
    stripes: Box<[Mutex<Stripe>]>,
    hasher: RandomState,
}

/// The newest write of each row that is not visible yet.
type Stripe = HashMap<Key, Staged>;

/// A write that waits for its flush, or is being flushed.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) revision: Revision,
    pub(crate) record: Arc<Record>,
}

/// Rows that a transaction holds alone.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    rows: &'a Rows,
    /// In the order of stripes.
    stripes: Vec<(usize, MutexGuard<'a, Stripe>)>,
}

/// Few enough to be taken all, for ranges; many enough for 200 clients to seldom meet by chance.
const STRIPES: usize = 256;

impl Rows {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Self { stripes, hasher: RandomState::new() }
    }

    /// Takes the rows of these keys. All callers take them in the same order.
    pub(crate) fn hold(&self, keys: &[&[u8]]) -> Held<'_> {
        let mut places: Vec<_> = keys.iter().map(|key| self.place(key)).collect();
        places.sort_unstable();
        places.dedup();
        self.take(places.into_iter())
    }

    /// Takes all rows.
    pub(crate) fn hold_all(&self) -> Held<'_> {
        self.take(0..STRIPES)
    }

    fn take(&self, places: impl Iterator<Item = usize>) -> Held<'_> {
        let stripes = places.map(|place| (place, self.stripe(place))).collect();
        Held { rows: self, stripes }
    }

    /// Forgets writes that are visible now.
    pub(crate) fn published(&self, records: &[(Revision, Arc<Record>)]) {
        for (revision, record) in records {
            let mut stripe = self.stripe(self.place(&record.key));
            // A later transaction may have written it again.
            if stripe.get(&record.key).is_some_and(|staged| staged.revision == *revision) {
                stripe.remove(&record.key);
            }
        }
    }

    fn place(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % STRIPES
    }

    fn stripe(&self, place: usize) -> MutexGuard<'_, Stripe> {
        self.stripes[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held<'_> {
    /// Returns the last write to a row if it is not visible yet.
    pub(crate) fn staged(&self, key: &[u8]) -> Option<&Staged> {
        self.stripes[self.place(key)].1.get(key)
    }

    /// Returns the writes to a range that are not visible yet, in no order. All rows are held.
    pub(crate) fn staged_in(&self, range: &KeyRange) -> impl Iterator<Item = &Staged> {
        let all = self.stripes.iter().flat_map(|(_, stripe)| stripe.values());
        all.filter(move |staged| range.contains(&staged.record.key))
    }

    /// Writes to rows that are held.
    pub(crate) fn stage(&mut self, records: &[(Revision, Arc<Record>)]) {
        for (revision, record) in records {
            let place = self.place(&record.key);
            let staged = Staged { revision: *revision, record: Arc::clone(record) };
            self.stripes[place].1.insert(Key::clone(&record.key), staged);
        }
    }

    /// Forgets all staged writes, which will not become visible. All rows are held.
    pub(crate) fn forget_staged(&mut self) {
        debug_assert_eq!(self.stripes.len(), STRIPES);
        for (_, stripe) in &mut self.stripes {
            stripe.clear();
        }
    }

    /// Returns the index of the row's stripe among those that are held.
    fn place(&self, key: &[u8]) -> usize {
        let place = self.rows.place(key);
        let found = self.stripes.binary_search_by_key(&place, |(place, _)| *place);
        found.expect("a transaction holds all rows that it touches")
    }
}
