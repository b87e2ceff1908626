//! Faults around a flush: answers that panic or begin the next transaction, leaders that never
//! come, removals that fail or are too large for one flush, and results beyond their limits.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use epoll_group::{Config, Runtime};
use lab::{LONG, eventually};
use txn_kv::engine::Memory;
use txn_kv::store::{Limits, Store};
use txn_kv::{Design, Key, KeyRange, Op, OpResult, Outcome, StoreError, Txn};

use crate::support::ask::{self, begin, begin_elsewhere, outcome};
use crate::support::gated::Gated;

fn key(name: &str) -> Key {
    Key::from(name.as_bytes())
}

fn one(name: &str) -> KeyRange {
    KeyRange::One(key(name))
}

fn all() -> KeyRange {
    KeyRange::Span(key(""), None)
}

fn get(range: KeyRange, limit: usize) -> Op {
    Op::Get { range, limit }
}

fn of(op: Op) -> Txn {
    Txn { then: vec![op], ..Txn::default() }
}

fn put(name: &str, value: &str) -> Txn {
    of(Op::Put { key: key(name), value: value.as_bytes().into() })
}

/// A transaction that is refused when it is evaluated.
fn twice(name: &str) -> Txn {
    Txn { then: [put(name, "").then, put(name, "").then].concat(), ..Txn::default() }
}

/// A read in a transaction that could write, which is therefore done on what is staged.
fn beside(read: Op) -> Txn {
    Txn { then: vec![read, Op::Delete(one("none"))], ..Txn::default() }
}

fn run(store: &Store, txn: Txn) -> Outcome {
    ask::run(store, txn).unwrap()
}

/// A store whose leader may be a task of this runtime.
fn store_on(runtime: &Runtime, gated: &Gated, limits: Limits) -> Store {
    Store::open(gated.clone(), Design::Publish, limits, Some(runtime.handle())).unwrap()
}

/// Runtime with one worker, which is not replaced while it waits.
fn one_worker() -> Runtime {
    let config = Config::default().epoll_groups(1).epoll_threads_per_group(1).max_threads(2);
    Runtime::builder().config(config).start().unwrap()
}

fn keys(store: &Store) -> Vec<String> {
    let found = store.read(&all(), None, 100).unwrap();
    found.entries.iter().map(|entry| entry.record.key.escape_ascii().to_string()).collect()
}

#[test]
fn a_panic_in_an_answer_leaves_the_others_their_outcomes() {
    let gated = Gated::default();
    let store = gated.store(Design::Publish, Limits { flush_bytes: 1, ..Limits::default() });
    gated.shut();
    let first = begin_elsewhere(&store, put("first", ""));
    gated.wait_for(1);
    store.txn(put("second", ""), |_| panic!("an answer that panics"));
    let third = begin(&store, put("third", ""));
    let looked = begin(&store, beside(get(one("first"), 1)));
    gated.open();
    outcome(&first).unwrap();
    outcome(&third).unwrap();
    outcome(&looked).unwrap();
    run(&store, put("fourth", ""));
    store.txn(of(get(one("first"), 1)), |_| panic!("an answer that panics"));
    for refused in [put("", ""), twice("key")] {
        store.txn(refused, |_| panic!("an answer that panics"));
    }
    assert_eq!(store.revision(), 4);
}

#[test]
fn a_panic_in_the_answer_of_a_busy_store_is_contained() {
    let gated = Gated::default();
    let store = gated.store(Design::Publish, Limits { waiting_bytes: 0, ..Limits::default() });
    gated.shut();
    let first = begin_elsewhere(&store, put("first", ""));
    gated.wait_for(1);
    let second = begin(&store, put("second", ""));
    let (tell, told) = mpsc::channel();
    store.txn(put("third", ""), move |outcome| {
        tell.send(outcome).expect("the test waits");
        panic!("an answer that panics");
    });
    assert!(matches!(outcome(&told), Err(StoreError::Busy { .. })));
    gated.open();
    outcome(&first).unwrap();
    outcome(&second).unwrap();
}

#[test]
fn answers_that_begin_the_next_transaction_need_no_more_stack() {
    /// Makes a transaction, and tells if it succeeds.
    type Begun = (fn() -> Txn, bool);
    fn next(store: Store, left: u64, ended: mpsc::Sender<u64>, begun: Begun) {
        if left == 0 {
            return ended.send(store.revision()).expect("the test waits");
        }
        let again = store.clone();
        store.txn(begun.0(), move |outcome| {
            assert_eq!(outcome.is_ok(), begun.1, "{outcome:?}");
            next(again, left - 1, ended, begun);
        });
    }
    let writes: Begun = (|| put("key", ""), true);
    let others: [Begun; 3] =
        [(|| of(get(one("key"), 1)), true), (|| put("", ""), false), (|| twice("key"), false)];
    let runtime = Runtime::builder().config(Config::default().epoll_groups(1)).start().unwrap();
    for handle in [None, Some(runtime.handle())] {
        let store = Store::open(Memory::new(), Design::Publish, Limits::default(), handle);
        let (tell, told) = mpsc::channel();
        let store = store.unwrap();
        next(store.clone(), 20_000, tell.clone(), writes);
        assert_eq!(told.recv_timeout(LONG), Ok(20_000));
        for begun in others {
            next(store.clone(), 20_000, tell.clone(), begun);
            assert_eq!(told.recv_timeout(LONG), Ok(20_000), "nothing has changed");
        }
    }
}

#[test]
fn a_runtime_that_ends_before_it_leads_leaves_nobody_waiting() {
    let gated = Gated::default();
    let runtime = one_worker();
    let handle = runtime.handle();
    let store = store_on(&runtime, &gated, Limits::default());
    let (began, busy) = mpsc::channel();
    let (free, freed) = mpsc::channel::<()>();
    // The only worker is busy with another task.
    let wait = move || {
        began.send(()).unwrap();
        let _ = freed.recv();
    };
    handle.spawn(wait).unwrap();
    busy.recv_timeout(LONG).unwrap();
    gated.shut();
    let first = begin_elsewhere(&store, put("first", ""));
    gated.wait_for(1);
    let second = begin(&store, put("second", ""));
    gated.open();
    outcome(&first).unwrap();
    let report = runtime.drain(Duration::ZERO);
    assert_eq!((report.stuck.len(), report.cut), (1, 0), "{report}");
    drop(free);
    assert_eq!(outcome(&second).unwrap().revision, 2);
    run(&store, put("third", ""));
}

#[test]
fn a_compaction_on_the_only_worker_does_not_wait_for_who_is_to_lead_behind_it() {
    let gated = Gated::default();
    let runtime = one_worker();
    let handle = runtime.handle();
    let limits = Limits { flush_bytes: 1, ..Limits::default() };
    let store = store_on(&runtime, &gated, limits);
    let told: Vec<_> = (0..3).map(|_| begin(&store, put("key", ""))).collect();
    told.iter().for_each(|told| drop(outcome(told).unwrap()));
    gated.shut();
    let (compacted, compaction) = mpsc::channel();
    let again = store.clone();
    handle.spawn(move || compacted.send(again.compact(3)).unwrap()).unwrap();
    gated.wait_for(1);
    let put = begin(&store, put("other", ""));
    gated.open();
    assert_eq!(compaction.recv_timeout(LONG).expect("it comes to an end").unwrap(), 2);
    outcome(&put).unwrap();
}

#[test]
fn a_compaction_on_the_only_worker_leads_if_that_is_left_to_a_task_while_it_waits() {
    let gated = Gated::default();
    let runtime = one_worker();
    let handle = runtime.handle();
    let store = store_on(&runtime, &gated, Limits::default());
    for _ in 0..3 {
        run(&store, put("key", ""));
    }
    gated.shut();
    let put = begin_elsewhere(&store, put("other", ""));
    gated.wait_for(1);
    let (compacted, compaction) = mpsc::channel();
    handle.spawn(move || compacted.send(store.compact(3)).unwrap()).unwrap();
    eventually(LONG, || runtime.stats().stalled_threads == 1);
    gated.open();
    outcome(&put).unwrap();
    assert_eq!(compaction.recv_timeout(LONG).expect("it comes to an end").unwrap(), 2);
}

#[test]
fn what_a_busy_store_did_not_remove_does_not_come_back_after_a_restart() {
    let gated = Gated::default();
    let runtime = Runtime::builder().config(Config::default().epoll_groups(1)).start().unwrap();
    let limits = Limits { flush_bytes: 1, waiting_bytes: 1_000, ..Limits::default() };
    let store =
        Store::open(gated.clone(), Design::Publish, limits, Some(runtime.handle())).unwrap();
    run(&store, put("key", "old"));
    run(&store, put("key", "new"));
    gated.shut();
    let (again, gate) = (store.clone(), gated.clone());
    let others = thread::spawn(move || {
        // While the first flush of the compaction waits, transactions fill the queue that its
        // removals need.
        gate.wait_for(1);
        let others =
            [begin(&again, put("other", "")), begin(&again, put("large", &"x".repeat(5_000)))];
        gate.pass();
        gate.wait_for(2);
        gate.open();
        others.iter().for_each(|told| drop(outcome(told).unwrap()));
    });
    // Whatever the compaction returns, its removals must not be lost.
    let _ = store.compact(2);
    others.join().unwrap();
    run(&store, of(Op::Delete(one("key"))));
    store.compact(store.revision()).unwrap();
    drop(store);
    let store = gated.store(Design::Publish, Limits::default());
    assert_eq!(keys(&store), ["large", "other"], "what was deleted stays deleted");
    assert_eq!(store.check().unwrap(), 2);
}

#[test]
fn a_compaction_of_one_key_does_not_hold_up_others_with_one_large_flush() {
    let gated = Gated::default();
    let store = gated.store(Design::Publish, Limits::default());
    for _ in 0..5_000 {
        run(&store, put("key", ""));
    }
    assert_eq!(store.compact(5_000).unwrap(), 4_999);
    let most = gated.removed_at_once();
    assert!(most <= 1_000, "{most} records were removed with one flush");
    assert_eq!(store.check().unwrap(), 1);
}

#[test]
fn a_compaction_of_large_values_does_not_remove_all_with_one_flush() {
    let gated = Gated::default();
    let limits = Limits::default();
    let store = gated.store(Design::Publish, limits);
    let large = "x".repeat(1 << 20);
    for _ in 0..50 {
        run(&store, put("key", &large));
    }
    assert_eq!(store.compact(50).unwrap(), 49);
    let most = gated.removed_bytes_at_once();
    assert!(most <= limits.flush_bytes as u64, "{most} bytes were removed with one flush");
    assert!(gated.removed_at_once() > 1);
    assert_eq!(store.check().unwrap(), 1);
    // A record that is larger than the limit is removed alone.
    let store = gated.store(Design::Publish, Limits { flush_bytes: 1_000, ..limits });
    run(&store, put("key", &large));
    run(&store, put("key", ""));
    assert_eq!(store.compact(52).unwrap(), 2);
    assert_eq!(store.check().unwrap(), 1);
}

#[test]
fn removals_that_failed_are_done_with_the_next_flush() {
    let gated = Gated::default();
    let store = gated.store(Design::Publish, Limits::default());
    for _ in 0..10 {
        run(&store, put("key", ""));
    }
    gated.fails(true);
    assert!(matches!(store.compact(5), Err(StoreError::Write(_))));
    assert_eq!(store.compacted(), 0);
    assert_eq!(store.read(&one("key"), Some(1), 1).unwrap().entries.len(), 1);
    gated.fails(false);
    assert_eq!(store.compact(5).unwrap(), 4);
    assert!(matches!(store.read(&one("key"), Some(4), 1), Err(StoreError::Compacted { .. })));
    assert_eq!(store.check().unwrap(), 6);
}

#[test]
fn a_deletion_without_a_limit_deletes() {
    let limits = Limits { found: usize::MAX, ..Limits::default() };
    let store = Store::open(Memory::new(), Design::Publish, limits, None).unwrap();
    run(&store, put("a", ""));
    run(&store, put("b", ""));
    let deleted = run(&store, of(Op::Delete(all())));
    assert_eq!(deleted.results, [OpResult::Deleted(2)]);
    assert!(keys(&store).is_empty());
}

#[test]
fn the_deletions_of_a_transaction_are_limited_together() {
    let limits = Limits { found: 3, ..Limits::default() };
    let store = Store::open(Memory::new(), Design::Publish, limits, None).unwrap();
    for name in ["a", "b", "c", "d"] {
        run(&store, put(name, ""));
    }
    let span = |from, to| Op::Delete(KeyRange::Span(key(from), Some(key(to))));
    let both = |other| Txn { then: vec![span("a", "c"), other], ..Txn::default() };
    let refused = outcome(&begin(&store, both(span("c", "e")))).unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { size: 4, limit: 3, .. }), "{refused}");
    let deleted = run(&store, both(span("d", "e"))).results;
    assert_eq!(deleted, [OpResult::Deleted(2), OpResult::Deleted(1)]);
    assert_eq!(keys(&store), ["c"]);
}

#[test]
fn a_deletion_reads_no_values() {
    let gated = Gated::default();
    let store = gated.store(Design::Publish, Limits::default());
    run(&store, put("a", ""));
    run(&store, put("b", ""));
    gated.cannot_read(true);
    assert!(matches!(store.read(&all(), None, 1), Err(StoreError::Read(_))));
    let put_and_delete =
        Txn { then: [put("c", "").then, vec![Op::Delete(one("b"))]].concat(), ..Txn::default() };
    run(&store, put_and_delete);
    gated.shut();
    let waiting = begin_elsewhere(&store, put("d", ""));
    gated.wait_for(1);
    let deleted = begin(&store, of(Op::Delete(all())));
    gated.open();
    outcome(&waiting).unwrap();
    assert_eq!(outcome(&deleted).unwrap().results, [OpResult::Deleted(3)]);
    gated.cannot_read(false);
    assert!(keys(&store).is_empty());
}

#[test]
fn what_is_found_is_limited_in_bytes_and_counts_while_it_waits() {
    let gated = Gated::default();
    let limits = Limits { found_bytes: 10_000, waiting_bytes: 8_000, ..Limits::default() };
    let store = gated.store(Design::Publish, limits);
    let large = "x".repeat(3_000);
    for name in ["a", "b", "c", "d"] {
        run(&store, put(name, &large));
    }
    let too_large = |error: StoreError| matches!(error, StoreError::TooLarge { limit: 10_000, .. });
    assert_eq!(store.read(&all(), None, 3).unwrap().entries.len(), 3);
    assert!(too_large(store.read(&all(), None, 4).unwrap_err()));
    assert!(too_large(outcome(&begin(&store, of(get(all(), 4)))).unwrap_err()));
    let then = ["a", "b", "c", "d"].map(|name| get(one(name), 1)).to_vec();
    let each = Txn { then, ..Txn::default() };
    assert!(too_large(outcome(&begin(&store, each)).unwrap_err()));
    gated.shut();
    let first = begin_elsewhere(&store, put("first", ""));
    gated.wait_for(1);
    let waiting = begin(&store, beside(get(all(), 3)));
    let refused = outcome(&begin(&store, put("e", ""))).unwrap_err();
    assert!(matches!(refused, StoreError::Busy { bytes: 9_000.., limit: 8_000, .. }), "{refused}");
    gated.open();
    outcome(&first).unwrap();
    outcome(&waiting).unwrap();
    run(&store, put("e", ""));
}

#[test]
fn own_and_staged_writes_that_are_found_are_limited_in_bytes() {
    let large = "x".repeat(3_000);
    let too_large = |error: StoreError| matches!(error, StoreError::TooLarge { limit: 10_000, .. });
    for design in Design::ALL {
        let gated = Gated::default();
        let limits = Limits { found_bytes: 10_000, ..Limits::default() };
        let store = gated.store(design, limits);
        let own =
            |gets: Vec<Op>| Txn { then: [put("a", &large).then, gets].concat(), ..Txn::default() };
        assert!(too_large(outcome(&begin(&store, own(vec![get(one("a"), 1); 4]))).unwrap_err()));
        assert!(too_large(outcome(&begin(&store, own(vec![get(all(), 1); 4]))).unwrap_err()));
        run(&store, own(vec![get(one("a"), 1); 3]));
        gated.shut();
        let first = begin_elsewhere(&store, put("b", &large));
        gated.wait_for(1);
        let staged = ["c", "d"].map(|name| begin(&store, put(name, &large)));
        // A row that is hidden or not shown does not count.
        let hidden = begin(&store, put("a", &large));
        let found = begin(&store, beside(get(all(), 3)));
        assert!(too_large(outcome(&begin(&store, beside(get(all(), 4)))).unwrap_err()), "{design}");
        let without_one = vec![Op::Delete(one("c")), get(all(), 4)];
        let deleted = begin(&store, Txn { then: without_one, ..Txn::default() });
        gated.open();
        for told in staged.iter().chain([&first, &hidden, &found, &deleted]) {
            outcome(told).unwrap();
        }
    }
}

#[test]
fn a_key_whose_removal_was_interrupted_stays_deleted() {
    let gated = Gated::default();
    let store = gated.store(Design::Publish, Limits::default());
    for _ in 0..1_500 {
        run(&store, put("key", ""));
    }
    let deleted = run(&store, of(Op::Delete(one("key")))).revision;
    gated.shut();
    let compaction = thread::spawn(move || store.compact(deleted));
    // Lets the head and a part of the removal through.
    for commit in 1..=2 {
        gated.wait_for(commit);
        gated.pass();
    }
    gated.wait_for(3);
    gated.fails(true);
    gated.open();
    assert!(matches!(compaction.join().unwrap(), Err(StoreError::Write(_))));
    gated.fails(false);
    let store = gated.store(Design::Publish, Limits::default());
    assert!(keys(&store).is_empty());
    assert_eq!(store.check().unwrap(), 0);
}
