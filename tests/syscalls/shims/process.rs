//! Limits of this process. To be used in a child.

#![allow(unsafe_code, reason = "limits of the process are the system's own calls")]

use std::{fs, io, mem};

/// Limits the address space of the process to its present size plus `more` bytes. Returns the limit
/// before.
pub(crate) fn limit_memory_to_what_is_used(more: u64) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is live for the call, which writes to it.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).expect("pages");
    limit_memory(pages * 4096 + more);
    limit.rlim_cur
}

pub(crate) fn limit_memory(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is live for the call, which only reads it.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Makes all threads share one arena. A new arena takes 128 MiB of addresses while it is made.
pub(crate) fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: plain numbers in, a number out.
        let set = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        assert_eq!(set, 1, "no such parameter");
    }
}

/// Binds this thread, and the threads that it starts, to the first CPU that it may use.
pub(crate) fn run_on_one_cpu() {
    // SAFETY: all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: `set` is live for the call and has the size that is passed.
    let result = unsafe { libc::sched_getaffinity(0, size, &raw mut set) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // SAFETY: the numbers are below the size of the set.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    let first = (0..libc::CPU_SETSIZE as usize).find(is_set).expect("a CPU");
    // SAFETY: all zero is the empty set.
    let mut one: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the number is below the size of the set.
    unsafe { libc::CPU_SET(first, &mut one) };
    // SAFETY: `one` is live for the call and has the size that is passed.
    let result = unsafe { libc::sched_setaffinity(0, size, &raw const one) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}
