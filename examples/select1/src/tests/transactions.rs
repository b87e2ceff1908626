//! How transactions begin and end, and what is refused in them.

use std::fs;

use epoll_group::net::Address;
use epoll_group::{Config, session};
use lab::xrpc::Client;
use select1::node::{Engine, Options};

use super::{Server, change, failure, rows, runtime};

const K: &str = "select k from sbtest1 where id = 1";

#[test]
fn a_transaction_whose_snapshot_fails_has_not_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime(Config::default());
    let options = Options::of_one("root", "secret", "test", folder.path().join("test.db"));
    let engine = Engine::open(&options, runtime.handle()).expect("it opens");
    let listener = runtime.listen("127.0.0.1:0", session::Server::new(engine)).expect("a port");
    let &Address::Tcp(address) = listener.local_addr() else { panic!("no address") };
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut client = Client::logged_in(address, "root", "secret");
        client.new_session(2).good();
        client
    });
    // It takes the only connection to the file, and none can follow.
    change(&mut first, "start transaction with consistent snapshot");
    fs::remove_dir_all(folder.path()).expect("it is there");
    assert_eq!(failure(&mut second, "start transaction with consistent snapshot").code, 1030);
    change(&mut second, "savepoint a");
    assert_eq!(failure(&mut second, "rollback to a").code, 1305);
}

#[test]
fn savepoints_of_one_name_do_not_pile_up() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "begin");
    change(&mut client, "update sbtest1 set k = -1 where id = 1");
    for _ in 0..1100 {
        change(&mut client, "savepoint a");
    }
    change(&mut client, "update sbtest1 set k = -2 where id = 1");
    // The first `a` stays below `b`, without its name.
    for name in ["b", "A"] {
        change(&mut client, &format!("savepoint {name}"));
    }
    change(&mut client, "update sbtest1 set k = -3 where id = 1");
    change(&mut client, "rollback to a");
    assert_eq!(rows(&mut client, K), "-2;");
    change(&mut client, "release savepoint b");
    assert_eq!(failure(&mut client, "rollback to a").code, 1305);
    for number in 0..1024 {
        change(&mut client, &format!("savepoint s{number}"));
    }
    let error = failure(&mut client, "savepoint one_more");
    assert_eq!(error.text, "A transaction has at most 1024 savepoints");
    // The last one can still be set again.
    change(&mut client, "savepoint s1023");
    for _ in 0..600 {
        change(&mut client, "savepoint s1022");
        change(&mut client, "savepoint s1023");
    }
    change(&mut client, "update sbtest1 set k = -4 where id = 1");
    change(&mut client, "rollback to s0");
    assert_eq!(rows(&mut client, K), "-2;");
    change(&mut client, "commit");
}

#[test]
fn what_is_read_only_defines_no_tables() {
    let server = Server::start();
    let mut client = server.client();
    let drop = "drop table sbtest1";
    change(&mut client, "set session transaction read only");
    assert_eq!(failure(&mut client, drop).code, 1792);
    change(&mut client, "set session transaction read write");
    change(&mut client, "start transaction read only");
    assert_eq!(failure(&mut client, drop).code, 1792);
    // The transaction goes on.
    assert_eq!(failure(&mut client, "update sbtest1 set k = 0").code, 1792);
    change(&mut client, "commit");
    change(&mut client, "set transaction read only");
    assert_eq!(failure(&mut client, drop).code, 1792);
    change(&mut client, drop);
}

#[test]
fn the_next_transaction_may_be_one_statement() {
    let server = Server::start();
    let mut client = server.client();
    let update = "update sbtest1 set k = -1 where id = 1";
    change(&mut client, "set transaction read only");
    assert_eq!(failure(&mut client, update).code, 1792);
    change(&mut client, update);
    change(&mut client, "set transaction read only");
    assert_eq!(rows(&mut client, K), "-1;");
    change(&mut client, update);
    change(&mut client, "set session transaction read only");
    change(&mut client, "set transaction read write");
    change(&mut client, update);
    assert_eq!(failure(&mut client, update).code, 1792);
}
