//! Three ways to read for waiting callers: one of them reads for all, a thread for each connection reads, or
//! the workers of the runtime read.
//!
//! ```text
//! cargo bench --bench client            # a first look: half a minute
//! cargo bench --bench client -- --long  # for the record: some minutes
//! ```
//!
//! The same callers make the same exchange (`select 1` in a session) over the same connections in four ways,
//! and in the first one again. Three of them only read, as above; the fourth is the client of this crate. The
//! server is a process of its own. The ways are loaded in short windows in turn: A B C D E E D C B A …. A ratio
//! compares a way with the first one in the same round. Its median over the rounds is printed, with an interval
//! of 95 %.

#![expect(clippy::print_stdout, reason = "its output is the result")]

use std::collections::HashMap;
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::client::{Client, Options, Session};
use epoll_group::codec::frame::{Decoder, Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerKind};
use epoll_group::codec::proto::session::{AuthenticateContinue, AuthenticateStart};
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::row::Column;
use epoll_group::net::{Close, Connection, Input, Protocol};
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Server, Service, SessionError,
    SessionId,
};
use lab::cpu;
use lab::helper::{Helper, announce};
use lab::ratio::{Spread, median};
use lab::table::markdown;

/// The last is the first again: its ratio is noise.
const WAYS: [&str; 5] = [
    "caller reads for all",
    "thread a connection",
    "workers",
    "the client",
    "caller reads for all, again",
];
/// Callers and connections.
const LOADS: [(usize, usize); 5] = [(1, 1), (4, 1), (16, 1), (64, 4), (256, 4)];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "serve") {
        return serve();
    }
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    // Without `--bench`, as a test: once and short.
    let (rounds, window) = match (given("--bench"), given("--long")) {
        (false, _) => (1, 20),
        (true, false) => (3, 200),
        (true, true) => (11, 500),
    };
    let (server, address) = Helper::again(["serve"])?;
    let headings =
        ["callers", "connections", "who reads", "calls/s", "ratio", "CPU µs/call", "p50 µs"];
    let mut table = markdown(&headings);
    for (callers, connections) in LOADS {
        for row in measure(&address, callers, connections, rounds, Duration::from_millis(window)) {
            table.add_row(row);
        }
    }
    println!("{table}");
    server.finish()?;
    Ok(())
}

// The server.

struct One;

impl Service for One {
    type Session = ();

    fn authenticate(&self, _: &Login<'_>) -> Result<Account, AuthError> {
        Ok(Account::new("root"))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(
        &self,
        (): &mut (),
        _: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        reply.columns(&[Column::signed("1")])?;
        reply.row(|row| row.int(1))
    }
}

/// Serves until the input ends.
fn serve() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().start()?;
    let listener = runtime.listen("127.0.0.1:0", Server::new(One))?;
    Ok(announce(&listener.local_addr().to_string())?)
}

// The callers.

/// A session of one caller.
trait Caller: Send {
    /// One exchange.
    fn call(&mut self);
}

/// A way to read, and its callers, which call only in the windows of this way.
struct Way {
    turn: Arc<Turn>,
    callers: Vec<JoinHandle<()>>,
}

struct Turn {
    runs: AtomicBool,
    over: AtomicBool,
    calls: AtomicU64,
    /// Nanoseconds of the calls in this window.
    times: Mutex<Vec<u32>>,
    begin: Barrier,
    end: Barrier,
}

impl Way {
    fn start(callers: Vec<Box<dyn Caller>>) -> Self {
        let turn = Arc::new(Turn {
            runs: AtomicBool::new(false),
            over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            times: Mutex::default(),
            begin: Barrier::new(callers.len() + 1),
            end: Barrier::new(callers.len() + 1),
        });
        let run = |mut caller: Box<dyn Caller>| {
            let turn = Arc::clone(&turn);
            thread::spawn(move || turn.take_part(&mut *caller))
        };
        let callers = callers.into_iter().map(run).collect();
        Self { turn, callers }
    }

    /// Loads this way. Returns calls a second, CPU µs a call, median µs of a call.
    fn window(&self, length: Duration) -> [f64; 3] {
        let turn = &self.turn;
        turn.runs.store(true, Ordering::Relaxed);
        let (began, cpu) = (Instant::now(), cpu::of_process());
        turn.begin.wait();
        thread::sleep(length);
        turn.runs.store(false, Ordering::Relaxed);
        turn.end.wait();
        let cpu = cpu::of_process().saturating_sub(cpu).as_secs_f64();
        let seconds = began.elapsed().as_secs_f64();
        let calls = turn.calls.swap(0, Ordering::Relaxed) as f64;
        let times = std::mem::take(&mut *lock(&turn.times));
        let median = median(times.into_iter().map(|nanos| f64::from(nanos) / 1e3));
        [calls / seconds, cpu * 1e6 / calls.max(1.0), median]
    }

    fn stop(self) {
        self.turn.over.store(true, Ordering::Relaxed);
        self.turn.begin.wait();
        self.callers.into_iter().for_each(|caller| caller.join().expect("no panic"));
    }
}

impl Turn {
    fn take_part(&self, caller: &mut dyn Caller) {
        loop {
            self.begin.wait();
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let mut times = Vec::new();
            while self.runs.load(Ordering::Relaxed) {
                let began = Instant::now();
                caller.call();
                times.push(u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
            self.calls.fetch_add(times.len() as u64, Ordering::Relaxed);
            lock(&self.times).extend(times);
            self.end.wait();
        }
    }
}

/// Rows of the table.
fn measure(
    address: &str,
    callers: usize,
    connections: usize,
    rounds: usize,
    window: Duration,
) -> Vec<[String; 7]> {
    let runtime = Runtime::builder().start().expect("started");
    let ways: Vec<Way> = vec![
        Way::start(wires(address, callers, connections, Reads::Callers)),
        Way::start(wires(address, callers, connections, Reads::Thread)),
        Way::start(worker_wires(&runtime, address, callers, connections)),
        Way::start(clients(&runtime, address, callers, connections)),
        Way::start(wires(address, callers, connections, Reads::Callers)),
    ];
    let mut results = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        let order = (0..ways.len()).chain((0..ways.len()).rev());
        let mut round = vec![[0.0; 3]; ways.len()];
        for way in order {
            let result = ways[way].window(window);
            round[way].iter_mut().zip(result).for_each(|(sum, value)| *sum += value / 2.0);
        }
        round.into_iter().zip(&mut results).for_each(|(result, all)| all.push(result));
    }
    ways.into_iter().for_each(Way::stop);
    let row = |(own, name): (&Vec<[f64; 3]>, &&str)| {
        let of = |column: usize| median(own.iter().map(|result| result[column]));
        let ratios = own.iter().zip(&results[0]).map(|(own, first)| own[0] / first[0]);
        [
            callers.to_string(),
            connections.to_string(),
            (*name).to_owned(),
            format!("{:.0}", of(0)),
            Spread::of(ratios.collect())
                .map_or_else(String::new, |ratio| ratio.ratio().to_string()),
            format!("{:.1}", of(1)),
            format!("{:.0}", of(2)),
        ]
    };
    results.iter().zip(&WAYS).map(row).collect()
}

// The client of the crate.

struct OfClient(Session);

impl Caller for OfClient {
    fn call(&mut self) {
        self.0.run("select 1").expect("an answer");
    }
}

fn clients(
    runtime: &Runtime,
    address: &str,
    callers: usize,
    connections: usize,
) -> Vec<Box<dyn Caller>> {
    let options = Options::new(address, "root").connections(connections);
    let client = Client::new(&runtime.handle(), options).expect("good options");
    (0..callers)
        .map(|_| Box::new(OfClient(client.session().expect("a session"))) as Box<dyn Caller>)
        .collect()
}

// The three ways to read.

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Callers,
    Thread,
    Workers,
}

/// A connection, and the callers that wait on it.
struct Wire {
    sink: Mutex<Sink>,
    waiting: Mutex<Waiting>,
    reads: Reads,
}

enum Sink {
    Socket(TcpStream),
    Connection(Connection),
    Nothing,
}

#[derive(Default)]
struct Waiting {
    /// Callers without an answer, by session.
    callers: HashMap<u64, Thread>,
    /// One of the callers reads, with the socket.
    reading: bool,
    socket: Option<(TcpStream, Decoder)>,
}

struct OfWire {
    wire: Arc<Wire>,
    session: u64,
    request: Vec<u8>,
}

impl Wire {
    fn send(&self, bytes: &[u8]) {
        match &mut *lock(&self.sink) {
            Sink::Socket(socket) => socket.write_all(bytes).expect("sent"),
            Sink::Connection(conn) => drop(conn.send(bytes)),
            Sink::Nothing => unreachable!("connected before"),
        }
    }

    /// Wakes the callers whose answers are complete.
    fn answered(&self, sessions: &[u64]) {
        let mut waiting = lock(&self.waiting);
        for session in sessions {
            if let Some(thread) = waiting.callers.remove(session) {
                thread.unpark();
            }
        }
    }

    /// Reads for all callers until the answer of this one is here, then lets another caller read.
    fn read_until(&self, session: u64) {
        let (mut socket, mut decoder) = lock(&self.waiting).socket.take().expect("nobody reads");
        loop {
            let ended = receive(&mut socket, &mut decoder);
            self.answered(&ended);
            if ended.contains(&session) {
                break;
            }
        }
        let mut waiting = lock(&self.waiting);
        waiting.socket = Some((socket, decoder));
        waiting.reading = false;
        if let Some(next) = waiting.callers.values().next() {
            next.unpark();
        }
    }
}

impl Caller for OfWire {
    fn call(&mut self) {
        lock(&self.wire.waiting).callers.insert(self.session, thread::current());
        self.wire.send(&self.request);
        loop {
            let mut waiting = lock(&self.wire.waiting);
            if !waiting.callers.contains_key(&self.session) {
                return;
            }
            if self.wire.reads == Reads::Callers && !waiting.reading {
                waiting.reading = true;
                drop(waiting);
                return self.wire.read_until(self.session);
            }
            drop(waiting);
            thread::park();
        }
    }
}

/// Receives once. Returns the sessions whose answers are complete.
fn receive(socket: &mut TcpStream, decoder: &mut Decoder) -> Vec<u64> {
    let mut bytes = [0; 16 << 10];
    let count = socket.read(&mut bytes).expect("received");
    decoder.feed(&bytes[..count]);
    let mut ended = Vec::new();
    while let Some(frame) = decoder.next_frame().expect("frames") {
        ended.extend(is_end(&frame).then_some(frame.session()));
    }
    ended
}

fn is_end(frame: &Frame<'_>) -> bool {
    frame.kind() == ServerKind::StmtExecuteOk.number()
}

fn wires(address: &str, callers: usize, connections: usize, reads: Reads) -> Vec<Box<dyn Caller>> {
    let connect = |_| {
        let mut socket = TcpStream::connect(address).expect("connected");
        socket.set_nodelay(true).expect("a socket option");
        let decoder = log_in(&mut socket);
        let reader = socket.try_clone().expect("another handle");
        let waiting = Waiting::default();
        let wire = Arc::new(Wire {
            sink: Mutex::new(Sink::Socket(socket)),
            waiting: Mutex::new(waiting),
            reads,
        });
        match reads {
            Reads::Thread => {
                let (wire, mut reader, mut decoder) = (Arc::downgrade(&wire), reader, decoder);
                thread::spawn(move || {
                    while let Some(wire) = wire.upgrade() {
                        let ended = receive(&mut reader, &mut decoder);
                        wire.answered(&ended);
                    }
                });
            }
            _ => lock(&wire.waiting).socket = Some((reader, decoder)),
        }
        wire
    };
    let wires: Vec<Arc<Wire>> = (0..connections).map(connect).collect();
    on(&wires, callers)
}

/// Callers, spread over the connections, with open sessions.
fn on(wires: &[Arc<Wire>], callers: usize) -> Vec<Box<dyn Caller>> {
    let make = |number: usize| {
        let (wire, session) = (Arc::clone(&wires[number % wires.len()]), number as u64 + 2);
        let mut request = encode(session, &ClientMessage::SessionNew);
        wire.send(&request);
        let statement = StmtExecute {
            stmt: Some(b"select 1".to_vec()),
            reset_error: Some(true),
            ..StmtExecute::default()
        };
        request = encode(session, &ClientMessage::ExecSql(statement));
        Box::new(OfWire { wire, session, request }) as Box<dyn Caller>
    };
    (0..callers).map(make).collect()
}

fn encode(session: u64, message: &ClientMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(Dialect::Legacy, session, &mut bytes).expect("short");
    bytes
}

fn start_message() -> Vec<u8> {
    let mech_name = b"MYSQL41".to_vec();
    let start = AuthenticateStart { mech_name, ..AuthenticateStart::default() };
    encode(0, &ClientMessage::AuthenticateStart(start))
}

/// The server accepts any proof.
fn proof_message() -> Vec<u8> {
    let proof = AuthenticateContinue { auth_data: b"\0root\0".to_vec() };
    encode(0, &ClientMessage::AuthenticateContinue(proof))
}

fn log_in(socket: &mut TcpStream) -> Decoder {
    let mut decoder = Decoder::new(Limits::default());
    for message in [start_message(), proof_message()] {
        socket.write_all(&message).expect("sent");
        let mut bytes = [0; 1024];
        while decoder.next_frame().expect("frames").is_none() {
            let count = socket.read(&mut bytes).expect("received");
            decoder.feed(&bytes[..count]);
        }
    }
    decoder
}

/// A [`Wire`] that is read by the workers of a runtime.
struct OnWorkers(Arc<Wire>, Arc<Barrier>);

impl Protocol for OnWorkers {
    type State = u32;

    fn opened(&self, conn: &Connection) -> Result<u32, Close> {
        *lock(&self.0.sink) = Sink::Connection(conn.clone());
        conn.send(start_message());
        Ok(0)
    }

    fn received(
        &self,
        conn: &Connection,
        frames: &mut u32,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        let mut ended = Vec::new();
        while let Some((frame, bytes)) =
            Frame::parse(input.bytes(), Dialect::Legacy, &Limits::default()).expect("frames")
        {
            ended.extend(is_end(&frame).then_some(frame.session()));
            input.consume(bytes);
            *frames = frames.saturating_add(1);
            match frames {
                1 => drop(conn.send(proof_message())),
                2 => drop(self.1.wait()),
                _ => {}
            }
        }
        self.0.answered(&ended);
        Ok(())
    }
}

fn worker_wires(
    runtime: &Runtime,
    address: &str,
    callers: usize,
    connections: usize,
) -> Vec<Box<dyn Caller>> {
    let connect = |_| {
        let (sink, waiting) = (Mutex::new(Sink::Nothing), Mutex::default());
        let wire = Arc::new(Wire { sink, waiting, reads: Reads::Workers });
        let ready = Arc::new(Barrier::new(2));
        let protocol = OnWorkers(Arc::clone(&wire), Arc::clone(&ready));
        runtime.connect(address, protocol).expect("begun");
        ready.wait();
        wire
    };
    let wires: Vec<Arc<Wire>> = (0..connections).map(connect).collect();
    on(&wires, callers)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
