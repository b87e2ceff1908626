//! The time slice of a thread under the kernel's fair scheduler.

use std::time::Duration;

use super::check;

/// Time slice of a thread. Only that thread changes it.
///
/// A thread with a short slice may interrupt one with a longer slice when it wakes, and is
/// interrupted sooner itself; its share of the CPU stays the same. Kernels before 6.12 ignore this.
///
/// Threads and processes that the thread starts have the default slice
/// (`SCHED_FLAG_RESET_ON_FORK`). That flag also raises a negative nice value of theirs to 0.
/// Therefore a thread with a negative nice value keeps its slice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// Slice of a thread for which no other one was set.
    Default,
    Short,
    /// Unchangeable slice: the system refused a change, or the thread is not scheduled fairly.
    Fixed,
}

/// Shortest slice: the kernel accepts 0.1 ms to 100 ms.
const SHORT: Duration = Duration::from_micros(100);

impl Slice {
    /// Gives the calling thread the default slice instead of an inherited one.
    pub(crate) fn of_this_thread() -> Self {
        let mut slice = Self::Short;
        slice.set_short(false);
        slice
    }

    /// Makes the slice short, or the default again. The caller must be the thread of the slice.
    pub(crate) fn set_short(&mut self, short: bool) {
        let wanted = if short { Self::Short } else { Self::Default };
        if *self != wanted && *self != Self::Fixed {
            *self = if set_slice(short) { wanted } else { Self::Fixed };
        }
    }
}

/// Changes only the slice of the calling thread. Returns false if it stays as it is.
///
/// The system call also sets policy and nice value. They are read first, because an operator may have
/// changed them since the last call.
fn set_slice(short: bool) -> bool {
    let Some(mut attributes) = fair_attributes() else { return false };
    // 0 stands for the default.
    attributes.sched_runtime = 0;
    if short {
        if attributes.sched_nice < 0 {
            return false;
        }
        attributes.sched_runtime = u64::try_from(SHORT.as_nanos()).unwrap_or(u64::MAX);
        // The flag stays set afterwards: only a privileged thread may clear it.
        attributes.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    }
    // SAFETY: `attributes` is live for the call, and its size is noted inside it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    result == 0
}

/// Attributes of the calling thread, if it is scheduled fairly.
fn fair_attributes() -> Option<libc::sched_attr> {
    let size = u32::try_from(size_of::<libc::sched_attr>()).ok()?;
    let mut attributes = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    // SAFETY: the kernel writes at most `size` bytes to `attributes`, which has that many.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0) };
    // SAFETY: all zero is a valid value, and the kernel wrote over it.
    let attributes = unsafe { attributes.assume_init() };
    let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH].map(libc::c_int::cast_unsigned);
    (result == 0 && fair.contains(&attributes.sched_policy)).then_some(attributes)
}

/// CPU time that the process has used so far, on all CPUs together. `None` in a sandbox that
/// forbids the query.
pub(crate) fn process_cpu_time() -> Option<Duration> {
    cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_time(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time`, which is live for the call.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }).ok()?;
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Some(Duration::new(seconds.ok()?, nanos.ok()?))
}

/// Resources that a thread has used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadUsage {
    /// CPU time to the nanosecond; that of `getrusage` is as of the last tick.
    pub(crate) cpu_time: Duration,
    /// Number of times that it gave up its CPU to wait.
    pub(crate) waits: libc::c_long,
}

impl ThreadUsage {
    /// Usage of the calling thread. `None` in a sandbox that forbids the query.
    pub(crate) fn now() -> Option<Self> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes to `usage`, which is live for the call.
        check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) }).ok()?;
        // SAFETY: all zero is a valid value, and the kernel wrote over it.
        let usage = unsafe { usage.assume_init() };
        let cpu_time = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)?;
        Some(Self { cpu_time, waits: usage.ru_nvcsw })
    }

    /// Usage after the thread has run for `time`.
    pub(crate) fn after(self, time: Duration) -> Self {
        Self { cpu_time: self.cpu_time + time, ..self }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::sys::clock::Instant;

    fn usage() -> ThreadUsage {
        ThreadUsage::now().expect("nobody forbids it")
    }

    #[test]
    fn a_thread_that_burns_uses_cpu_time_and_one_that_waits_gives_up_its_cpu() {
        let before = usage();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let began = Instant::now();
                while usage().cpu_time < Duration::from_millis(5) {
                    assert!(began.elapsed() < Duration::from_secs(30), "the clock stands");
                }
                sender.send(usage()).expect("it is heard");
            });
            let other = receiver.recv().expect("it is told");
            assert!(other.cpu_time >= Duration::from_millis(5), "{other:?}");
        });
        let after = usage();
        assert!(after.waits > before.waits, "{before:?} {after:?}");
        assert!(after.cpu_time > before.cpu_time, "{before:?} {after:?}");
    }
}
