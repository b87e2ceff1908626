//! Limits on waiting requests, on their bytes, and on sessions. Only the peer that exceeds a limit
//! pays.

use std::time::Duration;

use epoll_group::Config;
use epoll_group::codec::frame::Dialect;
use epoll_group::codec::message::ClientMessage;
use epoll_group::session::{CancelReason, SessionError};
use epoll_group::stats::Counter;
use lab::allocator::leaves_nothing;
use lab::child::in_child;
use lab::engine::{Counts, Fixture, config, finish_with};
use lab::xrpc::request::{query, timestamps};
use lab::xrpc::{Asked, Client};
use lab::{LONG, eventually, often};

fn execute(sql: &str) -> ClientMessage {
    ClientMessage::ExecSql(query(sql))
}

#[test]
fn one_request_too_many_ends_its_session_alone() {
    let server = Fixture::start(config().max_queued_messages(16));
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("gate a"));
    client.send_sql(3, query("gate b"));
    server.control.wait_at("a", 1);
    server.control.wait_at("b", 1);
    for session in [3, 2] {
        for _ in 0..16 {
            client.queue(session, &execute("one"));
        }
    }
    client.flush();
    eventually(LONG, || server.stats().queued_requests == 32);
    client.send_sql(2, query("one"));
    for _ in 0..18 {
        let failure = client.reply(2).failure();
        assert_eq!(failure.text, "Session max_queued_messages limit exceed.");
        assert_eq!((failure.fatal, failure.code, &*failure.state), (true, 8001, "HY000"));
    }
    assert_eq!(server.count(Counter::RequestsRefusedQueue), 1);
    eventually(LONG, || Counts::of(&server.control.counts.closed) == 1);
    assert_eq!(server.control.cancels(), [CancelReason::Session]);
    server.control.open("b");
    assert_eq!(client.reply(3).one().text(), Some("b"));
    for _ in 0..16 {
        client.reply(3).one();
    }
    client.new_session(2);
    client.execute(2, "one").one();
    assert_eq!(server.stats().queued_requests, 0);
    assert_eq!(server.stats().queued_request_bytes, 0);
}

/// Sends `count` statements for session 2 in one write, and checks their answers.
fn burst(client: &mut Client, count: u64) {
    for at in 0..count {
        client.queue(2, &execute(&format!("echo {at}")));
    }
    client.flush();
    for at in 0..count {
        assert_eq!(client.reply(2).one().text(), Some(&*at.to_string()));
    }
}

#[test]
fn a_burst_to_an_idle_session_is_answered_whole() {
    for config in [config(), config().epoll_threads_per_group(1)] {
        let server = Fixture::start(config);
        let mut client = server.client_with_sessions([2]);
        for count in [129, 200, 1000] {
            burst(&mut client, count);
        }
        assert_eq!(server.count(Counter::RequestsRefusedQueue), 0);
    }
}

#[test]
fn a_burst_is_answered_before_its_connection_ends() {
    let mut server = Fixture::start(config().max_queued_messages(16));
    let mut finishes = server.client_with_sessions([2]);
    let mut drains = server.client_with_sessions([2]);
    for client in [&mut finishes, &mut drains] {
        for _ in 0..500 {
            client.queue(2, &execute("one"));
        }
        client.flush();
    }
    finishes.finish();
    for _ in 0..500 {
        finishes.reply(2).one();
    }
    let drain = server.drain_on_another_thread();
    for _ in 0..500 {
        drains.reply(2).one();
    }
    drop((finishes, drains));
    drain.join().expect("it ends");
}

#[test]
fn who_does_not_get_on_with_a_burst_keeps_nobody_from_being_read() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("gate-unannounced a"));
    server.control.wait_at("a", 1);
    for _ in 0..129 {
        client.queue(2, &execute("one"));
    }
    client.queue(3, &execute("echo served"));
    client.flush();
    assert_eq!(client.reply(3).one().text(), Some("served"));
    for _ in 0..130 {
        let failure = client.reply(2).failure();
        assert_eq!(failure.text, "Session max_queued_messages limit exceed.");
    }
    assert_eq!(server.count(Counter::RequestsRefusedQueue), 1);
}

/// Ends session 2 while its connection waits for a place in the session's queue. Returns false if
/// the queue's limit has ended the session before.
fn ends_while_waited_for(server: &Fixture) -> bool {
    let mut client = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("defer a"));
    let deferred = server.control.take_one_deferred("a");
    for _ in 0..17 {
        client.queue(2, &execute("one"));
    }
    client.queue(3, &execute("one"));
    client.flush();
    eventually(LONG, || server.stats().queued_requests == 16 || deferred.is_cancelled());
    let ended = deferred.finish(|_| Err(SessionError::fatal(1234, b"HY000", "it is over")));
    client.reply(3).one();
    let text = client.reply(2).failure().text;
    let strays: Vec<_> = client.strays().iter().map(|(_, failure)| &*failure.text).collect();
    match &*text {
        "it is over" => assert_eq!(strays, ["Session not found."]),
        _ => assert_eq!((&*text, ended), ("Session max_queued_messages limit exceed.", false)),
    }
    ended
}

#[test]
fn what_waits_for_a_place_does_not_outlive_the_session() {
    let server = Fixture::start(config().max_queued_messages(16));
    assert!((0..20).any(|_| ends_while_waited_for(&server)));
}

#[test]
fn a_frame_that_has_begun_keeps_its_limit() {
    let text = "x".repeat(100_000);
    let mut frame = Vec::new();
    let message = execute(&format!("echo {text}"));
    message.encode(Dialect::Legacy, 2, &mut frame).expect("small");
    for first in [10_000, 50_000] {
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions([2]);
        let received = server.count(Counter::BytesReceived);
        client.send_bytes(&frame[..first]).expect("sent");
        client.asked(2, Asked::Statement);
        eventually(LONG, || server.stats().buffered_bytes >= first as u64);
        let lower = |config: Config| config.max_allowed_packet(4096);
        server.server().runtime.reconfigure(lower).expect("live");
        client.send_bytes(&frame[first..60_000]).expect("sent");
        server.wait_for(Counter::BytesReceived, received + 60_000);
        client.send_bytes(&frame[60_000..]).expect("sent");
        assert_eq!(client.reply(2).one().text(), Some(&*text));
        client.execute(2, "one").one();
        client.send_sql(2, query(&format!("echo {}", "x".repeat(4096))));
        let failure = client.reply(2).failure();
        assert_eq!((failure.fatal, failure.code), (true, 1153));
        assert_eq!(client.raw_frame(), None);
    }
}

#[test]
fn one_timestamp_too_many_ends_its_connection_alone() {
    let server = Fixture::start(config());
    server.control.hold("clock");
    let (mut client, mut other) = (server.client(), server.client_with_sessions([2]));
    client.send(7, &timestamps(1));
    server.control.wait_at("clock", 1);
    for _ in 0..1024 {
        client.queue(7, &timestamps(1));
    }
    client.flush();
    client.probe();
    assert_eq!(server.count(Counter::RequestsRefusedQueue), 0);
    client.send(7, &timestamps(1));
    eventually(LONG, || server.count(Counter::RequestsRefusedQueue) == 1);
    other.execute(2, "one").one();
    server.control.open("clock");
    // The client keeps its end open, so only the server can end the connection.
    eventually(LONG, || server.stats().connections == 1);
    client.rest();
    other.execute(2, "one").one();
}

#[test]
fn requests_of_a_connection_wait_in_bounded_memory() {
    let server = Fixture::start(config().max_queued_bytes_per_connection(100_000));
    let mut client = server.client_with_sessions([2, 3]);
    let mut other = server.client_with_sessions([2]);
    client.send_sql(2, query("gate a"));
    client.send_sql(3, query("gate b"));
    server.control.wait_at("a", 1);
    server.control.wait_at("b", 1);
    let text = format!("echo {}", "x".repeat(9_000));
    for _ in 0..10 {
        client.queue(3, &execute(&text));
    }
    client.flush();
    eventually(LONG, || server.stats().queued_requests == 10);
    assert!((90_000..100_000).contains(&server.stats().queued_request_bytes));
    client.send_sql(2, query(&text));
    let failure = client.reply(2).failure();
    assert_eq!(failure.text, "Session max_queued_bytes 100000 limit exceed.");
    assert!(failure.fatal);
    assert_eq!(server.count(Counter::RequestsRefusedBytes), 1);
    // The other session and the other connection are not touched.
    other.execute(2, &text).one();
    server.control.open("b");
    client.reply(3).one();
    for _ in 0..10 {
        client.reply(3).one();
    }
    eventually(LONG, || server.stats().queued_request_bytes == 0);
}

#[test]
fn requests_of_all_connections_wait_in_bounded_memory() {
    let server = Fixture::start(config().max_queued_bytes(200_000));
    let mut client = server.client_with_sessions([2]);
    let mut other = server.client_with_sessions([2, 3]);
    client.send_sql(2, query("gate a"));
    other.send_sql(3, query("gate b"));
    server.control.wait_at("a", 1);
    server.control.wait_at("b", 1);
    let text = format!("echo {}", "x".repeat(9_000));
    for _ in 0..10 {
        client.queue(2, &execute(&text));
    }
    client.flush();
    eventually(LONG, || server.stats().queued_requests == 10);
    for _ in 0..6 {
        other.queue(3, &execute(&text));
    }
    other.flush();
    for _ in 0..7 {
        assert!(other.reply(3).failure().fatal);
    }
    assert_eq!(server.count(Counter::RequestsRefusedBytes), 1);
    other.execute(2, "one").one();
    // The kill of a session gives back the bytes of its waiting requests.
    let kill = client.kill_connection(2);
    client.reply_to(kill).failure();
    eventually(LONG, || server.stats().queued_request_bytes == 0);
    other.execute(2, &text).one();
}

#[test]
fn requests_of_greedy_connections_leave_room_for_others() {
    let server = Fixture::start(config().max_queued_bytes(100_000));
    let mut greedy: Vec<_> = (0..8).map(|_| server.client_with_sessions(2..8)).collect();
    let mut other = server.client_with_sessions([2, 3]);
    other.send_sql(3, query("gate b"));
    server.control.wait_at("b", 1);
    for size in [9_000, 3_000, 1_000] {
        let text = format!("echo {}", "x".repeat(size));
        for client in &mut greedy {
            for session in 2..8 {
                client.queue(session, &execute("gate a"));
                for _ in 0..4 {
                    client.queue(session, &execute(&text));
                }
            }
            client.flush();
            client.probe();
        }
    }
    assert!(server.count(Counter::RequestsRefusedBytes) > 0);
    for _ in 0..7 {
        other.queue(3, &execute(&format!("echo {}", "x".repeat(1_000))));
    }
    other.flush();
    other.probe();
    server.control.open("b");
    for _ in 0..8 {
        other.reply(3).one();
    }
    server.control.open("a");
}

#[test]
fn ten_thousand_sessions_on_a_connection_are_limited_and_not_fatal() {
    let server = Fixture::start(config());
    let mut client = server.client();
    for session in 0..10_000 {
        client.queue(session, &ClientMessage::SessionNew);
    }
    client.flush();
    let mut refused = 0;
    for session in 0..10_000 {
        let reply = client.reply(session);
        if let Some(failure) = &reply.error {
            assert_eq!(failure.text, "max_connections limit exceed");
            assert!(failure.fatal && session >= 4096);
            refused += 1;
        }
    }
    assert_eq!(refused, 10_000 - 4096);
    assert_eq!(server.count(Counter::SessionsRefusedLimit), refused);
    assert_eq!(server.stats().sessions, 4096);
    client.execute(4000, "one").one();
    client.close(4000).good();
    client.new_session(10_001).good();
}

#[test]
fn a_session_gives_its_place_back_before_its_client_learns_that_it_is_closed() {
    let server = Fixture::start(config().max_sessions_per_connection(1));
    let mut client = server.client();
    for session in 1..=often(2_000).into() {
        client.new_session(session).good();
        client.close(session).good();
    }
    assert_eq!(server.stats().sessions, 0);
}

#[test]
fn sessions_of_all_connections_are_limited() {
    let server = Fixture::start(config().max_sessions(10));
    let mut client = server.client_with_sessions(0..6);
    let mut other = server.client_with_sessions(0..4);
    for client in [&mut client, &mut other] {
        client.send(7, &ClientMessage::SessionNew);
        assert_eq!(client.reply(7).failure().text, "max_connections limit exceed");
        let auto = lab::xrpc::AUTO | 7;
        assert_eq!(client.execute(auto, "one").failure().text, "max_connections limit exceed");
    }
    drop(client);
    eventually(LONG, || server.stats().sessions == 4);
    other.new_session(8);
}

#[test]
fn sessions_that_were_killed_have_their_place_until_they_have_ended() {
    let server = Fixture::start(config().max_sessions_per_connection(4));
    let mut client = server.client_with_sessions(2..6);
    for session in 2..6 {
        // This request ignores its kill.
        client.send_sql(session, query("stubborn a"));
    }
    server.control.wait_at("a", 4);
    for session in 2..6 {
        client.kill_connection(session);
    }
    // However often the client kills and opens, no more sessions begin.
    for session in 6..50 {
        client.send(session, &ClientMessage::SessionNew);
        assert_eq!(client.reply(session).failure().text, "max_connections limit exceed");
        let auto = lab::xrpc::AUTO | session;
        assert_eq!(client.execute(auto, "one").failure().text, "max_connections limit exceed");
    }
    let stats = server.stats();
    assert_eq!((stats.sessions, stats.get(Counter::SessionsRefusedLimit)), (4, 2 * 44), "{stats}");
    server.control.open("a");
    eventually(LONG, || server.stats().sessions == 0);
    for session in 50..54 {
        client.new_session(session);
    }
}

/// Otherwise a client whose requests fail could start any number of slow ends.
#[test]
fn a_session_that_fails_has_its_place_until_it_has_ended() {
    let server = Fixture::start(config().max_sessions_per_connection(2));
    let mut client = server.client_with_sessions(2..4);
    server.control.hold("closed");
    for session in 2..4 {
        assert_eq!(client.execute(session, "fatal 1234").failure().code, 1234);
    }
    for session in 4..10 {
        client.send(session, &ClientMessage::SessionNew);
        assert_eq!(client.reply(session).failure().text, "max_connections limit exceed");
    }
    server.control.open("closed");
    eventually(LONG, || server.stats().sessions == 0);
    for session in 10..12 {
        client.new_session(session);
    }
}

#[test]
fn opening_and_closing_leaves_memory_flat() {
    in_child(|| {
        let pairs = std::env::var("EG_TEST_PAIRS").ok();
        let pairs = pairs.map_or(8_000, |text| text.parse::<u64>().expect("a number"));
        // Sessions that are not used are glitches.
        let server = Fixture::start(config().max_glitches(0));
        let mut client = server.client();
        let mut open_and_close = |rounds| {
            for round in 0..rounds {
                for session in 2..10 {
                    client.queue(session, &ClientMessage::SessionNew);
                    if round % 8 == 0 {
                        client.queue(session, &execute("defer a"));
                    }
                    client.queue(session, &ClientMessage::SessionClose);
                }
                client.flush();
                if round % 8 == 0 {
                    for deferred in server.control.take_deferred("a", 8) {
                        assert!(finish_with(deferred, "x"));
                    }
                }
                client.timestamps(2, 1).good();
                for session in 2..10 {
                    client.reply(session).good();
                    if round % 8 == 0 {
                        client.reply(session).one();
                    }
                    client.reply(session).good();
                }
            }
        };
        let mut rounds = 0;
        let mut round = || {
            open_and_close(pairs / 8);
            server.wait_until_even();
            rounds += 1;
        };
        round();
        leaves_nothing(pairs as usize, round);
        let counters = [Counter::SessionsOpened, Counter::SessionsClosed];
        assert_eq!(counters.map(|counter| server.count(counter)), [rounds * pairs; 2]);
    });
}

#[test]
fn coming_and_going_leaves_memory_flat() {
    const ROUNDS: usize = 500;
    in_child(|| {
        // The timer of a half-closed connection stays for this time.
        let server = Fixture::start(config().half_close_timeout(Duration::from_millis(1)));
        let come_and_go = |rounds| {
            for round in 0..rounds {
                let mut client = server.client_with_sessions([2, 3]);
                client.timestamps(2, 1).good();
                client.execute(2, "one").one();
                client.set_offers(None);
                let little = query("source 10000 100");
                let little =
                    epoll_group::codec::proto::sql::StmtExecute { token: Some(1), ..little };
                let ticket = client.send_sql(3, little);
                client.wait_for(ticket, |reply| reply.token_done == 1);
                if round % 2 == 0 {
                    client.send_sql(2, query("defer a"));
                    let deferred = server.control.take_one_deferred("a");
                    client.reset();
                    eventually(LONG, || deferred.is_cancelled());
                    drop(deferred);
                }
            }
            server.wait_until_even();
        };
        let round = || {
            come_and_go(ROUNDS);
            server.control.forget();
            eventually(LONG, || {
                let stats = server.stats();
                (stats.connections, stats.timers_pending) == (0, 0)
            });
        };
        round();
        leaves_nothing(ROUNDS, round);
    });
}
