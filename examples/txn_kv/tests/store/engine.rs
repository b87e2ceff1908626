//! Both engines keep the promises of `Engine`; the one on disk also when its file is opened again.

mod cuts;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lab::workers::workers;
use lab::{LONG, eventually};
use proptest::prelude::*;
use txn_kv::engine::{Batch, Disk, DiskOptions, Engine, EngineError, Head, Memory};
use txn_kv::store::{Limits, Store};
use txn_kv::{Design, Key, KeyRange, Op, Record, Revision, Txn};

use crate::support::ask::run;
use crate::support::faulty::{Action, Faults, Faulty};
use crate::support::forgetful::Forgetful;

/// Runs a test with each of the two engines.
fn each(test: impl Fn(&dyn Engine)) {
    test(&Memory::new());
    test(&disk(&Forgetful::new(Vec::new()), &Faults::default()));
}

fn disk(file: &Forgetful, faults: &Faults) -> Disk {
    let (file, faults) = (file.clone(), faults.clone());
    let open = move || Ok(Faulty::new(file.clone(), faults.clone()));
    let options = DiskOptions { reopen_after: Duration::ZERO, ..DiskOptions::default() };
    Disk::with(options, open).expect("it opens")
}

/// Options with which reads go to the file, and a failed database is opened again at once.
const EAGER: DiskOptions = DiskOptions { cache_bytes: 0, reopen_after: Duration::ZERO };

fn at(main: u64, sub: u32) -> Revision {
    Revision { main, sub }
}

fn record(key: &str, value: &str) -> Arc<Record> {
    let (key, value) = (key.as_bytes().into(), value.as_bytes().into());
    Arc::new(Record { key, created: 1, version: 1, value: Some(value) })
}

fn put(main: u64, value: &str) -> Batch {
    let records = vec![(at(main, 0), record("key", value))];
    Batch { records, removed: Vec::new(), head: Head { revision: main, compacted: 0 } }
}

type Contents = BTreeMap<Revision, Record>;

fn contents(engine: &dyn Engine) -> Result<(Head, Contents), EngineError> {
    let snapshot = engine.snapshot()?;
    let mut found = BTreeMap::new();
    let mut in_order = Vec::new();
    snapshot.scan(&mut |revision, record| {
        in_order.push(revision);
        found.insert(revision, record);
    })?;
    assert!(in_order.is_sorted_by(|a, b| a < b), "{in_order:?}");
    for (revision, record) in &found {
        assert_eq!(snapshot.get(*revision)?.as_deref(), Some(record));
    }
    Ok((snapshot.head()?, found))
}

#[test]
fn new_engine_is_empty() {
    each(|engine| {
        assert_eq!(contents(engine).unwrap(), (Head::default(), BTreeMap::new()));
        assert_eq!(engine.snapshot().unwrap().get(at(1, 0)).unwrap(), None);
    });
}

#[test]
fn what_is_committed_is_in_later_snapshots() {
    each(|engine| {
        let deletion = Record { key: (*b"b").into(), created: 0, version: 0, value: None };
        let records = vec![
            (at(3, 0), record("a", "")),
            (at(3, 1), Arc::new(deletion.clone())),
            (at(4, 0), record("c", "three")),
        ];
        let head = Head { revision: 4, compacted: 2 };
        engine.commit(&Batch { records, removed: Vec::new(), head }).unwrap();
        let (found, records) = contents(engine).unwrap();
        assert_eq!(found, head);
        assert_eq!(records.len(), 3);
        assert_eq!(records[&at(3, 0)], *record("a", ""));
        assert_eq!(records[&at(3, 1)], deletion);
        assert_eq!(engine.snapshot().unwrap().get(at(3, 2)).unwrap(), None);
    });
}

#[test]
fn what_is_removed_is_gone_and_the_head_stays() {
    each(|engine| {
        engine.commit(&put(1, "one")).unwrap();
        engine.commit(&put(2, "two")).unwrap();
        let head = Head { revision: 2, compacted: 2 };
        let removed = vec![at(1, 0), at(2, 0), at(7, 7)];
        engine.commit(&Batch { records: Vec::new(), removed, head }).unwrap();
        assert_eq!(contents(engine).unwrap(), (head, BTreeMap::new()));
    });
}

#[test]
fn snapshot_on_disk_shows_one_moment_beside_commits() {
    let disk = disk(&Forgetful::new(Vec::new()), &Faults::default());
    disk.commit(&put(1, "one")).unwrap();
    let before = disk.snapshot().unwrap();
    for main in 2..200 {
        // Another thread commits, because a thread that holds a snapshot does not commit.
        std::thread::scope(|scope| scope.spawn(|| disk.commit(&put(main, "later"))).join())
            .unwrap()
            .unwrap();
    }
    assert_eq!(before.head().unwrap().revision, 1);
    assert_eq!(before.get(at(1, 0)).unwrap(), Some(record("key", "one")));
    assert_eq!(before.get(at(2, 0)).unwrap(), None);
    drop(before);
    assert_eq!(contents(&disk).unwrap().1.len(), 199);
}

#[test]
fn file_that_is_opened_again_has_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/with/it");
    let disk = Disk::open(&path).unwrap();
    disk.commit(&put(1, "one")).unwrap();
    let second = Disk::open(&path).expect_err("it is open already").to_string();
    assert!(second.starts_with("open the database: "), "{second}");
    disk.commit(&put(2, "two")).unwrap();
    let before = contents(&disk).unwrap();
    drop(disk);
    assert_eq!(contents(&Disk::open(&path).unwrap()).unwrap(), before);
    let files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(before.1.len(), 2);
}

#[test]
fn file_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.redb");
    for text in ["no database\n".repeat(1000), String::new()] {
        std::fs::write(&path, &text).unwrap();
        Disk::open(folder.path()).expect_err("it is no database");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    Disk::open(&path).expect_err("it is no folder");
}

/// Every action of a commit fails in turn, once each, and for good until the disk is mended.
#[test]
fn failed_commit_is_in_no_snapshot_and_the_next_succeeds() {
    for action in [Action::Write, Action::Sync, Action::SetLen] {
        for times in [1, 1000] {
            let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
            let disk = disk(&file, &faults);
            let mut main = 0;
            let mut good = contents(&disk).unwrap();
            // Values are large enough that the file grows now and then.
            let large = "x".repeat(40_000);
            for round in 0..40 {
                main += 1;
                faults.fail(action, times, libc::EIO);
                match disk.commit(&put(main, &large)) {
                    Err(error) => {
                        assert!(error.to_string().contains("os error 5"), "{error}");
                        assert_eq!(contents(&disk).unwrap(), good, "{action:?} {round}");
                    }
                    Ok(()) => assert_eq!(action, Action::SetLen, "only lengths are rarely set"),
                }
                faults.clear();
                main += 1;
                disk.commit(&put(main, &format!("{round} {large}"))).unwrap();
                let now = contents(&disk).unwrap();
                assert!(now.1.contains_key(&at(main, 0)));
                if faults.failed() > 0 && action != Action::SetLen {
                    assert!(!now.1.contains_key(&at(main - 1, 0)), "{action:?} {round}");
                }
                good = now;
            }
            assert!(faults.failed() > 0, "{action:?} never failed");
            drop(disk);
            // All of it is on the disk, not only in the memory of the layers.
            let found = Disk::with(DiskOptions::default(), {
                let image = file.cut();
                move || Ok(Forgetful::new(image.clone()))
            });
            assert_eq!(contents(&found.unwrap()).unwrap(), good);
        }
    }
}

#[test]
fn reads_go_on_while_the_disk_is_full() {
    let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
    let disk = {
        let faults = faults.clone();
        Disk::with(EAGER, move || Ok(Faulty::new(file.clone(), faults.clone()))).unwrap()
    };
    for main in 1..=50 {
        disk.commit(&put(main, &"x".repeat(5000))).unwrap();
    }
    let good = contents(&disk).unwrap();
    faults.fill();
    for main in 51..=60 {
        let error = disk.commit(&put(main, "more")).expect_err("the disk is full");
        assert!(error.to_string().contains("No space left"), "{error}");
        let before = faults.actions();
        assert_eq!(contents(&disk).unwrap(), good);
        assert!(faults.actions() > before + 50, "the file was read");
    }
    faults.clear();
    disk.commit(&put(61, "at last")).unwrap();
    let (head, records) = contents(&disk).unwrap();
    assert_eq!((head.revision, records.len()), (61, 51));
}

#[test]
fn failed_removal_is_taken_back() {
    let faults = Faults::default();
    let disk = disk(&Forgetful::new(Vec::new()), &faults);
    disk.commit(&put(1, "one")).unwrap();
    disk.commit(&put(2, "two")).unwrap();
    let good = contents(&disk).unwrap();
    for errno in [libc::ENOSPC, libc::EIO] {
        faults.fail(Action::Sync, 1, errno);
        let head = Head { revision: 2, compacted: 2 };
        let removed = vec![at(1, 0), at(2, 0)];
        disk.commit(&Batch { records: Vec::new(), removed, head }).expect_err("it fails");
        assert_eq!(contents(&disk).unwrap(), good);
    }
    disk.commit(&Batch { head: good.0, ..Batch::default() }).unwrap();
    assert_eq!(contents(&disk).unwrap(), good);
}

#[test]
fn failed_commit_is_not_found_after_an_ordinary_stop() {
    let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
    let first = disk(&file, &faults);
    first.commit(&put(1, "one")).unwrap();
    let good = contents(&first).unwrap();
    drop(first);
    let compacts = Batch { head: Head { revision: 1, compacted: 1 }, ..Batch::default() };
    for fails in [put(2, "two"), compacts] {
        let disk = disk(&file, &faults);
        faults.fail(Action::Sync, 1, libc::EIO);
        disk.commit(&fails).expect_err("it fails");
        drop(disk);
    }
    assert_eq!(contents(&disk(&file, &faults)).unwrap(), good);
}

#[test]
fn failed_read_is_an_error_and_later_ones_succeed() {
    let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
    let commands = faults.clone();
    let disk = Disk::with(EAGER, move || Ok(Faulty::new(file.clone(), commands.clone()))).unwrap();
    for main in 1..=50 {
        disk.commit(&put(main, &"x".repeat(5000))).unwrap();
    }
    let good = contents(&disk).unwrap();
    faults.fail(Action::Read, 1, libc::EIO);
    contents(&disk).expect_err("a read fails");
    assert_eq!(contents(&disk).unwrap(), good);
    // A read fails in a commit that has to take out what a failed commit has left.
    faults.fail(Action::Sync, 1, libc::EIO);
    disk.commit(&put(51, "sync fails")).expect_err("the sync fails");
    faults.fail(Action::Read, 1, libc::EIO);
    disk.commit(&put(52, "read fails")).expect_err("a read fails");
    assert_eq!(contents(&disk).unwrap(), good);
    disk.commit(&put(53, "good")).unwrap();
    let (head, records) = contents(&disk).unwrap();
    assert_eq!((head.revision, records.len()), (53, 51));
    // For a while the database cannot even be opened again.
    faults.fail(Action::Read, 1_000_000, libc::EIO);
    for _ in 0..3 {
        contents(&disk).expect_err("reads fail");
        disk.commit(&put(54, "no")).expect_err("reads fail");
    }
    faults.clear();
    assert_eq!(contents(&disk).unwrap(), (head, records));
    disk.commit(&put(55, "good")).unwrap();
}

#[test]
fn a_reader_waits_for_other_snapshots_and_opens_the_database_again() {
    let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
    let commands = faults.clone();
    let open = move || Ok(Faulty::new(file.clone(), commands.clone()));
    let disk = Arc::new(Disk::with(EAGER, open).unwrap());
    for main in 1..=50 {
        disk.commit(&put(main, &"x".repeat(5000))).unwrap();
    }
    let good = contents(&*disk).unwrap();
    let other = disk.snapshot().unwrap();
    faults.fail(Action::Read, 1, libc::EIO);
    other.get(at(1, 0)).expect_err("the read fails");
    let runtime = workers(1);
    let (tell, told) = mpsc::channel();
    let reader = Arc::clone(&disk);
    let read = move || drop(tell.send(contents(&*reader)));
    runtime.handle().spawn(read).unwrap();
    eventually(LONG, || runtime.stats().stalled_threads == 1);
    drop(other);
    assert_eq!(told.recv_timeout(LONG).unwrap().unwrap(), good);
}

#[test]
fn readers_open_the_database_again_also_after_a_commit_that_panicked() {
    let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
    let (commands, panics) = (faults.clone(), Arc::new(AtomicBool::new(false)));
    let panics_now = Arc::clone(&panics);
    let open = move || {
        assert!(!panics_now.swap(false, Ordering::Relaxed), "a panic that is meant");
        Ok(Faulty::new(file.clone(), commands.clone()))
    };
    let disk = Disk::with(EAGER, open).unwrap();
    disk.commit(&put(1, "one")).unwrap();
    let good = contents(&disk).unwrap();
    faults.fail(Action::Read, 1, libc::EIO);
    contents(&disk).expect_err("a read fails");
    panics.store(true, Ordering::Relaxed);
    let commit = AssertUnwindSafe(|| disk.commit(&put(2, "two")));
    catch_unwind(commit).expect_err("the file cannot be opened");
    assert_eq!(contents(&disk).unwrap(), good);
}

/// The place that is read next cannot be read from then on, not even when the file is opened again.
#[test]
fn an_unreadable_place_is_not_read_again_and_again() {
    let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
    let commands = faults.clone();
    let options = DiskOptions { reopen_after: LONG, ..EAGER };
    let open = move || Ok(Faulty::new(file.clone(), commands.clone()));
    let disk = Disk::with(options, open).unwrap();
    for main in 1..=50 {
        disk.commit(&put(main, &"x".repeat(5000))).unwrap();
    }
    let store = Store::open(disk, Design::Publish, Limits::default(), None).unwrap();
    let read = || store.read(&KeyRange::One(Key::from(&b"key"[..])), None, 1);
    faults.lose_place();
    read().expect_err("the place cannot be read");
    let first = read().expect_err("the file cannot be opened again").to_string();
    assert!(first.contains("os error 5"), "{first}");
    let before = faults.actions();
    for _ in 0..100 {
        assert_eq!(read().expect_err("there is no database").to_string(), first);
    }
    let put = Op::Put { key: Key::from(&b"key"[..]), value: Box::default() };
    let put = Txn { then: vec![put], ..Txn::default() };
    run(&store, put).expect_err("there is no database");
    assert_eq!(faults.actions(), before, "neither reads nor commits have opened the file");
}

#[test]
fn a_failed_commit_is_taken_out_at_a_stop_also_between_two_tries() {
    let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
    let (below, commands) = (file.clone(), faults.clone());
    let options = DiskOptions { reopen_after: LONG, ..EAGER };
    let open = move || Ok(Faulty::new(below.clone(), commands.clone()));
    let first = Disk::with(options, open).unwrap();
    first.commit(&put(1, "one")).unwrap();
    let good = contents(&first).unwrap();
    faults.fail(Action::Sync, 1, libc::EIO);
    first.commit(&put(2, "two")).expect_err("the sync fails");
    faults.fail(Action::Read, 2, libc::EIO);
    contents(&first).expect_err("a read fails");
    contents(&first).expect_err("the file cannot be opened again");
    assert_eq!(faults.failed(), 3);
    drop(first);
    assert_eq!(contents(&disk(&file, &faults)).unwrap(), good);
}

/// The first database refuses everything after a read has failed. While the file is opened again, a
/// sync fails.
#[test]
fn what_fails_while_the_file_is_opened_again_is_on_the_disk_later() {
    for skip in 0..20 {
        let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
        let (below, commands) = (file.clone(), faults.clone());
        let open = move || Ok(Faulty::new(below.clone(), commands.clone()));
        let disk = Disk::with(EAGER, open).unwrap();
        disk.commit(&put(1, "one")).unwrap();
        let compacts = Batch { head: Head { revision: 1, compacted: 1 }, ..Batch::default() };
        faults.fail(Action::Sync, 1, libc::EIO);
        disk.commit(&compacts).expect_err("the sync fails");
        faults.fail(Action::Read, 1, libc::EIO);
        disk.commit(&compacts).expect_err("a read fails");
        faults.fail_after(Action::Sync, skip, 1, libc::EIO);
        // The commit fails, unless it needs at most `skip` syncs.
        let _ = disk.commit(&compacts);
        faults.clear();
        disk.commit(&put(2, "two")).unwrap();
        let good = contents(&disk).unwrap();
        let cut = Forgetful::new(file.cut());
        let found = Disk::with(DiskOptions::default(), move || Ok(cut.clone()));
        let found = found.unwrap_or_else(|error| panic!("after {skip} syncs: {error}"));
        assert_eq!(contents(&found).unwrap(), good, "after {skip} syncs");
    }
}

/// The file is replaced by an older one, which lacks the second commit, before it is opened again.
/// The third commit has failed, and is to be taken out then.
#[test]
fn a_file_without_an_acknowledged_commit_is_refused_also_after_a_failed_commit() {
    let compacts = Batch { head: Head { revision: 1, compacted: 1 }, ..Batch::default() };
    for second in [put(2, "two"), compacts] {
        let older = Forgetful::new(Vec::new());
        disk(&older, &Faults::default()).commit(&put(1, "one")).unwrap();
        let older = older.cut();
        let (file, faults) = (Forgetful::new(older.clone()), Faults::default());
        let (below, commands, opened) = (file.clone(), faults.clone(), AtomicU64::new(0));
        let open = move || {
            let is_second = opened.fetch_add(1, Ordering::Relaxed) == 1;
            let file = if is_second { Forgetful::new(older.clone()) } else { below.clone() };
            Ok(Faulty::new(file, commands.clone()))
        };
        let disk = Disk::with(EAGER, open).unwrap();
        disk.commit(&second).unwrap();
        let good = contents(&disk).unwrap();
        faults.fail(Action::Sync, 1, libc::EIO);
        let third = Batch { head: Head { revision: 3, ..second.head }, ..put(3, "three") };
        disk.commit(&third).expect_err("the sync fails");
        faults.fail(Action::Read, 1, libc::EIO);
        contents(&disk).expect_err("a read fails");
        let lost = disk.commit(&third).expect_err("the file lacks a commit").to_string();
        assert!(lost.contains(&format!("{} was acknowledged", second.head)), "{lost}");
        assert_eq!(contents(&disk).unwrap(), good, "the file itself is opened");
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Sizes of the new values, and the records to remove, counted from the oldest.
    Commit {
        values: Vec<usize>,
        removed: Vec<prop::sample::Index>,
        compacts: bool,
    },
    Fail {
        action: Action,
        times: u64,
    },
    Mend,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let values = prop::collection::vec(prop_oneof![0..40_usize, 3000..9000_usize], 0..6);
    let removed = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
    let actions = [Action::Read, Action::Write, Action::SetLen, Action::Sync];
    prop_oneof![
        12 => (values, removed, any::<bool>())
            .prop_map(|(values, removed, compacts)| Step::Commit { values, removed, compacts }),
        3 => (prop::sample::select(actions.to_vec()), 1..5_u64)
            .prop_map(|(action, times)| Step::Fail { action, times }),
        2 => Just(Step::Mend),
        1 => Just(Step::Reopen),
    ]
}

/// Returns the next batch after this state.
fn batch(
    (head, records): &(Head, Contents),
    next: u64,
    values: &[usize],
    removed: &[prop::sample::Index],
    compacts: bool,
) -> Batch {
    let all: Vec<_> = records.keys().copied().collect();
    let removed = removed.iter().filter(|_| !all.is_empty()).map(|index| *index.get(&all));
    let revision = if values.is_empty() { head.revision } else { next };
    let written = values
        .iter()
        .zip(0..)
        .map(|(bytes, sub)| (at(revision, sub), record(&format!("{sub}"), &"v".repeat(*bytes))));
    let compacted = if compacts { head.revision } else { head.compacted };
    let head = Head { revision, compacted };
    Batch { records: written.collect(), removed: removed.collect(), head }
}

fn apply((head, records): &mut (Head, Contents), batch: &Batch) {
    for (revision, record) in &batch.records {
        records.insert(*revision, Record::clone(record));
    }
    for revision in &batch.removed {
        records.remove(revision);
    }
    *head = batch.head;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn engines_do_what_a_map_does(steps in prop::collection::vec(step(), 1..40)) {
        let (file, faults) = (Forgetful::new(Vec::new()), Faults::default());
        let mut on_disk = Some(disk(&file, &faults));
        let memory = Memory::new();
        let mut twin = (Head::default(), Contents::new());
        let mut next = 0;
        for step in steps {
            let engine = on_disk.as_ref().expect("it is open");
            match step {
                Step::Commit { values, removed, compacts } => {
                    next += 1;
                    let batch = batch(&twin, next, &values, &removed, compacts);
                    if engine.commit(&batch).is_ok() {
                        memory.commit(&batch).expect("memory does not fail");
                        apply(&mut twin, &batch);
                    }
                }
                Step::Fail { action, times } => faults.fail(action, times, libc::ENOSPC),
                Step::Mend => faults.clear(),
                Step::Reopen => {
                    faults.clear();
                    drop(on_disk.take());
                    on_disk = Some(disk(&file, &faults));
                }
            }
            prop_assert_eq!(&contents(&memory).expect("memory does not fail"), &twin);
            if let Ok(found) = contents(on_disk.as_ref().expect("it is open")) {
                prop_assert_eq!(&found, &twin);
            }
        }
        faults.clear();
        let on_disk = on_disk.expect("it is open");
        // The first read may still find the database broken and open it again.
        prop_assert_eq!(&contents(&on_disk).expect("nothing fails"), &twin);
        on_disk.commit(&batch(&twin, next + 1, &[1], &[], false)).expect("nothing fails");
    }
}
