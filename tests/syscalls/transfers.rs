//! Short sends, stale events, doubled wake-ups and endless signals do not change the answers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use epoll_group::client::Client;
use epoll_group::codec::value::Value;
use epoll_group::net::{Address, Listener};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime, session};

use crate::shims::{Armed, Call, Effect, Fault, Side, builder, on_behalf, passing, signals};
use crate::world::World;
use lab::both::{one, options};
use lab::engine::{Engine, config};
use lab::protocol::{Bytes, echo};
use lab::workers::{Gate, threads_named};
use lab::{Kind, LONG, Server, assert_clean, eventually, often};

/// A session server and its client, each on a runtime whose calls can be interfered with.
pub(crate) struct Pair {
    pub(crate) server: Runtime,
    _listener: Listener,
    caller: Runtime,
    pub(crate) client: Client,
}

impl Pair {
    pub(crate) fn start() -> Self {
        let server = builder(Side::Server, config()).start().expect("a runtime");
        let protocol = session::Server::shared(Arc::new(Engine::new()));
        let listener = server.listen("127.0.0.1:0", protocol).expect("a listener");
        let Address::Tcp(address) = *listener.local_addr() else { unreachable!("TCP") };
        let caller = builder(Side::Client, config()).start().expect("a runtime");
        let options = options(address).connections(4);
        let client = Client::new(&caller.handle(), options).expect("good options");
        Self { server, _listener: listener, caller, client }
    }

    /// Lets four threads ask at once, each in a session of its own.
    pub(crate) fn converse(&self, requests: u32) {
        thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || on_behalf(Side::Client, || self.ask(number, requests)));
            }
        });
    }

    fn ask(&self, number: u32, requests: u32) {
        let mut session = self.client.session().expect("a session");
        for request in 0..requests {
            let text = format!("{number} {request}");
            assert_eq!(one(session.execute(format!("echo {text}"))), text);
        }
        let mut answer = session.execute("rows 50 100").expect("an answer");
        let mut rows = 0;
        while let Some(row) = answer.next_row().expect("in order") {
            assert_eq!(row.get(0).expect("a number"), Value::Signed(rows));
            rows += 1;
        }
        assert_eq!(rows, 50);
    }

    /// Wakes a worker of the server.
    fn wake(&self) {
        let (tell, told) = mpsc::channel();
        let code = move || tell.send(()).expect("waited for");
        on_behalf(Side::Server, || self.server.handle().spawn(code)).expect("room");
        told.recv_timeout(LONG).expect("it runs");
    }

    pub(crate) fn end(self) {
        drop(self.client);
        for runtime in [self.caller, self.server] {
            let stats = runtime.stats();
            let odd = [Counter::Panics, Counter::ClosedReset, Counter::ClosedIoError];
            assert_eq!(odd.map(|counter| stats.get(counter)), [0; 3], "{stats}");
            assert_clean(&runtime.drain(LONG));
        }
    }
}

/// Arms a fault that hits every such call on both sides.
pub(crate) fn always(call: Call, effect: Effect) -> [Armed; 2] {
    [Side::Server, Side::Client].map(|side| Fault::new(side, call, effect).always().arm())
}

#[test]
fn an_answer_of_which_one_byte_left_and_no_edge_follows_is_whole_in_the_end() {
    let world = World::enter();
    let pair = Pair::start();
    let soon = |config: Config| config.net_write_timeout(Duration::from_millis(5));
    pair.server.handle().reconfigure(soon).expect("in its range");
    let mut session = pair.client.session().expect("a session");
    let mut hits = 0;
    for request in 0..often(50).max(2) {
        // The fault hits one of the two calls, once. The rest is sent when the server looks at the
        // connection again, at its write deadline.
        let call = if request % 2 == 0 { Call::Send } else { Call::Sendmsg };
        let short = Fault::new(Side::Server, call, Effect::AtMost(1)).arm();
        assert_eq!(one(session.execute(format!("echo {request}"))), request.to_string());
        hits += short.hits();
    }
    assert!(hits > 0);
    drop(session);
    pair.end();
    world.is_as_before();
}

#[test]
fn events_that_are_not_so_and_wake_ups_twice_change_nothing() {
    let world = World::enter();
    let pair = Pair::start();
    let echoes = always(Call::EpollWait, Effect::Echoes);
    let twice = always(Call::Write, Effect::Twice);
    pair.converse(often(100));
    assert!(echoes.iter().all(|fault| fault.hits() > 0));
    // Some workers rest outside epoll, where a wake-up writes nothing.
    eventually(LONG, || {
        pair.wake();
        twice.iter().any(|fault| fault.hits() > 0)
    });
    drop((echoes, twice));
    pair.converse(1);
    pair.end();
    world.is_as_before();
}

#[test]
fn signals_without_end_change_nothing() {
    let world = World::enter();
    let pair = Pair::start();
    let stop = AtomicBool::new(false);
    let (sent, before) = (AtomicU64::new(0), signals::received());
    signals::interrupt_calls();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for name in ["srv-", "cli-"] {
                    let threads = signals::threads_of(name);
                    sent.fetch_add(signals::send(&threads), Ordering::Relaxed);
                }
            }
        });
        while signals::received() - before < 1000 {
            pair.converse(often(100));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(sent.load(Ordering::Relaxed) >= 1000);
    assert!(!threads_named("srv-").is_empty(), "they are there still");
    pair.end();
    world.is_as_before();
}

#[test]
fn what_waits_behind_bytes_that_came_with_descriptors_is_received() {
    let world = World::enter();
    // One worker, which is busy until all bytes have arrived.
    let config = lab::config().epoll_threads_per_group(1).reserve_threads_per_group(0);
    let config = config.enable_tasker(false).max_threads(2);
    let server = Server::start(Kind::Unix, config, Bytes::new(echo));
    let Address::Unix(path) = server.address().clone() else { unreachable!("a path") };
    let gate = Gate::default();
    let gate_2 = gate.clone();
    server.runtime.handle().spawn(move || gate_2.pass()).expect("room");
    gate.wait_for(1);
    let mut peer = UnixStream::connect(path).expect("connected");
    peer.set_read_timeout(Some(LONG)).expect("a time above 0");
    // A receive ends here, whatever waits behind it.
    assert_eq!(passing::send(&peer, b"one, "), 5);
    peer.write_all(b"two").expect("sent");
    gate.open();
    let mut bytes = [0; 8];
    peer.read_exact(&mut bytes).expect("both come back");
    assert_eq!(&bytes, b"one, two");
    drop(peer);
    assert_clean(&server.drain(LONG));
    world.is_as_before();
}
