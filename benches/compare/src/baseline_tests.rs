//! The same tests over every server, so that none is quicker for doing less.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::load::raise_descriptor_limit;
use crate::serve::Server;
use crate::spec::{KINDS, Spec};

/// Each test of a server is a test of its own: `cargo test -p compare baseline_tests::uv`.
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
    mio: "mio:2",
    uv: "uv:2",
    easy_sync: "easy-sync:2",
    easy_async: "easy-async:2:workers=3",
    easy_async_wide: "easy-async:16:workers=64",
    percona: "percona:groups=2",
    grpc_cq: "grpc-cq:3",
    grpc_cq_repaired: "grpc-cq-repaired:3",
    thread_per_connection: "thread-per-connection",
    thread_per_session: "thread-per-session",
    tokio: "tokio:2",
    epoll_group: "epoll-group",
}

struct Peer(TcpStream);

const PLAIN: u8 = 1;
const BURN: u8 = 0x7e;
const HEADER_BYTES: usize = 13;
/// Against hanging for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// A write that waits so long is taken for one that waits for the peer to read.
const STUCK: Duration = Duration::from_millis(50);

#[test]
fn no_server_is_left_out() {
    for (name, kind) in KINDS {
        let mut specs = SERVERS.iter().map(|server| server.parse::<Spec>().unwrap());
        assert!(specs.any(|spec| spec.kind == kind), "{name}");
    }
}

fn a_frame_is_echoed(address: SocketAddr) {
    Peer::connect(address).is_echoed(&frame(7, PLAIN, b"hello"));
}

fn frames_may_come_in_any_two_pieces(address: SocketAddr) {
    let (mut peer, mut other) = (Peer::connect(address), Peer::connect(address));
    let bytes = [frame(1, PLAIN, b""), frame(1, BURN, &[0; 4]), frame(1, PLAIN, &[9; 20])].concat();
    for cut in 1..bytes.len() {
        peer.send(&bytes[..cut]);
        other.takes_a_turn();
        peer.send(&bytes[cut..]);
        peer.receives(&bytes);
    }
}

fn frames_may_come_byte_by_byte(address: SocketAddr) {
    let (mut peer, mut other) = (Peer::connect(address), Peer::connect(address));
    let bytes = [frame(1, PLAIN, b"a"), frame(1, PLAIN, b"")].concat();
    for byte in &bytes {
        peer.send(&[*byte]);
        other.takes_a_turn();
    }
    peer.receives(&bytes);
}

fn a_thousand_frames_in_one_write_are_answered_in_the_order_of_their_sessions(address: SocketAddr) {
    let mut peer = Peer::connect(address);
    let numbered = |number: u32| frame(u64::from(number % 7), PLAIN, &number.to_le_bytes());
    let bytes: Vec<u8> = (0..1000).flat_map(numbered).collect();
    peer.send(&bytes);
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
    let mut peer = Peer::connect(address);
    peer.is_echoed(&frame(1, PLAIN, &pattern(1 << 20)));
    peer.is_echoed(&frame(1, PLAIN, b"short again"));
}

fn a_peer_that_does_not_read_gets_all_of_it_later(address: SocketAddr) {
    let (mut peer, mut other) = (Peer::connect(address), Peer::connect(address));
    let bodies = pattern(8 << 20);
    let frames = bodies.chunks(5000).zip(0..).map(|(body, session)| frame(session, PLAIN, body));
    // Each of a session of its own: they may be answered in any order.
    let frames: Vec<Vec<u8>> = frames.collect();
    let bytes = frames.concat();
    let written = peer.write_until_stuck(&bytes);
    other.is_echoed(&frame(1, PLAIN, b"meanwhile"));

    let mut writer = peer.0.try_clone().unwrap();
    writer.set_write_timeout(Some(PATIENCE)).unwrap();
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
    let mut slow: Vec<Peer> = (0..4).map(|_| Peer::connect(address)).collect();
    let mut quick: Vec<Peer> = (0..4).map(|_| Peer::connect(address)).collect();
    let burn = frame(1, BURN, &[&20_000u32.to_le_bytes()[..], b"tail"].concat());
    for peer in &mut slow {
        peer.send(&burn);
    }
    for number in 0..20u8 {
        quick.iter_mut().for_each(|peer| peer.send(&frame(2, PLAIN, &[number])));
        quick.iter_mut().for_each(|peer| peer.receives(&frame(2, PLAIN, &[number])));
    }
    slow.iter_mut().for_each(|peer| peer.receives(&burn));
}

fn a_broken_frame_ends_its_connection_alone(address: SocketAddr) {
    let mut others: Vec<Peer> = (0..4).map(|_| Peer::connect(address)).collect();
    others.iter_mut().for_each(Peer::takes_a_turn);
    let mut broken = frame(1, PLAIN, b"");
    broken[8] = 0;
    for _ in 0..4 {
        let mut peer = Peer::connect(address);
        peer.takes_a_turn();
        peer.send(&broken);
        peer.is_closed();
        others.iter_mut().for_each(Peer::takes_a_turn);
    }
    a_frame_is_echoed(address);
}

fn two_hundred_connections_are_served_at_once(address: SocketAddr) {
    let mut peers: Vec<Peer> = (0..200).map(|_| Peer::connect(address)).collect();
    let question = |number: usize| frame(number as u64, PLAIN, &pattern(number));
    for _ in 0..3 {
        for (number, peer) in peers.iter_mut().enumerate() {
            peer.send(&question(number));
        }
        for (number, peer) in peers.iter_mut().enumerate().rev() {
            peer.receives(&question(number));
        }
    }
}

fn a_peer_that_leaves_in_the_middle_disturbs_nobody(address: SocketAddr) {
    let mut others: Vec<Peer> = (0..4).map(|_| Peer::connect(address)).collect();
    let question = frame(1, PLAIN, &pattern(100_000));
    for cut in [5, HEADER_BYTES, 50_000, question.len()] {
        let mut peer = Peer::connect(address);
        peer.send(&question[..cut]);
        // Its answer, if it gets one, is not read: the connection is reset.
        drop(peer);
        others.iter_mut().for_each(Peer::takes_a_turn);
    }
    let mut peer = Peer::connect(address);
    peer.write_until_stuck(&question.repeat(80));
    drop(peer);
    others.iter_mut().for_each(Peer::takes_a_turn);
    a_frame_is_echoed(address);
}

fn serve(server: &str) -> Server {
    raise_descriptor_limit().unwrap();
    Server::start(&server.parse().unwrap(), (Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

impl Peer {
    fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn is_echoed(&mut self, frame: &[u8]) {
        self.send(frame);
        self.receives(frame);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn receives(&mut self, expected: &[u8]) {
        let mut found = vec![0; expected.len()];
        self.0.read_exact(&mut found).unwrap();
        assert!(found == expected, "{} bytes were not echoed as they came", expected.len());
    }

    /// What others have sent before is likely to be received before this is answered, and sure to
    /// be on a server of one thread.
    fn takes_a_turn(&mut self) {
        self.is_echoed(&frame(1, PLAIN, b"turn"));
    }

    /// Writes without reading as long as somebody takes it; returns how much was taken.
    fn write_until_stuck(&mut self, bytes: &[u8]) -> usize {
        self.0.set_write_timeout(Some(STUCK)).unwrap();
        let mut written = 0;
        while written < bytes.len() {
            match self.0.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        written
    }

    fn is_closed(&mut self) {
        match self.0.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("{other:?} instead of an end"),
        }
    }
}

fn frame(session: u64, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = session.to_le_bytes().to_vec();
    frame.extend((body.len() as u32 + 1).to_le_bytes());
    frame.push(kind);
    frame.extend(body);
    frame
}

/// Bytes of which no stretch looks like its neighbour.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|place| (place.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}
