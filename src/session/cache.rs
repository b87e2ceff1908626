//! [`Cache`]: texts and plans that clients send once and name by digest later.
//!
//! An entry belongs to the account that sent it. So no client can plant a text under the digest of
//! another account. Under a digest of 16 bytes a text is kept only if that is its MD5, so a
//! corrupted text is not kept either.
//!
//! *Shape*: parts with a lock each; the key selects the part. Entries and bytes are limited in each
//! part, and the least recently used entry goes first. A lookup allocates nothing. No value is
//! dropped under a lock.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use lru::LruCache;

use crate::sync::shim::{Mutex, lock};

/// Longest digest that is kept. Clients send 16 bytes.
pub(super) const MOST_DIGEST_BYTES: usize = 64;

/// Cache of texts (`[u8]`) or of plans.
pub(super) struct Cache<T: ?Sized> {
    parts: Box<[Mutex<Part<T>>]>,
    /// Hash that selects the part of a key. It is independent of the hash inside the part.
    choice: RandomState,
    most_entries_in_part: usize,
    most_bytes_in_part: usize,
}

struct Part<T: ?Sized> {
    entries: LruCache<Key, Entry<T>, RandomState>,
    /// Weight of all entries, with their overhead.
    bytes: usize,
}

struct Entry<T: ?Sized> {
    value: Arc<T>,
    bytes: usize,
}

/// Result of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Put {
    /// The entry was added, and this number of others was evicted.
    Kept { evicted: usize },
    /// The value or its digest is too long. An earlier entry under the same key was removed.
    Refused,
}

impl<T: ?Sized> Cache<T> {
    /// Creates a cache for at most `entries` values and `bytes` bytes. Each of the `parts` gets an
    /// equal share of both.
    pub(super) fn new(entries: usize, bytes: usize, parts: usize) -> Self {
        let parts = parts.max(1);
        let part = || {
            let entries = LruCache::unbounded_with_hasher(RandomState::new());
            Mutex::new(Part { entries, bytes: 0 })
        };
        Self {
            parts: (0..parts).map(|_| part()).collect(),
            choice: RandomState::new(),
            most_entries_in_part: (entries / parts).max(1),
            most_bytes_in_part: bytes / parts,
        }
    }

    /// Returns the value that the account sent with this digest.
    pub(super) fn get(&self, account: &[u8], digest: &[u8]) -> Option<Arc<T>> {
        let key = (account, digest);
        let mut part = lock(self.part(&key));
        part.entries.get(&key as &dyn AsKey).map(|entry| Arc::clone(&entry.value))
    }

    /// Adds a value of the account, and replaces its earlier value of the same digest. If `bytes`
    /// exceeds `longest`, the value is not created.
    pub(super) fn put(
        &self,
        account: &Arc<[u8]>,
        digest: &[u8],
        bytes: usize,
        longest: usize,
        value: impl FnOnce() -> Arc<T>,
    ) -> Put {
        let Some(key) = Key::new(account, digest) else { return Put::Refused };
        let weight = bytes.saturating_add(ENTRY_BYTES);
        let part = self.part(&key);
        if bytes > longest || weight > self.most_bytes_in_part {
            let gone = lock(part).remove(&key);
            // Not under the lock.
            drop(gone);
            return Put::Refused;
        }
        let entry = Entry { value: value(), bytes: weight };
        let mut part = lock(part);
        let replaced = part.remove(&key);
        part.bytes += weight;
        part.entries.put(key, entry);
        // The new entry stays: it was used last, and fits alone.
        let mut evicted = Vec::new();
        while part.entries.len() > self.most_entries_in_part || part.bytes > self.most_bytes_in_part
        {
            let Some((key, entry)) = part.entries.pop_lru() else { break };
            part.bytes -= entry.bytes;
            evicted.push((key, entry));
        }
        drop(part);
        drop(replaced);
        Put::Kept { evicted: evicted.len() }
    }

    fn part(&self, key: &dyn AsKey) -> &Mutex<Part<T>> {
        let hash = self.choice.hash_one(key) % self.parts.len() as u64;
        &self.parts[hash as usize]
    }
}

impl<T: ?Sized> Part<T> {
    fn remove(&mut self, key: &Key) -> Option<Entry<T>> {
        let entry = self.entries.pop(key as &dyn AsKey)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

/// Upper bound of an entry's overhead, in bytes: itself, its key, the links of the list, and its
/// place in the hash table.
const ENTRY_BYTES: usize = 256;

struct Key {
    account: Arc<[u8]>,
    length: u8,
    digest: [u8; MOST_DIGEST_BYTES],
}

impl Key {
    /// Returns `None` if the digest is too long.
    fn new(account: &Arc<[u8]>, digest: &[u8]) -> Option<Self> {
        let mut padded = [0; MOST_DIGEST_BYTES];
        padded.get_mut(..digest.len())?.copy_from_slice(digest);
        let length = u8::try_from(digest.len()).ok()?;
        Some(Self { account: Arc::clone(account), length, digest: padded })
    }
}

/// Owned or borrowed key. Both hash alike and are equal to each other.
trait AsKey {
    /// Account and digest.
    fn both(&self) -> (&[u8], &[u8]);
}

impl AsKey for Key {
    fn both(&self) -> (&[u8], &[u8]) {
        (&self.account, &self.digest[..usize::from(self.length)])
    }
}

impl AsKey for (&[u8], &[u8]) {
    fn both(&self) -> (&[u8], &[u8]) {
        *self
    }
}

impl<'a> Borrow<dyn AsKey + 'a> for Key {
    fn borrow(&self) -> &(dyn AsKey + 'a) {
        self
    }
}

impl Hash for dyn AsKey + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.both().hash(state);
    }
}

impl PartialEq for dyn AsKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.both() == other.both()
    }
}

impl Eq for dyn AsKey + '_ {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.both().hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.both() == other.both()
    }
}

impl Eq for Key {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    const MANY: usize = 1 << 20;
    const DIGEST: &[u8] = &[7; 16];

    fn account(name: &str) -> Arc<[u8]> {
        name.as_bytes().into()
    }

    fn keep(cache: &Cache<[u8]>, account: &Arc<[u8]>, digest: &[u8], text: &[u8]) -> Put {
        cache.put(account, digest, text.len(), MANY, || text.into())
    }

    fn entries<T: ?Sized>(cache: &Cache<T>) -> (usize, usize) {
        let parts = cache.parts.iter().map(lock);
        let sizes = parts.map(|part| (part.entries.len(), part.bytes));
        sizes.fold((0, 0), |(entries, bytes), (len, more)| (entries + len, bytes + more))
    }

    #[test]
    fn a_digest_means_to_each_account_what_it_sent_itself() {
        let cache = Cache::new(64, MANY, 4);
        let [alice, bob] = ["alice", "bob"].map(account);
        assert_eq!(keep(&cache, &alice, DIGEST, b"select 1"), Put::Kept { evicted: 0 });
        assert_eq!(cache.get(b"bob", DIGEST), None);
        assert_eq!(keep(&cache, &bob, DIGEST, b"drop table t"), Put::Kept { evicted: 0 });
        assert_eq!(cache.get(b"alice", DIGEST).as_deref(), Some(&b"select 1"[..]));
        assert_eq!(cache.get(b"bob", DIGEST).as_deref(), Some(&b"drop table t"[..]));
        // The border between account and digest counts.
        let [short, long] = ["a", "ab"].map(account);
        assert_eq!(keep(&cache, &short, b"bc", b"1"), Put::Kept { evicted: 0 });
        assert_eq!(cache.get(&long, b"c"), None);
        assert_eq!(cache.get(b"", b"abc"), None);
    }

    #[test]
    fn a_digest_of_64_bytes_is_the_longest() {
        let (cache, root) = (Cache::new(64, MANY, 4), account("root"));
        let digest = [1; MOST_DIGEST_BYTES + 1];
        assert_eq!(keep(&cache, &root, &digest, b"x"), Put::Refused);
        assert_eq!(cache.get(&root, &digest), None);
        assert_eq!(keep(&cache, &root, &digest[1..], b"x"), Put::Kept { evicted: 0 });
        assert!(cache.get(&root, &digest[1..]).is_some());
        assert_eq!(cache.get(&root, &digest[2..]), None);
        assert_eq!(keep(&cache, &root, b"\0", b"zero"), Put::Kept { evicted: 0 });
        assert_eq!(cache.get(&root, b""), None, "padding is no part of it");
        assert_eq!(keep(&cache, &root, b"", b"none"), Put::Kept { evicted: 0 });
        assert_eq!(cache.get(&root, b"").as_deref(), Some(&b"none"[..]));
    }

    #[test]
    fn a_new_text_takes_the_place_of_the_old_one_even_if_it_is_not_kept() {
        let (cache, root) = (Cache::new(64, MANY, 1), account("root"));
        let _ = keep(&cache, &root, DIGEST, b"select 1");
        assert_eq!(keep(&cache, &root, DIGEST, b"select 22"), Put::Kept { evicted: 0 });
        assert_eq!(cache.get(&root, DIGEST).as_deref(), Some(&b"select 22"[..]));
        assert_eq!(entries(&cache), (1, 9 + ENTRY_BYTES));
        let put = |length, longest| cache.put(&root, DIGEST, length, longest, || [0; 9].into());
        let never = || unreachable!("it is too long");
        assert_eq!(cache.put(&root, DIGEST, 10, 9, never), Put::Refused);
        assert_eq!((cache.get(&root, DIGEST), entries(&cache)), (None, (0, 0)));
        assert_eq!(put(9, 9), Put::Kept { evicted: 0 });
        assert_eq!(put(MANY - ENTRY_BYTES + 1, usize::MAX), Put::Refused);
        assert_eq!(put(usize::MAX, usize::MAX), Put::Refused);
        assert_eq!(put(MANY - ENTRY_BYTES, usize::MAX), Put::Kept { evicted: 0 });
        assert_eq!(entries(&cache), (1, MANY));
    }

    #[test]
    fn what_was_used_least_recently_goes_when_there_are_too_many() {
        let (cache, root) = (Cache::new(3, MANY, 1), account("root"));
        for digest in [b"1", b"2", b"3"] {
            assert_eq!(keep(&cache, &root, digest, digest), Put::Kept { evicted: 0 });
        }
        assert!(cache.get(&root, b"1").is_some());
        assert_eq!(keep(&cache, &root, b"4", b"4"), Put::Kept { evicted: 1 });
        let found = [b"1", b"2", b"3", b"4"].map(|digest| cache.get(&root, digest).is_some());
        assert_eq!(found, [true, false, true, true]);
    }

    #[test]
    fn as_many_go_as_one_that_is_long_needs() {
        let room = 4 * (100 + ENTRY_BYTES);
        let (cache, root) = (Cache::new(1000, room, 1), account("root"));
        for digest in [b"1", b"2", b"3", b"4"] {
            assert_eq!(keep(&cache, &root, digest, &[0; 100]), Put::Kept { evicted: 0 });
        }
        assert_eq!(keep(&cache, &root, b"5", &[0; 101]), Put::Kept { evicted: 2 });
        let length = room - ENTRY_BYTES;
        assert_eq!(keep(&cache, &root, b"6", &vec![0; length]), Put::Kept { evicted: 3 });
        assert_eq!(entries(&cache), (1, room));
    }

    #[test]
    fn what_is_in_use_outlives_its_place() {
        struct Plan<'a>(&'a AtomicUsize);
        impl Drop for Plan<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let dropped = AtomicUsize::new(0);
        let (cache, root) = (Cache::new(1, MANY, 1), account("root"));
        let _ = cache.put(&root, b"1", 1, MANY, || Arc::new(Plan(&dropped)));
        let used = cache.get(&root, b"1");
        assert_eq!(
            cache.put(&root, b"2", 1, MANY, || Arc::new(Plan(&dropped))),
            Put::Kept { evicted: 1 }
        );
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        drop(used);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn many_threads_find_what_they_kept_themselves() {
        let cache = Cache::new(64, MANY, 4);
        thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let cache = &cache;
                scope.spawn(move || {
                    let account = account(name);
                    for round in 0..2000_u32 {
                        let digest = (round % 50).to_le_bytes();
                        let text = [name.as_bytes(), &digest].concat();
                        if let Some(found) = cache.get(&account, &digest) {
                            assert_eq!(*found, *text);
                        } else {
                            let _ = keep(cache, &account, &digest, &text);
                        }
                    }
                });
            }
        });
        assert!(entries(&cache).0 <= 64);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Get(u8, u8),
        Put(u8, u8, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..3_u8, 0..12_u8).prop_map(|(account, digest)| Op::Get(account, digest)),
            (0..3_u8, 0..12_u8, 0..1200_usize)
                .prop_map(|(account, digest, bytes)| Op::Put(account, digest, bytes)),
        ]
    }

    proptest! {
        #[test]
        fn one_part_is_a_list_in_the_order_of_use(
            ops in proptest::collection::vec(op(), 0..200),
            most in 1..9_usize,
        ) {
            const ROOM: usize = 3000;
            const LONGEST: usize = 1000;
            let cache = Cache::<u32>::new(most, ROOM, 1);
            // Account, digest, value and bytes. The entry used last is the last.
            let mut twin: Vec<(u8, u8, u32, usize)> = Vec::new();
            for (number, op) in (0..).zip(ops) {
                let (Op::Get(account, digest) | Op::Put(account, digest, _)) = op;
                let found = twin.iter().position(|known| (known.0, known.1) == (account, digest));
                let known = found.map(|at| twin.remove(at));
                match op {
                    Op::Get(..) => {
                        let found = cache.get(&[account], &[digest]);
                        prop_assert_eq!(found.as_deref(), known.as_ref().map(|known| &known.2));
                        twin.extend(known);
                    }
                    Op::Put(_, _, bytes) => {
                        let put =
                            cache.put(&Arc::from([account]), &[digest], bytes, LONGEST, || Arc::new(number));
                        let mut expected = Put::Refused;
                        if bytes <= LONGEST {
                            twin.push((account, digest, number, bytes + ENTRY_BYTES));
                            let weight = |from: &[(u8, u8, u32, usize)]| {
                                from.iter().map(|known| known.3).sum::<usize>()
                            };
                            let gone = (0..twin.len())
                                .find(|&gone| {
                                    twin.len() - gone <= most && weight(&twin[gone..]) <= ROOM
                                })
                                .expect("one alone has room");
                            twin.drain(..gone);
                            expected = Put::Kept { evicted: gone };
                        }
                        prop_assert_eq!(put, expected);
                    }
                }
                let bytes = twin.iter().map(|known| known.3).sum();
                prop_assert_eq!(entries(&cache), (twin.len(), bytes));
            }
        }

        #[test]
        fn many_parts_never_hold_more_than_all_of_it(
            ops in proptest::collection::vec(op(), 0..200),
        ) {
            let cache = Cache::<u32>::new(8, 8000, 4);
            let mut last = std::collections::HashMap::new();
            for (number, op) in (0..).zip(ops) {
                match op {
                    Op::Get(account, digest) => {
                        if let Some(found) = cache.get(&[account], &[digest]) {
                            prop_assert_eq!(Some(&*found), last.get(&(account, digest)));
                        }
                    }
                    Op::Put(account, digest, bytes) => {
                        let _ = cache.put(&Arc::from([account]), &[digest], bytes, 1000, || Arc::new(number));
                        last.insert((account, digest), number);
                    }
                }
                let (count, bytes) = entries(&cache);
                prop_assert!(count <= 8 && bytes <= 8000);
            }
        }
    }
}
