//! Requests that are answered later, from any thread.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::row::Column;
use epoll_group::session::{Deferred, Reply, Row, SessionError};
use epoll_group::stats::Counter;
use epoll_group::{net, stall};
use lab::child::in_child;
use lab::engine::{Counts, Fixture, Numbers, config, finish_with, one_text};
use lab::threads::threads;
use lab::xrpc::request::query;
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually, often};

fn execute(sql: &str) -> ClientMessage {
    ClientMessage::ExecSql(query(sql))
}

#[test]
fn a_request_is_finished_from_another_thread() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, query("defer a"));
    client.send_sql(2, query("echo behind"));
    let deferred = server.control.take_one_deferred("a");
    assert!(!deferred.is_cancelled());
    assert_eq!(server.stats().deferred_requests, 1);
    let finished = thread::spawn(move || finish_with(deferred, "done")).join();
    assert!(finished.expect("no panic"));
    assert_eq!(client.reply(2).one().text(), Some("done"));
    assert_eq!(client.reply(2).one().text(), Some("behind"));
    assert_eq!(server.stats().deferred_requests, 0);
}

#[test]
fn one_that_is_dropped_answers_an_error() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    for round in 1..=3 {
        let failure = client.execute(2, "defer-drop").failure();
        assert_eq!((failure.fatal, failure.code), (false, 1317));
        assert_eq!(failure.text, "The request was dropped without an answer.");
        server.wait_for(Counter::DeferredDropped, round);
    }
    client.send_sql(2, query("defer a"));
    drop(server.control.take_one_deferred("a"));
    assert_eq!(client.reply(2).failure().code, 1317);
    client.execute(2, "one").one();
    assert_eq!(server.stats().deferred_requests, 0);
}

thread_local! {
    static LAST: Cell<Option<Deferred>> = const { Cell::new(None) };
}

#[test]
fn one_that_a_thread_local_drops_after_all_others_answers_an_error() {
    in_child(|| {
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions([2, 3]);
        client.send_sql(2, query("defer a"));
        client.send_sql(3, query("defer b"));
        let [a, b] = ["a", "b"].map(|name| server.control.take_one_deferred(name));
        let ends = thread::spawn(|| {
            // Thread-locals are dropped in the reverse order of their first use.
            LAST.set(Some(a));
            assert!(net::together(|| finish_with(b, "done")));
        });
        ends.join().expect("no panic");
        assert_eq!(client.reply(3).one().text(), Some("done"));
        assert_eq!(client.reply(2).failure().code, 1317);
    });
}

#[test]
fn ten_thousand_hold_no_thread() {
    // A slow machine has a long queue, for which a thread would be added.
    let server = Fixture::start(config().enable_tasker(false));
    let before = threads(&server.stats());
    let mut clients: Vec<_> = (0..5).map(|_| server.client_with_sessions(0..2000)).collect();
    for client in &mut clients {
        for session in 0..2000 {
            client.queue(session, &execute("defer a"));
        }
        client.flush();
    }
    let mut all = server.control.take_deferred("a", 10_000);
    assert_eq!(server.stats().deferred_requests, 10_000);
    server.wait_until_idle(before);
    clients[0].new_session(5000);
    clients[0].execute(5000, "one").one();
    // The answers come in another order than the requests.
    let halves = all.split_off(5_000);
    thread::scope(|scope| {
        for half in [all, halves] {
            scope.spawn(|| half.into_iter().rev().for_each(|one| assert!(finish_with(one, "x"))));
        }
    });
    for client in &mut clients {
        (0..2000).for_each(|session| drop(client.reply(session).one()));
    }
    assert_eq!(server.stats().deferred_requests, 0);
}

#[test]
fn those_that_are_finished_together_leave_in_one_send() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    let calls = || server.stats().get(Counter::SendCalls);
    for _ in 0..20 {
        for session in [2, 3] {
            client.send_sql(session, query("defer a"));
        }
        let all = server.control.take_deferred("a", 2);
        let before = calls();
        // Two answers: the send of the second takes along the first, even if the first is old.
        net::together(|| all.into_iter().for_each(|one| assert!(finish_with(one, "done"))));
        assert_eq!(calls() - before, 1);
        for session in [2, 3] {
            assert_eq!(client.reply(session).one().text(), Some("done"));
        }
    }
}

#[test]
fn what_leaves_together_leaves_before_a_wait_and_at_a_panic() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, query("defer a"));
    let deferred = server.control.take_one_deferred("a");
    // The answering thread has sent nothing before.
    net::together(|| {
        assert!(finish_with(deferred, "first"));
        stall::run(|| assert_eq!(client.reply(2).one().text(), Some("first")));
    });
    client.send_sql(2, query("defer a"));
    let deferred = server.control.take_one_deferred("a");
    let panics = || {
        net::together(|| {
            assert!(finish_with(deferred, "second"));
            panic!("a panic that is meant");
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(client.reply(2).one().text(), Some("second"));
}

#[test]
fn a_kill_means_the_request_that_has_no_answer_yet() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    for _ in 0..2000 {
        client.send_sql(2, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        let finished = thread::spawn(move || finish_with(deferred, "done"));
        // The client may have its answer before the session knows of it.
        assert_eq!(client.reply(2).one().text(), Some("done"));
        client.send_sql(2, query("defer b"));
        client.kill_query(2);
        assert_eq!(client.reply(2).failure().code, 1317);
        assert!(finished.join().expect("no panic"));
        drop(server.control.deferred_by_now("b"));
    }
}

#[test]
fn what_is_finished_after_a_kill_goes_nowhere() {
    let server = Fixture::start(config());
    let mut client = server.client();
    for round in 0..20 {
        client.new_session(2);
        client.send_sql(2, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        if round % 2 == 0 {
            client.kill_query(2);
            assert_eq!(client.reply(2).failure().code, 1317);
        } else {
            let kill = client.kill_connection(2);
            client.reply_to(kill).failure();
            client.reply(2).failure();
            client.new_session(2);
        }
        // A late answer does not reach the new session, even if it is finished at the same time.
        let late = thread::spawn(move || finish_with(deferred, "late"));
        for _ in 0..5 {
            assert_eq!(client.execute(2, "echo next").one().text(), Some("next"));
        }
        late.join().expect("no panic");
        client.close(2).good();
    }
    assert_eq!(client.strays(), []);
}

#[test]
fn finishing_races_with_killing_and_one_of_them_answers() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let (deferred, to_finish) = mpsc::channel::<Deferred>();
    let finisher = thread::spawn(move || {
        to_finish.into_iter().map(|one| u64::from(finish_with(one, "done"))).sum()
    });
    let (mut finished, mut killed): (u64, u64) = (0, 0);
    let (began, least) = (Instant::now(), u64::from(often(500)));
    // Goes on until each of the two has won at least once.
    while finished + killed < least || finished == 0 || killed == 0 {
        assert!(began.elapsed() < LONG, "{finished} finished, {killed} killed");
        client.send_sql(2, query("defer a"));
        let one = server.control.take_one_deferred("a");
        // Each of the two has a lead in turn.
        if (finished + killed).is_multiple_of(2) {
            deferred.send(one).expect("the finisher waits");
            client.kill_query(2);
        } else {
            client.kill_query(2);
            deferred.send(one).expect("the finisher waits");
        }
        let reply = client.reply(2);
        match &reply.error {
            None => {
                assert_eq!(reply.one().text(), Some("done"));
                finished += 1;
            }
            Some(failure) => {
                assert_eq!(failure.code, 1317);
                killed += 1;
            }
        }
        client.execute(2, "one").one();
    }
    drop(deferred);
    let claimed: u64 = finisher.join().expect("no panic");
    assert!(claimed >= finished, "{claimed} {finished}");
    assert_eq!(client.strays(), []);
}

#[test]
fn a_panic_while_it_is_finished_ends_the_session_and_reaches_the_caller() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("defer a"));
    let deferred = server.control.take_one_deferred("a");
    let finish = || deferred.finish(|_| panic!("a panic that is meant"));
    assert!(catch_unwind(AssertUnwindSafe(finish)).is_err());
    let failure = client.reply(2).failure();
    assert_eq!((failure.fatal, &*failure.text), (true, "Session unexpected killed."));
    client.execute(3, "one").one();
    eventually(LONG, || Counts::of(&server.control.counts.closed) == 1);
}

#[test]
fn rows_can_come_from_a_source_that_was_given_later() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    for chunks in [false, true] {
        let statement =
            StmtExecute { chunk_result: Some(chunks), token: Some(1), ..query("defer a") };
        client.set_offers(Some(2));
        client.send_sql(2, statement);
        client.send_sql(2, query("echo behind"));
        let deferred = server.control.take_one_deferred("a");
        let source = Numbers::new(&server.control, 1000, 100);
        assert!(deferred.finish(|reply| {
            reply.columns(&[Column::signed("id"), Column::text("pad", 45, 255)])?;
            reply.source(source);
            Ok(())
        }));
        assert_eq!(client.reply(2).good().rows.len(), 1000);
        assert_eq!(client.reply(2).one().text(), Some("behind"));
    }
}

#[test]
fn a_foreign_thread_that_writes_rows_waits_for_credit_like_a_handler() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.set_offers(None);
    let statement = StmtExecute { token: Some(1), ..query("defer a") };
    for kill in [false, true] {
        let ticket = client.send_sql(2, statement.clone());
        let deferred = server.control.take_one_deferred("a");
        let writer = thread::spawn(move || {
            deferred.finish(|reply| {
                reply.columns(&[Column::signed("id")])?;
                (0..1000).try_for_each(|id| reply.row(|row| row.int(id)))
            })
        });
        client.wait_for(ticket, |reply| reply.token_done == 1);
        if kill {
            client.kill_query(2);
            assert_eq!(client.reply(2).failure().code, 1317);
        } else {
            client.offer(2, 1000);
            assert_eq!(client.reply(2).good().rows.len(), 1000);
        }
        assert!(writer.join().expect("no panic"));
    }
}

#[test]
fn it_can_be_put_off_again() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, query("defer a"));
    client.send_sql(2, query("echo behind"));
    let mut deferred = server.control.take_one_deferred("a");
    for _ in 0..5 {
        let (again, taken) = mpsc::channel();
        assert!(deferred.finish(move |reply| {
            again.send(reply.defer()).expect("somebody waits");
            Ok(())
        }));
        deferred = taken.recv().expect("put off");
    }
    assert!(finish_with(deferred, "at last"));
    assert_eq!(client.reply(2).one().text(), Some("at last"));
    assert_eq!(client.reply(2).one().text(), Some("behind"));
    // The next request is interrupted after it was deferred a second time.
    client.send_sql(2, query("defer a"));
    let (again, taken) = mpsc::channel();
    assert!(server.control.take_one_deferred("a").finish(move |reply| {
        again.send(reply.defer()).expect("somebody waits");
        Ok(())
    }));
    client.kill_query(2);
    assert_eq!(client.reply(2).failure().code, 1317);
    assert!(!finish_with(taken.recv().expect("put off"), "too late"));
    client.execute(2, "one").one();
}

#[test]
fn one_that_fails_after_it_was_deferred_has_one_answer() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    assert_eq!(client.execute(2, "defer-fail a").failure().code, 1234);
    assert!(!finish_with(server.control.take_one_deferred("a"), "too late"));
    assert_eq!(client.execute(2, "defer-finish-fail x").one().text(), Some("x"));
    client.execute(2, "one").one();
    // The same for a request that is deferred a second time.
    for finish_first in [false, true] {
        client.send_sql(2, query("defer a"));
        let (again, taken) = mpsc::channel();
        assert!(server.control.take_one_deferred("a").finish(move |reply| {
            let deferred = reply.defer();
            if finish_first {
                assert!(finish_with(deferred, "second"));
            } else {
                again.send(deferred).expect("somebody waits");
            }
            Err(SessionError::new(1235, b"42000", "put off, and failed"))
        }));
        let reply = client.reply(2);
        if finish_first {
            assert_eq!(reply.one().text(), Some("second"));
        } else {
            assert_eq!(reply.failure().code, 1235);
            assert!(!finish_with(taken.recv().expect("put off"), "too late"));
        }
        client.execute(2, "one").one();
    }
    assert_eq!(client.strays(), []);
}

#[test]
fn savepoints_and_statements_in_sessions_of_their_own_are_deferred_too() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.send(2, &lab::xrpc::request::savepoint(Operation::Set, "deferred"));
    let deferred = server.control.take_one_deferred("savepoint");
    assert!(deferred.finish(|_| Ok(())));
    assert!(client.reply(2).good().ok.is_some());
    for id in 0..100 {
        client.send_sql(AUTO | id, query("defer a"));
    }
    for (at, deferred) in server.control.take_deferred("a", 100).into_iter().enumerate() {
        assert!(deferred.finish(|reply| one_text(reply, &at.to_string())));
    }
    (0..100).for_each(|id| drop(client.reply(AUTO | id).one()));
    eventually(LONG, || server.stats().sessions == 1);
}

#[test]
fn one_whose_connection_is_gone_learns_it() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("defer a"));
    client.send_sql(3, query("defer a"));
    let deferred = server.control.take_deferred("a", 2);
    client.reset();
    eventually(LONG, || deferred.iter().all(Deferred::is_cancelled));
    server.wait_until_even();
    deferred.into_iter().for_each(|one| assert!(!finish_with(one, "too late")));
}

#[test]
fn what_was_cancelled_and_is_finished_late_keeps_no_descriptor() {
    in_child(|| {
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions([2]);
        let before = lab::child::descriptors();
        let mut kept = Vec::new();
        for round in 0..50 {
            let mut other = server.client_with_sessions([2]);
            other.send_sql(2, query("defer a"));
            kept.push(server.control.take_one_deferred("a"));
            if round % 2 == 0 {
                other.kill_query(2);
                assert_eq!(other.reply(2).failure().code, 1317);
            }
            other.reset();
        }
        eventually(LONG, || lab::child::descriptors() == before);
        // Each of them still counts, because its holder may be working on it.
        assert_eq!(server.stats().deferred_requests, 50);
        assert!(kept.iter().all(Deferred::is_cancelled));
        kept.into_iter().for_each(|one| assert!(!finish_with(one, "too late")));
        assert_eq!(server.stats().deferred_requests, 0);
        client.execute(2, "one").one();
    });
}

#[test]
fn what_is_put_off_again_when_its_session_has_ended_keeps_no_descriptor() {
    in_child(|| {
        let server = Fixture::start(config());
        // The first login may open a source of random numbers, which stays.
        let _other = server.client();
        let before = lab::child::descriptors();
        let mut client = server.client_with_sessions([2]);
        client.send_sql(2, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        let mut again = None;
        assert!(deferred.finish(|reply| {
            client.reset();
            server.wait_until_even();
            again = Some(reply.defer());
            Ok(())
        }));
        eventually(LONG, || lab::child::descriptors() == before);
        assert!(!finish_with(again.expect("put off"), "too late"));
    });
}

#[test]
fn one_whose_time_runs_out_while_it_is_answered_says_so() {
    let server = Fixture::start(config().request_timeout(Duration::from_millis(50)));
    let mut client = server.client_with_sessions([2]);
    let until_late = |reply: &mut Reply<'_>| eventually(LONG, || reply.is_cancelled());
    let mut answers = |source: bool| {
        client.send_sql(2, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        let answered = deferred.finish(|reply| {
            reply.columns(&[Column::signed("n")])?;
            until_late(reply);
            if !source {
                return Err(SessionError::interrupted());
            }
            reply.source(|_: &mut Row<'_>| Ok(true));
            Ok(())
        });
        let failure = client.reply(2).failure();
        assert_eq!((failure.fatal, failure.code), (false, 3024), "{failure:?}");
        answered
    };
    for source in [false, true] {
        // If the time is over before the handler begins, the session answers instead. Then the
        // round is repeated.
        assert!((0..20).any(|_| answers(source)));
    }
}

/// Found by review: when a session ended, the deferred answer in progress no longer reported its
/// kill.
#[test]
fn one_whose_session_ends_while_it_is_answered_learns_it() {
    let server = Fixture::start(config());
    for reset in [false, true] {
        let mut client = server.client_with_sessions([2]);
        client.send_sql(2, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        let ((begins, begun), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
        let writer = thread::spawn(move || {
            deferred.finish(|reply| {
                reply.columns(&[Column::signed("id")])?;
                begins.send(()).expect("the test waits");
                ended.recv_timeout(LONG).expect("the session ends");
                assert!(reply.is_cancelled());
                reply.row(|row| row.int(1))
            })
        });
        begun.recv_timeout(LONG).expect("it is answered");
        let closed = Counts::of(&server.control.counts.closed);
        if reset {
            client.reset();
        } else {
            client.kill_connection(2);
        }
        eventually(LONG, || Counts::of(&server.control.counts.closed) == closed + 1);
        end.send(()).expect("the writer waits");
        assert!(writer.join().expect("no panic"));
    }
}

fn put_off_and_drop(reply: &mut Reply<'_>) -> Result<(), SessionError> {
    drop(reply.defer());
    Ok(())
}

/// Found by review: the error was lost if the handle was used up before the handler failed.
#[test]
fn a_handler_that_fails_for_good_ends_its_session_behind_the_deferred_answer() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let scripts: [(fn(&mut Reply<'_>), _); 3] = [
        (|reply| drop(reply.defer()), None),
        (|reply| assert!(finish_with(reply.defer(), "x")), Some("x")),
        (|reply| assert!(reply.defer().finish(put_off_and_drop)), None),
    ];
    for (defer, answer) in scripts {
        for panics in [false, true] {
            server.control.plant("fails", move |reply| {
                defer(reply);
                assert!(!panics, "a panic that is meant");
                Err(SessionError::fatal(1234, b"42000", "for good"))
            });
            let reply = client.execute(2, "script fails");
            match answer {
                Some(text) => assert_eq!(reply.one().text(), Some(text)),
                None => assert_eq!(reply.failure().code, 1317),
            }
            let code = if panics { 8001 } else { 1234 };
            let ends = |client: &Client| client.strays().iter().any(|stray| stray.1.code == code);
            client.wait(ends).expect("the session ends");
            client = server.client_with_sessions([2]);
        }
    }
    eventually(LONG, || Counts::of(&server.control.counts.closed) == 6);
}

#[test]
fn a_source_that_waits_for_credit_says_so_once() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.set_offers(None);
    for _ in 0..50 {
        let ticket = client.send_sql(2, StmtExecute { token: Some(1), ..query("defer a") });
        let deferred = server.control.take_one_deferred("a");
        let source = Numbers::new(&server.control, 20, 100);
        assert!(deferred.finish(|reply| {
            reply.columns(&[Column::signed("id"), Column::text("pad", 45, 255)])?;
            reply.source(source);
            Ok(())
        }));
        client.wait_for(ticket, |reply| reply.token_done == 1);
        // This request lets the session look at the source again, still without credit.
        client.send_sql(2, query("one"));
        client.probe();
        client.offer(2, 1000);
        assert_eq!(client.reply_to(ticket).good().token_done, 1);
        client.reply(2).one();
    }
}

#[test]
fn a_request_behind_a_fatal_deferred_answer_is_answered() {
    let server = Fixture::start(config());
    let mut client = server.client();
    for session in 1..=often(500).into() {
        client.new_session(session).good();
        let ticket = client.send_sql(session, query("defer a"));
        let deferred = server.control.take_one_deferred("a");
        assert!(deferred.finish(|_| Err(SessionError::fatal(1234, b"42000", "over"))));
        assert_eq!(client.reply_to(ticket).failure().code, 1234);
        assert_eq!(client.execute(session, "one").failure().text, "Session not found.");
    }
}
