//! Time slices of threads, as the system says. A handler known as slow runs with a slice of 0.1 ms. The
//! threads and processes that it starts have the default slice. Each test is a process of its own,
//! because the threads of others disturb the estimates that make a handler slow.
#![allow(unsafe_code, reason = "slices and nice values are the system's own calls")]

use std::io::{Error, Write};
use std::mem::MaybeUninit;
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::{Config, Handle, Runtime, ThreadKind};
use lab::child::{in_child, test_name};
use lab::threads::{Crowd, Event, How};
use lab::{LONG, eventually};

/// Slice of a worker that runs a slow handler.
const SHORT: u64 = 100_000;

/// Attributes of a process or thread; 0 is the calling thread.
fn attributes(id: libc::pid_t) -> libc::sched_attr {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    let to = attributes.as_mut_ptr();
    // SAFETY: the kernel writes at most `size` bytes to `attributes`, which has that many.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, id, to, size, 0) };
    assert_eq!(result, 0, "{}", Error::last_os_error());
    // SAFETY: all zero is a valid value, and the kernel wrote over it.
    unsafe { attributes.assume_init() }
}

/// Slice in nanoseconds.
fn slice(id: libc::pid_t) -> u64 {
    attributes(id).sched_runtime
}

/// Sets the slice of the calling thread.
fn set_slice(nanos: u64) {
    let attributes = libc::sched_attr { sched_runtime: nanos, ..attributes(0) };
    // SAFETY: `attributes` is live for the call, and its size is noted inside it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    assert_eq!(result, 0, "{}", Error::last_os_error());
}

/// Sets the nice value of the calling thread. Returns false if that needs a privilege.
fn set_nice(nice: libc::c_int) -> bool {
    // SAFETY: no pointer is passed.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

fn skip(reason: &str) {
    let text = format!("SKIPPED: {} needs {reason}", test_name());
    writeln!(std::io::stderr(), "{text}").expect("stderr is open");
}

/// Calls `code` with the default slice, in a child. Skips without custom slices.
fn with_slices(code: impl FnOnce(u64)) {
    in_child(|| {
        let has_slices = || {
            set_slice(SHORT);
            slice(0) == SHORT
        };
        if thread::spawn(has_slices).join().expect("no panic") {
            code(slice(0));
        } else {
            skip("a kernel with custom slices (6.12)");
        }
    });
}

fn start(config: Config) -> Runtime {
    Runtime::builder().config(config.enable_tasker(false)).start().expect("a runtime")
}

/// Runs `code` on a worker.
fn on_worker<T: Send + 'static>(handle: &Handle, code: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let task = move || tell.send(code()).expect("waited for");
    handle.spawn(task).expect("room");
    told.recv_timeout(LONG).expect("it runs")
}

/// Runs tasks that burn 1 ms each, until one has a short slice. Returns what `code` returns there.
fn on_slow_worker<T: Send + 'static>(handle: &Handle, code: fn() -> T) -> T {
    let mut result = None;
    eventually(LONG, || {
        result = on_worker(handle, move || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(1) {}
            (slice(0) == SHORT).then(code)
        });
        result.is_some()
    });
    result.expect("the condition holds")
}

/// Slices of a thread and of a process that the calling thread starts.
fn of_descendants() -> [u64; 2] {
    let of_thread = thread::spawn(|| slice(0)).join().expect("no panic");
    let mut child = Command::new("/bin/sleep").arg("60").spawn().expect("a process");
    let of_process = slice(child.id().try_into().expect("a process id"));
    child.kill().expect("it lives");
    child.wait().expect("a child of this process");
    [of_thread, of_process]
}

#[test]
fn what_a_slow_handler_starts_has_the_default_slice() {
    with_slices(|default| {
        let runtime = start(lab::config());
        assert_eq!(on_slow_worker(&runtime.handle(), of_descendants), [default; 2]);
    });
}

#[test]
fn a_worker_that_a_slow_handler_adds_starts_with_the_default_slice() {
    with_slices(|default| {
        let started = Arc::new(Mutex::new(Vec::new()));
        let slices = Arc::clone(&started);
        let runtime = Runtime::builder()
            .config(lab::config().enable_tasker(false))
            .on_thread_start(move |info| {
                if info.kind == ThreadKind::Worker {
                    slices.lock().expect("no panic").push(slice(0));
                }
            })
            .start()
            .expect("a runtime");
        let handle = runtime.handle();
        on_slow_worker(&handle, || ());
        let event = Event::new(How::Announced);
        let crowd = Crowd::start(&handle, &event, 16);
        event.wait_for(16);
        event.happen();
        crowd.end();
        let started = started.lock().expect("no panic");
        assert!(!started.is_empty() && started.iter().all(|is| *is == default), "{started:?}");
    });
}

#[test]
fn workers_get_the_default_slice_instead_of_that_of_the_starting_thread() {
    with_slices(|default| {
        set_slice(2 * SHORT);
        let runtime = start(lab::config());
        assert_eq!(on_worker(&runtime.handle(), || slice(0)), default);
    });
}

#[test]
fn a_nice_value_that_changes_while_the_slice_is_short_stays() {
    with_slices(|default| {
        let runtime = start(lab::config().epoll_threads_per_group(1).max_threads(2));
        let handle = runtime.handle();
        assert!(on_slow_worker(&handle, || set_nice(5)), "{}", Error::last_os_error());
        // Quick tasks end the time of short slices.
        let mut nice = None;
        eventually(LONG, || {
            let is = on_worker(&handle, || attributes(0));
            nice = Some(is.sched_nice);
            is.sched_runtime == default
        });
        assert_eq!(nice, Some(5));
    });
}

#[test]
fn a_negative_nice_value_is_handed_down() {
    with_slices(|default| {
        if !set_nice(-5) {
            return skip("the right to lower nice values");
        }
        let runtime = start(lab::config());
        for _ in 0..20 {
            let handed_down = on_worker(&runtime.handle(), || {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(1) {}
                let of = |is: libc::sched_attr| (is.sched_nice, is.sched_runtime);
                thread::spawn(move || of(attributes(0))).join().expect("no panic")
            });
            assert_eq!(handed_down, (-5, default));
        }
    });
}
