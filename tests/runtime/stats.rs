//! Counters are exact when the runtime is idle, and never fall.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use epoll_group::net::{Close, Connection, Input};
use epoll_group::stats::{Counter, Snapshot, Stage};
use epoll_group::{Class, Runtime};
use lab::protocol::{Bytes, echo};
use lab::threads::Observer;
use lab::workers::{Gate, all_rest};
use lab::{Kind, LONG, Server, eventually, often};

const PEERS: u64 = 4;

fn expect(stats: &Snapshot, counts: &[(Counter, u64)]) {
    for (counter, exactly) in counts {
        assert_eq!(stats.get(*counter), *exactly, "{}\n{stats}", counter.name());
    }
}

#[test]
fn counters_are_exact_at_rest_and_never_fall() {
    for kind in lab::BOTH {
        let server = Server::start(kind, lab::config().enable_perf_hist(true), Bytes::new(echo));
        let observer = Observer::watch(&server.runtime.handle());
        let requests = u64::from(often(2000));
        let request = b"question";
        thread::scope(|scope| {
            for _ in 0..PEERS {
                scope.spawn(|| {
                    let mut peer = server.peer();
                    (0..requests).for_each(|_| peer.echo(request));
                });
            }
        });
        server.wait_until_empty();
        all_rest(&server.runtime);
        observer.end();
        let stats = server.stats();
        let (turns, bytes) = (PEERS * requests, PEERS * requests * request.len() as u64);
        expect(
            &stats,
            &[
                (Counter::ConnectionsAccepted, PEERS),
                (Counter::ConnectionsClosed, PEERS),
                (Counter::ClosedByPeer, PEERS),
                (Counter::Receives, turns),
                (Counter::SendCalls, turns),
                (Counter::BytesReceived, bytes),
                (Counter::BytesSent, bytes),
                (Counter::Panics, 0),
                (Counter::BacklogBytesQueued, 0),
            ],
        );
        // A question sent right after an answer may arrive before the turn of that answer has
        // ended, and be served in the same turn.
        let count = |stage| stats.histogram(stage).expect("on").count();
        assert!((1..=turns).contains(&count(Stage::Run)), "{stats}");
        assert_eq!(count(Stage::RecvFirst), count(Stage::Run), "{stats}");
        assert_eq!(count(Stage::RecvAll), count(Stage::Run), "{stats}");
        assert!(count(Stage::Schedule) >= count(Stage::Run), "{stats}");
        assert_eq!((stats.connections, stats.buffered_bytes, stats.queue_len), (0, 0, 0));
    }
}

#[test]
fn each_turn_is_in_the_histograms_once() {
    let server = Server::start(Kind::Tcp, lab::config().enable_perf_hist(true), Bytes::new(echo));
    let count = |stage| server.stats().histogram(stage).expect("on").count();
    let mut peer = server.peer();
    let turns = u64::from(often(200));
    for turn in 1..=turns {
        peer.echo(b"question");
        eventually(LONG, || count(Stage::Run) == turn);
    }
    all_rest(&server.runtime);
    for stage in [Stage::Run, Stage::RecvFirst, Stage::RecvAll] {
        assert_eq!(count(stage), turns, "{}\n{}", stage.name(), server.stats());
    }
    assert_eq!(server.count(Counter::Receives), turns);
}

#[test]
fn each_closure_is_in_the_histograms_once_for_the_queue_and_once_for_its_run() {
    let config = lab::config().enable_perf_hist(true).epoll_work_queue_capacity(4096);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let observer = Observer::watch(&runtime.handle());
    let (tell, told) = mpsc::channel();
    let (each, classes) = (u64::from(often(5000)), [Class::Ordinary, Class::InProgress]);
    let spawners = classes.len() as u64 * 2;
    thread::scope(|scope| {
        for class in classes.into_iter().chain(classes) {
            let (handle, tell) = (runtime.handle().with_class(class), tell.clone());
            scope.spawn(move || {
                for _ in 0..each {
                    let tell = tell.clone();
                    let code = move || tell.send(()).expect("waited for");
                    handle.spawn_wait(code).expect("nobody drains");
                }
            });
        }
    });
    drop(tell);
    assert_eq!(told.iter().count() as u64, each * spawners);
    all_rest(&runtime);
    observer.end();
    let stats = runtime.stats();
    expect(
        &stats,
        &[(Counter::TasksRun, each * spawners), (Counter::UrgentTasks, each * spawners / 2)],
    );
    for stage in [Stage::WorkQueue, Stage::Run, Stage::Schedule] {
        let histogram = stats.histogram(stage).expect("on");
        assert_eq!(histogram.count(), each * spawners, "{}\n{stats}", stage.name());
    }
    assert_eq!((stats.tasks_in_progress, stats.queue_len, stats.urgent_queue_len), (0, 0, 0));
}

#[test]
fn a_timer_is_counted_when_it_is_set_and_when_it_fires_or_is_cancelled() {
    let config = lab::config().enable_perf_hist(true);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let (tell, told) = mpsc::channel();
    for _ in 0..50 {
        let tell = tell.clone();
        let fires = move || tell.send(()).expect("waited for");
        runtime.handle().after(Duration::from_millis(1), fires).detach();
        let never = || panic!("it was cancelled");
        assert!(runtime.handle().after(Duration::from_secs(3600), never).cancel());
    }
    (0..50).for_each(|_| told.recv_timeout(LONG).expect("it fires"));
    eventually(LONG, || runtime.stats().tasks_in_progress == 0);
    all_rest(&runtime);
    let stats = runtime.stats();
    expect(
        &stats,
        &[
            (Counter::TimersSet, 100),
            (Counter::TimersFired, 50),
            (Counter::TimersCancelled, 50),
            (Counter::Panics, 0),
        ],
    );
    assert_eq!(stats.histogram(Stage::Timer).expect("on").count(), 50, "{stats}");
}

#[test]
fn what_happens_at_the_moment_is_shown_by_gauges() {
    let gate = Gate::default();
    let blocks = gate.clone();
    let pass = move |conn: &Connection, input: &mut Input<'_>| -> Result<(), Close> {
        blocks.pass();
        conn.send(input.take_all());
        Ok(())
    };
    let config = lab::config().thread_deadlock_check_interval(Duration::from_secs(10));
    let server = Server::start(Kind::Tcp, config, Bytes::new(pass));
    let handle = server.runtime.handle();
    let mut peer = server.peer();
    peer.send(b"x");
    gate.wait_for(1);
    for _ in 0..3 {
        let gate = gate.clone();
        handle.spawn(move || gate.pass()).expect("room");
    }
    gate.wait_for(4);
    (0..5).for_each(|_| handle.spawn(|| ()).expect("room"));
    (0..2).for_each(|_| handle.with_class(Class::Admin).spawn(|| ()).expect("room"));
    // The reserve thread counts from when it first waits for a call.
    eventually(LONG, || server.stats().standby_threads == 1);
    let stats = server.stats();
    assert_eq!((stats.running_threads, stats.stalled_threads, stats.parked), (4, 0, 0), "{stats}");
    assert_eq!((stats.queue_len, stats.urgent_queue_len, stats.tasks_in_progress), (7, 2, 10));
    assert_eq!((stats.base_threads, stats.reserve_threads, stats.standby_threads), (4, 1, 1));
    assert_eq!((stats.workers, stats.dynamic_threads, stats.connections), (4, 0, 1));
    gate.open();
    assert_eq!(peer.receive(1), b"x");
    all_rest(&server.runtime);
    let stats = server.stats();
    assert_eq!((stats.running_threads, stats.queue_len, stats.tasks_in_progress), (0, 0, 0));
}
