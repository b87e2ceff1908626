//! A sandbox refuses system calls: a filter in the kernel, as containers have, for a thread and those
//! that it starts. The tests of `syscalls` let calls fail one at a time.
#![allow(unsafe_code, reason = "filters of system calls are the system's own calls")]

use std::io::Error;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::stats::Counter;
use epoll_group::{Runtime, StartError};
use lab::protocol::{Bytes, echo};
use lab::threads::{Crowd, Event, How};
use lab::{Kind, LONG, Server, assert_clean, config};

/// Runs `code` on a thread for which these system calls fail with EPERM.
fn without(calls: &[libc::c_long], code: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let confined = scope.spawn(|| {
            refuse(calls);
            code();
        });
        confined.join().expect("no panic");
    });
}

fn refuse(calls: &[libc::c_long]) {
    let step = |code: u32, jump_false, operand| libc::sock_filter {
        code: code.try_into().expect("a small number"),
        jt: 0,
        jf: jump_false,
        k: operand,
    };
    let give = |result| step(libc::BPF_RET | libc::BPF_K, 0, result);
    // The number of the call is the first thing that the filter can load.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in calls {
        let number = u32::try_from(*call).expect("a small number");
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number));
        filter.push(give(libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()));
    }
    filter.push(give(libc::SECCOMP_RET_ALLOW));
    let len = filter.len().try_into().expect("a small number");
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: no pointer is passed.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0, "{}", Error::last_os_error());
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter are live for the call, which copies them.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(result, 0, "{}", Error::last_os_error());
}

#[test]
fn without_calls_for_scheduling_and_usage_slow_and_waiting_handlers_are_served() {
    let calls = [
        libc::SYS_sched_setattr,
        libc::SYS_sched_getattr,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_getaffinity,
        libc::SYS_getrusage,
    ];
    without(&calls, || {
        let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
        let handle = server.runtime.handle();
        let mut peer = server.peer();
        for _ in 0..20 {
            let burn = || {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(1) {}
            };
            handle.spawn(burn).expect("room");
            peer.echo(b"hello");
        }
        let event = Event::new(How::Announced);
        let crowd = Crowd::start(&handle, &event, 16);
        event.wait_for(16);
        peer.echo(b"hello");
        event.happen();
        crowd.end();
        assert_eq!(server.count(Counter::Panics), 0);
        assert_clean(&server.drain(LONG));
    });
}

#[test]
fn without_eventfd_the_error_of_the_start_names_it() {
    without(&[libc::SYS_eventfd2], || {
        let error = Runtime::builder().config(config()).start().expect_err("no eventfd");
        assert!(matches!(error, StartError::Descriptors { call: "eventfd", .. }), "{error}");
    });
}
