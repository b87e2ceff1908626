//! CPU time: to measure it, and to burn it. And the CPUs that a thread may run on.

#![expect(unsafe_code, reason = "no library has the CPU time clock of another process")]

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// CPU time that this process has used, all threads together.
pub fn of_process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// CPU time that the calling thread has used.
pub fn of_thread() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// CPU time that another process has used.
///
/// # Errors
/// There is no such process.
pub fn of(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: the kernel writes one clock id to a place that is ours.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` to a place that is ours.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Keeps this thread busy until it has used this much more CPU time.
pub fn burn(time: Duration) {
    let end = of_thread() + time;
    while of_thread() < end {
        std::hint::spin_loop();
    }
}

/// Numbers of the CPUs that this thread may run on, ascending.
///
/// # Errors
/// Those of the system.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Binds this thread, and those that it starts from now on, to the first CPUs that it may run on.
///
/// # Errors
/// Those of the system.
pub fn bind_to_first(count: usize) -> io::Result<()> {
    let cpus = allowed()?;
    bind(&cpus[..count.clamp(1, cpus.len())])
}

/// Binds this thread, and those that it starts from now on, to the last CPUs that it may run on.
///
/// # Errors
/// Those of the system.
pub fn bind_to_last(count: usize) -> io::Result<()> {
    let cpus = allowed()?;
    bind(&cpus[cpus.len() - count.clamp(1, cpus.len())..])
}

fn bind(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_bound_thread_may_run_on_these_cpus() {
        let all = allowed().unwrap();
        let bound = |bind: fn(usize) -> io::Result<()>| {
            let thread = thread::spawn(move || {
                bind(1).unwrap();
                (allowed().unwrap(), thread::available_parallelism().unwrap().get())
            });
            thread.join().unwrap()
        };
        assert_eq!(bound(bind_to_first), (vec![all[0]], 1));
        assert_eq!(bound(bind_to_last), (vec![all[all.len() - 1]], 1));
    }
}
