//! Frames of `codec::frame`, which are echoed however their bytes are cut. Broken and abandoned
//! frames, too.

use std::thread;

use epoll_group::codec::frame::HEADER_BYTES;
use epoll_group::net::Close;
use epoll_group::stats::Counter;
use lab::allocator::held_bytes;
use lab::child::in_child;
use lab::peer::{End, frame, header_with_length};
use lab::protocol::{Bytes, Frames};
use lab::{BOTH, Kind, LONG, Server, config, eventually, pattern};

#[test]
fn a_frame_that_comes_byte_by_byte_is_echoed_whole() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Frames::default());
        let mut peer = server.peer();
        let mut sent = 0;
        for (session, size) in (0..).zip([0, 1, 300]) {
            let frame = frame(session, &pattern(size));
            for byte in frame.chunks(1) {
                peer.send(byte);
                sent += 1;
                server.wait_for(Counter::BytesReceived, sent);
            }
            assert!(peer.receive_frame() == frame, "{kind:?}, body of {size}");
        }
        assert_eq!(server.count(Counter::RecvCalls), sent, "{kind:?}");
    }
}

#[test]
fn a_frame_split_anywhere_is_echoed_whole() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Frames::default());
        let mut peer = server.peer();
        let two = [frame(1, &pattern(40)), frame(2, &pattern(7))].concat();
        for cut in 1..two.len() {
            // The first part has been received before the second is sent.
            let received = server.count(Counter::BytesReceived);
            peer.send(&two[..cut]);
            server.wait_for(Counter::BytesReceived, received + cut as u64);
            peer.send(&two[cut..]);
            assert!(peer.receive(two.len()) == two, "{kind:?}, cut at {cut}");
        }
    }
}

#[test]
fn the_largest_frame_is_echoed_whole() {
    // Made before the first connection: with slow code it takes longer than first_bytes_timeout.
    let frame = frame(7, &pattern((64 << 20) - 1));
    for kind in BOTH {
        let server = Server::start(kind, config(), Frames::default());
        let mut peer = server.peer();
        let mut sender = peer.other();
        thread::scope(|scope| {
            scope.spawn(|| sender.send(&frame));
            assert!(peer.receive_frame() == frame, "{kind:?}");
        });
    }
}

#[test]
fn memory_follows_the_bytes_received_and_not_the_length_claimed() {
    const PEERS: usize = 100;
    in_child(|| {
        let server = Server::start(Kind::Tcp, config(), Frames::default());
        server.peer().echo(&frame(1, b"warm"));
        let before = held_bytes();
        let mut peers: Vec<_> = (0..PEERS).map(|_| server.peer()).collect();
        for peer in &mut peers {
            peer.send(&header_with_length(64 << 20));
        }
        let sent = (PEERS * HEADER_BYTES) as u64;
        server.wait_for(Counter::BytesReceived, sent + frame(1, b"warm").len() as u64);
        // A first buffer of 4 KiB each, and not 64 MiB.
        eventually(LONG, || server.stats().buffered_bytes == (PEERS * 4096) as u64);
        // Each has its connection and the test's peer, too.
        let each = (held_bytes() - before) / PEERS;
        assert!((4096..4096 + 2048).contains(&each), "a claim costs {each} bytes");
        // More arrives, and memory follows it: at most twice as much.
        for peer in &mut peers {
            peer.send(&pattern(20_000));
        }
        let received = 20_000 + HEADER_BYTES;
        let had = server.count(Counter::BytesReceived);
        assert!(had >= sent);
        let all = (PEERS * received) as u64 + frame(1, b"warm").len() as u64;
        server.wait_for(Counter::BytesReceived, all);
        let held = server.stats().buffered_bytes;
        assert!(held <= (PEERS * received * 2) as u64, "{held} bytes held");
        drop(peers);
        eventually(LONG, || server.stats().buffered_bytes == 0);
    });
}

#[test]
fn a_bad_length_ends_the_connection_with_the_reason() {
    let cases = [
        (0, "length 0 is below 1"),
        ((64 << 20) + 1, "length 67108865 exceeds 67108864"),
        (u32::MAX, "length 4294967295 exceeds 67108864"),
    ];
    for kind in BOTH {
        for (length, reason) in cases {
            let protocol = Frames::default();
            let ends = protocol.ends.clone();
            let server = Server::start(kind, config(), protocol);
            let (mut peer, mut other) = (server.peer(), server.peer());
            other.echo(&frame(1, b"before"));
            // A good frame before the bad one is answered.
            let good = frame(2, b"good");
            peer.send(&[&good[..], &header_with_length(length)].concat());
            assert!(peer.receive_to_finish() == good);
            drop(peer);
            assert_eq!(ends.wait_for(1), [reason], "{kind:?}");
            eventually(LONG, || server.count(Counter::ClosedByHandler) == 1);
            other.echo(&frame(3, b"after"));
        }
    }
}

#[test]
fn a_need_beyond_max_allowed_packet_ends_the_connection_at_once() {
    let (protocol, ends) = Bytes::with_ends(|_, input| {
        input.need(10_000_000);
        Ok::<(), Close>(())
    });
    let server = Server::start(Kind::Tcp, config().max_allowed_packet(100_000), protocol);
    let mut peer = server.peer();
    peer.send(b"x");
    let (bytes, _) = peer.receive_all();
    assert!(bytes.is_empty());
    assert_eq!(ends.wait_for(1), ["10000000 input bytes exceed max_allowed_packet 100000"]);
    assert_eq!(server.count(Counter::ClosedFrameTooLong), 1);
}

#[test]
fn input_that_nobody_consumes_ends_the_connection_at_max_allowed_packet() {
    for kind in BOTH {
        let (protocol, ends) = Bytes::with_ends(|_, _| Ok(()));
        let server = Server::start(kind, config().max_allowed_packet(100_000), protocol);
        let mut peer = server.peer();
        // The write fails at the latest when the connection is gone.
        let _ = std::io::Write::write_all(&mut peer, &pattern(1_000_000));
        assert!(peer.receive_all().0.is_empty(), "{kind:?}");
        let reasons = ends.wait_for(1);
        assert!(reasons[0].ends_with("exceed max_allowed_packet 100000"), "{kind:?}: {reasons:?}");
        server.wait_until_empty();
        assert_eq!(server.stats().buffered_bytes, 0);
        assert_eq!(server.count(Counter::ClosedFrameTooLong), 1);
    }
}

#[test]
fn a_reset_in_the_middle_of_a_frame_ends_only_that_connection() {
    for kind in BOTH {
        let protocol = Frames::default();
        let ends = protocol.ends.clone();
        let server = Server::start(kind, config(), protocol);
        let mut other = server.peer();
        let frame = frame(1, &pattern(100_000));
        for cut in [1, 12, 13, 14, 5_000, 99_999] {
            let (mut peer, received) = (server.peer(), server.count(Counter::BytesReceived));
            peer.send(&frame[..cut]);
            server.wait_for(Counter::BytesReceived, received + cut as u64);
            peer.reset();
            other.echo(&frame);
        }
        let reasons = ends.wait_for(6);
        if kind == Kind::Tcp {
            assert!(reasons.iter().all(|r| r.starts_with("the peer is gone")), "{reasons:?}");
            assert_eq!(server.count(Counter::ClosedReset), 6);
        }
        drop(other);
        server.wait_until_empty();
        assert_eq!(server.stats().buffered_bytes, 0);
    }
}

#[test]
fn an_end_in_the_middle_of_a_frame_is_an_end() {
    for kind in BOTH {
        let protocol = Frames::default();
        let ends = protocol.ends.clone();
        let server = Server::start(kind, config(), protocol);
        let mut peer = server.peer();
        peer.send(&frame(1, b"whole"));
        peer.send(&frame(2, b"not whole")[..15]);
        peer.finish();
        assert!(peer.receive_to_finish() == frame(1, b"whole"));
        assert_eq!(ends.wait_for(1), ["the peer finished"]);
    }
}

#[test]
fn requests_before_a_half_close_are_answered() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Frames::default());
        for requests in [1, 1000] {
            let all: Vec<u8> = (0..requests).flat_map(|n| frame(n, &pattern(100))).collect();
            let mut peer = server.peer();
            peer.send(&all);
            peer.finish();
            let (answers, end) = peer.receive_all();
            assert_eq!(end, End::Finished, "{kind:?}");
            assert!(answers == all, "{kind:?}, {requests} requests");
        }
        eventually(LONG, || server.count(Counter::ClosedByPeer) == 2);
    }
}
