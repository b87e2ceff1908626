//! Cases that are easy to overlook: requests behind others when time runs out, kills that come too
//! early, requests that are answered from two places.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::value::{Any, SessionVariable};
use epoll_group::codec::row::Column;
use epoll_group::session::{
    Account, AuthError, Cancel, Deferred, Login, Peer, Reply, Request, Server, Service,
    SessionError, SessionId,
};
use epoll_group::stats::Counter;
use lab::engine::{Fixture, config};
use lab::xrpc::request::query;
use lab::xrpc::{AUTO, Client};
use lab::{Kind, LONG, eventually};

fn with_token(sql: &str, kib: i32) -> ClientMessage {
    ClientMessage::ExecSql(StmtExecute { token: Some(kib), ..query(sql) })
}

#[test]
fn what_stands_behind_a_request_that_was_too_slow_is_too_slow_itself() {
    let server = Fixture::start(config().request_timeout(Duration::from_millis(200)));
    let mut client = server.client_with_sessions([2, 3]);
    client.set_offers(None);
    for sql in ["source 1000000 100", "rows 1000000 100", "defer a"] {
        for _ in 0..3 {
            client.queue(2, &with_token(sql, 1));
        }
    }
    client.flush();
    for _ in 0..9 {
        let failure = client.reply(2).failure();
        assert_eq!((failure.fatal, failure.code), (false, 3024), "{failure:?}");
    }
    // On a slow machine, to open the two sessions may have taken as long.
    let expired = server.count(Counter::RequestsExpired);
    assert!((9..=11).contains(&expired), "{expired} expired");
}

#[test]
fn a_request_that_came_later_has_its_own_time() {
    let server = Fixture::start(config().request_timeout(Duration::from_millis(300)));
    let mut client = server.client_with_sessions([2]);
    client.set_offers(None);
    client.send_sql(2, query("stubborn a"));
    server.control.wait_at("a", 1);
    // The first request is cancelled and goes on. After this second request nothing else is sent.
    client.send_sql(2, query("source 1000000 100").into_little());
    eventually(LONG, || server.control.cancels().len() == 1);
    server.control.open("a");
    client.reply(2);
    assert_eq!(client.reply(2).failure().code, 3024);
}

trait IntoLittle {
    fn into_little(self) -> StmtExecute;
}

impl IntoLittle for StmtExecute {
    fn into_little(self) -> StmtExecute {
        Self { token: Some(1), ..self }
    }
}

#[test]
fn a_session_that_opens_slowly_is_not_looked_at_without_end() {
    let server = Fixture::start(config().request_timeout(Duration::from_millis(100)));
    let mut other = server.client_with_sessions([2]);
    let mut client = server.client();
    server.control.hold("open");
    client.send(2, &ClientMessage::SessionNew);
    server.control.wait_at("open", 1);
    let mut time_passes = || {
        other.send_sql(2, query("defer a"));
        assert_eq!(other.reply(2).failure().code, 3024);
    };
    // The first wait lasts beyond the deadline that the opening would have, the second as long
    // again.
    time_passes();
    let before = server.count(Counter::TimersSet);
    time_passes();
    let set = server.count(Counter::TimersSet) - before;
    assert!(set < 10, "{set} looks");
    server.control.open("open");
    client.reply(2).good();
}

#[test]
fn a_connection_that_is_gone_leaves_no_timer() {
    let server = Fixture::start(config());
    let pending = || server.stats().timers_pending;
    let before = pending();
    for _ in 0..50 {
        let mut client = server.client_with_sessions([2]);
        client.execute(2, "one").one();
        client.reset();
    }
    server.wait_until_even();
    eventually(LONG, || pending() <= before);
}

#[test]
fn a_drain_does_not_wait_for_credit_that_nobody_reads() {
    let mut server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.set_offers(None);
    let waits = [(2, "source 1000000 100"), (3, "rows 1000000 100")];
    for (session, sql) in waits {
        let ticket = client.send_sql(session, query(sql).into_little());
        client.wait_for(ticket, |reply| reply.token_done == 1);
    }
    let began = Instant::now();
    let drain = server.drain_on_another_thread();
    for (session, _) in waits {
        assert_eq!(client.reply(session).failure().code, 1317);
    }
    drain.join().expect("drained");
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
}

#[test]
fn a_kill_that_comes_while_the_session_is_opened_is_for_the_request_behind_that() {
    let server = Fixture::start(config());
    server.control.hold("open");
    let mut client = server.client();
    client.queue(2, &ClientMessage::SessionNew);
    client.queue(2, &ClientMessage::ExecSql(query("gate a")));
    client.queue(2, &ClientMessage::ExecSql(query("one")));
    client.flush();
    server.control.wait_at("open", 1);
    client.kill_query(2);
    // The answer to the probe shows that the kill was read.
    client.probe();
    server.control.open("open");
    client.reply(2).good();
    assert_eq!(client.reply(2).failure().code, 1317);
    client.reply(2).one();
    server.control.open("a");
}

#[test]
fn arguments_are_counted_by_what_they_take_in_memory() {
    let server = Fixture::start(config().max_queued_bytes_per_connection(1 << 20));
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("gate a"));
    server.control.wait_at("a", 1);
    let args = vec![Any::default(); 60_000];
    let statement = StmtExecute { args, ..query("one") };
    let failure = {
        client.send_sql(2, statement);
        client.reply(2).failure()
    };
    assert_eq!(failure.text, "Session max_queued_bytes 1048576 limit exceed.");
    client.execute(3, "one").one();
}

#[test]
fn session_variables_are_counted_by_what_they_take_in_memory() {
    let server = Fixture::start(config().max_queued_bytes_per_connection(1 << 20));
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("gate a"));
    server.control.wait_at("a", 1);
    let session_variables = vec![SessionVariable::default(); 60_000];
    client.send_sql(2, StmtExecute { session_variables, ..query("one") });
    let failure = client.reply(2).failure();
    assert_eq!(failure.text, "Session max_queued_bytes 1048576 limit exceed.");
    client.execute(3, "one").one();
}

/// Service that answers in unusual ways.
#[derive(Default)]
struct Odd {
    kept: Mutex<Vec<Deferred>>,
    spiteful: AtomicBool,
}

/// Panics in its drop if `spiteful` is set.
struct Spite(Arc<Odd>);

impl Drop for Spite {
    fn drop(&mut self) {
        assert!(!self.0.spiteful.load(Ordering::SeqCst), "a panic that is meant");
    }
}

struct OddService(Arc<Odd>);

impl Service for OddService {
    type Session = ();

    fn authenticate(&self, _login: &Login<'_>) -> Result<Account, AuthError> {
        Ok(Account::new("root"))
    }

    fn open(&self, _peer: &Peer, _id: SessionId) -> Result<((), Cancel), SessionError> {
        let spite = Spite(Arc::clone(&self.0));
        Ok(((), Cancel::new(move |_| assert!(Arc::strong_count(&spite.0) > 0))))
    }

    fn execute(
        &self,
        (): &mut (),
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let Request::Sql(sql) = request else { unreachable!("only SQL is sent") };
        match sql.text {
            b"twice" => {
                let first = reply.defer();
                let second = reply.defer();
                assert!(!second.finish(|reply| one(reply, 2)));
                assert!(first.finish(|reply| one(reply, 1)));
                Ok(())
            }
            b"and write" => {
                self.0.kept.lock().expect("no panic").push(reply.defer());
                assert!(reply.columns(&[Column::signed("n")]).is_err());
                assert!(reply.row(|row| row.int(2)).is_err());
                Ok(())
            }
            _ => one(reply, 3),
        }
    }
}

fn one(reply: &mut Reply<'_>, number: i64) -> Result<(), SessionError> {
    reply.columns(&[Column::signed("n")])?;
    reply.row(|row| row.int(number))
}

fn odd(test: impl FnOnce(&Odd, &lab::Server, &mut Client)) {
    let odd = Arc::new(Odd::default());
    let server = lab::Server::start(Kind::Tcp, config(), Server::new(OddService(Arc::clone(&odd))));
    let epoll_group::net::Address::Tcp(addr) = server.address() else { panic!("TCP") };
    let mut client = Client::logged_in(*addr, "root", "x");
    client.new_session(2);
    test(&odd, &server, &mut client);
}

#[test]
fn a_request_is_deferred_once_and_answered_from_there_alone() {
    odd(|odd, _, client| {
        assert_eq!(client.execute(2, "twice").one().integer(), Some(1));
        client.send_sql(2, query("and write"));
        eventually(LONG, || !odd.kept.lock().expect("no panic").is_empty());
        for deferred in odd.kept.lock().expect("no panic").drain(..) {
            assert!(deferred.finish(|reply| one(reply, 4)));
        }
        assert_eq!(client.reply(2).one().integer(), Some(4));
        assert_eq!(client.execute(2, "three").one().integer(), Some(3));
    });
}

#[test]
fn a_cancel_that_panics_when_it_is_dropped_ends_nothing_else() {
    odd(|odd, server, client| {
        odd.spiteful.store(true, Ordering::SeqCst);
        client.new_session(3);
        client.close(2).good();
        assert_eq!(client.execute(3, "three").one().integer(), Some(3));
        client.kill_connection(3);
        client.reply(3);
        // The same with a session of one statement.
        assert_eq!(client.execute(AUTO | 1, "three").one().integer(), Some(3));
        eventually(LONG, || server.stats().sessions == 0);
        assert!(server.count(Counter::Panics) >= 3);
        odd.spiteful.store(false, Ordering::SeqCst);
    });
}

#[test]
fn a_session_keeps_little_of_a_long_error() {
    lab::child::in_child(|| {
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions(2..402);
        let text = "x".repeat(1 << 20);
        let mut fail = |sessions: std::ops::Range<u64>| {
            for session in sessions {
                assert_eq!(client.execute(session, &text).failure().code, 1064);
            }
        };
        // Each worker has had its share of long texts once.
        fail(2..202);
        let before = lab::allocator::held_bytes();
        fail(202..402);
        let kept = (lab::allocator::held_bytes() - before) / 200;
        // The buffers of a worker may differ by some bytes.
        assert!(kept.abs_diff(2 << 10) < 64, "{kept} bytes each");
    });
}
