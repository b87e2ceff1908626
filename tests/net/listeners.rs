//! Options of listeners and outgoing connections, and sockets that come from elsewhere.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::mpsc;
use std::time::Duration;

use epoll_group::net::{
    Address, Close, CloseReason, ConnectError, ConnectOptions, Connection, HalfClose, Input,
    ListenError, ListenOptions, Listener, Protocol,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};
use lab::protocol::{Bytes, echo};
use lab::{LONG, Peer, TempDir, config, eventually, pattern, ports};
use socket2::SockRef;

/// Echoes. Tells the test of each connection that was opened, of the reason that each ended for, and of
/// each that could not be made.
struct Tells {
    opened: mpsc::Sender<Connection>,
    ended: mpsc::Sender<String>,
}

type Ends = mpsc::Receiver<String>;

fn tells() -> (Tells, mpsc::Receiver<Connection>, Ends) {
    let ((opened, given), (ended, ends)) = (mpsc::channel(), mpsc::channel());
    (Tells { opened, ended }, given, ends)
}

impl Protocol for Tells {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        let _ = self.opened.send(conn.clone());
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        // A first byte of 0 begins a frame that never ends.
        if input.bytes().first() != Some(&0) {
            conn.send(input.take_all());
        }
        Ok(())
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        Ok(HalfClose::End)
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        let _ = self.ended.send(reason.to_string());
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        let _ = self.ended.send(reason.to_string());
    }
}

fn runtime(config: Config) -> Runtime {
    Runtime::builder().config(config).start().expect("a runtime")
}

fn echoes(runtime: &Runtime, options: ListenOptions) -> Listener {
    runtime.listen_with("127.0.0.1:0", options, Bytes::new(echo)).expect("a listener")
}

fn next<T>(told: &mpsc::Receiver<T>) -> T {
    told.recv_timeout(LONG).expect("told")
}

#[test]
fn the_limit_of_a_listener_leaves_other_listeners_alone() {
    for groups in [1, 2] {
        let runtime = runtime(config().epoll_groups(groups));
        let small = echoes(&runtime, ListenOptions::new().max_connections(2));
        let other = echoes(&runtime, ListenOptions::new());
        let mut peers: Vec<_> = (0..2).map(|_| Peer::connect(small.local_addr())).collect();
        peers.iter_mut().for_each(|peer| peer.echo(b"in"));
        let mut refused = Peer::connect(small.local_addr());
        assert_eq!(refused.receive_to_finish(), b"");
        Peer::connect(other.local_addr()).echo(b"elsewhere");
        drop(peers.pop());
        eventually(LONG, || small.stats().open == 1);
        Peer::connect(small.local_addr()).echo(b"there is room again");
        let stats = small.stats();
        assert_eq!((stats.accepted, stats.refused_max_connections), (3, 1));
        assert_eq!(stats.refused_max_connections_per_address, 0);
        assert_eq!(other.stats().accepted, 1);
        assert_eq!(runtime.stats().get(Counter::ConnectionsRefusedLimit), 1);
    }
}

#[test]
fn one_address_cannot_take_the_places_of_another() {
    let runtime = runtime(config());
    let listener = echoes(&runtime, ListenOptions::new().max_connections_per_address(1));
    let from = |host| {
        let (protocol, given, ends) = tells();
        let options = ConnectOptions::new().local_addr(SocketAddr::from(([127, 0, 0, host], 0)));
        let conn = runtime.connect_with(listener.local_addr(), options, protocol);
        (conn.expect("begun"), given, ends)
    };
    let one = from(2);
    eventually(LONG, || listener.stats().open == 1);
    let refused = from(2);
    assert_eq!(next(&refused.2), "the peer finished");
    let other = from(3);
    eventually(LONG, || listener.stats().open == 2);
    assert_eq!(listener.stats().refused_max_connections_per_address, 1);
    one.0.close("leaves");
    eventually(LONG, || listener.stats().open == 1);
    let again = from(2);
    eventually(LONG, || listener.stats().accepted == 3);
    drop((one, other, again));
}

#[test]
fn a_listener_has_its_own_time_outs() {
    const SHORT: Duration = Duration::from_millis(30);
    let runtime = runtime(config());
    let others = echoes(&runtime, ListenOptions::new());
    let mut other = Peer::connect(others.local_addr());
    other.echo(b"open");
    let cases = [
        (ListenOptions::new().first_bytes_timeout(SHORT), "", "first_bytes_timeout 30ms"),
        (ListenOptions::new().idle_timeout(SHORT), "x", "idle_timeout 30ms"),
        (ListenOptions::new().frame_timeout(SHORT), "\0", "frame_timeout 30ms"),
    ];
    for (options, sent, reason) in cases {
        let (protocol, _given, ends) = tells();
        let listener = runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener");
        let mut peer = Peer::connect(listener.local_addr());
        peer.send(sent.as_bytes());
        let end = next(&ends);
        assert!(end.ends_with(reason), "{end}");
    }
    // A peer that does not read.
    let (protocol, given, ends) = tells();
    let options = ListenOptions::new().net_write_timeout(SHORT);
    let listener = runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener");
    let _peer = Peer::try_connect(listener.local_addr(), Some(4096)).expect("connected");
    next(&given).send(pattern(8 << 20));
    let end = next(&ends);
    assert!(end.ends_with("net_write_timeout 30ms"), "{end}");
    other.echo(b"all this time");
}

#[test]
fn a_time_out_out_of_its_range_is_refused_with_its_name() {
    let runtime = runtime(config());
    let huge = Duration::MAX;
    let cases = [
        (ListenOptions::new().first_bytes_timeout(huge), "first_bytes_timeout"),
        (ListenOptions::new().frame_timeout(Duration::ZERO), "frame_timeout"),
        (ListenOptions::new().idle_timeout(huge), "idle_timeout"),
        (ListenOptions::new().net_write_timeout(huge), "net_write_timeout"),
    ];
    for (options, name) in cases {
        let refused = runtime.listen_with("127.0.0.1:0", options, Bytes::new(echo));
        let error = refused.expect_err("it is out of its range").to_string();
        assert!(error.starts_with(&format!("listen: {name} ")), "{error}");
    }
    let listener = echoes(&runtime, ListenOptions::new());
    let options = ConnectOptions::new().net_write_timeout(huge);
    let refused = runtime.connect_with(listener.local_addr(), options, Bytes::new(echo));
    assert!(matches!(refused, Err(ConnectError::Options(_))), "{refused:?}");
    // `connect_timeout` and `set_idle_timeout` have no range.
    let (protocol, given, _ends) = tells();
    let options = ConnectOptions::new().connect_timeout(huge);
    let conn = runtime.connect_with(listener.local_addr(), options, protocol).expect("begun");
    next(&given).set_idle_timeout(huge);
    assert!(!conn.is_closed());
}

#[test]
fn an_idle_time_out_begins_when_it_is_set() {
    let (protocol, given, ends) = tells();
    let runtime = runtime(config());
    let idle = ListenOptions::new().idle_timeout(Duration::from_millis(20));
    let listener = runtime.listen_with("127.0.0.1:0", idle, protocol).expect("a listener");
    let mut kept = Peer::connect(listener.local_addr());
    kept.echo(b"open");
    let conn = next(&given);
    conn.set_idle_timeout(Duration::ZERO);
    // Another connection is idle for as long as this one.
    let mut other = Peer::connect(listener.local_addr());
    other.echo(b"open");
    assert_eq!(next(&ends), "idle for idle_timeout 20ms");
    conn.set_idle_timeout(LONG);
    kept.echo(b"still open");
}

#[test]
fn the_idle_time_out_of_one_connection_can_be_changed() {
    let (protocol, given, ends) = tells();
    let runtime = runtime(config());
    let idle = ListenOptions::new().idle_timeout(Duration::from_secs(3600));
    let listener = runtime.listen_with("127.0.0.1:0", idle, protocol).expect("a listener");
    let mut peers = [(); 2].map(|()| Peer::connect(listener.local_addr()));
    peers.iter_mut().for_each(|peer| peer.echo(b"open"));
    let first = next(&given);
    let kept = next(&given);
    kept.set_idle_timeout(Duration::ZERO);
    first.set_idle_timeout(Duration::from_millis(10));
    assert_eq!(next(&ends), "idle for idle_timeout 10ms");
    assert!(!kept.is_closed());
}

#[test]
fn a_connect_ends_at_its_own_time_out() {
    let (_taken, at) = ports::silent();
    let runtime = runtime(config());
    let (protocol, _given, ends) = tells();
    let options = ConnectOptions::new().connect_timeout(Duration::from_millis(20));
    let conn = runtime.connect_with(at, options, protocol).expect("begun");
    let late = format!("connect failed: {at} did not answer within connect_timeout 20ms");
    assert_eq!(next(&ends), late);
    assert!(conn.is_closed());
    // A close gives up at once.
    let (protocol, _given, ends) = tells();
    let options = ConnectOptions::new().connect_timeout(LONG);
    let conn = runtime.connect_with(at, options, protocol).expect("begun");
    conn.send(b"for later");
    conn.close("given up");
    assert_eq!(next(&ends), "given up");
    // `connect_timeout` counts until the connection is established, not longer.
    let listener = echoes(&runtime, ListenOptions::new());
    let (protocol, given, ends) = tells();
    let options = ConnectOptions::new().connect_timeout(LONG);
    let conn = runtime.connect_with(listener.local_addr(), options, protocol).expect("begun");
    next(&given);
    conn.close("enough");
    assert_eq!(next(&ends), "enough");
}

#[test]
fn sockets_are_prepared_before_they_are_bound_and_connected() {
    const TTL: u32 = 77;
    let prepare = |socket: std::os::fd::BorrowedFd<'_>| {
        let socket = SockRef::from(&socket);
        assert!(socket.local_addr()?.as_socket().is_none_or(|local| local.port() == 0));
        socket.set_ttl_v4(TTL)
    };
    let runtime = runtime(config().epoll_groups(2));
    let (protocol, accepted, _ends) = tells();
    let options = ListenOptions::new().prepare_socket(prepare);
    let listener = runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener");
    let (protocol, connected, _ends_too) = tells();
    let options = ConnectOptions::new().prepare_socket(prepare);
    let conn = runtime.connect_with(listener.local_addr(), options, protocol).expect("begun");
    for conn in [conn, next(&accepted), next(&connected)] {
        assert_eq!(SockRef::from(&conn).ttl_v4().expect("told"), TTL);
    }
    let refuses = |_: std::os::fd::BorrowedFd<'_>| Err(io::Error::other("not this one"));
    let options = ListenOptions::new().prepare_socket(refuses);
    let refused = runtime.listen_with("127.0.0.1:0", options, Bytes::new(echo));
    let error = refused.expect_err("it was refused").to_string();
    assert_eq!(error, "listen on 127.0.0.1:0: not this one");
}

#[test]
fn several_ready_sockets_make_one_listener() {
    for groups in [1, 2, 3] {
        let runtime = runtime(config().epoll_groups(groups));
        let ready = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let at = ready.each_ref().map(|ready| ready.local_addr().expect("its number"));
        let options = ListenOptions::new();
        let listener = runtime.listen_on(ready, options, Bytes::new(echo)).expect("taken over");
        for at in at {
            Peer::connect(&Address::Tcp(at)).echo(b"hello");
        }
        assert_eq!(listener.stats().accepted, 2);
        drop(listener);
        for at in at {
            eventually(LONG, || TcpStream::connect(at).is_err());
        }
    }
    let none = Vec::<OwnedFd>::new();
    let none = runtime(config()).listen_on(none, ListenOptions::new(), Bytes::new(echo));
    assert!(matches!(none, Err(ListenError::Watch(_))), "{none:?}");
}

#[test]
fn a_socket_that_the_host_accepted_is_adopted() {
    let runtime = runtime(config().max_connections(1));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = Address::Tcp(listener.local_addr().expect("its number"));
    let accept = || (Peer::connect(&at), listener.accept().expect("a peer").0);
    let (mut peer, socket) = accept();
    let conn = runtime.handle().adopt(socket, Bytes::new(echo)).expect("adopted");
    peer.echo(b"hello");
    let limit = runtime.handle().adopt(accept().1, Bytes::new(echo));
    assert!(matches!(limit, Err(ConnectError::Limit(1))), "{limit:?}");
    conn.close("enough");
    eventually(LONG, || runtime.stats().connections == 0);
    let datagrams = UnixDatagram::pair().expect("descriptors").0;
    let datagrams = runtime.handle().adopt(datagrams, Bytes::new(echo));
    assert!(matches!(datagrams, Err(ConnectError::Io(_))), "{datagrams:?}");
    let unconnected = runtime.handle().adopt(listener, Bytes::new(echo));
    assert!(matches!(unconnected, Err(ConnectError::Io(_))), "{unconnected:?}");
    assert_eq!(runtime.stats().get(Counter::ConnectionsAccepted), 1);
}

#[test]
fn a_port_is_shared_only_with_a_listener_that_says_so() {
    let [one, two] = [1, 2].map(|groups| runtime(config().epoll_groups(groups)));
    let shared = ListenOptions::new().reuse_port(true);
    let first = echoes(&one, shared.clone());
    let at = first.local_addr();
    let second = two.listen_with(at, shared, Bytes::new(echo)).expect("shared");
    let refused = two.listen(at, Bytes::new(echo));
    assert!(matches!(refused, Err(ListenError::Bind { .. })), "{refused:?}");
    drop(second);
    // The sockets of the second listener are closed when its runtime has ended.
    drop(two);
    Peer::connect(at).echo(b"the first one is left");
}

#[test]
fn an_abstract_name_needs_no_file() {
    let runtime = runtime(config());
    let name = format!("unix:@epoll-group-{}", std::process::id());
    let listener = runtime.listen(name.as_str(), Bytes::new(echo)).expect("a listener");
    assert_eq!(listener.local_addr().to_string(), name);
    let (protocol, given, _ends) = tells();
    let conn = runtime.connect(listener.local_addr(), protocol).expect("begun");
    assert_eq!(conn.peer_addr().to_string(), name);
    next(&given);
    eventually(LONG, || listener.stats().open == 1);
}

#[test]
fn only_a_stale_file_is_replaced_and_only_if_asked() {
    let (runtime, dir) = (runtime(config()), TempDir::new());
    let path = dir.socket();
    drop(UnixListener::bind(&path).expect("bound"));
    let refused = runtime.listen(path.as_path(), Bytes::new(echo));
    assert!(matches!(refused, Err(ListenError::Bind { .. })), "{refused:?}");
    let replace = ListenOptions::new().replace_stale_file(true);
    let listener = runtime.listen_with(path.as_path(), replace.clone(), Bytes::new(echo));
    let listener = listener.expect("replaced");
    Peer::connect(listener.local_addr()).echo(b"hello");
    let live = runtime.listen_with(path.as_path(), replace.clone(), Bytes::new(echo));
    assert!(matches!(live, Err(ListenError::Bind { .. })), "{live:?}");
    let file = dir.socket().with_file_name("a file");
    std::fs::write(&file, "kept").expect("written");
    let no_socket = runtime.listen_with(file.as_path(), replace, Bytes::new(echo));
    assert!(matches!(no_socket, Err(ListenError::Bind { .. })), "{no_socket:?}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"kept");
}

#[test]
fn a_successor_takes_the_sockets_over_and_no_connection_is_lost() {
    let dir = TempDir::new();
    for groups in [1, 2] {
        let [old, new] = [(); 2].map(|()| runtime(config().epoll_groups(groups)));
        for at in ["127.0.0.1:0".to_owned(), format!("unix:{}", dir.socket().display())] {
            let listener = old.listen(at.as_str(), Bytes::new(echo)).expect("a listener");
            let at = listener.local_addr().clone();
            let sockets = listener.sockets().expect("descriptors");
            let successor =
                new.listen_on(sockets, ListenOptions::new(), Bytes::new(echo)).expect("taken over");
            drop(listener);
            for _ in 0..64 {
                Peer::connect(&at).echo(b"hello");
            }
            drop(successor);
            eventually(LONG, || Peer::try_connect(&at, None).is_err());
            let _ = std::fs::remove_file(dir.socket());
        }
    }
}
