//! Transactions of one node, and none of two.

use epoll_group::client::Request;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::Scalar;

use super::{World, discarded, limits, refused, rows};
use crate::fleet::{Fleet, MAX_ALLOWED_PACKET};

const SUM: &str = "select sum(k) from sbtest1";

#[test]
fn a_transaction_is_on_one_node() {
    let world = World::new();
    let (mut one, mut other) = (world.session(), world.session());
    one.run("begin").expect("it begins");
    one.run("update sbtest1 set k = 11 where id = 1").expect("it is changed");
    assert_eq!(rows(&mut one, "select k from sbtest1 where id = 1"), "11;");
    assert_eq!(rows(&mut other, "select k from sbtest1 where id = 1"), "10;");
    assert_eq!(world.fleet.in_use(), 1);
    // The same node.
    one.run("update sbtest1 set k = 31 where id = 3").expect("it is changed");
    assert_eq!(rows(&mut one, "select 1"), "1;");
    one.run("commit").expect("it is kept");
    assert_eq!(world.fleet.in_use(), 0);
    assert_eq!(rows(&mut other, "select k from sbtest1 where id in (1, 3)"), "11;31;");
    assert_eq!(rows(&mut other, SUM), "362;");
}

#[test]
fn the_second_node_is_refused_and_both_are_named() {
    let world = World::new();
    let mut session = world.session();
    session.run("start transaction").expect("it begins");
    session.run("update sbtest1 set k = 11 where id = 1").expect("it is changed");
    for text in
        ["update sbtest1 set k = 21 where id = 2", "select k from sbtest1 where id = 2", SUM]
    {
        let (code, said) = refused(&mut session, text);
        assert_eq!(code, 1235, "{said}");
        assert!(said.contains("n0") && said.contains("n1") && said.contains("two-phase"), "{said}");
    }
    assert_eq!(refused(&mut session, "drop table sbtest1").0, 1235);
    // The first one goes on.
    assert_eq!(rows(&mut session, "select k from sbtest1 where id = 1"), "11;");
    session.run("rollback").expect("it is undone");
    assert_eq!(rows(&mut session, SUM), "360;");
    assert_eq!(world.fleet.in_use(), 0);
}

#[test]
fn without_autocommit_statements_begin_transactions() {
    let world = World::new();
    let (mut one, mut other) = (world.session(), world.session());
    assert_eq!(rows(&mut one, "select @@autocommit"), "1;");
    one.run("set autocommit=0").expect("it is off");
    assert_eq!(rows(&mut one, "select @@autocommit, @@session.autocommit"), "0|0;");
    assert_eq!(rows(&mut other, "select @@autocommit"), "1;");
    assert_eq!(rows(&mut one, "select 1"), "1;");
    assert_eq!(world.fleet.in_use(), 0);
    one.run("update sbtest1 set k = 0 where id = 1").expect("it is changed");
    one.run("rollback").expect("it is undone");
    one.run("update sbtest1 set k = 0 where id = 2").expect("it is changed");
    assert_eq!(rows(&mut other, SUM), "360;");
    one.run("commit").expect("it is kept");
    assert_eq!(rows(&mut other, SUM), "340;");
    one.run("update sbtest1 set k = 0 where id = 3").expect("it is changed");
    // Switched on, it commits.
    one.run("set autocommit=1").expect("it is on");
    assert_eq!(rows(&mut other, SUM), "310;");
    assert_eq!(world.fleet.in_use(), 0);
    one.run("begin").expect("it begins");
    one.run("update sbtest1 set k = 0 where id = 4").expect("it is changed");
    one.run("set autocommit=1").expect("it is on already");
    one.run("rollback").expect("it is undone");
    assert_eq!(rows(&mut other, SUM), "310;");
}

#[test]
fn the_next_transaction_has_all_its_settings() {
    let world = World::new();
    let mut session = world.session();
    let change = "update sbtest1 set k = 0 where id = 1";
    let (read_only, level) =
        ("set transaction read only", "set transaction isolation level repeatable read");
    session.run(read_only).expect("it is set");
    session.run(level).expect("it is set");
    // This select reads no table, so it leaves the settings to the next transaction.
    assert_eq!(rows(&mut session, "select 1"), "1;");
    session.run("begin").expect("it begins");
    assert_eq!(refused(&mut session, change).0, 1792);
    assert_eq!(refused(&mut session, level).0, 1568);
    session.run("rollback").expect("it ends");
    for alone in ["select k from sbtest1 where id = 1", "select min(k) from sbtest1"] {
        session.run(read_only).expect("it is set");
        assert_eq!(rows(&mut session, alone), "10;");
        session.run("begin").expect("it begins");
        session.run(change).expect("it is changed");
        session.run("rollback").expect("it is undone");
    }
    for _ in 0..8 {
        session.run(level).expect("there is room");
    }
    assert_eq!(refused(&mut session, level).0, 1235);
}

#[test]
fn a_transaction_that_begins_ends_the_one_before() {
    let world = World::new();
    let (mut one, mut other) = (world.session(), world.session());
    one.run("begin").expect("it begins");
    one.run("update sbtest1 set k = 0 where id = 1").expect("it is changed");
    one.run("begin").expect("it begins");
    assert_eq!(rows(&mut other, SUM), "350;");
    // On another node.
    one.run("update sbtest1 set k = 0 where id = 2").expect("it is changed");
    one.run("rollback").expect("it is undone");
    assert_eq!(rows(&mut other, SUM), "350;");
}

#[test]
fn errors_of_a_node_come_unchanged_and_leave_the_transaction() {
    let world = World::new();
    let mut session = world.session();
    session.run("begin").expect("it begins");
    let again = "insert into sbtest1 (id, k) values (1, 5)";
    let (code, said) = refused(&mut session, again);
    assert_eq!((code, said.as_str()), (1062, "Duplicate entry for key 'sbtest1.id'"));
    session.run("update sbtest1 set k = 0 where id = 1").expect("it is changed");
    assert_eq!(refused(&mut session, "select missing from sbtest1 where id = 1").0, 1054);
    session.run("rollback").expect("it is undone");
    assert_eq!(rows(&mut session, SUM), "360;");
}

#[test]
fn a_statement_too_long_for_a_frame_leaves_its_transaction() {
    let world = World::new();
    let mut session = world.session();
    // The client sends its digest, the proxy all of it.
    let text = format!("update sbtest1 set c = ? where id = 1 /* {} */", "x".repeat(2000));
    let change = |bytes: usize| {
        Request::sql(text.clone()).arg(Scalar::string("x".repeat(bytes), None)).cached()
    };
    session.run("begin").expect("it begins");
    for _ in 0..3 {
        session.run(change(1)).expect("it is changed");
    }
    let (code, said) = refused(&mut session, change(MAX_ALLOWED_PACKET - 1000));
    assert_eq!(code, 1153, "{said}");
    assert!(said.contains("max_allowed_packet"), "{said}");
    session.run("commit").expect("it is kept");
    assert_eq!(rows(&mut session, "select c from sbtest1 where id = 1"), "x;");
    assert_eq!(discarded(&world), 0);
}

#[test]
fn savepoints_are_set_where_the_transaction_is() {
    let world = World::new();
    let mut session = world.session();
    assert_eq!(refused(&mut session, "rollback to a").0, 1305);
    session.run("savepoint a").expect("it is over at once");
    assert_eq!(refused(&mut session, "rollback to a").0, 1305);
    session.run("begin").expect("it begins");
    // The transaction is at no node yet.
    session.run("savepoint a").expect("it is set");
    assert_eq!(refused(&mut session, "rollback to b").0, 1305);
    session.run("update sbtest1 set k = 0 where id = 1").expect("it is changed");
    session.run(Request::savepoint(Operation::Set, "b")).expect("it is set");
    session.run("update sbtest1 set k = 0 where id = 3").expect("it is changed");
    session.run("rollback to savepoint b").expect("it is undone");
    assert_eq!(rows(&mut session, "select k from sbtest1 where id in (1, 3)"), "0;30;");
    session.run(Request::savepoint(Operation::Rollback, "a")).expect("it is undone");
    assert_eq!(rows(&mut session, "select k from sbtest1 where id in (1, 3)"), "10;30;");
    session.run("commit").expect("it ends");
    assert_eq!(rows(&mut session, SUM), "360;");
}

#[test]
fn a_savepoint_that_is_set_again_comes_last() {
    let world = World::new();
    let mut session = world.session();
    for text in ["begin", "savepoint a", "savepoint b", "savepoint a", "rollback to b"] {
        session.run(text).expect(text);
    }
    assert_eq!(refused(&mut session, "rollback to a").0, 1305);
    session.run("release savepoint b").expect("it is there");
    let long = format!("savepoint {}", "s".repeat(1024));
    assert_eq!(refused(&mut session, long.as_str()).0, 1235);
    // Six steps are planned.
    for number in 6..16 {
        session.run(format!("savepoint s{number}")).expect("there is room");
    }
    assert_eq!(refused(&mut session, "savepoint last").0, 1235);
    assert_eq!(refused(&mut session, "rollback to last").0, 1305);
    assert_eq!(rows(&mut session, "select k from sbtest1 where id = 1"), "10;");
}

#[test]
fn settings_and_transactions_share_a_session() {
    let world = World::new();
    let mut session = world.session();
    session.run("set @a = 5").expect("it is set");
    session.run("begin").expect("it begins");
    session.run("update sbtest1 set k = @a where id = 1").expect("it is changed");
    session.run("set @a = 6").expect("it is set");
    session.run("update sbtest1 set k = @a where id = 3").expect("it is changed");
    session.run("commit").expect("it is kept");
    assert_eq!(rows(&mut session, "select k, @a from sbtest1 where id in (1, 3)"), "5|6;6|6;");
    assert_eq!(rows(&mut session, "select k, @a from sbtest1 where id = 2"), "20|6;");
    drop(session);
    world.settled();
    // Both were closed, for the settings in them.
    assert_eq!(discarded(&world), 2);
}

#[test]
fn the_session_of_a_lost_transaction_is_discarded() {
    let world = World::with(|| Fleet::start(1, limits().max(2)).expect("they start"));
    for end in ["commit", "begin", "set autocommit = 1"] {
        let (mut one, mut other, mut next) = (world.session(), world.session(), world.session());
        one.run("set @a = 7").expect("it is set");
        one.run("set autocommit = 0").expect("it is off");
        one.run("start transaction with consistent snapshot").expect("it begins");
        assert_eq!(rows(&mut one, "select count(*) from sbtest1 where id = 1"), "1;");
        other.run("update sbtest1 set k = k + 1 where id = 1").expect("it is changed");
        assert_eq!(refused(&mut one, "update sbtest1 set k = 0 where id = 1").0, 1213);
        // The other session of the data node is in use, so the pool lends the one of the lost
        // transaction or a new one.
        other.run("begin").expect("it begins");
        assert_eq!(rows(&mut other, "select count(*) from sbtest1 where id = 1"), "1;");
        let before = discarded(&world);
        assert_eq!(refused(&mut one, end).0, 1213, "{end}");
        assert_eq!(discarded(&world), before + 1, "{end}");
        assert_eq!(rows(&mut next, "select @a from sbtest1 where id = 3"), "NULL;", "{end}");
        drop((one, other, next));
        world.settled();
    }
}
