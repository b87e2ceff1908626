//! Added threads have a name, call the hooks, and are joined. A runtime that ends still gets the
//! threads that it needs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use epoll_group::net::{Close, Connection, Input};
use epoll_group::stats::Counter;
use epoll_group::{Builder, Handle, Runtime, ThreadInfo, ThreadKind, ThreadReason};
use lab::protocol::Bytes;
use lab::threads::{Crowd, Event, How, falls_back, started};
use lab::workers::threads_named;
use lab::{LONG, Peer, assert_clean, eventually};

fn builder(name: &str) -> Builder {
    let config = lab::config()
        .dynamic_threads_shrink_time(Duration::from_millis(20))
        .thread_deadlock_check_interval(Duration::from_millis(5));
    Runtime::builder().config(config).name(name)
}

/// Starts `count` handlers and returns when all of them wait.
fn crowd(handle: &Handle, event: &Event, count: usize) -> Crowd {
    let crowd = Crowd::start(handle, event, count);
    event.wait_for(count);
    crowd
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(&'static str, ThreadInfo)>>>);

impl Log {
    fn hook(&self, what: &'static str) -> impl Fn(&ThreadInfo) + Send + Sync + 'static {
        let log = self.clone();
        move |info: &ThreadInfo| {
            assert_eq!(thread::current().name(), Some(info.name.as_str()));
            log.0.lock().expect("no panic").push((what, info.clone()));
        }
    }

    fn all(&self) -> Vec<(&'static str, ThreadInfo)> {
        self.0.lock().expect("no panic").clone()
    }
}

#[test]
fn threads_that_are_added_have_names_and_hooks_and_use_slots_again() {
    let log = Log::default();
    let builder = builder("sl-h").on_thread_start(log.hook("start"));
    let runtime = builder.on_thread_stop(log.hook("stop")).start().expect("a runtime");
    for how in [How::Announced, How::Blocked, How::Announced, How::Blocked] {
        let event = Event::new(how);
        let crowd = crowd(&runtime.handle(), &event, 30);
        assert!(threads_named("sl-h-0-").len() > 30, "{how:?}: one each");
        assert!(!threads_named("sl-h-0-w").is_empty(), "{how:?}");
        event.happen();
        crowd.end();
        falls_back(&runtime.handle(), "sl-h", 5);
    }
    let stats = runtime.stats();
    let added: u64 = started(&stats).iter().sum();
    drop(runtime);
    let calls = log.all();
    assert_eq!(calls.iter().filter(|(what, _)| *what == "start").count() as u64, 5 + added);
    let mut names = HashMap::<_, Vec<_>>::new();
    for (what, info) in &calls {
        let letter = match info.kind {
            ThreadKind::Base => "",
            ThreadKind::Worker => "w",
            ThreadKind::Reserve => "r",
            kind => panic!("{kind:?}"),
        };
        assert_eq!(info.name, format!("sl-h-0-{letter}{}", info.worker));
        assert_eq!(info.group, 0);
        names.entry(info.worker).or_default().push(*what);
    }
    // A thread in a slot stops before the next thread in that slot starts.
    for (slot, calls) in &names {
        let expected = ["start", "stop"].into_iter().cycle().take(calls.len());
        assert_eq!(calls.len() % 2, 0, "{slot}: {calls:?}");
        assert!(calls.iter().copied().eq(expected), "{slot}: {calls:?}");
    }
    let reasons =
        [ThreadReason::Stall, ThreadReason::Backlog, ThreadReason::Watchdog, ThreadReason::Reserve];
    let starts = |reason| {
        let starts = calls.iter().filter(|(what, info)| *what == "start" && info.reason == reason);
        starts.count() as u64
    };
    assert_eq!(reasons.map(starts), started(&stats));
    assert_eq!(starts(ThreadReason::Start), 5);
    assert!(names.len() < 5 + added as usize, "none of {added} sat where another one had been");
    assert!(names.len() < 100, "{} slots for 30 that wait", names.len());
    assert_eq!(stats.get(Counter::Panics), 0, "{stats}");
}

#[test]
fn a_hook_that_panics_does_no_harm() {
    let runtime = builder("sl-p")
        .on_thread_start(|info| assert_eq!(info.kind, ThreadKind::Base, "told to fail"))
        .on_thread_stop(|info| assert_eq!(info.kind, ThreadKind::Base, "told to fail"));
    let runtime = runtime.start().expect("a runtime");
    let event = Event::new(How::Announced);
    let crowd = crowd(&runtime.handle(), &event, 10);
    event.happen();
    crowd.end();
    falls_back(&runtime.handle(), "sl-p", 5);
    assert!(runtime.stats().get(Counter::Panics) > 0);
}

#[test]
fn a_drain_joins_the_threads_that_were_added() {
    for how in [How::Announced, How::Blocked] {
        let runtime = builder("sl-j").start().expect("a runtime");
        let event = Event::new(how);
        let crowd = crowd(&runtime.handle(), &event, 30);
        event.happen();
        assert_clean(&runtime.drain(LONG));
        assert_eq!(crowd.ended(), 30);
        eventually(LONG, || threads_named("sl-j").is_empty());
    }
}

/// The handler of each frame waits for the event of the last connection.
fn handlers_that_wait_for_each_other_are_finished_by_a_drain(name: &str, how: How) {
    const CROWD: usize = 40;
    let runtime = builder(name).start().expect("a runtime");
    let event = Event::new(how);
    let (tell, told) = mpsc::channel();
    let waits = event.clone();
    let protocol = move |conn: &Connection, input: &mut Input<'_>| -> Result<(), Close> {
        for op in input.take_all().to_vec() {
            match op {
                b'w' => waits.wait(),
                _ => waits.happen(),
            }
            let _ = tell.send(());
            conn.send([op]);
        }
        Ok(())
    };
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(protocol)).expect("a listener");
    let mut peers: Vec<_> = (0..CROWD).map(|_| Peer::connect(listener.local_addr())).collect();
    eventually(LONG, || runtime.stats().connections == CROWD as u64);
    // All frames are there when the drain begins, and most are not begun.
    peers.iter_mut().take(CROWD - 1).for_each(|peer| peer.send(b"w"));
    event.wait_for(3);
    peers[CROWD - 1].send(b"h");
    let report = runtime.drain(LONG);
    assert_eq!((report.finished, report.cut, report.stuck.len()), (CROWD as u64, 0, 0), "{report}");
    assert_eq!(told.try_iter().count(), CROWD);
    for peer in &mut peers {
        assert_eq!(peer.receive_to_finish().len(), 1);
    }
    eventually(LONG, || threads_named(name).is_empty());
}

#[test]
fn a_drain_finishes_handlers_that_wait_for_each_other() {
    for how in [How::Announced, How::Locks, How::Blocked] {
        handlers_that_wait_for_each_other_are_finished_by_a_drain("sl-d", how);
    }
}

#[test]
fn a_drain_finishes_closures_that_wait_for_each_other() {
    for how in [How::Announced, How::Locks, How::Blocked] {
        let runtime = builder("sl-c").start().expect("a runtime");
        let event = Event::new(how);
        let (tell, told) = mpsc::channel();
        for number in 1..=100 {
            let (event, tell) = (event.clone(), tell.clone());
            let code = move || {
                if number == 100 {
                    event.happen()
                } else {
                    event.wait()
                }
                let _ = tell.send(());
            };
            runtime.handle().spawn(code).expect("room");
        }
        let report = runtime.drain(LONG);
        assert_clean(&report);
        assert!(report.took < LONG / 2, "{how:?}: {report}");
        assert_eq!(told.try_iter().count(), 100, "{how:?}");
        eventually(LONG, || threads_named("sl-c").is_empty());
    }
}

#[test]
fn a_runtime_is_dropped_while_threads_that_were_added_wait_and_they_end_when_they_can() {
    for how in [How::Announced, How::Locks, How::Blocked] {
        let runtime = builder("sl-x").start().expect("a runtime");
        let event = Event::new(how);
        let crowd = crowd(&runtime.handle(), &event, 30);
        drop(runtime);
        assert!(threads_named("sl-x").len() >= 30, "{how:?}: they wait still");
        event.happen();
        crowd.end();
        eventually(LONG, || threads_named("sl-x").is_empty());
    }
}

#[test]
fn a_runtime_is_dropped_while_threads_come_and_go() {
    for round in 0..lab::often(50) {
        let runtime = builder("sl-g").start().expect("a runtime");
        let event = Event::new(How::Announced);
        let crowd = crowd(&runtime.handle(), &event, 10);
        event.happen();
        if round % 2 == 0 {
            // Some are about to leave.
            eventually(LONG, || runtime.stats().get(Counter::ThreadsLeft) > 0);
        }
        drop(runtime);
        crowd.end();
        eventually(LONG, || threads_named("sl-g").is_empty());
    }
}
