//! How a server begins and ends.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use epoll_group::client::{Client, Options};
use epoll_group::{Config, Runtime, session};
use txn_kv::client::Kv;
use txn_kv::serve;
use txn_kv::service::KvService;

use super::{Both, PASSWORD, USER};
use lab::{LONG, assert_clean, eventually};

/// Each accepted request is answered, also if it waits for a flush.
#[test]
fn a_drain_answers_what_is_deferred() {
    let Both { client, runtime, engine, server } = Both::start();
    let mut kvs: Vec<_> = (0..50).map(|_| Kv::new(client.session().expect("a session"))).collect();
    engine.commits.close();
    let (tell, told) = mpsc::channel();
    for (n, kv) in (0..).zip(&mut kvs) {
        let tell = tell.clone();
        kv.put_then(&[n], b"1", move |done| tell.send(done).expect("the test listens"));
    }
    eventually(LONG, || server.runtime().stats().deferred_requests == 50);
    let (handle, store) = (server.runtime().handle(), server.store().clone());
    let drain = thread::spawn(move || server.drain(LONG));
    // A new listener is refused: the drain has begun.
    eventually(LONG, || {
        let service = KvService::new(store.clone(), USER, PASSWORD);
        handle.listen("127.0.0.1:0", session::Server::new(service)).is_err()
    });
    assert!(told.try_recv().is_err());
    engine.commits.open();
    let mut revisions: Vec<_> =
        (0..50).map(|_| told.recv_timeout(LONG).expect("an answer").expect("written")).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=50).collect::<Vec<_>>());
    assert_clean(&drain.join().expect("no panic"));
    assert_eq!(store.revision(), 50);
    drop((kvs, client, runtime));
}

/// Printed text, shared by the server and the test.
#[derive(Clone, Debug, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("text")
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn serve_says_where_it_listens_and_what_it_has_done() {
    let page = Page::default();
    let (end, told) = mpsc::channel();
    let server = thread::spawn({
        let mut page = page.clone();
        move || {
            let wait = || told.recv_timeout(LONG).map_err(io::Error::other);
            serve::run(&serve::Options::new(USER, PASSWORD), wait, &mut page)
                .map_err(|error| error.to_string())
        }
    });
    eventually(LONG, || page.text().ends_with('\n'));
    let text = page.text();
    let address = text.strip_prefix("listening on ").expect("the first line").trim().to_owned();
    let runtime =
        Runtime::builder().config(Config::default().epoll_groups(1)).start().expect("started");
    let options = Options::new(address, USER).password(PASSWORD);
    let client = Client::new(&runtime.handle(), options).expect("good options");
    let mut kv = Kv::new(client.session().expect("a session"));
    kv.put(b"a", b"1").expect("written");
    drop((kv, client, runtime));
    end.send("SIGTERM").expect("it waits");
    server.join().expect("no panic").expect("served");
    let text = page.text();
    let lines: Vec<_> = text.lines().skip(1).collect();
    let [signal, drained, done] = lines.as_slice() else { panic!("{text}") };
    assert_eq!(*signal, "SIGTERM: draining");
    assert!(drained.starts_with("drained in "), "{drained}");
    let expected = "revision 1: 1 transactions, 1 flushes (1.0 transactions each), 0 failed";
    assert_eq!(*done, expected);
}

#[test]
fn an_address_in_use_is_reported() {
    let both = Both::start();
    let options = serve::Options::new(USER, PASSWORD).listen(both.server.address().to_string());
    let error = serve::Server::start(&options).expect_err("in use").to_string();
    assert!(error.contains("in use"), "{error}");
}

#[test]
fn what_is_on_disk_is_there_when_it_is_served_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("made").join("for it");
    let options = serve::Options::new(USER, PASSWORD).engine(serve::Kind::Disk(path));
    for round in 1..=3 {
        let server = serve::Server::start(&options).expect("it serves");
        let runtime =
            Runtime::builder().config(Config::default().epoll_groups(1)).start().expect("started");
        let login = Options::new(server.address().to_string(), USER).password(PASSWORD);
        let client = Client::new(&runtime.handle(), login).expect("good options");
        let mut kv = Kv::new(client.session().expect("a session"));
        assert_eq!(kv.put(b"a", &[round as u8]).expect("written"), round);
        let found = kv.read(&super::one(b"a"), Some(1), 1).expect("read");
        assert_eq!(found.entries[0].record.value.as_deref(), Some(&[1][..]));
        let status = kv.status().expect("told");
        assert!(status.contains(&("engine".into(), "disk".into())), "{status:?}");
        // The server closes the file when it ends.
        assert_clean(&server.drain(LONG));
    }
}
