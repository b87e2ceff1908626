//! Data nodes that die, freeze, or never answer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::client::Session;
use epoll_group::codec::row::Column;
use epoll_group::net::Listener;
use epoll_group::session::{
    self, Account, AuthError, Cancel, Deferred, Login, Peer, Reply, Service, SessionError,
    SessionId,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};

use super::{LONG, World, insert_long_rows, limits, refused, rows, until};
use crate::engaged::Borrowed;
use crate::fleet::Fleet;
use crate::front::Front;
use crate::nodes::Patience;

fn patience() -> Patience {
    let silence = Duration::from_millis(300);
    Patience { limits: limits(), statement: Duration::from_secs(10), silence }
}

#[test]
fn a_standby_takes_over_when_a_primary_dies() {
    let mut world = World::new();
    let (mut one, mut other) = (world.session(), world.session());
    one.run("begin").expect("it begins");
    one.run("update sbtest1 set k = 0 where id = 2").expect("it is changed");
    world.fleet.kill(0);
    // The change is undone, and the client must know.
    let (code, said) = refused(&mut one, "select k from sbtest1 where id = 2");
    assert!([2013, 1213].contains(&code), "{code}: {said}");
    for text in ["select k from sbtest1 where id = 2", "select 1", "commit"] {
        let (code, said) = refused(&mut one, text);
        assert_eq!(code, 1213, "{text}: {said}");
    }
    until("it is the turn of the stand-by", || {
        other.run("update sbtest1 set k = k + 1 where id = 4").is_ok()
    });
    assert_eq!(rows(&mut one, "select k from sbtest1 where id = 2"), "20;");
    let versions: Vec<_> =
        world.fleet.nodes.status().iter().map(|status| status.version.0).collect();
    assert_eq!(versions, [1, 0]);
    assert_eq!(rows(&mut one, "select count(*) from sbtest1"), "8;");
    world.settled();
}

#[test]
fn a_loss_in_the_middle_of_an_answer_starts_a_probe() {
    let ids: Vec<_> = (0..400).map(|id| 100 + 2 * id).collect();
    let of_one = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let of_one = format!("select c from sbtest1 where id in ({of_one})");
    let is_lost = |before: &str, text: &str| {
        let patience = Patience { limits: limits(), statement: LONG, silence: LONG };
        let mut world = World::with(|| {
            Fleet::start_with(2, patience, |endpoints| endpoints).expect("they start")
        });
        insert_long_rows(&mut world.session(), ids.iter().copied());
        let client = world.client_with_small_window();
        let mut session = client.session().expect("the proxy is there");
        session.run(before).expect("it runs");
        let mut answer = session.execute(text).expect("it begins");
        assert!(answer.next_row().expect("it comes").is_some());
        world.fleet.kill(0);
        let error = answer.finish().expect_err("it has no end");
        if error.server_error().is_some_and(|said| said.code == 1317) {
            // The data node interrupted the statement before its connections were cut.
            return false;
        }
        let said = error.to_string();
        assert!(said.contains("data node n0 was lost"), "{said}");
        until("it is the turn of the stand-by", || world.fleet.nodes.get(0).version().0 == 1);
        true
    };
    for (before, text) in [
        ("select 1", of_one.as_str()),
        ("set @a = 1", of_one.as_str()),
        ("select 1", "select c from sbtest1 where id > 99"),
    ] {
        assert!((0..20).any(|_| is_lost(before, text)), "each time interrupted: {text}");
    }
}

#[test]
fn readers_do_not_notice_that_a_primary_dies() {
    let mut world = World::new();
    let mut session = world.session();
    world.fleet.kill(1);
    for id in [1, 3, 5] {
        let text = format!("select k from sbtest1 where id = {id}");
        assert_eq!(rows(&mut session, text), format!("{};", id * 10));
    }
}

#[test]
fn timestamps_come_from_the_standby_when_a_primary_dies() {
    let mut world = World::new();
    world.fleet.kill(0);
    until("it is the turn of the stand-by", || world.client.timestamps(1).is_ok());
}

#[test]
fn a_server_that_accepts_and_is_silent_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = silent.local_addr().expect("it has one").to_string();
    let world = World::with(|| {
        Fleet::start_with(2, patience(), |endpoints| vec![address.clone(), endpoints[0].clone()])
            .expect("they start")
    });
    let mut session = world.session();
    assert_eq!(rows(&mut session, "select count(*) from sbtest1"), "8;");
    drop(silent);
}

/// A server that refuses each statement, or each login.
struct Refusing {
    at_login: bool,
}

impl Service for Refusing {
    type Session = ();

    fn authenticate(&self, _: &Login<'_>) -> Result<Account, AuthError> {
        if self.at_login { Err(AuthError::Denied) } else { Ok(Account::new("proxy")) }
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(
        &self,
        (): &mut (),
        _: session::Request<'_>,
        _: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        Err(SessionError::new(1040, b"08004", "Too many connections"))
    }
}

/// A server that ends its session in the middle of the answer to a definition, has very long columns, and
/// answers nothing else.
struct Breaking {
    unanswered: Mutex<Vec<Deferred>>,
}

impl Service for Breaking {
    type Session = ();

    fn authenticate(&self, _: &Login<'_>) -> Result<Account, AuthError> {
        Ok(Account::new("proxy"))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(
        &self,
        (): &mut (),
        request: session::Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match request {
            session::Request::Sql(sql) if sql.text.starts_with(b"drop") => {
                reply.columns(&[Column::signed("a")])?;
                reply.row(|row| row.int(1))?;
                reply.flush();
                Err(SessionError::fatal(1053, b"08S01", "Server shutdown in progress"))
            }
            session::Request::Sql(sql)
                if sql.text.eq_ignore_ascii_case(b"select c from sbtest1") =>
            {
                let name = "c".repeat(2 << 10);
                reply.columns(&vec![Column::signed(&name); 4096])
            }
            _ => {
                self.unanswered.lock().expect("no panic").push(reply.defer());
                Ok(())
            }
        }
    }
}

fn breaking() -> (Runtime, Listener) {
    let runtime = Runtime::builder().config(Config::default().epoll_groups(1)).start();
    let runtime = runtime.expect("it starts");
    let server = session::Server::new(Breaking { unanswered: Mutex::default() });
    let listener = runtime.listen("127.0.0.1:0", server).expect("it listens");
    (runtime, listener)
}

#[test]
fn columns_without_end_are_not_kept() {
    let _alone = super::alone();
    let (runtime, listener) = breaking();
    let address = listener.local_addr().to_string();
    let fleet = Fleet::start_with(2, patience(), |_| vec![address.clone()]).expect("they start");
    let mut session = fleet.client(&runtime).and_then(|client| Ok(client.session()?));
    let (code, said) = refused(session.as_mut().expect("it is there"), "select c from sbtest1");
    assert_eq!(code, 1235);
    assert!(said.contains("have more than 4194304 bytes"), "{said}");
}

#[test]
fn a_loss_in_the_answer_to_a_definition_starts_a_probe() {
    let _alone = super::alone();
    let (runtime, listener) = breaking();
    let address = listener.local_addr().to_string();
    let primary = |all: Vec<String>| vec![address.clone(), all[1].clone()];
    let fleet = Fleet::start_with(2, patience(), primary).expect("they start");
    let mut session = fleet.client(&runtime).and_then(|client| Ok(client.session()?));
    refused(session.as_mut().expect("the proxy is there"), "drop table sbtest1");
    until("it is the turn of the stand-by", || fleet.nodes.get(0).version().0 == 1);
}

/// Version of a node after its server was suspected.
fn version_after_probe(silence: Duration, endpoints: impl Fn(Vec<String>) -> Vec<String>) -> u64 {
    let patience = Patience { silence, ..patience() };
    let fleet = Fleet::start_with(1, patience, endpoints).expect("they start");
    let node = fleet.nodes.get(0);
    fleet.nodes.suspect(0, node.version());
    until("the probe has ended", || !node.is_probed.load(Ordering::Acquire));
    node.version().0
}

#[test]
fn a_server_that_refuses_is_neither_given_up_nor_gone_over_to() {
    let _alone = super::alone();
    let runtime = Runtime::builder().config(Config::default().epoll_groups(1)).start();
    let runtime = runtime.expect("it starts");
    let closed = closed_port();
    for at_login in [false, true] {
        let server = session::Server::new(Refusing { at_login });
        let listener = runtime.listen("127.0.0.1:0", server).expect("it listens");
        let refusing = listener.local_addr().to_string();
        let primary = |all: Vec<String>| vec![refusing.clone(), all[1].clone()];
        assert_eq!(version_after_probe(LONG, primary), 0, "at login: {at_login}");
        let standby = |_| vec![closed.clone(), refusing.clone()];
        assert_eq!(version_after_probe(patience().silence, standby), 0, "at login: {at_login}");
    }
}

#[test]
fn the_second_standby_takes_over_when_the_first_is_gone_too() {
    let _alone = super::alone();
    let endpoints = |all: Vec<String>| vec![closed_port(), closed_port(), all[1].clone()];
    assert_eq!(version_after_probe(patience().silence, endpoints), 2);
}

/// Address at which no server listens.
fn closed_port() -> String {
    let closed = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    closed.local_addr().expect("it has one").to_string()
}

#[test]
fn a_node_is_not_suspected_when_its_sessions_are_lent() {
    let _alone = super::alone();
    let patience = Patience { limits: limits().max(2200), statement: LONG, silence: LONG };
    let fleet = Fleet::start_with(1, patience, |endpoints| endpoints).expect("they start");
    let (give, given) = mpsc::channel();
    // More sessions than two connections of a client have by default.
    for _ in 0..2100 {
        let give = give.clone();
        fleet.nodes.borrow_then(0, Instant::now() + LONG, move |lease| {
            lease.into_iter().for_each(|lease| give.send(lease).expect("waited for"));
        });
    }
    drop(give);
    let leases: Vec<_> = given.iter().collect();
    assert_eq!(leases.len(), 2100);
    let node = fleet.nodes.get(0);
    fleet.nodes.suspect(0, node.version());
    until("the probe has ended", || !node.is_probed.load(Ordering::Acquire));
    assert_eq!(node.version().0, 0);
}

#[test]
fn an_error_names_the_node_and_why() {
    let address = closed_port();
    let _alone = super::alone();
    let patience = Patience { statement: Duration::from_millis(500), ..patience() };
    let fleet = Fleet::start_with(1, patience, |_| vec![address.clone()]).expect("they start");
    let runtime =
        Runtime::builder().config(Config::default().epoll_groups(1)).start().expect("it starts");
    let client = fleet.client(&runtime).expect("its options are good");
    let mut session = client.session().expect("the proxy is there");
    let begun = Instant::now();
    let (code, said) = refused(&mut session, "select 1");
    assert!(begun.elapsed() < LONG);
    assert_eq!(code, 2003, "{said}");
    assert!(said.contains("n0") && said.contains(&address) && said.contains("refused"), "{said}");
}

#[test]
fn a_busy_pool_says_so_and_its_node_is_not_suspected() {
    let _alone = super::alone();
    let patience = Patience {
        limits: limits().max(1),
        statement: Duration::from_millis(500),
        // A probe would last as long.
        silence: LONG,
    };
    let is_frozen = Arc::new(AtomicBool::new(false));
    let frozen = Arc::clone(&is_frozen);
    let through =
        |endpoints: Vec<String>| vec![wire(endpoints[0].clone(), &frozen), endpoints[1].clone()];
    let fleet = Fleet::start_with(1, patience, through).expect("they start");
    let runtime =
        Runtime::builder().config(Config::default().epoll_groups(1)).start().expect("it starts");
    let client = fleet.client(&runtime).expect("its options are good");
    let mut one = client.session().expect("the proxy is there");
    let mut other = client.session().expect("the proxy is there");
    // On a busy machine a connect may take longer than a statement may.
    until("there is a connection", || other.run("select count(*) from sbtest1").is_ok());
    until("no probe runs", || !fleet.nodes.get(0).is_probed.load(Ordering::Relaxed));
    one.run("begin").expect("it begins");
    assert_eq!(rows(&mut one, "select count(*) from sbtest1 where id = 1"), "0;");
    is_frozen.store(true, Ordering::Relaxed);
    let (code, said) = refused(&mut other, "select 1");
    assert_eq!(code, 1040, "{said}");
    assert!(said.contains("1 of 1"), "{said}");
    assert!(!fleet.nodes.get(0).is_probed.load(Ordering::Relaxed));
    is_frozen.store(false, Ordering::Relaxed);
    one.run("commit").expect("it ends");
    assert_eq!(rows(&mut other, "select 1"), "1;");
}

#[test]
fn a_select_that_waits_for_a_dead_node_keeps_no_session_of_others() {
    let patience = Patience { limits: limits().max(1), statement: LONG, ..patience() };
    let mut world = World::with(|| {
        let through = |endpoints: Vec<String>| vec![endpoints[0].clone()];
        Fleet::start_with(2, patience, through).expect("they start")
    });
    world.fleet.kill(1);
    let (mut one, mut other) = (world.session(), world.session());
    let all = one.send("select id from sbtest1").expect("it is sent");
    until("it waits for the second node", || world.fleet.nodes.status()[1].waiting == 1);
    assert_eq!(rows(&mut other, "select k from sbtest1 where id = 2"), "20;");
    assert_eq!(world.fleet.nodes.status()[1].waiting, 1);
    one.canceller().cancel();
    drop(all);
    // The statement still waits for a session when the proxy ends, and is dropped with it.
    let nodes = Arc::downgrade(&world.fleet.nodes);
    drop((one, other, world));
    until("nothing keeps the nodes", || nodes.strong_count() == 0);
}

/// The statement has as much time as was left when it got its session.
#[test]
fn waiting_for_a_session_takes_from_the_time_of_the_statement() {
    let time = Duration::from_secs(2);
    let patience = Patience { limits: limits().max(1), statement: time, silence: LONG };
    let world =
        World::with(|| Fleet::start_with(1, patience, |endpoints| endpoints).expect("they start"));
    let (mut one, mut other) = (world.session(), world.session());
    one.run("begin").expect("it begins");
    assert_eq!(rows(&mut one, "select k from sbtest1 where id = 1"), "10;");
    let begun = Instant::now();
    // Alone it would end in time.
    let slow = other.send("select sleep(1.8), k from sbtest1 where id = 1").expect("it is sent");
    until("half of the time is over", || begun.elapsed() > time / 2);
    one.run("commit").expect("it ends");
    let error = slow.wait().and_then(super::text).expect_err("its time is over");
    assert!(error.server_error().is_some(), "{error}");
}

/// A connection that can be made to carry nothing more.
fn wire(to: String, is_frozen: &Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it has one").to_string();
    let is_frozen = Arc::clone(is_frozen);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(near), Ok(far)) = (stream, TcpStream::connect(&to)) else { continue };
            for (from, to) in [(&near, &far), (&far, &near)] {
                let ends = (from.try_clone(), to.try_clone());
                let (Ok(from), Ok(to)) = ends else { continue };
                let is_frozen = Arc::clone(&is_frozen);
                thread::spawn(move || carry(from, to, &is_frozen));
            }
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_frozen: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while is_frozen.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_frozen_primary_is_given_up_and_no_change_is_made_twice() {
    let is_frozen = Arc::new(AtomicBool::new(false));
    let frozen = Arc::clone(&is_frozen);
    let world = World::with(|| {
        let through = |endpoints: Vec<String>| {
            vec![wire(endpoints[0].clone(), &frozen), endpoints[1].clone()]
        };
        Fleet::start_with(2, patience(), through).expect("they start")
    });
    let (mut one, mut other) = (world.session(), world.session());
    assert_eq!(rows(&mut one, "select k from sbtest1 where id = 1"), "10;");
    is_frozen.store(true, Ordering::Relaxed);
    let change = one.send("update sbtest1 set k = k + 1 where id = 1").expect("it is sent");
    // A read can be done again, at the stand-by.
    assert_eq!(rows(&mut other, "select k from sbtest1 where id = 3"), "30;");
    let error = change.wait().and_then(super::text).expect_err("nobody answers");
    let said = error.server_error().map(|said| said.msg.clone()).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("may have been executed"), "{said}");
    until("it is the turn of the stand-by", || {
        other.run("update sbtest1 set k = k + 1 where id = 5").is_ok()
    });
    is_frozen.store(false, Ordering::Relaxed);
    let k = rows(&mut other, "select k from sbtest1 where id = 1");
    assert!(["10;", "11;"].contains(&k.as_str()), "{k}");
    world.settled();
}

/// A session that has gone back while another node still works for the same statement is not
/// interrupted with it. By then it works for another client.
#[test]
fn cancelling_a_statement_of_all_nodes_does_not_interrupt_others() {
    // The next statement at the first node gets the same session.
    let world = World::with_one_session(2);
    let mut other = world.session();
    // On the second node.
    insert_long_rows(&mut other, (0..400).map(|id| 101 + 2 * id));
    let client = world.client_with_small_window();
    let mut one = client.session().expect("the proxy is there");
    let canceller = one.canceller();
    let mut all = one.execute("select id, c from sbtest1").expect("it begins");
    let in_use = || world.fleet.nodes.status().iter().map(|node| node.in_use).collect::<Vec<_>>();
    while in_use() != [0, 1] {
        all.next_row().expect("it comes").expect("the second node has more");
    }
    let slow = other.send("select sleep(1), k from sbtest1 where id = 2").expect("it is sent");
    until("its session is in use again", || in_use() == [1, 1]);
    canceller.cancel();
    assert_eq!(
        slow.wait().and_then(super::text).map_err(|error| error.to_string()),
        Ok("0|20;".into())
    );
    let error = loop {
        match all.next_row() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it is not interrupted"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.server_error().map(|said| said.code), Some(1317), "{error}");
    drop(all);
    world.settled();
}

/// While the data node of a held session is silent, a request of its client waits. A cancelled one does
/// not change the session, and the next one takes its place.
#[test]
fn requests_that_are_cancelled_before_their_turn_do_not_run() {
    let is_frozen = Arc::new(AtomicBool::new(false));
    let frozen = Arc::clone(&is_frozen);
    let world = World::with(|| {
        let patience = Patience { limits: limits(), statement: LONG, silence: LONG };
        let through = |endpoints: Vec<String>| vec![wire(endpoints[0].clone(), &frozen)];
        Fleet::start_with(1, patience, through).expect("they start")
    });
    let (mut one, mut other) = (world.session(), world.session());
    one.run("set @a = 7").expect("it is set");
    let stats = || world.fleet.proxy.stats();
    let cancelled = |session: &mut Session, text: &str| {
        let before = stats().get(Counter::RequestsExecuted);
        let pending = session.send(text).expect("it is sent");
        until("the proxy has it", || stats().get(Counter::RequestsExecuted) > before);
        session.canceller().cancel();
        let error = pending.wait().and_then(super::text).expect_err("it is cancelled");
        assert_eq!(error.server_error().map(|said| said.code), Some(1317), "{error}");
    };
    is_frozen.store(true, Ordering::Relaxed);
    cancelled(&mut one, "select k from sbtest1 where id = 1");
    for _ in 0..100 {
        cancelled(&mut one, "begin");
        let deferred = stats().deferred_requests;
        assert!(deferred <= 2, "{deferred} requests, where one runs and one waits");
    }
    let go_on = || {
        is_frozen.store(false, Ordering::Relaxed);
        until("no request waits", || stats().deferred_requests == 0);
    };
    go_on();
    one.run("update sbtest1 set k = 0 where id = 1").expect("it is changed");
    assert_eq!(rows(&mut other, "select k from sbtest1 where id = 1"), "0;");
    // The transaction has no session yet, so the cancelled `set` runs in another one.
    other.run("begin").expect("it begins");
    is_frozen.store(true, Ordering::Relaxed);
    cancelled(&mut other, "set @b = 7");
    go_on();
    other.run("update sbtest1 set k = 1 where id = 1").expect("the transaction goes on");
    other.run("commit").expect("it is kept");
    drop((one, other));
    world.settled();
}

/// The client is gone. The session of its statement goes back to the pool, and only then its
/// requests are cancelled.
#[test]
fn a_cancel_that_comes_late_does_not_interrupt_who_has_the_session_next() {
    let world = World::with_one_session(1);
    let mut other = world.session();
    let front = Arc::new(Front::new(1, "gone", "sbtest"));
    let ticket = front.cancels.begin();
    let (give, given) = mpsc::channel();
    world.fleet.nodes.borrow_then(0, Instant::now() + LONG, move |lease| {
        give.send(lease).expect("waited for");
    });
    let lease = given.recv().expect("a session, or why not").expect("a session");
    ticket.sent(0, lease.canceller());
    let nodes = Arc::clone(&world.fleet.nodes);
    drop(Borrowed { front: Arc::clone(&front), nodes, node: 0, ticket, lease: Some(lease) });
    let slow = other.send("select sleep(1), k from sbtest1 where id = 2").expect("it is sent");
    until("the session is in use again", || world.fleet.nodes.status()[0].in_use == 1);
    front.cancels.cancel();
    assert_eq!(
        slow.wait().and_then(super::text).map_err(|error| error.to_string()),
        Ok("0|20;".into())
    );
    world.settled();
}
