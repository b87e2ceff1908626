//! Malformed requests: each gets an error and ends the session or connection that it belongs to.

use epoll_group::codec::frame::Header;
use epoll_group::codec::message::ClientMessage;
use epoll_group::stats::Counter;
use lab::engine::{Fixture, config};
use lab::random::{Random, seed};
use lab::xrpc::request::query;
use lab::xrpc::{Client, RawFrame};
use lab::{LONG, eventually, often};

fn frame(session: u64, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Header::new(session, kind, body.len() as u32).encode().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// Returns the frames that a client with a session 2 gets for these bytes before its connection
/// ends.
fn answer(server: &Fixture, bytes: &[u8]) -> Vec<RawFrame> {
    let mut client = server.client_with_sessions([2]);
    client.send_bytes(bytes).expect("sent");
    client.rest()
}

#[test]
fn what_is_no_frame_ends_the_connection_with_an_error() {
    let server = Fixture::start(config());
    let mut zero = frame(7, 101, b"");
    zero[8..12].fill(0);
    let mut long = frame(7, 101, b"");
    long[8..12].copy_from_slice(&(64u32 << 20).wrapping_add(1).to_le_bytes());
    let mut longest = frame(7, 101, b"");
    longest[8..12].fill(255);
    let cases: [(&[u8], u32); 8] = [
        (&zero, 8001),
        (&long, 1153),
        (&longest, 1153),
        // Kinds that are unknown, or that only servers send.
        (&frame(7, 99, b""), 8001),
        (&frame(7, 127, b"abc"), 8001),
        (&frame(7, 12, b""), 8001),
        // Bodies that cannot be read.
        (&frame(7, 111, &[0x10, 2]), 8001),
        (&frame(7, 101, &[0x0a, 8, b's', b'e', b'l', b'e']), 8001),
    ];
    for (bytes, code) in cases {
        let frames = answer(&server, bytes);
        assert_eq!(frames.len(), 1, "{bytes:?}");
        let failure = frames[0].failure();
        assert_eq!((frames[0].session, failure.fatal, failure.code), (7, true, code), "{bytes:?}");
    }
    assert_eq!(server.count(Counter::ProtocolErrors), 8);
    server.wait_until_even();
}

#[test]
fn an_error_of_the_connection_is_told_once_and_between_frames() {
    let server = Fixture::start(config());
    for _ in 0..often(100) {
        let mut client = server.client_with_sessions([2]);
        for text in ["1", "2", "3"] {
            client.queue(2, &ClientMessage::ExecSql(query(&format!("echo {text}"))));
        }
        client.flush();
        client.send_bytes(&frame(7, 99, b"")).expect("sent");
        // Requests before the bad frame may have been answered if there was time.
        let frames = client.rest();
        assert!(frames.iter().filter(|frame| frame.kind == 13).count() <= 3);
        let errors: Vec<_> = frames.iter().filter(|frame| frame.kind == 1).collect();
        assert_eq!((errors.len(), errors[0].session), (1, 7));
    }
    server.wait_until_even();
}

#[test]
fn garbage_ends_connections_and_nothing_else() {
    let seed = seed();
    let server = Fixture::start(config());
    let mut bystander = server.client_with_sessions([2]);
    let mut random = Random(seed);
    for round in 0..often(300) {
        let mut client =
            if round % 2 == 0 { server.client_with_sessions([2, 3]) } else { server.stranger() };
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(20) {
            let mut body: Vec<u8> =
                (0..random.below(40)).map(|_| random.below(256) as u8).collect();
            let kinds = [100, 101, 7, 110, 111, 112, 113, 115, 24, 25, 1, 4, 5];
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            if random.below(3) > 0 {
                // A field number that the message may have.
                body.splice(0..0, [0x08, random.below(4) as u8]);
            }
            bytes.extend(frame([2, 3, 1 << 63, 0][random.below(4) as usize], kind, &body));
        }
        if random.below(2) == 0 {
            bytes.extend((0..random.below(100)).map(|_| random.below(256) as u8));
        }
        let _ = client.send_bytes(&bytes);
        if random.below(2) == 0 {
            client.finish();
            until_the_end(&mut client, seed);
        } else {
            client.reset();
        }
        if round % 16 == 0 {
            bystander.execute(2, "one").one();
        }
    }
    bystander.close(2).good();
    drop(bystander);
    eventually(LONG, || server.stats().connections == 0);
    server.wait_until_even();
    assert_eq!(server.count(Counter::Panics), 0, "EG_TEST_SEED={seed}");
    assert_eq!(server.count(Counter::RequestPanics), 0, "EG_TEST_SEED={seed}");
}

/// Reads up to the end of the connection. Everything that comes must be a frame.
fn until_the_end(client: &mut Client, seed: u64) {
    loop {
        match client.try_raw_frame() {
            Ok(_) => {}
            Err(trouble) if trouble.is_end() => return,
            Err(trouble) => panic!("{trouble}, EG_TEST_SEED={seed}"),
        }
    }
}
