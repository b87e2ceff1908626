//! Promises to readers beside writers, deletions and compaction: each revision in the index has its
//! value, and a transaction is seen whole or not at all.
//!
//! `TXN_KV_READS` says how many range reads there are; 10 million take some minutes in a release build.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use lab::random::{Random, times};
use txn_kv::engine::Memory;
use txn_kv::store::{Limits, Store};
use txn_kv::{Design, Entry, Key, KeyRange, Op, Outcome, StoreError, Txn};

use crate::support::ask;

const WRITERS: u64 = 8;
const READERS: u64 = 2;
/// Transactions that are written beside the reads, at least.
const WRITTEN: u64 = 200;
/// Keys of one transaction: all of them, or none, are there.
const KEYS: u8 = 5;
/// Groups of keys, each of which is written by transactions of its own.
const GROUPS: u8 = 4;

fn reads() -> u64 {
    times("TXN_KV_READS", 20_000)
}

fn key(group: u8, key: u8) -> Key {
    Key::from(&[group, key][..])
}

/// The keys of a group.
fn group(group: u8) -> KeyRange {
    KeyRange::Span(key(group, 0), Some(key(group + 1, 0)))
}

fn wait(store: &Store, txn: Txn) -> Outcome {
    ask::run(store, txn).expect("it succeeds")
}

/// Writes all keys of a group, or deletes them.
fn write(store: &Store, random: &mut Random) -> u64 {
    let at = random.below(GROUPS.into()) as u8;
    let then = if random.below(8) == 0 {
        vec![Op::Delete(group(at))]
    } else {
        let value = random.next().to_le_bytes();
        (0..KEYS).map(|n| Op::Put { key: key(at, n), value: value.into() }).collect()
    };
    wait(store, Txn { then, ..Txn::default() }).revision
}

/// Asserts that the entries are all keys of a group, with one value and of one transaction; or
/// none.
fn assert_whole(entries: &[Entry], what: &str) {
    let Some(first) = entries.first() else { return };
    assert_eq!(entries.len(), usize::from(KEYS), "{what}: part of a transaction");
    for entry in entries {
        assert_eq!(entry.record.value, first.record.value, "{what}: parts of two transactions");
        assert_eq!(entry.revision.main, first.revision.main, "{what}");
    }
}

fn read(store: &Store, newest: &AtomicU64, random: &mut Random) {
    let at = random.below(GROUPS.into()) as u8;
    let seen = newest.load(Ordering::Acquire);
    let found = store.read(&group(at), None, 100).expect("the newest can be read");
    assert!(found.revision >= seen, "{} is older than {seen}, which was answered", found.revision);
    assert_whole(&found.entries, "newest");
    let ago = random.below(50);
    let asked = found.revision.saturating_sub(ago);
    match store.read(&group(at), Some(asked), 100) {
        Ok(found) => {
            assert_whole(&found.entries, "earlier");
            assert!(found.entries.iter().all(|entry| entry.revision.main <= asked));
        }
        Err(StoreError::Compacted { .. }) => {}
        // The newest read saw data in the store whose flush had not reached the index yet.
        Err(StoreError::Future { .. }) if store.design() == Design::Compensate => {}
        Err(error) => panic!("revision {asked}: {error}"),
    }
}

fn readers_see_whole_transactions(design: Design, reads: u64) {
    let store = Store::open(Memory::default(), design, Limits::default(), None).unwrap();
    let (newest, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for seed in 1..=WRITERS {
            let (store, newest, ended) = (&store, &newest, &ended);
            let mut random = Random(seed);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let revision = write(store, &mut random);
                    newest.fetch_max(revision, Ordering::AcqRel);
                }
            });
        }
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let at = store.revision().saturating_sub(30);
                match store.compact(at) {
                    Ok(_) | Err(StoreError::Compacted { .. }) => thread::yield_now(),
                    Err(error) => panic!("compaction: {error}"),
                }
            }
        });
        let readers = (1..=READERS).map(|reader| {
            let (store, newest, mut random) = (&store, &newest, Random(reader << 32));
            scope.spawn(move || {
                // Readers go on until the writers have written enough to be seen.
                let enough = |done| done >= reads && newest.load(Ordering::Relaxed) >= WRITTEN;
                (0..).take_while(|done| !enough(done * READERS * 2)).for_each(|_| {
                    read(store, newest, &mut random);
                });
            })
        });
        let readers: Vec<_> = readers.collect();
        let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        ended.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.expect("no reader fails"));
    });
    let stats = store.stats();
    if design == Design::Compensate {
        assert!(stats.indexed >= stats.read);
    } else {
        assert_eq!(stats.indexed, stats.read, "{design}: each revision has its value");
    }
    assert!(stats.read > 0 && stats.transactions >= WRITTEN);
    store.check().expect("index and engine agree");
}

#[test]
fn readers_see_whole_transactions_beside_eight_writers() {
    readers_see_whole_transactions(Design::Publish, reads());
}

#[test]
fn the_other_designs_keep_it_as_well() {
    for design in Design::ALL.into_iter().filter(|design| *design != Design::Publish) {
        readers_see_whole_transactions(design, reads().min(20_000));
    }
}

#[test]
fn transactions_on_one_key_are_one_after_the_other() {
    const EACH: u64 = 20;
    let clients = 200;
    let store = Store::open(Memory::default(), Design::Publish, Limits::default(), None).unwrap();
    let mut revisions: Vec<_> = thread::scope(|scope| {
        let client = |_| {
            scope.spawn(|| {
                let put = || Op::Put { key: key(0, 0), value: Box::default() };
                let txn = || Txn { then: vec![put()], ..Txn::default() };
                (0..EACH).map(|_| wait(&store, txn()).revision).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..clients).map(client).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no client fails")).collect()
    });
    revisions.sort_unstable();
    assert!(revisions.iter().copied().eq(1..=clients * EACH), "each has a revision of its own");
    for at in revisions {
        let found = store.read(&KeyRange::One(key(0, 0)), Some(at), 1).unwrap();
        assert_eq!((found.entries[0].revision.main, found.entries[0].record.version), (at, at));
    }
}
