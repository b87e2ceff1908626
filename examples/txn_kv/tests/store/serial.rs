//! Transactions of many threads appear as if they had been done one after the other, in the order
//! of their revisions. A naive twin executes all answered transactions again, and must give the same
//! answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::ask;
use crate::support::faulty::{Action, Faults, Faulty};
use crate::support::twin::{self, State};
use epoll_group::{Config, Handle, Runtime};
use lab::random::{Random, seed, times};
use txn_kv::engine::{Batch, Disk, DiskOptions, Engine, EngineError, Memory, Snapshot};
use txn_kv::store::{Limits, Store};
use txn_kv::{
    Compare, Design, Entry, Key, KeyRange, Op, OpResult, Outcome, Relation, StoreError, Target, Txn,
};

const THREADS: u64 = 6;
const KEYS: u64 = 3;

/// Memory that outlives its store, and whose commits fail now and then.
struct Failing {
    memory: Arc<Memory>,
    commits: AtomicU64,
    /// One commit in `every` fails; 0: none.
    every: u64,
}

impl Engine for Failing {
    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        // Lets other threads run meanwhile.
        thread::yield_now();
        if self.every > 0 && commits.is_multiple_of(self.every) {
            return Err(EngineError::new("commit", "it is told to fail"));
        }
        self.memory.commit(batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        self.memory.snapshot()
    }
}

/// Answer that a thread got.
enum Said {
    Txn(Txn, Outcome),
    Read(KeyRange, usize, u64, Vec<Entry>),
}

fn key(random: &mut Random) -> Key {
    Key::from([b'a' + u8::try_from(random.below(KEYS)).expect("a letter")])
}

fn range(random: &mut Random) -> KeyRange {
    if random.percent(60) {
        return KeyRange::One(key(random));
    }
    let to = random.percent(50).then(|| key(random));
    KeyRange::Span(key(random), to)
}

fn compare(random: &mut Random, revision: u64) -> Compare {
    let relation =
        random.pick(&[Relation::Equal, Relation::NotEqual, Relation::Less, Relation::Greater]);
    let about = revision.saturating_sub(random.below(3));
    let target = match random.below(4) {
        0 => Target::Value(Box::from([u8::try_from(random.below(4)).expect("a byte")])),
        1 => Target::Version(random.below(4)),
        2 => Target::Created(about),
        _ => Target::Modified(about),
    };
    Compare { key: key(random), relation, target }
}

fn operation(random: &mut Random) -> Op {
    match random.below(10) {
        0..5 => {
            let value = Box::from([u8::try_from(random.below(4)).expect("a byte")]);
            Op::Put { key: key(random), value }
        }
        5..7 => Op::Delete(range(random)),
        _ => Op::Get { range: range(random), limit: random.pick(&[1, 2, 10]) },
    }
}

fn txn(random: &mut Random, revision: u64) -> Txn {
    let mut some = |most| (0..random.below(most)).map(|_| random.next()).collect::<Vec<_>>();
    let (compares, then, otherwise) = (some(3), some(4), some(3));
    let operations =
        |seeds: Vec<u64>| seeds.into_iter().map(|seed| operation(&mut Random(seed))).collect();
    Txn {
        compares: compares.into_iter().map(|seed| compare(&mut Random(seed), revision)).collect(),
        then: operations(then),
        otherwise: operations(otherwise),
    }
}

fn writes(outcome: &Outcome) -> bool {
    let wrote = |result: &OpResult| !matches!(result, OpResult::Found(_) | OpResult::Deleted(0));
    outcome.results.iter().any(wrote)
}

/// Runs one client. The revision of each answer is a lower bound for that of the next.
fn client(store: &Store, mut random: Random, rounds: u64) -> Vec<Said> {
    let mut said = Vec::new();
    let mut newest = 0;
    for _ in 0..rounds {
        if random.percent(20) {
            let (range, limit) = (range(&mut random), 2);
            let at = random.percent(30).then_some(newest);
            match store.read(&range, at, limit) {
                Ok(found) => {
                    assert!(found.revision >= newest, "a read goes back behind an answer");
                    // With `Compensate`, a read of the newest may see a revision that cannot be
                    // asked for yet.
                    if store.design() != Design::Compensate {
                        newest = found.revision;
                    }
                    said.push(Said::Read(range, limit, found.revision, found.entries));
                }
                Err(StoreError::Compacted { .. } | StoreError::Read(_)) => {}
                Err(error) => panic!("read: {error}"),
            }
            continue;
        }
        let txn = txn(&mut random, newest);
        match ask::run(store, txn.clone()) {
            Ok(outcome) => {
                assert!(outcome.revision >= newest, "an answer goes back behind another one");
                newest = outcome.revision;
                said.push(Said::Txn(txn, outcome));
            }
            Err(StoreError::WrittenTwice { .. } | StoreError::Write(_) | StoreError::Read(_)) => {}
            Err(error) => panic!("transaction: {error}"),
        }
    }
    said
}

/// Repeats on a twin what was answered, and compares.
fn check(said: Vec<Said>) -> State {
    let mut written = BTreeMap::new();
    let mut rest = Vec::new();
    for said in said {
        match said {
            Said::Txn(txn, outcome) if writes(&outcome) => {
                let before = written.insert(outcome.revision, (txn, outcome));
                assert!(before.is_none(), "two transactions have one revision");
            }
            other => rest.push(other),
        }
    }
    let mut states = vec![State::new()];
    for (at, (txn, outcome)) in (1..).zip(written.into_values()) {
        assert_eq!(outcome.revision, at, "a revision is missing");
        let mut state = states.last().expect("one at least").clone();
        let twin = twin::run(&mut state, &txn, at);
        assert_eq!(outcome, twin, "at revision {at}: {txn:?}");
        states.push(state);
    }
    let state = |at: u64| states[usize::try_from(at).expect("an index")].clone();
    for said in rest {
        match said {
            Said::Txn(txn, outcome) => {
                let twin = twin::run(&mut state(outcome.revision), &txn, outcome.revision);
                assert_eq!(outcome, twin, "nothing written: {txn:?}");
            }
            Said::Read(range, limit, at, entries) => {
                let twin = twin::found(&state(at), &range, limit);
                assert_eq!(entries, twin, "read at {at}: {range:?}");
            }
        }
    }
    states.pop().expect("one at least")
}

fn compact(store: &Store, keeps: u64) {
    match store.compact(store.revision().saturating_sub(keeps)) {
        Ok(_) | Err(StoreError::Compacted { .. } | StoreError::Write(_)) => {}
        Err(error) => panic!("compaction: {error}"),
    }
}

/// Runs clients beside two compactions. One of the compactions also calls `meanwhile`.
fn run(store: &Store, seed: u64, rounds: u64, mut meanwhile: impl FnMut() + Send) {
    let said = thread::scope(|scope| {
        let alive = Arc::new(());
        let (one, other) = (Arc::downgrade(&alive), Arc::downgrade(&alive));
        scope.spawn(move || {
            while one.strong_count() > 0 {
                compact(store, 3);
                meanwhile();
                thread::yield_now();
            }
        });
        scope.spawn(move || {
            while other.strong_count() > 0 {
                compact(store, 10);
                thread::yield_now();
            }
        });
        let client = |n| scope.spawn(move || client(store, Random(seed ^ n), rounds));
        let clients: Vec<_> = (1..=THREADS).map(client).collect();
        let said: Vec<_> =
            clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
        drop(alive);
        said
    });
    let last = check(said);
    let all = KeyRange::Span(Key::default(), None);
    if let Ok(found) = store.read(&all, None, 10) {
        assert!(found.entries.iter().eq(last.values()), "what is there in the end");
    }
}

/// Entries at each revision that can be read.
fn history(store: &Store) -> Vec<Vec<Entry>> {
    let all = KeyRange::Span(Key::default(), None);
    let read = |at| store.read(&all, Some(at), 10).expect("it can be read").entries;
    (store.compacted()..=store.revision()).map(read).collect()
}

fn handles() -> (Runtime, [Option<Handle>; 2]) {
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
        .start()
        .unwrap();
    let handle = runtime.handle();
    (runtime, [None, Some(handle)])
}

#[test]
fn transactions_are_serial_whichever_flushes_fail() {
    let seed = seed();
    println!("EG_TEST_SEED={seed}");
    let rounds = times("TXN_KV_ROUNDS", 300);
    let (_runtime, handles) = handles();
    for design in Design::ALL {
        for handle in &handles {
            for every in [0, 3, 20] {
                let memory = Arc::new(Memory::new());
                let failing = |every| Failing {
                    memory: Arc::clone(&memory),
                    commits: AtomicU64::new(0),
                    every,
                };
                // The small limit ends batches behind any transaction.
                let limits = Limits { flush_bytes: 1_000, ..Limits::default() };
                let store = Store::open(failing(every), design, limits, handle.clone());
                let store = store.unwrap();
                run(&store, seed, rounds, || {});
                store.check().unwrap();
                let before = history(&store);
                drop(store);
                let again = Store::open(failing(0), design, limits, None).unwrap();
                assert_eq!(history(&again), before, "after a restart");
                again.check().unwrap();
            }
        }
    }
}

#[test]
fn transactions_are_serial_on_a_disk_that_fails_now_and_then() {
    let seed = seed();
    println!("EG_TEST_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, handles) = handles();
    for (n, handle) in handles.into_iter().enumerate() {
        let faults = Faults::default();
        let path = folder.path().join(n.to_string());
        let engine = || open(&path, &faults);
        let store = Store::open(engine(), Design::Publish, Limits::default(), handle).unwrap();
        let mut random = Random(seed);
        let orders = faults.clone();
        run(&store, seed, times("TXN_KV_ROUNDS", 300), move || {
            let action = random.pick(&[Action::Write, Action::Sync, Action::SetLen, Action::Read]);
            orders.clear();
            if random.percent(20) {
                orders.fail(action, 1 + random.below(3), libc::EIO);
            }
        });
        faults.clear();
        // The first write may have to repair what the last failure has left.
        let touch = || {
            let put = Op::Put { key: Key::from(*b"z"), value: Box::default() };
            ask::run(&store, Txn { then: vec![put], ..Txn::default() })
        };
        assert!(touch().is_ok() || touch().is_ok(), "it goes on");
        store.check().unwrap();
        let before = history(&store);
        drop(store);
        let again = Store::open(engine(), Design::Publish, Limits::default(), None).unwrap();
        assert_eq!(history(&again), before, "after a restart");
        again.check().unwrap();
    }
}

fn open(path: &Path, faults: &Faults) -> Disk {
    let (path, faults) = (path.to_owned(), faults.clone());
    Disk::with(DiskOptions::default(), move || {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        let file = redb::backends::FileBackend::new(file).map_err(std::io::Error::other)?;
        Ok(Faulty::new(file, faults.clone()))
    })
    .unwrap()
}
