//! The system refuses new threads: growth fails and is counted, and nothing else fails.
//!
//! The limit is `RLIMIT_NPROC`, which does not bind root. As root, the child therefore takes a user
//! id that no other process has. If neither works, the test says so and shows nothing.
#![allow(unsafe_code, reason = "limits and user ids of the process are the system's own calls")]

use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use epoll_group::Class;
use epoll_group::stats::Counter;
use lab::child::in_child;
use lab::protocol::{Bytes, echo};
use lab::threads::{Crowd, Event, How, start, started};
use lab::workers::{Gate, LocksAtEnd, threads_named, workers};
use lab::{LONG, Peer, assert_clean, eventually};

/// While this lives, this process gets no more threads. The limit is lifted again because the leak
/// sanitizer needs a thread at the end.
struct Refusal(libc::rlimit);

impl Refusal {
    /// Returns `None` if the process gets threads in spite of the limit.
    fn begin() -> Option<Self> {
        // SAFETY: plain numbers in, a number out.
        if unsafe { libc::geteuid() } == 0 {
            let id = 1_000_000_000 + std::process::id();
            // SAFETY: plain numbers in, a number out. It changes all threads of this child.
            let result = unsafe { libc::setresuid(id, id, id) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        }
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `before` is live for the call, which only writes it.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut before) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        let refusal = Self(before);
        limit_threads(&libc::rlimit { rlim_cur: 1, ..before });
        if thread::Builder::new().spawn(|| ()).is_err() {
            return Some(refusal);
        }
        let text = "SKIPPED: this system gives threads in spite of RLIMIT_NPROC";
        writeln!(std::io::stderr(), "{text}").expect("somebody reads");
        None
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        limit_threads(&self.0);
    }
}

fn limit_threads(limit: &libc::rlimit) {
    // SAFETY: `limit` is live for the call, which only reads it.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, limit) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// More handlers than threads wait for an event that urgent work causes.
fn urgent_work_runs(how: How) {
    let config = lab::config().thread_deadlock_check_interval(Duration::from_millis(10));
    let runtime = start("rf", config);
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
    let admin = runtime.handle().with_class(Class::Admin);
    let admin = admin.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
    let Some(_refusal) = Refusal::begin() else { return };
    let handle = runtime.handle();
    for round in 1..=20 {
        let event = Event::new(how);
        let crowd = Crowd::start(&handle, &event, 16);
        event.wait_for(4);
        eventually(LONG, || runtime.stats().get(Counter::ThreadStartFailed) >= round);
        // An operator looks.
        Peer::connect(admin.local_addr()).echo(b"what is going on?");
        let holder = handle.with_class(Class::InProgress);
        holder.spawn(move || event.happen()).expect("room");
        crowd.end();
        // All is as before.
        Peer::connect(listener.local_addr()).echo(b"anybody there?");
    }
    let stats = runtime.stats();
    assert_eq!(started(&stats), [0; 4], "{stats}");
    assert_eq!(stats.get(Counter::Panics), 0, "{stats}");
    assert_eq!((stats.base_threads, stats.dynamic_threads, stats.reserve_threads), (4, 0, 1));
    assert_clean(&runtime.drain(LONG));
}

#[test]
fn threads_that_the_system_refuses_are_counted_and_the_reserve_goes_on_for_who_waits_aloud() {
    in_child(|| urgent_work_runs(How::Announced));
}

#[test]
fn threads_that_the_system_refuses_are_counted_and_the_reserve_goes_on_for_who_just_waits() {
    in_child(|| urgent_work_runs(How::Blocked));
}

#[test]
fn a_drain_beside_a_stuck_handler_returns_when_the_system_refuses_its_thread() {
    in_child(|| {
        let runtime = workers(1);
        let (gate, lock) = (Gate::default(), Arc::default());
        let (block, last) = (gate.clone(), LocksAtEnd(Arc::clone(&lock)));
        runtime.handle().after(LONG, move || drop(last)).detach();
        let stuck = move || {
            let _held = lock.lock();
            block.pass();
        };
        runtime.handle().spawn(stuck).expect("room");
        gate.wait_for(1);
        let Some(_refusal) = Refusal::begin() else { return };
        let report = runtime.drain(Duration::ZERO);
        assert_eq!((report.stuck.len(), gate.held()), (1, 1), "{report}");
        gate.open();
        eventually(LONG, || threads_named("eg-").is_empty());
    });
}
