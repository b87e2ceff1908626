//! Order, large answers, slow readers, kills, and how few threads it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use epoll_group::client::{Request, Session};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::stats::{Counter, Snapshot};

use super::{LONG_ROW_BYTES, World, insert_long_rows, refused, rows, until};

#[test]
fn what_is_pipelined_is_answered_in_order() {
    let world = World::new();
    let mut session = world.session();
    let pending: Vec<_> = (0..48)
        .map(|number| {
            let id = 1 + number % 8;
            // Errors have their place as well.
            let request = match number % 3 {
                0 => Request::sql("select k from sbtest1 where id = ?").arg(Scalar::signed(id)),
                1 => Request::sql(format!("select {id}")),
                _ => Request::sql(format!("select k from other where k = {id}")),
            };
            (number % 3, id, session.send(request).expect("it is sent"))
        })
        .collect();
    for (kind, id, pending) in pending {
        let answer = pending.wait().and_then(super::text);
        match kind {
            0 => assert_eq!(answer.expect("it is there"), format!("{};", id * 10)),
            1 => assert_eq!(answer.expect("it is there"), format!("{id};")),
            _ => assert!(answer.is_err()),
        }
    }
}

const ROWS: i64 = 400;

#[test]
fn a_slow_reader_holds_little_and_nobody() {
    let world = World::new();
    let mut session = world.session();
    // All on one node.
    insert_long_rows(&mut session, (0..ROWS).map(|id| 100 + 2 * id));
    let ids: Vec<_> = (0..ROWS).map(|id| (100 + 2 * id).to_string()).collect();
    let all = format!("select id, c from sbtest1 where id in ({})", ids.join(", "));
    let client = world.client_with_small_window();
    let mut slow = client.session().expect("the proxy is there");
    let mut answer = slow.execute(all).expect("it begins");
    for at in 0..3 {
        let row = answer.next_row().expect("it comes").expect("there are more");
        assert_eq!(super::Value::Signed(100 + 2 * at), row.get(0).expect("it is a number"));
    }
    // Another session goes on meanwhile, at the same node.
    for _ in 0..100 {
        assert_eq!(rows(&mut session, "select k from sbtest1 where id = 2"), "20;");
    }
    assert_eq!(world.fleet.in_use(), 1);
    let held = world.fleet.proxy.stats().buffered_bytes;
    assert!(held < 4 << 20, "{held} bytes of {} wait in the proxy", ROWS as usize * LONG_ROW_BYTES);
    let mut rest = 3;
    while let Some(row) = answer.next_row().expect("it comes") {
        assert_eq!(super::Value::Signed(100 + 2 * rest), row.get(0).expect("it is a number"));
        rest += 1;
    }
    assert_eq!(rest, ROWS);
    world.settled();
}

#[test]
fn an_answer_that_nobody_reads_to_its_end_costs_its_session_alone() {
    let world = World::new();
    let mut session = world.session();
    for _ in 0..20 {
        drop(session.send("select sleep(0.01)").expect("it is sent"));
    }
    assert_eq!(rows(&mut session, "select 1"), "1;");
    drop(session);
    world.settled();
}

#[test]
fn a_statement_is_killed_where_it_runs() {
    let world = World::new();
    let mut session = world.session();
    let pending = session.send("select sleep(600)").expect("it is sent");
    until("it runs", || world.fleet.in_use() == 1);
    session.canceller().cancel();
    let error = pending.wait().and_then(super::text).expect_err("it is killed");
    assert_eq!(error.server_error().map(|said| said.code), Some(1317), "{error}");
    // The statement ends at the data node, too.
    world.settled();
    assert_eq!(rows(&mut session, "select 1"), "1;");
}

#[test]
fn a_killed_statement_leaves_its_transaction() {
    let world = World::new();
    let (mut one, mut other) = (world.session(), world.session());
    one.run("begin").expect("it begins");
    one.run("update sbtest1 set k = 0 where id = 1").expect("it is changed");
    for _ in 0..10 {
        let pending = one.send("select sleep(600)").expect("it is sent");
        one.canceller().cancel();
        let error = pending.wait().and_then(super::text).expect_err("it is killed");
        assert_eq!(error.server_error().map(|said| said.code), Some(1317), "{error}");
        // Runs behind the killed one, in the same session of the node.
        assert_eq!(rows(&mut one, "select k from sbtest1 where id = 1"), "0;");
        assert_eq!(rows(&mut other, "select k from sbtest1 where id = 1"), "10;");
    }
    one.run("rollback").expect("it is undone");
    assert_eq!(rows(&mut one, "select k from sbtest1 where id = 1"), "10;");
    world.settled();
}

const MANY: usize = 1024;

/// As many requests as there are sessions, under way at the same time; then they are killed.
fn all_at_once(world: &World, sessions: &mut [Session], meanwhile: impl FnOnce(&Snapshot)) {
    let ended = Arc::new(AtomicUsize::new(0));
    for session in &mut *sessions {
        let ended = Arc::clone(&ended);
        session.execute_then("select sleep(600)", move |_| {
            ended.fetch_add(1, Ordering::Relaxed);
        });
    }
    until("all are under way", || world.fleet.in_use() == sessions.len());
    meanwhile(&world.fleet.proxy.stats());
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    for session in &*sessions {
        session.canceller().cancel();
    }
    until("all have ended", || ended.load(Ordering::Relaxed) == sessions.len());
    world.settled();
}

#[test]
fn many_requests_in_flight_take_no_threads() {
    let world = World::new();
    let mut sessions: Vec<_> = (0..MANY).map(|_| world.session()).collect();
    let counted = || {
        let stats = world.fleet.proxy.stats();
        let started = [Counter::ThreadsStartedStall, Counter::ThreadsStartedBacklog];
        let connects = world.fleet.nodes.status();
        let connects: u64 = connects.iter().map(|status| status.totals.connects).sum();
        (connects, started.map(|counter| stats.get(counter)))
    };
    // The pool announces each connect as a wait, and a thread may be started for that time. When
    // all sessions are there, nothing waits. On a slow machine the requests may be a backlog for a
    // moment, for which threads are started, too. Waiting requests would have them started each
    // time.
    for _ in 0..20 {
        until("the dynamic threads have left", || world.fleet.proxy.stats().dynamic_threads == 0);
        let (connects, started) = counted();
        let mut held = None;
        all_at_once(&world, &mut sessions, |stats| {
            assert_eq!(stats.deferred_requests, MANY as u64);
            held = Some((counted(), stats.clone()));
        });
        let ((connects_then, started_then), stats) = held.expect("it was looked at");
        if (connects_then, started_then) == (connects, started) {
            assert!(stats.workers <= stats.base_threads + stats.reserve_threads, "{stats}");
            return;
        }
    }
    panic!("sessions of data nodes were made, or threads started, each time");
}

#[test]
fn plans_and_chunks_pass() {
    use epoll_group::codec::proto::plan::{AnyPlan, GetExpr, TableInfo};
    let world = World::new();
    let mut session = world.session();
    let name = |name: &str| Scalar::string(name, None);
    let plan = |id: Scalar| {
        let table = TableInfo::new(name("sbtest1"), Some(name("sbtest")));
        let key = GetExpr::new([(name("id"), id)]);
        AnyPlan::get(table, None, [key]).table_project([name("k"), name("id")])
    };
    for id in 1..=8 {
        let request = Request::plan(plan(Scalar::placeholder(0))).arg(Scalar::signed(id)).cached();
        assert_eq!(rows(&mut session, request.clone()), format!("{}|{id};", id * 10));
        assert_eq!(rows(&mut session, request.chunks()), format!("{}|{id};", id * 10));
    }
    assert_eq!(rows(&mut session, Request::sql("select 1, 'a'").chunks().compact()), "1|a;");
    let all = Request::sql("select count(*), min(k), max(k), sum(k) from sbtest1");
    assert_eq!(rows(&mut session, all.clone().chunks().compact()), "8|10|80|360;");
    assert_eq!(rows(&mut session, all.cached()), "8|10|80|360;");
    assert_eq!(refused(&mut session, Request::plan(AnyPlan::default())).0, 8001);
}

#[test]
fn definitions_and_merges_reach_all_nodes() {
    let world = World::new();
    let mut session = world.session();
    assert_eq!(
        rows(&mut session, "select min(k), max(id) from sbtest1 where k > 1000"),
        "NULL|NULL;"
    );
    assert_eq!(
        rows(&mut session, "select sum(k), count(*) from sbtest1 where id = 2 or id = 3"),
        "50|2;"
    );
    session.run("drop table sbtest1").expect("it is dropped");
    assert_eq!(refused(&mut session, "select k from sbtest1 where id = 1").0, 1146);
    assert_eq!(refused(&mut session, "select k from sbtest1 where id = 2").0, 1146);
    session.run("create table sbtest1 (id int primary key, k int)").expect("it is made");
    for id in 1..=3 {
        session.run(format!("insert into sbtest1 (id, k) values ({id}, 1)")).expect("it is there");
    }
    assert_eq!(rows(&mut session, "select count(*) from sbtest1"), "3;");
}

#[test]
fn a_definition_that_a_part_of_the_nodes_did_says_which() {
    let world = World::new();
    let mut session = world.session();
    // Two equal values on the second node.
    session.run("update sbtest1 set k = 30 where id = 1").expect("it is changed");
    let index = "create unique index u on sbtest1 (k)";
    let (code, text) = refused(&mut session, index);
    assert_eq!(code, 1062, "{text}");
    assert!(text.ends_with("; done on n0; failed on n1"), "{text}");
    let (code, text) = refused(&mut session, index);
    assert_eq!(code, 1061, "{text}");
    assert!(!text.contains(" on n"), "{text}");
    world.settled();
}
