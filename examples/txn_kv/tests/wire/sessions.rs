//! Sessions side by side, and answers that come later.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{Client, Fate, Options};
use lab::engine::Fixture;
use txn_kv::Txn;
use txn_kv::client::KvError;
use txn_kv::service::code;

use super::{Both, from, one, told};
use lab::{LONG, eventually};

fn deferred(both: &Both) -> u64 {
    both.server.runtime().stats().deferred_requests
}

#[test]
fn a_session_reads_while_another_waits_for_its_flush() {
    let both = Both::start();
    let (mut writer, mut reader) = (both.kv(), both.kv());
    writer.put(b"a", b"1").expect("written");
    both.engine.commits.close();
    let (tell, told) = mpsc::channel();
    writer.put_then(b"a", b"2", move |done| tell.send(done).expect("the test listens"));
    both.engine.commits.wait_for(1);
    for _ in 0..10 {
        let entry = reader.get(b"a").expect("read").expect("found");
        assert_eq!((entry.revision.main, entry.record.version), (1, 1));
    }
    assert!(told.try_recv().is_err());
    both.engine.commits.open();
    assert_eq!(told.recv_timeout(LONG).expect("an answer").expect("written"), 2);
    assert_eq!(reader.get(b"a").expect("read").expect("found").revision.main, 2);
}

#[test]
fn requests_of_a_session_are_done_in_order_without_waiting_for_them() {
    let both = Both::start();
    let mut kv = both.kv();
    let (tell, told) = mpsc::channel();
    for n in 0_u64..500 {
        let tell = tell.clone();
        let done = move |done| tell.send((n, done)).expect("the test listens");
        if n % 2 == 0 {
            kv.put_then(b"a", n.to_string().as_bytes(), done);
        } else {
            kv.read_then(&one(b"a"), None, 1, move |found| {
                let value = found.map(|found| {
                    let value = found.entries[0].record.value.clone().expect("no deletion");
                    String::from_utf8_lossy(&value).parse().expect("a number")
                });
                done(value);
            });
        }
    }
    let mut answers: Vec<_> = (0..500)
        .map(|_| told.recv_timeout(LONG).expect("an answer"))
        .map(|(n, done)| (n, done.expect("done")))
        .collect();
    answers.sort_unstable();
    for (n, value) in answers {
        // Each write has a revision of its own; each read sees the write before it.
        assert_eq!(value, if n % 2 == 0 { n / 2 + 1 } else { n - 1 });
    }
}

#[test]
fn answers_do_not_cross() {
    let both = Both::start();
    thread::scope(|scope| {
        for n in 0..8_u8 {
            let mut kv = both.kv();
            scope.spawn(move || {
                let mut last = 0;
                for round in 0..50_u8 {
                    let key = [b'k', n];
                    let revision = kv.put(&key, &[n, round]).expect("written");
                    assert!(revision > last, "{revision} after {last}");
                    last = revision;
                    let entry = kv.get(&key).expect("read").expect("found");
                    assert_eq!(entry.record.value.as_deref(), Some(&[n, round][..]));
                    assert_eq!(
                        (entry.revision.main, entry.record.version),
                        (revision, round as u64 + 1)
                    );
                }
            });
        }
    });
    let found = both.kv().read(&from(b"k"), None, 100).expect("read");
    assert_eq!((found.revision, found.entries.len()), (400, 8));
}

#[test]
fn who_cancels_hears_so_and_the_write_is_done_all_the_same() {
    let both = Both::start();
    let (mut first, mut second) = (both.session(), both.session());
    both.engine.commits.close();
    let flushed = first.send("put 'a' '1'").expect("sent");
    both.engine.commits.wait_for(1);
    // The second write waits for the next flush.
    let waiting = second.send("put 'b' '1'").expect("sent");
    eventually(LONG, || deferred(&both) == 2);
    second.canceller().cancel();
    let error = KvError::from(waiting.wait().expect_err("cancelled"));
    assert_eq!((error.code(), error.fate()), (Some(1317), Fate::Unknown), "{error}");
    both.engine.commits.open();
    flushed.wait().expect("written");
    eventually(LONG, || both.server.store().revision() == 2);
    assert_eq!(told(&mut second, "get 'b'"), "0|b|1|2|2|1; @2 0");
}

#[test]
fn the_fate_of_a_request_that_took_too_long_or_was_dropped_is_unknown() {
    let limit = Duration::from_millis(10);
    for (sql, limit, number) in
        [("defer late", limit, code::TIMED_OUT), ("defer-drop", LONG, code::INTERRUPTED)]
    {
        let server = Fixture::start(lab::engine::config().request_timeout(limit));
        let runtime = Runtime::builder().config(lab::config()).start().expect("started");
        let options = Options::new(server.addr().to_string(), "root")
            .password(lab::engine::PASSWORD)
            .request_timeout(LONG);
        let client = Client::new(&runtime.handle(), options).expect("good options");
        let error = client.session().expect("a session").run(sql).expect_err("no answer");
        let error = KvError::from(error);
        assert_eq!((error.code(), error.fate()), (Some(number), Fate::Unknown), "{error}");
    }
}

#[test]
fn a_session_that_goes_away_leaves_its_write_to_be_done() {
    let both = Both::start();
    both.engine.commits.close();
    let mut kv = both.kv();
    kv.put_then(b"a", b"1", |_| {});
    both.engine.commits.wait_for(1);
    drop(kv);
    both.engine.commits.open();
    eventually(LONG, || both.server.store().revision() == 1 && deferred(&both) == 0);
    assert_eq!(both.kv().get(b"a").expect("read").expect("found").revision.main, 1);
}

#[test]
fn all_that_share_a_flush_hear_that_it_failed() {
    let both = Both::start();
    let mut kvs: Vec<_> = (0..20).map(|_| both.kv()).collect();
    both.engine.commits.close();
    both.engine.fail(true);
    let (tell, told) = mpsc::channel();
    for (n, kv) in (0..).zip(&mut kvs) {
        let tell = tell.clone();
        kv.put_then(&[n], b"1", move |done| tell.send(done).expect("the test listens"));
    }
    eventually(LONG, || deferred(&both) == 20);
    both.engine.commits.open();
    for _ in 0..20 {
        let error = told.recv_timeout(LONG).expect("an answer").expect_err("no space");
        assert_eq!(error.code(), Some(code::WRITE));
    }
    assert_eq!(kvs[0].txn(&Txn::default()).expect("done").revision, 0);
}
