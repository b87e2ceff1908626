//! Bugs that were found and fixed, each named by its symptom.

use std::fs;
use std::io::{Read, Write};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use epoll_group::net::{
    Address, Close, CloseReason, ConnectError, Connection, HalfClose, Hold, Input, ListenError,
    ListenOptions, Protocol, Turn,
};
use epoll_group::stats::Counter;
use epoll_group::{DrainReport, Interest};
use lab::child::{descriptors, in_child};
use lab::peer::frame;
use lab::protocol::{Bytes, Frames, echo};
use lab::workers::{Gate, workers};
use lab::{BOTH, Kind, LONG, Peer, Server, assert_clean, config, eventually, pattern};
use socket2::{Domain, SockRef, Socket, Type};

const REQUEST: &[u8] = b"question";

/// Collects in `received`, answers in `released`, notes the calls; `!` makes it wait at the gate.
#[derive(Clone, Default)]
struct Script {
    closes: bool,
    stays: bool,
    holds: bool,
    gate: Gate,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn call(&self, what: impl Into<String>) {
        self.calls.lock().expect("no panic").push(what.into());
    }

    fn count(&self, what: &str) -> usize {
        let calls = self.calls.lock().expect("no panic");
        calls.iter().filter(|call| call.starts_with(what)).count()
    }

    /// Returns the calls since the last time, up to a call that begins with `last`.
    #[track_caller]
    fn calls_to(&self, last: &str) -> Vec<String> {
        let calls = || self.calls.lock().expect("no panic");
        eventually(LONG, || calls().last().is_some_and(|call| call.starts_with(last)));
        mem::take(&mut *calls())
    }
}

impl Protocol for Script {
    type State = Option<Hold>;

    fn opened(&self, conn: &Connection) -> Result<Self::State, Close> {
        conn.set_extension(Mutex::new(Vec::<u8>::new())).expect("the first");
        Ok(None)
    }

    fn received(
        &self,
        conn: &Connection,
        state: &mut Self::State,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        self.call("received");
        if input.bytes().starts_with(b"!") {
            self.gate.pass();
        }
        let collected = conn.extension::<Mutex<Vec<u8>>>().expect("set");
        collected.lock().expect("no panic").extend(input.take_all());
        *state = self.holds.then(|| conn.hold());
        if self.closes { Err("done".into()) } else { Ok(()) }
    }

    fn released(&self, conn: &Connection, _: Turn) {
        self.call("released");
        let collected = conn.extension::<Mutex<Vec<u8>>>().expect("set");
        conn.send(mem::take(&mut *collected.lock().expect("no panic")));
    }

    fn ended(&self, _: &Connection, _: &mut Self::State) -> Result<HalfClose, Close> {
        self.call("ended");
        Ok(if self.stays { HalfClose::KeepOpen } else { HalfClose::End })
    }

    fn draining(&self, conn: &Connection, _: &mut Self::State) {
        self.call("draining");
        conn.send(b"bye");
    }

    fn closed(&self, _: &Connection, _: Self::State, reason: &CloseReason) {
        self.call(format!("closed: {reason}"));
    }
}

/// Drains on another thread and returns when the drain has begun.
fn begin_drain(server: Server) -> JoinHandle<DrainReport> {
    let handle = server.runtime.handle();
    let drain = thread::spawn(move || { server }.runtime.drain(LONG));
    eventually(LONG, || handle.spawn(|| ()).is_err());
    // The drain refuses tasks first and then tells the connections, which takes a moment.
    thread::park_timeout(Duration::from_millis(20));
    drain
}

/// Returns the bytes that a peer still receives when the gate opens during a drain. The drain
/// serves only this peer's connection.
#[track_caller]
fn drained(server: Server, gate: &Gate, mut peer: Peer) -> Vec<u8> {
    let drain = begin_drain(server);
    gate.open();
    let received = peer.receive_to_finish();
    drop(peer);
    let report = drain.join().expect("no panic");
    assert_clean(&report);
    assert_eq!(report.finished, 1);
    received
}

/// A server whose only worker is kept from working until the gate opens.
fn kept_busy(kind: Kind, script: &Script) -> Server {
    let server = Server::start(kind, config().epoll_threads_per_group(1), script.clone());
    let gate = script.gate.clone();
    server.runtime.handle().spawn(move || gate.pass()).expect("room");
    script.gate.wait_for(1);
    server
}

/// All workers are stuck in handlers when the drain ends.
fn end_with_stuck_handlers(workers: usize) {
    let script = Script::default();
    let config = config().epoll_threads_per_group(workers);
    let server = Server::start(Kind::Tcp, config, script.clone());
    let mut idle: Vec<_> = (0..3).map(|_| server.peer()).collect();
    idle.iter_mut().for_each(|peer| peer.echo(REQUEST));
    let mut stuck: Vec<_> = (0..workers).map(|_| server.peer()).collect();
    stuck.iter_mut().for_each(|peer| peer.send(b"!"));
    script.gate.wait_for(workers);
    let report = server.runtime.drain(Duration::from_millis(50));
    // The idle connections are cut too, unless the watchdog adds a thread that ends them.
    let ended = report.finished + report.cut;
    assert_eq!((report.stuck.len(), ended), (workers, 3 + workers as u64), "{report}");
    script.gate.open();
    eventually(LONG, || script.count("closed") == 3 + workers);
    idle.iter_mut().for_each(|peer| assert_eq!(peer.receive_to_finish(), b""));
}

#[test]
fn a_worker_that_was_stuck_past_the_drain_closes_everything() {
    in_child(|| {
        for workers in [1, 2] {
            let before = descriptors();
            end_with_stuck_handlers(workers);
            eventually(LONG, || descriptors() <= before);
        }
    });
}

#[test]
fn a_handler_that_waits_for_its_peer_to_read_learns_of_the_write_timeout() {
    for kind in BOTH {
        let (tell, told) = mpsc::channel();
        let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
            input.take_all();
            conn.send(vec![7; 20 << 20]);
            eventually(LONG, || conn.is_closed());
            let _ = tell.send(());
            Ok(())
        });
        let limit = Duration::from_millis(200);
        let server = Server::start(kind, config().net_write_timeout(limit), protocol);
        let mut peer = server.peer();
        peer.send(REQUEST);
        assert_eq!(told.recv_timeout(LONG * 2), Ok(()), "{kind:?}");
        assert!(ends.wait_for(1)[0].contains("net_write_timeout"), "{:?}", ends.all());
    }
}

#[test]
fn a_reset_after_the_half_close_is_noticed() {
    for kind in BOTH {
        for holds in [false, true] {
            let script = Script { stays: !holds, holds, ..Script::default() };
            let server = Server::start(kind, config(), script.clone());
            for _ in 0..10 {
                let mut peer = server.peer();
                peer.send(REQUEST);
                peer.finish();
                // The answer comes before or after the end, depending on what came in one turn.
                let answered = || holds || script.count("released") > 0;
                eventually(LONG, || script.count("ended") == 1 && answered());
                // The answer is unread, which makes it a reset for a Unix socket too.
                peer.reset();
                let calls = script.calls_to("closed");
                let closed = calls.last().expect("waited for");
                assert!(closed.starts_with("closed: the peer is gone"), "{kind:?}: {calls:?}");
            }
        }
    }
}

#[test]
fn bytes_behind_an_urgent_byte_need_no_other_edge() {
    let script = Script::default();
    let server = Server::start(Kind::Tcp, config(), script.clone());
    let Address::Tcp(address) = server.address() else { unreachable!("as asked") };
    for round in 0..20 {
        let mut peer = TcpStream::connect(address).expect("connected");
        peer.set_read_timeout(Some(LONG / 3)).expect("set");
        peer.write_all(b"!").expect("sent");
        if round == 0 {
            script.gate.wait_for(1);
        }
        peer.write_all(b"abc").expect("sent");
        SockRef::from(&peer).send_out_of_band(b"x").expect("sent");
        peer.write_all(b"def").expect("sent");
        script.gate.open();
        let mut answer = [0; 7];
        peer.read_exact(&mut answer).expect("all of it");
        assert_eq!(&answer, b"!abcdef");
    }
}

#[test]
fn an_answer_in_released_to_the_last_request_before_the_end_arrives() {
    for kind in BOTH {
        for (closes, finishes) in [(false, true), (true, true), (true, false)].repeat(5) {
            let script = Script { closes, ..Script::default() };
            let server = kept_busy(kind, &script);
            let mut peer = server.peer();
            peer.send(REQUEST);
            if finishes {
                peer.finish();
            }
            script.gate.open();
            assert_eq!(peer.receive_to_finish(), REQUEST, "{kind:?}, closes: {closes}");
            drop(peer);
            let calls = script.calls_to("closed");
            assert_eq!(calls[..2], ["received", "released"]);
            assert_eq!(calls.len(), if closes { 3 } else { 4 }, "{calls:?}");
        }
    }
}

#[test]
fn an_answer_in_released_arrives_though_a_drain_has_begun() {
    for kind in BOTH {
        let script = Script::default();
        let server = kept_busy(kind, &script);
        let mut peer = server.peer();
        peer.send(REQUEST);
        assert_eq!(drained(server, &script.gate, peer), b"questionbye", "{kind:?}");
        let calls = ["received", "released", "draining", "closed: the runtime drained"];
        assert_eq!(script.calls_to("closed"), calls);
    }
}

#[test]
fn a_last_word_at_a_drain_arrives() {
    for kind in BOTH {
        let script = Script { stays: true, ..Script::default() };
        let server = Server::start(kind, config(), script.clone());
        let mut peers: Vec<_> = (0..30).map(|_| server.peer()).collect();
        // A third each: never spoke, is idle, finished sending.
        peers[10..].iter_mut().for_each(|peer| peer.echo(REQUEST));
        peers[20..].iter().for_each(Peer::finish);
        server.wait_for(Counter::ConnectionsAccepted, 30);
        eventually(LONG, || script.count("ended") == 10);
        let report = server.runtime.drain(LONG);
        assert_clean(&report);
        assert_eq!(report.finished, 30);
        for (number, peer) in peers.iter_mut().enumerate() {
            assert_eq!(peer.receive_to_finish(), b"bye", "{kind:?}, {number}");
        }
    }
}

const BIG_REQUEST: usize = 1024;

/// Lets a peer ask much and read nothing until the drain has begun. Returns the bytes that it then
/// receives. The drain begins in the first handler, or when the connection is paused.
fn drain_of_a_paused_connection(kind: Kind, in_handler: bool, asked: &[u8]) -> Vec<u8> {
    let gate = Gate::default();
    let first = gate.clone();
    let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        first.pass();
        while input.len() >= BIG_REQUEST {
            conn.send(input.take(BIG_REQUEST).repeat(16));
        }
        Ok(())
    });
    let config = config().tcp_send_buf(8 << 10).worker_read_buf_bytes(4 << 10);
    let config = config.write_high_watermark_bytes(56 << 10).write_low_watermark_bytes(32 << 10);
    let server = Server::start(kind, config, protocol);
    let mut peer = Peer::try_connect(server.address(), Some(4096)).expect("connected");
    peer.send(asked);
    gate.wait_for(1);
    if !in_handler {
        gate.open();
        server.wait_for(Counter::ReadsPaused, 1);
    }
    drained(server, &gate, peer)
}

#[test]
fn a_drain_serves_the_requests_of_a_connection_that_is_paused() {
    let asked = pattern(48 * BIG_REQUEST);
    let answer: Vec<u8> = asked.chunks(BIG_REQUEST).flat_map(|one| one.repeat(16)).collect();
    for kind in BOTH {
        for in_handler in [false, true].repeat(5) {
            let received = drain_of_a_paused_connection(kind, in_handler, &asked);
            let count = received.len() / (16 * BIG_REQUEST);
            assert!(received == answer, "{kind:?}, in handler: {in_handler}: {count} of 48");
        }
    }
}

#[test]
fn a_drain_serves_what_arrived_while_a_handler_ran() {
    for kind in BOTH {
        let script = Script::default();
        let server = Server::start(kind, config(), script.clone());
        let mut peer = server.peer();
        peer.send(b"!first,");
        script.gate.wait_for(1);
        peer.send(b"second,");
        assert_eq!(drained(server, &script.gate, peer), b"!first,second,bye", "{kind:?}");
    }
}

#[test]
fn every_door_refuses_what_it_must() {
    let script = Script::default();
    let server = Server::start(Kind::Tcp, config().max_connections(1), script.clone());
    let address = server.address().clone();
    let mut peer = server.peer();
    peer.send(b"!");
    script.gate.wait_for(1);
    let handle = server.runtime.handle();
    let refused = handle.connect(&address, Bytes::new(echo));
    assert!(matches!(refused, Err(ConnectError::Limit(1))), "{refused:?}");
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    bound.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("bound");
    let refused = handle.listen_on([bound], ListenOptions::new(), Bytes::new(echo));
    assert!(matches!(refused, Err(ListenError::Watch(_))), "it does not listen: {refused:?}");
    let drain = begin_drain(server);
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    assert!(handle.register(ours, Interest::READABLE, |_, _| ()).is_err());
    script.gate.open();
    assert_clean(&drain.join().expect("no panic"));
}

#[test]
fn the_end_of_a_listener_leaves_the_file_of_its_successor() {
    let first = Server::start(Kind::Unix, config(), Bytes::new(echo));
    let Address::Unix(path) = first.address().clone() else { unreachable!("as asked") };
    fs::remove_file(&path).expect("removed");
    let second = workers(2);
    let listener = second.listen(path.as_path(), Bytes::new(echo)).expect("a listener");
    drop(first.listener);
    assert_clean(&first.runtime.drain(LONG));
    Peer::connect(listener.local_addr()).echo(REQUEST);
    drop(listener);
    assert_clean(&second.drain(LONG));
    eventually(LONG, || !path.exists());
}

#[test]
fn large_frames_leave_no_trace_in_the_sum_of_buffers() {
    for kind in BOTH {
        let config = config().big_buf_release_after(Duration::from_millis(20));
        let server = Server::start(kind, config, Frames::default());
        let large = frame(1, &pattern(300_000));
        let mut one = server.peer();
        for _ in 0..5 {
            for peer in [&mut one, &mut server.peer()] {
                peer.echo(&large);
                eventually(LONG, || server.stats().buffered_bytes == 0);
            }
        }
    }
}

#[test]
fn the_buffer_of_a_large_frame_whose_end_was_late_is_given_back() {
    let config = config().big_buf_release_after(Duration::from_millis(20));
    let server = Server::start(Kind::Tcp, config, Frames::default());
    let large = frame(1, &pattern(300_000));
    let mut peer = server.peer();
    peer.send(&large[..300_000]);
    server.wait_for(Counter::BytesReceived, 300_000);
    // Due after the time at which an unneeded buffer would be given back.
    let (fired, waits) = mpsc::channel();
    let tell = move || fired.send(()).expect("the test waits");
    let _timer = server.runtime.handle().after(Duration::from_millis(40), tell);
    waits.recv_timeout(LONG).expect("it fires");
    peer.send(&large[300_000..]);
    assert!(peer.receive(large.len()) == large);
    eventually(LONG / 10, || server.stats().buffered_bytes == 0);
}
