//! Handlers that wait and announce it: threads are added only for as long as the handlers wait.

mod chain;
mod edges;
mod life;
mod refused;
mod reserve;
mod watchdog;

use std::hint;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::Config;
use epoll_group::net::{Close, Connection, Input, Protocol, Turn};
use epoll_group::stats::Counter;
use lab::protocol::Bytes;
use lab::threads::{
    Crowd, Event, How, Observer, crowds, falls_back, growing, start, started, threads,
};
use lab::{Kind, LONG, Peer, Server, eventually, often};

const RESERVE: usize = 1;
const ANNOUNCED: [How; 2] = [How::Announced, How::Locks];

/// The watchdog looks so rarely that it adds no thread.
fn config(base: usize) -> Config {
    growing(base).thread_deadlock_check_interval(Duration::from_secs(10))
}

/// `w` waits for the event and `h` makes it happen.
fn waiting_protocol(event: &Event) -> impl Protocol + use<> {
    let event = event.clone();
    Bytes::new(move |conn: &Connection, input: &mut Input<'_>| -> Result<(), Close> {
        for op in input.take_all().to_vec() {
            match op {
                b'w' => event.wait(),
                b'h' => event.happen(),
                _ => {}
            }
            conn.send([op]);
        }
        Ok(())
    })
}

#[test]
fn closures_that_wait_for_one_more_all_finish_and_the_threads_leave() {
    for (how, base) in ANNOUNCED.into_iter().flat_map(|how| [(how, 4), (how, 1)]) {
        for &crowd in crowds() {
            let runtime = start("sc-c", config(base));
            let (handle, event) = (runtime.handle(), Event::new(how));
            let observer = Observer::watch(&handle);
            let all = Crowd::start(&handle, &event, crowd);
            event.wait_for(crowd);
            let last = event.clone();
            handle.spawn(move || last.happen()).expect("room");
            all.end();
            falls_back(&handle, "sc-c", base + RESERVE);
            let (most, stats) = (observer.end(), runtime.stats());
            // The last one may have to wait for the lock of the others.
            let waits = crowd + 1;
            assert!(most <= (waits + base + RESERVE) as u64, "{how:?} {crowd}: {most}\n{stats}");
            let [_, backlog, watchdog, _] = started(&stats);
            assert_eq!((backlog, watchdog), (0, 0), "{how:?} {crowd} on {base}:\n{stats}");
            let by_stall = stats.get(Counter::ThreadsStartedStall);
            let stalls = stats.get(Counter::Stalls);
            assert!(by_stall == 0 || stalls > 0, "{how:?} {crowd} on {base}:\n{stats}");
            // Each waits on a thread of its own.
            assert!(by_stall as usize + base >= crowd, "{how:?} {crowd} on {base}:\n{stats}");
        }
    }
}

#[test]
fn connections_that_wait_for_one_more_all_finish_and_the_threads_leave() {
    for (how, base) in ANNOUNCED.into_iter().flat_map(|how| [(how, 4), (how, 1)]) {
        for &crowd in crowds() {
            let (runtime, event) = (start("sc-n", config(base)), Event::new(how));
            let listener = runtime.listen("127.0.0.1:0", waiting_protocol(&event));
            let listener = listener.expect("a listener");
            let connect = || Peer::connect(listener.local_addr());
            let mut peers: Vec<_> = (0..crowd).map(|_| connect()).collect();
            let observer = Observer::watch(&runtime.handle());
            peers.iter_mut().for_each(|peer| peer.send(b"w"));
            event.wait_for(crowd);
            let mut last = connect();
            last.echo(b"h");
            for peer in &mut peers {
                assert_eq!(peer.receive(1), b"w");
            }
            let began = Instant::now();
            falls_back(&runtime.handle(), "sc-n", base + RESERVE);
            // A hundred shrink times; the watchdog looks again only after ten seconds.
            assert!(began.elapsed() < Duration::from_secs(5), "{how:?} {crowd} on {base}");
            let (most, stats) = (observer.end(), runtime.stats());
            assert!(most <= (crowd + 1 + base + RESERVE) as u64, "{how:?} {crowd}:\n{stats}");
            assert_eq!(started(&stats)[1..3], [0, 0], "{how:?} {crowd} on {base}:\n{stats}");
        }
    }
}

/// `w` waits for the event, after the connection was released, and `h` makes it happen.
struct Later {
    event: Event,
    ops: Mutex<Vec<u8>>,
}

impl Protocol for Later {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        self.ops.lock().expect("no panic").extend_from_slice(input.take_all());
        Ok(())
    }

    fn released(&self, conn: &Connection, _: Turn) {
        let op = self.ops.lock().expect("no panic").pop();
        match op {
            Some(b'w') => self.event.wait(),
            Some(b'h') => self.event.happen(),
            _ => return,
        }
        conn.send(op.as_slice());
    }
}

#[test]
fn requests_that_wait_for_a_later_one_of_their_connection_all_finish() {
    const WAITS: usize = 12;
    let event = Event::new(How::Announced);
    let protocol = Later { event: event.clone(), ops: Mutex::default() };
    let server = Server::start(Kind::Tcp, config(4), protocol);
    let mut peer = server.peer();
    for waiting in 1..=WAITS {
        peer.send(b"w");
        event.wait_for(waiting);
    }
    peer.send(b"h");
    let mut answers = peer.receive(WAITS + 1);
    answers.sort_unstable();
    assert_eq!(answers, [&b"h"[..], &[b'w'; WAITS]].concat());
}

#[test]
fn a_runtime_that_has_grown_and_shrunk_grows_again() {
    let runtime = start("sc-a", config(4));
    for round in 1..=3 {
        let event = Event::new(How::Announced);
        let crowd = Crowd::start(&runtime.handle(), &event, 40);
        event.wait_for(40);
        // The handlers are about to wait.
        eventually(LONG, || runtime.stats().stalled_threads == 40);
        let stats = runtime.stats();
        assert!(threads(&stats) > 40, "round {round}:\n{stats}");
        runtime.handle().spawn(move || event.happen()).expect("room");
        crowd.end();
        falls_back(&runtime.handle(), "sc-a", 4 + RESERVE);
    }
}

#[test]
fn handlers_that_are_busy_get_no_thread() {
    const BUSY: Duration = Duration::from_millis(5);
    // The watchdog looks every half second.
    let long = Duration::from_millis(500) * often(4).max(3);
    let burn = |conn: &Connection, input: &mut Input<'_>| -> Result<(), Close> {
        for op in input.take_all().to_vec() {
            let began = Instant::now();
            while began.elapsed() < BUSY {
                hint::spin_loop();
            }
            conn.send([op]);
        }
        Ok(())
    };
    let server = Server::start(Kind::Tcp, lab::config(), Bytes::new(burn));
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut peer = server.peer();
                while began.elapsed() < long {
                    peer.echo(b"x");
                }
            });
        }
    });
    let stats = server.stats();
    assert!(stats.get(Counter::WatchdogChecks) > 0, "it has looked:\n{stats}");
    assert_eq!(started(&stats), [0; 4], "{stats}");
    assert_eq!(threads(&stats), 5, "{stats}");
}

/// Eight handlers wait at once for 5 ms, again and again. Returns `None` if this machine stood
/// still for so long that threads were right to leave.
fn on_and_off(shrink: Duration) -> Option<([u64; 4], u64)> {
    const WAITS: usize = 8;
    let config = config(4).dynamic_threads_shrink_time(shrink);
    let runtime = start("sc-o", config);
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    // Several times as long as it takes a thread to leave.
    while began.elapsed() < shrink * often(10).max(3) {
        let round = Instant::now();
        let event = Event::new(How::Announced);
        let crowd = Crowd::start(&runtime.handle(), &event, WAITS);
        event.wait_for(WAITS);
        thread::sleep(Duration::from_millis(5));
        event.happen();
        crowd.end();
        thread::sleep(Duration::from_millis(5));
        longest = longest.max(round.elapsed());
    }
    let stats = runtime.stats();
    (longest < shrink / 2).then(|| (started(&stats), stats.get(Counter::ThreadsLeft)))
}

#[test]
fn a_wait_that_comes_and_goes_does_not_make_threads_come_and_go() {
    let shrink = Duration::from_millis(if cfg!(sanitized) { 2000 } else { 500 });
    let tried = std::iter::repeat_with(|| on_and_off(shrink)).take(30).flatten().next();
    let ([stall, backlog, watchdog, reserve], left) = tried.expect("a machine that goes on");
    // Eight wait, and two waits are tolerated.
    assert!(stall <= 6, "{stall} were started for six");
    assert_eq!((backlog, watchdog, left), (0, 0, 0));
    assert!(reserve <= 1, "{reserve}");
}
