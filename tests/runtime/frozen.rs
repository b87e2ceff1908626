//! The server process is stopped and continued, so that all its timers are due at once. A peer that
//! acted in time must not be cut for time in which the server was stopped. The same for a client.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use epoll_group::client::{self, Session};
use epoll_group::net::{Address, Close, Connection, Input};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime, session};

use lab::both::{one, options};
use lab::child::{Puppet, is_child, obey};
use lab::engine::{Engine, Fixture, PASSWORD, config, finish_with};
use lab::protocol::Bytes;
use lab::xrpc::{Client, Trouble, request};
use lab::{Kind, LONG, Peer, Server, eventually, often, pattern};

/// The time limit of a peer, and the time for which the server is stopped.
#[derive(Clone, Copy)]
struct Times {
    limit: Duration,
    stopped: Duration,
}

const SHORT: Times =
    Times { limit: Duration::from_millis(2500), stopped: Duration::from_millis(2800) };
/// The limits are those of the default configuration.
const FULL: Times = Times { limit: Duration::from_secs(10), stopped: Duration::from_secs(30) };

/// Bytes of a large answer: more than the kernel buffers for a peer that does not read.
const LARGE: usize = 16 << 20;
/// Number of peers of each kind.
const PEERS: usize = 8;
/// Number of tries. A try does not count if the machine is too slow to get the peers ready.
const TRIES: u32 = 20;
/// Counters of the connections that are cut.
const CUTS: [Counter; 5] = [
    Counter::ClosedFirstBytesTimeout,
    Counter::ClosedLoginTimeout,
    Counter::ClosedWriteTimeout,
    Counter::ClosedReset,
    Counter::RequestsExpired,
];

#[test]
fn a_server_that_was_stopped_cuts_nobody_who_did_his_part() {
    run(SHORT);
}

#[test]
#[ignore = "takes a minute"]
fn a_server_that_was_stopped_for_30_seconds_cuts_nobody_who_did_his_part() {
    run(FULL);
}

fn run(times: Times) {
    if is_child() {
        serve(times.limit);
        return;
    }
    // A try counts only if the peers are ready long before their time limit.
    assert!((0..TRIES).any(|_| in_time(times)), "they are ready in time, once");
}

/// The child: bare bytes, and sessions.
fn serve(limit: Duration) {
    let limits = |config: Config| {
        let config = config.first_bytes_timeout(limit).net_write_timeout(limit);
        config.login_timeout(limit).request_timeout(limit).half_close_timeout(limit)
    };
    let all = pattern(LARGE);
    let generous = move |conn: &Connection, input: &mut Input<'_>| generous(&all, conn, input);
    let bytes = Server::start(Kind::Tcp, limits(lab::config()), Bytes::new(generous));
    let engine = Arc::new(Engine::new());
    let protocol = session::Server::shared(Arc::clone(&engine));
    let sessions = Server::start(Kind::Tcp, limits(config()), protocol);
    obey(|order| match order {
        "bytes" => bytes.address().to_string(),
        "sessions" => sessions.address().to_string(),
        "finish" => {
            let deferred = engine.control.take_deferred("it", PEERS);
            let finished = deferred.into_iter().map(|it| finish_with(it, "done"));
            finished.filter(|finished| *finished).count().to_string()
        }
        counter => {
            let counter = Counter::ALL.iter().find(|known| known.name() == counter);
            let counter = *counter.expect("an order");
            (bytes.count(counter) + sessions.count(counter)).to_string()
        }
    });
}

/// Echoes the input, or sends a large answer.
fn generous(all: &[u8], conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
    let bytes = input.take_all();
    if bytes == b"all" {
        conn.send(all);
    } else {
        conn.send(bytes);
    }
    Ok(())
}

/// Orders that the children here understand.
trait Orders {
    fn count(&mut self, counter: Counter) -> u64;
    fn cuts(&mut self) -> Vec<(&'static str, u64)>;
    fn address(&mut self, order: &str) -> SocketAddr;
}

impl Orders for Puppet {
    fn count(&mut self, counter: Counter) -> u64 {
        self.number(counter.name())
    }

    fn cuts(&mut self) -> Vec<(&'static str, u64)> {
        CUTS.iter().map(|&counter| (counter.name(), self.count(counter))).collect()
    }

    fn address(&mut self, order: &str) -> SocketAddr {
        self.ask(order).parse().expect("an address")
    }
}

fn many<T>(mut make: impl FnMut() -> T) -> Vec<T> {
    (0..PEERS).map(|_| make()).collect()
}

/// `false` when the peers were not ready in time.
fn in_time(times: Times) -> bool {
    let mut server = Puppet::start(1024);
    let (bytes, sessions) = (server.address("bytes"), server.address("sessions"));
    let plain = Address::from(bytes);
    let began = Instant::now();
    let mut silent = many(|| Peer::connect(&plain));
    let mut idle = many(|| Peer::connect(&plain));
    idle.iter_mut().for_each(|peer| peer.echo(b"nothing more for now"));
    let mut readers = many(|| Peer::connect(&plain));
    readers.iter_mut().for_each(|peer| peer.send(b"all"));
    let mut strangers = many(|| Client::connect(sessions));
    let mut guests = many(|| Client::connect(sessions));
    let challenges = guests.iter_mut().map(|guest| guest.challenge().expect("a challenge"));
    let challenges: Vec<Vec<u8>> = challenges.collect();
    let mut waiting = many(|| waits(Client::logged_in(sessions, "root", PASSWORD)));
    waiting[..PEERS / 2].iter().for_each(Client::finish);
    // These peers do not act in time.
    let (mute, mut lazy) = (Peer::connect(&plain), Peer::connect(&plain));
    lazy.send(b"all");
    let mut unknown = Client::connect(sessions);
    unknown.challenge().expect("a challenge");
    eventually(LONG, || server.count(Counter::ConnectionsAccepted) >= 6 * PEERS as u64 + 3);
    let ready = began.elapsed() < times.limit / 2;
    if !ready {
        return false;
    }

    server.signal("STOP");
    // These peers act within their time limit, while the server is stopped.
    silent.iter_mut().for_each(|peer| peer.send(b"first bytes"));
    for stranger in &mut strangers {
        stranger.send(0, &request::login_start());
    }
    for (guest, challenge) in guests.iter_mut().zip(&challenges) {
        guest.send(0, &request::login_continue(Client::proof("root", PASSWORD, challenge)));
    }
    let read: Vec<usize> = readers.iter_mut().map(read_what_is_there).collect();
    let readers: Vec<_> =
        readers.into_iter().zip(read).map(|(peer, read)| rest(peer, read)).collect();
    thread::sleep(times.stopped);
    server.signal("CONT");

    for peer in &mut silent {
        assert_eq!(peer.receive(11), b"first bytes", "{:?}", server.cuts());
    }
    for (at, stranger) in strangers.iter_mut().enumerate() {
        let reply = stranger.try_reply(0).unwrap_or_else(|trouble| panic!("{at}: {trouble}"));
        let proof = Client::proof("root", PASSWORD, &reply.challenge.expect("a challenge"));
        stranger.prove(proof).expect("logged in");
    }
    guests.iter_mut().for_each(|guest| drop(guest.reply(0).good()));
    assert_eq!(server.ask("finish"), PEERS.to_string());
    waiting.iter_mut().for_each(|client| drop(client.reply(1).good()));
    for reader in readers {
        assert_eq!(reader.join().expect("no panic"), LARGE, "{:?}", server.cuts());
    }
    idle.iter_mut().for_each(|peer| peer.echo(b"a question at last"));
    let cuts = server.cuts();
    assert!(cuts.iter().all(|(_, count)| *count <= 1), "{cuts:?}");

    cut_in_the_end(&mut server, mute, lazy, unknown);
    true
}

/// Checks that the peers that did not act in time are cut in the end.
fn cut_in_the_end(server: &mut Puppet, mut mute: Peer, mut lazy: Peer, mut unknown: Client) {
    mute.receive_all();
    assert!(matches!(unknown.receive(Instant::now() + LONG), Err(Trouble::Closed)));
    eventually(2 * LONG, || server.count(Counter::ClosedWriteTimeout) == 1);
    lazy.receive_all();
    let ones = server.cuts().iter().map(|(_, count)| *count).collect::<Vec<_>>();
    assert_eq!(ones, [1, 1, 1, 0, 0]);
}

/// A client with a request that is answered later.
fn waits(mut client: Client) -> Client {
    client.new_session(1);
    let _ticket = client.send_sql(1, request::query("defer it"));
    client
}

/// Number of bytes that have arrived.
fn read_what_is_there(peer: &mut Peer) -> usize {
    peer.set_patience(Duration::from_millis(50));
    let (mut read, mut buf) = (0, vec![0; 1 << 20]);
    while let Ok(count @ 1..) = peer.read(&mut buf) {
        read += count;
    }
    peer.set_patience(LONG);
    read
}

/// Reads all that comes after the first `read` bytes.
fn rest(mut peer: Peer, mut read: usize) -> JoinHandle<usize> {
    thread::spawn(move || {
        let mut buf = vec![0; 1 << 20];
        while read < LARGE
            && let Ok(count @ 1..) = peer.read(&mut buf)
        {
            read += count;
        }
        read
    })
}

/// Silence after which the client probes the server, and time limit of the probe.
const PROBE: Duration = Duration::from_millis(500);

#[test]
fn a_client_that_was_stopped_looks_at_what_came_before_it_gives_its_connections_up() {
    if is_child() {
        return call();
    }
    let server = Fixture::start(config());
    let mut client = Puppet::start(1024);
    client.ask(&server.addr().to_string());
    // Some stops hit the time between a probe and its answer.
    for _ in 0..often(3) {
        let probes = server.count(Counter::BytesReceived);
        eventually(LONG, || server.count(Counter::BytesReceived) > probes);
        client.signal("STOP");
        thread::sleep(2 * PROBE + PROBE / 2);
        client.signal("CONT");
        assert_eq!(client.ask("connected"), "1", "the first one is there still");
    }
    drop(client);
    server.wait_until_even();
}

/// The child: a session that is there, and silent.
fn call() {
    let runtime = Runtime::builder().config(lab::config()).start().expect("a runtime");
    let mut session = None;
    let mut client = None;
    obey(|order| {
        if order == "connected" {
            let session: &mut Session = session.as_mut().expect("the address comes first");
            assert_eq!(one(session.execute("echo hello")), "hello");
            let client: &client::Client = client.as_ref().expect("the address comes first");
            return client.status().connected.to_string();
        }
        let options = options(order).connections(1).probe_interval(PROBE).probe_timeout(PROBE);
        let new =
            client.insert(client::Client::new(&runtime.handle(), options).expect("good options"));
        session = Some(new.session().expect("a session"));
        String::new()
    });
}
