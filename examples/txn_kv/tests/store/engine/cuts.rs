//! The power is cut at random points, again and again on the same file. Committed batches are
//! there, and a batch that was being committed is there whole or not at all.
//!
//! `TXN_KV_CUTS` sets how often; `EG_TEST_SEED` repeats a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use lab::random::{Random, seed, times};
use txn_kv::engine::{Batch, Disk, Engine, Head};
use txn_kv::{Record, Revision};

use crate::support::forgetful::Forgetful;

type State = (Head, BTreeMap<Revision, Arc<Record>>);

#[test]
fn what_was_committed_survives_cuts_and_nothing_is_there_by_half() {
    let seed = seed();
    println!("EG_TEST_SEED={seed}");
    let mut random = Random(seed);
    let cuts = times("TXN_KV_CUTS", 100);
    let (mut image, mut good, mut perhaps) = (Forgetful::database(), State::default(), None);
    let (mut commits, mut taken_back, mut unacknowledged) = (0, 0, 0);
    for cut in 0..cuts {
        if cut % 50 == 0 {
            (image, good, perhaps) = (Forgetful::database(), State::default(), None);
        }
        let file = Forgetful::new(image.clone());
        // Many cuts come while the file is opened, because it is repaired there.
        let most = random.pick(&[10, 40, 300]);
        file.cut_after(random.below(most), random.next());
        if let Some(disk) = file.disk() {
            let found = contents(&disk);
            match perhaps.take() {
                Some(next) if found == next => {
                    unacknowledged += 1;
                    good = next;
                }
                Some(_) => taken_back += 1,
                None => {}
            }
            assert!(found == good, "cut {cut}: {:?}, not {:?}", found.0, good.0);
            for since in 0.. {
                assert!(since < 1000, "nothing reaches the file");
                let batch = batch(&good, &mut random);
                let next = after(&good, &batch);
                if let Err(error) = disk.commit(&batch) {
                    assert!(file.is_cut(), "{error}");
                    perhaps = Some(next);
                    break;
                }
                commits += 1;
                good = next;
            }
        }
        image = file.cut();
    }
    println!("{commits} commits, {taken_back} taken back, {unacknowledged} there without a word");
    assert!(cuts < 100 || taken_back > 0, "cuts come too late");
    // In 100 cuts this happens about four times, and sometimes not at all.
    assert!(cuts < 1000 || unacknowledged > 0, "cuts come too early");
}

fn contents(disk: &Disk) -> State {
    let snapshot = disk.snapshot().expect("it is open");
    let mut records = BTreeMap::new();
    let mut visit = |revision, record| {
        records.insert(revision, Arc::new(record));
    };
    snapshot.scan(&mut visit).expect("it is in memory");
    (snapshot.head().expect("it is known"), records)
}

/// Batch with some new records, which removes some old ones.
fn batch((head, there): &State, random: &mut Random) -> Batch {
    let revision = head.revision + 1;
    let new = |sub: u32, random: &mut Random| {
        let value = vec![random.next() as u8; random.pick(&[0, 10, 256, 5000])];
        let key = sub.to_le_bytes().into();
        let record = Record { key, created: revision, version: 1, value: Some(value.into()) };
        (Revision { main: revision, sub }, Arc::new(record))
    };
    let records = (0..random.pick(&[1, 2, 8])).map(|sub| new(sub, random)).collect();
    let removed = there.keys().filter(|_| random.percent(5)).copied().collect();
    let compacted = if random.percent(10) { head.revision } else { head.compacted };
    Batch { records, removed, head: Head { revision, compacted } }
}

fn after((_, records): &State, batch: &Batch) -> State {
    let mut records = records.clone();
    records.extend(batch.records.iter().cloned());
    records.retain(|revision, _| !batch.removed.contains(revision));
    (batch.head, records)
}
