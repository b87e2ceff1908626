//! Handlers that wait for their peer in the middle of a request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{
    Close, CloseReason, Connection, Decoded, HalfClose, Hold, Input, Layer, LayerState,
    ListenOptions, PeerState, Protocol, ReadMoreError,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};
use lab::peer::End;
use lab::protocol::{Bytes, Ends};
use lab::workers::Gate;
use lab::{BOTH, Kind, LONG, Peer, Server, assert_clean, config, eventually, pattern};

fn soon() -> Instant {
    Instant::now() + LONG
}

/// The next line, without its end.
fn line(input: &mut Input<'_>, deadline: Instant) -> Result<Vec<u8>, ReadMoreError> {
    loop {
        if let Some(end) = input.bytes().iter().position(|&byte| byte == b'\n') {
            return Ok(input.take(end + 1)[..end].to_vec());
        }
        input.read_more(deadline)?;
    }
}

/// Answers each line by a question, and the answer to that by both.
fn converse(conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
    while input.bytes().contains(&b'\n') {
        let asked = line(input, soon())?;
        conn.send("why?\n");
        let answer = line(input, soon())?;
        conn.send([&asked[..], b", because ", &answer, b"\n"].concat());
    }
    Ok(())
}

#[track_caller]
fn says(peer: &mut Peer, text: &str) {
    assert_eq!(String::from_utf8(peer.receive(text.len())).expect("text"), text);
}

#[test]
fn a_conversation_in_the_middle_of_a_request_is_plain_code() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Bytes::new(converse));
        let mut peer = server.peer();
        peer.send(b"no\n");
        says(&mut peer, "why?\n");
        // The next request, whole and in part, follows the answer at once.
        peer.send(b"late\nyes\nsure\nand ");
        says(&mut peer, "no, because late\nwhy?\nyes, because sure\n");
        for byte in b"so on\nfor good\n" {
            peer.send(&[*byte]);
        }
        says(&mut peer, "why?\nand so on, because for good\n");
        peer.finish();
        assert_eq!(peer.receive_to_finish(), b"");
        server.wait_until_empty();
        assert_eq!(server.stats().buffered_bytes, 0);
        assert_clean(&server.drain(LONG));
    }
}

/// Large answers pass the buffers of worker and connection, in order.
#[test]
fn bytes_of_a_long_conversation_arrive_in_order() {
    for kind in BOTH {
        const SIZE: usize = 3 << 20;
        let upload = |conn: &Connection, input: &mut Input<'_>| {
            let expected = pattern(SIZE);
            let mut at = 0;
            while at < SIZE {
                if input.is_empty() {
                    input.read_more(soon())?;
                }
                // Of what is there, a part stays for the next turn.
                let count = input.len().div_ceil(2).min(SIZE - at);
                if input.take(count) != &expected[at..at + count] {
                    return Err("the bytes differ".into());
                }
                at += count;
            }
            conn.send("done\n");
            Ok(())
        };
        let server = Server::start(kind, config(), Bytes::new(upload));
        let mut peer = server.peer();
        let mut other = peer.other();
        let sender = thread::spawn(move || (0..3).for_each(|_| other.send(&pattern(SIZE))));
        says(&mut peer, "done\ndone\ndone\n");
        sender.join().expect("all is sent");
        drop(peer);
        server.wait_until_empty();
        assert_eq!(server.stats().buffered_bytes, 0);
    }
}

/// The handler reads a part of what ends its wait. No edge follows for the rest.
#[test]
fn bytes_that_a_wait_leaves_in_the_socket_are_received() {
    for kind in BOTH {
        let waits = |conn: &Connection, input: &mut Input<'_>| {
            if input.bytes() == b"a" {
                input.read_more(soon())?;
            }
            conn.send(input.take_all());
            Ok(())
        };
        let server = Server::start(kind, config(), Bytes::new(waits));
        let mut peer = server.peer();
        peer.send(b"a");
        eventually(LONG, || server.stats().stalled_threads == 1);
        let rest = pattern(60_000);
        peer.send(&rest);
        assert_eq!(peer.receive(1), b"a");
        assert!(peer.receive(rest.len()) == rest, "{kind:?}: the bytes differ");
    }
}

/// Decodes each byte to many.
struct Expands;

const TIMES: usize = 40 << 10;

impl Layer for Expands {
    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        assert!(matches!(input.read_more(soon()), Err(ReadMoreError::Unavailable)));
        while decoded.room() > 0 && !input.is_empty() {
            let byte = input.take(1)[0];
            decoded.push(&vec![byte; TIMES]);
        }
        Ok(LayerState::Ready)
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        encoded.extend_from_slice(bytes);
        Ok(())
    }
}

/// A layer has more to decode than one read brings, and the handler leaves some of it.
#[test]
fn a_handler_reads_more_through_a_layer() {
    let (tell, told) = mpsc::channel();
    let protocol = Bytes::new(move |_: &Connection, input: &mut Input<'_>| {
        if input.bytes().starts_with(b"0") {
            tell.send(input.take_all().to_vec()).expect("the test listens");
            input.read_more(soon())?;
        }
        tell.send(input.take_all().to_vec()).expect("the test listens");
        Ok(())
    });
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let options = ListenOptions::new().layer(|_: &Connection| Ok(Box::new(Expands) as _));
    let listener = runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.send(b"0");
    let mut got = told.recv_timeout(LONG).expect("the first ones");
    eventually(LONG, || runtime.stats().stalled_threads == 1);
    peer.send(b"123456789");
    while got.len() < 10 * TIMES {
        got.extend(told.recv_timeout(LONG).expect("more"));
    }
    let expected: Vec<_> = (b'0'..=b'9').flat_map(|byte| vec![byte; TIMES]).collect();
    assert!(got == expected, "the bytes differ");
    drop(peer);
    eventually(LONG, || runtime.stats().connections == 0);
    assert_eq!(runtime.stats().buffered_bytes, 0);
}

/// Bytes come just before, while and after the handler decides to wait.
#[test]
fn no_arrival_is_missed_however_close_to_the_wait() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Bytes::new(converse));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut peer = server.peer();
                    for turn in 0..lab::often(300) {
                        peer.send(b"a\n");
                        if turn % 2 == 0 {
                            says(&mut peer, "why?\n");
                            peer.send(b"b\n");
                            says(&mut peer, "a, because b\n");
                        } else {
                            peer.send(b"b\n");
                            says(&mut peer, "why?\na, because b\n");
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn threads_come_for_handlers_that_wait_and_leave_afterwards() {
    const WAITING: usize = 100;
    let config = config().dynamic_threads_shrink_time(Duration::from_millis(200));
    let server = Server::start(Kind::Tcp, config, Bytes::new(converse));
    let base = server.stats().workers;
    let mut peers: Vec<_> = (0..WAITING).map(|_| server.peer()).collect();
    for peer in &mut peers {
        peer.send(b"a\n");
    }
    // All of them wait at the same time.
    peers.iter_mut().for_each(|peer| says(peer, "why?\n"));
    eventually(LONG, || server.stats().stalled_threads as usize >= WAITING);
    for peer in &mut peers {
        peer.send(b"b\n");
    }
    peers.iter_mut().for_each(|peer| says(peer, "a, because b\n"));
    assert!(server.count(Counter::ThreadsStartedStall) > 0);
    eventually(LONG, || server.stats().workers == base);
    assert_eq!(server.stats().stalled_threads, 0);
}

/// More handlers wait than there can be threads. The bytes for which they wait are still noticed.
#[test]
fn handlers_that_use_up_all_threads_are_woken_by_their_peers() {
    for reserve in [0, 1] {
        let config = config().max_threads(6).reserve_threads_per_group(reserve);
        let server = Server::start(Kind::Tcp, config, Bytes::new(converse));
        let mut peers: Vec<_> = (0..20).map(|_| server.peer()).collect();
        for peer in &mut peers {
            peer.send(b"a\n");
        }
        eventually(LONG, || server.stats().stalled_threads as usize == 6 - reserve);
        for peer in &mut peers {
            peer.send(b"b\n");
        }
        let began = Instant::now();
        peers.iter_mut().for_each(|peer| says(peer, "why?\na, because b\n"));
        // The handlers are woken long before their deadlines.
        assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    }
}

/// Server whose handler drops its input and reads more, once for each call.
struct Waiting {
    server: Server,
    ends: Ends,
    begun: mpsc::Receiver<Connection>,
    results: mpsc::Receiver<Result<Vec<u8>, ReadMoreError>>,
}

impl Waiting {
    fn start(kind: Kind, config: Config, limit: Duration) -> Self {
        let (begins, begun) = mpsc::channel();
        let (tell, results) = mpsc::channel();
        let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
            input.take_all();
            begins.send(conn.clone()).expect("the test listens");
            let read = input.read_more(Instant::now() + limit);
            let bytes = input.take_all().to_vec();
            tell.send(read.clone().map(|()| bytes)).expect("the test listens");
            Ok(read?)
        });
        Self { server: Server::start(kind, config, protocol), ends, begun, results }
    }

    /// Waits until the handler waits.
    #[track_caller]
    fn wait(&self) -> Connection {
        let conn = self.begun.recv_timeout(LONG).expect("the handler runs");
        eventually(LONG, || self.server.stats().stalled_threads == 1);
        conn
    }

    #[track_caller]
    fn result(&self) -> Result<Vec<u8>, ReadMoreError> {
        self.results.recv_timeout(LONG).expect("the wait ends")
    }

    /// Checks the error, and the reason for which the connection ends by `?`.
    #[track_caller]
    fn ends_with(&self, error: &str, reason: &str, counter: Counter) {
        let found = self.result().expect_err("no bytes").to_string();
        assert!(found.starts_with(error), "{found}");
        let ends = self.ends.wait_for(1);
        assert!(ends[0].starts_with(reason), "{ends:?}");
        assert_eq!(self.server.count(counter), 1);
        self.server.wait_until_empty();
        assert_eq!(self.server.stats().buffered_bytes, 0);
    }
}

#[test]
fn the_deadline_of_a_wait_has_an_error_of_its_own() {
    for kind in BOTH {
        let waiting = Waiting::start(kind, config(), Duration::from_millis(20));
        let mut peer = waiting.server.peer();
        peer.send(b"a");
        let text = "read_more: no bytes came before the deadline";
        waiting.ends_with(text, text, Counter::ClosedByHandler);
        assert_eq!(peer.receive_to_finish(), b"");
    }
}

#[test]
fn a_peer_that_finishes_or_resets_ends_the_wait() {
    for kind in BOTH {
        let waiting = Waiting::start(kind, config(), LONG);
        let mut peer = waiting.server.peer();
        peer.send(b"a");
        let conn = waiting.wait();
        assert_eq!(conn.peer_state(), PeerState::Connected);
        peer.finish();
        eventually(LONG, || conn.peer_state() != PeerState::Connected);
        let text = "read_more: the peer has finished sending";
        waiting.ends_with(text, "the peer finished", Counter::ClosedByPeer);
        assert_eq!(peer.receive_to_finish(), b"");
    }
    let waiting = Waiting::start(Kind::Tcp, config(), LONG);
    let mut peer = waiting.server.peer();
    peer.send(b"a");
    let conn = waiting.wait();
    peer.reset();
    let text = "read_more: the connection ends: the peer is gone";
    waiting.ends_with(text, "the peer is gone", Counter::ClosedReset);
    assert_eq!(conn.peer_state(), PeerState::Gone);
}

/// Passes bytes on. The end of the stream is an error, because no farewell came before.
struct NeedsFarewell;

impl Layer for NeedsFarewell {
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

    fn ended(&mut self) -> Result<(), Close> {
        Err("cut short".into())
    }
}

/// The handler must not take the bytes for whole.
#[test]
fn a_stream_that_a_layer_finds_cut_short_is_not_finished() {
    let (tell, told) = mpsc::channel();
    let (protocol, ends) = Bytes::with_ends(move |_: &Connection, input: &mut Input<'_>| {
        input.take_all();
        let read = input.read_more(soon());
        tell.send(read.clone()).expect("the test listens");
        Ok(read?)
    });
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let options = ListenOptions::new().layer(|_: &Connection| Ok(Box::new(NeedsFarewell) as _));
    let listener = runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.send(b"a");
    eventually(LONG, || runtime.stats().stalled_threads == 1);
    peer.finish();
    let error = told.recv_timeout(LONG).expect("the wait ends").expect_err("no bytes");
    assert_eq!(error.to_string(), "read_more: the connection ends: cut short");
    assert_eq!(ends.wait_for(1), ["cut short"]);
}

/// Passes bytes on up to a dot, which is its end.
struct EndsAtDot;

impl Layer for EndsAtDot {
    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        let bytes = input.take_all();
        let end = bytes.iter().position(|&byte| byte == b'.');
        decoded.push(&bytes[..end.unwrap_or(bytes.len())]);
        Ok(if end.is_some() { LayerState::Ended } else { LayerState::Ready })
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        encoded.extend_from_slice(bytes);
        Ok(())
    }
}

/// The socket stays open, so no event follows.
#[test]
fn an_end_that_a_layer_finds_behind_the_first_bytes_ends_the_wait() {
    let (tell, told) = mpsc::channel();
    let protocol = Bytes::new(move |_: &Connection, input: &mut Input<'_>| {
        input.take_all();
        let error = input.read_more(soon() + LONG).expect_err("the end");
        tell.send(error.to_string()).expect("the test listens");
        Ok(())
    });
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let options = ListenOptions::new().layer(|_: &Connection| Ok(Box::new(EndsAtDot) as _));
    let listener = runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.send(b"a.");
    let error = told.recv_timeout(LONG).expect("the wait ends");
    assert_eq!(error, "read_more: the peer has finished sending");
}

#[test]
fn what_a_layer_has_left_to_decode_comes_before_the_end_of_the_layer_below() {
    let (tell, told) = mpsc::channel();
    let protocol = Bytes::new(move |_: &Connection, input: &mut Input<'_>| {
        tell.send(input.take_all().len()).expect("the test listens");
        Ok(())
    });
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let options = ListenOptions::new()
        .layer(|_: &Connection| Ok(Box::new(EndsAtDot) as _))
        .layer(|_: &Connection| Ok(Box::new(Expands) as _));
    let listener = runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.send(b"123456789.");
    assert_eq!(peer.receive_to_finish(), b"");
    assert_eq!(told.try_iter().sum::<usize>(), 9 * TIMES);
}

/// The peer of a handler that waits for longer than the time-outs has all of their time afterwards.
#[test]
fn time_outs_for_input_do_not_run_during_a_wait() {
    const LIMIT: Duration = Duration::from_secs(2);
    for limited in [config().frame_timeout(LIMIT), config().idle_timeout(LIMIT)] {
        let (tell, told) = mpsc::channel();
        let (protocol, ends) = Bytes::with_ends(move |_: &Connection, input: &mut Input<'_>| {
            if input.len() == 2 {
                let error = input.read_more(Instant::now() + 2 * LIMIT).expect_err("no bytes");
                assert!(matches!(error, ReadMoreError::Deadline), "{error}");
            }
            tell.send(input.len()).expect("the test listens");
            Ok(())
        });
        let server = Server::start(Kind::Tcp, limited, protocol);
        let mut peer = server.peer();
        peer.send(b"a");
        for count in 1..=3 {
            assert_eq!(told.recv_timeout(LONG).expect("a call"), count, "{:?}", ends.all());
            // Late, but within the time-outs.
            thread::sleep(LIMIT / 4);
            peer.send(b"b");
        }
    }
}

#[test]
fn a_close_or_an_abort_by_another_thread_ends_the_wait() {
    let close: fn(&Connection) = |conn| conn.close("enough");
    let abort: fn(&Connection) = |conn| conn.abort("enough");
    for (kind, end, expected) in [
        (Kind::Tcp, close, End::Finished),
        (Kind::Unix, close, End::Finished),
        (Kind::Tcp, abort, End::Reset),
        (Kind::Unix, abort, End::Finished),
    ] {
        let waiting = Waiting::start(kind, config(), LONG);
        let mut peer = waiting.server.peer();
        peer.send(b"a");
        end(&waiting.wait());
        let text = "read_more: the connection ends: enough";
        waiting.ends_with(text, "enough", Counter::ClosedByHandler);
        assert_eq!(peer.receive_all(), (Vec::new(), expected));
    }
}

#[test]
fn a_drain_ends_the_wait_in_good_order() {
    for kind in BOTH {
        let Waiting { server, ends, begun, results } = Waiting::start(kind, config(), LONG);
        let mut peer = server.peer();
        peer.send(b"a");
        begun.recv_timeout(LONG).expect("the handler runs");
        assert_clean(&server.drain(LONG));
        let error = results.recv_timeout(LONG).expect("the wait ends").expect_err("no bytes");
        assert_eq!(error.to_string(), "read_more: the connection ends: the runtime drained");
        assert_eq!(ends.all(), ["the runtime drained"]);
        assert_eq!(peer.receive_to_finish(), b"");
    }
}

/// Server whose first call waits at a gate and whose second one reads more.
fn second_call_waits(kind: Kind) -> (Server, Gate, Ends, mpsc::Receiver<Connection>) {
    let (gate, (begins, begun)) = (Gate::default(), mpsc::channel());
    let held = gate.clone();
    let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
        if input.take(1) == b"a" {
            begins.send(conn.clone()).expect("the test listens");
            held.pass();
            return Ok(());
        }
        input.read_more(soon() + LONG)?;
        Ok(())
    });
    (Server::start(kind, config(), protocol), gate, ends, begun)
}

/// Protocol whose `notified` reads more once `reads` is set.
struct ReadsWhenNotified {
    given: mpsc::Sender<Connection>,
    told: mpsc::Sender<Option<ReadMoreError>>,
    reads: Arc<AtomicBool>,
}

impl Protocol for ReadsWhenNotified {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        self.given.send(conn.clone()).expect("the test listens");
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        input.take_all();
        Ok(())
    }

    fn notified(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let reads = self.reads.load(Ordering::Relaxed);
        let error = reads.then(|| input.read_more(soon() + LONG)).and_then(Result::err);
        self.told.send(error).expect("the test listens");
        Ok(())
    }
}

/// The drain waits for the end of the pause.
#[test]
fn a_drain_that_waits_for_a_paused_connection_ends_its_wait() {
    let ((given, conns), (told, calls)) = (mpsc::channel(), mpsc::channel());
    let reads = Arc::new(AtomicBool::new(false));
    let protocol = ReadsWhenNotified { given, told, reads: Arc::clone(&reads) };
    let server = Server::start(Kind::Tcp, config(), protocol);
    let mut peer = server.peer();
    let conn = conns.recv_timeout(LONG).expect("a connection");
    conn.pause_reads();
    peer.send(b"question");
    let handle = server.runtime.handle();
    let drain = thread::spawn(move || server.drain(LONG));
    eventually(LONG, || handle.spawn(|| ()).is_err());
    // After these calls a worker has taken the mark that the drain has set on the connection.
    for _ in 0..100 {
        conn.notify();
        assert!(calls.recv_timeout(LONG).expect("a call").is_none());
    }
    reads.store(true, Ordering::Relaxed);
    conn.notify();
    let error = calls.recv_timeout(LONG).expect("the wait ends").expect("no bytes");
    assert_eq!(error.to_string(), "read_more: the connection ends: the runtime drained");
    conn.resume_reads();
    assert_clean(&drain.join().expect("no panic"));
}

/// The turn that calls the handler has taken the mark already.
#[test]
fn a_close_that_comes_before_the_call_ends_its_wait() {
    for kind in BOTH {
        let (server, gate, ends, begun) = second_call_waits(kind);
        let mut peer = server.peer();
        peer.send(b"a");
        let conn = begun.recv_timeout(LONG).expect("the handler runs");
        peer.send(b"b");
        conn.close("enough");
        // The same turn reads.
        conn.resume_reads();
        gate.open();
        assert_eq!(ends.wait_for(1), ["enough"]);
    }
}

#[test]
fn a_drain_that_comes_before_the_call_ends_its_wait() {
    for kind in BOTH {
        let (server, gate, ends, begun) = second_call_waits(kind);
        let mut peer = server.peer();
        peer.send(b"a");
        drop(begun.recv_timeout(LONG).expect("the handler runs"));
        peer.send(b"b");
        let handle = server.runtime.handle();
        let drain = thread::spawn(move || server.drain(LONG));
        eventually(LONG, || handle.spawn(|| ()).is_err());
        gate.open();
        assert_clean(&drain.join().expect("no panic"));
        assert_eq!(ends.all(), ["the runtime drained"]);
    }
}

#[test]
fn the_deadline_of_a_drain_cuts_a_handler_that_goes_on_waiting() {
    let (tell, told) = mpsc::channel();
    let stubborn = Bytes::new(move |_: &Connection, input: &mut Input<'_>| {
        loop {
            match input.read_more(soon()) {
                Err(ReadMoreError::Ending(CloseReason::Draining)) => thread::yield_now(),
                other => {
                    tell.send(other.map(drop)).expect("the test listens");
                    return Ok(());
                }
            }
        }
    });
    let server = Server::start(Kind::Tcp, config(), stubborn);
    let mut peer = server.peer();
    peer.send(b"a");
    eventually(LONG, || server.stats().stalled_threads == 1);
    assert_eq!(server.drain(Duration::from_millis(50)).cut, 1);
    let error = told.recv_timeout(LONG).expect("the wait ends").expect_err("no bytes");
    assert!(matches!(error, ReadMoreError::Ending(CloseReason::Cut)), "{error}");
}

#[test]
fn no_bytes_come_while_reading_is_paused() {
    for kind in BOTH {
        let waiting = Waiting::start(kind, config(), LONG);
        let mut peer = waiting.server.peer();
        peer.send(b"a");
        let conn = waiting.wait();
        conn.pause_reads();
        peer.send(b"later");
        conn.resume_reads();
        assert_eq!(waiting.result().expect("bytes"), b"later");
    }
    // Bytes arrive between the pause and the wait.
    let (gate, (tell, told)) = (Gate::default(), mpsc::channel());
    let held_back = gate.clone();
    let paused = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        input.take_all();
        conn.pause_reads();
        held_back.pass();
        let read = input.read_more(Instant::now() + Duration::from_millis(100));
        tell.send(read).expect("the test listens");
        Ok(())
    });
    let server = Server::start(Kind::Tcp, config(), paused);
    let mut peer = server.peer();
    peer.send(b"a");
    gate.wait_for(1);
    peer.send(b"never read");
    gate.open();
    let read = told.recv_timeout(LONG).expect("the wait ends");
    assert!(matches!(read, Err(ReadMoreError::Deadline)), "{read:?}");
    // A paused one notices a reset.
    let waiting = Waiting::start(Kind::Tcp, config(), LONG);
    let mut peer = waiting.server.peer();
    peer.send(b"a");
    waiting.wait().pause_reads();
    peer.reset();
    let text = "read_more: the connection ends: the peer is gone";
    waiting.ends_with(text, "the peer is gone", Counter::ClosedReset);
}

/// The handler reads and consumes nothing.
fn hoard(_: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
    loop {
        input.read_more(soon())?;
    }
}

#[test]
fn what_a_handler_reads_and_leaves_has_the_limits_of_unconsumed_input() {
    let longest = 100_000;
    for (config, reason, counter) in [
        (
            config().max_allowed_packet(longest),
            "input bytes exceed max_allowed_packet 100000",
            Counter::ClosedFrameTooLong,
        ),
        (
            config().max_buffered_bytes(1 << 20),
            "buffered bytes would leave too little of max_buffered_bytes 1048576",
            Counter::ClosedMemoryBudget,
        ),
    ] {
        let (protocol, ends) = Bytes::with_ends(hoard);
        let server = Server::start(Kind::Tcp, config, protocol);
        let mut peer = server.peer();
        thread::spawn(move || peer.stuff(&pattern(4 << 20)));
        let ends = ends.wait_for(1);
        assert!(ends[0].contains(reason), "{ends:?}");
        assert_eq!(server.count(counter), 1);
        server.wait_until_empty();
        assert_eq!(server.stats().buffered_bytes, 0);
    }
}

/// Reads two bytes when it is notified.
struct Notified(mpsc::Sender<Vec<u8>>);

impl Protocol for Notified {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        conn.notify();
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        self.0.send(input.take_all().to_vec()).expect("the test listens");
        Ok(())
    }

    fn notified(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        conn.send("go\n");
        while input.len() < 2 {
            input.read_more(soon())?;
        }
        self.0.send(input.take(2).to_vec()).expect("the test listens");
        Ok(())
    }
}

#[test]
fn a_notified_handler_reads_more_and_the_rest_is_received() {
    for kind in BOTH {
        let (tell, told) = mpsc::channel();
        let server = Server::start(kind, config(), Notified(tell));
        let mut peer = server.peer();
        says(&mut peer, "go\n");
        peer.send(b"a");
        peer.send(b"b, rest");
        assert_eq!(told.recv_timeout(LONG).expect("read"), b"ab");
        let mut rest = told.recv_timeout(LONG).expect("received");
        while rest.len() < 6 {
            rest.extend(told.recv_timeout(LONG).expect("received"));
        }
        assert_eq!(rest, b", rest");
    }
}

/// Leaves its input, and reads more when it is notified.
struct Leaves {
    received: mpsc::Sender<usize>,
    notified: mpsc::Sender<Option<ReadMoreError>>,
    held: Mutex<Option<Hold>>,
}

impl Protocol for Leaves {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        *self.held.lock().expect("no panic") = Some(conn.hold());
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        self.received.send(input.len()).expect("the test listens");
        Ok(())
    }

    fn ended(&self, conn: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        conn.notify();
        Ok(HalfClose::End)
    }

    fn notified(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let error = input.read_more(soon()).err();
        self.notified.send(error).expect("the test listens");
        self.held.lock().expect("no panic").take();
        Ok(())
    }
}

/// The connection ends when its request has ended, and is no longer read.
#[test]
fn a_notified_handler_that_can_read_no_more_leaves_nothing_to_receive() {
    let ((received, receives), (notified, calls)) = (mpsc::channel(), mpsc::channel());
    let protocol = Leaves { received, notified, held: Mutex::default() };
    let server = Server::start(Kind::Tcp, config(), protocol);
    let mut peer = server.peer();
    peer.send(b"half a frame");
    peer.finish();
    let error = calls.recv_timeout(LONG).expect("a call").expect("no bytes");
    assert_eq!(error.to_string(), "read_more: the peer has finished sending");
    server.wait_until_empty();
    assert_eq!(receives.try_iter().count(), 1, "no bytes have come");
}

#[test]
fn a_handler_that_computes_sees_that_its_peer_has_gone() {
    for kind in BOTH {
        let (tell, told) = mpsc::channel();
        let gate = Gate::default();
        let held = gate.clone();
        let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
            input.take_all();
            tell.send(conn.peer_state()).expect("the test listens");
            held.pass();
            eventually(LONG, || conn.peer_state() != PeerState::Connected);
            tell.send(conn.peer_state()).expect("the test listens");
            Ok(())
        });
        let server = Server::start(kind, config(), protocol);
        let mut peer = server.peer();
        peer.send(b"compute");
        assert_eq!(told.recv_timeout(LONG).expect("asked"), PeerState::Connected);
        // Unread bytes do not hide the state of the peer.
        peer.send(b"next");
        match kind {
            Kind::Tcp => peer.reset(),
            Kind::Unix => peer.finish(),
        }
        gate.open();
        let expected = if kind == Kind::Tcp { PeerState::Gone } else { PeerState::Finished };
        assert_eq!(told.recv_timeout(LONG).expect("noticed"), expected);
    }
}
