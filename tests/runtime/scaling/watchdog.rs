//! Handlers that wait without an announcement: the watchdog finds them.

use std::mem;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{Close, Connection, Input};
use epoll_group::stats::Counter;
use epoll_group::{Class, Config};
use lab::protocol::Bytes;
use lab::threads::{Crowd, Event, How, Observer, crowds, falls_back, growing, start, started};
use lab::workers::Gate;
use lab::{Kind, LONG, Peer, Server, eventually};

const RESERVE: usize = 1;

fn config(base: usize) -> Config {
    growing(base).thread_deadlock_check_interval(Duration::from_millis(10))
}

/// Most threads for a crowd that waits, when one more works. A base worker that gets no CPU between two
/// looks of the watchdog counts as stuck, too, and then may have a thread of its own.
const fn most_threads(crowd: usize, base: usize) -> u64 {
    (crowd + 1 + 2 * base + RESERVE) as u64
}

fn closures_that_wait_for_one_more(name: &str, how: How, crowd: usize, base: usize) {
    let runtime = start(name, config(base));
    let (handle, event) = (runtime.handle(), Event::new(how));
    let observer = Observer::watch(&handle);
    let all = Crowd::start(&handle, &event, crowd);
    handle.spawn_wait(move || event.happen()).expect("nobody drains");
    all.end();
    falls_back(&handle, name, base + RESERVE);
    let (most, stats) = (observer.end(), runtime.stats());
    assert!(most <= most_threads(crowd, base), "{how:?} {crowd}: {most}\n{stats}");
    let [stall, backlog, ..] = started(&stats);
    assert_eq!((stall, backlog), (0, 0), "{how:?} {crowd} on {base}:\n{stats}");
    let added = stats.get(Counter::ThreadsStartedWatchdog);
    assert!(added as usize + base > crowd, "{how:?} {crowd} on {base}:\n{stats}");
    let looks = stats.get(Counter::WatchdogChecks);
    // The number that a look adds doubles, so `n` looks add at most `2^n - 1` threads.
    assert!(added < 1 << looks.min(63), "{added} in {looks} looks");
}

#[test]
fn closures_that_wait_and_do_not_say_so_all_finish_and_the_threads_leave() {
    for (crowd, base) in crowds().iter().flat_map(|&n| [(n, 4), (n, 1)]) {
        closures_that_wait_for_one_more("sw-b", How::Blocked, crowd, base);
    }
}

#[test]
fn closures_that_wait_on_their_cpu_all_finish_and_the_threads_leave() {
    for (crowd, base) in [1, 4, 5].into_iter().flat_map(|n| [(n, 4), (n, 1)]) {
        closures_that_wait_for_one_more("sw-s", How::Spinning, crowd, base);
    }
}

fn connections_that_wait_for_one_more(how: How, crowd: usize, base: usize) {
    let (runtime, event) = (start("sw-n", config(base)), Event::new(how));
    let shared = event.clone();
    let wait_or_happen = move |conn: &Connection, input: &mut Input<'_>| -> Result<(), Close> {
        for op in input.take_all().to_vec() {
            if op == b'w' {
                shared.wait()
            } else {
                shared.happen()
            }
            conn.send([op]);
        }
        Ok(())
    };
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(wait_or_happen)).expect("a listener");
    let connect = || Peer::connect(listener.local_addr());
    let mut peers: Vec<_> = (0..crowd).map(|_| connect()).collect();
    let observer = Observer::watch(&runtime.handle());
    peers.iter_mut().for_each(|peer| peer.send(b"w"));
    event.wait_for(crowd);
    connect().echo(b"h");
    for peer in &mut peers {
        assert_eq!(peer.receive(1), b"w");
    }
    falls_back(&runtime.handle(), "sw-n", base + RESERVE);
    let (most, stats) = (observer.end(), runtime.stats());
    // The listener may have a thread of its own, too.
    assert!(most <= most_threads(crowd + 1, base), "{how:?} {crowd}: {most}\n{stats}");
    assert_eq!(started(&stats)[..2], [0, 0], "{how:?} {crowd} on {base}:\n{stats}");
}

#[test]
fn connections_that_wait_and_do_not_say_so_all_finish_and_the_threads_leave() {
    for (crowd, base) in crowds().iter().flat_map(|&n| [(n, 4), (n, 1)]) {
        connections_that_wait_for_one_more(How::Blocked, crowd, base);
    }
    for (crowd, base) in [(1, 1), (4, 4), (5, 4)] {
        connections_that_wait_for_one_more(How::Spinning, crowd, base);
    }
}

/// Connections block all base workers, and one more asks something.
fn the_network_is_heard(server: &Server, gate: &Gate) {
    let mut blocking = Vec::new();
    for blocked in 1..=4 {
        eventually(LONG, || {
            let mut peer = server.peer();
            peer.send(BLOCK);
            blocking.push(peer);
            gate.held() >= blocked
        });
    }
    server.peer().echo(b"is anybody there?");
    gate.open();
}

const BLOCK: &[u8] = b"block a base worker";

fn blocking_server(config: Config, gate: &Gate) -> Server {
    let gate = gate.clone();
    let block = move |conn: &Connection, input: &mut Input<'_>| -> Result<(), Close> {
        let thread = thread::current();
        let is_base = !thread.name().is_some_and(|name| name.contains(['t', 'w']));
        if input.bytes() == BLOCK && is_base {
            gate.pass();
        }
        conn.send(input.take_all());
        Ok(())
    };
    Server::start(Kind::Tcp, config, Bytes::new(block))
}

#[test]
fn all_workers_blocked_and_the_network_is_heard() {
    let gate = Gate::default();
    the_network_is_heard(&blocking_server(config(4), &gate), &gate);
}

#[test]
fn a_long_queue_gets_threads_and_they_hear_the_network() {
    let config = config(4).enable_tasker(true).dynamic_threads_shrink_time(Duration::from_secs(60));
    let gate = Gate::default();
    let server = blocking_server(config, &gate);
    // A long queue that moves on, and leaves the CPUs alone.
    eventually(LONG, || {
        let slow = || thread::sleep(Duration::from_millis(2));
        while server.runtime.handle().spawn(slow).is_ok() {}
        server.stats().dynamic_threads > 0
    });
    eventually(LONG, || server.stats().tasks_in_progress == 0);
    the_network_is_heard(&server, &gate);
    assert!(server.stats().dynamic_threads > 0, "{}", server.stats());
    assert!(server.count(Counter::ThreadsStartedBacklog) > 0, "{}", server.stats());
}

#[test]
fn one_long_wait_is_reported_once() {
    // Much longer than a busy machine keeps a thread from its CPU.
    let config = config(4).handler_report_after(Duration::from_millis(200));
    let runtime = start("sw-r", config);
    let count = |counter| runtime.stats().get(counter);
    for (runs, how) in [How::Blocked, How::Announced, How::Locks, How::Spinning].iter().enumerate()
    {
        let event = Event::new(*how);
        let (tell, told) = mpsc::channel();
        let waits = event.clone();
        let code = move || {
            waits.wait();
            tell.send(()).expect("waited for");
        };
        runtime.handle().spawn(code).expect("room");
        eventually(LONG, || count(Counter::HandlersReported) > runs as u64);
        // However often the watchdog looks, it is still the same run.
        let looks = count(Counter::WatchdogChecks);
        eventually(LONG, || count(Counter::WatchdogChecks) > looks + 10);
        assert_eq!(count(Counter::HandlersReported), runs as u64 + 1, "{how:?}");
        event.happen();
        told.recv_timeout(LONG).expect("it ends");
    }
    // Short tasks are not reported.
    for _ in 0..100 {
        runtime.handle().spawn_wait(|| ()).expect("nobody drains");
    }
    eventually(LONG, || runtime.stats().tasks_in_progress == 0);
    assert_eq!(count(Counter::HandlersReported), 4);
}

/// Runs a handler that begins after a rest and ends as soon as the watchdog has looked. Returns the
/// threads that were added, or `None` if the machine was too slow for the handler to end before the
/// next look.
fn a_handler_after_a_rest(interval: Duration) -> Option<[u64; 4]> {
    // With one worker every thread is inside a handler as soon as there is one.
    let runtime = start("sw-f", config(1).thread_deadlock_check_interval(interval));
    let handle = runtime.handle();
    let looks = move || handle.stats().get(Counter::WatchdogChecks);
    // Waits until the watchdog rests too, so that its number of checks no longer changes.
    let mut before = looks();
    eventually(LONG, || {
        thread::park_timeout(interval * 2);
        mem::replace(&mut before, looks()) == looks()
    });
    let (tell, told) = mpsc::channel();
    let code = move || {
        let began = Instant::now();
        while looks() == before && began.elapsed() < interval / 2 {
            thread::yield_now();
        }
        let quick = looks() == before + 1 && began.elapsed() < interval / 2;
        tell.send(quick).expect("waited for");
    };
    runtime.handle().spawn(code).expect("room");
    let quick = told.recv_timeout(LONG).expect("it ends");
    quick.then(|| started(&runtime.stats()))
}

#[test]
fn a_handler_that_begins_after_a_rest_is_not_taken_for_one_that_hangs() {
    let rounds = (0..10).filter_map(|_| a_handler_after_a_rest(Duration::from_millis(500)));
    let rounds: Vec<_> = rounds.take(3).collect();
    assert!(rounds.iter().all(|started| *started == [0; 4]), "{rounds:?}");
    assert!(!rounds.is_empty(), "the watchdog looks when somebody gets up");
}

#[test]
fn work_in_progress_runs_while_all_others_are_blocked_and_no_more_may_be_started() {
    let config = config(4).max_threads(4 + RESERVE);
    let runtime = start("sw-p", config);
    for _ in 0..20 {
        let event = Event::new(How::Blocked);
        let crowd = Crowd::start(&runtime.handle(), &event, 8);
        event.wait_for(4);
        let handle = runtime.handle().with_class(Class::InProgress);
        handle.spawn(move || event.happen()).expect("room");
        crowd.end();
    }
    let stats = runtime.stats();
    assert_eq!(started(&stats), [0; 4], "{stats}");
    assert!(stats.get(Counter::ThreadsLimited) > 0, "{stats}");
}
