//! No descriptors left: the server runs in a child that may have 64. The clients run here.
#![allow(unsafe_code, reason = "closing an unowned descriptor is the system's own call")]

use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use epoll_group::net::Address;
use epoll_group::net::ToAddress;
use epoll_group::stats::Counter;
use lab::child::{Puppet, in_child, is_child, obey};
use lab::protocol::{Bytes, echo};
use lab::{Kind, LONG, Peer, Server, config, eventually};
use socket2::{Domain, Socket, Type};

const CLIENTS: usize = 200;

/// The child: an echo server that can use up all descriptors, and free them again.
fn serve() {
    let mut held: Vec<File> = Vec::new();
    let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    obey(|order| match order {
        "address" => server.address().to_string(),
        "hold" => {
            held.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
            held.len().to_string()
        }
        "free" => {
            held.clear();
            String::new()
        }
        counter => {
            let known = Counter::ALL.iter().find(|known| known.name() == counter);
            server.count(*known.expect("an order")).to_string()
        }
    });
}

/// A child that has run out of descriptors, and clients that wait in the backlog of its listener.
struct Starved {
    server: Puppet,
    clients: Vec<Peer>,
}

impl Starved {
    fn start() -> Self {
        let mut server = Puppet::start(64);
        let address = server.ask("address").to_addresses().expect("an address").remove(0);
        let held = server.number("hold");
        assert!(held > 30, "most of the 64 are held: {held}");
        let clients = (0..CLIENTS).map(|_| waiting(&address)).collect();
        Self { server, clients }
    }
}

/// A client with a request.
fn waiting(address: &Address) -> Peer {
    let mut peer = Peer::connect(address);
    peer.send(b"question");
    peer
}

#[test]
fn without_descriptors_clients_are_told_by_a_close_and_nothing_spins() {
    if is_child() {
        return serve();
    }
    let mut starved = Starved::start();
    let began = Instant::now();
    let cpu = starved.server.cpu_ticks();
    for client in &mut starved.clients[..4] {
        assert!(client.receive_all().0.is_empty(), "closed unserved");
    }
    let server = &mut starved.server;
    let (refused, took) = (server.number("connections_refused_descriptors"), began.elapsed());
    // One client is refused per tick: the first after a second of ever rarer looks, then one each
    // second.
    assert!(refused >= 4);
    assert!(refused <= 2 + took.as_secs(), "{refused} in {took:?}");
    let errors = server.number("accept_errors_resources");
    let pauses = server.number("accept_pauses");
    // One for each client that arrives, and one for each look.
    let bound = CLIENTS as u64 + 12 + 2 * took.as_secs();
    assert!(errors.max(pauses) <= bound, "{errors} errors, {pauses} pauses in {took:?}");
    // Each refusal comes after a failed accept and a pause.
    assert!(errors.min(pauses) >= refused, "{errors} errors, {pauses} pauses, {refused} refused");
    let used = server.cpu_ticks() - cpu;
    assert!(used <= 10 + took.as_secs() * 5, "{used} ticks of CPU in {took:?}");
    assert_eq!(server.number("connections_accepted"), 0);
    // Once there are descriptors, the other clients are served. The next client may be in the
    // middle of being refused, so it is left out.
    server.ask("free");
    let refused = server.number("connections_refused_descriptors") as usize;
    for client in &mut starved.clients[refused + 1..] {
        assert_eq!(client.receive(8), b"question");
        client.finish();
    }
}

#[test]
fn once_descriptors_are_free_the_backlog_is_served_without_a_new_connection() {
    if is_child() {
        return serve();
    }
    let mut starved = Starved::start();
    starved.server.ask("free");
    let began = Instant::now();
    for mut client in starved.clients {
        // Each client gives its descriptor back for the clients behind it.
        assert_eq!(client.receive(8), b"question");
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "promised within a second: {took:?}");
    assert_eq!(starved.server.number("connections_refused_descriptors"), 0);
    assert_eq!(starved.server.number("connections_accepted"), CLIENTS as u64);
    let errors = starved.server.number("accept_errors_resources");
    let pauses = starved.server.number("accept_pauses");
    assert!(errors <= 2 * CLIENTS as u64 + 20, "{errors} failed accepts");
    assert!(errors.min(pauses) > 0, "{errors} failed accepts, {pauses} pauses");
}

#[test]
fn a_connection_whose_descriptor_is_0_is_served_and_closed() {
    in_child(|| {
        let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
        server.peer().echo(b"warm");
        server.wait_until_empty();
        let Address::Tcp(address) = *server.address() else { panic!("over TCP") };
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("one");
        socket.set_read_timeout(Some(LONG)).expect("set");
        // SAFETY: this child never uses its standard input, so no other code owns the descriptor.
        assert_eq!(unsafe { libc::close(0) }, 0);
        // The client has its descriptor already, so the server's connection gets descriptor 0.
        socket.connect(&address.into()).expect("connected");
        let mut peer = &socket;
        let mut told = [0; 5];
        peer.write_all(b"hello").expect("sent");
        peer.read_exact(&mut told).expect("an answer");
        assert_eq!(&told, b"hello");
        let link = std::fs::read_link("/proc/self/fd/0").expect("it is open");
        assert!(link.to_string_lossy().starts_with("socket:"), "{}", link.display());
        drop(socket);
        server.wait_until_empty();
        eventually(LONG, || std::fs::read_link("/proc/self/fd/0").is_err());
    });
}
