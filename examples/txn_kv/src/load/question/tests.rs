//! Answers that are right, and those that are not.

use std::sync::Arc;

use lab::drive::Until;

use super::*;
use crate::record::{Record, Revision};
use crate::txn::Entry;

fn shape() -> Shape {
    Shape { keys: Keys::new(8, 1000).unwrap(), value_bytes: 64, seed: 1 }
}

fn read(shape: &Shape, first: u64, limit: u64) -> Read {
    match shape.read(first, limit) {
        Question::Read(read) => read,
        Question::Write(_) => unreachable!("a read reads"),
    }
}

/// Answer of a read if each of these keys was written by the transaction of the same number.
fn found(shape: &Shape, numbers: impl IntoIterator<Item = u64>) -> Found {
    let entry = |number| {
        let key = shape.keys.key(number);
        let value = values::make(&key, &mut Rng::with_seed(number), shape.value_bytes);
        let record = Record { key, created: number, version: 1, value: Some(value) };
        Entry { revision: Revision { main: number, sub: 0 }, record: Arc::new(record) }
    };
    Found { revision: 1000, entries: numbers.into_iter().map(entry).collect() }
}

fn done(revision: u64, affected: u64) -> Done {
    Done { revision, succeeded: true, affected, found: Vec::new() }
}

#[test]
fn what_was_asked_for_is_right() {
    let shape = shape();
    for (first, limit, last) in [(7, 1, 7), (7, 10, 16), (995, 10, 999)] {
        let read = read(&shape, first, limit);
        assert_eq!(shape.check_found(&read, &found(&shape, first..=last), 1000), Ok(()));
    }
    assert_eq!(check_written(&done(8, 2), 2, 7), Ok(()));
}

#[test]
fn what_was_not_asked_for_is_wrong() {
    let shape = shape();
    let read = read(&shape, 7, 3);
    let wrong = |found: &Found| shape.check_found(&read, found, 900).unwrap_err();
    assert!(wrong(&found(&shape, 7..9)).starts_with("2 of 3 keys"));
    assert!(wrong(&found(&shape, [7, 8, 10])).starts_with("key 00000010 in place of 00000009"));

    let mut old = found(&shape, 7..10);
    old.revision = 899;
    assert_eq!(wrong(&old), "a read at revision 899 after revision 900 was seen");

    let mut later = found(&shape, 7..10);
    later.entries[2].revision.main = 1001;
    assert!(wrong(&later).contains("written at 1001.0, read at 1000"));

    let mut deleted = found(&shape, 7..10);
    Arc::make_mut(&mut deleted.entries[1].record).value = None;
    assert_eq!(wrong(&deleted), "key 00000008 has a value of 0 bytes");

    let mut crossed = found(&shape, 7..10);
    let value = crossed.entries[0].record.value.clone();
    Arc::make_mut(&mut crossed.entries[1].record).value = value;
    assert_eq!(wrong(&crossed), "key 00000008 has the value of key 00000007");
}

#[test]
fn a_put_that_is_not_new_is_wrong() {
    assert!(check_written(&done(7, 1), 1, 7).unwrap_err().contains("revision 7 after revision 7"));
    assert!(check_written(&done(8, 1), 2, 7).unwrap_err().starts_with("1 of 2 keys"));
    let refused = Done { succeeded: false, ..done(8, 1) };
    assert!(check_written(&refused, 1, 7).is_err());
}

#[test]
fn a_fill_puts_every_key_once() {
    let shape = shape();
    let (workload, Until::Requests(requests)) = Workload::fill(&shape) else {
        panic!("a fill has an end");
    };
    let keys = (0..requests).flat_map(|number| match shape.question(workload, number) {
        Question::Write(txn) => txn.then,
        Question::Read(_) => panic!("a fill reads nothing"),
    });
    let keys = keys.map(|op| match op {
        Op::Put { key, value } => {
            assert_eq!(values::check(&key, &value), Ok(()));
            key
        }
        _ => panic!("a fill puts"),
    });
    assert!(keys.eq((0..1000).map(|number| shape.keys.key(number))));
}

#[test]
fn mixed_requests_are_reads_as_often_as_told() {
    let shape = shape();
    let workload = Workload::Mixed { reads_per_100: 75 };
    let reads = |number: &u64| matches!(shape.question(workload, *number), Question::Read(_));
    let reads = (0..10_000).filter(reads).count();
    assert!((7300..7700).contains(&reads), "{reads}");
}

#[test]
fn puts_of_a_transaction_are_to_keys_in_a_row() {
    let shape = Shape { keys: Keys::new(8, 3).unwrap(), ..shape() };
    for number in 0..10 {
        let Question::Write(txn) = shape.question(Workload::Put { operations: 3 }, number) else {
            panic!("a put writes");
        };
        let mut keys: Vec<_> = txn.then.iter().map(|op| format!("{op:?}")).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 3);
    }
    let error = Workload::Put { operations: 4 }.check(&shape).unwrap_err();
    assert_eq!(error, "4 puts of a transaction to 3 keys");
}
