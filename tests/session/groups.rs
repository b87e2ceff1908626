//! Servers with two groups: limits, kills and drains hold for the sessions of both.

use std::collections::BTreeSet;
use std::thread;

use epoll_group::Config;
use epoll_group::codec::message::ClientMessage;
use epoll_group::session::CancelReason;
use epoll_group::stats::Counter;
use lab::engine::{Fixture, config, one_text};
use lab::xrpc::request::query;
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually};

const REFUSED: &str = "max_connections limit exceed";

fn two_groups() -> Config {
    config().epoll_groups(2)
}

/// The worker that runs a statement of session 2: `NAME-GROUP-SEAT`.
fn worker_of(server: &Fixture, client: &mut Client) -> String {
    server.control.plant("worker", |reply| {
        one_text(reply, thread::current().name().expect("workers have names"))
    });
    client.execute(2, "script worker").one().text().expect("a name").to_owned()
}

/// Clients with session 2 in each of the two groups, `count` in all. The kernel chooses the group of
/// a connection.
fn clients(server: &Fixture, count: usize) -> Vec<Client> {
    let (mut clients, mut groups) = (Vec::new(), BTreeSet::new());
    while clients.len() < count || groups.len() < 2 {
        if clients.len() == count {
            // All have the same group. The last one makes room for one of the other.
            clients.pop();
            eventually(LONG, || server.stats().sessions == clients.len() as u64);
        }
        let mut client = server.client_with_sessions([2]);
        let worker = worker_of(server, &mut client);
        groups.insert(worker.split('-').nth(1).expect("a number").to_owned());
        clients.push(client);
    }
    clients
}

#[test]
fn sessions_of_both_groups_share_max_sessions() {
    let server = Fixture::start(two_groups().max_sessions(8));
    let mut clients = clients(&server, 8);
    eventually(LONG, || server.stats().sessions == 8);
    for client in &mut clients {
        client.send(3, &ClientMessage::SessionNew);
        assert_eq!(client.reply(3).failure().text, REFUSED);
        assert_eq!(client.execute(AUTO | 3, "one").failure().text, REFUSED);
    }
    for leaving in 0..8 {
        let staying = (leaving + 3) % 8;
        clients[leaving].close(2).good();
        eventually(LONG, || server.stats().sessions == 7);
        clients[staying].new_session(9);
        clients[staying].close(9).good();
        eventually(LONG, || server.stats().sessions == 7);
        clients[leaving].new_session(2);
    }
    assert_eq!(server.count(Counter::SessionsRefusedLimit), 16);
}

#[test]
fn requests_of_both_groups_share_max_queued_bytes() {
    let server = Fixture::start(two_groups().max_queued_bytes(1 << 20));
    let mut clients = clients(&server, 6);
    let statement = format!("echo {}", "x".repeat(100_000));
    for client in &mut clients {
        client.send_sql(2, query("gate a"));
    }
    server.control.wait_at("a", 6);
    for client in &mut clients {
        for _ in 0..4 {
            client.send_sql(2, query(&statement));
        }
        // Its answer says that the server has read all before it.
        client.probe();
    }
    // Of 2.4 MB in both groups 1 MiB may wait, and 8 KiB of each connection beyond.
    assert!(server.count(Counter::RequestsRefusedBytes) > 0);
    assert!(server.stats().queued_request_bytes <= (1 << 20) + 6 * (8 << 10));
    server.control.open("a");
    // A session that is refused a request ends, with an error for each of its requests.
    let mut answered = 0;
    for client in &mut clients {
        let good = (0..5).filter(|_| client.reply(2).error.is_none()).count();
        assert!([0, 5].contains(&good), "{good}");
        answered += good / 5;
    }
    assert_eq!(6 - answered as u64, server.count(Counter::RequestsRefusedBytes));
    assert!((1..6).contains(&answered), "{answered}");
}

#[test]
fn kills_end_requests_in_both_groups() {
    let server = Fixture::start(two_groups());
    let mut clients = clients(&server, 8);
    for client in &mut clients {
        client.send_sql(2, query("defer a"));
    }
    let deferred = server.control.take_deferred("a", 8);
    for client in &mut clients {
        let kill = client.kill_connection(2);
        assert!(client.reply(2).failure().fatal);
        client.reply_to(kill).failure();
    }
    eventually(LONG, || deferred.iter().all(|deferred| deferred.is_cancelled()));
    assert_eq!(server.control.cancels(), [CancelReason::Session; 8]);
    server.wait_until_even();
    for client in &mut clients {
        client.new_session(2);
        client.execute(2, "one").one();
    }
}

#[test]
fn a_drain_finishes_the_requests_of_both_groups() {
    let mut server = Fixture::start(two_groups());
    let mut clients = clients(&server, 8);
    for client in &mut clients {
        client.send_sql(2, query("gate a"));
    }
    server.control.wait_at("a", 8);
    let drain = server.drain_on_another_thread();
    server.control.open("a");
    for client in &mut clients {
        assert_eq!(client.reply(2).one().text(), Some("a"));
    }
    drop(clients);
    drain.join().expect("drained");
}
