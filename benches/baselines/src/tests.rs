//! The same tests over every server, so that none is quick because it does less.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use lab::load::raise_descriptor_limit;

use crate::client::{BURN, Client, ECHO, LOCK, PATIENCE, UNLOCK, frame_of, with_number};
use crate::{KINDS, Server, Spec};

/// Each test of a server is a test of its own: `cargo test -p baselines tests::uv`.
macro_rules! servers {
    ($($name:ident: $spec:literal,)+) => {
        const SERVERS: &[&str] = &[$($spec),+];
        $(mod $name {
            tests!($spec);
        })+
    };
}

macro_rules! tests {
    ($spec:literal) => {
        tests!($spec:
            a_frame_is_echoed,
            frames_may_come_in_any_two_pieces,
            frames_may_come_byte_by_byte,
            a_thousand_frames_in_one_write_are_answered_in_the_order_of_their_sessions,
            a_long_frame_is_echoed,
            a_peer_that_does_not_read_gets_all_of_it_later,
            a_slow_frame_loses_nobody_elses_answers,
            a_broken_frame_ends_its_connection_alone,
            two_hundred_connections_are_served_at_once,
            a_peer_that_leaves_in_the_middle_disturbs_nobody,
            nothing_is_lost_among_many_connections,
        );
    };
    ($spec:literal: $($test:ident,)+) => {
        $(#[test]
        fn $test() {
            super::$test(super::serve($spec).address());
        })+
    };
}

servers! {
    limit: "limit:2",
    uv: "uv:2",
    easy_sync: "easy-sync:2",
    easy_async: "easy-async:2:workers=3",
    easy_async_wide: "easy-async:16:workers=64",
    percona: "percona:groups=2",
    grpc_cq: "grpc-cq:3",
    thread_per_connection: "thread-per-connection",
    thread_per_session: "thread-per-session",
    tokio: "tokio:2",
    epoll_group: "epoll-group",
}

const HEADER_BYTES: usize = 13;

#[test]
fn no_server_is_left_out() {
    for (name, kind) in KINDS {
        let mut specs = SERVERS.iter().map(|server| server.parse::<Spec>().unwrap());
        assert!(specs.any(|spec| spec.kind == kind), "{name}");
    }
}

fn a_frame_is_echoed(address: SocketAddr) {
    Client::connect(address).call(&frame_of(7, ECHO, b"hello"));
}

fn frames_may_come_in_any_two_pieces(address: SocketAddr) {
    let (mut peer, mut other) = (Client::connect(address), Client::connect(address));
    let bytes =
        [frame_of(1, ECHO, b""), frame_of(1, BURN, &[0; 4]), frame_of(1, ECHO, &[9; 20])].concat();
    for cut in 1..bytes.len() {
        peer.ask(&bytes[..cut]);
        other.take_a_turn();
        peer.ask(&bytes[cut..]);
        peer.expect(&bytes);
    }
}

fn frames_may_come_byte_by_byte(address: SocketAddr) {
    let (mut peer, mut other) = (Client::connect(address), Client::connect(address));
    let bytes = [frame_of(1, ECHO, b"a"), frame_of(1, ECHO, b"")].concat();
    for byte in &bytes {
        peer.ask(&[*byte]);
        other.take_a_turn();
    }
    peer.expect(&bytes);
}

fn a_thousand_frames_in_one_write_are_answered_in_the_order_of_their_sessions(address: SocketAddr) {
    let mut peer = Client::connect(address);
    let numbered = |number: u32| frame_of(u64::from(number % 7), ECHO, &number.to_le_bytes());
    let bytes: Vec<u8> = (0..1000).flat_map(numbered).collect();
    peer.ask(&bytes);
    let mut answers = vec![0; bytes.len()];
    peer.0.read_exact(&mut answers).unwrap();

    let mut next: HashMap<u64, u32> = (0..7).map(|session| (session, session as u32)).collect();
    for answer in answers.chunks(HEADER_BYTES + 4) {
        let session = u64::from_le_bytes(*answer.first_chunk().unwrap());
        let expected = next.get_mut(&session).expect("an answer to nobody");
        assert_eq!(answer, numbered(*expected), "session {session}");
        *expected += 7;
    }
    assert!(next.values().all(|number| (1000..1007).contains(number)), "{next:?}");
}

fn a_long_frame_is_echoed(address: SocketAddr) {
    let mut peer = Client::connect(address);
    peer.call(&frame_of(1, ECHO, &pattern(1 << 20)));
    peer.call(&frame_of(1, ECHO, b"short again"));
}

fn a_peer_that_does_not_read_gets_all_of_it_later(address: SocketAddr) {
    let (mut peer, mut other) = (Client::connect(address), Client::connect(address));
    let bodies = pattern(8 << 20);
    let frames = bodies.chunks(5000).zip(0..).map(|(body, session)| frame_of(session, ECHO, body));
    // Each of a session of its own: they may be answered in any order.
    let frames: Vec<Vec<u8>> = frames.collect();
    let bytes = frames.concat();
    let written = peer.write_until_stuck(&bytes);
    other.call(&frame_of(1, ECHO, b"meanwhile"));

    let mut writer = peer.0.try_clone().unwrap();
    let answers = thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&bytes[written..]).unwrap());
        let mut answers = vec![0; bytes.len()];
        peer.0.read_exact(&mut answers).unwrap();
        answers
    });
    let mut seen = vec![false; frames.len()];
    let mut rest = &answers[..];
    while let Some(session) = rest.first_chunk() {
        let session = u64::from_le_bytes(*session) as usize;
        let (answer, behind) = rest.split_at(frames[session].len());
        assert!(answer == frames[session], "the answer to frame {session} is another");
        assert!(!std::mem::replace(&mut seen[session], true), "frame {session} twice");
        rest = behind;
    }
    assert!(seen.iter().all(|seen| *seen));
}

fn a_slow_frame_loses_nobody_elses_answers(address: SocketAddr) {
    let mut slow: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    let mut quick: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    let burn = frame_of(1, BURN, &[&20_000u32.to_le_bytes()[..], b"tail"].concat());
    for peer in &mut slow {
        peer.ask(&burn);
    }
    for number in 0..20u8 {
        quick.iter_mut().for_each(|peer| peer.ask(&frame_of(2, ECHO, &[number])));
        quick.iter_mut().for_each(|peer| peer.expect(&frame_of(2, ECHO, &[number])));
    }
    slow.iter_mut().for_each(|peer| peer.expect(&burn));
}

fn a_broken_frame_ends_its_connection_alone(address: SocketAddr) {
    let mut others: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    others.iter_mut().for_each(Client::take_a_turn);
    let mut broken = frame_of(1, ECHO, b"");
    broken[8] = 0;
    for _ in 0..4 {
        let mut peer = Client::connect(address);
        peer.take_a_turn();
        peer.ask(&broken);
        peer.assert_closed();
        others.iter_mut().for_each(Client::take_a_turn);
    }
    a_frame_is_echoed(address);
}

fn two_hundred_connections_are_served_at_once(address: SocketAddr) {
    let mut peers: Vec<Client> = (0..200).map(|_| Client::connect(address)).collect();
    let question = |number: usize| frame_of(number as u64, ECHO, &pattern(number));
    for _ in 0..3 {
        for (number, peer) in peers.iter_mut().enumerate() {
            peer.ask(&question(number));
        }
        for (number, peer) in peers.iter_mut().enumerate().rev() {
            peer.expect(&question(number));
        }
    }
}

fn a_peer_that_leaves_in_the_middle_disturbs_nobody(address: SocketAddr) {
    let mut others: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    let question = frame_of(1, ECHO, &pattern(100_000));
    for cut in [5, HEADER_BYTES, 50_000, question.len()] {
        let mut peer = Client::connect(address);
        peer.ask(&question[..cut]);
        // Its answer, if it gets one, is not read: the connection is reset.
        drop(peer);
        others.iter_mut().for_each(Client::take_a_turn);
    }
    let mut peer = Client::connect(address);
    peer.write_until_stuck(&question.repeat(80));
    drop(peer);
    others.iter_mut().for_each(Client::take_a_turn);
    a_frame_is_echoed(address);
}

fn nothing_is_lost_among_many_connections(address: SocketAddr) {
    thread::scope(|scope| {
        for client in 0..64u32 {
            scope.spawn(move || {
                let mut connection = Client::connect(address);
                for round in 0..20u32 {
                    let number = client << 16 | round << 8;
                    let frames = (0..4).map(|place| with_number(ECHO, number | place));
                    connection.call(&frames.collect::<Vec<_>>().concat());
                }
            });
        }
    });
}

#[test]
fn a_lock_has_one_holder_at_a_time() {
    for server in ["epoll-group:4:groups=1", "thread-per-connection"] {
        let (server, inside) = (serve(server), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut client = Client::connect(server.address());
                    for _ in 0..50 {
                        client.call(&with_number(LOCK, 7));
                        assert!(!inside.swap(true, Ordering::SeqCst));
                        inside.store(false, Ordering::SeqCst);
                        client.call(&with_number(UNLOCK, 7));
                    }
                });
            }
        });
    }
}

/// Many wait for what the last request does, more than the library has threads. All get their turn.
#[test]
fn all_waiters_get_the_lock() {
    for server in ["epoll-group:4:groups=1", "thread-per-connection"] {
        let server = serve(server);
        let mut holder = Client::connect(server.address());
        holder.call(&with_number(LOCK, 8));
        let mut waiters: Vec<_> = (0..64).map(|_| Client::connect(server.address())).collect();
        for waiter in &mut waiters {
            waiter.ask(&with_number(LOCK, 8));
        }
        let end = Instant::now() + PATIENCE;
        while server.stats().is_some_and(|stats| stats.stalled_threads < 64) {
            assert!(Instant::now() < end, "{:?}", server.stats());
            thread::yield_now();
        }
        holder.call(&with_number(UNLOCK, 8));
        thread::scope(|scope| {
            for mut waiter in waiters {
                scope.spawn(move || {
                    waiter.expect(&with_number(LOCK, 8));
                    waiter.call(&with_number(UNLOCK, 8));
                });
            }
        });
    }
}

#[test]
fn the_end_of_a_connection_gives_its_locks_back() {
    let server = serve("epoll-group:4:groups=1");
    let mut holder = Client::connect(server.address());
    holder.call(&with_number(LOCK, 1));
    holder.call(&with_number(LOCK, 2));
    let mut waiter = Client::connect(server.address());
    waiter.ask(&with_number(LOCK, 1));
    drop(holder);
    waiter.expect(&with_number(LOCK, 1));
    waiter.call(&with_number(LOCK, 2));
}

fn serve(server: &str) -> Server {
    raise_descriptor_limit().unwrap();
    Server::start(&server.parse().unwrap(), (Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

/// Bytes without repetition.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|place| (place.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}
