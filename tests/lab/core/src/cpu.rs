//! CPU time: to measure it, and to burn it.

#![expect(unsafe_code, reason = "std has no door to the CPU time clocks")]

use std::time::Duration;

/// CPU time that this process has used, all threads together.
pub fn of_process() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time that the calling thread has used.
pub fn of_thread() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Keeps this thread busy until it has used this much more CPU time, however long that takes.
pub fn burn(time: Duration) {
    let end = of_thread() + time;
    while of_thread() < end {
        std::hint::spin_loop();
    }
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` to a place that is ours.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "Linux has had this clock since 2.6.12");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
