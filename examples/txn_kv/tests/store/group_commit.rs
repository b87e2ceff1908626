//! Transactions that wait for the disk share one flush. Only the thread that flushes waits for it.

use txn_kv::store::{Limits, Store};
use txn_kv::{
    Compare, Design, Key, KeyRange, Op, OpResult, Outcome, Relation, StoreError, Target, Txn,
};

use crate::support::ask::{self, Told, begin_elsewhere, outcome};
use crate::support::gated::Gated;

/// A store, and the gate before its commits, which is shut.
struct Rig {
    store: Store,
    gate: Gated,
}

impl Rig {
    fn new(design: Design) -> Self {
        Self::with(design, Limits::default())
    }

    fn with(design: Design, limits: Limits) -> Self {
        let gate = Gated::default();
        gate.shut();
        Self { store: gate.store(design, limits), gate }
    }

    /// Begins a transaction that leads, and waits until its flush has begun.
    fn lead(&self, txn: Txn) -> Told {
        let told = begin_elsewhere(&self.store, txn);
        self.gate.wait_for(1);
        told
    }

    /// Begins a transaction on this thread, which must not wait.
    fn begin(&self, txn: Txn) -> Told {
        ask::begin(&self.store, txn)
    }

    fn value(&self, key: &str) -> Option<Vec<u8>> {
        let found = self.store.read(&KeyRange::One(Key::from(key.as_bytes())), None, 1).unwrap();
        found.entries.first().and_then(|entry| entry.record.value.as_deref().map(<[u8]>::to_vec))
    }
}

fn put(key: &str, value: &str) -> Txn {
    let key = Key::from(key.as_bytes());
    let put = Op::Put { key, value: value.as_bytes().into() };
    Txn { then: vec![put], ..Txn::default() }
}

fn get(key: &str) -> Op {
    Op::Get { range: KeyRange::One(Key::from(key.as_bytes())), limit: 1 }
}

#[test]
fn what_comes_during_a_flush_shares_the_next_one() {
    for design in Design::ALL {
        let rig = Rig::new(design);
        let first = rig.lead(put("first", "1"));
        let others: Vec<_> = (0..10).map(|n| rig.begin(put(&format!("key {n}"), "1"))).collect();
        assert!(others.iter().all(|told| told.try_recv().is_err()), "not durable yet");
        rig.gate.open();
        assert_eq!(outcome(&first).unwrap().revision, 1);
        for (told, revision) in others.iter().zip(2..) {
            assert_eq!(outcome(told).unwrap().revision, revision);
        }
        let each = if design == Design::MarkPersisted { 2 } else { 1 };
        assert_eq!(rig.store.stats().flushes, 2 * each, "{design}");
        assert_eq!(rig.store.stats().transactions, 11);
    }
}

#[test]
fn nothing_is_visible_before_it_is_durable() {
    for design in Design::ALL {
        let rig = Rig::new(design);
        let first = rig.lead(put("key", "new"));
        assert_eq!(rig.value("key"), None, "{design}");
        assert_eq!(rig.store.revision(), 0);
        rig.gate.open();
        outcome(&first).unwrap();
        assert_eq!(rig.value("key").as_deref(), Some(&b"new"[..]), "{design}");
    }
}

#[test]
fn a_row_can_be_written_again_before_it_is_durable() {
    let rig = Rig::new(Design::Publish);
    let first = rig.lead(put("key", "first"));
    let is_first = Compare {
        key: Key::from(&b"key"[..]),
        relation: Relation::Equal,
        target: Target::Value(b"first"[..].into()),
    };
    let second = rig.begin(Txn { compares: vec![is_first], ..put("key", "second") });
    // This transaction could write. It writes nothing, but it sees a write that is not durable yet. So
    // it waits, too.
    let delete = Op::Delete(KeyRange::One(Key::from(&b"none"[..])));
    let looked = rig.begin(Txn { then: vec![get("key"), delete], ..Txn::default() });
    assert!(looked.try_recv().is_err());
    rig.gate.pass();
    rig.gate.pass();
    outcome(&first).unwrap();
    let second = outcome(&second).unwrap();
    assert!(second.succeeded);
    let seen = outcome(&looked).unwrap();
    assert_eq!(seen.revision, second.revision);
    let found = rig.store.read(&KeyRange::One(Key::from(&b"key"[..])), None, 1).unwrap();
    assert_eq!((found.entries[0].record.version, found.entries[0].record.created), (2, 1));
}

#[test]
fn a_transaction_without_writes_waits_if_other_readers_see_what_is_not_durable_yet() {
    let rig = Rig::new(Design::Compensate);
    let first = rig.lead(put("key", "staged"));
    let looked = rig.begin(Txn { then: vec![get("key")], ..Txn::default() });
    assert!(looked.try_recv().is_err(), "a later read must not find an older value");
    rig.gate.open();
    outcome(&first).unwrap();
    assert_eq!(outcome(&looked).unwrap().revision, 1);
}

#[test]
fn a_transaction_without_writes_reads_the_last_durable_revision_during_a_flush() {
    for design in Design::ALL.into_iter().filter(|design| *design != Design::Compensate) {
        let rig = Rig::new(design);
        let first = rig.lead(put("key", "staged"));
        let is_new = Compare {
            key: Key::from(&b"key"[..]),
            relation: Relation::Equal,
            target: Target::Version(0),
        };
        let look = Txn { compares: vec![is_new], then: vec![get("key")], ..Txn::default() };
        let looked = rig.begin(look.clone());
        let looked = looked.try_recv().expect("it waits for no flush").unwrap();
        let nothing = vec![OpResult::Found(Vec::new())];
        assert_eq!(looked, Outcome { revision: 0, succeeded: true, results: nothing }, "{design}");
        rig.gate.open();
        outcome(&first).unwrap();
        let looked = outcome(&rig.begin(look)).unwrap();
        assert_eq!((looked.revision, looked.succeeded), (1, false), "{design}");
    }
}

#[test]
fn what_builds_on_a_failed_flush_fails_and_what_comes_later_does_not() {
    for design in Design::ALL {
        let rig = Rig::new(design);
        let first = rig.lead(put("key", "lost"));
        let is_there = Compare {
            key: Key::from(&b"key"[..]),
            relation: Relation::Equal,
            target: Target::Version(1),
        };
        let built =
            rig.begin(Txn { compares: vec![is_there.clone()], ..put("other", "built on it") });
        rig.gate.fails(true);
        rig.gate.pass();
        assert!(matches!(outcome(&first), Err(StoreError::Write(_))));
        assert!(matches!(outcome(&built), Err(StoreError::Write(_))));
        assert_eq!((rig.value("key"), rig.value("other")), (None, None), "{design}");
        rig.gate.fails(false);
        rig.gate.open();
        let later = rig.begin(Txn {
            compares: vec![is_there],
            otherwise: put("key", "kept").then,
            ..Txn::default()
        });
        let later = outcome(&later).unwrap();
        assert!(!later.succeeded, "the lost write does not count");
        assert_eq!(later.revision, 1);
        assert_eq!(rig.value("key").as_deref(), Some(&b"kept"[..]), "{design}");
        assert_eq!(rig.store.stats().failed_flushes, 1);
        assert_eq!(rig.store.check().unwrap(), 1);
    }
}

#[test]
fn too_much_that_waits_is_refused_with_the_limit() {
    let limits = Limits { waiting_bytes: 10_000, ..Limits::default() };
    let rig = Rig::with(Design::Publish, limits);
    let large = "x".repeat(6_000);
    let first = rig.lead(put("first", &large));
    let accepted = [rig.begin(put("second", &large)), rig.begin(put("third", &large))];
    let refused = outcome(&rig.begin(put("fourth", &large))).unwrap_err();
    assert!(
        matches!(refused, StoreError::Busy { bytes: 12_000.., limit: 10_000, .. }),
        "{refused}"
    );
    rig.gate.pass();
    rig.gate.pass();
    outcome(&first).unwrap();
    for told in &accepted {
        outcome(told).unwrap();
    }
    rig.gate.pass();
    outcome(&rig.begin(put("fourth", &large))).unwrap();
}
