//! Sessions that wait for one another, on few threads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use epoll_group::stats::Counter;
use lab::engine::{Fixture, config};
use lab::xrpc::Client;
use lab::xrpc::request::query;
use lab::{LONG, eventually, often};

fn waiting(server: &Fixture) -> u64 {
    server.control.waiting_for_lock.load(Ordering::SeqCst)
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
        for session in 2..66 {
            client.send_sql(session, query("lock"));
            client.send_sql(session, query("unlock"));
        }
        eventually(LONG, || waiting(&server) >= 3);
        client.execute(1, "unlock").good();
        for session in 2..66 {
            client.reply(session).good();
            client.reply(session).good();
        }
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
    // At most three threads, one of them in reserve. Neither the deadlock check nor a tasker helps
    // soon.
    let config = config()
        .epoll_threads_per_group(2)
        .max_threads(3)
        .thread_deadlock_check_interval(Duration::from_secs(10))
        .enable_tasker(false);
    for same in [false, true] {
        let server = Fixture::start(config.clone());
        let mut client = server.client_with_sessions(1..12);
        let mut other = server.client_with_sessions(1..12);
        client.execute(1, "lock").good();
        let waiters = if same { &mut client } else { &mut other };
        for session in 2..12 {
            waiters.send_sql(session, query("lock"));
            waiters.send_sql(session, query("unlock"));
        }
        eventually(LONG, || waiting(&server) >= 2);
        assert_eq!(client.execute(1, "echo inside").one().text(), Some("inside"));
        client.execute(1, "unlock").good();
        let waiters = if same { &mut client } else { &mut other };
        for session in 2..12 {
            waiters.reply(session).good();
            waiters.reply(session).good();
        }
        assert!(server.count(Counter::Stalls) >= 2, "two waited at once:\n{}", server.stats());
    }
}
