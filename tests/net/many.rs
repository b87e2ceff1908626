//! Ten thousand live connections with traffic: the server runs in a child process, the clients run
//! here, because all descriptors of both are too many for one process.

use std::thread;

use epoll_group::net::{Address, ToAddress};
use epoll_group::stats::Counter;
use lab::allocator::held_bytes;
use lab::child::{Puppet, descriptors, is_child, obey};
use lab::protocol::{Bytes, echo};
use lab::{Kind, LONG, Peer, Server, config, eventually, make_room};

const CONNECTIONS: usize = 10_000;
const THREADS: usize = 4;
const ROUNDS: usize = 3;

/// Allocated bytes of the server for each connection at most.
const MOST_BYTES: u64 = 1024;

/// The child: an echo server that says how it stands.
fn serve() {
    let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    obey(|order| {
        let stats = server.stats();
        let number = match order {
            "address" => return server.address().to_string(),
            "descriptors" => descriptors() as u64,
            "held bytes" => held_bytes() as u64,
            "connections" => stats.connections,
            "accepted" => stats.get(Counter::ConnectionsAccepted),
            "closed" => stats.get(Counter::ConnectionsClosed),
            "slots in use" => stats.slots_allocated - stats.slots_free,
            "buffered bytes" => stats.buffered_bytes,
            "timers" => stats.timers_pending,
            _ => panic!("no order: {order}"),
        };
        number.to_string()
    });
}

/// Connects a share of the clients. Each has a request in flight before any answer is read.
fn connect(to: &Address) -> Vec<Peer> {
    let mut peers: Vec<_> = (0..CONNECTIONS / THREADS).map(|_| Peer::connect(to)).collect();
    ask_all(&mut peers, 0);
    peers
}

/// Asserts that each client gets its own answer, while all of them have a request in flight.
fn ask_all(peers: &mut [Peer], round: usize) {
    let request = |at: usize| format!("request {at} of round {round}").into_bytes();
    for (at, peer) in peers.iter_mut().enumerate() {
        peer.send(&request(at));
    }
    for (at, peer) in peers.iter_mut().enumerate() {
        let request = request(at);
        assert_eq!(peer.receive(request.len()), request);
    }
}

#[test]
fn ten_thousand_connections_are_all_answered_in_bounded_memory_and_leave_nothing() {
    if is_child() {
        return serve();
    }
    make_room();
    let mut server = Puppet::start(20_000);
    let address = server.ask("address").to_addresses().expect("an address").remove(0);
    let (descriptors, slots) = (server.number("descriptors"), server.number("slots in use"));
    let held = server.number("held bytes");

    let mut shares: Vec<Vec<Peer>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| connect(&address))).collect();
        threads.into_iter().map(|thread| thread.join().expect("all connect")).collect()
    });
    for round in 1..=ROUNDS {
        thread::scope(|scope| {
            for peers in &mut shares {
                scope.spawn(move || ask_all(peers, round));
            }
        });
        assert_eq!(server.number("connections"), CONNECTIONS as u64);
    }
    eventually(LONG, || server.number("buffered bytes") == 0);
    let bytes = (server.number("held bytes") - held) / CONNECTIONS as u64;
    assert!(bytes <= MOST_BYTES, "{bytes} bytes for each connection");

    // Every other client resets its connection.
    for (at, peer) in shares.into_iter().flatten().enumerate() {
        if at % 2 == 0 { peer.reset() } else { drop(peer) }
    }
    eventually(LONG, || server.number("connections") == 0);
    eventually(LONG, || server.number("slots in use") == slots);
    eventually(LONG, || server.number("descriptors") == descriptors);
    eventually(LONG, || server.number("timers") == 0);
    assert_eq!(server.number("accepted"), CONNECTIONS as u64);
    assert_eq!(server.number("closed"), CONNECTIONS as u64);
}
