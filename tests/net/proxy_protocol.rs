//! Connections that begin with a PROXY header, received and sent.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use epoll_group::net::{
    Address, Close, ConnectOptions, Connection, Decoded, Input, Layer, LayerState, ListenOptions,
    Listener, Network, Protocol, ProxyHeader, ProxyVersion,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};
use lab::protocol::{Bytes, Ends};
use lab::{LONG, Peer, TempDir, assert_clean, child, config, eventually, has_ipv6};

const V1: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x12\x67\0\x50";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// A server that answers `?` with the address of the client.
struct Behind {
    runtime: Runtime,
    listener: Listener,
    ends: Ends,
}

fn who(conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
    for _ in input.take_all() {
        conn.send(format!("{}\n", conn.client_addr()));
    }
    Ok(())
}

fn trusted() -> ListenOptions {
    let networks = ["127.0.0.0/8", "::1"].map(|text| text.parse().expect("a network"));
    ListenOptions::new().proxy_protocol(networks)
}

impl Behind {
    fn start(at: &str, config: Config, options: ListenOptions) -> Self {
        let runtime = Runtime::builder().config(config).start().expect("a runtime");
        let (protocol, ends) = Bytes::with_ends(who);
        let listener = runtime.listen_with(at, options, protocol).expect("a listener");
        Self { runtime, listener, ends }
    }

    fn trusting() -> Self {
        Self::start("127.0.0.1:0", config(), trusted())
    }

    fn peer(&self) -> Peer {
        Peer::connect(self.listener.local_addr())
    }

    fn count(&self, counter: Counter) -> u64 {
        self.runtime.stats().get(counter)
    }

    /// Checks that a connection ends without an answer, by the layer.
    #[track_caller]
    fn ends(&self, mut peer: Peer, bytes: &[u8]) {
        let before = self.count(Counter::ClosedByLayer);
        peer.send(bytes);
        peer.finish();
        assert_eq!(peer.receive_all().0, b"");
        eventually(LONG, || self.count(Counter::ClosedByLayer) == before + 1);
    }
}

#[track_caller]
fn line(peer: &mut Peer) -> String {
    let bytes = std::iter::from_fn(|| peer.receive_one().filter(|&byte| byte != b'\n'));
    String::from_utf8(bytes.collect()).expect("text")
}

#[test]
fn the_header_names_the_client_however_it_arrives() {
    let server = Behind::trusting();
    for header in [V1, V2] {
        // The header and the first bytes in one segment.
        let mut peer = server.peer();
        peer.send(&[header, b"??"].concat());
        assert_eq!([line(&mut peer), line(&mut peer)], ["192.0.2.1:4711"; 2]);
        // Each byte alone.
        let mut peer = server.peer();
        header.iter().chain(b"?").for_each(|&byte| peer.send(&[byte]));
        assert_eq!(line(&mut peer), "192.0.2.1:4711");
        // The header alone.
        let mut peer = server.peer();
        peer.send(header);
        eventually(LONG, || server.runtime.stats().handshakes == 0);
        peer.send(b"?");
        assert_eq!(line(&mut peer), "192.0.2.1:4711");
    }
    assert_clean(&server.runtime.drain(LONG));
}

#[test]
fn a_connection_of_the_proxy_itself_has_the_address_of_its_socket() {
    let server = Behind::trusting();
    for header in [LOCAL, b"PROXY UNKNOWN\r\n"] {
        let mut peer = server.peer();
        peer.send(&[header, b"?"].concat());
        assert_eq!(line(&mut peer), peer.local_addr().expect("TCP").to_string());
    }
}

#[test]
fn headers_over_ipv6_and_unix_sockets_name_their_clients() {
    if has_ipv6() {
        let server = Behind::start("[::1]:0", config(), trusted());
        let mut peer = server.peer();
        peer.send(b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 80\r\n?");
        assert_eq!(line(&mut peer), "[2001:db8::1]:4711");
    }
    let dir = TempDir::new();
    let at = format!("unix:{}", dir.socket().display());
    // The file of the socket decides which peers are trusted.
    let server = Behind::start(&at, config(), ListenOptions::new().proxy_protocol([]));
    let mut peer = server.peer();
    peer.send(&[V2, b"?"].concat());
    assert_eq!(line(&mut peer), "192.0.2.1:4711");
    let client = Address::Unix("/run/client".into());
    let header = ProxyHeader::Proxied { client: client.clone(), server: client };
    let options = ConnectOptions::new().proxy_header(ProxyVersion::V2, &header);
    assert_eq!(ask(&server.runtime, server.listener.local_addr(), options), "unix:/run/client");
}

#[test]
fn a_peer_outside_of_the_trusted_networks_is_not_read() {
    let network: Network = "192.0.2.0/24".parse().expect("a network");
    let options = ListenOptions::new().proxy_protocol([network]);
    let server = Behind::start("127.0.0.1:0", config(), options);
    for bytes in [V1, V2, b"?"] {
        // The end may come before the bytes were sent.
        let mut peer = server.peer();
        peer.stuff(bytes);
        assert_eq!(peer.receive_all().0, b"");
    }
    eventually(LONG, || server.count(Counter::ClosedByLayer) == 3);
    assert_eq!(server.count(Counter::BytesReceived), 0);
    assert!(server.ends.all().is_empty(), "the protocol is not called");
}

#[test]
fn what_is_no_header_ends_the_connection() {
    let server = Behind::trusting();
    let too_long = [b"PROXY UNKNOWN ".as_slice(), &[b' '; 100]].concat();
    let too_long_v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
    for bytes in [b"GET / HTTP/1.1\r\n".as_slice(), b"PROXY TCP4 x\r\n", &too_long, too_long_v2] {
        server.ends(server.peer(), bytes);
    }
    // A header that ends too early.
    let mut peer = server.peer();
    peer.send(&V1[..20]);
    peer.finish();
    assert_eq!(peer.receive_all().0, b"");
    eventually(LONG, || server.runtime.stats().connections == 0);
    assert!(server.ends.all().is_empty(), "the protocol is not called");
    assert_eq!(server.runtime.stats().buffered_bytes, 0);
}

#[test]
fn a_header_that_does_not_end_is_cut_after_handshake_timeout() {
    let options = trusted().handshake_timeout(Duration::from_millis(50));
    let server = Behind::start("127.0.0.1:0", config(), options);
    let mut peer = server.peer();
    peer.send(&V2[..20]);
    assert_eq!(peer.receive_all().0, b"");
    assert_eq!(server.count(Counter::ClosedHandshakeTimeout), 1);
}

/// The proxy has one address, and its clients have others.
#[test]
fn connections_are_limited_by_the_address_of_the_client() {
    let server = Behind::start("127.0.0.1:0", config(), trusted().max_connections_per_address(1));
    // Many wait for their header at the same time.
    let mut peers: Vec<_> = (0..10).map(|_| server.peer()).collect();
    eventually(LONG, || server.runtime.stats().handshakes == 10);
    for (n, peer) in peers.iter_mut().enumerate() {
        peer.send(format!("PROXY TCP4 192.0.2.{n} 192.0.2.100 1 2\r\n?").as_bytes());
        assert_eq!(line(peer), format!("192.0.2.{n}:1"));
    }
    server.ends(server.peer(), b"PROXY TCP4 192.0.2.3 192.0.2.100 1 2\r\n?");
    assert_eq!(server.listener.stats().refused_max_connections_per_address, 1);
    eventually(LONG, || server.listener.stats().open == 10);
    assert_eq!(server.count(Counter::ConnectionsRefusedLimit), 1);
    // The proxy's own connections are not limited.
    let mut own: Vec<_> = (0..2).map(|_| server.peer()).collect();
    for peer in &mut own {
        peer.send(&[LOCAL, b"?"].concat());
        line(peer);
    }
    drop((peers, own));
    eventually(LONG, || server.listener.stats().open == 0);
    // The places are free again.
    let mut peer = server.peer();
    peer.send(b"PROXY TCP4 192.0.2.3 192.0.2.100 1 2\r\n?");
    assert_eq!(line(&mut peer), "192.0.2.3:1");
}

/// Passes all bytes, and panics at the start while the flag is set.
struct Panics(Arc<AtomicBool>);

impl Layer for Panics {
    fn start(&mut self, _: &Connection, _: &mut Vec<u8>) -> Result<LayerState, Close> {
        assert!(!self.0.load(Ordering::Relaxed), "planned");
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

/// The connection has named its client, and ends in the same pass.
#[test]
fn a_panic_behind_the_header_leaves_the_places_of_others_alone() {
    let panics = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&panics);
    let make = move |_: &Connection| Ok(Box::new(Panics(Arc::clone(&flag))) as Box<dyn Layer>);
    let options = trusted().layer(make).max_connections_per_address(1);
    let server = Behind::start("127.0.0.1:0", config(), options);
    let mut first = server.peer();
    first.send(&[V1, b"?"].concat());
    line(&mut first);
    panics.store(true, Ordering::Relaxed);
    let mut second = server.peer();
    second.send(V1);
    second.receive_all();
    eventually(LONG, || server.listener.stats().open == 1);
    panics.store(false, Ordering::Relaxed);
    server.ends(server.peer(), V1);
    // The place of the second one is free when the first one has gone.
    drop(first);
    eventually(LONG, || server.listener.stats().open == 0);
    let mut last = server.peer();
    last.send(&[V1, b"?"].concat());
    line(&mut last);
}

/// The proxy sends the header, and the client nothing.
#[test]
fn a_client_that_is_silent_behind_its_header_is_cut_after_first_bytes_timeout() {
    let server = Behind::start("127.0.0.1:0", config(), trusted());
    let mut talks = server.peer();
    talks.send(&[V1, b"?"].concat());
    line(&mut talks);
    assert_eq!(server.runtime.stats().silent_connections, 0);
    let mut waits = server.peer();
    waits.send(V1);
    eventually(LONG, || server.runtime.stats().handshakes == 0);
    eventually(LONG, || server.runtime.stats().silent_connections == 1);
    waits.send(b"?");
    line(&mut waits);
    assert_eq!(server.runtime.stats().silent_connections, 0);
    let options = trusted().first_bytes_timeout(Duration::from_millis(50));
    let server = Behind::start("127.0.0.1:0", config(), options);
    let mut peer = server.peer();
    peer.send(V1);
    assert_eq!(peer.receive_to_finish(), b"");
    assert_eq!(server.count(Counter::ClosedFirstBytesTimeout), 1);
    eventually(LONG, || server.runtime.stats().silent_connections == 0);
}

/// Asks once, and reports the answer.
struct Ask(mpsc::Sender<String>);

impl Protocol for Ask {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        conn.send("?");
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        if input.bytes().ends_with(b"\n") {
            let answer = String::from_utf8_lossy(input.take_all()).trim().to_owned();
            self.0.send(answer).expect("the test listens");
            conn.close("done");
        }
        Ok(())
    }
}

#[track_caller]
fn ask(runtime: &Runtime, at: &Address, options: ConnectOptions) -> String {
    let (tell, told) = mpsc::channel();
    runtime.connect_with(at, options, Ask(tell)).expect("it begins");
    told.recv_timeout(LONG).expect("an answer")
}

#[test]
fn a_header_is_sent_before_the_first_bytes() {
    let server = Behind::trusting();
    let to: SocketAddr = (Ipv4Addr::new(192, 0, 2, 2), 80).into();
    for client in ["192.0.2.1:4711", "[2001:db8::1]:4711"] {
        let from: SocketAddr = client.parse().expect("an address");
        let header = ProxyHeader::Proxied { client: from.into(), server: to.into() };
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let options = ConnectOptions::new().proxy_header(version, &header);
            let answer = ask(&server.runtime, server.listener.local_addr(), options);
            assert_eq!(answer, client, "{version:?}");
        }
    }
    // On the wire.
    let bound = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = Address::Tcp(bound.local_addr().expect("bound"));
    for (version, expected) in
        [(ProxyVersion::V1, b"PROXY UNKNOWN\r\n".as_slice()), (ProxyVersion::V2, LOCAL)]
    {
        let options = ConnectOptions::new().proxy_header(version, &ProxyHeader::Local);
        let (tell, told) = mpsc::channel();
        let conn = server.runtime.connect_with(&at, options, Ask(tell)).expect("it begins");
        let mut peer = Peer::accept(&bound);
        assert_eq!(peer.receive(expected.len() + 1), [expected, b"?"].concat());
        peer.send(b"yes\n");
        assert_eq!(told.recv_timeout(LONG).expect("an answer"), "yes");
        drop(conn);
    }
}

#[test]
fn the_header_is_an_extension_of_the_connection() {
    let (tell, told) = mpsc::channel();
    let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        input.take_all();
        tell.send(conn.extension::<ProxyHeader>().cloned()).expect("the test listens");
        Ok(())
    });
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let listener = runtime.listen_with("127.0.0.1:0", trusted(), protocol).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.send(&[V2, b"?"].concat());
    let header = told.recv_timeout(LONG).expect("received").expect("a header");
    let [client, server] = ["192.0.2.1:4711", "192.0.2.2:80"]
        .map(|text| text.parse::<SocketAddr>().expect("an address").into());
    assert_eq!(header, ProxyHeader::Proxied { client, server });
}

/// HAProxy before a server, until it is dropped.
struct HaProxy(Child, #[expect(dead_code, reason = "removed at the end")] TempDir);

impl HaProxy {
    /// Returns `None` if it is not installed.
    fn start(at: &str, to: &str) -> Option<Self> {
        let dir = TempDir::new();
        let file = dir.socket().with_file_name("haproxy.cfg");
        let text = format!(
            "global\n maxconn 100\n\
             defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
             frontend front\n bind {at}\n default_backend back\n\
             backend back\n server behind {to}\n"
        );
        fs::write(&file, text).expect("written");
        match Command::new("haproxy").arg("-db").arg("-f").arg(&file).spawn() {
            Ok(child) => Some(Self(child, dir)),
            Err(error) => {
                let text = format!("SKIPPED: {} needs haproxy: {error}", child::test_name());
                let _ = writeln!(std::io::stderr(), "{text}");
                None
            }
        }
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Address of TCP that is free, for another process. Its IP address has `number` and the process in it, so
/// that no other test gets the port before that process is there.
fn free(number: u8) -> SocketAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let bound =
        TcpListener::bind(SocketAddr::from(([127, high | 0x80, low, number], 0))).expect("bound");
    bound.local_addr().expect("bound")
}

#[test]
fn haproxy_names_its_clients() {
    for send in ["send-proxy", "send-proxy-v2"] {
        let server = Behind::trusting();
        let (at, to) = (free(1), server.listener.local_addr());
        let Some(_haproxy) = HaProxy::start(&at.to_string(), &format!("{to} {send}")) else {
            return;
        };
        let at = Address::Tcp(at);
        eventually(LONG, || Peer::try_connect(&at, None).is_ok());
        let mut peer = Peer::connect(&at);
        peer.send(b"?");
        assert_eq!(line(&mut peer), peer.local_addr().expect("TCP").to_string(), "{send}");
    }
}

#[test]
fn haproxy_understands_our_headers() {
    let server = Behind::trusting();
    let (at, to) = (free(2), server.listener.local_addr());
    let Some(_haproxy) =
        HaProxy::start(&format!("{at} accept-proxy"), &format!("{to} send-proxy-v2"))
    else {
        return;
    };
    let at = Address::Tcp(at);
    eventually(LONG, || Peer::try_connect(&at, None).is_ok());
    let client: SocketAddr = "192.0.2.1:4711".parse().expect("an address");
    let header = ProxyHeader::Proxied { client: client.into(), server: at.clone() };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let options = ConnectOptions::new().proxy_header(version, &header);
        assert_eq!(ask(&server.runtime, &at, options), "192.0.2.1:4711", "{version:?}");
    }
}
