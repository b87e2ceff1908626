//! Flow control from outside: pauses, half-close, notifications, and notices of a low backlog.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::codec::frame::Dialect;
use epoll_group::net::{
    Close, CloseReason, Connection, FullBacklog, HalfClose, Input, ListenOptions, Protocol, Sent,
    Turn,
};
use epoll_group::stats::Counter;
use epoll_group::{Runtime, stall};
use lab::peer::frame;
use lab::protocol::{Bytes, Frames, echo};
use lab::{BOTH, Kind, LONG, Peer, Server, assert_clean, config, eventually, pattern};

/// Call of a [`Probe`].
#[derive(Debug)]
enum Call {
    Opened(Connection),
    Received(Vec<u8>),
    Notified(Vec<u8>),
    Released,
    Drained,
    Ended,
    Closed(String),
}

/// Reports its calls.
struct Probe {
    calls: mpsc::Sender<Call>,
    /// Leaves the bytes unconsumed in `received`.
    keeps: bool,
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
        (Self { calls, keeps: false, pauses: Pauses::Never }, called)
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
        let bytes = if self.keeps { input.bytes() } else { input.take_all() };
        self.tell(Call::Received(bytes.to_vec()));
        Ok(())
    }

    fn notified(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        self.tell(Call::Notified(input.take_all().to_vec()));
        Ok(())
    }

    fn released(&self, _: &Connection, _: Turn) {
        self.tell(Call::Released);
    }

    fn drained(&self, _: &Connection) {
        self.tell(Call::Drained);
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        self.tell(Call::Ended);
        Ok(HalfClose::KeepOpen)
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        self.tell(Call::Closed(reason.to_string()));
    }
}

/// The next call, without those of `released`.
#[track_caller]
fn next(calls: &Calls) -> Call {
    loop {
        match calls.recv_timeout(LONG).expect("a call") {
            Call::Released => {}
            call => return call,
        }
    }
}

#[track_caller]
fn opened(calls: &Calls) -> Connection {
    match next(calls) {
        Call::Opened(conn) => conn,
        other => panic!("{other:?} before opened"),
    }
}

#[track_caller]
fn received(calls: &Calls) -> Vec<u8> {
    match next(calls) {
        Call::Received(bytes) => bytes,
        other => panic!("{other:?} in place of received"),
    }
}

#[track_caller]
fn drained(calls: &Calls) {
    match next(calls) {
        Call::Drained => {}
        other => panic!("{other:?} in place of drained"),
    }
}

#[track_caller]
fn closed(calls: &Calls) -> String {
    match next(calls) {
        Call::Closed(reason) => reason,
        other => panic!("{other:?} in place of closed"),
    }
}

#[test]
fn a_paused_connection_is_not_read_until_it_is_resumed() {
    for kind in BOTH {
        let (probe, calls) = Probe::new();
        let server = Server::start(kind, config(), Probe { pauses: Pauses::InReceived, ..probe });
        let mut peer = server.peer();
        let conn = opened(&calls);
        peer.send(b"one");
        let mut got = received(&calls);
        // It is paused now, so the peer fills the buffers of the kernel.
        let sent = peer.stuff(&pattern(16 << 20));
        assert!(sent < 16 << 20, "{kind:?}: it is read");
        server.wait_for(Counter::ReadsPaused, 1);
        // Each call pauses again.
        while got.len() < 3 + sent {
            conn.resume_reads();
            got.extend(received(&calls));
        }
        assert_eq!(got[..3], *b"one");
        assert!(got[3..] == pattern(16 << 20)[..sent], "{kind:?}: the bytes differ");
        let stats = server.stats();
        let (paused, resumed) = (Counter::ReadsPaused, Counter::ReadsResumed);
        assert!(stats.get(paused) - stats.get(resumed) <= 1, "{stats}");
    }
}

#[test]
fn unconsumed_bytes_come_again_when_reading_is_resumed() {
    for kind in BOTH {
        let (probe, calls) = Probe::new();
        let server = Server::start(
            kind,
            config(),
            Probe { keeps: true, pauses: Pauses::InReceived, ..probe },
        );
        let mut peer = server.peer();
        let conn = opened(&calls);
        peer.send(b"half");
        assert_eq!(received(&calls), b"half");
        for _ in 0..3 {
            conn.resume_reads();
            assert_eq!(received(&calls), b"half", "{kind:?}: nothing else has arrived");
        }
        // The pause of the last call may follow the send.
        server.wait_for(Counter::ReadsPaused, 1);
        peer.send(b" and half");
        conn.resume_reads();
        eventually(LONG, || {
            conn.resume_reads();
            received(&calls) == b"half and half"
        });
    }
}

#[test]
fn bytes_kept_beyond_the_end_of_the_stream_come_again() {
    for kind in BOTH {
        let (probe, calls) = Probe::new();
        let server = Server::start(kind, config(), Probe { keeps: true, ..probe });
        let mut peer = server.peer();
        let conn = opened(&calls);
        peer.send(b"kept");
        peer.finish();
        loop {
            match next(&calls) {
                Call::Received(bytes) => assert_eq!(bytes, b"kept"),
                Call::Ended => break,
                Call::Released => {}
                other => panic!("{other:?}"),
            }
        }
        conn.pause_reads();
        conn.resume_reads();
        assert_eq!(received(&calls), b"kept", "{kind:?}");
        conn.close("enough");
        assert_eq!(closed(&calls), "enough");
    }
}

#[test]
fn no_deadline_of_the_input_runs_while_reading_is_paused() {
    let short = Duration::from_millis(50);
    let config = config().frame_timeout(short).first_bytes_timeout(short).idle_timeout(short);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let connect = |keeps, pauses| {
        let (probe, calls) = Probe::new();
        let probe = Probe { keeps, pauses, ..probe };
        let listener = runtime.listen("127.0.0.1:0", probe).expect("a listener");
        let peer = Peer::connect(listener.local_addr());
        let conn = opened(&calls);
        (conn, peer, calls)
    };
    // One is paused before it has sent anything, one within a frame, and one between two frames.
    let (silent, mut first, silent_calls) = connect(false, Pauses::InOpened);
    let (partial, mut second, partial_calls) = connect(true, Pauses::InReceived);
    second.send(b"part");
    assert_eq!(received(&partial_calls), b"part");
    let (idle, mut third, idle_calls) = connect(false, Pauses::InReceived);
    third.send(b"whole");
    assert_eq!(received(&idle_calls), b"whole");
    // Meanwhile each of these deadlines passes three times for others.
    for _ in 0..3 {
        for (bytes, keeps, deadline) in [
            (&b""[..], false, "first_bytes_timeout"),
            (b"part", true, "_timeout"),
            (b"whole", false, "idle_timeout"),
        ] {
            let (_conn, mut peer, calls) = connect(keeps, Pauses::Never);
            if !bytes.is_empty() {
                peer.send(bytes);
                assert_eq!(received(&calls), bytes);
            }
            let reason = closed(&calls);
            assert!(reason.contains(deadline), "{reason} in place of {deadline}");
        }
    }
    assert!(![&silent, &partial, &idle].into_iter().any(Connection::is_closed));
    // They can be read, and their time runs again.
    for (conn, peer, calls, kept) in [
        (silent, &mut first, silent_calls, &b""[..]),
        (idle, &mut third, idle_calls, b""),
        (partial, &mut second, partial_calls, b"part"),
    ] {
        peer.send(b"late");
        let mut got = Vec::new();
        while !got.ends_with(b"late") {
            conn.resume_reads();
            got = received(&calls);
        }
        assert_eq!(got, [kept, b"late"].concat());
        if kept.is_empty() {
            conn.resume_reads();
            assert!(closed(&calls).contains("idle_timeout"));
        }
    }
}

#[test]
fn a_paused_connection_notices_a_reset() {
    for kind in BOTH {
        for first in [&b""[..], b"read before the reset"] {
            let (probe, calls) = Probe::new();
            let server =
                Server::start(kind, config(), Probe { pauses: Pauses::InReceived, ..probe });
            let mut peer = server.peer();
            let conn = opened(&calls);
            if first.is_empty() {
                conn.pause_reads();
            } else {
                peer.send(first);
                assert_eq!(received(&calls), first);
            }
            peer.send(b"never read");
            peer.reset();
            if kind == Kind::Unix {
                // A Unix socket reports a peer that is gone by the end of its stream.
                conn.resume_reads();
                assert_eq!(received(&calls), b"never read");
                conn.resume_reads();
                assert!(matches!(next(&calls), Call::Ended));
                continue;
            }
            assert!(closed(&calls).starts_with("the peer is gone"));
            server.wait_until_empty();
            assert_eq!(server.count(Counter::ClosedReset), 1);
        }
    }
}

/// Sends back its input, and gives its connection to the test at each call.
fn given_away() -> (impl Protocol, mpsc::Receiver<Connection>) {
    let (give, given) = mpsc::channel();
    let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        let _ = give.send(conn.clone());
        echo(conn, input)
    });
    (protocol, given)
}

#[test]
fn pauses_from_many_threads_lose_no_byte() {
    for kind in BOTH {
        let (protocol, given) = given_away();
        let server = Server::start(kind, config(), protocol);
        let bytes = pattern(1 << 20);
        let mut peer = server.peer();
        peer.echo(b"open");
        let conn = given.recv_timeout(LONG).expect("a connection");
        thread::scope(|scope| {
            let mut writer = peer.other();
            let bytes = &bytes;
            let written = scope.spawn(move || writer.send(bytes));
            let toggle = || {
                for _ in 0..1000 {
                    conn.pause_reads();
                    thread::yield_now();
                    conn.resume_reads();
                }
            };
            let toggles = [scope.spawn(toggle), scope.spawn(toggle)];
            assert!(peer.receive(bytes.len()) == *bytes, "{kind:?}");
            written.join().expect("no panic");
            toggles.into_iter().for_each(|toggle| toggle.join().expect("no panic"));
        });
        conn.resume_reads();
        peer.echo(b"afterwards");
    }
}

/// Compares each call of `notified` with the notifications that were given before.
struct Counting {
    given: Arc<AtomicUsize>,
    seen: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
    opened: mpsc::Sender<Connection>,
}

impl Protocol for Counting {
    /// True after `opened`.
    type State = bool;

    fn opened(&self, conn: &Connection) -> Result<bool, Close> {
        let _ = self.opened.send(conn.clone());
        Ok(true)
    }

    fn received(
        &self,
        conn: &Connection,
        _: &mut bool,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        echo(conn, input)
    }

    fn notified(&self, _: &Connection, is_open: &mut bool, _: &mut Input<'_>) -> Result<(), Close> {
        assert!(*is_open);
        self.seen.store(self.given.load(Ordering::SeqCst), Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_call_of_notified_begins_after_the_last_notification() {
    const THREADS: usize = 4;
    const EACH: usize = 2000;
    for paused in [false, true] {
        let (given, seen, calls) = (Arc::default(), Arc::default(), Arc::default());
        let (open, opened) = mpsc::channel();
        let counts: [&Arc<AtomicUsize>; 3] = [&given, &seen, &calls];
        let [given_2, seen_2, calls_2] = counts.map(Arc::clone);
        let protocol = Counting { given: given_2, seen: seen_2, calls: calls_2, opened: open };
        let server = Server::start(Kind::Tcp, config(), protocol);
        let mut peer = server.peer();
        let conn = opened.recv_timeout(LONG).expect("a connection");
        if paused {
            conn.pause_reads();
        }
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        given.fetch_add(1, Ordering::SeqCst);
                        conn.notify();
                    }
                });
            }
            if !paused {
                (0..100).for_each(|_| peer.echo(b"beside"));
            }
        });
        eventually(LONG, || seen.load(Ordering::SeqCst) == THREADS * EACH);
        assert!(calls.load(Ordering::SeqCst) <= THREADS * EACH);
        conn.resume_reads();
        peer.echo(b"afterwards");
    }
}

#[test]
fn a_notification_waits_for_opened_and_gets_the_bytes_that_were_kept() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Frames::default());
        let (probe, calls) = Probe::new();
        let runtime = Runtime::builder().config(config()).start().expect("a runtime");
        let probe = Probe { keeps: true, ..probe };
        let conn = runtime.connect(server.address(), probe).expect("it begins");
        conn.notify();
        opened(&calls);
        assert!(matches!(next(&calls), Call::Notified(bytes) if bytes.is_empty()));
        let question = frame(1, b"?");
        conn.send(&question);
        let mut kept = received(&calls);
        while kept.len() < question.len() {
            kept = received(&calls);
        }
        conn.notify();
        assert!(matches!(next(&calls), Call::Notified(bytes) if bytes == question));
        // `released` follows, as after `received`.
        assert!(matches!(calls.recv_timeout(LONG), Ok(Call::Released)));
        conn.close("enough");
        assert_eq!(closed(&calls), "enough");
        conn.notify();
        assert_clean(&runtime.drain(LONG));
        assert!(calls.try_iter().all(|call| matches!(call, Call::Released)), "nothing follows");
    }
}

#[test]
fn a_half_closed_connection_is_read_until_its_peer_finishes_too() {
    for kind in BOTH {
        let (probe, calls) = Probe::new();
        let server = Server::start(kind, config(), probe);
        let mut peer = Peer::try_connect(server.address(), Some(4096)).expect("connected");
        let conn = opened(&calls);
        // More than the socket takes.
        let reply = pattern(8 << 20);
        assert!(matches!(conn.send(&reply), Sent::Queued(_)));
        conn.shutdown_write();
        assert_eq!(conn.send(b"too late"), Sent::Closed);
        assert!(!conn.is_closed());
        assert!(peer.receive_to_finish() == reply, "{kind:?}");
        drained(&calls);
        for question in [b"one", b"two"] {
            peer.send(question);
            assert_eq!(received(&calls), question);
        }
        peer.finish();
        loop {
            match next(&calls) {
                Call::Drained => {}
                Call::Ended => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(closed(&calls), "the peer finished");
        server.wait_until_empty();
        assert_eq!(server.count(Counter::ClosedByPeer), 1);
    }
}

#[test]
fn a_connection_half_closes_after_its_peer_has() {
    for kind in BOTH {
        let (probe, calls) = Probe::new();
        let server = Server::start(kind, config(), probe);
        let mut peer = server.peer();
        let conn = opened(&calls);
        peer.finish();
        assert!(matches!(next(&calls), Call::Ended));
        assert_ne!(conn.send(b"last words"), Sent::Closed);
        conn.shutdown_write();
        assert_eq!(peer.receive_to_finish(), b"last words");
        assert_eq!(closed(&calls), "the peer finished");
    }
}

#[test]
fn a_half_close_before_the_connection_is_established_follows_its_bytes() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Bytes::new(echo));
        let runtime = Runtime::builder().config(config()).start().expect("a runtime");
        for _ in 0..100 {
            let (probe, calls) = Probe::new();
            let conn = runtime.connect(server.address(), probe).expect("it begins");
            conn.send(b"question");
            conn.shutdown_write();
            opened(&calls);
            assert_eq!(received(&calls), b"question", "{kind:?}");
            assert!(matches!(next(&calls), Call::Ended));
            assert_eq!(closed(&calls), "the peer finished");
        }
        assert_clean(&runtime.drain(LONG));
    }
}

#[test]
fn a_close_after_a_half_close_has_its_reason_and_does_not_hang() {
    for kind in BOTH {
        let (probe, calls) = Probe::new();
        let server = Server::start(kind, config(), probe);
        for round in 0..200 {
            let mut peer = server.peer();
            let conn = opened(&calls);
            conn.send(b"reply");
            if round % 2 == 0 {
                conn.shutdown_write();
                assert_eq!(peer.receive_to_finish(), b"reply");
                conn.close("done");
            } else {
                thread::scope(|scope| {
                    scope.spawn(|| conn.shutdown_write());
                    conn.close("done");
                });
                assert_eq!(peer.receive_to_finish(), b"reply");
            }
            drop(peer);
            loop {
                match next(&calls) {
                    Call::Ended => {}
                    Call::Closed(reason) => break assert_eq!(reason, "done"),
                    other => panic!("{other:?}"),
                }
            }
        }
        server.wait_until_empty();
    }
}

#[test]
fn sends_that_overlap_a_half_close_arrive_whole_or_are_refused() {
    const SENDERS: u8 = 3;
    for kind in BOTH {
        let (probe, calls) = Probe::new();
        let server = Server::start(kind, config(), probe);
        for round in 0..200 {
            // Larger than a page: into a smaller buffer, the kernel sends a few segments a second
            // once it was full.
            let mut peer = Peer::try_connect(server.address(), Some(1 << 16)).expect("connected");
            let conn = opened(&calls);
            let begin = Barrier::new(usize::from(SENDERS) + 1);
            let (got, expected) = thread::scope(|scope| {
                let senders: Vec<_> = (0..SENDERS)
                    .map(|sender| {
                        let (conn, begin) = (&conn, &begin);
                        scope.spawn(move || {
                            begin.wait();
                            let taken = |_: &usize| conn.send([sender; 100]) != Sent::Closed;
                            100 * (0..1000).take_while(taken).count()
                        })
                    })
                    .collect();
                begin.wait();
                conn.shutdown_write();
                let got = peer.receive_to_finish();
                let sent = senders.into_iter().map(|sender| sender.join().expect("sent"));
                (got, sent.collect::<Vec<usize>>())
            });
            let mut counts = vec![0; expected.len()];
            got.iter().for_each(|sender| counts[usize::from(*sender)] += 1);
            assert_eq!(counts, expected, "{kind:?}, round {round}");
            peer.finish();
            loop {
                match next(&calls) {
                    Call::Drained | Call::Ended => {}
                    Call::Closed(reason) => break assert_eq!(reason, "the peer finished"),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// Sends more than its peer reads, and waits for `drained` in `received`.
struct WaitsForRoom {
    low: mpsc::Sender<()>,
    is_low: Mutex<mpsc::Receiver<()>>,
    begun: mpsc::Sender<()>,
}

impl Protocol for WaitsForRoom {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        input.take_all();
        conn.send(pattern(4 << 20));
        conn.notify_when_drained();
        let _ = self.begun.send(());
        let is_low = self.is_low.lock().expect("no panic");
        let waits = stall::enter_as(stall::Wait::Network);
        is_low.recv_timeout(LONG).map_err(|_| "drained was not called")?;
        drop(waits);
        conn.send(b"done");
        Ok(())
    }

    fn drained(&self, _: &Connection) {
        let _ = self.low.send(());
    }
}

#[test]
fn a_handler_can_wait_for_its_own_connection_to_drain() {
    for effect in [FullBacklog::PauseReads, FullBacklog::Notify] {
        let (low, is_low) = mpsc::channel();
        let (begun, has_begun) = mpsc::channel();
        let protocol = WaitsForRoom { low, is_low: Mutex::new(is_low), begun };
        let runtime = Runtime::builder().config(config()).start().expect("a runtime");
        let options = ListenOptions::new().full_backlog(effect);
        let listener = runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener");
        let mut peer = Peer::try_connect(listener.local_addr(), Some(4096)).expect("connected");
        peer.send(b"?");
        has_begun.recv_timeout(LONG).expect("the handler runs");
        assert!(peer.receive(4 << 20) == pattern(4 << 20), "{effect:?}");
        assert_eq!(peer.receive(4), b"done");
    }
}

#[test]
fn a_full_backlog_stops_the_input_unless_the_listener_chose_a_notice() {
    let config = config().write_high_watermark_bytes(64 << 10).write_low_watermark_bytes(0);
    for (effect, reads) in [(FullBacklog::PauseReads, false), (FullBacklog::Notify, true)] {
        let runtime = Runtime::builder().config(config.clone()).start().expect("a runtime");
        let (probe, calls) = Probe::new();
        let options = ListenOptions::new().full_backlog(effect);
        let listener = runtime.listen_with("127.0.0.1:0", options, probe).expect("a listener");
        let mut peer = Peer::try_connect(listener.local_addr(), Some(4096)).expect("connected");
        let conn = opened(&calls);
        conn.send(pattern(8 << 20));
        peer.send(b"question");
        if reads {
            assert_eq!(received(&calls), b"question");
        } else {
            let counted = || runtime.stats().get(Counter::ReadsPaused);
            eventually(LONG, || counted() == 1);
            // The user has no pause that could end.
            conn.resume_reads();
            conn.notify();
            assert!(matches!(next(&calls), Call::Notified(_)));
            assert_eq!(runtime.stats().get(Counter::ReadsResumed), 0);
        }
        assert!(peer.receive(8 << 20) == pattern(8 << 20));
        drained(&calls);
        // `drained` may be called more than once.
        if !reads {
            let question = loop {
                match next(&calls) {
                    Call::Drained => {}
                    Call::Received(bytes) => break bytes,
                    other => panic!("{other:?} in place of received"),
                }
            };
            assert_eq!(question, b"question");
        }
    }
}

#[test]
fn a_pause_by_the_user_does_not_lower_the_limit_of_the_backlog() {
    // The backlog stays between the watermarks until the peer reads.
    let config = config().write_high_watermark_bytes(16 << 20).write_low_watermark_bytes(0);
    let (probe, calls) = Probe::new();
    let server = Server::start(Kind::Tcp, config, probe);
    let mut peer = Peer::try_connect(server.address(), Some(4096)).expect("connected");
    let conn = opened(&calls);
    assert!(matches!(conn.send(pattern(8 << 20)), Sent::Queued(_)));
    conn.pause_reads();
    peer.send(b"question");
    server.wait_for(Counter::ReadsPaused, 1);
    conn.resume_reads();
    assert_eq!(received(&calls), b"question");
    assert!(conn.pending_bytes() > 0, "the peer has not read");
}

#[test]
fn a_drain_waits_for_a_paused_connection_and_answers_its_input() {
    let (protocol, given) = given_away();
    let server = Server::start(Kind::Tcp, config(), protocol);
    let mut peer = server.peer();
    peer.echo(b"open");
    let conn = given.recv_timeout(LONG).expect("a connection");
    conn.pause_reads();
    peer.send(b"question");
    let handle = server.runtime.handle();
    let drain = thread::spawn(move || server.drain(LONG));
    eventually(LONG, || handle.spawn(|| ()).is_err());
    conn.resume_reads();
    assert_eq!(peer.receive_to_finish(), b"question");
    let report = drain.join().expect("no panic");
    assert_clean(&report);
    assert_eq!(report.finished, 1);
}

#[test]
fn a_drain_does_not_wait_for_a_pause_that_holds_no_input_back() {
    for kind in BOTH {
        let (protocol, given) = given_away();
        let server = Server::start(kind, config(), protocol);
        let mut peer = server.peer();
        peer.echo(b"open");
        let conn = given.recv_timeout(LONG).expect("a connection");
        conn.pause_reads();
        // The peer waits for less than this deadline.
        let drain = thread::spawn(move || server.drain(LONG * 60));
        assert_eq!(peer.receive_to_finish(), b"", "{kind:?}");
        let report = drain.join().expect("no panic");
        assert_clean(&report);
        assert_eq!(report.finished, 1, "{kind:?}");
    }
}

/// Fills the backlog in `received` or `released`, and waits there for `drained`.
struct Waits {
    in_released: bool,
    low: mpsc::Sender<()>,
    is_low: Mutex<mpsc::Receiver<()>>,
    /// The connection when the wait begins, and again when it is over.
    steps: mpsc::Sender<Connection>,
}

impl Waits {
    fn new(in_released: bool) -> (Self, mpsc::Receiver<Connection>) {
        let ((low, is_low), (steps, stepped)) = (mpsc::channel(), mpsc::channel());
        (Self { in_released, low, is_low: Mutex::new(is_low), steps }, stepped)
    }

    fn wait(&self, conn: &Connection) {
        conn.send(pattern(4 << 20));
        conn.notify_when_drained();
        let _ = self.steps.send(conn.clone());
        let is_low = self.is_low.lock().expect("no panic");
        let waits = stall::enter_as(stall::Wait::Network);
        if is_low.recv_timeout(LONG).is_ok() {
            let _ = self.steps.send(conn.clone());
        }
        drop(waits);
    }
}

impl Protocol for Waits {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        input.take_all();
        if self.in_released {
            return Err("the last request".into());
        }
        self.wait(conn);
        Ok(())
    }

    fn released(&self, conn: &Connection, _: Turn) {
        if self.in_released {
            self.wait(conn);
        }
    }

    fn drained(&self, _: &Connection) {
        let _ = self.low.send(());
    }
}

#[test]
fn the_last_released_can_wait_for_its_connection_to_drain() {
    for kind in BOTH {
        let (protocol, steps) = Waits::new(true);
        let server = Server::start(kind, config(), protocol);
        let mut peer = Peer::try_connect(server.address(), Some(4096)).expect("connected");
        peer.send(b"?");
        steps.recv_timeout(LONG).expect("it waits");
        assert!(peer.receive(4 << 20) == pattern(4 << 20), "{kind:?}");
        steps.recv_timeout(LONG).expect("drained was called");
        assert!(peer.receive_to_finish().is_empty());
    }
}

#[test]
fn a_handler_that_waits_for_its_connection_to_drain_learns_of_its_end() {
    #[derive(Debug, PartialEq, Eq)]
    enum End {
        Reset,
        WriteTimeout,
        Cut,
    }
    for end in [End::Reset, End::WriteTimeout, End::Cut] {
        let config = match end {
            End::WriteTimeout => config().net_write_timeout(Duration::from_millis(100)),
            _ => config(),
        };
        let (protocol, steps) = Waits::new(false);
        let server = Server::start(Kind::Tcp, config, protocol);
        let mut peer = Peer::try_connect(server.address(), Some(4096)).expect("connected");
        peer.send(b"?");
        steps.recv_timeout(LONG).expect("it waits");
        let mut peer = Some(peer);
        match end {
            End::Reset => peer.take().expect("the first time").reset(),
            End::WriteTimeout => {}
            End::Cut => {
                let report = server.drain(Duration::from_millis(100));
                // The handler that learns of the cut may leave its thread too late for the drain.
                assert_eq!((report.finished, report.cut), (0, 1), "{report}");
            }
        }
        let conn = steps.recv_timeout(LONG).unwrap_or_else(|_| panic!("{end:?} is not noticed"));
        assert!(conn.is_closed(), "{end:?}");
    }
}

/// Refuses each connection, and reports the calls.
struct Refuses(mpsc::Sender<&'static str>);

impl Protocol for Refuses {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        conn.send(b"no");
        conn.notify_when_drained();
        conn.notify();
        let _ = self.0.send("opened");
        Err("refused".into())
    }

    fn received(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        let _ = self.0.send("received");
        Ok(())
    }

    fn notified(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        let _ = self.0.send("notified");
        Ok(())
    }

    fn drained(&self, _: &Connection) {
        let _ = self.0.send("drained");
    }
}

#[test]
fn no_call_follows_an_opened_that_refuses_its_connection() {
    for kind in BOTH {
        let (calls, called) = mpsc::channel();
        let server = Server::start(kind, config(), Refuses(calls));
        for round in 0..100 {
            let mut peer = server.peer();
            // The connection lingers until the peer is gone.
            assert_eq!(peer.receive_to_finish(), b"no");
            drop(peer);
            server.wait_until_empty();
            assert_eq!(called.try_iter().collect::<Vec<_>>(), ["opened"], "{kind:?}, {round}");
        }
    }
}

/// Echoes frames, announces their size, and gives its connection away when one has begun.
fn announces() -> (impl Protocol, mpsc::Receiver<Connection>) {
    let (give, given) = mpsc::channel();
    let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        let header = Dialect::Legacy.parse(input.bytes(), 64 << 20).map_err(Close::error)?;
        match header.map(|header| Dialect::Legacy.frame_bytes(&header)) {
            Some(bytes) if input.len() < bytes => {
                let _ = give.send(conn.clone());
                input.need(bytes);
            }
            Some(bytes) => drop(conn.send(input.take(bytes))),
            None => {}
        }
        Ok(())
    });
    (protocol, given)
}

#[test]
fn a_partial_frame_is_late_although_the_backlog_is_low_again_and_again() {
    let config = config().frame_timeout(Duration::from_millis(100));
    let (probe, calls) = Probe::new();
    let server = Server::start(Kind::Tcp, config, Probe { keeps: true, ..probe });
    let mut peer = server.peer();
    let conn = opened(&calls);
    peer.send(b"part");
    assert_eq!(received(&calls), b"part");
    let begun = Instant::now();
    let reason = loop {
        assert!(begun.elapsed() < LONG, "each notice gave the peer more time");
        conn.notify_when_drained();
        match next(&calls) {
            Call::Drained => {}
            Call::Closed(reason) => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(reason.contains("frame"), "{reason}");
}

#[test]
fn a_notification_within_a_frame_does_not_forget_its_announced_size() {
    for kind in BOTH {
        let (protocol, given) = announces();
        let server = Server::start(kind, config().max_allowed_packet(4 << 20), protocol);
        let mut peer = server.peer();
        let whole = frame(1, &pattern(2 << 20));
        let (begin, rest) = whole.split_at(1 << 20);
        peer.send(begin);
        let conn = given.recv_timeout(LONG).expect("the frame has begun");
        eventually(LONG, || server.stats().buffered_bytes >= begin.len() as u64);
        server.runtime.reconfigure(|config| config.max_allowed_packet(1 << 20)).expect("live");
        conn.notify();
        conn.notify();
        peer.send(rest);
        assert!(peer.receive(whole.len()) == whole, "{kind:?}");
    }
}
