//! How transactions begin and end, and what is refused in them.

use std::fs;

use epoll_group::net::Address;
use epoll_group::{Config, session};
use lab::xrpc::Client;
use select1::node::{Engine, Options};

use super::{change, failure, runtime};

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
