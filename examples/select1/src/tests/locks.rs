//! Sessions that wait for each other.

use std::time::Duration;

use super::{Server, change, failure, rows};
use lab::xrpc::request;

#[test]
fn sixty_four_wait_for_one_and_all_finish() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "begin");
    assert_eq!(rows(&mut client, "select id from sbtest1 where id = 1 for update"), "1;");
    let mut waiting = Vec::new();
    for session in (4..).step_by(2).take(64) {
        client.new_session(session).good();
        let sql = "update sbtest1 set k = k + 1 where id = 1";
        waiting.push(client.send_sql(session, request::update(sql)));
    }
    std::thread::sleep(Duration::from_millis(100));
    change(&mut client, "update sbtest1 set k = 0 where id = 1");
    change(&mut client, "commit");
    for ticket in waiting {
        assert_eq!(client.reply_to(ticket).good().affected, Some(1));
    }
    assert_eq!(rows(&mut client, "select k from sbtest1 where id = 1"), "64;");
}

#[test]
fn a_wait_ends_with_its_time_or_by_a_kill() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "begin");
    change(&mut client, "update sbtest1 set k = 0");
    for session in [4, 6] {
        client.new_session(session).good();
    }
    client.run(4, request::update("set innodb_lock_wait_timeout = 0")).good();
    let late = client.run(4, request::update("delete from sbtest1")).failure();
    assert_eq!((late.code, late.state.as_str()), (1205, "HY000"));
    let ticket = client.send_sql(6, request::update("delete from sbtest1"));
    std::thread::sleep(Duration::from_millis(30));
    client.kill_query(6);
    assert_eq!(client.reply_to(ticket).failure().code, 1317);
    // A reader does not wait.
    let count = client.execute(4, "select count(*) from sbtest1").good();
    assert_eq!(count.one().integer(), Some(100));
    change(&mut client, "rollback");
    client.run(6, request::update("delete from sbtest1 where id = 1")).good();
}

#[test]
fn who_reads_repeatably_is_told_of_a_deadlock() {
    let server = Server::start();
    let mut client = server.client();
    client.new_session(4).good();
    change(&mut client, "set session transaction isolation level repeatable read");
    change(&mut client, "start transaction");
    let k = "select k from sbtest1 where id = 1";
    let before = rows(&mut client, k);
    client.run(4, request::update("update sbtest1 set k = -1 where id = 1")).good();
    assert_eq!(rows(&mut client, k), before);
    let error = failure(&mut client, "update sbtest1 set k = k + 1 where id = 1");
    assert_eq!((error.code, error.state.as_str()), (1213, "40001"));
    assert_eq!(rows(&mut client, k), "-1;");
    // By default each statement reads what is there.
    change(&mut client, "set transaction isolation level read committed");
    change(&mut client, "begin");
    assert_eq!(rows(&mut client, k), "-1;");
    client.run(4, request::update("update sbtest1 set k = -2 where id = 1")).good();
    change(&mut client, "update sbtest1 set k = k - 1 where id = 1");
    change(&mut client, "commit");
    assert_eq!(rows(&mut client, k), "-3;");
}
