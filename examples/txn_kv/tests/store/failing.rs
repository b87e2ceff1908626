//! The disk is full, or fails. The callers get errors, and nothing of their transactions is
//! visible. Reads go on, and writes go on as soon as they can.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use epoll_group::client::{Client, Fate, Options};
use epoll_group::{Config, Runtime};
use lab::LONG;
use lab::random::{Random, seed, times};
use txn_kv::client::{Kv, KvError};
use txn_kv::engine::{Disk, DiskOptions};
use txn_kv::serve::{self, Server};
use txn_kv::store::{Limits, Store};
use txn_kv::{Compare, Design, Key, KeyRange, Op, Relation, StoreError, Target, Txn};

use crate::support::ask::{self, begin, outcome};
use crate::support::faulty::{Action, Faults, Faulty};
use crate::support::forgetful::Forgetful;
use crate::support::history::{self, History};

fn disk(file: &Forgetful, faults: &Faults) -> Disk {
    let (file, faults) = (file.clone(), faults.clone());
    // Without a cache, so that reads go to the file.
    let options = DiskOptions { cache_bytes: 0, ..DiskOptions::default() };
    Disk::with(options, move || Ok(Faulty::new(file.clone(), faults.clone()))).expect("it opens")
}

fn open(file: &Forgetful, faults: &Faults) -> Store {
    let disk = disk(file, faults);
    Store::open(disk, Design::Publish, Limits::default(), None).expect("it opens")
}

fn key(name: &str) -> Key {
    name.as_bytes().into()
}

fn put(name: &str, value: &str) -> Op {
    Op::Put { key: key(name), value: value.as_bytes().into() }
}

fn has(name: &str, value: &str) -> Compare {
    let target = Target::Value(value.as_bytes().into());
    Compare { key: key(name), relation: Relation::Equal, target }
}

fn value(store: &Store, name: &str) -> Option<String> {
    let found = store.read(&KeyRange::One(key(name)), None, 1).expect("reads go on");
    let value = found.entries.first()?.record.value.clone()?;
    Some(String::from_utf8(value.into()).expect("a text"))
}

#[test]
fn client_hears_of_a_full_disk_and_the_server_goes_on() {
    let faults = Faults::default();
    let disk = disk(&Forgetful::new(Vec::new()), &faults);
    let server = Server::start_on(disk, &serve::Options::new("u", "p").threads(2)).expect("serves");
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(1))
        .start()
        .expect("started");
    let options = Options::new(server.address().to_string(), "u").password("p");
    let client = Client::new(&runtime.handle(), options.request_timeout(LONG)).expect("good");
    let mut kv = Kv::new(client.session().expect("a session"));
    let mut reader = Kv::new(client.session().expect("a session"));
    // The values take more than one page. Less stays in memory.
    let mut revision = 0;
    for n in 0..20 {
        revision = kv.put(&[n], &[n; 5000]).expect("there is room");
    }
    for round in 0..5 {
        let good = format!("good {round}");
        let next = kv.put(b"key", good.as_bytes()).expect("there is room");
        assert_eq!(next, revision + 1, "a transaction that failed has left a gap");
        revision = next;
        faults.fill();
        for _ in 0..20 {
            let error: KvError = kv.put(b"key", b"bad").expect_err("the disk is full");
            assert!(error.to_string().contains("No space left on device"), "{error}");
            assert_eq!(error.fate(), Fate::Unknown, "after a crash it may be there");
            let before = faults.actions();
            let entry = reader.get(b"key").expect("reads go on").expect("it is there");
            assert_eq!(entry.record.value.as_deref(), Some(good.as_bytes()));
            assert_eq!(entry.revision.main, revision);
            assert!(faults.actions() > before, "the file was not read");
        }
        faults.clear();
    }
    assert_eq!(server.store().revision(), revision);
    assert_eq!(server.store().stats().failed_flushes, 100);
    assert_eq!(server.store().check().expect("they agree"), revision);
}

#[test]
fn what_builds_on_a_failed_transaction_fails_with_it() {
    for (action, errno) in [(Action::Sync, libc::EIO), (Action::Write, libc::ENOSPC)] {
        let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
        let store = open(&file, &faults);
        ask::run(&store, Txn { then: vec![put("a", "old")], ..Txn::default() })
            .expect("it is written");
        faults.hold_syncs();
        thread::scope(|scope| {
            // The first transaction leads, and waits for the disk.
            let first = Txn { then: vec![put("a", "new")], ..Txn::default() };
            let first = scope.spawn(|| ask::run(&store, first));
            faults.wait_for_sync();
            let then = vec![put("b", "saw new")];
            let second = Txn { compares: vec![has("a", "new")], then, ..Txn::default() };
            let second = begin(&store, second);
            // It could write, so that it is done on what is staged.
            let get = Op::Get { range: KeyRange::One(key("a")), limit: 1 };
            let then = vec![get, Op::Delete(KeyRange::One(key("none")))];
            let third = begin(&store, Txn { then, ..Txn::default() });
            assert_eq!(value(&store, "a").as_deref(), Some("old"), "it is not durable yet");
            faults.fail(action, if action == Action::Sync { 1 } else { 0 }, errno);
            if action == Action::Write {
                // The first transaction succeeds, and those behind it fail.
                faults.fill();
            }
            faults.release_syncs();
            let first = first.join().expect("no panic");
            assert_eq!(first.is_err(), action == Action::Sync, "{first:?}");
            let second = outcome(&second);
            assert!(matches!(second, Err(StoreError::Write(_))), "{second:?}");
            let third = outcome(&third);
            assert!(third.is_err(), "it would have told what is not there: {third:?}");
        });
        let now = if action == Action::Sync { "old" } else { "new" };
        assert_eq!(value(&store, "a").as_deref(), Some(now));
        assert_eq!(value(&store, "b"), None);
        faults.clear();
        // The next transaction sees the state without them.
        let (then, otherwise) = (vec![put("c", "new")], vec![put("c", "old")]);
        let txn = Txn { compares: vec![has("a", "new")], then, otherwise };
        assert_eq!(ask::run(&store, txn).expect("it is written").succeeded, now == "new");
        assert_eq!(value(&store, "c").as_deref(), Some(now));
        store.check().expect("they agree");
        drop(store);
        let store = open(&Forgetful::new(file.cut()), &Faults::default());
        assert_eq!((value(&store, "a").as_deref(), value(&store, "b")), (Some(now), None));
    }
}

/// Makes writes and syncs fail, each time until one has failed, and mostly until a transaction has
/// succeeded again. `TXN_KV_FAULTS` sets how often.
fn fail_now_and_then(
    faults: &Faults,
    store: &Store,
    random: &mut Random,
    goes_on: impl Fn() -> bool,
) {
    for _ in 0..times("TXN_KV_FAULTS", 60) {
        let before = faults.failed();
        let action = random.pick(&[Action::Write, Action::Write, Action::Sync]);
        match random.below(4) {
            0 => faults.fill(),
            n => faults.fail(action, 1 << n, random.pick(&[libc::ENOSPC, libc::EIO])),
        }
        while faults.failed() == before && goes_on() {
            thread::yield_now();
        }
        if random.percent(70) {
            faults.clear();
            let revision = store.revision();
            while store.revision() == revision && goes_on() {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn nothing_of_a_failed_transaction_is_ever_seen() {
    let seed = seed();
    println!("EG_TEST_SEED={seed}");
    let mut random = Random(seed);
    let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
    let store = open(&file, &faults);
    let mut histories: Vec<_> = (0..4).map(History::new).collect();
    let over = &AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let mut writers = Vec::new();
        for history in &mut histories {
            let (mut store, mut random) = (store.clone(), Random(random.next()));
            writers.push(scope.spawn(move || {
                let mut failed = 0;
                while !over.load(Ordering::Relaxed) {
                    match history.write(&mut store, &mut random) {
                        Ok(()) => {}
                        Err(StoreError::Write(_)) => {
                            history.failed();
                            failed += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                failed
            }));
        }
        let (reading, mut place) = (&store, Random(random.next()));
        let reader = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let n = place.below(history::GROUPS.into()) as u8;
                let found = reading.read(&history::group(n), None, 100).expect("reads go on");
                history::assert_whole(&found.entries);
            }
        });
        let threads = || writers.iter().map(|writer| writer.is_finished());
        let goes_on = || !reader.is_finished() && !threads().any(|is_finished| is_finished);
        fail_now_and_then(&faults, &store, &mut random, goes_on);
        faults.clear();
        over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader found nothing");
        writers.into_iter().map(|writer| writer.join().expect("no panic")).sum::<u64>()
    });
    println!("{} succeeded, {failed} failed", history::transactions(&histories));
    assert!(failed > 0);
    history::check(&store, &mut histories);
    drop(store);
    // All of it is on the disk, too.
    let store = open(&Forgetful::new(file.cut()), &Faults::default());
    history::check(&store, &mut histories);
}
