//! Connections are accepted and served.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use epoll_group::net::{Address, Connection, Input, Listener, PeerState};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime, session, stall};

use super::life::{ends, held, words};
use super::{Outcome, Row, When, run};
use crate::shims::{Armed, Call, Effect, Fault, Side, builder, on_behalf};
use crate::world::{Bystanders, WHO, answer};
use lab::engine::{Engine, PASSWORD, config as engine_config};
use lab::protocol::{Bytes, Ends};
use lab::workers::Gate;
use lab::xrpc::{Client, request};
use lab::{BOTH, Kind, LONG, Peer, TempDir, config, eventually};

/// A server of ours, and bystanders.
pub(super) struct Serving {
    pub(super) runtime: Runtime,
    pub(super) listener: Listener,
    pub(super) bystanders: Bystanders,
    pub(super) ends: Ends,
    _dir: TempDir,
}

/// Returns the address to which a listener of this kind is bound. The path of a Unix socket is in `dir`.
pub(super) fn place(kind: Kind, dir: &TempDir) -> String {
    match kind {
        Kind::Tcp => "127.0.0.1:0".into(),
        Kind::Unix => format!("unix:{}", dir.socket().display()),
    }
}

/// A peer, and the number by which faults know it.
pub(super) fn victim(of: &Address) -> (Peer, u16) {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    if let Address::Unix(path) = of {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        (Peer::connect_from(&path.with_file_name(number.to_string()), path), number)
    } else {
        let peer = Peer::connect(of);
        let port = peer.local_addr().expect("TCP").port();
        (peer, port)
    }
}

impl Serving {
    /// An echo, with bystanders.
    pub(super) fn start(kind: Kind, config: Config) -> Self {
        let dir = TempDir::new();
        let runtime = builder(Side::Server, config).start().expect("a runtime");
        let (protocol, ends) = Bytes::with_ends(answer);
        let listener = runtime.listen(place(kind, &dir), protocol).expect("a listener");
        let bystanders = Bystanders::start(listener.local_addr());
        Self { runtime, listener, bystanders, ends, _dir: dir }
    }

    pub(super) fn peer(&self) -> Peer {
        Peer::connect(self.listener.local_addr())
    }

    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.runtime.stats().get(counter)
    }

    pub(super) fn end(self) {
        self.bystanders.end();
        ends(self.runtime);
    }
}

const fn fault(call: Call, errno: i32) -> Fault {
    Fault::new(Side::Server, call, Effect::Fails(errno))
}

const QUESTION: &[u8] = b"a question";

#[test]
fn accepting_goes_on_whatever_accept4_says() {
    run(&[When::Accept], accept);
}

fn accept(row: &Row) {
    BOTH.into_iter().for_each(|kind| accept_of(kind, row));
}

fn accept_of(kind: Kind, row: &Row) {
    let server = Serving::start(kind, config());
    row.each(|errno, outcome| {
        let (mut pauses, before) = (0, server.runtime.stats());
        match outcome {
            Outcome::Unseen => {
                let fault = fault(row.call, errno).times(3).arm();
                server.peer().echo(QUESTION);
                assert_eq!(fault.hits(), 3, "{errno}");
            }
            Outcome::Pauses => {
                let fault = fault(row.call, errno).times(4).arm();
                server.peer().echo(QUESTION);
                assert_eq!(fault.hits(), 4, "{errno}");
                pauses = 1;
            }
            Outcome::Ends => {
                let fault = fault(row.call, errno).arm();
                assert!(server.peer().receive_all().0.is_empty(), "closed unserved");
                assert_eq!(fault.hits(), 1);
            }
            other => unreachable!("accepting: {other:?}"),
        }
        server.bystanders.go_on();
        server.peer().echo(QUESTION);
        let stats = server.runtime.stats().since(&before);
        let errors = match outcome {
            Outcome::Ends => stats.get(Counter::AcceptErrorsOther),
            Outcome::Unseen if errno == libc::EINTR => 1,
            Outcome::Unseen => stats.get(Counter::AcceptErrorsPeer),
            _ => stats.get(Counter::AcceptErrorsResources) + stats.get(Counter::AcceptErrorsOther),
        };
        assert!(errors > 0 && stats.get(Counter::AcceptPauses) >= pauses, "{errno}: {stats}");
    });
    if row.call == Call::Accept4 {
        forbidden(&server);
    }
    server.end();
}

/// A sandbox refuses `accept4` with EPERM, which usually means that one connection ended.
fn forbidden(server: &Serving) {
    let pauses = server.count(Counter::AcceptPauses);
    let fault = fault(Call::Accept4, libc::EPERM).always().arm();
    let mut waiting = server.peer();
    eventually(LONG, || server.count(Counter::AcceptPauses) >= pauses + 3);
    assert!(fault.hits() < 1000, "it does not spin");
    drop(fault);
    waiting.echo(QUESTION);
}

#[test]
fn a_failing_call_ends_its_connection_at_most() {
    run(&[When::Serve, When::ServeUnix], serve);
}

fn serve(row: &Row) {
    match (row.when, row.call) {
        (When::ServeUnix, Call::Getsockopt) => nobody(row),
        (_, Call::Getsockopt) => reset(row),
        (_, Call::Poll) => gone(row),
        _ => serve_victims(row),
    }
}

fn serve_victims(row: &Row) {
    // A connection whose edge was lost is looked at again at its write deadline.
    let config = config().net_write_timeout(Duration::from_millis(20));
    let kind = if row.when == When::ServeUnix { Kind::Unix } else { Kind::Tcp };
    let server = Serving::start(kind, config);
    let mut errors = 0;
    row.each(|errno, outcome| {
        let case = format!("{:?} {errno}", row.call);
        let closed = server.count(Counter::ConnectionsClosed);
        let (mut victim, number) = victim(server.listener.local_addr());
        victim.echo(QUESTION);
        let times = if matches!(outcome, Outcome::Unseen) { 3 } else { 1 };
        let fault = match row.call {
            // These calls do not tell for which peer they are made.
            Call::EpollWait | Call::Write | Call::EpollDel | Call::Close => {
                fault(row.call, errno).times(times)
            }
            _ => fault(row.call, errno).times(times).peer(number),
        };
        let fault = fault.arm();
        let _full = (row.call == Call::EpollMod).then(|| is_full(number));
        let question: &[u8] = if row.call == Call::Sendmsg { b"2 questions" } else { QUESTION };
        if row.call == Call::Write {
            wake(&server.runtime);
        }
        match outcome {
            Outcome::Ends => {
                victim.send(question);
                assert!(victim.receive_all().0.is_empty(), "{case}: ended unanswered");
                let all = server.ends.wait_for(usize::try_from(closed).expect("few") + 1);
                let last = all.last().expect("one at least");
                assert!(last.contains(&words(errno)), "{case}: {last}");
                let counters = [Counter::ClosedReset, Counter::ClosedIoError];
                let counted: u64 = counters.map(|counter| server.count(counter)).iter().sum();
                assert_eq!(counted, errors + 1, "{case}");
                errors = counted;
            }
            _ => {
                victim.echo(question);
                victim.finish();
                assert!(victim.receive_to_finish().is_empty(), "{case}: in good order");
            }
        }
        drop(victim);
        eventually(LONG, || fault.hits() > 0);
        server.bystanders.go_on();
        eventually(LONG, || server.runtime.stats().connections == 2);
    });
    server.end();
}

/// Lets the next answer to this peer find no room in its socket.
fn is_full(number: u16) -> Armed {
    fault(Call::Send, libc::EAGAIN).peer(number).arm()
}

/// A peer whose credentials the system does not give.
fn nobody(row: &Row) {
    let server = Serving::start(Kind::Unix, config());
    let mut victim = server.peer();
    row.each(|errno, _| {
        let fault = fault(row.call, errno).arm();
        victim.send(WHO);
        assert_eq!(victim.receive(4), b"None");
        assert_eq!(fault.hits(), 1);
        let pid = format!("Some({})", std::process::id());
        victim.send(WHO);
        assert_eq!(victim.receive(pid.len()), pid.as_bytes());
        server.bystanders.go_on();
    });
    drop(victim);
    server.end();
}

/// A handler asks if its peer has gone.
fn gone(row: &Row) {
    let server = Serving::start(Kind::Tcp, config());
    let (tell, told) = mpsc::channel();
    let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        input.take_all();
        tell.send((conn.clone(), conn.hold())).expect("the test listens");
        Ok(())
    });
    let listener = server.runtime.listen("127.0.0.1:0", protocol).expect("a listener");
    row.each(|errno, outcome| {
        let mut victim = Peer::connect(listener.local_addr());
        victim.send(QUESTION);
        let (conn, _request) = told.recv_timeout(LONG).expect("a request");
        victim.finish();
        eventually(LONG, || conn.peer_state() == PeerState::Finished);
        let fault = fault(row.call, errno).arm();
        let state = on_behalf(Side::Server, || conn.peer_state());
        let is_seen = outcome == Outcome::Unseen;
        let expected = if is_seen { PeerState::Finished } else { PeerState::Connected };
        assert_eq!((state, fault.hits()), (expected, 1), "{errno}");
        server.bystanders.go_on();
    });
    drop(listener);
    eventually(LONG, || server.runtime.stats().connections == 2);
    server.end();
}

/// The server learns of a reset during a request only when it sends the answer.
fn reset(row: &Row) {
    let server = Serving::start(Kind::Tcp, config());
    row.each(|errno, _| {
        let before = server.runtime.stats();
        let gate = Gate::default();
        let (protocol, ends) = Bytes::with_ends(held(&gate));
        let listener = server.runtime.listen("127.0.0.1:0", protocol).expect("a listener");
        let mut victim = Peer::connect(listener.local_addr());
        victim.send(QUESTION);
        gate.wait_for(1);
        victim.finish();
        eventually(LONG, || server.runtime.stats().closing_connections == 1);
        let fault = fault(row.call, errno).always().arm();
        victim.reset();
        eventually(LONG, || fault.hits() > 0);
        server.bystanders.go_on();
        assert!(ends.all().is_empty(), "nobody has told");
        gate.open();
        let last = ends.wait_for(1).remove(0);
        let stats = server.runtime.stats().since(&before);
        assert_eq!(stats.get(Counter::ClosedReset), 1, "{last}");
        drop(listener);
        eventually(LONG, || server.runtime.stats().connections == 2);
    });
    server.end();
}

/// Spawns a task from outside the runtime, which wakes a worker.
fn wake(runtime: &Runtime) {
    let (tell, told) = mpsc::channel();
    let code = move || tell.send(()).expect("waited for");
    on_behalf(Side::Server, || runtime.handle().spawn(code)).expect("room");
    told.recv_timeout(LONG).expect("it runs");
}

pub(super) fn login(row: &Row) {
    let engine = Arc::new(Engine::new());
    let runtime = builder(Side::Server, engine_config()).start().expect("a runtime");
    let protocol = session::Server::shared(Arc::clone(&engine));
    let listener = runtime.listen("127.0.0.1:0", protocol).expect("a listener");
    let Address::Tcp(address) = *listener.local_addr() else { unreachable!("TCP") };
    // The first login looks for a source of random numbers.
    let mut bystander = Client::logged_in(address, "root", PASSWORD);
    bystander.new_session(1).good();
    row.each(|errno, outcome| {
        let fault = if outcome == Outcome::Unseen {
            let fault = fault(row.call, errno).times(3).arm();
            drop(Client::logged_in(address, "root", PASSWORD));
            fault
        } else {
            let fault = fault(row.call, errno).always().arm();
            let mut victim = Client::connect(address);
            victim.send(0, &request::login_start());
            assert!(victim.rest().is_empty(), "closed without a word");
            fault
        };
        assert!(fault.hits() > 0, "random numbers are asked for");
        bystander.execute(1, "one").good();
        drop(fault);
        drop(Client::logged_in(address, "root", PASSWORD));
    });
    drop(bystander);
    ends(runtime);
}

pub(super) fn grow(row: &Row) {
    row.each(|errno, _| {
        let config = config().epoll_threads_per_group(2).thread_scale_thresh(0);
        let config = config.thread_deadlock_check_interval(Duration::from_millis(10));
        let server = Serving::start(Kind::Tcp, config);
        let fault = fault(row.call, errno).always().arm();
        let (tell, told) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        let code = move || {
            let _ = stall::run(|| told.recv_timeout(LONG));
            ended.send(()).expect("waited for");
        };
        server.runtime.handle().spawn(code).expect("room");
        eventually(LONG, || server.count(Counter::ThreadStartFailed) > 0);
        server.bystanders.go_on();
        drop((fault, tell));
        end.recv_timeout(LONG).expect("it ends");
        server.end();
    });
}
