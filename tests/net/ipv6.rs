//! Listeners and connections over IPv6, also for peers over IPv4.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc;

use epoll_group::Runtime;
use epoll_group::net::{
    Address, Close, CloseReason, Connection, Input, ListenOptions, Protocol, ToAddress,
};
use epoll_group::stats::Counter;
use lab::protocol::{Bytes, echo};
use lab::{LONG, Peer, Server, config, eventually, has_ipv6, is_dual_stack};

/// An echo protocol that gives each opened connection to the test.
struct Shown(mpsc::Sender<Connection>);

impl Protocol for Shown {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        self.0.send(conn.clone()).expect("the test listens");
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        conn.send(input.take_all());
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), _: &CloseReason) {}
}

fn shown() -> (Shown, mpsc::Receiver<Connection>) {
    let (show, opened) = mpsc::channel();
    (Shown(show), opened)
}

fn any_port(ip: Ipv6Addr) -> SocketAddr {
    (ip, 0).into()
}

/// The TCP address of a server, with another host.
fn at(ip: impl Into<std::net::IpAddr>, server: &Server) -> SocketAddr {
    match server.address() {
        Address::Tcp(addr) => SocketAddr::new(ip.into(), addr.port()),
        other => panic!("not TCP: {other}"),
    }
}

#[test]
fn a_connection_over_ipv6_knows_both_of_its_ends() {
    if !has_ipv6() {
        return;
    }
    let (protocol, accepted) = shown();
    let server = Server::start_at("[::1]:0", config(), protocol);
    let text = server.address().to_string();
    assert!(text.starts_with("[::1]:"), "{text}");
    assert_eq!(&text.to_addresses().expect("an address")[0], server.address());

    let mut peer = Peer::connect(server.address());
    peer.echo(b"from a plain socket");
    let conn = accepted.recv_timeout(LONG).expect("accepted");
    let from = peer.local_addr().expect("TCP");
    assert_eq!(conn.peer_addr(), &Address::Tcp(from));
    assert_eq!(conn.peer_addr().to_string(), format!("[::1]:{}", from.port()));
    assert_eq!(&conn.local_addr().expect("an address"), server.address());
    assert_eq!(conn.credentials(), None);
}

#[test]
fn an_outgoing_connection_over_ipv6_talks_to_a_listener() {
    if !has_ipv6() {
        return;
    }
    let (protocol, accepted) = shown();
    let server = Server::start_at("[::1]:0", config(), protocol);
    let client = Runtime::builder().config(config()).start().expect("a second runtime");
    let (tell, answers) = mpsc::channel();
    let protocol = Bytes::new(move |_: &Connection, input: &mut Input<'_>| {
        tell.send(input.take_all().to_vec()).expect("the test listens");
        Ok(())
    });
    let conn = client.connect(server.address(), protocol).expect("begun");
    conn.send(b"hello");
    let mut answer = Vec::new();
    while answer.len() < 5 {
        answer.extend(answers.recv_timeout(LONG).expect("an answer"));
    }
    assert_eq!(answer, b"hello");
    assert_eq!(conn.peer_addr(), server.address());
    let other = accepted.recv_timeout(LONG).expect("accepted");
    assert_eq!(other.peer_addr(), &conn.local_addr().expect("an address"));
    assert_eq!(client.stats().get(Counter::ConnectionsConnected), 1);
    conn.close("enough");
    server.wait_until_empty();
}

#[test]
fn a_listener_on_all_addresses_serves_peers_over_ipv4_as_mapped_ones() {
    if !has_ipv6() {
        return;
    }
    for groups in [1, 2] {
        let (protocol, accepted) = shown();
        let config = config().epoll_groups(groups);
        let server = Server::start_at("[::]:0", config, protocol);
        let mut over_ipv6 = Peer::connect(&at(Ipv6Addr::LOCALHOST, &server).into());
        over_ipv6.echo(b"IPv6");
        let conn = accepted.recv_timeout(LONG).expect("accepted");
        assert_eq!(conn.peer_addr(), &over_ipv6.local_addr().expect("TCP").into());

        let over_ipv4 = Peer::try_connect(&at(Ipv4Addr::LOCALHOST, &server).into(), None);
        if !is_dual_stack() {
            assert!(over_ipv4.is_err(), "the system keeps IPv4 apart");
            continue;
        }
        let mut over_ipv4 = over_ipv4.expect("connected");
        over_ipv4.echo(b"IPv4");
        let from = over_ipv4.local_addr().expect("TCP");
        let conn = accepted.recv_timeout(LONG).expect("accepted");
        let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), from.port());
        assert_eq!(conn.peer_addr(), &Address::Tcp(mapped));
        let text = conn.peer_addr().to_string();
        assert_eq!(text, format!("[::ffff:127.0.0.1]:{}", from.port()));
        assert_eq!(&text.to_addresses().expect("an address")[0], conn.peer_addr());
    }
}

#[test]
fn an_outgoing_connection_to_a_mapped_address_reaches_a_listener_of_ipv4() {
    if !has_ipv6() || !is_dual_stack() {
        return;
    }
    let (protocol, accepted) = shown();
    let server = Server::start_at("127.0.0.1:0", config(), protocol);
    let client = Runtime::builder().config(config()).start().expect("a second runtime");
    let mapped = at(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), &server);
    let conn = client.connect(mapped, Bytes::new(echo)).expect("begun");
    assert_eq!(conn.peer_addr(), &Address::Tcp(mapped));
    let other = accepted.recv_timeout(LONG).expect("accepted");
    let Address::Tcp(from) = *other.peer_addr() else { panic!("over TCP") };
    assert_eq!(from.ip(), Ipv4Addr::LOCALHOST);
    conn.close("enough");
    server.wait_until_empty();
}

#[test]
fn a_ready_listener_that_keeps_ipv4_apart_is_served() {
    if !has_ipv6() {
        return;
    }
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket.set_only_v6(true).expect("set");
    socket.bind(&any_port(Ipv6Addr::UNSPECIFIED).into()).expect("a port");
    socket.listen(16).expect("it listens");
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let options = ListenOptions::new();
    let listener = runtime.listen_on([socket], options, Bytes::new(echo)).expect("a listener");
    let Address::Tcp(here) = *listener.local_addr() else { panic!("over TCP") };
    Peer::connect(&SocketAddr::from((Ipv6Addr::LOCALHOST, here.port())).into()).echo(b"IPv6");
    let over_ipv4 = SocketAddr::from((Ipv4Addr::LOCALHOST, here.port())).into();
    let over_ipv4 = Peer::try_connect(&over_ipv4, None);
    assert!(over_ipv4.is_err(), "the host decided");
}

#[test]
fn an_ipv6_address_in_use_is_an_error_and_its_end_frees_it() {
    if !has_ipv6() {
        return;
    }
    let config = config().epoll_groups(2);
    let server = Server::start_at("[::1]:0", config, Bytes::new(echo));
    server.runtime.listen(server.address(), Bytes::new(echo)).expect_err("the port is in use");
    let (runtime, address) = (server.runtime, server.listener.local_addr().clone());
    drop(server.listener);
    let mut second = None;
    eventually(LONG, || {
        second = runtime.listen(&address, Bytes::new(echo)).ok();
        second.is_some()
    });
    Peer::connect(&address).echo(b"the second one");
}
