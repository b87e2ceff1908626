//! Layers between socket and protocol, by a toy: records with a length, whose key changes with each of
//! them, after a handshake of two messages.

use std::collections::HashMap;
use std::io::Read;
use std::mem;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use epoll_group::net::{
    Address, Close, CloseReason, ConnectOptions, Connection, Decoded, HalfClose, Input, Layer,
    LayerState, ListenOptions, Listener, MakeLayer, Protocol, Sent,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};
use lab::peer::End;
use lab::protocol::{Bytes, echo};
use lab::{LONG, Peer, assert_clean, config, eventually, eventually_or, pattern};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One direction of the toy: each record has a length and a body under a key of its own. An empty record
/// is the farewell.
#[derive(Clone, Debug)]
struct Cipher(u8);

const MOST: usize = 1000;
const HELLO: &[u8] = b"hello";
const WELCOME: &[u8] = b"welcome";

impl Cipher {
    fn seal(&mut self, bytes: &[u8], into: &mut Vec<u8>) {
        for part in bytes.chunks(MOST) {
            self.record(part, into);
        }
    }

    fn record(&mut self, part: &[u8], into: &mut Vec<u8>) {
        let size = u32::try_from(part.len()).expect("short");
        into.extend_from_slice(&size.to_le_bytes());
        into.extend(part.iter().map(|byte| byte ^ self.0));
        self.0 = self.0.wrapping_add(1);
    }

    /// The first record, and its size with the length.
    fn open(&mut self, bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Close> {
        let Some((size, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let size = u32::from_le_bytes(*size) as usize;
        let Some(body) = rest.get(..size) else { return Ok(None) };
        let body = body.iter().map(|byte| byte ^ self.0).collect();
        self.0 = self.0.wrapping_add(1);
        Ok(Some((body, size + 4)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Server,
    Client,
}

#[derive(Debug)]
struct Toy {
    side: Side,
    ready: bool,
    ended: bool,
    seals: Cipher,
    opens: Cipher,
}

impl Toy {
    fn new(side: Side, key: u8) -> Self {
        Self { side, ready: false, ended: false, seals: Cipher(key), opens: Cipher(key) }
    }

    /// Maker of the layers of a server.
    fn server(key: u8) -> impl MakeLayer {
        move |_: &Connection| Ok(Box::new(Self::new(Side::Server, key)) as Box<dyn Layer>)
    }

    fn client(key: u8) -> impl MakeLayer {
        move |_: &Connection| Ok(Box::new(Self::new(Side::Client, key)) as Box<dyn Layer>)
    }
}

impl Layer for Toy {
    fn start(&mut self, _: &Connection, answer: &mut Vec<u8>) -> Result<LayerState, Close> {
        if self.side == Side::Client {
            self.seals.seal(HELLO, answer);
        }
        Ok(LayerState::Handshaking)
    }

    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        answer: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        while decoded.room() > 0
            && !self.ended
            && let Some((body, size)) = self.opens.open(input.bytes())?
        {
            input.consume(size);
            match (self.ready, self.side, &*body) {
                (true, _, b"") => self.ended = true,
                (true, _, body) => decoded.push(body),
                (false, Side::Server, HELLO) => {
                    self.ready = true;
                    self.seals.seal(WELCOME, answer);
                }
                (false, Side::Client, WELCOME) => self.ready = true,
                (false, ..) => {
                    answer.extend_from_slice(b"alert");
                    return Err("no handshake".into());
                }
            }
        }
        Ok(match (self.ready, self.ended) {
            (false, _) => LayerState::Handshaking,
            (true, false) => LayerState::Ready,
            (true, true) => LayerState::Ended,
        })
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        assert!(self.ready, "the stack holds bytes back");
        self.seals.seal(bytes, encoded);
        Ok(())
    }

    fn ended(&mut self) -> Result<(), Close> {
        if self.ended { Ok(()) } else { Err("no farewell".into()) }
    }

    fn finish(&mut self, encoded: &mut Vec<u8>) {
        self.seals.record(b"", encoded);
    }
}

/// Peer of toy layers, which the test plays by hand.
struct Foreign {
    peer: Peer,
    seals: Vec<Cipher>,
    opens: Vec<Cipher>,
    /// Bytes that wait to be opened, by layer, and the result.
    levels: Vec<Vec<u8>>,
    farewells: usize,
}

impl Foreign {
    fn new(peer: Peer, keys: &[u8]) -> Self {
        let ciphers: Vec<_> = keys.iter().copied().map(Cipher).collect();
        let levels = vec![Vec::new(); keys.len() + 1];
        Self { peer, seals: ciphers.clone(), opens: ciphers, levels, farewells: 0 }
    }

    /// Seals bytes in this number of layers, for the socket.
    fn seal(&mut self, layers: usize, bytes: &[u8]) -> Vec<u8> {
        self.seals[..layers].iter_mut().rev().fold(bytes.to_vec(), |bytes, cipher| {
            let mut sealed = Vec::new();
            cipher.seal(&bytes, &mut sealed);
            sealed
        })
    }

    /// All hellos. They need not wait for the answers.
    fn hellos(&mut self) -> Vec<u8> {
        (1..=self.seals.len()).flat_map(|layers| self.seal(layers, HELLO)).collect()
    }

    fn welcomed(&mut self) {
        for layer in 0..self.opens.len() {
            while self.levels[layer + 1].len() < WELCOME.len() {
                self.read();
            }
            let welcome: Vec<u8> = self.levels[layer + 1].drain(..WELCOME.len()).collect();
            assert_eq!(welcome, WELCOME);
            self.open_all();
        }
    }

    fn handshake(&mut self) {
        let hellos = self.hellos();
        self.peer.send(&hellos);
        self.welcomed();
    }

    fn send(&mut self, bytes: &[u8]) {
        let sealed = self.seal(self.seals.len(), bytes);
        self.peer.send(&sealed);
    }

    fn read(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.peer.read(&mut bytes).expect("received");
        assert!(count > 0, "the stream has ended");
        self.levels[0].extend_from_slice(&bytes[..count]);
        self.open_all();
    }

    /// Opens what may be opened: an upper layer's records come behind the welcome below.
    fn open_all(&mut self) {
        for (index, cipher) in self.opens.iter_mut().enumerate() {
            if index > 0 && self.levels[index].starts_with(WELCOME) {
                return;
            }
            while let Some((body, size)) = cipher.open(&self.levels[index]).expect("a record") {
                self.levels[index].drain(..size);
                self.farewells += usize::from(body.is_empty());
                self.levels[index + 1].extend(body);
                if self.levels[index + 1] == WELCOME {
                    return;
                }
            }
        }
    }

    fn receive(&mut self, count: usize) -> Vec<u8> {
        let top = self.levels.len() - 1;
        while self.levels[top].len() < count {
            self.read();
        }
        self.levels[top].drain(..count).collect()
    }

    /// The decoded rest, up to the end of the stream.
    fn receive_to_finish(&mut self) -> Vec<u8> {
        let rest = self.peer.receive_to_finish();
        self.levels[0].extend(rest);
        self.open_all();
        assert!(self.levels[..self.opens.len()].iter().all(Vec::is_empty), "an incomplete record");
        mem::take(self.levels.last_mut().expect("at least one"))
    }
}

/// Call of a [`Probe`].
#[derive(Debug)]
enum Call {
    Opened(Connection),
    Received(Vec<u8>),
    Drained,
    Notified,
    Ended,
    Closed(String),
    Failed(String),
}

/// Reports its calls.
struct Probe {
    calls: mpsc::Sender<Call>,
    pauses: Pauses,
}

/// Callback that pauses reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pauses {
    Never,
    InOpened,
    InReceived,
}

type Calls = mpsc::Receiver<Call>;

impl Probe {
    fn new() -> (Self, Calls) {
        let (calls, called) = mpsc::channel();
        (Self { calls, pauses: Pauses::Never }, called)
    }

    fn tell(&self, call: Call) {
        let _ = self.calls.send(call);
    }
}

impl Protocol for Probe {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        if self.pauses == Pauses::InOpened {
            conn.pause_reads();
        }
        self.tell(Call::Opened(conn.clone()));
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        if self.pauses == Pauses::InReceived {
            conn.pause_reads();
        }
        self.tell(Call::Received(input.take_all().to_vec()));
        Ok(())
    }

    fn notified(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        self.tell(Call::Notified);
        Ok(())
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        self.tell(Call::Ended);
        Ok(HalfClose::End)
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        self.tell(Call::Closed(reason.to_string()));
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        self.tell(Call::Failed(reason.to_string()));
    }
}

#[track_caller]
fn next(calls: &Calls) -> Call {
    calls.recv_timeout(LONG).expect("a call")
}

#[track_caller]
fn opened(calls: &Calls) -> Connection {
    match next(calls) {
        Call::Opened(conn) => conn,
        other => panic!("{other:?} before opened"),
    }
}

#[track_caller]
fn closed(calls: &Calls) -> String {
    match next(calls) {
        Call::Closed(reason) => reason,
        other => panic!("{other:?} in place of closed"),
    }
}

/// The next `count` received bytes.
#[track_caller]
fn received(calls: &Calls, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        match next(calls) {
            Call::Received(bytes) => all.extend(bytes),
            other => panic!("{other:?} after {} of {count} bytes", all.len()),
        }
    }
    all
}

fn start(config: Config) -> Runtime {
    lab::make_room();
    Runtime::builder().config(config).start().expect("a runtime")
}

/// Serves connections whose layers have these keys, the one next to the socket first.
fn listen(runtime: &Runtime, keys: &[u8], protocol: impl Protocol) -> Listener {
    let layered = |options: ListenOptions, key: &u8| options.layer(Toy::server(*key));
    let options = keys.iter().fold(ListenOptions::new(), layered);
    runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener")
}

fn peer(listener: &Listener) -> Peer {
    Peer::connect(listener.local_addr())
}

fn wait_for(runtime: &Runtime, counter: Counter, count: u64) {
    eventually_or(LONG, || runtime.stats().get(counter) >= count, || runtime.stats());
}

/// A connection that has opened, and its peer.
fn established(runtime: &Runtime, probe: Probe, calls: &Calls) -> (Connection, Foreign, Listener) {
    let listener = listen(runtime, &[7], probe);
    let mut peer = Foreign::new(peer(&listener), &[7]);
    peer.handshake();
    (opened(calls), peer, listener)
}

#[test]
fn bytes_pass_through_one_layer_and_two_in_every_chunking() {
    for keys in [&[7][..], &[7, 90]] {
        let runtime = start(config());
        let listener = listen(&runtime, keys, Bytes::new(echo));
        let sent = b"some bytes in records";
        let mut total = 0;
        for chunk in 1..80 {
            let mut peer = Foreign::new(peer(&listener), keys);
            let mut stream = peer.hellos();
            for part in sent.chunks(9) {
                stream.extend(peer.seal(keys.len(), part));
            }
            for part in stream.chunks(chunk) {
                peer.peer.send(part);
                total += part.len() as u64;
                wait_for(&runtime, Counter::BytesReceived, total);
            }
            peer.welcomed();
            assert_eq!(peer.receive(sent.len()), sent, "{keys:?} in chunks of {chunk}");
        }
        let completed = runtime.stats().get(Counter::HandshakesCompleted);
        assert_eq!((completed, runtime.stats().handshakes), (79, 0), "all were answered");
    }
}

#[test]
fn both_ends_may_have_layers_and_bytes_sent_before_the_handshake_wait_for_it() {
    let runtime = start(config());
    let listener = listen(&runtime, &[7, 90], Bytes::new(echo));
    let (probe, calls) = Probe::new();
    let options = ConnectOptions::new().layer(Toy::client(7)).layer(Toy::client(90));
    let conn = runtime.connect_with(listener.local_addr(), options, probe).expect("begun");
    let large = pattern(3 << 20);
    conn.send(b"early");
    opened(&calls);
    conn.send(&large);
    // The bytes of both sends may arrive in one call.
    let sent = [b"early", &large[..]].concat();
    assert!(received(&calls, sent.len()) == sent);
    eventually(LONG, || conn.pending_bytes() == 0);
    conn.close("done");
    assert_eq!(closed(&calls), "done");
    assert_clean(&runtime.drain(LONG));
}

#[test]
fn who_stops_in_a_handshake_is_closed_after_handshake_timeout() {
    let short = Duration::from_millis(50);
    let runtime = start(config().handshake_timeout(short));
    let (probe, calls) = Probe::new();
    let listener = listen(&runtime, &[7], probe);
    let mut foreign = Foreign::new(peer(&listener), &[7]);
    let hello = foreign.hellos();
    foreign.peer.send(&hello[..6]);
    assert_eq!(foreign.peer.receive_all().0, b"");
    wait_for(&runtime, Counter::ClosedHandshakeTimeout, 1);
    eventually(LONG, || runtime.stats().handshakes == 0);
    assert!(calls.try_recv().is_err(), "the protocol never saw it");

    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let to: Address = silent.local_addr().expect("an address").into();
    let (probe, calls) = Probe::new();
    let options = ConnectOptions::new().layer(Toy::client(7)).handshake_timeout(short);
    runtime.connect_with(&to, options, probe).expect("begun");
    match next(&calls) {
        Call::Failed(reason) => {
            assert_eq!(reason, "the handshake was not complete within handshake_timeout 50ms");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_handshake_beyond_max_handshakes_is_refused_until_one_is_over() {
    let runtime = start(config().max_handshakes(2));
    let listener = listen(&runtime, &[7], Bytes::new(echo));
    let mut first = Foreign::new(peer(&listener), &[7]);
    let _second = peer(&listener);
    eventually(LONG, || runtime.stats().handshakes == 2);
    let mut third = peer(&listener);
    assert_eq!(third.receive_one(), None);
    wait_for(&runtime, Counter::ConnectionsRefusedHandshakes, 1);
    first.handshake();
    first.send(b"one");
    assert_eq!(first.receive(3), b"one");
    Foreign::new(peer(&listener), &[7]).handshake();
}

#[test]
fn a_failed_handshake_sends_its_alert_and_closes_with_the_layers_reason() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let listener = listen(&runtime, &[7], probe);
    let mut foreign = Foreign::new(peer(&listener), &[7]);
    let wrong = foreign.seal(1, b"wrong");
    foreign.peer.send(&wrong);
    // The farewell follows.
    assert_eq!(foreign.peer.receive_to_finish(), b"alert\0\0\0\0");
    wait_for(&runtime, Counter::ClosedByLayer, 1);
    assert!(calls.try_recv().is_err(), "the protocol never saw it");
}

#[test]
fn the_farewell_of_a_layer_follows_all_that_was_sent() {
    let runtime = start(config());
    for shuts in [false, true] {
        let (probe, calls) = Probe::new();
        let (conn, mut peer, _listener) = established(&runtime, probe, &calls);
        let large = pattern(3 << 20);
        conn.send(&large);
        if shuts {
            conn.shutdown_write();
        } else {
            conn.close("bye");
        }
        assert_eq!(conn.send(b"late"), Sent::Closed);
        assert!(peer.receive_to_finish() == large);
        assert_eq!(peer.farewells, 1);
        if shuts {
            peer.send(b"still read");
            assert_eq!(received(&calls, 10), b"still read");
            let mut farewell = Vec::new();
            peer.seals[0].record(b"", &mut farewell);
            peer.peer.send(&farewell);
            assert!(matches!(next(&calls), Call::Ended));
            assert_eq!(closed(&calls), "the peer finished");
        } else {
            drop(peer);
            assert_eq!(closed(&calls), "bye");
        }
    }
}

/// Aborts in `received` or, if no input comes, in `ended`.
struct Aborts;

impl Protocol for Aborts {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        conn.abort("cut off");
        Err("an error".into())
    }

    fn ended(&self, conn: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        conn.abort("cut off");
        Ok(HalfClose::End)
    }
}

#[test]
fn an_aborted_connection_sends_no_farewell() {
    let runtime = start(config());
    let listener = listen(&runtime, &[7], Aborts);
    for sends in [true, false] {
        let mut peer = Foreign::new(peer(&listener), &[7]);
        peer.handshake();
        if sends {
            peer.send(b"a request");
        } else {
            let mut farewell = Vec::new();
            peer.seals[0].record(b"", &mut farewell);
            peer.peer.send(&farewell);
        }
        assert_eq!(peer.peer.receive_all(), (Vec::new(), End::Reset));
    }
}

#[test]
fn an_end_without_farewell_is_told_from_one_with_it() {
    let runtime = start(config());
    for with in [false, true] {
        let (probe, calls) = Probe::new();
        let (conn, mut peer, _listener) = established(&runtime, probe, &calls);
        // A stream that breaks off is an error. It ends the connection, although a request is held.
        let _held = (!with).then(|| conn.hold());
        let mut last = peer.seal(1, b"last");
        if with {
            peer.seals[0].record(b"", &mut last);
            last.extend_from_slice(b"behind the end");
        }
        peer.peer.send(&last);
        peer.peer.finish();
        assert_eq!(received(&calls, 4), b"last");
        if with {
            assert!(matches!(next(&calls), Call::Ended));
            assert_eq!(closed(&calls), "the peer finished");
        } else {
            assert_eq!(closed(&calls), "no farewell");
        }
        assert_eq!(peer.receive_to_finish(), b"");
        assert_eq!(peer.farewells, 1);
    }
}

#[test]
fn a_peer_that_does_not_read_stops_the_decoding_and_every_byte_arrives_in_order() {
    let config = config().write_high_watermark_bytes(64 << 10).write_low_watermark_bytes(4 << 10);
    let runtime = start(config);
    let listener = listen(&runtime, &[7, 90], Bytes::new(echo));
    let mut peer = Foreign::new(peer(&listener), &[7, 90]);
    peer.handshake();
    let all = pattern(16 << 20);
    let sealed = peer.seal(2, &all);
    let mut other = peer.peer.other();
    let sends = thread::spawn(move || other.send(&sealed));
    wait_for(&runtime, Counter::ReadsPaused, 1);
    assert!(runtime.stats().buffered_bytes < 4 << 20, "{}", runtime.stats());
    assert!(peer.receive(all.len()) == all);
    sends.join().expect("sent");
    assert!(runtime.stats().get(Counter::TurnsRequeued) > 0);
    eventually(LONG, || runtime.stats().buffered_bytes <= 128 << 10);
}

#[test]
fn a_connection_that_ends_in_its_handshake_reaches_no_protocol() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let listener = listen(&runtime, &[7], probe);
    for resets in [false, true] {
        let mut peer = peer(&listener);
        peer.send(b"h");
        wait_for(&runtime, Counter::BytesReceived, 1 + u64::from(resets));
        if resets {
            peer.reset();
        }
    }
    wait_for(&runtime, Counter::ConnectionsClosed, 2);
    eventually(LONG, || runtime.stats().buffered_bytes == 0 && runtime.stats().handshakes == 0);

    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let to: Address = silent.local_addr().expect("an address").into();
    let options = ConnectOptions::new().layer(Toy::client(7));
    let (other, failed) = Probe::new();
    let conn = runtime.connect_with(&to, options, other).expect("begun");
    // The first bytes of the handshake may wait too.
    let sent = conn.send(b"never leaves");
    assert!(matches!(sent, Sent::Queued(12..)), "{sent:?}");
    let mut foreign = Foreign::new(Peer::accept(&silent), &[7]);
    assert_eq!(foreign.receive(5), HELLO);
    conn.close("changed my mind");
    assert_eq!(foreign.receive_to_finish(), b"");
    drop(foreign);
    match next(&failed) {
        Call::Failed(reason) => assert_eq!(reason, "changed my mind"),
        other => panic!("{other:?}"),
    }
    eventually(LONG, || conn.pending_bytes() == 0 && runtime.stats().buffered_bytes == 0);
    assert!(calls.try_recv().is_err(), "the protocol never saw the others");
}

#[test]
fn records_of_many_senders_leave_in_the_order_of_their_keys() {
    const SENDERS: u32 = 8;
    const EACH: u32 = 300;
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let (conn, mut peer, _listener) = established(&runtime, probe, &calls);
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let conn = conn.clone();
            thread::spawn(move || {
                for number in 0..EACH {
                    let message = [sender.to_le_bytes(), number.to_le_bytes()].concat();
                    assert_ne!(conn.send(message), Sent::Closed);
                }
            })
        })
        .collect();
    let mut expected = HashMap::new();
    for _ in 0..SENDERS * EACH {
        let message = peer.receive(8);
        let [sender, number] = [0, 4]
            .map(|at| u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes")));
        let next = expected.entry(sender).or_insert(0);
        assert_eq!(number, *next, "of sender {sender}");
        *next += 1;
    }
    senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    assert_eq!(expected.len() as u32, SENDERS);
}

/// Decodes each byte to a mebibyte of it.
struct Bomb {
    left: usize,
    byte: u8,
    produced: Arc<AtomicUsize>,
}

const MIB: usize = 1 << 20;

impl Layer for Bomb {
    fn start(&mut self, _: &Connection, _: &mut Vec<u8>) -> Result<LayerState, Close> {
        Ok(LayerState::Ready)
    }

    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        while decoded.room() > 0 {
            if self.left == 0 {
                let Some(byte) = input.take(1).first() else { break };
                (self.left, self.byte) = (MIB, *byte);
            }
            let part = self.left.min(decoded.room());
            self.left -= part;
            self.produced.fetch_add(part, Ordering::Relaxed);
            decoded.push(&vec![self.byte; part]);
        }
        Ok(LayerState::Ready)
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        encoded.extend_from_slice(bytes);
        Ok(())
    }
}

#[test]
fn a_paused_connection_decodes_no_more_and_goes_on_without_input() {
    let produced = Arc::new(AtomicUsize::new(0));
    let runtime = start(config());
    let (mut probe, calls) = Probe::new();
    probe.pauses = Pauses::InReceived;
    let counts = Arc::clone(&produced);
    let options = ListenOptions::new().layer(move |_: &Connection| {
        let produced = Arc::clone(&counts);
        Ok(Box::new(Bomb { left: 0, byte: 0, produced }) as Box<dyn Layer>)
    });
    let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
    let mut peer = peer(&listener);
    peer.send(b"ab");
    let conn = opened(&calls);
    let mut all = Vec::new();
    while all.len() < 2 * MIB {
        all.extend(received(&calls, 1));
        eventually(LONG, || runtime.stats().paused_connections == 1);
        assert_eq!(produced.load(Ordering::Relaxed), all.len(), "one step a call");
        conn.resume_reads();
    }
    assert!(all[..MIB].iter().all(|byte| *byte == b'a'), "order");
    assert!(all[MIB..].iter().all(|byte| *byte == b'b'), "order");
}

#[test]
fn a_burst_of_decoded_bytes_ends_its_turn_at_the_budget() {
    let runtime = start(config().read_budget_bytes(128 << 10));
    let options = ListenOptions::new().layer(|_: &Connection| {
        Ok(Box::new(Bomb { left: 0, byte: 0, produced: Arc::default() }) as Box<dyn Layer>)
    });
    let (probe, calls) = Probe::new();
    let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
    let mut peer = peer(&listener);
    peer.send(b"a");
    opened(&calls);
    received(&calls, MIB);
    assert!(runtime.stats().get(Counter::TurnsRequeued) >= 7, "{}", runtime.stats());
}

#[test]
fn a_pause_stops_records_and_resume_brings_them() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let (conn, mut peer, _listener) = established(&runtime, probe, &calls);
    conn.pause_reads();
    // One receive may still begin after the pause.
    peer.send(b"a");
    eventually(LONG, || runtime.stats().paused_connections == 1);
    let before: usize = calls.try_iter().count();
    peer.send(&pattern(5000));
    conn.notify();
    assert!(matches!(next(&calls), Call::Notified), "callbacks go on");
    conn.resume_reads();
    let rest = received(&calls, 5001 - before);
    assert!(rest.ends_with(&pattern(5000)));
}

#[test]
fn bytes_that_wait_for_a_resume_come_before_the_end_behind_them() {
    let runtime = start(config());
    let (mut probe, calls) = Probe::new();
    probe.pauses = Pauses::InOpened;
    let listener = listen(&runtime, &[7], probe);
    let mut foreign = Foreign::new(peer(&listener), &[7]);
    let mut all = foreign.hellos();
    all.extend(foreign.seal(1, b"last"));
    foreign.seals[0].record(b"", &mut all);
    foreign.peer.send(&all);
    let conn = opened(&calls);
    eventually(LONG, || runtime.stats().paused_connections == 1);
    assert!(calls.try_recv().is_err(), "reading is paused");
    conn.resume_reads();
    assert_eq!(received(&calls, 4), b"last");
    assert!(matches!(next(&calls), Call::Ended));
    assert_eq!(closed(&calls), "the peer finished");
}

#[test]
fn a_drain_ends_handshakes_and_answers_what_has_arrived() {
    let runtime = start(config());
    let listener = listen(&runtime, &[7], Bytes::new(echo));
    let mut halfway = Foreign::new(peer(&listener), &[7]);
    let hello = halfway.hellos();
    halfway.peer.send(&hello[..6]);
    let mut ready = Foreign::new(peer(&listener), &[7]);
    ready.handshake();
    wait_for(&runtime, Counter::BytesReceived, 6 + hello.len() as u64);
    let drains = thread::spawn(move || runtime.drain(LONG));
    assert_eq!(halfway.receive_to_finish(), b"");
    assert_eq!(ready.receive_to_finish(), b"");
    assert_eq!((halfway.farewells, ready.farewells), (1, 1));
    drop((halfway, ready));
    assert_clean(&drains.join().expect("drained"));
}

#[test]
fn bytes_that_a_layer_keeps_count_in_max_buffered_bytes() {
    let runtime = start(config().max_buffered_bytes(1 << 20));
    let (probe, calls) = Probe::new();
    let (_conn, mut peer, _listener) = established(&runtime, probe, &calls);
    peer.peer.send(&(8_u32 << 20).to_le_bytes());
    let _ = peer.peer.stuff(&vec![0; 8 << 20]);
    let reason = closed(&calls);
    assert!(reason.ends_with("too little of max_buffered_bytes 1048576"), "{reason}");
    wait_for(&runtime, Counter::ClosedMemoryBudget, 1);
    eventually(LONG, || runtime.stats().buffered_bytes == 0);
}

#[test]
fn a_record_that_is_not_completed_is_late_and_one_that_is_too_long_is_refused() {
    let short = Duration::from_millis(50);
    let runtime = start(config().frame_timeout(short).max_allowed_packet(4096));
    let (probe, calls) = Probe::new();
    let (_conn, mut peer, _listener) = established(&runtime, probe, &calls);
    peer.peer.send(&[9, 0, 0, 0, 1]);
    let late = "the peer did not complete a frame within frame_timeout 50ms";
    assert_eq!(closed(&calls), late);
    let (probe, calls) = Probe::new();
    let (_conn, mut peer, _listener) = established(&runtime, probe, &calls);
    peer.peer.send(&[&5000_u32.to_le_bytes()[..], &[0; 4997]].concat());
    assert_eq!(closed(&calls), "5001 input bytes exceed max_allowed_packet 4096");
}

/// A line in front of the stream that names the client. Then the layer is gone.
struct Name(Option<Address>);

impl Layer for Name {
    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        _: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        let Some(end) = input.bytes().iter().position(|byte| *byte == b'\n') else {
            return Ok(LayerState::Handshaking);
        };
        let line = String::from_utf8_lossy(input.take(end)).into_owned();
        input.consume(1);
        self.0 = Some(Address::Tcp(line.parse().map_err(Close::error)?));
        Ok(LayerState::Done)
    }

    fn send(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Close> {
        unreachable!("bytes pass once it is done")
    }

    fn client_addr(&self) -> Option<Address> {
        self.0.clone()
    }
}

#[test]
fn a_layer_that_is_done_passes_its_rest_and_names_the_client_that_limits_see() {
    let runtime = start(config());
    for keys in [&[][..], &[7]] {
        let (probe, calls) = Probe::new();
        let name = |_: &Connection| Ok(Box::new(Name(None)) as Box<dyn Layer>);
        let options = ListenOptions::new().max_connections_per_address(3).layer(name);
        let options = keys.iter().fold(options, |options, key| options.layer(Toy::server(*key)));
        let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
        let mut alive = Vec::new();
        for number in 0..5 {
            let mut foreign = Foreign::new(peer(&listener), keys);
            let line = format!("10.0.0.{}:99\n", number / 3);
            let mut stream = line.clone().into_bytes();
            stream.extend(foreign.hellos());
            stream.extend(foreign.seal(keys.len(), b"first"));
            foreign.peer.send(&stream);
            let conn = opened(&calls);
            assert_eq!(conn.client_addr().to_string(), line.trim());
            assert_ne!(conn.peer_addr(), conn.client_addr());
            assert_eq!(received(&calls, 5), b"first");
            conn.send(b"answer");
            foreign.welcomed();
            assert_eq!(foreign.receive(6), b"answer");
            foreign.send(b"second");
            assert_eq!(received(&calls, 6), b"second");
            alive.push(foreign);
        }
        let mut fourth = peer(&listener);
        fourth.send(b"10.0.0.0:99\n");
        fourth.receive_all();
        let refused = listener.stats().refused_max_connections_per_address;
        assert_eq!(refused, 1);
        drop((alive, fourth));
        eventually(LONG, || listener.stats().open == 0);
        // Its place is free again.
        let mut again = peer(&listener);
        let hellos = Foreign::new(again.other(), keys).hellos();
        again.send(&[b"10.0.0.0:99\n", &*hellos].concat());
        eventually(LONG, || matches!(next(&calls), Call::Opened(_)));
    }
}

/// Plain bytes, until `S` asks for a layer.
struct Upgrades(Probe);

impl Protocol for Upgrades {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        self.0.opened(conn)
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        if input.bytes().first() == Some(&b'S') {
            input.consume(1);
            conn.send(b"Y");
            conn.start_layer(input, Box::new(Toy::new(Side::Server, 7)))?;
            assert!(input.is_empty(), "the rest belongs to the layer");
            conn.send(b"secret");
        }
        self.0.received(conn, &mut (), input)
    }

    fn notified(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        self.0.notified(conn, &mut (), input)
    }

    fn drained(&self, _: &Connection) {
        self.0.tell(Call::Drained);
    }

    fn closed(&self, conn: &Connection, (): (), reason: &CloseReason) {
        self.0.closed(conn, (), reason);
    }
}

#[test]
fn bytes_that_wait_for_a_handshake_in_mid_stream_are_a_backlog() {
    const MUCH: usize = 256 << 10;
    let config = config().write_high_watermark_bytes(64 << 10).write_low_watermark_bytes(4 << 10);
    let runtime = start(config);
    let (probe, calls) = Probe::new();
    let listener = runtime.listen("127.0.0.1:0", Upgrades(probe)).expect("a listener");
    let mut foreign = Foreign::new(peer(&listener), &[7]);
    foreign.peer.send(b"S");
    let conn = opened(&calls);
    assert!(matches!(next(&calls), Call::Received(_)));
    conn.send(pattern(MUCH));
    assert!(conn.is_backlogged());
    conn.notify_when_drained();
    conn.notify();
    // Otherwise `drained` would come first.
    assert!(matches!(next(&calls), Call::Notified));
    assert_eq!(foreign.peer.receive_one(), Some(b'Y'));
    foreign.handshake();
    assert_eq!(foreign.receive(6), b"secret");
    assert!(foreign.receive(MUCH) == pattern(MUCH));
    while !matches!(next(&calls), Call::Drained) {}
}

#[test]
fn a_layer_that_starts_in_mid_stream_gets_all_bytes_behind_it() {
    let runtime = start(config());
    for at_once in [false, true] {
        let (probe, calls) = Probe::new();
        let listener = runtime.listen("127.0.0.1:0", Upgrades(probe)).expect("a listener");
        let mut foreign = Foreign::new(peer(&listener), &[7]);
        foreign.peer.send(b"plain");
        opened(&calls);
        assert_eq!(received(&calls, 5), b"plain");
        let mut behind = foreign.hellos();
        behind.extend(foreign.seal(1, b"hidden"));
        if at_once {
            foreign.peer.send(&[b"S", &*behind].concat());
        } else {
            foreign.peer.send(b"S");
        }
        assert!(matches!(next(&calls), Call::Received(rest) if rest.is_empty()));
        assert_eq!(foreign.peer.receive_one(), Some(b'Y'));
        if !at_once {
            eventually(LONG, || runtime.stats().handshakes == 1);
            foreign.peer.send(&behind);
        }
        foreign.welcomed();
        assert_eq!(foreign.receive(6), b"secret");
        let mut calls: Vec<_> = [next(&calls), next(&calls)].into();
        calls.sort_by_key(|call| matches!(call, Call::Notified));
        assert!(
            matches!(&*calls, [Call::Received(b), Call::Notified] if b == b"hidden"),
            "{calls:?}"
        );
    }
}

#[test]
fn plain_bytes_behind_the_start_of_a_layer_never_reach_the_protocol() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let listener = runtime.listen("127.0.0.1:0", Upgrades(probe)).expect("a listener");
    let mut peer = peer(&listener);
    peer.send(&[b"S", &5_u32.to_le_bytes()[..], b"wrong"].concat());
    opened(&calls);
    assert!(matches!(next(&calls), Call::Received(rest) if rest.is_empty()));
    assert_eq!(closed(&calls), "no handshake");
    let (bytes, end) = peer.receive_all();
    assert!(bytes.starts_with(b"Yalert") && end == End::Finished, "{bytes:?}");
}

#[test]
fn a_panic_of_a_layer_ends_its_connection_alone() {
    let runtime = start(config());
    let fails = |conn: &Connection| -> Result<Box<dyn Layer>, Close> {
        assert_eq!(conn.id().number % 2, 0, "as the test wants");
        Ok(Box::new(Toy::new(Side::Server, 7)))
    };
    let options = ListenOptions::new().layer(fails);
    let listener = runtime.listen_with("127.0.0.1:0", options, Bytes::new(echo)).expect("bound");
    for _ in 0..2 {
        assert_eq!(peer(&listener).receive_all().0, b"");
        Foreign::new(peer(&listener), &[7]).handshake();
    }
    wait_for(&runtime, Counter::ClosedPanic, 2);
}

/// Pauses reading at its first bytes, and leaves them.
struct Leaves(Probe);

impl Protocol for Leaves {
    type State = bool;

    fn opened(&self, conn: &Connection) -> Result<bool, Close> {
        self.0.opened(conn)?;
        Ok(false)
    }

    fn received(
        &self,
        conn: &Connection,
        left: &mut bool,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        if mem::replace(left, true) {
            return self.0.received(conn, &mut (), input);
        }
        conn.pause_reads();
        Ok(())
    }

    fn ended(&self, conn: &Connection, _: &mut bool) -> Result<HalfClose, Close> {
        self.0.ended(conn, &mut ())
    }

    fn closed(&self, conn: &Connection, _: bool, reason: &CloseReason) {
        self.0.closed(conn, (), reason);
    }
}

#[test]
fn bytes_that_the_protocol_has_left_come_before_the_end_behind_them() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let listener = listen(&runtime, &[7], Leaves(probe));
    let mut foreign = Foreign::new(peer(&listener), &[7]);
    foreign.handshake();
    let conn = opened(&calls);
    let mut last = foreign.seal(1, b"last");
    foreign.seals[0].record(b"", &mut last);
    foreign.peer.send(&last);
    eventually(LONG, || runtime.stats().paused_connections == 1);
    conn.resume_reads();
    assert_eq!(received(&calls, 4), b"last");
    assert!(matches!(next(&calls), Call::Ended));
    assert_eq!(closed(&calls), "the peer finished");
}

fn bomb() -> Box<dyn Layer> {
    Box::new(Bomb { left: 0, byte: 0, produced: Arc::default() })
}

#[test]
fn what_an_upper_layer_has_not_decoded_comes_before_the_end_of_the_one_below() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let options = ListenOptions::new().layer(Toy::server(7)).layer(|_: &Connection| Ok(bomb()));
    let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
    let mut foreign = Foreign::new(peer(&listener), &[7]);
    foreign.handshake();
    opened(&calls);
    let mut last = foreign.seal(1, b"a");
    foreign.seals[0].record(b"", &mut last);
    foreign.peer.send(&last);
    assert!(received(&calls, MIB).iter().all(|byte| *byte == b'a'));
    assert!(matches!(next(&calls), Call::Ended));
}

#[test]
fn the_end_of_an_upper_layer_does_not_ask_those_below() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let listener = listen(&runtime, &[7, 90], probe);
    let mut foreign = Foreign::new(peer(&listener), &[7, 90]);
    foreign.handshake();
    opened(&calls);
    let mut farewell = Vec::new();
    foreign.seals[1].record(b"", &mut farewell);
    let farewell = foreign.seal(1, &farewell);
    foreign.peer.send(&farewell);
    assert!(matches!(next(&calls), Call::Ended));
    assert_eq!(closed(&calls), "the peer finished");
}

#[test]
fn a_handshake_in_mid_stream_goes_on_although_much_waits_for_it() {
    const MUCH: usize = 256 << 10;
    let config = config().write_high_watermark_bytes(64 << 10).write_low_watermark_bytes(4 << 10);
    let runtime = start(config);
    let starts = |conn: &Connection, input: &mut Input<'_>| {
        if input.take(1) == b"S" {
            conn.start_layer(input, Box::new(Toy::new(Side::Server, 7)))?;
            conn.send(pattern(MUCH));
        }
        Ok(())
    };
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(starts)).expect("a listener");
    let mut foreign = Foreign::new(peer(&listener), &[7]);
    foreign.peer.send(b"S");
    eventually(LONG, || runtime.stats().handshakes == 1);
    foreign.handshake();
    assert!(foreign.receive(MUCH) == pattern(MUCH));
}

#[test]
fn a_handshake_that_has_failed_keeps_its_reason_while_the_connection_closes() {
    let timeout = Duration::from_millis(50);
    let runtime = start(config().linger_timeout(8 * timeout));
    let server = TcpListener::bind("127.0.0.1:0").expect("bound");
    let to: Address = server.local_addr().expect("an address").into();
    let (probe, calls) = Probe::new();
    let options = ConnectOptions::new().layer(Toy::client(7)).handshake_timeout(timeout);
    runtime.connect_with(&to, options, probe).expect("begun");
    let mut foreign = Foreign::new(Peer::accept(&server), &[7]);
    foreign.send(b"wrong");
    match next(&calls) {
        Call::Failed(reason) => assert_eq!(reason, "no handshake"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn layers_that_start_in_one_call_get_the_bytes_behind_it_in_their_order() {
    let runtime = start(config());
    let starts = |conn: &Connection, input: &mut Input<'_>| {
        if input.bytes().first() == Some(&b'S') {
            input.consume(1);
            conn.start_layer(input, Box::new(Toy::new(Side::Server, 7)))?;
            conn.start_layer(input, Box::new(Toy::new(Side::Server, 90)))?;
        }
        echo(conn, input)
    };
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(starts)).expect("a listener");
    let mut foreign = Foreign::new(peer(&listener), &[7, 90]);
    let hellos = foreign.hellos();
    foreign.peer.send(&[b"S", &*hellos].concat());
    foreign.welcomed();
    foreign.send(b"secret");
    assert_eq!(foreign.receive(6), b"secret");
}

/// Decodes each byte to this number of it.
struct Grows(usize);

impl Layer for Grows {
    fn start(&mut self, _: &Connection, _: &mut Vec<u8>) -> Result<LayerState, Close> {
        Ok(LayerState::Ready)
    }

    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        while decoded.room() > 0
            && let [byte] = *input.take(1)
        {
            decoded.push(&vec![byte; self.0]);
        }
        Ok(LayerState::Ready)
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        encoded.extend_from_slice(bytes);
        Ok(())
    }
}

#[test]
fn bytes_that_a_layer_has_no_room_for_are_no_long_packet() {
    const SENT: usize = 8192;
    let runtime = start(config().max_allowed_packet(4096));
    let (probe, calls) = Probe::new();
    let options =
        ListenOptions::new().layer(|_: &Connection| Ok(Box::new(Grows(1000)) as Box<dyn Layer>));
    let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
    peer(&listener).send(&[b'a'; SENT]);
    opened(&calls);
    received(&calls, 1000 * SENT);
}

/// Passes bytes on, but wants another handshake behind an `H`.
struct Again;

impl Layer for Again {
    fn start(&mut self, _: &Connection, _: &mut Vec<u8>) -> Result<LayerState, Close> {
        Ok(LayerState::Ready)
    }

    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        let bytes = input.take_all();
        decoded.push(bytes);
        let handshakes = bytes.ends_with(b"H");
        Ok(if handshakes { LayerState::Handshaking } else { LayerState::Ready })
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        encoded.extend_from_slice(bytes);
        Ok(())
    }
}

#[test]
fn a_layer_that_handshakes_again_keeps_no_worker_busy() {
    let runtime = start(config());
    let neighbours = runtime.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
    let again = |_: &Connection| Ok(Box::new(Again) as Box<dyn Layer>);
    let options = ListenOptions::new().layer(again).layer(again);
    let listener = runtime.listen_with("127.0.0.1:0", options, Bytes::new(echo)).expect("bound");
    let mut stranger = peer(&listener);
    stranger.send(b"aH");
    wait_for(&runtime, Counter::BytesReceived, 2);
    peer(&neighbours).echo(b"neighbour");
    stranger.send(b"b");
    assert_eq!(stranger.receive(3), b"aHb");
}

/// A layer that is done when it has started.
struct Header {
    drop_panics: bool,
    start_panics: bool,
}

impl Layer for Header {
    fn start(&mut self, _: &Connection, answer: &mut Vec<u8>) -> Result<LayerState, Close> {
        assert!(!self.start_panics, "as the test wants");
        answer.extend_from_slice(b"header");
        Ok(LayerState::Done)
    }

    fn received(
        &mut self,
        _: &Connection,
        _: &mut Input<'_>,
        _: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        unreachable!("the layer is done")
    }

    fn send(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Close> {
        unreachable!("bytes pass once it is done")
    }

    fn client_addr(&self) -> Option<Address> {
        Some(Address::Tcp(([10, 0, 0, 9], 9).into()))
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        assert!(!self.drop_panics, "as the test wants");
    }
}

fn header(drop_panics: bool, start_panics: bool) -> impl MakeLayer {
    move |_: &Connection| Ok(Box::new(Header { drop_panics, start_panics }) as Box<dyn Layer>)
}

#[test]
fn a_layer_that_is_done_at_its_start_gets_no_input_and_names_the_client() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let options = ListenOptions::new().layer(Toy::server(7)).layer(header(false, false));
    let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
    let mut foreign = Foreign::new(peer(&listener), &[7]);
    let mut stream = foreign.hellos();
    stream.extend(foreign.seal(1, b"first"));
    foreign.peer.send(&stream);
    assert_eq!(opened(&calls).client_addr().to_string(), "10.0.0.9:9");
    assert_eq!(received(&calls, 5), b"first");
    foreign.welcomed();
    assert_eq!(foreign.receive(6), b"header");
}

#[test]
fn the_place_of_a_client_that_was_named_before_a_panic_is_free_again() {
    let runtime = start(config());
    let name = |_: &Connection| Ok(Box::new(Name(None)) as Box<dyn Layer>);
    let options = ListenOptions::new().max_connections_per_address(1).layer(name);
    let options = options.layer(header(false, true));
    let listener = runtime.listen_with("127.0.0.1:0", options, Bytes::new(echo)).expect("bound");
    for count in 1..=2 {
        let mut peer = peer(&listener);
        peer.send(b"10.0.0.1:99\n");
        peer.receive_all();
        wait_for(&runtime, Counter::ClosedPanic, count);
        eventually(LONG, || listener.stats().open == 0);
    }
}

#[test]
fn a_panic_in_the_destructor_of_a_layer_that_is_done_ends_there() {
    let runtime = start(config());
    let options = ListenOptions::new().layer(header(true, false));
    let listener = runtime.listen_with("127.0.0.1:0", options, Bytes::new(echo)).expect("bound");
    let mut peer = peer(&listener);
    assert_eq!(peer.receive(6), b"header");
    peer.echo(b"alive");
    wait_for(&runtime, Counter::Panics, 1);
}

/// Panics when it encodes.
struct Fails;

impl Layer for Fails {
    fn start(&mut self, _: &Connection, _: &mut Vec<u8>) -> Result<LayerState, Close> {
        Ok(LayerState::Ready)
    }

    fn received(
        &mut self,
        _: &Connection,
        _: &mut Input<'_>,
        _: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        Ok(LayerState::Ready)
    }

    fn send(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Close> {
        panic!("as the test wants")
    }
}

/// Sends each error on the connection.
struct Sends(Connection);

impl Subscriber for Sends {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.send(b"an error");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_log_of_a_panic_may_send_on_the_connection_of_the_layer() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let options =
        ListenOptions::new().layer(|_: &Connection| Ok(Box::new(Fails) as Box<dyn Layer>));
    let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
    let _peer = peer(&listener);
    let conn = opened(&calls);
    let (tells, told) = mpsc::channel();
    // The log of this thread alone.
    thread::spawn(move || {
        let log = Sends(conn.clone());
        let sent = tracing::subscriber::with_default(log, || conn.send(b"bytes"));
        let _ = tells.send(sent);
    });
    assert_eq!(told.recv_timeout(LONG), Ok(Sent::Closed));
    assert_eq!(closed(&calls), "the handler panicked");
}

#[test]
fn an_upper_layer_without_room_stops_the_one_below() {
    const SENT: usize = 1000;
    let runtime = start(config().max_buffered_bytes(MIB));
    let (probe, calls) = Probe::new();
    let grows = |times| move |_: &Connection| Ok(Box::new(Grows(times)) as Box<dyn Layer>);
    let options = ListenOptions::new().layer(grows(1000)).layer(grows(16));
    let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
    peer(&listener).send(&[b'a'; SENT]);
    opened(&calls);
    received(&calls, 16 * 1000 * SENT);
}

/// Is ready with the first `!`.
struct Slow(bool);

impl Layer for Slow {
    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        match input.take_all() {
            b"!" => self.0 = true,
            bytes => decoded.push(bytes),
        }
        Ok(if self.0 { LayerState::Ready } else { LayerState::Handshaking })
    }

    fn send(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Close> {
        Ok(())
    }
}

#[test]
fn bytes_that_a_layer_decodes_before_it_is_ready_come_when_it_is() {
    let runtime = start(config());
    let (probe, calls) = Probe::new();
    let options =
        ListenOptions::new().layer(|_: &Connection| Ok(Box::new(Slow(false)) as Box<dyn Layer>));
    let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
    let mut peer = peer(&listener);
    peer.send(b"early");
    wait_for(&runtime, Counter::BytesReceived, 5);
    peer.send(b"!");
    opened(&calls);
    assert_eq!(received(&calls, 5), b"early");
}

/// Layer that sends when it is dropped.
#[derive(Debug)]
struct SendsLate(Connection);

impl Layer for SendsLate {
    fn start(&mut self, _: &Connection, _: &mut Vec<u8>) -> Result<LayerState, Close> {
        Ok(LayerState::Ready)
    }

    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        decoded.push(input.take_all());
        Ok(LayerState::Ready)
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        encoded.extend_from_slice(bytes);
        Ok(())
    }
}

impl Drop for SendsLate {
    fn drop(&mut self) {
        self.0.send(b"dropped");
    }
}

#[test]
fn a_layer_that_is_refused_may_send_when_it_is_dropped() {
    let runtime = start(config());
    let (protocol, ends) = Bytes::with_ends(|conn: &Connection, input: &mut Input<'_>| {
        loop {
            conn.start_layer(input, Box::new(SendsLate(conn.clone())))?;
        }
    });
    let listener = runtime.listen("127.0.0.1:0", protocol).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.send(b"?");
    // No layer was ready yet.
    assert_eq!(peer.receive_to_finish(), b"");
    drop(peer);
    assert_eq!(ends.wait_for(1), ["a connection has 8 layers at most"]);
    assert_clean(&runtime.drain(LONG));
}
