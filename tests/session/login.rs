//! Logins: proofs, refusals, and what failed attempts cost the peer.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::Config;
use epoll_group::codec::message::{ClientMessage, ServerKind};
use epoll_group::stats::Counter;
use lab::engine::{Counts, Fixture, PASSWORD, config};
use lab::xrpc::request::{login_continue, login_start, query};
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually, has_ipv6, is_dual_stack};

/// Returns code and text of the refusal.
fn refusal(client: &mut Client, user: &str, password: &str) -> (u32, String) {
    let failure = client.try_login(user, password).expect_err("refused");
    assert!(!failure.fatal && failure.state == "HY000", "{failure:?}");
    (failure.code, failure.text)
}

fn denied() -> (u32, String) {
    (1045, "Invalid user or password".into())
}

#[test]
fn who_knows_the_password_comes_in() {
    let server = Fixture::start(config());
    for (user, password) in [("root", PASSWORD), ("other", PASSWORD), ("empty", "")] {
        let mut client = server.stranger();
        assert_eq!(client.probe().capabilities.len(), 1);
        client.login(user, password);
        assert_eq!(client.execute(AUTO | 2, "who").one().text(), Some(user));
    }
    assert_eq!(server.count(Counter::Logins), 3);
    assert_eq!(server.stats().unauthenticated_connections, 0);
}

#[test]
fn an_account_with_a_digest_admits_newer_clients_alone() {
    let server = Fixture::start(config().max_login_attempts(10));
    let named = |user: &str, password: &str| {
        let mut client = server.stranger();
        let challenge = client.challenge_for(user).expect("a challenge");
        let outcome = client.prove(Client::proof(user, password, &challenge));
        (challenge.len(), outcome.map_err(|failure| (failure.code, failure.text)))
    };
    assert_eq!(named("digest", PASSWORD), (45, Ok(())));
    assert_eq!(named("digest", "wrong"), (45, Err(denied())));
    assert_eq!(named("root", PASSWORD), (20, Ok(())));
    assert_eq!(named("unknown", PASSWORD), (20, Err(denied())));
    assert_eq!(refusal(&mut server.stranger(), "digest", PASSWORD), denied());
}

#[test]
fn a_wrong_password_and_an_unknown_user_look_the_same() {
    let server = Fixture::start(config().max_login_attempts(10));
    let mut client = server.stranger();
    for (user, password) in
        [("root", "another"), ("root", ""), ("unknown", PASSWORD), ("unknown", ""), ("empty", "x")]
    {
        assert_eq!(refusal(&mut client, user, password), denied(), "{user}");
    }
    assert_eq!(refusal(&mut client, "nobody", PASSWORD), (3118, "Account is locked".into()));
    assert_eq!(refusal(&mut client, "nobody", "wrong"), denied());
    // After all these failures the client can still log in.
    client.login("root", PASSWORD);
    assert_eq!(server.count(Counter::LoginsFailed), 7);
}

#[test]
fn after_some_attempts_the_connection_is_closed() {
    let server = Fixture::start(config().max_login_attempts(3));
    let mut client = server.stranger();
    for _ in 0..3 {
        assert_eq!(refusal(&mut client, "root", "wrong"), denied());
    }
    assert_eq!(client.rest(), []);
    assert_eq!(server.count(Counter::LoginsFailed), 3);
    eventually(LONG, || server.stats().unauthenticated_connections == 0);
}

#[test]
fn after_some_attempts_the_connection_is_closed_behind_the_delayed_answer() {
    let server = Fixture::start(
        config().max_login_attempts(2).login_failure_delay(Duration::from_millis(1)),
    );
    let mut client = server.stranger();
    for _ in 0..2 {
        assert_eq!(refusal(&mut client, "root", "wrong"), denied());
    }
    assert_eq!(client.rest(), []);
    assert_eq!(server.count(Counter::ClosedLoginTimeout), 0);
    eventually(LONG, || server.stats().unauthenticated_connections == 0);
}

#[test]
fn a_challenge_is_used_once() {
    let server = Fixture::start(config().max_login_attempts(10));
    let mut spy = server.stranger();
    let mut client = server.stranger();
    let challenge = client.challenge().expect("a challenge");
    let proof = Client::proof("root", PASSWORD, &challenge);
    assert_eq!(challenge.len(), 20);
    // The connection that replays the proof has another challenge.
    assert_ne!(spy.challenge().expect("a challenge"), challenge);
    assert_eq!(spy.prove(proof.clone()).expect_err("replayed").code, 1045);
    client.prove(proof).expect("the right one");
    // A failed attempt uses up the challenge, also on the same connection.
    let challenge = spy.challenge().expect("a challenge");
    spy.prove(Client::proof("root", "wrong", &challenge)).expect_err("a wrong password");
    spy.prove(Client::proof("root", PASSWORD, &challenge)).expect_err("the challenge is used");
    spy.login("root", PASSWORD);
    assert_eq!((server.count(Counter::LoginsFailed), server.count(Counter::Logins)), (2, 2));
}

#[test]
fn proofs_of_a_wrong_form_are_refused() {
    let server =
        Fixture::start(config().max_login_attempts(1000).max_login_failures_per_address(1000));
    let mut client = server.stranger();
    let challenge = client.challenge().expect("a challenge");
    let good = Client::proof("root", PASSWORD, &challenge);
    client.prove(b"".to_vec()).expect_err("empty");
    for cut in 0..good.len() {
        let challenge = client.challenge().expect("a challenge");
        let good = Client::proof("root", PASSWORD, &challenge);
        let failure = client.prove(&good[..cut]).expect_err("truncated");
        assert_eq!(failure.code, 1045, "at {cut}");
    }
    for text in ["\0\0", "\0root\0*zz", "root", "\0\0*", "\0root\0\0", &"x".repeat(3000)] {
        client.challenge().expect("a challenge");
        client.prove(text.as_bytes()).expect_err("no proof");
    }
    client.login("root", PASSWORD);
}

#[test]
fn messages_in_the_wrong_order_are_errors_and_count() {
    let server = Fixture::start(config().max_login_attempts(3));
    let mut client = server.stranger();
    client.prove(b"\0root\0".to_vec()).expect_err("no challenge");
    client.challenge().expect("a challenge");
    client.challenge().expect_err("there is one");
    client.prove(b"\0root\0".to_vec()).expect_err("no challenge any more");
    assert_eq!(client.rest(), []);
}

#[test]
fn nothing_is_done_for_who_has_not_logged_in() {
    let server = Fixture::start(config());
    let messages = [
        (2, ClientMessage::SessionNew),
        (AUTO | 2, ClientMessage::ExecSql(query("one"))),
        (2, ClientMessage::ExecSql(query("one"))),
        (2, ClientMessage::SessionClose),
        (2, lab::xrpc::request::timestamps(1)),
        (2, lab::xrpc::request::offer(1)),
        (2, ClientMessage::ExpectClose),
    ];
    for (session, message) in messages {
        for started in [false, true] {
            let mut client = server.stranger();
            if started {
                client.challenge().expect("a challenge");
            }
            client.send(session, &message);
            let frames = client.rest();
            assert_eq!(frames.len(), 1, "{message:?}");
            assert_eq!(frames[0].session, session);
            assert_eq!(frames[0].failure().text, "Log in first.");
        }
    }
    // A frame of 64 KiB is too long before the login.
    let mut client = server.stranger();
    client.send_bytes(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 5]).expect("sent");
    let failure = client.rest()[0].failure();
    assert_eq!((failure.code, &*failure.text), (1153, "length 65536 exceeds 4096"));
    assert_eq!(server.count(Counter::ProtocolErrors), 15);
}

#[test]
fn who_has_logged_in_cannot_do_it_again() {
    let server = Fixture::start(config());
    let mut client = server.client();
    for message in [login_start(), login_continue(b"\0root\0".to_vec())] {
        client.send(0, &message);
        let failure = client.reply(0).failure();
        assert_eq!((failure.fatal, &*failure.text), (true, "Unexpected message for polarx rpc."));
    }
    client.execute(AUTO | 2, "one").one();
}

#[test]
fn who_does_not_log_in_in_time_is_closed() {
    let server = Fixture::start(config().login_timeout(Duration::from_millis(100)));
    let mut silent = server.stranger();
    let mut probing = server.stranger();
    let mut started = server.stranger();
    let mut in_time = server.client();
    started.challenge().expect("a challenge");
    probing.probe();
    for client in [&mut silent, &mut probing, &mut started] {
        assert_eq!(client.rest(), []);
    }
    assert_eq!(server.count(Counter::ClosedLoginTimeout), 3);
    in_time.execute(AUTO | 2, "one").one();
    drop((silent, probing, started));
    eventually(LONG, || {
        let stats = server.stats();
        (stats.unauthenticated_connections, stats.connections) == (0, 1)
    });
}

#[test]
fn connections_of_one_address_that_have_not_logged_in_are_limited() {
    let server = Fixture::start(config().max_unauthenticated_per_address(5));
    let mut inside = server.client();
    let mut waiting: Vec<_> = (0..5).map(|_| server.stranger()).collect();
    for client in &mut waiting {
        client.probe();
    }
    for _ in 0..3 {
        let mut refused = server.stranger();
        assert_eq!(refused.rest(), []);
    }
    assert_eq!(server.count(Counter::LoginsRefused), 3);
    inside.execute(AUTO | 2, "one").one();
    // Another address has places of its own.
    from(&server, 2).login("root", PASSWORD);
    // A login frees a place, and so does the end of a connection.
    waiting[0].login("root", PASSWORD);
    server.stranger().probe();
    drop(waiting.pop());
    eventually(LONG, || server.stats().unauthenticated_connections == 3);
    server.client().execute(AUTO | 2, "one").one();
    assert_eq!(server.count(Counter::ClosedLoginDisplaced), 0);
}

#[test]
fn peers_over_ipv4_are_limited_by_their_ipv4_address_on_a_listener_of_ipv6() {
    if !has_ipv6() || !is_dual_stack() {
        return;
    }
    let config = config().max_unauthenticated_per_address(2);
    let server = Fixture::start_at((Ipv6Addr::UNSPECIFIED, 0).into(), config);
    let v4 = |last| Ipv4Addr::new(127, 0, 0, last);
    let connect = |from: IpAddr| {
        let to = match from {
            IpAddr::V4(_) => v4(1).into(),
            IpAddr::V6(addr) if addr.to_ipv4_mapped().is_some() => v4(1).to_ipv6_mapped().into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        Client::connect_from(from, SocketAddr::new(to, server.addr().port()))
    };
    // The server sees a mapped address, whether the socket of the peer is of IPv4 or of IPv6.
    let mapped = |last| v4(last).to_ipv6_mapped().into();
    let full = [v4(2).into(), mapped(2), v4(3).into(), mapped(3)];
    let local: IpAddr = Ipv6Addr::LOCALHOST.into();
    let mut waiting: Vec<_> = full.into_iter().chain([local; 2]).map(connect).collect();
    waiting.iter_mut().for_each(|client| drop(client.probe()));
    for from in full.into_iter().chain([local]) {
        assert_eq!(connect(from).rest(), [], "{from}");
    }
    assert_eq!(server.count(Counter::LoginsRefused), 5);
    // Another address has places of its own.
    connect(v4(4).into()).login("root", PASSWORD);
    connect(mapped(4)).login("root", PASSWORD);
    for client in &mut waiting {
        client.login("root", PASSWORD);
        client.execute(AUTO | 2, "one").one();
    }
}

/// Connects from 127.0.0.`last`.
fn from(server: &Fixture, last: u8) -> Client {
    Client::connect_from(Ipv4Addr::new(127, 0, 0, last), server.addr())
}

/// Connects from 127.0.0.`last`, and waits until the server knows it.
fn half_open(server: &Fixture, last: u8) -> Client {
    let mut client = from(server, last);
    client.probe();
    client
}

#[test]
fn a_newcomer_takes_the_place_of_the_oldest_of_the_address_with_the_most() {
    let limits = config().max_unauthenticated_connections(6).max_unauthenticated_per_address(4);
    let server = Fixture::start(limits);
    let inside = server.client();
    let mut waiting: Vec<_> = [2, 3, 2, 4, 2, 3].map(|last| half_open(&server, last)).into();
    // Each newcomer, and the place of the connection that is closed for it among those that wait.
    for (count, (last, oldest)) in (1..).zip([
        // 2 has three.
        (5, 0),
        // 2 and 3 have two: the oldest of all is of 3.
        (6, 0),
        // With the newcomer, 2 has three.
        (2, 0),
        // 2 has two.
        (7, 1),
        // Each has one.
        (8, 0),
        // 3 has two with the newcomer.
        (3, 0),
    ]) {
        waiting.push(half_open(&server, last));
        assert_eq!(waiting.remove(oldest).rest(), []);
        assert_eq!(server.count(Counter::ClosedLoginDisplaced), count);
        waiting.iter_mut().for_each(|client| drop(client.probe()));
        eventually(LONG, || server.stats().unauthenticated_connections == 6);
    }
    waiting.iter_mut().for_each(|client| client.login("root", PASSWORD));
    waiting.push(inside);
    for client in &mut waiting {
        client.execute(AUTO | 2, "one").one();
    }
    assert_eq!(server.stats().unauthenticated_connections, 0);
    assert_eq!(server.count(Counter::LoginsRefused), 0);
}

#[test]
fn an_address_at_its_limit_takes_no_place_of_others() {
    let limits = config().max_unauthenticated_connections(4).max_unauthenticated_per_address(2);
    let server = Fixture::start(limits);
    let mut waiting: Vec<_> = [2, 2, 3, 3].map(|last| half_open(&server, last)).into();
    for last in [2, 3, 2] {
        assert_eq!(from(&server, last).rest(), []);
    }
    waiting.iter_mut().for_each(|client| drop(client.probe()));
    assert_eq!(server.count(Counter::LoginsRefused), 3);
    assert_eq!(server.count(Counter::ClosedLoginDisplaced), 0);
}

#[test]
fn half_open_logins_from_twenty_addresses_do_not_keep_others_out() {
    let server = Fixture::start(config().max_unauthenticated_connections(40).login_timeout(LONG));
    let open = |last| {
        let mut client = from(&server, last);
        // Fails if the server has closed the connection already.
        let _ = client.send_bytes(&[1, 0, 0]);
        client
    };
    let addresses = [2..12, 12..22];
    // Each address opens three connections, and there is room for two.
    let all = || addresses.clone().map(|part| part.clone().chain(part.clone()).chain(part));
    let floods = all().map(|part| part.map(open).collect::<VecDeque<_>>());
    server.wait_for(Counter::ClosedLoginDisplaced, 20);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for (mut clients, part) in floods.into_iter().zip(all()) {
            let (open, done, server) = (&open, &done, &server);
            scope.spawn(move || {
                for last in part.cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                    // Otherwise the peers could use up the descriptors of this process.
                    eventually(LONG, || server.stats().connections < 500);
                    clients.push_back(open(last));
                    clients.pop_front();
                }
            });
        }
        // Beside a login there are forty of twenty addresses: one address always has more than one.
        let logins = scope.spawn(|| {
            for _ in 0..5 {
                server.stranger().login("root", PASSWORD);
            }
        });
        let outcome = logins.join();
        done.store(true, Ordering::Relaxed);
        outcome.expect("each login succeeds");
    });
    assert_eq!(server.count(Counter::Logins), 5);
    assert_eq!(server.count(Counter::LoginsRefused), 0);
}

#[test]
fn who_has_failed_too_often_is_refused_without_a_look() {
    let server = Fixture::start(config().max_login_failures_per_address(5).max_login_attempts(100));
    let mut client = server.stranger();
    let mut refused = 0;
    for _ in 0..20 {
        assert_eq!(refusal(&mut client, "root", "wrong"), denied());
    }
    refused += server.count(Counter::LoginsRefused);
    assert!((14..=15).contains(&refused), "{refused}");
    assert_eq!(server.control.logins().len() as u64, 20 - refused);
    // The right password gets the same answer, so that the answer tells an attacker nothing.
    assert_eq!(refusal(&mut client, "root", PASSWORD), denied());
    assert_eq!(client.challenge_for("digest").expect("a challenge").len(), 45);
}

#[test]
fn a_flood_of_attempts_leaves_those_who_work_alone() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let done = AtomicBool::new(false);
    let addr = server.addr();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let mut guesser = Client::connect(addr);
                    for _ in 0..3 {
                        guesser.try_login("root", "a guess").expect_err("wrong");
                    }
                }
            });
        }
        server.wait_for(Counter::LoginsFailed, 60);
        for _ in 0..lab::often(2000) {
            client.execute(2, "one").one();
        }
        server.wait_for(Counter::LoginsRefused, 100);
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn answers_that_are_held_back_hold_no_thread() {
    let delay = Duration::from_millis(200);
    let config = config().login_failure_delay(delay).authenticate_ok_delay(delay);
    let server = Fixture::start(config.epoll_threads_per_group(1).max_threads(2));
    let began = Instant::now();
    let mut clients: Vec<_> = (0..40).map(|_| server.stranger()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let challenge = client.challenge().expect("a challenge");
        let password = if at % 2 == 0 { PASSWORD } else { "wrong" };
        client.send(0, &login_continue(Client::proof("root", password, &challenge)));
    }
    let mut probe = server.stranger();
    probe.probe();
    for (at, client) in clients.iter_mut().enumerate() {
        let reply = client.reply(0);
        assert_eq!(reply.error.is_some(), at % 2 == 1);
    }
    assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
    // In sequence they would have taken 8 s.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    clients[0].execute(AUTO | 2, "one").one();
    clients[1].challenge().expect("it may try again");
}

#[test]
fn requests_in_one_write_with_the_proof_are_answered_behind_the_delayed_answer() {
    let server = Fixture::start(config().authenticate_ok_delay(Duration::from_millis(20)));
    let mut client = server.stranger();
    let challenge = client.challenge().expect("a challenge");
    let messages = [
        (0, login_continue(Client::proof("root", PASSWORD, &challenge))),
        (0, ClientMessage::CapabilitiesGet),
        (2, ClientMessage::SessionNew),
        (2, ClientMessage::ExecSql(query("one"))),
    ];
    for (session, message) in &messages {
        client.queue(*session, message);
    }
    client.flush();
    let kinds = [(); 4].map(|()| client.raw_frame().expect("a frame").kind);
    let [capabilities, login, opened, columns] = kinds.map(ServerKind::from_number);
    assert_eq!(capabilities, Some(ServerKind::Capabilities));
    assert_eq!(login, Some(ServerKind::AuthenticateOk));
    assert_eq!((opened, columns), (Some(ServerKind::Ok), Some(ServerKind::ColumnMetaData)));
}

#[test]
fn who_does_not_wait_for_a_delayed_answer_is_closed() {
    let server = Fixture::start(config().login_failure_delay(Duration::from_secs(5)));
    let mut client = server.stranger();
    let challenge = client.challenge().expect("a challenge");
    client.send(0, &login_continue(Client::proof("root", "wrong", &challenge)));
    client.send(0, &login_start());
    let frames = client.rest();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].failure().text, "Authentication messages out of order.");
}

#[test]
fn secrets_are_in_no_debug_output() {
    let server = Fixture::start(config().max_login_attempts(10));
    let mut client = server.stranger();
    let challenge = client.challenge().expect("a challenge");
    let proof = Client::proof("root", "wrong", &challenge);
    client.prove(proof.clone()).expect_err("wrong");
    let challenge = client.challenge().expect("a challenge");
    let good = Client::proof("root", PASSWORD, &challenge);
    client.prove(good.clone()).expect("right");
    let seen = server.control.logins();
    assert_eq!(seen.len(), 2);
    for (text, proof) in seen.iter().zip([proof, good]) {
        assert!(text.contains("root"), "{text}");
        let hex = String::from_utf8_lossy(&proof[proof.len() - 40..]).into_owned();
        let secret = [&hex[..8], &hex.to_uppercase()[..8], &String::from_utf8_lossy(&challenge)];
        assert!(secret.iter().all(|secret| !text.contains(*secret)), "{text}");
    }
}

/// Number of statements after which the clients of [`beside_transactions`] give up.
const MOST: u64 = 4_000;

/// Runs `code` while 32 clients in transactions execute short statements on two threads and one in
/// reserve. Returns the number of statements that were executed meanwhile.
fn beside_transactions(config: Config, code: impl FnOnce(&Fixture)) -> u64 {
    let config = config
        .epoll_threads_per_group(2)
        .max_threads(3)
        .thread_deadlock_check_interval(Duration::from_secs(10))
        .enable_tasker(false);
    let server = Fixture::start(config);
    let clients: Vec<_> = (0..32).map(|_| server.client_with_sessions([1])).collect();
    let executed = || Counts::of(&server.control.counts.executed);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut client in clients {
            let (done, executed) = (&done, &executed);
            scope.spawn(move || {
                client.execute(1, "begin").good();
                while !done.load(Ordering::Relaxed) && executed() < MOST {
                    client.execute(1, "pause 500").good();
                }
            });
        }
        // All have begun, and the slow statements are known to be slow.
        eventually(LONG, || executed() >= 8 * 32);
        let before = executed();
        code(&server);
        done.store(true, Ordering::Relaxed);
        executed() - before
    })
}

#[test]
fn a_login_gets_through_beside_more_transactions_than_threads() {
    let executed = beside_transactions(config(), |server| {
        let urgent = server.count(Counter::UrgentTasks);
        server.stranger().login("root", PASSWORD);
        assert!(server.count(Counter::UrgentTasks) > urgent);
    });
    assert!(executed < MOST / 2, "{executed} statements before the login");
}

#[test]
fn a_login_that_takes_too_long_is_closed_beside_more_transactions_than_threads() {
    // The 32 clients have logged in before.
    let executed = beside_transactions(config(), |server| {
        let handle = server.server().runtime.handle();
        let brief = |config: Config| config.login_timeout(Duration::from_millis(1));
        handle.reconfigure(brief).expect("within its range");
        assert_eq!(server.stranger().rest(), []);
        assert_eq!(server.count(Counter::ClosedLoginTimeout), 1);
    });
    assert!(executed < MOST / 2, "{executed} statements before the close");
}
