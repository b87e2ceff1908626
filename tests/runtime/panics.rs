//! A panic in code of the host is caught: the workers live on, and the panic is counted once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use epoll_group::net::{Close, CloseReason, Connection, HalfClose, Input, Protocol};
use epoll_group::stats::Counter;
use epoll_group::{Config, Handle, Runtime};
use lab::child::in_child;
use lab::protocol::{Bytes, echo};
use lab::workers::{all_rest, threads_named};
use lab::{LONG, Peer, assert_clean, eventually};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

const WORKERS: usize = 3;

fn named(prefix: &str) -> Runtime {
    let config = Config::default()
        .epoll_groups(1)
        .epoll_threads_per_group(WORKERS)
        // No thread is added for panics that are slow because they print backtraces.
        .thread_deadlock_check_interval(Duration::from_secs(10));
    Runtime::builder().config(config).name(prefix).start().expect("a runtime")
}

/// Waits for `panics`, and checks that all workers are there and work.
#[track_caller]
fn check(runtime: &Runtime, prefix: &str, panics: u64) {
    eventually(LONG, || runtime.stats().get(Counter::Panics) >= panics);
    all_rest(runtime);
    let stats = runtime.stats();
    assert_eq!((stats.get(Counter::Panics), stats.workers), (panics, WORKERS as u64));
    let mut names: Vec<_> = (0..WORKERS).map(|worker| format!("{prefix}-0-{worker}")).collect();
    names.extend([format!("{prefix}-0-r{WORKERS}"), format!("{prefix}-watchdog")]);
    assert_eq!(threads_named(prefix), names);
    let (ran, has_run) = mpsc::channel();
    runtime.handle().spawn(move || ran.send(()).expect("waited for")).expect("room");
    has_run.recv_timeout(LONG).expect("tasks run");
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn panics_in_tasks_leave_the_workers() {
    let runtime = named("pt");
    for _ in 0..10 {
        runtime.handle().spawn(|| panic!("in a task")).expect("room");
        runtime.handle().spawn(|| std::panic::panic_any(7)).expect("room");
    }
    check(&runtime, "pt", 20);
    assert_eq!(runtime.stats().get(Counter::TasksRun), 21);
}

#[test]
fn a_panic_in_the_destructor_of_a_closure_leaves_the_workers() {
    let runtime = named("pd");
    let bomb = Bomb;
    runtime.handle().spawn(move || drop(bomb)).expect("room");
    let bomb = Bomb;
    runtime.handle().after(Duration::ZERO, move || drop(bomb)).detach();
    check(&runtime, "pd", 2);
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_leaves_the_workers() {
    let runtime = named("pp");
    runtime.handle().spawn(|| std::panic::panic_any(Bomb)).expect("room");
    check(&runtime, "pp", 1);
}

/// Panics with another one of itself when it is dropped.
struct Endless;

impl Drop for Endless {
    fn drop(&mut self) {
        std::panic::panic_any(Self);
    }
}

#[test]
fn panics_whose_payloads_panic_again_and_again_when_dropped_leave_the_workers() {
    let runtime = named("pq");
    for _ in 0..=WORKERS {
        runtime.handle().spawn(|| std::panic::panic_any(Endless)).expect("room");
    }
    check(&runtime, "pq", WORKERS as u64 + 1);
    assert_clean(&runtime.drain(LONG));
}

/// A log subscriber that runs this code at each event and span of the crate.
struct Log<F>(F);

impl<F: Fn() + Send + Sync + 'static> Subscriber for Log<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("epoll_group")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0();
    }

    fn enter(&self, _: &Id) {
        self.0();
    }

    fn exit(&self, _: &Id) {
        self.0();
    }
}

#[test]
fn a_log_subscriber_that_panics_ends_no_worker_and_keeps_no_connection() {
    in_child(|| {
        tracing::subscriber::set_global_default(Log(|| panic!("in the log"))).expect("the first");
        let runtime = named("pb");
        for _ in 0..WORKERS {
            runtime.handle().spawn(|| panic!("in a task")).expect("room");
        }
        let listener = runtime.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
        for _ in 0..=WORKERS {
            // The end of a connection is logged.
            Peer::connect(listener.local_addr()).echo(b"hello");
        }
        eventually(LONG, || runtime.stats().connections == 0);
        check(&runtime, "pb", WORKERS as u64);
        assert_clean(&runtime.drain(LONG));
    });
}

#[test]
fn a_log_subscriber_that_blocks_the_watchdog_does_not_block_a_drain() {
    in_child(|| {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let block_the_watchdog = move || {
            if thread::current().name().is_some_and(|name| name.ends_with("-watchdog")) {
                tell.lock().expect("no panic").send(()).expect("waited for");
                loop {
                    thread::park();
                }
            }
        };
        let log = Log(block_the_watchdog);
        tracing::subscriber::set_global_default(log).expect("the first");
        let short = Duration::from_millis(1);
        let config = lab::config().thread_deadlock_check_interval(short);
        let config = config.handler_report_after(short);
        let runtime = Runtime::builder().config(config).name("pw").start().expect("a runtime");
        let (end, ended) = mpsc::channel();
        let long = move || ended.recv().expect("ended");
        runtime.handle().spawn(long).expect("room");
        told.recv_timeout(LONG).expect("the handler is reported");
        end.send(()).expect("waited for");
        assert_eq!(runtime.drain(LONG).stuck, ["pw-watchdog"]);
    });
}

#[test]
fn two_destructors_of_timers_that_panic_at_the_end_do_not_abort() {
    in_child(|| {
        let runtime = named("pf");
        for _ in 0..2 {
            let bomb = Bomb;
            runtime.handle().after(LONG, move || drop(bomb)).detach();
        }
        let handle = runtime.handle();
        assert_clean(&runtime.drain(LONG));
        assert_eq!(handle.stats().get(Counter::Panics), 2);
    });
}

#[test]
fn panics_in_timers_leave_the_workers_and_a_repeating_one_goes_on() {
    let runtime = named("pr");
    runtime.handle().after(Duration::ZERO, || panic!("in a timer")).detach();
    let (tell, told) = mpsc::channel();
    let mut runs = 0;
    let timer = runtime.handle().every(Duration::from_millis(1), move || {
        runs += 1;
        tell.send(runs).expect("waited for");
        assert!(runs >= 5, "in a repeating timer");
    });
    for run in 1..=8 {
        assert_eq!(told.recv_timeout(LONG), Ok(run));
    }
    assert!(timer.cancel());
    check(&runtime, "pr", 5);
}

#[test]
fn panics_in_thread_hooks_leave_the_threads_working_and_ending() {
    let stopped = Arc::new(AtomicUsize::new(0));
    let stops = Arc::clone(&stopped);
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(WORKERS))
        .name("ph")
        .on_thread_start(|_| panic!("at the start"))
        .on_thread_stop(move |_| {
            stops.fetch_add(1, Ordering::Relaxed);
            panic!("at the end");
        })
        .start()
        .expect("a runtime");
    // The workers and one standby thread.
    let threads = WORKERS + 1;
    check(&runtime, "ph", threads as u64);
    let handle = runtime.handle();
    assert_clean(&runtime.drain(LONG));
    assert_eq!(stopped.load(Ordering::Relaxed), threads);
    assert_eq!(handle.stats().get(Counter::Panics), 2 * threads as u64);
}

/// Panics in the call that has this name.
struct Panics(&'static str, mpsc::Sender<String>);

impl Panics {
    fn at(&self, call: &str) {
        assert!(call != self.0, "in {call}");
    }
}

impl Protocol for Panics {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        self.at("opened");
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        self.at("received");
        conn.send(input.take_all());
        Ok(())
    }

    fn released(&self, _: &Connection, _: epoll_group::net::Turn) {
        self.at("released");
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        self.at("ended");
        Ok(HalfClose::End)
    }

    fn draining(&self, _: &Connection, (): &mut ()) {
        self.at("draining");
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        let _ = self.1.send(reason.to_string());
        self.at("closed");
    }
}

/// Opens five connections in turn, each of which makes the protocol panic in `call`. Names of the
/// runtime's threads begin with `prefix`.
fn panics_in(call: &'static str, prefix: &str) {
    let runtime = named(prefix);
    let (tell, told) = mpsc::channel();
    let listener = runtime.listen("127.0.0.1:0", Panics(call, tell)).expect("a listener");
    for round in 1..=5 {
        let mut peer = Peer::connect(listener.local_addr());
        peer.send(b"x");
        if matches!(call, "ended" | "closed") {
            peer.finish();
        }
        let _ = peer.receive_all();
        eventually(LONG, || runtime.stats().connections == 0);
        check(&runtime, prefix, round);
        let reason = match call {
            "opened" => continue,
            "closed" => "the peer finished",
            _ => "the handler panicked",
        };
        assert_eq!(told.recv_timeout(LONG).as_deref(), Ok(reason), "in {call}");
    }
    let closed = if call == "closed" { Counter::ClosedByPeer } else { Counter::ClosedPanic };
    assert_eq!(runtime.stats().get(closed), 5, "in {call}");
}

#[test]
fn a_panic_in_opened_closes_the_connection_and_leaves_the_workers() {
    panics_in("opened", "po");
}

#[test]
fn a_panic_in_received_closes_the_connection_and_leaves_the_workers() {
    panics_in("received", "pv");
}

#[test]
fn a_panic_in_released_closes_the_connection_and_leaves_the_workers() {
    panics_in("released", "pl");
}

#[test]
fn a_panic_in_ended_closes_the_connection_and_leaves_the_workers() {
    panics_in("ended", "pe");
}

#[test]
fn a_panic_in_closed_leaves_the_workers() {
    panics_in("closed", "pc");
}

#[test]
fn a_panic_in_draining_does_not_hold_up_the_drain() {
    let runtime = named("pg");
    let (tell, told) = mpsc::channel();
    let listener = runtime.listen("127.0.0.1:0", Panics("draining", tell)).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.echo(b"hello");
    let handle: Handle = runtime.handle();
    let report = runtime.drain(LONG);
    assert_eq!((report.cut, report.finished, report.stuck.len()), (0, 1, 0));
    assert_eq!(told.recv_timeout(LONG).as_deref(), Ok("the handler panicked"));
    assert_eq!(handle.stats().get(Counter::Panics), 1);
}
