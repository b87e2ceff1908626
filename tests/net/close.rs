//! Ends of connections: half-close, our close, panics, listeners that stop.

use std::mem;
use std::net::TcpListener;
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{
    Close, CloseReason, Connection, HalfClose, Hold, Input, Protocol, Sent, Turn,
};
use epoll_group::stats::Counter;
use lab::peer::{End, frame};
use lab::protocol::{Bytes, Frames, echo};
use lab::{BOTH, Kind, LONG, Peer, Server, config, eventually, pattern, workers};

/// Test's side of a protocol that reports each call and then waits for a permission to continue.
type Gate = (mpsc::Receiver<Connection>, mpsc::Sender<()>);

fn gated() -> (impl Fn(&Connection, &mut Input<'_>) -> Result<(), Close> + Send + Sync, Gate) {
    let (inside, entered) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let may_go = Mutex::new(may_go);
    let received = move |conn: &Connection, input: &mut Input<'_>| {
        let _ = inside.send(conn.clone());
        may_go.lock().expect("unpoisoned").recv_timeout(LONG).expect("told to go on");
        echo(conn, input)
    };
    (received, (entered, go))
}

/// Ends 20 connections of each kind: `inside` while the handler runs, `after` once it may go on. Asserts the
/// reason and the counter of the ends.
#[track_caller]
fn ends_while_the_handler_runs(
    reason: &str,
    counter: Counter,
    inside: impl Fn(&mut Peer, &Connection),
    after: impl Fn(&mut Peer),
) {
    for kind in BOTH {
        let (received, (entered, go)) = gated();
        let (protocol, ends) = Bytes::with_ends(received);
        let server = Server::start(kind, config(), protocol);
        for round in 1..=20 {
            let mut peer = server.peer();
            peer.send(b"question");
            let conn = entered.recv_timeout(LONG).expect("a call");
            inside(&mut peer, &conn);
            go.send(()).expect("a handler");
            after(&mut peer);
            assert_eq!(ends.wait_for(round)[round - 1], reason, "{kind:?}");
        }
        server.wait_for(counter, 20);
    }
}

#[test]
fn an_end_that_arrives_while_the_handler_runs_is_seen() {
    ends_while_the_handler_runs(
        "the peer finished",
        Counter::ClosedByPeer,
        |peer, _| peer.finish(),
        |peer| assert_eq!(peer.receive_to_finish(), b"question"),
    );
}

#[test]
fn bytes_and_the_end_that_arrive_while_the_handler_runs_are_seen() {
    for kind in BOTH {
        let (received, (entered, go)) = gated();
        let server = Server::start(kind, config(), Bytes::new(received));
        for _ in 0..20 {
            let mut peer = server.peer();
            peer.send(b"one");
            let _ = entered.recv_timeout(LONG).expect("a call");
            peer.send(b"two");
            peer.finish();
            go.send(()).expect("a handler");
            let _ = entered.recv_timeout(LONG).expect("a second call");
            go.send(()).expect("a handler");
            assert_eq!(peer.receive_to_finish(), b"onetwo");
        }
    }
}

#[test]
fn a_reset_that_arrives_while_the_handler_runs_is_seen() {
    for kind in BOTH {
        let (received, (entered, go)) = gated();
        let (protocol, ends) = Bytes::with_ends(received);
        let server = Server::start(kind, config(), protocol);
        for round in 1..=20 {
            let mut peer = server.peer();
            peer.send(b"question");
            let _ = entered.recv_timeout(LONG).expect("a call");
            peer.reset();
            go.send(()).expect("a handler");
            ends.wait_for(round);
        }
        server.wait_until_empty();
    }
}

#[test]
fn a_long_reply_before_our_close_arrives_whole_though_input_is_unread() {
    const REPLY: usize = 1 << 20;
    let reply = Arc::new(pattern(REPLY));
    for kind in BOTH {
        let (received, (entered, go)) = gated();
        let all = Arc::clone(&reply);
        let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
            input.take_all();
            received(conn, &mut *input)?;
            conn.send(&*all);
            Err("done".into())
        });
        let server = Server::start(kind, config(), protocol);
        for round in 1..=50 {
            let mut peer = server.peer();
            peer.send(b"?");
            let _ = entered.recv_timeout(LONG).expect("a call");
            // The server never reads these bytes.
            peer.send(&pattern(20_000));
            go.send(()).expect("a handler");
            let got = peer.receive_to_finish();
            assert!(got == *reply, "{kind:?}, round {round}: {} of {REPLY} bytes", got.len());
            drop(peer);
            assert_eq!(ends.wait_for(round)[round - 1], "done");
        }
    }
}

/// The bytes that wait are dropped, also those before a `close`.
#[test]
fn an_abort_resets_the_connection() {
    const REPLY: usize = 8 << 20;
    for kind in BOTH {
        let (protocol, ends) = Bytes::with_ends(|conn: &Connection, input: &mut Input<'_>| {
            conn.send(vec![0; REPLY]);
            if input.take_all() == b"close" {
                conn.close("closed");
            }
            conn.abort("aborted");
            assert!(conn.is_closed() && conn.send(b"late") == Sent::Closed);
            Ok(())
        });
        let server = Server::start(kind, config(), protocol);
        for (round, (question, reason)) in
            [(&b"abort"[..], "aborted"), (b"close", "closed")].repeat(10).into_iter().enumerate()
        {
            let mut peer = server.peer();
            peer.send(question);
            assert_eq!(ends.wait_for(round + 1)[round], reason, "{kind:?}");
            let (bytes, end) = peer.receive_all();
            let expected = if kind == Kind::Tcp { End::Reset } else { End::Finished };
            assert!(bytes.len() < REPLY && end == expected, "{kind:?}: {end:?}");
        }
    }
}

/// Protocol that replies, and aborts the connection when it has ended.
struct AbortsLate(mpsc::Sender<()>);

/// Bytes that the kernel takes at once.
const IN_KERNEL: usize = 100_000;

impl Protocol for AbortsLate {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        input.take_all();
        assert_eq!(conn.send(vec![0; IN_KERNEL]), Sent::Sent);
        Ok(())
    }

    fn closed(&self, conn: &Connection, (): (), _: &CloseReason) {
        conn.abort("late");
        let _ = self.0.send(());
    }
}

#[test]
fn an_abort_after_the_end_destroys_no_reply() {
    for kind in BOTH {
        let (tell, ended) = mpsc::channel();
        let server = Server::start(kind, config(), AbortsLate(tell));
        let mut peer = server.peer();
        peer.send(b"?");
        peer.finish();
        ended.recv_timeout(LONG).expect("the connection ends");
        assert_eq!(peer.receive_to_finish().len(), IN_KERNEL, "{kind:?}");
    }
}

/// Without the reset, the peer would take the part that it gets for the whole.
#[test]
fn a_connection_that_ends_with_waiting_bytes_is_reset() {
    const REPLY: usize = 16 << 20;
    let config = config().net_write_timeout(Duration::from_millis(50));
    let (protocol, ends) = Bytes::with_ends(|conn: &Connection, input: &mut Input<'_>| {
        input.take_all();
        conn.send(vec![0; REPLY]);
        Ok(())
    });
    let server = Server::start(Kind::Tcp, config, protocol);
    let mut peer = server.peer();
    peer.send(b"?");
    let reason = &ends.wait_for(1)[0];
    assert!(reason.contains("net_write_timeout"), "{reason}");
    let (bytes, end) = peer.receive_all();
    assert!(bytes.len() < REPLY && end == End::Reset, "{} bytes, {end:?}", bytes.len());
}

#[test]
fn a_held_request_is_answered_after_the_half_close() {
    for kind in BOTH {
        let (defer, deferred) = mpsc::channel();
        let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
            input.take_all();
            let _ = defer.send((conn.clone(), conn.hold()));
            Ok(())
        });
        let server = Server::start(kind, config(), protocol);
        for round in 1..=20 {
            let mut peer = server.peer();
            peer.send(b"question");
            peer.finish();
            let (conn, hold) = deferred.recv_timeout(LONG).expect("a request");
            assert_eq!(ends.all().len(), round - 1, "it waits");
            thread::spawn(move || {
                conn.send(b"answer");
                drop(hold);
            });
            assert_eq!(peer.receive_to_finish(), b"answer");
            ends.wait_for(round);
        }
    }
}

#[test]
fn a_close_from_any_thread_is_reported_once_with_the_first_reason() {
    const THREADS: usize = 4;
    for kind in BOTH {
        let (give, given) = mpsc::channel();
        let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
            let _ = give.send(conn.clone());
            echo(conn, input)
        });
        let server = Server::start(kind, config(), protocol);
        for round in 1..=20 {
            let mut peer = server.peer();
            peer.echo(b"hello");
            let conn = given.recv_timeout(LONG).expect("a connection");
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let conn = conn.clone();
                    scope.spawn(move || conn.close(format!("thread {thread}")));
                }
            });
            assert!(conn.is_closed());
            assert_eq!(conn.send(b"late"), Sent::Closed);
            assert!(peer.receive_to_finish().is_empty());
            drop(peer);
            assert!(ends.wait_for(round)[round - 1].starts_with("thread "));
        }
        server.wait_until_empty();
        assert_eq!(ends.all().len(), 20, "one report for each");
        assert_eq!(server.count(Counter::ClosedByHandler), 20);
    }
}

#[test]
fn a_close_comes_before_an_end_that_arrives_after_it() {
    let inside = |peer: &mut Peer, conn: &Connection| {
        conn.close("done");
        peer.finish();
    };
    ends_while_the_handler_runs("done", Counter::ClosedByHandler, inside, |_| ());
}

#[test]
fn sends_that_overlap_a_close_arrive_whole_or_are_refused() {
    const SENDERS: u8 = 3;
    const BACKLOG: usize = 150_000;
    const MOST: usize = 1000;
    for kind in BOTH {
        let (give, given) = mpsc::channel();
        let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
            input.take_all();
            let _ = give.send(conn.clone());
            Ok::<(), Close>(())
        });
        let server = Server::start(kind, config(), protocol);
        for round in 1..=300 {
            let mut peer = Peer::try_connect(server.address(), Some(4096)).expect("connected");
            peer.send(b"?");
            let conn = given.recv_timeout(LONG).expect("a connection");
            let mut expected = vec![if round % 2 == 0 { BACKLOG } else { 0 }];
            assert_ne!(conn.send(vec![0; expected[0]]), Sent::Closed);
            let begin = Barrier::new(usize::from(SENDERS) + 1);
            let got = thread::scope(|scope| {
                let senders: Vec<_> = (1..=SENDERS)
                    .map(|sender| {
                        let (conn, begin) = (conn.clone(), &begin);
                        scope.spawn(move || {
                            begin.wait();
                            let taken = |_: &usize| conn.send([sender; 100]) != Sent::Closed;
                            100 * (0..MOST).take_while(taken).count()
                        })
                    })
                    .collect();
                begin.wait();
                conn.close("done");
                let got = peer.receive_to_finish();
                expected.extend(senders.into_iter().map(|sender| sender.join().expect("sent")));
                got
            });
            let mut counts = vec![0; expected.len()];
            got.iter().for_each(|sender| counts[usize::from(*sender)] += 1);
            assert_eq!(counts, expected, "{kind:?}, round {round}");
            drop(peer);
            assert_eq!(ends.wait_for(round)[round - 1], "done", "{kind:?}, round {round}");
        }
        server.wait_until_empty();
        assert_eq!(server.count(Counter::ClosedByHandler), 300);
    }
}

#[test]
fn a_panic_in_a_handler_closes_only_its_connection() {
    for kind in BOTH {
        let (protocol, ends) = Bytes::with_ends(|conn: &Connection, input: &mut Input<'_>| {
            assert!(input.bytes() != b"panic", "as asked");
            echo(conn, input)
        });
        let server = Server::start(kind, config(), protocol);
        let workers = server.stats().workers;
        let mut other = server.peer();
        for round in 1..=20 {
            let mut peer = server.peer();
            peer.send(b"panic");
            assert!(peer.receive_all().0.is_empty());
            drop(peer);
            other.echo(b"all is well");
            assert_eq!(ends.wait_for(round)[round - 1], "the handler panicked");
        }
        assert_eq!(server.count(Counter::Panics), 20);
        assert_eq!(server.count(Counter::ClosedPanic), 20);
        assert_eq!(server.stats().workers, workers);
    }
}

/// Runs `test` while both workers are inside a handler and clients with a request wait in the
/// backlog.
fn with_a_backlog(kind: Kind, test: impl FnOnce(&mut Server, &Gate, Vec<Peer>)) -> Server {
    let (received, gate) = gated();
    let mut server = Server::start(kind, config().epoll_threads_per_group(2), Bytes::new(received));
    let mut peers = Vec::new();
    for _ in 0..2 {
        let mut peer = server.peer();
        peer.send(b"question");
        let _ = gate.0.recv_timeout(LONG).expect("a call");
        peers.push(peer);
    }
    for _ in 0..20 {
        let mut peer = server.peer();
        peer.send(b"question");
        peers.push(peer);
    }
    assert_eq!(server.count(Counter::ConnectionsAccepted), 2, "the others wait");
    test(&mut server, &gate, peers);
    server
}

#[test]
fn a_dropped_listener_resets_no_peer_in_its_backlog() {
    for kind in BOTH {
        let server = with_a_backlog(kind, |server, gate, peers| {
            let other = server.runtime.listen("127.0.0.1:0", Frames::default()).expect("another");
            let stopped = mem::replace(&mut server.listener, other);
            let address = stopped.local_addr().clone();
            drop(stopped);
            (0..22).for_each(|_| gate.1.send(()).expect("handlers"));
            for mut peer in peers {
                assert_eq!(peer.receive(8), b"question", "{kind:?}");
                peer.finish();
                assert!(peer.receive_to_finish().is_empty());
            }
            eventually(LONG, || Peer::try_connect(&address, None).is_err());
            // Another listener still accepts.
            server.peer().echo(&frame(1, b"still here"));
        });
        server.wait_for(Counter::ClosedByPeer, 23);
    }
}

#[test]
fn a_drain_resets_nobody_in_the_backlog() {
    for kind in BOTH {
        let mut go_on = None;
        let mut waiting = Vec::new();
        let server = with_a_backlog(kind, |_, gate, peers| {
            go_on = Some(gate.1.clone());
            waiting = peers;
        });
        let go_on = go_on.expect("a gate");
        thread::scope(|scope| {
            let drained = scope.spawn(|| server.runtime.drain(LONG));
            (0..22).for_each(|_| go_on.send(()).expect("handlers"));
            for mut peer in waiting {
                let (bytes, end) = peer.receive_all();
                assert_eq!((&bytes[..], end), (&b"question"[..], End::Finished), "{kind:?}");
            }
            let report = drained.join().expect("a report");
            assert_eq!((report.finished, report.cut, report.stuck.len()), (22, 0, 0), "{report}");
        });
    }
}

/// The handler is slower than the peer, so the socket is never empty.
#[test]
fn a_drain_ends_a_connection_whose_peer_sends_without_end() {
    for kind in BOTH {
        let (inside, entered) = mpsc::channel();
        let slow = move |_: &Connection, input: &mut Input<'_>| {
            input.take_all();
            let _ = inside.send(());
            let until = Instant::now() + Duration::from_millis(1);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let server = Server::start(kind, config(), Bytes::new(slow));
        let mut peer = server.peer();
        let sender = thread::spawn(move || while peer.try_send(&[0; 64 << 10]).is_ok() {});
        (0..20).for_each(|_| entered.recv_timeout(LONG).expect("a call"));
        let report = server.drain(LONG);
        assert_eq!((report.finished, report.cut), (1, 0), "{kind:?}: {report}");
        sender.join().expect("no panic");
    }
}

#[test]
fn a_large_buffer_of_a_silent_connection_is_given_back() {
    for kind in BOTH {
        let config = config().big_buf_release_after(Duration::from_millis(50));
        let server = Server::start(kind, config, Frames::default());
        let mut peer = server.peer();
        let frame = frame(1, &pattern(1 << 20));
        let mut sender = peer.other();
        for _ in 0..3 {
            thread::scope(|scope| {
                scope.spawn(|| sender.send(&frame));
                assert!(peer.receive_frame() == frame);
            });
            eventually(LONG, || server.stats().buffered_bytes == 0);
        }
        assert_eq!(server.stats().connections, 1);
    }
}

/// Refuses each connection, with a message to its peer. Reports each other call.
struct Refuses(mpsc::Sender<&'static str>);

impl Protocol for Refuses {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        conn.send(b"busy");
        Err("refused".into())
    }

    fn connect_failed(&self, _: &Connection, _: &CloseReason) {
        let _ = self.0.send("connect_failed");
    }

    fn received(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        let _ = self.0.send("received");
        Ok(())
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        let _ = self.0.send("ended");
        Ok(HalfClose::End)
    }

    fn draining(&self, _: &Connection, (): &mut ()) {
        let _ = self.0.send("draining");
    }

    fn closed(&self, _: &Connection, (): (), _: &CloseReason) {
        let _ = self.0.send("closed");
    }
}

#[test]
fn a_connection_refused_in_opened_sends_its_last_word_and_gets_no_other_call() {
    for kind in BOTH {
        let (tell, calls) = mpsc::channel();
        let server = Server::start(kind, config(), Refuses(tell));
        for round in 0..20 {
            let mut peer = server.peer();
            if round % 2 == 0 {
                // Without lingering, these unread bytes would reset the connection.
                peer.send(&pattern(20_000));
            }
            assert_eq!(peer.receive_to_finish(), b"busy", "{kind:?}, round {round}");
        }
        server.wait_until_empty();
        assert_eq!(server.count(Counter::ClosedByHandler), 20);
        drop(server);
        assert_eq!(calls.iter().collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

#[test]
fn an_outgoing_connection_refused_in_opened_gets_no_other_call() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Bytes::new(echo));
        let (tell, calls) = mpsc::channel();
        let conn = server.runtime.connect(server.address(), Refuses(tell)).expect("a socket");
        server.wait_for(Counter::ClosedByHandler, 1);
        server.wait_until_empty();
        assert_eq!(conn.send(b"later"), Sent::Closed);
        drop((conn, server));
        assert_eq!(calls.iter().collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

#[test]
fn a_reset_behind_the_half_close_ends_the_connection_of_a_held_request() {
    let (defer, deferred) = mpsc::channel();
    let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
        input.take_all();
        let _ = defer.send(conn.hold());
        Ok(())
    });
    let server = Server::start(Kind::Tcp, config(), protocol);
    for round in 1..=20 {
        let mut peer = server.peer();
        peer.send(b"question");
        peer.finish();
        let hold = deferred.recv_timeout(LONG).expect("a request");
        eventually(LONG, || server.stats().closing_connections == 1);
        assert_eq!(ends.all().len(), round - 1, "it waits");
        peer.reset();
        ends.wait_for(round);
        drop(hold);
    }
    server.wait_for(Counter::ClosedReset, 20);
}

/// Outgoing connection that sends `more` in `released`, behind a gate. It has a hold until
/// `closed`.
struct AsksTwice {
    calls: mpsc::Sender<&'static str>,
    gate: workers::Gate,
    hold: Mutex<Option<Hold>>,
}

impl Protocol for AsksTwice {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        *self.hold.lock().expect("unpoisoned") = Some(conn.hold());
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        input.take_all();
        Ok(())
    }

    fn released(&self, conn: &Connection, _: Turn) {
        self.gate.pass();
        assert_eq!(conn.send(b"more"), Sent::Sent);
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        let _ = self.calls.send("ended");
        Ok(HalfClose::End)
    }

    fn closed(&self, _: &Connection, (): (), _: &CloseReason) {
        // The hold keeps the connection, and so the protocol.
        drop(self.hold.lock().expect("unpoisoned").take());
        let _ = self.calls.send("closed");
    }
}

#[test]
fn an_outgoing_connection_ends_with_its_server_behind_released_whatever_holds_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let runtime = workers::workers(2);
    for _ in 0..20 {
        let (gate, (calls, called)) = (workers::Gate::default(), mpsc::channel());
        let asks = AsksTwice { calls, gate: gate.clone(), hold: Mutex::default() };
        let conn = runtime.connect(address, asks).expect("a socket");
        let mut peer = Peer::accept(&listener);
        peer.send(b"answer");
        gate.wait_for(1);
        peer.finish();
        assert_eq!(called.recv_timeout(LONG), Ok("ended"));
        assert!(!conn.is_closed(), "`released` runs");
        gate.open();
        assert_eq!(peer.receive_to_finish(), b"more");
        drop(peer);
        assert_eq!(called.recv_timeout(LONG), Ok("closed"));
        assert!(conn.is_closed());
        // A hold of a closed connection counts for nothing.
        drop(conn.hold());
    }
}

/// Both come as one event, because the handler runs when they arrive.
#[test]
fn a_reset_that_comes_with_the_half_close_ends_the_connection_of_a_held_request() {
    let (inside, entered) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let may_go = Mutex::new(may_go);
    let (protocol, ends) = Bytes::with_ends(move |conn: &Connection, input: &mut Input<'_>| {
        input.take_all();
        let _ = inside.send(conn.hold());
        may_go.lock().expect("unpoisoned").recv_timeout(LONG).expect("told to go on");
        Ok(())
    });
    let server = Server::start(Kind::Tcp, config(), protocol);
    for round in 1..=20 {
        let mut peer = server.peer();
        peer.send(b"question");
        let hold = entered.recv_timeout(LONG).expect("the handler runs");
        peer.finish();
        peer.reset();
        go.send(()).expect("the handler waits");
        ends.wait_for(round);
        drop(hold);
    }
    server.wait_for(Counter::ClosedReset, 20);
}

#[test]
fn a_close_ends_a_connection_whose_peer_never_stops_sending() {
    for kind in BOTH {
        let (protocol, ends) = Bytes::with_ends(|conn: &Connection, input: &mut Input<'_>| {
            input.take_all();
            conn.close("enough");
            // Meanwhile the peer fills the socket again.
            thread::sleep(Duration::from_millis(2));
            Ok(())
        });
        let server = Server::start(kind, config().read_budget_bytes(4 << 10), protocol);
        let mut peer = server.peer();
        let bytes = pattern(64 << 10);
        let until = Instant::now() + LONG;
        while peer.try_send(&bytes).is_ok() {
            assert!(Instant::now() < until, "{kind:?}: it is still read");
        }
        assert_eq!(ends.wait_for(1), ["enough"]);
        server.wait_for(Counter::ClosedByHandler, 1);
    }
}
