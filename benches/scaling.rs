//! Threads that start when handlers wait: the time until the handler runs that the others wait for,
//! and the cost of an idle runtime. Predicts service. Each measurement checks its answers; the
//! times are for the reader.
//!
//! `cargo bench --bench scaling`: about two minutes. As a test (`cargo test --benches`) each case runs
//! once and small.

#![expect(clippy::print_stdout, reason = "its output is the result")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{Close, Connection, Input, Listener, Protocol};
use epoll_group::stats::{Counter, Snapshot};
use epoll_group::{Config, Runtime, stall};

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    let rounds = if full { 21 } else { 1 };
    let waiters = if full { 64 } else { 8 };

    println!(
        "{waiters} handlers wait for what the next request does, 4 base threads, {rounds} rounds"
    );
    let mut announced = Vec::new();
    let mut unannounced = Vec::new();
    for _ in 0..rounds {
        announced.push(freed(waiters, Waits::Announced));
        unannounced.push(freed(waiters, Waits::Unannounced));
    }
    let interval = Config::default().get("thread_deadlock_check_interval").expect("a tunable");
    print("announced", &announced);
    print(&format!("unannounced (checks every {interval})"), &unannounced);

    let (sleepers, sleep) =
        if full { (16, Duration::from_secs(8)) } else { (8, Duration::from_millis(500)) };
    println!("\n{sleepers} frames sleep {sleep:?} unannounced, then another connection asks");
    let answers: Vec<Run> =
        (0..if full { 5 } else { 1 }).map(|_| beside_sleepers(sleepers, sleep)).collect();
    print("answered", &answers);

    let idle = if full { Duration::from_secs(10) } else { Duration::from_secs(1) };
    println!("\nidle, default configuration, one connection open, {idle:?}");
    println!("  {:.2} wake-ups per second of all threads together", idle_wake_ups(idle));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Announced,
    Unannounced,
}

struct Run {
    took: Duration,
    threads: u64,
    why: [u64; 4],
}

fn print(what: &str, runs: &[Run]) {
    let mut times: Vec<_> = runs.iter().map(|run| run.took).collect();
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
    let most = runs.iter().map(|run| run.threads).max().unwrap_or(0);
    let why: [u64; 4] = std::array::from_fn(|k| runs.iter().map(|run| run.why[k]).sum());
    println!(
        "  {what}: min {:.1?}, median {:.1?}, max {:.1?}; at most {most} threads; started: {} for \
         stalls, {} backlog, {} watchdog, {} reserve",
        at(0.0),
        at(0.5),
        at(1.0),
        why[0],
        why[1],
        why[2],
        why[3]
    );
}

const WHY: [Counter; 4] = [
    Counter::ThreadsStartedStall,
    Counter::ThreadsStartedBacklog,
    Counter::ThreadsStartedWatchdog,
    Counter::ThreadsStartedReserve,
];

fn run(took: Duration, stats: &Snapshot) -> Run {
    let threads = stats.base_threads + stats.dynamic_threads + stats.reserve_threads;
    Run { took, threads, why: WHY.map(|counter| stats.get(counter)) }
}

/// Requests, each a frame of one byte.
const WAIT: u8 = b'w';
const FREE: u8 = b'f';
const SLEEP: u8 = b's';

struct Service {
    waits: Waits,
    sleep: Duration,
    free: Mutex<bool>,
    freed: Condvar,
}

struct Shared(Arc<Service>);

impl Protocol for Shared {
    type State = ();

    fn opened(&self, _conn: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, _: &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        for byte in input.take_all() {
            match *byte {
                WAIT if self.0.waits == Waits::Announced => stall::run(|| self.0.wait()),
                WAIT => self.0.wait(),
                FREE => {
                    *self.0.free.lock().expect("no panic") = true;
                    self.0.freed.notify_all();
                }
                SLEEP => thread::sleep(self.0.sleep),
                _ => {}
            }
            conn.send([*byte]);
        }
        Ok(())
    }
}

impl Service {
    fn wait(&self) {
        let free = self.free.lock().expect("no panic");
        drop(self.freed.wait_while(free, |free| !*free).expect("no panic"));
    }
}

fn start(waits: Waits, sleep: Duration) -> (Runtime, Listener) {
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(4))
        .start()
        .expect("a runtime");
    let (free, freed) = (Mutex::new(false), Condvar::new());
    let service = Arc::new(Service { waits, sleep, free, freed });
    let listener = runtime.listen("127.0.0.1:0", Shared(service)).expect("a listener");
    (runtime, listener)
}

fn connect(listener: &Listener) -> TcpStream {
    let peer = TcpStream::connect(listener.local_addr().to_string()).expect("it listens");
    peer.set_nodelay(true).expect("TCP");
    peer
}

fn ask(mut peer: &TcpStream, frame: u8) {
    peer.write_all(&[frame]).expect("it reads");
}

fn answer(mut peer: &TcpStream, frame: u8) {
    let mut byte = [0];
    peer.read_exact(&mut byte).expect("it answers");
    assert_eq!(byte[0], frame);
}

/// Time from the requests that wait, and the one that frees them, to their last answer.
fn freed(waiters: usize, waits: Waits) -> Run {
    let (runtime, listener) = start(waits, Duration::ZERO);
    let peers: Vec<_> = (0..waiters).map(|_| connect(&listener)).collect();
    let last = connect(&listener);
    // All are connected and idle.
    for peer in peers.iter().chain([&last]) {
        ask(peer, b'x');
        answer(peer, b'x');
    }
    let began = Instant::now();
    peers.iter().for_each(|peer| ask(peer, WAIT));
    ask(&last, FREE);
    answer(&last, FREE);
    peers.iter().for_each(|peer| answer(peer, WAIT));
    run(began.elapsed(), &runtime.stats())
}

/// Time of a request of another connection, right behind the frames that sleep.
fn beside_sleepers(sleepers: usize, sleep: Duration) -> Run {
    let (runtime, listener) = start(Waits::Unannounced, sleep);
    let peers: Vec<_> = (0..sleepers).map(|_| connect(&listener)).collect();
    let other = connect(&listener);
    ask(&other, b'x');
    answer(&other, b'x');
    peers.iter().for_each(|peer| ask(peer, SLEEP));
    let began = Instant::now();
    ask(&other, b'x');
    answer(&other, b'x');
    let result = run(began.elapsed(), &runtime.stats());
    peers.iter().for_each(|peer| answer(peer, SLEEP));
    result
}

/// Voluntary context switches of all threads of the runtime a second. Each is a wake-up.
fn idle_wake_ups(time: Duration) -> f64 {
    let (_runtime, listener) = start(Waits::Announced, Duration::ZERO);
    let peer = connect(&listener);
    ask(&peer, b'x');
    answer(&peer, b'x');
    // Time for the watchdog to find nothing.
    let (_keep, quiet) = mpsc::channel::<()>();
    let _ = quiet.recv_timeout(Duration::from_secs(2));
    let before = switches();
    let _ = quiet.recv_timeout(time);
    (switches() - before) as f64 / time.as_secs_f64()
}

fn switches() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let paths = tasks.filter_map(|task| Some(task.ok()?.path()));
    let ours = paths.filter(|path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with("eg-"))
    });
    ours.filter_map(|path| fs::read_to_string(path.join("status")).ok())
        .flat_map(|status| {
            let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
            lines
                .filter_map(|line| line.split_whitespace().nth(1)?.parse().ok())
                .collect::<Vec<u64>>()
        })
        .sum()
}
