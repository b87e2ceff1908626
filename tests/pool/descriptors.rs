//! Reconnecting without descriptors, in a child process that may have 64.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use epoll_group::pool::{GetError, Pool, Pooled};

use crate::checkout::Tcp;
use crate::support::{late, limits, soon};
use lab::child::{Puppet, is_child, obey};
use lab::{LONG, eventually};

/// Opens files until the process has no descriptor left.
fn take_all(held: &mut Vec<File>) -> usize {
    held.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
    held.len()
}

/// Breaks the connections of a pool while there is no descriptor for new ones.
fn reconnect_without_descriptors() {
    let backend = TcpListener::bind("127.0.0.1:0").expect("a port");
    let key = backend.local_addr().expect("TCP");
    let pool = Pool::builder(Tcp).limits(limits(2)).build().expect("good limits");
    let status = || pool.status_of(&key).expect("a backend");
    let conns = [(); 2].map(|()| pool.get(&key).expect("a connection"));

    let mut held = Vec::new();
    let before = take_all(&mut held);
    conns.into_iter().for_each(Pooled::discard);
    eventually(LONG, || take_all(&mut held) >= before + 2);

    let (give, given) = mpsc::channel();
    let give_then = give.clone();
    pool.backend(&key)
        .unwrap()
        .get_then(late(), move |got| give_then.send(got).expect("the test listens"));
    let waits = thread::spawn({
        let pool = pool.clone();
        move || give.send(pool.backend(&key).unwrap().get_before(late())).expect("the test listens")
    });
    eventually(LONG, || status().waiting == 2 && status().failures >= 3);
    let error = status().last_error.expect("connects fail");
    let errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    assert_eq!(errno, Some(libc::EMFILE), "{error}");
    assert!(matches!(
        pool.backend(&key).unwrap().get_before(soon()),
        Err(GetError::Timeout { .. })
    ));
    assert_eq!((status().in_use, status().idle), (0, 0));
    assert!(given.try_recv().is_err(), "both wait on");

    held.clear();
    // Both keep their connections, so that there are two.
    let conns = [(); 2].map(|()| given.recv_timeout(LONG).expect("called").expect("a connection"));
    waits.join().expect("no panic");
    assert_eq!((status().in_use, status().waiting, status().failures), (2, 0, 0));
    drop(conns);
    assert_eq!((status().in_use, status().idle, status().connecting), (0, 2, 0));
}

#[test]
fn callers_wait_while_there_are_no_descriptors_and_get_connections_once_there_are() {
    if is_child() {
        return obey(|_| {
            reconnect_without_descriptors();
            "done".to_owned()
        });
    }
    assert_eq!(Puppet::start(64).ask("run"), "done");
}
