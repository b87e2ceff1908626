//! 200 clients that all want one row, while its holder waits for the disk.

use std::collections::BTreeSet;
use std::sync::mpsc;

use epoll_group::client::{Client, Options};
use epoll_group::{Config, Runtime};
use lab::{LONG, assert_clean, eventually};
use txn_kv::client::{Done, Kv, KvError};
use txn_kv::serve::{self, Server};
use txn_kv::{Compare, Key, KeyRange, Op, Relation, Target, Txn};

use super::engine::Scripted;

const CLIENTS: u64 = 200;
const BASE: usize = 4;

/// Compares the value of the row and writes it. The comparison reads the disk with the row held.
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
    let disk = Scripted::default();
    let options = serve::Options::new("root", "secret").threads(BASE);
    let server = Server::start_on(disk.clone(), &options).unwrap();
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
        .start()
        .unwrap();
    let options = Options::new(server.address().to_string(), "root")
        .password("secret")
        .connections(4)
        .request_timeout(LONG);
    let client = Client::new(&runtime.handle(), options).unwrap();
    let kv = || Kv::new(client.session().unwrap());
    kv().put(b"row", b"first").unwrap();

    disk.reads.close();
    let (tell, told) = mpsc::channel::<Result<Done, KvError>>();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| kv()).collect();
    for client in &mut clients {
        let tell = tell.clone();
        client.txn_then(&look_and_put(b"row"), move |done| drop(tell.send(done)));
    }
    // All of them wait: one for the disk, and the others for the row.
    eventually(LONG, || server.runtime().stats().stalled_threads >= CLIENTS);
    // Some of these rows may share a lock with `row`, but hardly all of them.
    let (tell_put, told_put) = mpsc::channel();
    let mut others: Vec<_> = (0..4).map(|_| kv()).collect();
    for (other, key) in others.iter_mut().zip([b"a", b"b", b"c", b"d"]) {
        let tell_put = tell_put.clone();
        other.put_then(key, b"at once", move |revision| drop(tell_put.send(revision)));
    }
    told_put.recv_timeout(LONG).expect("it does not wait for the row").unwrap();
    assert!(told.try_recv().is_err(), "nobody has the row");
    let stats = server.runtime().stats();
    let threads = stats.base_threads + stats.dynamic_threads + stats.reserve_threads;
    // A thread for each waiting client, the base threads, and the reserve.
    assert!(threads <= CLIENTS + 2 * BASE as u64, "{threads} threads");

    disk.reads.open();
    let done: Vec<_> =
        (0..CLIENTS).map(|_| told.recv_timeout(LONG).expect("all commit").unwrap()).collect();
    assert!(done.iter().all(|done| done.succeeded && done.affected == 1));
    let mut revisions: BTreeSet<_> = done.iter().map(|done| done.revision).collect();
    assert_eq!(revisions.len() as u64, CLIENTS, "each has a revision of its own");
    revisions.insert(1);
    // In the order of revisions, each transaction wrote on top of the one before.
    let row = KeyRange::One(Key::from(&b"row"[..]));
    for (revision, version) in revisions.into_iter().zip(1..) {
        let found = server.store().read(&row, Some(revision), 1).unwrap();
        let entry = &found.entries[0];
        assert_eq!((entry.revision.main, entry.record.version), (revision, version));
    }
    drop((clients, others));
    assert_clean(&server.drain(LONG));
}
