//! Servers with several addresses, of which some do not answer.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::net::{
    Address, Close, CloseReason, ConnectError, ConnectOptions, Connection, Input, Protocol,
    ToAddress,
};
use epoll_group::stats::Counter;
use lab::ports::{Name, refusing, silent};
use lab::protocol::{Bytes, echo};
use lab::{Kind, LONG, Server, assert_clean, config, eventually};

/// Sends each call to the test.
struct Told(mpsc::Sender<String>);

impl Protocol for Told {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        let _ = self.0.send(format!("opened {}", conn.peer_addr()));
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let _ = self.0.send(String::from_utf8_lossy(input.take_all()).into_owned());
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        let _ = self.0.send(format!("closed: {reason}"));
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        let _ = self.0.send(reason.to_string());
    }
}

fn told() -> (Told, mpsc::Receiver<String>) {
    let (tell, told) = mpsc::channel();
    (Told(tell), told)
}

#[track_caller]
fn next(told: &mpsc::Receiver<String>) -> String {
    told.recv_timeout(LONG).expect("a call")
}

fn runtime() -> Runtime {
    Runtime::builder().config(config()).start().expect("a runtime")
}

fn tcp(server: &Server) -> SocketAddr {
    match server.address() {
        Address::Tcp(at) => *at,
        other => panic!("not TCP: {other}"),
    }
}

#[test]
fn the_addresses_of_a_name_are_tried_until_one_answers() {
    let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    let (_port, refuses) = refusing();
    let runtime = runtime();
    let (protocol, events) = told();
    let name = Name::of([refuses, refuses, tcp(&server), refuses]);
    let conn = runtime.connect(name, protocol).expect("begun");
    conn.send(b"early");
    assert_eq!(next(&events), format!("opened {}", server.address()));
    assert_eq!(next(&events), "early");
    assert_eq!(conn.peer_addr(), server.address());
    conn.close("enough");
    assert_eq!(next(&events), "closed: enough");
    assert_eq!(runtime.stats().get(Counter::ConnectionsConnected), 1);
    server.wait_until_empty();
    assert_clean(&runtime.drain(LONG));
}

#[test]
fn an_attempt_that_is_aborted_fails_for_that_reason() {
    let (_taken, never) = silent();
    let runtime = runtime();
    let (protocol, events) = told();
    let conn = runtime.connect(never, protocol).expect("begun");
    conn.abort("not wanted any more");
    assert_eq!(next(&events), "not wanted any more");
    drop(conn);
    assert!(events.recv_timeout(LONG).is_err(), "told once");
    assert_clean(&runtime.drain(LONG));
}

#[test]
fn if_no_address_answers_the_last_error_is_told_once() {
    let (_port, refuses) = refusing();
    let (_taken, never) = silent();
    let runtime = runtime();
    let options = || ConnectOptions::new().connect_timeout(Duration::from_millis(60));
    for (addresses, error) in [
        (vec![refuses, refuses], "Connection refused"),
        (vec![never, refuses], "Connection refused"),
        (vec![refuses, never], "did not answer within its share of connect_timeout 60ms"),
    ] {
        let (protocol, events) = told();
        let conn = runtime.connect_with(Name::of(addresses), options(), protocol).expect("begun");
        conn.send(b"for nobody");
        let told = next(&events);
        assert!(told.starts_with("connect failed: ") && told.contains(error), "{told}");
        assert!(conn.is_closed());
        drop(conn);
        assert!(events.recv_timeout(LONG).is_err(), "told once");
    }
    let nowhere = runtime
        .connect(Name::of(Vec::<SocketAddr>::new()), told().0)
        .expect_err("there is no address");
    assert!(matches!(nowhere, ConnectError::Io(_)), "{nowhere}");
    eventually(LONG, || runtime.stats().connections == 0);
    assert_clean(&runtime.drain(LONG));
}

#[test]
fn an_address_that_does_not_answer_takes_only_its_share_of_the_time() {
    let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    let (_taken, never) = silent();
    let runtime = runtime();
    let (protocol, events) = told();
    // The whole `connect_timeout` is longer than the test waits.
    let options = ConnectOptions::new().connect_timeout(LONG * 2);
    let mut name = vec![never; 1];
    name.extend(vec![tcp(&server); 1_999]);
    let conn = runtime.connect_with(Name::of(name), options, protocol).expect("begun");
    assert_eq!(next(&events), format!("opened {}", server.address()));
    conn.close("enough");
    assert_eq!(next(&events), "closed: enough");
    assert_clean(&runtime.drain(LONG));
}

#[test]
fn what_was_sent_and_finished_early_arrives_at_the_address_that_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    let (_port, refuses) = refusing();
    let runtime = runtime();
    let (protocol, events) = told();
    let conn = runtime.connect(Name::of([refuses, at]), protocol).expect("begun");
    conn.send(vec![b'x'; 100_000]);
    conn.shutdown_write();
    let (mut accepted, _) = listener.accept().expect("connected");
    let mut got = Vec::new();
    accepted.read_to_end(&mut got).expect("all of it");
    assert_eq!(got.len(), 100_000);
    drop(accepted);
    assert_eq!(next(&events), format!("opened {at}"));
    assert!(next(&events).starts_with("closed: "));
    assert_clean(&runtime.drain(LONG));
}

#[test]
fn a_close_ends_the_attempts() {
    let (_taken, never) = silent();
    let (_port, refuses) = refusing();
    let runtime = runtime();
    let (protocol, events) = told();
    let conn = runtime.connect(Name::of([refuses, never, refuses]), protocol).expect("begun");
    conn.send(b"for nobody");
    conn.close("given up");
    assert_eq!(next(&events), "given up");
    drop(conn);
    assert!(events.recv_timeout(LONG).is_err(), "told once");
    assert_clean(&runtime.drain(LONG));
}

/// Events of an attempt that has failed may be handled after the next one has begun, by other workers.
#[test]
fn many_connections_find_the_address_that_answers() {
    let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    let ports: Vec<_> = (0..4).map(|_| refusing()).collect();
    let runtime = runtime();
    let begin = |number: usize| {
        let (protocol, events) = told();
        let mut addresses: Vec<_> = ports.iter().map(|(_, at)| *at).take(number % 5).collect();
        addresses.push(tcp(&server));
        let conn = runtime.connect(Name::of(addresses), protocol).expect("begun");
        conn.send(number.to_string());
        (number, conn, events)
    };
    let all: Vec<_> = (0..200).map(begin).collect();
    for (number, conn, events) in all {
        assert_eq!(next(&events), format!("opened {}", server.address()));
        assert_eq!(next(&events), number.to_string());
        conn.close("enough");
        assert_eq!(next(&events), "closed: enough");
    }
    server.wait_until_empty();
    assert_clean(&runtime.drain(LONG));
}

/// The code for the second socket runs on a worker.
#[test]
fn a_panic_of_the_code_for_a_later_socket_fails_the_connect() {
    let (_port, refuses) = refusing();
    let runtime = runtime();
    let (protocol, events) = told();
    let calls = AtomicUsize::new(0);
    let options = ConnectOptions::new().prepare_socket(move |_| {
        assert!(calls.fetch_add(1, Ordering::Relaxed) == 0, "planned");
        Ok(())
    });
    let name = Name::of([refuses, refuses]);
    let conn = runtime.connect_with(name, options, protocol).expect("begun");
    let told = next(&events);
    assert!(told.contains("panic"), "{told}");
    assert!(conn.is_closed());
    drop(conn);
    eventually(LONG, || runtime.stats().connections == 0);
    assert_clean(&runtime.drain(LONG));
}

/// The socket of the failed attempt still has the port when the next one is made.
#[test]
fn all_attempts_may_have_the_same_local_port() {
    let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    let (_port, refuses) = refusing();
    let (free, mut from) = refusing();
    // No other socket has this address.
    from.set_ip([127, 0, 0, 77].into());
    drop(free);
    let runtime = runtime();
    let (protocol, events) = told();
    let name = Name::of([refuses, tcp(&server)]);
    let options = ConnectOptions::new().local_addr(from);
    let conn = runtime.connect_with(name, options, protocol).expect("begun");
    assert_eq!(next(&events), format!("opened {}", server.address()));
    assert_eq!(conn.local_addr().expect("TCP"), from.into());
    conn.close("enough");
    assert_eq!(next(&events), "closed: enough");
    assert_clean(&runtime.drain(LONG));
}

/// A server with a Unix socket and a port.
struct Both;

impl ToAddress for Both {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(["127.0.0.1:1".to_addresses()?, "unix:@nobody".to_addresses()?].concat())
    }
}

#[test]
fn a_list_of_addresses_has_one_kind() {
    let runtime = runtime();
    let refused = runtime.connect(Both, Bytes::new(echo)).expect_err("mixed");
    let text = "unix:@nobody is a Unix socket and 127.0.0.1:1 is not: a list has one kind only";
    assert!(refused.to_string().contains(text), "{refused}");
    assert!(matches!(refused, ConnectError::Address(_)));
    assert_clean(&runtime.drain(LONG));
}
