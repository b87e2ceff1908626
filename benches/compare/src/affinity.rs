//! Threads on some of the CPUs: those of the server on the first ones, those of the load on the last.

#![expect(unsafe_code, reason = "std has no door to the CPUs of a thread")]

use std::io;
use std::mem;

/// Numbers of the CPUs that this thread may run on, ascending.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: a mask is plain bits, and none set is one of its values.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes as many bytes as the mask has to a place that is ours.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: reads a bit of a mask that is ours, below its end.
    let has = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(has).collect())
}

/// This thread, and those that it starts from now on, run on the first so many CPUs that it may
/// run on.
pub(crate) fn bind_to_first(count: usize) -> io::Result<()> {
    let cpus = allowed()?;
    bind(&cpus[..count.clamp(1, cpus.len())])
}

/// Likewise, on the last ones.
pub(crate) fn bind_to_last(count: usize) -> io::Result<()> {
    let cpus = allowed()?;
    bind(&cpus[cpus.len() - count.clamp(1, cpus.len())..])
}

fn bind(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a mask is plain bits, and none set is one of its values.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: sets a bit of a mask that is ours; the numbers come from a mask of the same size.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the kernel reads as many bytes as the mask has.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_bound_thread_may_run_on_so_many_cpus() {
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
