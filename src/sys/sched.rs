//! The time slice of a thread under the kernel's fair scheduler.

use std::time::Duration;

/// The calling thread's slice, and what it was before anybody changed it.
///
/// A thread with a short slice may interrupt one with a longer slice when it wakes, and is
/// interrupted sooner itself; its share of the CPU stays the same. Kernels before 6.12 ignore this.
#[derive(Debug)]
pub(crate) struct Slice {
    /// `None` when the thread is not scheduled fairly, or the kernel does not tell.
    original: Option<libc::sched_attr>,
    short: bool,
}

/// The kernel takes 0.1 ms to 100 ms.
const SHORT: Duration = Duration::from_micros(100);

impl Slice {
    /// That of the calling thread.
    pub(crate) fn of_this_thread() -> Self {
        Self { original: fair_attributes(), short: false }
    }

    /// Makes the slice short, or what it was. Must be called by the thread it belongs to.
    pub(crate) fn set_short(&mut self, short: bool) {
        if self.short == short {
            return;
        }
        self.short = short;
        let Some(mut attributes) = self.original else { return };
        if short {
            attributes.sched_runtime = u64::try_from(SHORT.as_nanos()).unwrap_or(u64::MAX);
        }
        // SAFETY: `attributes` is live for the call, and its size is noted inside it.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if result != 0 {
            // A sandbox that forbids it: go on without.
            self.original = None;
        }
    }
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

/// CPU time that the process has used so far, on all CPUs together.
pub(crate) fn process_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time`, which is live for the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(result, 0, "the clock exists");
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// What a thread has used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadUsage {
    /// To the nanosecond; that of `getrusage` is as of the last tick.
    pub(crate) cpu_time: Duration,
    /// How often it gave up its CPU to wait for something; never, where a sandbox forbids to ask.
    pub(crate) waits: libc::c_long,
}

impl ThreadUsage {
    /// Of the calling thread.
    pub(crate) fn now() -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes to `usage`, which is live for the call.
        let _forbidden = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        // SAFETY: all zero is a valid value, and the kernel wrote over it unless a sandbox forbids it.
        let usage = unsafe { usage.assume_init() };
        Self { cpu_time: cpu_time(libc::CLOCK_THREAD_CPUTIME_ID), waits: usage.ru_nvcsw }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_burns_uses_cpu_time_and_one_that_waits_gives_up_its_cpu() {
        let before = ThreadUsage::now();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let began = Instant::now();
                while ThreadUsage::now().cpu_time < Duration::from_millis(5) {
                    assert!(began.elapsed() < Duration::from_secs(30), "the clock stands");
                }
                sender.send(ThreadUsage::now()).expect("it is heard");
            });
            let other = receiver.recv().expect("it is told");
            assert!(other.cpu_time >= Duration::from_millis(5), "{other:?}");
        });
        let after = ThreadUsage::now();
        assert!(after.waits > before.waits, "{before:?} {after:?}");
        assert!(after.cpu_time > before.cpu_time, "{before:?} {after:?}");
    }
}
