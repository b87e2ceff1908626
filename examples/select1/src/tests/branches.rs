//! Branches of distributed transactions.

use super::{Server, change, failure, rows, text};
use lab::xrpc::{AUTO, request};

const K: &str = "select k from sbtest1 where id = 1";

/// Does these steps in session 2.
fn run(client: &mut lab::xrpc::Client, steps: &[&str]) {
    for step in steps {
        change(client, step);
    }
}

#[test]
fn a_prepared_branch_outlives_its_connection_and_any_session_ends_it() {
    let server = Server::start();
    let mut other = server.client();
    let before = rows(&mut other, K);
    for (end, now) in [("xa rollback 'a','b'", &before[..]), ("xa commit 'a','b'", "-6;")] {
        let mut client = server.client();
        run(&mut client, &["xa start 'a','b'", "update sbtest1 set k = -6 where id = 1"]);
        run(&mut client, &["xa end 'a','b'", "xa prepare 'a','b'"]);
        assert_eq!(
            rows(&mut client, "show warnings"),
            "Warning|1105u|the end of the server rolls back what is prepared;"
        );
        // Its session may do something else at once.
        run(&mut client, &["begin", "commit"]);
        drop(client);
        assert_eq!(rows(&mut other, "xa recover"), "1|1|1|ab;");
        assert_eq!(rows(&mut other, K), before, "it is not committed");
        change(&mut other, "set innodb_lock_wait_timeout = 0");
        assert_eq!(failure(&mut other, "delete from sbtest1").code, 1205, "it keeps its locks");
        change(&mut other, end);
        assert_eq!(rows(&mut other, K), now);
        assert_eq!(rows(&mut other, "xa recover"), "");
        assert_eq!(failure(&mut other, end).code, 1397);
        change(&mut other, "update sbtest1 set k = k + 0 where id = 2");
    }
}

#[test]
fn a_branch_that_is_not_prepared_ends_with_its_session() {
    let server = Server::start();
    let mut client = server.client();
    let before = rows(&mut client, K);
    run(&mut client, &["xa start 'a'", "update sbtest1 set k = -6 where id = 1", "xa end 'a'"]);
    client.close(2);
    client.new_session(4).good();
    client.run(4, request::update("update sbtest1 set k = k + 0 where id = 2")).good();
    assert_eq!(text(&client.execute(4, K).good()), before);
    assert_eq!(text(&client.execute(4, "xa recover").good()), "");
}

#[test]
fn one_name_has_many_spellings() {
    let server = Server::start();
    let mut client = server.client();
    let same = ["'a'", "0x61", "X'61'", "'a',''", "'a',x'',1", "\"a\",'',0x1"];
    for (step, name) in ["start", "end", "prepare", "commit"].into_iter().zip(same) {
        change(&mut client, &format!("xa {step} {name}"));
    }
    run(&mut client, &["xa begin 0x10A,'b',7", "xa end 0x010a,0x62,7", "xa prepare x'010a','b',7"]);
    assert_eq!(rows(&mut client, "xa recover convert xid"), "7|2|1|0x010A62;");
    change(&mut client, "xa commit 0x10a,'b',7");
    for wrong in ["", "1", "'a','b','c'", "'a','b',-1", "x'éa'", "0xaéb", "x'+1'", "x'1 '"] {
        let wrong = format!("xa start {wrong}");
        assert_eq!(failure(&mut client, &wrong).code, 1064, "{wrong}");
    }
    let long = format!("xa start 'a','{}'", "b".repeat(65));
    assert_eq!(failure(&mut client, &long).code, 1398);
}

#[test]
fn steps_out_of_order_are_refused_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let refused = |client: &mut _, steps: &[(&str, u32)]| {
        for (step, code) in steps {
            assert_eq!(failure(client, step).code, *code, "{step}");
        }
    };
    refused(&mut client, &[("xa end 'a'", 1397), ("xa prepare 'a'", 1397)]);
    refused(&mut client, &[("xa rollback 'a'", 1397), ("xa commit 'a' one phase", 1397)]);
    change(&mut client, "begin");
    refused(&mut client, &[("xa start 'a'", 1400), ("xa commit 'a'", 1400)]);
    run(&mut client, &["commit", "xa start 'a'", "savepoint b"]);
    change(&mut client, "update sbtest1 set k = -1 where id = 1");
    refused(&mut client, &[("xa start 'b'", 1399), ("xa prepare 'a'", 1399), ("xa end 'b'", 1397)]);
    refused(&mut client, &[("xa commit 'a'", 1399), ("xa rollback 'a'", 1399), ("commit", 1399)]);
    change(&mut client, "xa end 'a'");
    refused(&mut client, &[("update sbtest1 set k = 0", 1399), ("xa end 'a'", 1399)]);
    refused(&mut client, &[(K, 1399), ("set @a = (select 1)", 1399), ("savepoint a", 1399)]);
    refused(&mut client, &[("rollback to b", 1399), ("release savepoint b", 1399)]);
    change(&mut client, "xa prepare 'a'");
    refused(&mut client, &[("xa start 'a'", 1440), ("xa commit 'a' one phase", 1398)]);
    // Two sessions may begin a branch of one name, and only one of them prepares it.
    run(&mut client, &["xa rollback 'a'", "xa start 'a'", "xa end 'a'"]);
    let mut other = server.client();
    run(&mut other, &["xa start 'a'", "xa end 'a'", "xa prepare 'a'"]);
    refused(&mut client, &[("xa prepare 'a'", 1440)]);
    change(&mut client, "xa rollback 'a'");
    change(&mut client, "xa commit 'a'");
    run(&mut client, &["xa start 'a'", "update sbtest1 set k = -2 where id = 1", "xa end 'a'"]);
    change(&mut client, "xa commit 'a' one phase");
    assert_eq!(rows(&mut client, K), "-2;");
}

#[test]
fn a_branch_in_a_deadlock_can_only_be_rolled_back() {
    let server = Server::start();
    let [mut client, mut other] = [(); 2].map(|()| server.client());
    change(&mut client, "set session transaction isolation level repeatable read");
    change(&mut client, "xa start 'a'");
    let before = rows(&mut client, K);
    change(&mut other, "update sbtest1 set k = -1 where id = 2");
    assert_eq!(failure(&mut client, "update sbtest1 set k = -2 where id = 1").code, 1213);
    let lost = failure(&mut client, "update sbtest1 set k = -3 where id = 1");
    assert_eq!(rows(&mut other, K), before, "{lost:?}");
    change(&mut client, "xa end 'a'");
    assert_eq!(failure(&mut client, "xa prepare 'a'").code, lost.code);
    change(&mut client, "xa rollback 'a'");
    change(&mut client, "update sbtest1 set k = -4 where id = 1");
    assert_eq!(rows(&mut other, K), "-4;");
}

#[test]
fn a_prepared_branch_that_has_changed_nothing_keeps_no_connection() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "set session transaction isolation level repeatable read");
    let status = "show status where variable_name in ('Connections_lent', 'Branches_prepared')";
    run(&mut client, &["xa start 'a'"]);
    rows(&mut client, K);
    assert_eq!(rows(&mut client, status), "Connections_lent|1;Branches_prepared|0;");
    run(&mut client, &["xa end 'a'", "xa prepare 'a'"]);
    assert_eq!(rows(&mut client, status), "Connections_lent|0;Branches_prepared|1;");
    change(&mut client, "xa commit 'a'");
    assert_eq!(rows(&mut client, status), "Connections_lent|0;Branches_prepared|0;");
}

#[test]
fn a_statement_without_a_session_begins_no_branch() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run(AUTO, request::update("xa start 'a'")).failure().code, 1235);
}

#[test]
fn prepared_branches_are_limited() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..65 {
        run(&mut client, &[&format!("xa start '{number}'"), &format!("xa end '{number}'")]);
        if number < 64 {
            change(&mut client, &format!("xa prepare '{number}'"));
        }
    }
    let error = failure(&mut client, "xa prepare '64'");
    assert_eq!(error.code, 1401);
    assert!(error.text.contains("64 branches of this account are prepared"), "{}", error.text);
    run(&mut client, &["xa rollback '64'", "xa commit '7'", "xa start '64'", "xa end '64'"]);
    change(&mut client, "xa prepare '64'");
}
