//! Signals that interrupt system calls: a handler without `SA_RESTART`.

#![allow(unsafe_code, reason = "signals are the system's own calls")]

use std::ffi::c_int;
use std::fs;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

static RECEIVED: AtomicU64 = AtomicU64::new(0);

extern "C" fn note(_: c_int) {
    RECEIVED.fetch_add(1, Ordering::Relaxed);
}

/// Makes `SIGUSR1` interrupt the call in which a thread waits.
pub(crate) fn interrupt_calls() {
    // SAFETY: all zero is a valid value: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(c_int) = note;
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: `action` is live for the call, and its handler only adds to an atomic.
    let result = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Number of signals handled so far.
pub(crate) fn received() -> u64 {
    RECEIVED.load(Ordering::Relaxed)
}

/// Threads of this process whose names begin with a prefix.
pub(crate) fn threads_of(prefix: &str) -> Vec<libc::pid_t> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux").filter_map(Result::ok);
    let named = tasks.filter(|task| {
        let name = fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.starts_with(prefix))
    });
    named.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// Sends the signal to each of these threads. Returns their number.
pub(crate) fn send(threads: &[libc::pid_t]) -> u64 {
    let process = std::process::id();
    let sent = threads.iter().filter(|&&thread| {
        // SAFETY: plain numbers in, a number out. If the thread is gone, the call fails.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) == 0 }
    });
    sent.count() as u64
}
