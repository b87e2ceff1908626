//! Answers that are large.

use std::sync::mpsc;

use txn_kv::service::code;
use txn_kv::store::Limits;
use txn_kv::{Op, Txn};

use super::{Both, failure, from};
use lab::{LONG, eventually};

const KEYS: usize = 2000;
/// All values together are larger than the window of a session.
const VALUE_BYTES: usize = 1 << 10;

fn filled() -> Both {
    let both = Both::start();
    let mut kv = both.kv();
    let (tell, told) = mpsc::channel();
    for n in 0..KEYS {
        let tell = tell.clone();
        kv.put_then(&key(n), &value(n), move |done| tell.send(done).expect("the test listens"));
    }
    for _ in 0..KEYS {
        told.recv_timeout(LONG).expect("an answer").expect("written");
    }
    both
}

fn key(n: usize) -> Vec<u8> {
    format!("key {n:05}").into_bytes()
}

fn value(n: usize) -> Vec<u8> {
    vec![n as u8; VALUE_BYTES]
}

#[test]
fn all_of_a_large_answer_comes_in_order() {
    let both = filled();
    let mut kv = both.kv();
    let (tell, told) = mpsc::channel();
    kv.read_then(&from(b"k"), None, usize::MAX, move |found| {
        tell.send(found).expect("the test listens");
    });
    let waited = both.kv().read(&from(b"k"), None, usize::MAX).expect("read");
    let called = told.recv_timeout(LONG).expect("called").expect("read");
    for found in [waited, called] {
        assert_eq!((found.revision, found.entries.len()), (KEYS as u64, KEYS));
        for (n, entry) in found.entries.iter().enumerate() {
            assert_eq!(*entry.record.key, *key(n));
            assert_eq!(entry.record.value.as_deref(), Some(&*value(n)));
        }
    }
}

#[test]
fn a_transaction_reads_as_much() {
    let both = filled();
    let all = || Op::Get { range: from(b"k"), limit: usize::MAX };
    let put = Op::Put { key: b"a"[..].into(), value: b"1"[..].into() };
    let txn = Txn { then: vec![all(), put, all()], ..Txn::default() };
    let done = both.kv().txn(&txn).expect("done");
    assert_eq!((done.revision, done.affected), (KEYS as u64 + 1, 1));
    let operations: Vec<_> = done.found.iter().map(|(operation, _)| *operation).collect();
    assert_eq!(operations, [[0; KEYS], [2; KEYS]].concat());
}

#[test]
fn who_does_not_read_keeps_nobody_waiting() {
    let both = filled();
    let mut readers: Vec<_> = (0..10).map(|_| both.session()).collect();
    let texts = ["range 'k'", "txn then range 'k'"].into_iter().cycle();
    // Each answer fills the window. The rest waits at the server.
    let answers: Vec<_> = readers
        .iter_mut()
        .zip(texts)
        .map(|(session, text)| session.execute(text).expect("a beginning"))
        .collect();
    let mut kv = both.kv();
    for n in 0..20 {
        assert_eq!(kv.put(b"other", b"1").expect("written"), (KEYS + n + 1) as u64);
    }
    // The readers see the state at the time of their requests.
    for mut answer in answers {
        let mut rows = 0;
        while answer.next_row().expect("a row").is_some() {
            rows += 1;
        }
        assert_eq!(rows, KEYS);
    }
}

/// A server whose clients may leave five answers to `range 'k'` unread. Each is so large that its end
/// does not fit into the buffers of a connection.
fn with_large_answers() -> Both {
    let (keys, value) = (100, [7; 100 << 10]);
    let limits = Limits { unread_bytes: 5 * keys * value.len(), ..Limits::default() };
    let both = Both::start_with(|options| options.limits(limits));
    let mut kv = both.kv();
    for n in 0..keys {
        kv.put(&key(n), &value).expect("written");
    }
    both
}

#[test]
fn results_that_clients_do_not_read_are_limited_together() {
    let both = with_large_answers();
    let mut kv = both.kv();
    let text = ["range 'k'", "txn then range 'k'"].into_iter().cycle();
    let clients = [(); 5].map(|()| both.another_client());
    let mut readers = clients.each_ref().map(|client| client.session().expect("a session"));
    let answers = readers.iter_mut().zip(text.clone());
    let answers: Vec<_> =
        answers.map(|(session, text)| session.execute(text).expect("a beginning")).collect();
    let mut other = both.session();
    for text in text.take(2) {
        let busy = failure(&mut other, text);
        assert_eq!(busy.code, code::BUSY, "{busy}");
        assert!(busy.to_string().contains("bytes that wait to be read"), "{busy}");
    }
    kv.put(b"other", b"1").expect("transactions that do not read go on");
    for mut answer in answers {
        while answer.next_row().expect("a row").is_some() {}
    }
    eventually(LONG, || other.run("range 'k'").is_ok());
}

#[test]
fn a_connection_that_does_not_read_is_refused_before_others_are() {
    let both = with_large_answers();
    let client = both.another_client();
    let mut readers = [(); 2].map(|()| client.session().expect("a session"));
    let answers =
        readers.each_mut().map(|session| session.execute("range 'k'").expect("a beginning"));
    let busy = failure(&mut client.session().expect("a session"), "range 'k'");
    assert_eq!(busy.code, code::BUSY, "{busy}");
    assert!(busy.to_string().contains("bytes that this connection has to read"), "{busy}");
    let mut kv = both.kv();
    assert!(kv.get(&key(0)).expect("read").is_some());
    let unread = |(name, bytes): &(String, String)| name == "unread bytes" && bytes != "0";
    assert!(kv.status().expect("told").iter().any(unread));
    drop(answers);
}
