//! Locks that are held from one request to the next, as a transaction holds its rows.
//!
//! ```text
//!  0         8        12     13       17            25
//!  +---------+--------+------+--------+-------------+-----------+
//!  | session | length | kind | number | transaction | 0 … 0     |   64 bytes, like other frames
//!  +---------+--------+------+--------+-------------+-----------+
//! ```

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use baselines::client::{LOCK, UNLOCK};
use lab::load::{Answer, Conversation, Driver, Habit, Pause, Report, Target, connect};
use lab::meter::Usage;
use lab::table::markdown;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{SERVERS, Suite, blocks, line_up};
use crate::experiment::{Lane, Plan};
use crate::report::Section;
use crate::table::{CPU_EACH, Column, HANGS, P50, P99_EACH, REQUESTS, SWITCHES, THREADS, time};
use crate::workload::{Load, Workload};

pub const SUITE: Suite = Suite {
    name: "locks",
    question: "What if requests wait for a lock that only a later request gives back?",
    run,
};

const CONNECTIONS: usize = 64;
/// A server with a worker for each connection. Each worker has a queue of its own, in which the request that
/// gives a lock back can be queued behind a request that waits for it.
const POOLED: &str = "easy-async:16:workers=64";
/// Time in which requests reach the server and find the lock taken.
const ALL_WAIT: Duration = Duration::from_millis(100);
const FRAME_BYTES: usize = 64;

const TEXT: &str = "\
A transaction is two requests: one takes a lock, the next one gives it back. A request that finds the lock \
taken waits in its handler, as in any server whose handlers are ordinary blocking code. If the waiting thread \
is the one that would read the other connection's request, or the last of a pool, the lock is never given \
back: *hangs*. epoll-group waits in its own locks, which announce the wait. Servers that have a way to \
announce a wait do that, the others wait plainly. easy-async:16:workers=64 has 16 threads that read and 64 \
that run handlers, each from a queue of its own.

### 64 wait for what request 65 does

One connection has the lock and 64 wait for it. Then it gives the lock back, and they take it and give it back \
one after the other. Each server is tried once, so the time is an order of magnitude. What counts is whether \
it comes to an end. A server that gives the lock to two connections fails the run.";

/// A server hangs if a connection gets no answer for this long. On a busy machine a round of all connections
/// takes a second.
const SILENCE: Duration = Duration::from_secs(4);

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let servers: Vec<_> = SERVERS.into_iter().chain([POOLED]).collect();
    let mut table = markdown(&["server", "until all had it", "threads while they wait"]);
    let mut releases = Vec::new();
    for server in &servers {
        let release = Release::measure(server, SILENCE)?;
        let until = release.nanos.map_or_else(|| HANGS.to_owned(), |nanos| time(nanos as f64));
        table.add_row([(*server).to_owned(), until, release.threads.to_string()]);
        releases.push(release);
    }
    let mut found = Vec::new();
    for locks in if plan.quick { vec![1] } else { vec![1, 16] } {
        let name = format!("Transactions of {CONNECTIONS} connections over {locks} locks");
        let workload = Workload::new(&name, move |address| {
            Ok(Transactions::connect(address, CONNECTIONS, locks, SILENCE)?)
        });
        found.push(line_up(&name, &servers, &workload, plan)?);
    }
    let transactions: Column<'_> = ("transactions/s", REQUESTS.1);
    let columns = [transactions, P50, P99_EACH, CPU_EACH, SWITCHES, THREADS];
    let mut all = vec![TEXT.to_owned(), table.to_string()];
    all.extend(blocks(&found, &columns));
    all.push("Latencies, CPU time and switches are those of whole transactions.".to_owned());
    let raw = json!({ "releases": releases, "experiments": found });
    Ok(Section::new("Lock waits", all, raw))
}

/// Connections that take locks and give them back.
struct Transactions {
    driver: Driver<Transaction>,
    hangs: bool,
}

/// One connection. Its question is a transaction, which has the lock once the first half of the answer is
/// here.
struct Transaction {
    connection: u64,
    /// Each transaction takes one of this many locks.
    locks: u32,
    begun: u64,
    number: u32,
    /// Kind of the open request.
    kind: u8,
    answer: Vec<u8>,
}

impl Transactions {
    fn connect(
        address: SocketAddr,
        connections: usize,
        locks: u32,
        patience: Duration,
    ) -> io::Result<Self> {
        let mut driver = Driver::new(patience, 0)?;
        for connection in 1..=connections as u64 {
            let socket = connect(&Target::Tcp(address))?;
            let (begun, number, kind, answer) = (0, 0, 0, Vec::new());
            let transaction = Transaction { connection, locks, begun, number, kind, answer };
            let habit = Habit { sessions: 1, pipeline: 1, pause: Pause::None, heavy: false };
            driver.add(socket, transaction, habit)?;
        }
        Ok(Self { driver, hangs: false })
    }
}

impl Load for Transactions {
    /// A server that hangs, now or before, has answered nothing.
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        let mut report = self.driver.run_for(time, |_| ())?;
        self.hangs |= report.silent > 0;
        if !self.hangs {
            return Ok(report.checked()?);
        }
        report.requests = 0;
        report.hist.reset();
        Ok(report)
    }

    /// Each transaction is two frames.
    fn answers_total(&self) -> u64 {
        2 * self.driver.answers_total()
    }
}

impl Transaction {
    fn request(&mut self, kind: u8, out: &mut Vec<u8>) {
        self.kind = kind;
        out.extend(frame(self.connection, kind, self.number, self.begun));
    }
}

impl Conversation for Transaction {
    fn ask(&mut self, _: u32, out: &mut Vec<u8>) {
        self.begun += 1;
        self.number =
            fastrand::Rng::with_seed(self.begun ^ self.connection << 32).u32(..self.locks);
        self.request(LOCK, out);
    }

    fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), String> {
        self.answer.extend_from_slice(bytes);
        if self.answer.len() < FRAME_BYTES {
            return Ok(());
        }
        if self.answer != frame(self.connection, self.kind, self.number, self.begun) {
            return Err("the answer is not what was asked".to_owned());
        }
        self.answer.clear();
        match self.kind {
            LOCK => self.request(UNLOCK, out),
            _ => answers.push(Answer { session: 0, wrong: None }),
        }
        Ok(())
    }
}

/// All connections wait for one lock, and the last request gives it back.
#[derive(Debug, Deserialize, Serialize)]
pub struct Release {
    pub server: String,
    /// Threads of the server while all wait.
    threads: u64,
    /// Time from the request that gives the lock back until all have had it. `None`: it hangs.
    pub nanos: Option<u64>,
}

impl Release {
    fn measure(name: &str, patience: Duration) -> Result<Self, Box<dyn Error>> {
        let nothing = Workload::new("", |_| Err::<Transactions, _>("not loaded".into()));
        let (process, address, _) = Lane::echo(name, nothing).server.start()?;
        let mut threads = Ok(0);
        let took = release(address, CONNECTIONS, patience, || {
            thread::sleep(ALL_WAIT);
            threads = Usage::of(process.pid()).map(|usage| usage.threads);
        })?;
        process.finish()?;
        let nanos = took.map(|took| took.as_nanos() as u64);
        Ok(Self { server: name.to_owned(), threads: threads?, nanos })
    }
}

/// Takes a lock on one connection and asks for it on the others. When `waiting` returns, gives the lock
/// back, and measures the time until all have had it. `None`: the server hangs.
///
/// # Errors
/// A connection breaks, or two connections have the lock at a time.
fn release(
    address: SocketAddr,
    waiters: usize,
    patience: Duration,
    waiting: impl FnOnce(),
) -> Result<Option<Duration>, Box<dyn Error>> {
    let connect = |_| {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        Ok(socket)
    };
    let sockets = (0..=waiters).map(connect).collect::<io::Result<Vec<_>>>()?;
    let released = (|| {
        // One after the other, so that the server knows all of them and none has to wait.
        for socket in &sockets {
            call(socket, LOCK)?;
            call(socket, UNLOCK)?;
        }
        let (holder, waiters) = sockets.split_first().expect("there is one");
        call(holder, LOCK)?;
        for mut waiter in waiters {
            waiter.write_all(&frame(1, LOCK, 0, 0))?;
        }
        waiting();
        for waiter in waiters {
            waiter.set_nonblocking(true)?;
            match waiter.peek(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return Err(io::Error::other("a lock was given to two connections")),
            }
            waiter.set_nonblocking(false)?;
        }
        let start = Instant::now();
        call(holder, UNLOCK)?;
        thread::scope(|scope| {
            let pass_on = |waiter| {
                scope.spawn(move || expect(waiter, LOCK).and_then(|()| call(waiter, UNLOCK)))
            };
            let threads: Vec<_> = waiters.iter().map(pass_on).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        Ok(start.elapsed())
    })();
    match released {
        Ok(took) => Ok(Some(took)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn call(mut socket: &TcpStream, kind: u8) -> io::Result<()> {
    socket.write_all(&frame(1, kind, 0, 0))?;
    expect(socket, kind)
}

fn expect(mut socket: &TcpStream, kind: u8) -> io::Result<()> {
    let mut answer = [0; FRAME_BYTES];
    socket.read_exact(&mut answer)?;
    match answer == frame(1, kind, 0, 0) {
        true => Ok(()),
        false => Err(io::Error::other("the answer is not what was asked")),
    }
}

fn frame(session: u64, kind: u8, number: u32, transaction: u64) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..8].copy_from_slice(&session.to_le_bytes());
    frame[8..12].copy_from_slice(&(FRAME_BYTES as u32 - 12).to_le_bytes());
    frame[12] = kind;
    frame[13..17].copy_from_slice(&number.to_le_bytes());
    frame[17..25].copy_from_slice(&transaction.to_le_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);
    const ANY: &str = "127.0.0.1:0";

    fn start(spec: &str) -> baselines::Server {
        baselines::Server::start(&spec.parse().unwrap(), ANY.parse().unwrap()).unwrap()
    }

    /// One test, because the servers share their locks, and a server that hangs keeps them.
    #[test]
    fn every_transaction_ends_unless_the_only_thread_waits() {
        for spec in ["epoll-group:groups=1", "thread-per-connection"] {
            let server = start(spec);
            let mut load = Transactions::connect(server.address(), 65, 2, PATIENCE).unwrap();
            let mut requests = 0;
            for _ in 0..2 {
                let report = load.run_for(Duration::from_millis(20)).unwrap();
                assert!(report.requests >= 65, "{spec}: {report:?}");
                requests += report.requests;
                assert_eq!(load.answers_total(), 2 * requests);
                assert!(release(server.address(), 64, PATIENCE, || ()).unwrap().is_some());
            }
        }
        let server = start("limit:1");
        let patience = Duration::from_millis(50);
        let mut load = Transactions::connect(server.address(), 8, 1, patience).unwrap();
        for _ in 0..2 {
            let report = load.run_for(Duration::from_millis(20)).unwrap();
            assert_eq!((report.requests, report.hist.len()), (0, 0), "{report:?}");
        }
    }

    #[test]
    fn a_server_that_takes_no_locks_is_found_out() {
        let listener = TcpListener::bind(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        let (answered, answers) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let answered = answered.clone();
                thread::spawn(move || {
                    let mut frame = [0; FRAME_BYTES];
                    while socket.read_exact(&mut frame).is_ok() && socket.write_all(&frame).is_ok()
                    {
                        let _ = answered.send(());
                    }
                });
            }
        });
        // Both try a transaction; then the first takes the lock, and the second asks for it.
        let wait = || (0..6).for_each(|_| answers.recv().unwrap());
        let error = release(address, 1, PATIENCE, wait).unwrap_err();
        assert!(error.to_string().contains("two connections"), "{error}");
    }
}
