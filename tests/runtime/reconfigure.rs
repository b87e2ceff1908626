//! Tunables change while everything runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use epoll_group::stats::{Counter, Stage};
use epoll_group::{Config, ReconfigureError};
use lab::protocol::{Bytes, Frames, echo};
use lab::threads::{Crowd, Event, How, Observer, threads};
use lab::workers::workers;
use lab::{Kind, LONG, Server, eventually, often, pattern};

/// Returns one of some configurations, each far from the one before.
fn turned(config: Config, round: u32) -> Config {
    let flip = |bit: u32| round >> bit & 1 == 1;
    let either = |bit, yes: usize, no: usize| if flip(bit) { yes } else { no };
    let time = |bit, yes, no| Duration::from_millis(either(bit, yes, no) as u64);
    config
        .epoll_events_per_thread(either(0, 1, 16))
        .tasker_multiply(either(1, 1, 50))
        .write_high_watermark_bytes(either(2, 4 << 10, 1 << 20))
        .write_low_watermark_bytes(either(2, 0, 256 << 10))
        .enable_perf_hist(flip(0))
        .dynamic_threads_shrink_time(time(1, 10, 10_000))
        .tasks_per_poll(either(0, 1, 4096))
        .read_budget_bytes(either(2, 4 << 10, 1 << 20))
        .thread_deadlock_check_interval(time(0, 1, 500))
        .thread_scale_thresh(either(1, 0, 2))
        .max_threads(either(2, 16, 1024))
}

/// Clears a flag when it is dropped, so that loops on the flag end also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn nothing_is_lost_while_tunables_change_at_full_speed() {
    const PEERS: usize = 6;
    const BODY: usize = 20_000;
    let server = Server::start(Kind::Tcp, lab::config(), Frames::default());
    let handle = server.runtime.handle();
    let observer = Observer::watch(&handle);
    let (busy, changes) = (AtomicBool::new(true), AtomicU64::new(0));
    let frames = often(300);
    let frame = lab::peer::frame(7, &pattern(BODY));
    let (tell, told) = mpsc::channel::<()>();
    let run = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&busy);
        scope.spawn(|| {
            for round in 0.. {
                if !busy.load(Ordering::Relaxed) {
                    return;
                }
                handle.reconfigure(|config| turned(config, round)).expect("all of it is live");
                changes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let sending: Vec<_> = (0..PEERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut peer = server.peer();
                    for _ in 0..frames {
                        peer.echo(&frame);
                    }
                })
            })
            .collect();
        let (spawner, run) = (handle.clone(), Arc::clone(&run));
        let spawning = scope.spawn(move || {
            for _ in 0..frames * 10 {
                let (tell, run) = (tell.clone(), Arc::clone(&run));
                let code = move || {
                    run.fetch_add(1, Ordering::Relaxed);
                    drop(tell);
                };
                spawner.spawn_wait(code).expect("nobody drains");
            }
        });
        spawning.join().expect("no panic");
        sending.into_iter().for_each(|peer| peer.join().expect("every frame comes back"));
        // All closures were run or dropped when this ends.
        assert_eq!(told.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    });
    server.wait_until_empty();
    observer.end();
    assert_eq!(run.load(Ordering::Relaxed), u64::from(frames) * 10);
    let stats = server.stats();
    let bytes = u64::from(frames) * (PEERS * frame.len()) as u64;
    for (counter, exactly) in [
        (Counter::TasksRun, u64::from(frames) * 10),
        (Counter::BytesReceived, bytes),
        (Counter::BytesSent, bytes),
        (Counter::ConnectionsAccepted, PEERS as u64),
        (Counter::ClosedByPeer, PEERS as u64),
        (Counter::Reconfigured, changes.load(Ordering::Relaxed)),
        (Counter::Panics, 0),
    ] {
        assert_eq!(stats.get(counter), exactly, "{}\n{stats}", counter.name());
    }
    assert!(changes.load(Ordering::Relaxed) > 8, "it did change");
}

#[test]
fn what_is_not_live_is_refused_by_name_and_nothing_changes() {
    let runtime = workers(2);
    let before = runtime.config();
    for field in Config::FIELDS.iter().filter(|field| !field.live) {
        // Something else that is within the range.
        let is = field.value_in(&before);
        let other = ["true", "false", "1", "2", "128", "4096"];
        let config = |value| before.clone().set(field.name, value).ok();
        let asked = other.into_iter().filter(|value| *value != is).find_map(config);
        let asked = asked.unwrap_or_else(|| panic!("{field:?} has another value"));
        // A live tunable in the same call does not change either.
        let error = runtime.reconfigure(|_| asked.clone().tasks_per_poll(1));
        match error.expect_err("not live") {
            ReconfigureError::NotLive { field: named, current, .. } => {
                assert_eq!((named, current), (field.name, is));
            }
            error => panic!("{}: {error}", field.name),
        }
        assert_eq!(runtime.config(), before);
    }
    let error = runtime.reconfigure(|config| config.tasker_multiply(0)).expect_err("out of range");
    assert!(matches!(&error, ReconfigureError::Invalid(error) if error.field == "tasker_multiply"));
    let fewer = runtime.reconfigure(|config| config.max_threads(2)).expect_err("two and a reserve");
    assert!(matches!(&fewer, ReconfigureError::Invalid(error) if error.field == "max_threads"));
    assert_eq!(runtime.config(), before);
    assert_eq!(runtime.stats().get(Counter::Reconfigured), 0);
}

#[test]
fn max_threads_is_lowered_and_raised() {
    const CROWD: usize = 40;
    let config = lab::config()
        .enable_tasker(false)
        .dynamic_threads_shrink_time(Duration::from_millis(20))
        .thread_deadlock_check_interval(Duration::from_millis(5));
    for how in [How::Announced, How::Blocked] {
        let server = Server::start(Kind::Tcp, config.clone(), Bytes::new(echo));
        let (runtime, handle) = (&server.runtime, server.runtime.handle());
        let most = |most| runtime.reconfigure(|config| config.max_threads(most)).expect("live");
        let event = Event::new(how);
        // Fewer threads than handlers that wait.
        most(10);
        let crowd = Crowd::start(&handle, &event, CROWD);
        eventually(LONG, || runtime.stats().get(Counter::ThreadsLimited) > 0);
        assert!(threads(&runtime.stats()) <= 10, "{how:?}\n{}", runtime.stats());
        assert!(event.waiting() < CROWD, "{how:?}");
        // The limit rises again. The handlers that already wait get threads, without any new
        // request.
        most(100);
        event.wait_for(CROWD);
        server.peer().echo(b"heard");
        // The limit is below the present count: no thread is added, and unneeded threads leave.
        most(10);
        event.happen();
        crowd.end();
        eventually(LONG, || threads(&runtime.stats()) == 5);
        let event = Event::new(how);
        let crowd = Crowd::start(&handle, &event, CROWD);
        let observer = Observer::watch(&handle);
        let limited = runtime.stats().get(Counter::ThreadsLimited);
        eventually(LONG, || runtime.stats().get(Counter::ThreadsLimited) > limited + 3);
        event.happen();
        crowd.end();
        let most = observer.end();
        assert!(most <= 10, "{how:?}: {most}");
    }
}

#[test]
fn the_shrink_time_of_threads_that_are_there_is_shortened() {
    let runtime = workers(4);
    let event = Event::new(How::Announced);
    let crowd = Crowd::start(&runtime.handle(), &event, 20);
    event.wait_for(20);
    event.happen();
    crowd.end();
    // By default that takes ten seconds.
    assert!(runtime.stats().dynamic_threads > 10, "{}", runtime.stats());
    let short = Duration::from_millis(10);
    runtime.reconfigure(|config| config.dynamic_threads_shrink_time(short)).expect("live");
    eventually(LONG, || runtime.stats().dynamic_threads == 0);
}

#[test]
fn histograms_are_switched_on_off_and_reset_while_they_are_fed() {
    let runtime = workers(2);
    let handle = runtime.handle();
    let runs = || runtime.stats().histogram(Stage::Run).map_or(0, |runs| runs.count());
    let switch = |on| runtime.reconfigure(|config| config.enable_perf_hist(on)).expect("live");
    let busy = AtomicBool::new(true);
    thread::scope(|scope| {
        let _ends = Ends(&busy);
        scope.spawn(|| {
            while busy.load(Ordering::Relaxed) {
                handle.spawn_wait(|| ()).expect("nobody drains");
            }
        });
        assert_eq!(runs(), 0);
        for _ in 0..often(200) {
            switch(true);
            let before = runs();
            eventually(LONG, || runs() > before);
            runtime.reset_histograms();
            switch(false);
            // A worker that saw the histograms on may still add one sample.
            let tasks = || runtime.stats().get(Counter::TasksRun);
            let then = tasks();
            eventually(LONG, || tasks() > then + 10);
            let off = runs();
            let then = tasks();
            eventually(LONG, || tasks() > then + 100);
            assert!(runs() <= off + runtime.stats().workers, "off and on again");
        }
    });
}

#[test]
fn histograms_are_as_configured_whoever_switches_last() {
    let runtime = workers(1);
    let ran = || runtime.stats().histogram(Stage::Run).map_or(0, |histogram| histogram.count());
    for _ in 0..often(2000) {
        thread::scope(|scope| {
            for on in [true, false] {
                let handle = runtime.handle();
                scope.spawn(move || {
                    handle.reconfigure(|config| config.enable_perf_hist(on)).expect("live");
                });
            }
        });
        let (before, tasks) = (ran(), runtime.stats().get(Counter::TasksRun));
        let (tell, told) = mpsc::channel();
        runtime.handle().spawn(move || tell.send(()).expect("waited for")).expect("room");
        told.recv_timeout(LONG).expect("it runs");
        eventually(LONG, || {
            let stats = runtime.stats();
            stats.get(Counter::TasksRun) > tasks && stats.parked == stats.workers
        });
        assert_eq!(
            ran() > before,
            runtime.config().get("enable_perf_hist").as_deref() == Some("true")
        );
    }
}
