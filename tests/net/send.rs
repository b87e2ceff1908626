//! Sending: from many threads, and to peers that read late, slowly or never.

use std::io::{IoSlice, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use epoll_group::Config;
use epoll_group::net::{Close, CloseReason, Connection, Input, Protocol, Sent};
use epoll_group::stats::Counter;
use lab::protocol::{Bytes, echo};
use lab::random::{Random, seed};
use lab::{BOTH, LONG, Peer, Server, config, eventually, pattern};

const KIB: usize = 1024;

/// A protocol that discards its input and gives its connection to the test.
fn given_away() -> (impl Protocol, mpsc::Receiver<Connection>) {
    let (give, given) = mpsc::channel();
    let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        input.take_all();
        let _ = give.send(conn.clone());
        Ok::<(), Close>(())
    });
    (protocol, given)
}

#[test]
fn sends_from_many_threads_stay_whole_and_in_the_order_of_each() {
    const THREADS: u8 = 8;
    const EACH: u32 = 500;
    for kind in BOTH {
        let (protocol, given) = given_away();
        let server = Server::start(kind, config(), protocol);
        let mut peer = server.peer();
        peer.send(b"begin");
        let conn = given.recv_timeout(LONG).expect("a connection");
        let senders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let conn = conn.clone();
                thread::spawn(move || {
                    for n in 0..EACH {
                        conn.send(message(thread, n));
                    }
                })
            })
            .collect();
        let mut next = [0; THREADS as usize];
        for _ in 0..u32::from(THREADS) * EACH {
            let head = peer.receive(5);
            let (thread, n) = (head[0], u32::from_le_bytes(head[1..].try_into().expect("four")));
            assert_eq!(n, next[usize::from(thread)], "{kind:?}, thread {thread}");
            next[usize::from(thread)] += 1;
            let expected = message(thread, n);
            assert!(peer.receive(expected.len() - 5) == expected[5..], "{kind:?}: not whole");
        }
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        conn.close("enough");
        assert!(peer.receive_to_finish().is_empty());
    }
}

/// A message of a sender, a number, and bytes that depend on both. The socket takes large ones in
/// parts.
fn message(thread: u8, n: u32) -> Vec<u8> {
    let mut bytes = vec![thread];
    bytes.extend(n.to_le_bytes());
    let len = if n % 50 == 7 { 300_000 } else { (n as usize * 37) % 3000 };
    bytes.resize(5 + len, thread ^ n.to_le_bytes()[0]);
    bytes
}

/// Cuts bytes into slices at random, of which some are empty, and sometimes many.
fn cut<'a>(mut bytes: &'a [u8], random: &mut Random) -> Vec<IoSlice<'a>> {
    let most = [1, 10, bytes.len() as u64][random.below(3) as usize];
    let mut slices = Vec::new();
    while !bytes.is_empty() {
        let (slice, rest) = bytes.split_at(random.below(most + 1).min(bytes.len() as u64) as usize);
        slices.push(IoSlice::new(slice));
        bytes = rest;
    }
    slices
}

#[test]
fn a_send_after_a_reset_answers_that_its_bytes_were_dropped() {
    for kind in BOTH {
        let (inside, entered) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (tell, answer) = mpsc::channel();
        let may_go = Mutex::new(may_go);
        let server = Server::start(
            kind,
            config(),
            Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
                input.take_all();
                let _ = inside.send(());
                may_go.lock().expect("unpoisoned").recv_timeout(LONG).expect("told to go on");
                let _ = tell.send(conn.send(b"answer"));
                Ok::<(), Close>(())
            }),
        );
        for _ in 0..20 {
            let mut peer = server.peer();
            peer.send(b"question");
            entered.recv_timeout(LONG).expect("a call");
            peer.reset();
            go.send(()).expect("a handler");
            let answer = answer.recv_timeout(LONG).expect("an answer");
            assert_eq!(answer, Sent::Closed, "{kind:?}");
        }
        server.wait_until_empty();
        assert_eq!(server.stats().buffered_bytes, 0);
    }
}

#[test]
fn slices_stay_together_whatever_the_socket_takes() {
    const THREADS: u8 = 4;
    const EACH: u32 = 200;
    let seed = seed();
    for kind in BOTH {
        let (protocol, given) = given_away();
        let server = Server::start(kind, config().tcp_send_buf(2 * KIB), protocol);
        // With a smaller buffer, TCP may send only one packet for each persist timer: five a
        // second.
        let mut peer = Peer::try_connect(server.address(), Some(64 * KIB)).expect("connected");
        peer.send(b"begin");
        let conn = given.recv_timeout(LONG).expect("a connection");
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let conn = &conn;
                scope.spawn(move || {
                    let mut random = Random(seed ^ u64::from(thread));
                    for n in 0..EACH {
                        let message = message(thread, n);
                        match random.below(4) {
                            0 => conn.send(&message),
                            _ => conn.send_slices(&cut(&message, &mut random)),
                        };
                        // After this wait the socket has room again, so that some messages fit and
                        // others do not.
                        if random.below(16) == 0 {
                            eventually(LONG, || conn.pending_bytes() == 0);
                        }
                    }
                });
            }
            // A peer that reads at once might keep up with the senders, without any backlog.
            eventually(LONG, || server.count(Counter::BacklogBytesQueued) > 0);
            let mut next = [0; THREADS as usize];
            for _ in 0..u32::from(THREADS) * EACH {
                let head = peer.receive(5);
                let (thread, n) = (head[0], u32::from_le_bytes(head[1..].try_into().expect("4")));
                assert_eq!(n, next[usize::from(thread)], "{kind:?}, thread {thread}, seed {seed}");
                next[usize::from(thread)] += 1;
                let expected = message(thread, n);
                let rest = peer.receive(expected.len() - 5);
                assert!(rest == expected[5..], "{kind:?}: not whole, seed {seed}");
            }
        });
        conn.close("enough");
        assert!(peer.receive_to_finish().is_empty());
    }
}

#[test]
fn slices_leave_in_one_call_as_long_as_nothing_waits() {
    for kind in BOTH {
        let protocol = Bytes::new(|conn: &Connection, input: &mut Input<'_>| {
            let (first, second) = input.take_all().split_at(3);
            let nothing = [IoSlice::new(b""), IoSlice::new(b"")];
            assert_eq!(conn.send_slices(&nothing), Sent::Sent);
            assert_eq!(conn.send_slices(&[]), Sent::Sent);
            let slices = [b"<", first, b"", b"|", second, b">"].map(IoSlice::new);
            assert_eq!(conn.send_slices(&slices), Sent::Sent);
            Err::<(), Close>("enough".into())
        });
        let server = Server::start(kind, config(), protocol);
        let mut peer = server.peer();
        peer.send(b"onetwo");
        assert_eq!(peer.receive_to_finish(), b"<one|two>", "{kind:?}");
        assert_eq!(server.count(Counter::SendCalls), 1, "{kind:?}");
    }
}

/// Echoes, counts the calls of `drained` and notes the largest backlog.
#[derive(Clone, Default)]
struct Watched {
    drained: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Protocol for Watched {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        echo(conn, input)?;
        self.most.fetch_max(conn.pending_bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn drained(&self, _: &Connection) {
        self.drained.fetch_add(1, Ordering::Relaxed);
    }

    fn closed(&self, _: &Connection, (): (), _: &CloseReason) {}
}

/// Little room in the kernel, so that backlogs come soon.
fn tight() -> Config {
    config()
        .tcp_send_buf(16 * KIB)
        .tcp_recv_buf(16 * KIB)
        .worker_read_buf_bytes(HELD_BY_A_TURN)
        .write_high_watermark_bytes(HIGH)
        .write_low_watermark_bytes(16 * KIB)
}

const HIGH: usize = 64 * KIB;
const HELD_BY_A_TURN: usize = 16 * KIB;

#[test]
fn reading_pauses_at_the_high_watermark_and_every_byte_arrives_in_order() {
    for kind in BOTH {
        let protocol = Watched::default();
        let server = Server::start(kind, tight(), protocol.clone());
        let all = pattern(4 << 20);
        let mut peer = Peer::try_connect(server.address(), Some(16 * KIB)).expect("connected");
        let mut sender = peer.other();
        thread::scope(|scope| {
            scope.spawn(|| {
                sender.send(&all);
                sender.finish();
            });
            server.wait_for(Counter::ReadsPaused, 1);
            assert!(peer.receive_to_finish() == all, "{kind:?}");
        });
        server.wait_until_empty();
        let most = protocol.most.load(Ordering::Relaxed);
        assert!(most > HIGH && most <= HIGH + HELD_BY_A_TURN, "{kind:?}: {most} bytes waited");
        assert!(protocol.drained.load(Ordering::Relaxed) > 0);
        let stats = server.stats();
        assert_eq!(stats.buffered_bytes, 0);
        // A look at the backlog that comes too late resumes once more.
        let (paused, resumed) = (stats.get(Counter::ReadsPaused), stats.get(Counter::ReadsResumed));
        assert!(0 < paused && paused <= resumed, "{stats}");
    }
}

/// Peers that never read. They send until the server has counted something for each of them.
fn stuck_peers(server: &Server, counter: Counter) -> Vec<Peer> {
    let bytes = pattern(8 << 20);
    let stuck = |_| {
        let mut peer = Peer::try_connect(server.address(), Some(4 * KIB)).expect("connected");
        peer.send(&bytes[..1]);
        peer
    };
    let mut peers: Vec<_> = (0..STUCK).map(stuck).collect();
    let mut left = vec![&bytes[..]; STUCK];
    eventually(LONG, || {
        for (peer, left) in peers.iter_mut().zip(&mut left) {
            let sent = peer.stuff(left);
            *left = &left[sent..];
        }
        server.count(counter) >= STUCK as u64
    });
    peers
}

const STUCK: usize = 100;

#[test]
fn peers_that_never_read_hold_bounded_memory_and_no_worker() {
    for kind in BOTH {
        let server = Server::start(kind, tight(), Bytes::new(echo));
        let mut others: Vec<_> = (0..100).map(|_| server.peer()).collect();
        let stuck = stuck_peers(&server, Counter::ReadsPaused);
        for round in 0..10_u8 {
            for other in &mut others {
                other.echo(&[round; 100]);
            }
            let held = server.stats().buffered_bytes;
            let bound = STUCK * (HIGH + HELD_BY_A_TURN);
            assert!(held <= bound as u64, "{kind:?}: {held} bytes held, more than {bound}");
        }
        let connections = server.stats().connections;
        assert_eq!(connections, 200, "{kind:?}: within net_write_timeout nobody is closed");
        drop(stuck);
        eventually(LONG, || server.stats().buffered_bytes == 0);
    }
}

/// Sets its flag when dropped, also if the test fails, so that the scope can end.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn peers_that_never_read_are_closed_after_net_write_timeout() {
    for kind in BOTH {
        let (protocol, ends) = Bytes::with_ends(echo);
        let config = tight().net_write_timeout(Duration::from_millis(300));
        let server = Server::start(kind, config, protocol);
        let mut others: Vec<_> = (0..100).map(|_| server.peer()).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    others.iter_mut().for_each(|other| other.echo(b"work goes on"));
                }
            });
            let end = SetAtEnd(&done);
            // A slow sender may be late before its connection is paused.
            let stuck = stuck_peers(&server, Counter::ClosedWriteTimeout);
            drop(end);
            drop(stuck);
        });
        let reasons = ends.wait_for(STUCK);
        assert!(
            reasons.iter().all(|r| r == "the peer did not read within net_write_timeout 300ms"),
            "{kind:?}: {reasons:?}"
        );
        assert_eq!(server.stats().connections, 100);
        assert_eq!(server.stats().buffered_bytes, 0);
    }
}

#[test]
fn a_peer_that_reads_a_trickle_is_cut() {
    for kind in BOTH {
        let config = tight().net_write_timeout(Duration::from_millis(300));
        let server = Server::start(kind, config, Bytes::new(echo));
        let mut peer = Peer::try_connect(server.address(), Some(4 * KIB)).expect("connected");
        let bytes = pattern(8 << 20);
        let mut left = &bytes[..];
        eventually(LONG, || {
            // The peer sends as much as it can, and reads a byte now and then.
            let sent = peer.stuff(left);
            left = &left[sent..];
            let _ = peer.read(&mut [0]);
            server.count(Counter::ClosedWriteTimeout) == 1
        });
        server.wait_until_empty();
        assert_eq!(server.stats().buffered_bytes, 0, "{kind:?}");
    }
}

#[test]
fn a_slow_peer_that_keeps_reading_is_not_cut() {
    for kind in BOTH {
        let config = tight().net_write_timeout(Duration::from_secs(1));
        let server = Server::start(kind, config, Bytes::new(echo));
        let mut peer = Peer::try_connect(server.address(), Some(16 * KIB)).expect("connected");
        let all = pattern(24 << 20);
        let mut sender = peer.other();
        thread::scope(|scope| {
            scope.spawn(|| {
                sender.send(&all);
                sender.finish();
            });
            let mut got = Vec::new();
            // A pause after each read. Four reads a second would be enough to stay.
            let mut chunk = vec![0; 16 * KIB];
            eventually(LONG, || {
                let count = peer.read(&mut chunk).expect("it is not cut");
                got.extend_from_slice(&chunk[..count]);
                count == 0
            });
            assert!(got == all, "{kind:?}");
        });
        assert_eq!(server.count(Counter::ClosedWriteTimeout), 0);
    }
}
