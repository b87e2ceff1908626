//! Sessions that wait for one another, on few threads.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::net::Address;
use epoll_group::stats::Counter;
use epoll_group::{Class, Config};
use lab::engine::{Fixture, PASSWORD, config, finish_with};
use lab::xrpc::request::{login_continue, query};
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually, often};

/// Two workers, and at most `most` threads. Neither the deadlock check nor a long queue adds one soon.
fn two_workers(most: usize) -> Config {
    config()
        .epoll_threads_per_group(2)
        .max_threads(most)
        .thread_deadlock_check_interval(Duration::from_secs(10))
        .enable_tasker(false)
}

fn waiting(server: &Fixture) -> u64 {
    server.control.waiting_for_lock.load(Ordering::SeqCst)
}

/// Asks for the lock in these sessions, each of which unlocks then.
fn ask_in_turn(client: &mut Client, sessions: Range<u64>) {
    for session in sessions {
        client.send_sql(session, query("lock"));
        client.send_sql(session, query("unlock"));
    }
}

/// Takes the replies when each of these sessions has had the lock.
fn take_in_turn(client: &mut Client, sessions: Range<u64>) {
    for session in sessions {
        client.reply(session).good();
        client.reply(session).good();
    }
}

/// 64 sessions wait for the lock of the 65th. It unlocks, and then they do, one after the other.
fn crowd(
    server: &Fixture,
    holder: &mut Client,
    mut others: Vec<(usize, u64)>,
    clients: &mut [Client],
) {
    holder.execute(1, "lock").good();
    for &(client, session) in &others {
        clients[client].send_sql(session, query("lock"));
        clients[client].send_sql(session, query("echo mine"));
        clients[client].send_sql(session, query("unlock"));
    }
    // As many sessions wait as there are threads for.
    eventually(LONG, || waiting(server) >= 3);
    holder.execute(1, "unlock").good();
    while let Some((client, session)) = others.pop() {
        clients[client].reply(session).good();
        assert_eq!(clients[client].reply(session).one().text(), Some("mine"));
        clients[client].reply(session).good();
    }
}

#[test]
fn sixty_four_sessions_of_one_connection_wait_for_the_next() {
    let server = Fixture::start(config());
    let mut clients = [server.client_with_sessions(2..66)];
    for _ in 0..often(5) {
        let mut holder = server.client_with_sessions([1]);
        crowd(&server, &mut holder, (2..66).map(|session| (0, session)).collect(), &mut clients);
    }
}

#[test]
fn the_lock_is_held_by_a_session_of_the_same_connection() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(1..66);
    for _ in 0..often(5) {
        client.execute(1, "lock").good();
        ask_in_turn(&mut client, 2..66);
        eventually(LONG, || waiting(&server) >= 3);
        client.execute(1, "unlock").good();
        take_in_turn(&mut client, 2..66);
    }
}

#[test]
fn sixty_four_connections_wait_for_the_next() {
    let server = Fixture::start(config());
    let mut clients: Vec<_> = (0..64).map(|_| server.client_with_sessions([2])).collect();
    for _ in 0..often(5) {
        let mut holder = server.client_with_sessions([1]);
        crowd(&server, &mut holder, (0..64).map(|client| (client, 2)).collect(), &mut clients);
    }
}

#[test]
fn who_holds_the_lock_gets_a_thread_when_all_others_wait() {
    // One of the three threads is in reserve.
    let config = two_workers(3);
    for same in [false, true] {
        let server = Fixture::start(config.clone());
        let mut client = server.client_with_sessions(1..12);
        let mut other = server.client_with_sessions(1..12);
        client.execute(1, "lock").good();
        let waiters = if same { &mut client } else { &mut other };
        ask_in_turn(waiters, 2..12);
        eventually(LONG, || waiting(&server) >= 2);
        assert_eq!(client.execute(1, "echo inside").one().text(), Some("inside"));
        client.execute(1, "unlock").good();
        let waiters = if same { &mut client } else { &mut other };
        take_in_turn(waiters, 2..12);
        assert!(server.count(Counter::Stalls) >= 2, "two waited at once:\n{}", server.stats());
    }
}

/// Sends statements that wait for the row lock, until all ordinary threads wait, of which `threads` are
/// free. Returns their client.
fn crowd_of_waiters(server: &Fixture, threads: u64) -> Client {
    let mut others = server.client_with_sessions(2..12);
    ask_in_turn(&mut others, 2..12);
    eventually(LONG, || waiting(server) >= threads);
    others
}

/// Unlocks, and then each of the others gets its turn.
fn unlock_for_all(holder: &mut Client, mut others: Client) {
    holder.execute(1, "unlock").good();
    take_in_turn(&mut others, 2..12);
}

#[test]
fn a_request_that_holds_the_lock_gets_credit_when_all_others_wait() {
    // The handler itself waits for credit on one of the two ordinary threads; a source waits without.
    for (statement, threads) in [("locked source 100 1000", 2), ("locked rows 100 1000", 1)] {
        let server = Fixture::start(two_workers(3));
        let mut holder = server.client_with_sessions([1]);
        holder.set_offers(None);
        let ticket = holder.send_sql(1, StmtExecute { token: Some(1), ..query(statement) });
        holder.wait_for(ticket, |reply| reply.token_done == 1);
        let others = crowd_of_waiters(&server, threads);
        holder.offer(1, 1_000);
        assert_eq!(holder.reply_to(ticket).good().row_count, 100, "{statement}");
        unlock_for_all(&mut holder, others);
    }
}

#[test]
fn the_kill_of_a_deferred_request_that_holds_the_lock_is_read_when_all_others_wait() {
    let server = Fixture::start(two_workers(3));
    let mut holder = server.client_with_sessions([1]);
    let ticket = holder.send_sql(1, query("locked defer a"));
    let _deferred = server.control.take_one_deferred("a");
    let others = crowd_of_waiters(&server, 2);
    holder.kill_query(1);
    holder.reply_to(ticket).failure();
    unlock_for_all(&mut holder, others);
}

#[test]
fn a_session_whose_deferred_request_took_the_lock_goes_on_when_all_others_wait() {
    let server = Fixture::start(two_workers(3));
    let mut holder = server.client_with_sessions([1]);
    let number = holder.execute(1, "number").one().integer().expect("a number") as u32;
    let ticket = holder.send_sql(1, query("defer a"));
    let deferred = server.control.take_one_deferred("a");
    server.control.lock_for(number);
    let others = crowd_of_waiters(&server, 2);
    assert!(finish_with(deferred, "done"));
    assert_eq!(holder.reply_to(ticket).one().text(), Some("done"));
    unlock_for_all(&mut holder, others);
}

#[test]
fn a_session_that_was_queued_before_its_deferred_answer_goes_on_when_all_others_wait() {
    let server = Fixture::start(two_workers(3));
    let mut client = server.client_with_sessions(1..12);
    let number = client.execute(1, "number").one().integer().expect("a number") as u32;
    let deferred_ticket = client.send_sql(1, query("defer a"));
    let deferred = server.control.take_one_deferred("a");
    server.control.lock_for(number);
    let statement = |sql: &str| ClientMessage::ExecSql(query(sql));
    for session in 2..12 {
        client.queue(session, &statement("lock"));
        client.queue(session, &statement("unlock"));
    }
    // This request makes the session runnable behind the sessions that take all threads.
    let behind = client.queue(1, &statement("echo behind")).expect("a request");
    client.flush();
    eventually(LONG, || waiting(&server) >= 2);
    assert!(finish_with(deferred, "done"));
    assert_eq!(client.reply_to(deferred_ticket).one().text(), Some("done"));
    assert_eq!(client.reply_to(behind).one().text(), Some("behind"));
    client.execute(1, "unlock").good();
    take_in_turn(&mut client, 2..12);
}

#[test]
fn an_operator_is_answered_while_all_ordinary_threads_wait() {
    let config = two_workers(3);
    let server = Fixture::start(config);
    let listener = server.listen_as(Class::Admin);
    let Address::Tcp(addr) = listener.local_addr() else { panic!("not TCP: {listener:?}") };
    let operator = || Client::logged_in(addr, "root", PASSWORD);
    let mut early = operator();
    early.new_session(1).good();
    // The end of a transaction leaves the class as it was.
    early.execute(1, "begin").good();
    early.execute(1, "commit").good();
    let mut holder = server.client_with_sessions([1]);
    holder.execute(1, "lock").good();
    let mut others = server.client_with_sessions(2..12);
    ask_in_turn(&mut others, 2..12);
    eventually(LONG, || waiting(&server) >= 2);
    // A quick request would run without being queued.
    server.make_slow(&mut early, 1);
    let urgent = server.count(Counter::UrgentTasks);
    early.execute(1, "one").one();
    assert!(server.count(Counter::UrgentTasks) > urgent);
    early.execute(AUTO | 2, "one").one();
    early.new_session(3).good();
    early.execute(3, "one").one();
    early.close(3).good();
    let mut late = operator();
    late.execute(AUTO | 1, "one").one();
    assert_eq!(waiting(&server), 2, "only the operator was served");
    holder.execute(1, "unlock").good();
    take_in_turn(&mut others, 2..12);
}

/// The reserve runs one login at a time, and that one waits.
#[test]
fn the_delayed_answer_to_a_login_of_an_operator_does_not_wait_for_another_login() {
    let config = two_workers(8).authenticate_ok_delay(Duration::from_millis(20));
    let server = Fixture::start(config);
    let listener = server.listen_as(Class::Admin);
    let Address::Tcp(addr) = listener.local_addr() else { panic!("not TCP: {listener:?}") };
    let mut stuck = server.stranger();
    let challenge = stuck.challenge().expect("a challenge");
    let mut holder = server.client_with_sessions([1]);
    holder.execute(1, "lock").good();
    let mut others = server.client_with_sessions(2..42);
    ask_in_turn(&mut others, 2..42);
    eventually(LONG, || server.count(Counter::ThreadsLimited) > 0);
    server.control.hold("login");
    stuck.send(0, &login_continue(Client::proof("other", PASSWORD, &challenge)));
    server.control.wait_at("login", 1);
    let mut operator = Client::logged_in(addr, "root", PASSWORD);
    operator.execute(AUTO | 1, "one").one();
    assert_eq!(server.control.held_at("login"), 1, "only the operator was served");
    server.control.open("login");
    stuck.reply(0).good();
    holder.execute(1, "unlock").good();
    take_in_turn(&mut others, 2..42);
}

#[test]
fn sessions_of_operators_keep_places_for_threads_until_they_end() {
    // Two threads, one in reserve, and places for sixteen more, of which four are always kept.
    let config = two_workers(19);
    let server = Fixture::start(config);
    let listener = server.listen_as(Class::Admin);
    let Address::Tcp(addr) = listener.local_addr() else { panic!("not TCP: {listener:?}") };
    let mut holder = server.client_with_sessions([1]);
    let mut others = server.client_with_sessions(2..42);
    let mut all_wait = |threads: u64| {
        let before = server.count(Counter::ThreadsLimited);
        holder.execute(1, "lock").good();
        ask_in_turn(&mut others, 2..42);
        let limited = || server.count(Counter::ThreadsLimited) > before;
        eventually(LONG, || waiting(&server) >= threads && limited());
        assert_eq!(waiting(&server), threads);
        holder.execute(1, "unlock").good();
        take_in_turn(&mut others, 2..42);
    };
    let mut operator = Client::logged_in(addr, "root", PASSWORD);
    (1..=12).for_each(|session| drop(operator.new_session(session).good()));
    // A place for each of twelve sessions, for that of the holder, and for their two connections.
    all_wait(3);
    drop(operator);
    eventually(LONG, || server.stats().sessions == 41 && server.stats().connections == 2);
    all_wait(14);
}
