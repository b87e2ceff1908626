//! Servers that are killed, frozen, silent, or broken: each request ends within its deadline, others
//! are not harmed, and service goes on when the server is back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{Client, ConnectionPhase, ErrorKind, Fate, Options, Session, Stage};
use epoll_group::session::Server;
use lab::both::{Both, one, options};
use lab::child::{Puppet, is_child, obey};
use lab::engine::Engine;
use lab::{LONG, eventually};

const SHORT: Duration = Duration::from_millis(100);

fn client(change: impl FnOnce(Options) -> Options, address: SocketAddr) -> (Client, Runtime) {
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let options = options(address).reconnect_min(Duration::from_millis(1));
    let options = options.reconnect_max(Duration::from_millis(20)).session_timeout(LONG);
    (Client::new(&runtime.handle(), change(options)).expect("good options"), runtime)
}

/// Tries until the client has a session that answers.
#[track_caller]
fn recovered(client: &Client) -> Session {
    let mut session = None;
    eventually(LONG, || {
        session = client.session().ok();
        session.as_mut().is_some_and(|session| session.run("one").is_ok())
    });
    session.expect("recovered")
}

/// In the child process of a test: serves on the addresses that the test names. Returns true there.
fn serve_if_child() -> bool {
    if !is_child() {
        return false;
    }
    let runtime = Runtime::builder().config(lab::engine::config()).start().expect("started");
    let mut listeners = Vec::new();
    obey(|address| {
        let listener = runtime.listen(address, Server::new(Engine::new())).expect("listening");
        let address = listener.local_addr().to_string();
        listeners.push(listener);
        address
    });
    true
}

fn backend(address: &str) -> (Puppet, SocketAddr) {
    let mut puppet = Puppet::start(1024);
    let address = puppet.ask(address).parse().expect("TCP");
    (puppet, address)
}

#[test]
fn a_server_that_is_killed_ends_its_requests_and_comes_back() {
    if serve_if_child() {
        return;
    }
    let (puppet, address) = backend("127.0.0.1:0");
    let (client, _runtime) = client(|options| options, address);
    let other = Both::start();
    let mut session = client.session().expect("a session");
    assert_eq!(one(session.execute("one")), "1");
    let pending = session.send("gate a").expect("sent");
    let behind = session.send("one").expect("sent");
    // Drops the server's process with SIGKILL.
    drop(puppet);
    for pending in [pending, behind] {
        let error = pending.wait().expect_err("killed");
        assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{error}");
        assert_eq!(error.fate(), Fate::Unknown);
    }
    assert!(!session.is_alive());
    assert_eq!(session.run("one").expect_err("gone").fate(), Fate::NotSent);
    let error = client.session().expect_err("nobody listens");
    assert!(matches!(error.kind(), ErrorKind::Connect(_)), "{error}");
    assert_eq!(one(other.session().execute("one")), "1");
    let _puppet = backend(&address.to_string());
    recovered(&client);
}

#[test]
fn a_server_that_is_frozen_is_found_out_and_comes_back() {
    if serve_if_child() {
        return;
    }
    let (puppet, address) = backend("127.0.0.1:0");
    // A second is long enough for a server that is only slow.
    let second = Duration::from_secs(1);
    let probed = |options: Options| options.probe_interval(SHORT).probe_timeout(second);
    let (client, _runtime) = client(|options| probed(options).login_timeout(second), address);
    let mut session = client.session().expect("a session");
    assert_eq!(one(session.execute("one")), "1");
    // The server's threads may go on for a moment, so the request is one without an answer.
    let pending = session.send("gate a").expect("sent");
    puppet.signal("STOP");
    let error = pending.wait().expect_err("frozen");
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{error}");
    assert_eq!(error.fate(), Fate::Unknown);
    // The kernel still accepts connections for the stopped process.
    let error = client.session().expect_err("no login");
    let stage = Stage::Login(second);
    assert!(matches!(error.kind(), ErrorKind::Deadline(at) if *at == stage), "{error}");
    puppet.signal("CONT");
    recovered(&client);
}

/// Starts a server that calls `serve` with each connection. Returns its address and the number of
/// accepted connections.
fn bad_server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (serve, accepted) = (Arc::new(serve), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&accepted);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::SeqCst);
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    (address, accepted)
}

/// Reads until the client gives up.
fn silent(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_server_that_accepts_and_is_silent_is_given_up() {
    let (address, _) = bad_server(silent);
    let (client, _runtime) = client(|options| options.login_timeout(SHORT), address);
    let callers = (0..16).map(|_| {
        let client = client.clone();
        thread::spawn(move || client.session().expect_err("no login"))
    });
    for caller in callers.collect::<Vec<_>>() {
        let error = caller.join().expect("no panic");
        assert!(matches!(error.kind(), ErrorKind::Deadline(Stage::Login(_))), "{error}");
        assert_eq!(error.fate(), Fate::NotSent);
    }
}

#[test]
fn no_more_connections_are_made_at_a_time_than_allowed() {
    let (address, accepted) = bad_server(silent);
    let patient = |options: Options| options.login_timeout(LONG).connections(8).max_connecting(3);
    let (client, _runtime) = client(patient, address);
    for _ in 0..16 {
        client.session_then(drop);
    }
    eventually(LONG, || accepted.load(Ordering::SeqCst) == 3);
    let status = client.status();
    let phases = status.connections.iter().map(|connection| connection.phase);
    assert_eq!(phases.filter(|&phase| phase == ConnectionPhase::Connecting).count(), 3);
    assert_eq!(status.waiting, 16);
    client.close();
    assert_eq!(accepted.load(Ordering::SeqCst), 3);
}

/// A server that closes its first connection and says nothing on the others. Its client has tried once.
fn failed_once(change: impl FnOnce(Options) -> Options) -> (Client, Runtime, Arc<AtomicUsize>) {
    let first = AtomicBool::new(true);
    let (address, accepted) = bad_server(move |stream| {
        if !first.swap(false, Ordering::SeqCst) {
            silent(stream);
        }
    });
    let patient = |options: Options| options.login_timeout(LONG).connections(8).max_connecting(3);
    let (client, runtime) = client(|options| change(patient(options)), address);
    client.session().expect_err("closed");
    assert_eq!((client.status().failed, accepted.load(Ordering::SeqCst)), (1, 1));
    (client, runtime, accepted)
}

fn connecting(client: &Client) -> usize {
    let connections = client.status().connections;
    connections.iter().filter(|connection| connection.phase == ConnectionPhase::Connecting).count()
}

#[test]
fn after_a_failure_one_connection_is_made_at_a_time() {
    let (client, _runtime, accepted) = failed_once(|options| options);
    for _ in 0..16 {
        client.session_then(drop);
    }
    eventually(LONG, || accepted.load(Ordering::SeqCst) == 2);
    // The next caller makes the client look for places again.
    client.session_then(drop);
    assert_eq!((connecting(&client), client.status().waiting), (1, 17));
    client.close();
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
}

#[test]
fn after_a_failure_nothing_is_connected_before_the_pause_is_over() {
    let hour = Duration::from_secs(3600);
    let pauses = |options: Options| options.reconnect_min(hour).reconnect_max(hour);
    let (client, _runtime, accepted) = failed_once(pauses);
    for _ in 0..16 {
        client.session_then(drop);
    }
    assert_eq!((connecting(&client), client.status().waiting), (0, 16));
    client.close();
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_server_that_closes_or_talks_nonsense_is_given_up() {
    let bad: [fn(TcpStream); 4] = [
        drop,
        |stream| stream.shutdown(Shutdown::Write).expect("half closed"),
        |mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sent"),
        // Half of a header, then the end.
        |mut stream| stream.write_all(&[0, 0, 0, 0, 0, 0]).expect("sent"),
    ];
    for serve in bad {
        let (address, accepted) = bad_server(serve);
        let (client, _runtime) = client(|options| options.max_connecting(1), address);
        for _ in 0..5 {
            let error = client.session().expect_err("no server");
            assert_eq!(error.fate(), Fate::NotSent);
            assert!(!error.is_timeout(), "{error}");
        }
        assert!(accepted.load(Ordering::SeqCst) >= 1);
        assert!(client.status().failed >= 5);
    }
}

#[test]
fn a_wrong_password_is_told_to_all_who_wait() {
    let both = Both::start_with(|options| options.password("wrong"));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let client = both.client.clone();
            thread::spawn(move || client.session().expect_err("refused"))
        })
        .collect();
    for caller in callers {
        let error = caller.join().expect("no panic");
        assert!(matches!(error.kind(), ErrorKind::Login(_)), "{error}");
    }
}

#[test]
fn a_server_that_opens_no_sessions_refuses_what_was_sent_with_the_opening() {
    let server = lab::engine::Fixture::start(lab::engine::config());
    let no_entry = Options::new(server.addr().to_string(), "no-entry");
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let no_entry = no_entry.password(lab::engine::PASSWORD);
    let client = Client::new(&runtime.handle(), no_entry).expect("good options");
    let mut session = client.session().expect("a session");
    let (first, second) = (session.send("one").expect("sent"), session.send("one"));
    let error = first.wait().expect_err("refused");
    assert_eq!(error.server_error().expect("of the server").code, 1040);
    assert_eq!(error.fate(), Fate::Refused);
    match second {
        Ok(pending) => assert_eq!(pending.wait().expect_err("refused").fate(), Fate::Refused),
        // The client knew of the refusal before the second request was sent.
        Err(error) => assert_eq!(error.fate(), Fate::NotSent),
    }
    assert!(!session.is_alive());
}
