//! 200 clients that all want one row, while whoever has it waits for the disk.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use epoll_group::client::{Client, Options};
use epoll_group::{Runtime, stall};
use txn_kv::client::{Done, Kv, KvError};
use txn_kv::engine::{Batch, Engine, EngineError, Memory, Snapshot};
use txn_kv::serve::{self, Server};
use txn_kv::{Compare, Key, KeyRange, Op, Relation, Target, Txn};

/// A hang fails the test.
const LONG: Duration = Duration::from_secs(60);
const CLIENTS: u64 = 200;
const BASE: usize = 4;

/// An engine whose reads wait while it is closed.
#[derive(Clone, Default)]
struct SlowDisk(Arc<Inner>);

#[derive(Default)]
struct Inner {
    memory: Memory,
    closed: Mutex<bool>,
    opened: Condvar,
}

impl SlowDisk {
    fn close(&self, closed: bool) {
        *self.0.closed.lock().unwrap() = closed;
        self.0.opened.notify_all();
    }
}

impl Engine for SlowDisk {
    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        self.0.memory.commit(batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        let closed = self.0.closed.lock().unwrap();
        drop(stall::run(|| self.0.opened.wait_while(closed, |closed| *closed)));
        self.0.memory.snapshot()
    }
}

/// Looks at the value of the row, for which the disk is read with the row held, and writes it.
fn look_and_put(key: &[u8]) -> Txn {
    let compare = Compare {
        key: Key::from(key),
        relation: Relation::NotEqual,
        target: Target::Value(b"never"[..].into()),
    };
    let put = Op::Put { key: Key::from(key), value: b"again"[..].into() };
    Txn { compares: vec![compare], then: vec![put], otherwise: Vec::new() }
}

#[test]
fn two_hundred_clients_of_one_row_keep_nobody_else_waiting_and_all_commit() {
    let disk = SlowDisk::default();
    let options = serve::Options::new("root", "secret").threads(BASE);
    let server = Server::start_on(disk.clone(), &options).unwrap();
    let runtime = Runtime::builder().groups(1).threads_per_group(2).start().unwrap();
    let options = Options::new(server.address().to_string(), "root")
        .password("secret")
        .connections(4)
        .request_timeout(LONG);
    let client = Client::new(&runtime.handle(), options).unwrap();
    let kv = || Kv::new(client.session().unwrap());
    kv().put(b"row", b"first").unwrap();

    disk.close(true);
    let (tell, told) = mpsc::channel::<Result<Done, KvError>>();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| kv()).collect();
    for client in &mut clients {
        let tell = tell.clone();
        client.txn_then(&look_and_put(b"row"), move |done| drop(tell.send(done)));
    }
    // All of them wait: one for the disk, and the others for the row.
    let began = Instant::now();
    while server.runtime().stats().stalled_threads < CLIENTS {
        assert!(began.elapsed() < LONG, "{:?}", server.runtime().stats());
        std::thread::yield_now();
    }
    // One of these rows may share its lock with the other, but not all of them.
    let (tell_put, told_put) = mpsc::channel();
    let mut others: Vec<_> = (0..4).map(|_| kv()).collect();
    for (other, key) in others.iter_mut().zip([b"a", b"b", b"c", b"d"]) {
        let tell_put = tell_put.clone();
        other.put_then(key, b"at once", move |revision| drop(tell_put.send(revision)));
    }
    told_put.recv_timeout(LONG).expect("it does not wait for the row").unwrap();
    assert!(told.try_recv().is_err(), "nobody has the row");
    let stats = server.runtime().stats();
    let threads =
        stats.base_threads + stats.dynamic_threads + stats.tasker_threads + stats.reserve_threads;
    // A thread for each that waits, the base ones, and the reserve.
    assert!(threads <= CLIENTS + 2 * BASE as u64, "{threads} threads");

    disk.close(false);
    let done: Vec<_> =
        (0..CLIENTS).map(|_| told.recv_timeout(LONG).expect("all commit").unwrap()).collect();
    assert!(done.iter().all(|done| done.succeeded && done.affected == 1));
    let mut revisions: BTreeSet<_> = done.iter().map(|done| done.revision).collect();
    assert_eq!(revisions.len() as u64, CLIENTS, "each has a revision of its own");
    revisions.insert(1);
    // In the order of revisions each wrote what the one before left.
    let row = KeyRange::One(Key::from(&b"row"[..]));
    for (revision, version) in revisions.into_iter().zip(1..) {
        let found = server.store().read(&row, Some(revision), 1).unwrap();
        let entry = &found.entries[0];
        assert_eq!((entry.revision.main, entry.record.version), (revision, version));
    }
    drop((clients, others));
    assert_eq!(server.drain(LONG).cut, 0);
}
