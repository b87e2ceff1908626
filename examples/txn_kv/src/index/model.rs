//! Model of the index: readers beside a writer and a compaction, in every order that is possible.
//!
//! [`write`], [`compact`] and [`look`] repeat the steps of the store around the index. The index is
//! the shipped one, on loom's lock. The store is a set of revisions. Each mutant does one step in
//! the wrong order and must be caught.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::Index;
use crate::design::Design;
use crate::engine::Head;
use crate::error::StoreError;
use crate::record::{Key, Record, Revision};
use crate::txn::KeyRange;

type Stored = Mutex<BTreeSet<Revision>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// A revision is published before its data is written.
    PublishesFirst,
    /// Each of two revisions of a transaction is published by itself.
    PublishesHalf,
    /// Data is removed before readers of it are refused.
    RemovesFirst,
    /// A reader takes its snapshot before it looks at the index.
    SnapshotBefore,
    /// A reader takes its snapshot when it has left the lock.
    SnapshotAfter,
}

fn record(key: &str) -> Arc<Record> {
    let key = Key::from(key.as_bytes());
    Arc::new(Record { key, created: 1, version: 1, value: Some(Box::default()) })
}

/// A transaction that writes both keys.
fn write(index: &Index, stored: &Stored, main: u64, mutant: Mutant) {
    let compacted = index.head().compacted;
    let records: Vec<_> =
        (0..).zip(["a", "b"]).map(|(sub, key)| (Revision { main, sub }, record(key))).collect();
    let data = || stored.lock().unwrap().extend(records.iter().map(|(revision, _)| *revision));
    let head = Head { revision: main, compacted };
    match mutant {
        Mutant::PublishesFirst => {
            index.insert_revisions(&records, head);
            data();
        }
        Mutant::PublishesHalf => {
            data();
            index.insert_revisions(&records[..1], head);
            index.insert_revisions(&records[1..], head);
        }
        _ => {
            data();
            index.insert_revisions(&records, head);
        }
    }
}

/// Forgets what transaction `at` has overwritten.
fn compact(index: &Index, stored: &Stored, at: u64, mutant: Mutant) {
    let head = index.head();
    if mutant == Mutant::RemovesFirst {
        stored.lock().unwrap().retain(|revision| revision.main >= at);
    }
    index.insert_revisions(&[], Head { compacted: at, ..head });
    let compacted = index.compact(None, at, usize::MAX);
    let removed: Vec<_> = compacted.removed.iter().map(|removed| removed.revision).collect();
    stored.lock().unwrap().retain(|revision| !removed.contains(revision));
}

/// Reads both keys. Each revision found must have its data, and both must be of one transaction.
fn look(index: &Index, stored: &Stored, at: Option<u64>, mutant: Mutant) {
    let snapshot = || stored.lock().unwrap().clone();
    let both = KeyRange::Span(Key::from(&b"a"[..]), None);
    let before = (mutant == Mutant::SnapshotBefore).then(snapshot);
    let within = !matches!(mutant, Mutant::SnapshotBefore | Mutant::SnapshotAfter);
    let view = match index.view(&both, at, 2, || Ok(within.then(snapshot))) {
        Err(StoreError::Compacted { .. }) if at.is_some() => return,
        view => view.unwrap(),
    };
    let seen = before.or(view.snapshot).unwrap_or_else(snapshot);
    let found: Vec<_> = view.candidates.iter().map(|found| found.newest.revision).collect();
    assert!(found.iter().all(|revision| seen.contains(revision)), "data is missing");
    let halves = found.iter().filter(|revision| revision.main == view.revision).count();
    assert!(halves == 2, "half a transaction");
}

/// Transaction 1 is there. 2 is written, and 1 compacted, beside a reader of 1 and one of the newest.
fn readers_find_data_and_whole_transactions(mutant: Mutant) {
    loom::model(move || {
        let index = Arc::new(Index::new(Design::Publish, Head::default()));
        let stored = Arc::new(Stored::default());
        write(&index, &stored, 1, Mutant::None);
        let writer = {
            let (index, stored) = (Arc::clone(&index), Arc::clone(&stored));
            thread::spawn(move || {
                write(&index, &stored, 2, mutant);
                compact(&index, &stored, 2, mutant);
            })
        };
        let reader = {
            let (index, stored) = (Arc::clone(&index), Arc::clone(&stored));
            thread::spawn(move || look(&index, &stored, Some(1), mutant))
        };
        look(&index, &stored, None, mutant);
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn model_readers_find_data_and_whole_transactions() {
    readers_find_data_and_whole_transactions(Mutant::None);
}

#[test]
fn model_mutants_are_caught() {
    for mutant in [
        Mutant::PublishesFirst,
        Mutant::PublishesHalf,
        Mutant::RemovesFirst,
        Mutant::SnapshotBefore,
        Mutant::SnapshotAfter,
    ] {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            readers_find_data_and_whole_transactions(mutant);
        }));
        assert!(caught.is_err(), "{mutant:?} was not caught");
    }
}
