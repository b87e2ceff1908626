//! Limits: each is reached, counted, and leaves the runtime able to go on.

use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use epoll_group::Config;
use epoll_group::net::{Close, Connection, Input};
use epoll_group::stats::Counter;
use lab::peer::frame;
use lab::protocol::{Bytes, Frames, echo};
use lab::workers::Gate;
use lab::{BOTH, Kind, LONG, Peer, Server, assert_clean, config, eventually, pattern};

const MIB: usize = 1 << 20;

#[test]
fn max_connections_refuses_with_a_close_and_recovers() {
    for kind in BOTH {
        let server = Server::start(kind, config().max_connections(10), Bytes::new(echo));
        let mut peers: Vec<_> = (0..10).map(|_| server.peer()).collect();
        peers.iter_mut().for_each(|peer| peer.echo(b"in"));
        for refused in 1..=5 {
            assert!(server.peer().receive_all().0.is_empty(), "{kind:?}");
            server.wait_for(Counter::ConnectionsRefusedLimit, refused);
        }
        peers.iter_mut().for_each(|peer| peer.echo(b"still in"));
        peers.truncate(9);
        eventually(LONG, || server.stats().connections == 9);
        server.peer().echo(b"a place");
        assert_eq!(server.count(Counter::ConnectionsRefusedLimit), 5);
    }
}

#[test]
fn max_silent_connections_refuses_and_leaves_room_for_those_that_speak() {
    for kind in BOTH {
        let server = Server::start(kind, config().max_silent_connections(10), Bytes::new(echo));
        let mut spoken: Vec<_> = (0..20)
            .map(|_| {
                let mut peer = server.peer();
                peer.echo(b"hello");
                peer
            })
            .collect();
        let mut mute: Vec<_> = (0..10).map(|_| server.peer()).collect();
        eventually(LONG, || server.stats().silent_connections == 10);
        for refused in 1..=5 {
            assert!(server.peer().receive_all().0.is_empty(), "{kind:?}");
            server.wait_for(Counter::ConnectionsRefusedSilentLimit, refused);
        }
        spoken.iter_mut().for_each(|peer| peer.echo(b"again"));
        mute[0].echo(b"not mute any more");
        assert_eq!(server.stats().silent_connections, 9);
        server.peer().echo(b"a place");
        drop(mute);
        eventually(LONG, || server.stats().silent_connections == 0);
    }
}

#[test]
fn who_sends_nothing_is_closed_after_first_bytes_timeout() {
    for kind in BOTH {
        let (protocol, ends) = Bytes::with_ends(echo);
        let config = config().first_bytes_timeout(Duration::from_millis(100));
        let server = Server::start(kind, config, protocol);
        let mut spoken = server.peer();
        spoken.echo(b"hello");
        let mut mute: Vec<_> = (0..20).map(|_| server.peer()).collect();
        for peer in &mut mute {
            assert!(peer.receive_to_finish().is_empty());
        }
        let reasons = ends.wait_for(20);
        let expected = "the peer sent nothing within first_bytes_timeout 100ms";
        assert!(reasons.iter().all(|reason| reason == expected), "{kind:?}: {reasons:?}");
        assert_eq!(server.count(Counter::ClosedFirstBytesTimeout), 20);
        // Silence after the first bytes is allowed.
        spoken.echo(b"still here");
        eventually(LONG, || server.stats().silent_connections == 0);
    }
}

#[test]
fn without_a_time_for_first_bytes_the_idle_time_begins_at_once() {
    for kind in BOTH {
        let (protocol, ends) = Bytes::with_ends(echo);
        let config = config().first_bytes_timeout(Duration::ZERO).max_silent_connections(1);
        let server = Server::start(kind, config.idle_timeout(Duration::from_millis(100)), protocol);
        let mut peers = [(); 3].map(|()| server.peer());
        eventually(LONG, || server.count(Counter::ConnectionsAccepted) == 3);
        for peer in &mut peers {
            assert!(peer.receive_to_finish().is_empty());
        }
        assert_eq!(ends.wait_for(3), ["idle for idle_timeout 100ms"; 3], "{kind:?}");
        assert_eq!(server.stats().silent_connections, 0);
    }
}

#[test]
fn who_was_silent_when_the_limit_was_switched_off_is_idle_from_its_end_on() {
    let config = config().first_bytes_timeout(Duration::from_secs(1));
    let server = Server::start(Kind::Tcp, config, Bytes::new(echo));
    let mut peer = server.peer();
    eventually(LONG, || server.stats().silent_connections == 1);
    server.runtime.reconfigure(|config| config.first_bytes_timeout(Duration::ZERO)).expect("valid");
    eventually(LONG, || server.stats().silent_connections == 0);
    peer.echo(b"still here");
}

#[test]
fn who_is_idle_is_closed_after_idle_timeout() {
    for kind in BOTH {
        let held = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&held);
        let (protocol, ends) = Bytes::with_ends(move |conn, input| {
            if input.take_all() == b"hold" {
                *keep.lock().unwrap() = Some(conn.hold());
            }
            conn.send("heard");
            Ok(())
        });
        let config = config().idle_timeout(Duration::from_millis(100));
        let server = Server::start(kind, config, protocol);
        let (mut busy, mut idle) = (server.peer(), server.peer());
        busy.send(b"hold");
        assert_eq!(busy.receive(5), b"heard");
        idle.send(b"hello");
        assert_eq!(idle.receive(5), b"heard");
        assert!(idle.receive_to_finish().is_empty());
        // A connection that waits for an answer is not idle.
        busy.send(b"hello");
        assert_eq!(busy.receive(5), b"heard");
        drop(held.lock().unwrap().take());
        assert!(busy.receive_to_finish().is_empty());
        assert_eq!(ends.wait_for(2), ["idle for idle_timeout 100ms"; 2], "{kind:?}");
        assert_eq!(server.count(Counter::ClosedIdleTimeout), 2);
    }
}

#[test]
fn who_does_not_complete_a_frame_is_closed_after_frame_timeout() {
    for kind in BOTH {
        let protocol = Frames::default();
        let ends = protocol.ends.clone();
        let server = Server::start(kind, config(), protocol);
        let timeout = |limit| {
            server.runtime.reconfigure(|config| config.frame_timeout(limit)).expect("live");
        };
        let long = frame(1, &pattern(MIB));
        let mut in_time = server.peer();
        in_time.echo(&long);
        let mut stops = server.peer();
        stops.echo(&long);
        timeout(Duration::from_millis(100));
        stops.send(&long[..1000]);
        assert!(stops.receive_to_finish().is_empty());
        // A frame that arrives byte by byte is cut, too.
        let mut trickles = server.peer();
        let _ = long.iter().try_for_each(|byte| trickles.write_all(&[*byte]));
        let reasons = ends.wait_for(2);
        let expected = "the peer did not complete a frame within frame_timeout 100ms";
        assert_eq!(reasons, [expected; 2], "{kind:?}");
        assert_eq!(server.count(Counter::ClosedFrameTimeout), 2);
        // Silence between frames is allowed.
        timeout(LONG);
        in_time.echo(&long);
    }
}

#[test]
fn a_frame_that_we_do_not_read_is_not_late() {
    for kind in BOTH {
        let config = config()
            .frame_timeout(Duration::from_secs(1))
            .write_high_watermark_bytes(64 * 1024)
            .write_low_watermark_bytes(0);
        // A frame is a line; before one, a `>` asks for much.
        let (protocol, _) = Bytes::with_ends(|conn, input| {
            if input.bytes().starts_with(b">") {
                input.consume(1);
                conn.send(pattern(16 * MIB));
            }
            if input.bytes().ends_with(b"\n") {
                conn.send(input.take_all());
            }
            Ok(())
        });
        let server = Server::start(kind, config, protocol);
        let mut paused = server.peer();
        paused.send(b">half of ");
        eventually(LONG, || server.stats().buffered_bytes > MIB as u64);
        paused.send(b"a ");
        server.wait_for(Counter::ReadsPaused, 1);
        paused.send(b"line\n");
        // Once a later frame has timed out, the time of the paused frame has passed too.
        let mut late = server.peer();
        late.send(b"half of a");
        assert!(late.receive_to_finish().is_empty());
        assert_eq!(paused.receive(16 * MIB), pattern(16 * MIB));
        assert_eq!(paused.receive(15), b"half of a line\n");
        assert_eq!(server.count(Counter::ClosedFrameTimeout), 1);
    }
}

#[test]
fn a_frame_that_was_announced_keeps_its_limit() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Frames::default());
        let long = frame(1, &pattern(MIB));
        let mut peer = server.peer();
        peer.send(&long[..1000]);
        eventually(LONG, || server.stats().buffered_bytes >= 1000);
        let lower = |config: Config| config.max_allowed_packet(4096);
        server.runtime.reconfigure(lower).expect("live");
        peer.send(&long[1000..]);
        assert_eq!(peer.receive(long.len()), long);
        peer.echo(&frame(2, b"short"));
        // The header tells the length. More than `linger_bytes` behind it would end in a reset.
        peer.send(&long[..1000]);
        assert!(peer.receive_to_finish().is_empty());
        server.wait_for(Counter::ClosedFrameTooLong, 1);
    }
}

#[test]
fn greedy_peers_leave_memory_for_others() {
    for kind in BOTH {
        let server = Server::start(kind, config().max_buffered_bytes(4 * MIB), Frames::default());
        let unfinished = frame(1, &pattern(32 * MIB));
        let mut others: Vec<_> = (0..4).map(|_| server.peer()).collect();
        let mut greedy: Vec<_> = (0..64).map(|_| server.peer()).collect();
        for size in [MIB, MIB / 4, MIB / 16, MIB / 64] {
            for peer in &mut greedy {
                let _ = peer.write_all(&unfinished[..size]);
            }
        }
        server.wait_for(Counter::ClosedMemoryBudget, 1);
        let small = frame(2, &pattern(7 * 1024));
        for peer in &mut others {
            peer.send(&small[..4000]);
        }
        for peer in &mut others {
            peer.send(&small[4000..]);
            assert_eq!(peer.receive(small.len()), small);
        }
        drop(greedy);
    }
}

#[test]
fn max_buffered_bytes_closes_who_would_grow_past_it() {
    for kind in BOTH {
        let protocol = Frames::default();
        let ends = protocol.ends.clone();
        let server = Server::start(kind, config().max_buffered_bytes(4 * MIB), protocol);
        let unfinished = &frame(1, &pattern(32 * MIB))[..MIB];
        let mut peers: Vec<_> = (0..8).map(|_| server.peer()).collect();
        for peer in &mut peers {
            // The connection may be cut while the peer sends.
            let _ = peer.write_all(unfinished);
        }
        server.wait_for(Counter::ClosedMemoryBudget, 1);
        // The excess is at most one small receive for each of four workers.
        assert!(server.stats().buffered_bytes <= 5 * MIB as u64);
        let reasons = ends.wait_for(1);
        let expected = "would leave too little of max_buffered_bytes 4194304";
        assert!(reasons[0].ends_with(expected), "{reasons:?}");
        drop(peers);
        server.wait_until_empty();
        assert_eq!(server.stats().buffered_bytes, 0, "{kind:?}");
        server.peer().echo(&frame(2, &pattern(MIB)));
    }
}

#[test]
fn max_buffered_bytes_closes_whose_backlog_would_pass_it() {
    for kind in BOTH {
        let (protocol, ends) = Bytes::with_ends(|conn, input| {
            input.take_all();
            for _ in 0..64 {
                conn.send(vec![7; MIB]);
            }
            Ok(())
        });
        let server = Server::start(kind, config().max_buffered_bytes(16 * MIB), protocol);
        for round in 1..=3 {
            let mut peer = server.peer();
            peer.send(b"more than there is room for");
            let reasons = ends.wait_for(round);
            let expected = "would leave too little of max_buffered_bytes 16777216";
            assert!(reasons[round - 1].ends_with(expected), "{kind:?}: {reasons:?}");
            assert_eq!(server.count(Counter::ClosedMemoryBudget), round as u64);
            server.wait_until_empty();
            assert_eq!(server.stats().buffered_bytes, 0);
        }
    }
}

#[test]
fn a_frame_at_max_allowed_packet_passes_and_one_beyond_does_not() {
    const LIMIT: usize = 100_000;
    for kind in BOTH {
        let protocol = Frames::default();
        let ends = protocol.ends.clone();
        let server = Server::start(kind, config().max_allowed_packet(LIMIT), protocol);
        let mut peer = server.peer();
        peer.echo(&frame(1, &pattern(LIMIT)));
        let mut other = server.peer();
        other.send(&frame(2, &pattern(LIMIT + 64))[..13]);
        assert!(other.receive_all().0.is_empty());
        let reasons = ends.wait_for(1);
        assert_eq!(reasons, ["100077 input bytes exceed max_allowed_packet 100000"], "{kind:?}");
        assert_eq!(server.count(Counter::ClosedFrameTooLong), 1);
        peer.echo(&frame(3, &pattern(LIMIT)));
    }
}

/// One worker, so that no work can overtake other work.
fn one_worker() -> Config {
    let config = config().epoll_threads_per_group(1).reserve_threads_per_group(0);
    config.enable_tasker(false).max_threads(2)
}

#[test]
fn with_an_accept_budget_of_one_all_who_came_at_once_are_served() {
    for kind in BOTH {
        // The worker is busy until all clients have arrived.
        let server = Server::start(kind, one_worker().accept_budget(1), Bytes::new(echo));
        let gate = Gate::default();
        let gate_2 = gate.clone();
        server.runtime.handle().spawn(move || gate_2.pass()).expect("room");
        gate.wait_for(1);
        let mut peers: Vec<_> = (0..20).map(|_| server.peer()).collect();
        gate.open();
        peers.iter_mut().for_each(|peer| peer.echo(b"served"));
        assert_eq!(server.count(Counter::ConnectionsAccepted), 20, "{kind:?}");
        drop(peers);
        server.wait_for(Counter::ConnectionsClosed, 20);
    }
}

/// Answers any input with a last message and closes the connection.
fn goodbye(conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
    input.take_all();
    conn.send("bye");
    conn.close("done");
    Ok(())
}

/// A peer that has received the last message and the end of the stream.
fn dismissed(server: &Server) -> Peer {
    let mut peer = server.peer();
    peer.send(b"hello");
    assert_eq!(peer.receive_to_finish(), b"bye");
    peer
}

/// Longer than any wait of these tests.
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn who_sends_more_than_linger_bytes_after_the_end_is_cut() {
    for kind in BOTH {
        let config = config().linger_bytes(1024).linger_timeout(MINUTE);
        let server = Server::start(kind, config, Bytes::new(goodbye));
        let (mut few, mut many) = (dismissed(&server), dismissed(&server));
        few.send(&[0; 1024]);
        // The connection may be cut while the peer sends.
        let _ = many.write_all(&[0; 2048]);
        eventually(LONG, || server.stats().connections == 1);
        eventually(LONG, || many.write_all(b"more").is_err());
        few.finish();
        server.wait_until_empty();
    }
}

#[test]
fn who_goes_on_sending_after_the_end_is_cut_after_linger_timeout() {
    const LINGER: Duration = Duration::from_millis(50);
    for kind in BOTH {
        let config = config().linger_bytes(16 * MIB).linger_timeout(LINGER);
        let server = Server::start(kind, config, Bytes::new(goodbye));
        let began = Instant::now();
        let mut peer = dismissed(&server);
        eventually(LONG, || peer.write_all(b"and").is_err());
        assert!(began.elapsed() >= LINGER, "{kind:?}: {:?}", began.elapsed());
        server.wait_until_empty();
    }
}

#[test]
fn who_was_idle_is_not_lingered_for_to_the_end_of_linger_timeout() {
    for kind in BOTH {
        let server = Server::start(kind, one_worker().linger_timeout(MINUTE), Bytes::new(echo));
        let mut peer = server.peer();
        peer.echo(b"nothing more for now");
        // This task runs behind all work for the connection.
        let (tell, told) = mpsc::channel();
        let code = move || tell.send(()).expect("waited for");
        server.runtime.handle().spawn(code).expect("room");
        told.recv_timeout(LONG).expect("it runs");
        assert_clean(&server.drain(LONG));
    }
}
