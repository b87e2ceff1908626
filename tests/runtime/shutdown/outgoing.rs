//! The end of a runtime that has outgoing connections. Requests in progress wait for answers from
//! them, so they end after those requests.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use epoll_group::net::{
    Close, CloseReason, ConnectError, Connection, HalfClose, Hold, Input, Listener, Protocol,
};
use epoll_group::stats::Counter;
use epoll_group::{Class, Handle, Runtime};
use lab::peer::End;
use lab::protocol::{Bytes, echo};
use lab::workers::{Gate, only_one_worker};
use lab::{LONG, Peer, assert_clean, config, eventually, often};
use socket2::{Domain, Socket, Type};

const MESSAGE: usize = 8;
const REQUEST: &[u8; MESSAGE] = b"request!";
const QUESTION: &[u8; MESSAGE] = b"question";
const ANSWER: &[u8; MESSAGE] = b"answered";

/// An event in the life of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Requested,
    FrontDrains,
    FrontCloses(String),
    Opened,
    Received(Vec<u8>),
    PeerFinishes,
    Drains,
    Closes(String),
    ConnectFails(String),
}

type Tell = mpsc::Sender<Event>;

#[track_caller]
fn expect(told: &mpsc::Receiver<Event>, event: &Event) {
    assert_eq!(told.recv_timeout(LONG).as_ref(), Ok(event));
}

/// Returns the events from now on up to the end of the connection.
#[track_caller]
fn rest(told: &mpsc::Receiver<Event>) -> Vec<Event> {
    let mut events = Vec::new();
    while !matches!(events.last(), Some(Event::Closes(_) | Event::ConnectFails(_))) {
        events.push(told.recv_timeout(LONG).expect("an end"));
    }
    events
}

/// Event of a connection that ends in order.
fn drained(what: fn(String) -> Event) -> Event {
    what(CloseReason::Draining.to_string())
}

fn cut(what: fn(String) -> Event) -> Event {
    what(CloseReason::Cut.to_string())
}

/// An outgoing connection that reports its events.
struct Teller(Tell);

impl Teller {
    fn tell(&self, event: Event) {
        // A test that has seen enough drops its receiver.
        let _ = self.0.send(event);
    }
}

impl Protocol for Teller {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        self.tell(Event::Opened);
        Ok(())
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        self.tell(Event::ConnectFails(reason.to_string()));
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        while input.len() >= MESSAGE {
            self.tell(Event::Received(input.take(MESSAGE).to_vec()));
        }
        Ok(())
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        self.tell(Event::PeerFinishes);
        Ok(HalfClose::End)
    }

    fn draining(&self, _: &Connection, (): &mut ()) {
        self.tell(Event::Drains);
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        self.tell(Event::Closes(reason.to_string()));
    }
}

/// Moment at which the proxy passes a request on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    AtOnce,
    WhenItDrains,
}

/// Holds a request of a client, asks a server a number of questions, one after the other, and then
/// answers the client.
struct Proxy {
    asks: Asks,
    /// Connection to the server, until it is closed. It keeps the proxy, so the proxy must not keep
    /// a closed connection.
    server: Mutex<Option<Connection>>,
    request: Mutex<Option<(Connection, Hold)>>,
    /// Number of questions left, and the hold of the connection until the next answer.
    questions: Mutex<(usize, Option<Hold>)>,
    tell: Tell,
}

impl Proxy {
    fn tell(&self, event: Event) {
        let _ = self.tell.send(event);
    }

    fn ask(&self) {
        let server = self.server.lock().expect("no panic");
        let server = server.as_ref().expect("connected before anybody asks");
        let mut questions = self.questions.lock().expect("no panic");
        questions.0 -= 1;
        questions.1 = Some(server.hold());
        server.send(QUESTION);
    }

    fn answered(&self) {
        if self.questions.lock().expect("no panic").0 > 0 {
            return self.ask();
        }
        let request = self.request.lock().expect("no panic").take();
        let (client, hold) = request.expect("asked for a client");
        client.send(ANSWER);
        drop(hold);
        self.questions.lock().expect("no panic").1 = None;
    }
}

struct Front(Arc<Proxy>);

impl Protocol for Front {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        assert_eq!(input.take_all(), REQUEST);
        *self.0.request.lock().expect("no panic") = Some((conn.clone(), conn.hold()));
        self.0.tell(Event::Requested);
        if self.0.asks == Asks::AtOnce {
            self.0.ask();
        }
        Ok(())
    }

    fn draining(&self, _: &Connection, (): &mut ()) {
        self.0.tell(Event::FrontDrains);
        if self.0.asks == Asks::WhenItDrains {
            self.0.ask();
        }
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        drop(self.0.request.lock().expect("no panic").take());
        self.0.tell(Event::FrontCloses(reason.to_string()));
    }
}

struct Back(Arc<Proxy>);

impl Protocol for Back {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        assert_eq!(input.take_all(), ANSWER);
        self.0.answered();
        Ok(())
    }

    fn draining(&self, _: &Connection, (): &mut ()) {
        self.0.tell(Event::Drains);
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        drop(self.0.server.lock().expect("no panic").take());
        drop(self.0.questions.lock().expect("no panic").1.take());
        self.0.tell(Event::Closes(reason.to_string()));
    }
}

/// A server that the test plays by hand.
fn server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn start() -> Runtime {
    Runtime::builder().config(config()).start().expect("a runtime")
}

/// A runtime with a proxy, the proxy's server, and its client.
struct Scene {
    runtime: Runtime,
    _front: Listener,
    server: Peer,
    client: Peer,
    told: mpsc::Receiver<Event>,
}

impl Scene {
    fn new(runtime: Runtime, asks: Asks, questions: usize) -> Self {
        let (tell, told) = mpsc::channel();
        let proxy = Arc::new(Proxy {
            asks,
            server: Mutex::new(None),
            request: Mutex::new(None),
            questions: Mutex::new((questions, None)),
            tell,
        });
        let (listener, address) = server();
        let conn = runtime.connect(address, Back(Arc::clone(&proxy))).expect("begun");
        *proxy.server.lock().expect("no panic") = Some(conn);
        let server = Peer::accept(&listener);
        let front = runtime.listen("127.0.0.1:0", Front(proxy)).expect("a listener");
        let client = Peer::connect(front.local_addr());
        Self { runtime, _front: front, server, client, told }
    }
}

/// Drains while `code` runs. Returns the number of connections that ended in order, and checks that
/// all did.
#[track_caller]
fn drain_while(runtime: Runtime, code: impl FnOnce()) -> u64 {
    let report = thread::scope(|scope| {
        let handle = runtime.handle();
        let drain = scope.spawn(|| runtime.drain(LONG));
        eventually(LONG, || handle.spawn(|| ()).is_err());
        code();
        drain.join().expect("a report")
    });
    assert_clean(&report);
    report.finished
}

#[test]
fn requests_in_progress_get_the_answers_that_they_ask_for_during_the_drain() {
    for questions in [1, 2, 7] {
        let scene = Scene::new(start(), Asks::WhenItDrains, questions);
        let Scene { runtime, mut server, mut client, told, .. } = scene;
        let handle = runtime.handle();
        client.send(REQUEST);
        expect(&told, &Event::Requested);
        let finished = drain_while(runtime, || {
            expect(&told, &Event::FrontDrains);
            for _ in 0..questions {
                assert_eq!(server.receive(MESSAGE), QUESTION);
                server.send(ANSWER);
            }
            assert_eq!(client.receive_to_finish(), ANSWER);
            drop(client);
            assert_eq!(server.receive_to_finish(), b"");
            drop(server);
        });
        assert_eq!(finished, 2);
        assert_eq!(handle.stats().get(Counter::ClosedDraining), 2);
        let order = [drained(Event::FrontCloses), Event::Drains, drained(Event::Closes)];
        assert_eq!(told.try_iter().collect::<Vec<_>>(), order);
    }
}

#[test]
fn what_is_accepted_during_the_drain_gets_its_answers_too() {
    let runtime = only_one_worker();
    let handle = runtime.handle();
    let scene = Scene::new(runtime, Asks::AtOnce, 2);
    let Scene { runtime, mut server, mut client, told, .. } = scene;
    // No worker accepts until this opens.
    let gate = Gate::default();
    // One after the other: a worker that finds both begins with the urgent one, and the reserve would not
    // take the other.
    for (held, class) in (1..).zip([Class::Ordinary, Class::Admin]) {
        let pass = gate.clone();
        handle.with_class(class).spawn(move || pass.pass()).expect("room");
        gate.wait_for(held);
    }
    client.send(REQUEST);
    let finished = drain_while(runtime, || {
        gate.open();
        for _ in 0..2 {
            assert_eq!(server.receive(MESSAGE), QUESTION);
            server.send(ANSWER);
        }
        assert_eq!(client.receive_to_finish(), ANSWER);
        drop(client);
        assert_eq!(server.receive_to_finish(), b"");
        drop(server);
    });
    assert_eq!(finished, 2);
    expect(&told, &Event::Requested);
}

#[test]
fn nothing_new_is_connected_while_requests_finish() {
    let scene = Scene::new(start(), Asks::AtOnce, 1);
    let Scene { runtime, mut server, mut client, told, .. } = scene;
    let handle = runtime.handle();
    client.send(REQUEST);
    expect(&told, &Event::Requested);
    let finished = drain_while(runtime, || {
        expect(&told, &Event::FrontDrains);
        let (_listener, address) = self::server();
        let refused = handle.connect(address, Bytes::new(echo));
        assert!(matches!(refused, Err(ConnectError::Draining)), "{refused:?}");
        server.send(ANSWER);
        assert_eq!(client.receive_to_finish(), ANSWER);
        drop((client, server));
    });
    assert_eq!(finished, 2);
}

#[test]
fn a_server_that_does_not_answer_is_cut_with_its_client_at_the_deadline() {
    let scene = Scene::new(start(), Asks::AtOnce, 1);
    let Scene { runtime, mut server, mut client, told, .. } = scene;
    client.send(REQUEST);
    assert_eq!(server.receive(MESSAGE), QUESTION);
    expect(&told, &Event::Requested);
    let handle = runtime.handle();
    let report = runtime.drain(Duration::from_millis(20));
    assert_eq!((report.finished, report.cut, report.stuck.len()), (0, 2, 0), "{report}");
    assert_eq!(handle.stats().get(Counter::ClosedCut), 2);
    // The connection may be cut before it has been told to drain.
    let mut ends: Vec<_> = told.try_iter().filter(|event| *event != Event::FrontDrains).collect();
    ends.sort_by_key(|end| matches!(end, Event::Closes(_)));
    assert_eq!(ends, [cut(Event::FrontCloses), cut(Event::Closes)]);
    assert!(client.receive_all().0.is_empty());
}

/// An outgoing connection, its other end, and its events.
fn outgoing(handle: &Handle) -> (Connection, Peer, mpsc::Receiver<Event>) {
    let (listener, address) = server();
    let (tell, told) = mpsc::channel();
    let conn = handle.connect(address, Teller(tell)).expect("begun");
    let peer = Peer::accept(&listener);
    expect(&told, &Event::Opened);
    (conn, peer, told)
}

#[test]
fn alone_and_held_it_receives_and_sends_until_the_last_hold_is_dropped() {
    let runtime = start();
    let (conn, mut peer, told) = outgoing(&runtime.handle());
    let (first, last) = (conn.hold(), conn.hold());
    let finished = drain_while(runtime, || {
        expect(&told, &Event::Drains);
        for question in [*b"question", *b"a second", *b"and more"] {
            conn.send(question);
            assert_eq!(peer.receive(MESSAGE), question);
            peer.send(ANSWER);
            expect(&told, &Event::Received(ANSWER.to_vec()));
        }
        drop(first);
        peer.send(ANSWER);
        expect(&told, &Event::Received(ANSWER.to_vec()));
        drop(last);
        assert_eq!(peer.receive_to_finish(), b"");
        drop(peer);
    });
    assert_eq!(finished, 1);
    assert_eq!(rest(&told), [drained(Event::Closes)]);
}

#[test]
fn one_that_nothing_holds_does_not_wait_for_one_that_is_held() {
    let runtime = start();
    let (held, mut busy, told) = outgoing(&runtime.handle());
    let (_idle, mut idle, told_idle) = outgoing(&runtime.handle());
    let hold = held.hold();
    let finished = drain_while(runtime, || {
        assert_eq!(idle.receive_to_finish(), b"");
        drop(idle);
        assert_eq!(rest(&told_idle), [Event::Drains, drained(Event::Closes)]);
        expect(&told, &Event::Drains);
        busy.send(ANSWER);
        expect(&told, &Event::Received(ANSWER.to_vec()));
        drop((hold, busy));
    });
    assert_eq!(finished, 2);
}

#[test]
fn a_hold_that_is_not_dropped_is_cut_at_the_deadline() {
    let runtime = start();
    let (conn, mut peer, told) = outgoing(&runtime.handle());
    let hold = conn.hold();
    let report = runtime.drain(Duration::from_millis(20));
    assert_eq!((report.finished, report.cut, report.stuck.len()), (0, 1, 0), "{report}");
    assert!(conn.is_closed());
    assert_eq!(rest(&told).last(), Some(&cut(Event::Closes)));
    assert_eq!(peer.receive_all(), (Vec::new(), End::Reset));
    drop(hold);
}

#[test]
fn a_peer_that_finishes_first_is_why_it_ends() {
    let runtime = start();
    let (conn, mut peer, told) = outgoing(&runtime.handle());
    let hold = conn.hold();
    let finished = drain_while(runtime, || {
        expect(&told, &Event::Drains);
        peer.send(ANSWER);
        peer.finish();
        expect(&told, &Event::Received(ANSWER.to_vec()));
        expect(&told, &Event::PeerFinishes);
        assert_eq!(peer.receive_to_finish(), b"");
    });
    // The hold was for an answer, which cannot come any more.
    drop(hold);
    assert_eq!(finished, 1);
    assert_eq!(rest(&told), [Event::Closes(CloseReason::ByPeer.to_string())]);
}

/// A listener whose backlog is full, so that a connecting client waits, and the sockets that fill
/// it.
fn full_server() -> (TcpListener, SocketAddr, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bound");
    listener.listen(0).expect("listens");
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().expect("an address");
    let fill = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("set");
        let _ = socket.connect(&address.into());
        socket
    };
    let fillers = (0..2).map(fill).collect();
    (listener, address, fillers)
}

#[test]
fn one_that_is_not_established_ends_when_nobody_waits_for_it_any_more() {
    for held in [false, true] {
        let runtime = start();
        let (_listener, address, _fillers) = full_server();
        let (tell, told) = mpsc::channel();
        let conn = runtime.connect(address, Teller(tell)).expect("begun");
        let hold = held.then(|| conn.hold());
        let finished = drain_while(runtime, || {
            if let Some(hold) = hold {
                assert!(!conn.is_closed());
                drop(hold);
            }
            assert_eq!(rest(&told), [drained(Event::ConnectFails)]);
        });
        assert_eq!(finished, 1);
    }
}

#[test]
fn one_that_is_established_during_the_drain_brings_its_answer() {
    let runtime = start();
    let (listener, address, fillers) = full_server();
    let (tell, told) = mpsc::channel();
    let conn = runtime.connect(address, Teller(tell)).expect("begun");
    conn.send(QUESTION);
    let hold = conn.hold();
    let finished = drain_while(runtime, || {
        // Now the backlog has room, and the kernel tries again within a second or two.
        drop(fillers);
        let mut peer = loop {
            let mut peer = Peer::accept(&listener);
            if peer.receive_one().is_some() {
                break peer;
            }
        };
        expect(&told, &Event::Opened);
        expect(&told, &Event::Drains);
        peer.send(ANSWER);
        expect(&told, &Event::Received(ANSWER.to_vec()));
        drop(hold);
        assert_eq!(peer.receive_to_finish(), &QUESTION[1..]);
    });
    assert_eq!(finished, 1);
}

#[test]
fn a_runtime_can_end_in_a_handler_of_its_outgoing_connection() {
    let slot = Arc::new(Mutex::new(None::<Runtime>));
    let (tell, told) = mpsc::channel();
    let own = Arc::clone(&slot);
    let end = move |conn: &Connection, input: &mut Input<'_>| {
        input.take_all();
        let runtime = own.lock().expect("no panic").take().expect("ended once");
        tell.send(runtime.drain(LONG)).expect("waited for");
        conn.send(QUESTION);
        Ok(())
    };
    let runtime = start();
    let (listener, address) = server();
    runtime.connect(address, Bytes::new(end)).expect("begun");
    let mut server = Peer::accept(&listener);
    let front = runtime.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
    let mut client = Peer::connect(front.local_addr());
    client.echo(REQUEST);
    *slot.lock().expect("no panic") = Some(runtime);
    server.send(ANSWER);
    assert_eq!(client.receive_to_finish(), b"");
    drop(client);
    let report = told.recv_timeout(LONG).expect("it ends");
    assert_eq!((report.finished, report.cut, report.stuck.len()), (1, 0, 0), "{report}");
    assert_eq!(server.receive_to_finish(), QUESTION);
}

/// Many clients whose requests need one server, which answers as it reads.
#[test]
fn under_load_nothing_is_cut_and_each_request_is_answered() {
    for _ in 0..often(20) {
        let scene_of = |_| Scene::new(start(), Asks::WhenItDrains, 3);
        let scenes: Vec<_> = (0..4).map(scene_of).collect();
        thread::scope(|scope| {
            for Scene { runtime, _front: front, mut server, mut client, told } in scenes {
                scope.spawn(move || {
                    let _front = front;
                    client.send(REQUEST);
                    expect(&told, &Event::Requested);
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            while let Some(first) = server.receive_one() {
                                assert_eq!(first, QUESTION[0]);
                                assert_eq!(server.receive(MESSAGE - 1), &QUESTION[1..]);
                                server.send(ANSWER);
                            }
                        });
                        let client = scope.spawn(move || client.receive_to_finish());
                        let report = runtime.drain(LONG);
                        assert_clean(&report);
                        assert_eq!(report.finished, 2);
                        assert_eq!(client.join().expect("no panic"), ANSWER);
                    });
                });
            }
        });
    }
}
