//! Where connections come from and go to: addresses, ready listeners, outgoing connections.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc;
use std::{io, thread};

use epoll_group::Runtime;
use epoll_group::net::{
    Address, Close, CloseReason, ConnectError, Connection, Input, ListenError, ListenOptions,
    Listener, Protocol, Sent,
};
use epoll_group::stats::Counter;
use lab::protocol::{Bytes, echo};
use lab::{BOTH, Kind, LONG, Peer, Server, TempDir, assert_clean, config, eventually, ports};

/// A protocol that sends its connection's events to the test.
struct Told(mpsc::Sender<Event>);

#[derive(Debug)]
enum Event {
    Opened(Connection),
    Received(Vec<u8>),
    Closed(String),
    Failed(String),
}

fn told() -> (Told, mpsc::Receiver<Event>) {
    let (tell, events) = mpsc::channel();
    (Told(tell), events)
}

impl Protocol for Told {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        let _ = self.0.send(Event::Opened(conn.clone()));
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let _ = self.0.send(Event::Received(input.take_all().to_vec()));
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        let _ = self.0.send(Event::Closed(reason.to_string()));
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        let _ = self.0.send(Event::Failed(reason.to_string()));
    }
}

#[track_caller]
fn opened(events: &mpsc::Receiver<Event>) -> Connection {
    match events.recv_timeout(LONG).expect("an event") {
        Event::Opened(conn) => conn,
        other => panic!("{other:?}"),
    }
}

/// Receives `count` bytes in however many pieces.
#[track_caller]
fn received(events: &mpsc::Receiver<Event>, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        match events.recv_timeout(LONG).expect("an event") {
            Event::Received(more) => bytes.extend(more),
            other => panic!("{other:?}"),
        }
    }
    bytes
}

#[track_caller]
fn closed(events: &mpsc::Receiver<Event>) -> String {
    match events.recv_timeout(LONG).expect("an event") {
        Event::Closed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_outgoing_connection_talks_to_a_listener() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Bytes::new(echo));
        let client = Runtime::builder().config(config()).start().expect("a second runtime");
        let (protocol, events) = told();
        let conn = client.connect(server.address(), protocol).expect("begun");
        // Bytes that are sent before the connection is established wait.
        conn.send(b"early ");
        assert_eq!(opened(&events).id(), conn.id());
        conn.send(b"late");
        assert_eq!(received(&events, 10), b"early late", "{kind:?}");
        assert_eq!(conn.peer_addr(), server.address());
        assert_eq!(client.stats().get(Counter::ConnectionsConnected), 1);
        conn.close("enough");
        assert_eq!(closed(&events), "enough");
        server.wait_until_empty();
    }
}

#[test]
fn a_refused_connection_is_told_with_the_reason_and_never_opened() {
    let (_port, refusing) = ports::refusing();
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    for round in 1..=20 {
        let (protocol, events) = told();
        let conn = runtime.connect(refusing, protocol).expect("begun");
        conn.send(b"for nobody");
        eventually(LONG, || runtime.stats().connections == 0);
        assert!(conn.is_closed());
        assert_eq!(conn.send(b"late"), Sent::Closed);
        assert_eq!(runtime.stats().get(Counter::ClosedIoError), round);
        match events.recv_timeout(LONG).expect("an event") {
            Event::Failed(reason) => assert!(reason.starts_with("connect failed:"), "{reason}"),
            other => panic!("round {round}: {other:?}"),
        }
        drop(conn);
        // No other call follows, and the protocol is dropped with the connection.
        let end = events.recv_timeout(LONG).expect_err("there is nothing to call it for");
        let stats = runtime.stats();
        assert_eq!(end, mpsc::RecvTimeoutError::Disconnected, "round {round}:\n{stats}");
    }
    assert_eq!(runtime.stats().get(Counter::ConnectionsConnected), 0);
    assert_eq!(runtime.stats().buffered_bytes, 0);
}

#[test]
fn a_unix_socket_that_is_not_there_is_an_error_at_once() {
    let dir = TempDir::new();
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let (protocol, events) = told();
    assert!(runtime.connect(dir.socket().as_path(), protocol).is_err());
    let end = events.recv_timeout(LONG).expect_err("there is nothing to call it for");
    assert_eq!(end, mpsc::RecvTimeoutError::Disconnected);
}

#[test]
fn a_connection_knows_its_peer() {
    for kind in BOTH {
        let (protocol, events) = told();
        let server = Server::start(kind, config(), protocol);
        let peer = server.peer();
        let conn = opened(&events);
        assert_eq!(&conn.local_addr().expect("an address"), server.address());
        match kind {
            Kind::Tcp => {
                assert_eq!(conn.peer_addr(), &Address::Tcp(peer.local_addr().expect("TCP")));
                assert_eq!(conn.credentials(), None);
            }
            Kind::Unix => {
                assert_eq!(conn.peer_addr(), &Address::Unix("".into()));
                let credentials = conn.credentials().expect("a Unix socket has them");
                assert_eq!(credentials.pid.cast_unsigned(), std::process::id());
            }
        }
    }
}

#[test]
fn extensions_are_set_once_for_each_type_and_seen_by_all_handles() {
    let (protocol, events) = told();
    let server = Server::start(Kind::Tcp, config(), protocol);
    let _peer = server.peer();
    let conn = opened(&events);
    assert_eq!(conn.extension::<String>(), None);
    assert_eq!(conn.set_extension("first".to_owned()), Ok(()));
    assert_eq!(conn.extension::<i32>(), None, "of another type");
    assert_eq!(conn.set_extension(2), Ok(()));
    let again = conn.set_extension("second".to_owned());
    assert_eq!(again, Err("second".to_owned()), "the value comes back");
    assert_eq!(conn.set_extension(3), Err(3));
    let other = conn.clone();
    let seen = move || (other.extension::<String>().cloned(), other.extension::<i32>().copied());
    let seen = thread::spawn(seen).join().expect("no panic");
    assert_eq!(seen, (Some("first".to_owned()), Some(2)));
    // Of threads that set a value of a new type at the same time, one wins.
    let set = || conn.set_extension([7_u8]).is_ok();
    let won: usize = thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(set));
        threads.into_iter().map(|thread| usize::from(thread.join().expect("no panic"))).sum()
    });
    assert_eq!((won, conn.extension::<[u8; 1]>()), (1, Some(&[7])));
}

#[test]
fn ready_listeners_are_served() {
    let dir = TempDir::new();
    let runtime = Runtime::builder().config(config().epoll_groups(2)).start().expect("a runtime");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let unix = UnixListener::bind(dir.socket()).expect("a path");
    let listeners = [OwnedFd::from(tcp), unix.into()]
        .map(|socket| runtime.listen_on([socket], ListenOptions::new(), Bytes::new(echo)));
    for listener in listeners {
        let listener = listener.expect("taken over");
        let mut peers: Vec<_> = (0..8).map(|_| Peer::connect(listener.local_addr())).collect();
        peers.iter_mut().for_each(|peer| peer.echo(b"hello"));
        let address = listener.local_addr().clone();
        drop(listener);
        eventually(LONG, || Peer::try_connect(&address, None).is_err());
        peers.iter_mut().for_each(|peer| peer.echo(b"still here"));
    }
}

#[test]
fn an_address_in_use_is_an_error() {
    for kind in BOTH {
        // The groups of a runtime share a port, but never with another listener.
        let server = Server::start(kind, config().epoll_groups(2), Bytes::new(echo));
        let second = server.runtime.listen(server.address(), Bytes::new(echo));
        match second {
            Err(ListenError::Bind { address, source }) => {
                assert_eq!(&address, server.address());
                assert_eq!(source.kind(), io::ErrorKind::AddrInUse);
            }
            other => panic!("{kind:?}: {:?}", other.map(|listener: Listener| listener)),
        }
        server.peer().echo(b"the first one goes on");
    }
}

#[test]
fn what_is_no_address_is_an_error() {
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    for text in [
        "nonsense",
        "8080",
        ":8080",
        "*:8080",
        "[::1:8080",
        "::8080",
        "2001:db8::5",
        "/tmp/socket:1",
    ] {
        let check = |error: &io::Error| {
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let expected = format!("{text:?} is no HOST:PORT, [IPV6]:PORT or unix:PATH");
            assert_eq!(error.to_string(), expected);
        };
        match runtime.listen(text, Bytes::new(echo)) {
            Err(ListenError::Address(error)) => check(&error),
            other => panic!("{:?}", other.map(|listener| listener.local_addr().clone())),
        }
        match runtime.connect(text, Bytes::new(echo)) {
            Err(ConnectError::Address(error)) => check(&error),
            other => panic!("{other:?}"),
        }
    }
    assert_clean(&runtime.drain(LONG));
}

/// The kernel would cut such a path at its zero byte, and choose a name in place of an empty path.
#[test]
fn a_path_that_is_empty_or_has_a_zero_byte_is_an_error() {
    let dir = TempDir::new();
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let path = dir.socket();
    let mut longer = path.clone().into_os_string();
    longer.push("\0more");
    let bad = [Path::new(""), Path::new(&longer)];
    let check = |error: &io::Error, path: &Path| {
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        assert_eq!(error.to_string(), format!("the path {path:?} is empty or has a zero byte"));
    };
    for bad in bad {
        match runtime.listen(bad, Bytes::new(echo)) {
            Err(ListenError::Bind { source, .. }) => check(&source, bad),
            other => panic!("{bad:?}: {:?}", other.map(|listener| listener.local_addr().clone())),
        }
        assert!(!path.exists(), "{bad:?}");
    }
    let _listener = runtime.listen(path.as_path(), Bytes::new(echo)).expect("a listener");
    for bad in bad {
        match runtime.connect(bad, Bytes::new(echo)) {
            Err(ConnectError::Io(error)) => check(&error, bad),
            other => panic!("{bad:?}: {other:?}"),
        }
    }
}

#[test]
fn the_file_of_a_unix_socket_goes_with_its_listener() {
    let dir = TempDir::new();
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let path = dir.socket();
    for _ in 0..2 {
        let listener = runtime.listen(path.as_path(), Bytes::new(echo)).expect("a listener");
        Peer::connect(listener.local_addr()).echo(b"hello");
        assert!(path.exists());
        drop(listener);
        eventually(LONG, || !path.exists());
    }
    let _listener = runtime.listen(path.as_path(), Bytes::new(echo)).expect("a listener");
    assert_clean(&runtime.drain(LONG));
    assert!(!path.exists(), "the drain removed it");
}
