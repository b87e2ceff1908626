//! What the kernel knows of another process (CPU time, context switches, resident memory) and of
//! the machine as a whole.

#![expect(unsafe_code, reason = "std has no door to the CPU time clock of a process")]

use std::error::Error;
use std::fs;
use std::io;
use std::time::Duration;

/// A reading. Differences of two are what counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// User and system time of all threads, those that have ended included: the same clock as the
    /// first number of `/proc/PID/schedstat`, which forgets a thread when it ends. It is
    /// written up when a thread leaves its CPU, or at a tick: read it when the process is quiet.
    pub(crate) cpu: Duration,
    /// Threads that blocked.
    pub(crate) voluntary_switches: u64,
    /// Threads that had to make room.
    pub(crate) involuntary_switches: u64,
}

/// Places in the cpu line of `/proc/stat`; what follows steal is counted before already.
const IDLE: usize = 3;
const IO_WAIT: usize = 4;
const STEAL: usize = 7;
/// The unit of `/proc/stat` is a hundredth of a second, whatever the kernel's own tick is.
const TICK: Duration = Duration::from_millis(10);

impl Usage {
    pub(crate) fn of(pid: u32) -> Result<Self, Box<dyn Error>> {
        let mut usage = Self { cpu: cpu_time(pid)?, ..Self::default() };
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread that ends meanwhile takes its count along.
            let Ok(status) = fs::read_to_string(task?.path().join("status")) else {
                continue;
            };
            usage.voluntary_switches += field(&status, "voluntary_ctxt_switches:")?;
            usage.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches:")?;
        }
        Ok(usage)
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let saturating = |now: u64, before: u64| now.saturating_sub(before);
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            voluntary_switches: saturating(self.voluntary_switches, before.voluntary_switches),
            involuntary_switches: saturating(
                self.involuntary_switches,
                before.involuntary_switches,
            ),
        }
    }
}

/// User memory of a process that is in RAM, in bytes. What the kernel keeps for its sockets is
/// not in it.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(field(&text, "Rss:")? * 1024)
}

/// The most that [`resident_bytes`] has ever been.
pub(crate) fn peak_resident_bytes(pid: u32) -> Result<u64, Box<dyn Error>> {
    Ok(field(&fs::read_to_string(format!("/proc/{pid}/status"))?, "VmHWM:")? * 1024)
}

/// Threads of a process, now.
pub(crate) fn threads(pid: u32) -> Result<u64, Box<dyn Error>> {
    field(&fs::read_to_string(format!("/proc/{pid}/status"))?, "Threads:")
}

/// CPU time that the machine has not spent idle, all CPUs together, what a hypervisor took away
/// included. Counted in ticks: good for the sum of many windows, not for one.
pub(crate) fn machine_busy() -> Result<Duration, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let line = line.ok_or("no cpu line in /proc/stat")?;
    let mut busy = 0;
    for (place, ticks) in line.split_whitespace().take(STEAL + 1).enumerate() {
        if place != IDLE && place != IO_WAIT {
            busy += ticks.parse::<u64>()?;
        }
    }
    Ok(TICK * u32::try_from(busy)?)
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name));
    let number = rest.and_then(|rest| rest.split_whitespace().next());
    let number = number.ok_or_else(|| format!("no {name} in what the kernel says"))?;
    Ok(number.parse()?)
}

fn cpu_time(pid: u32) -> io::Result<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_clock_of_this_process_moves_with_its_work() {
        let before = Usage::of(std::process::id()).unwrap();
        crate::cpu::burn(Duration::from_millis(20));
        let used = Usage::of(std::process::id()).unwrap().since(&before);
        assert!(used.cpu >= Duration::from_millis(19), "{used:?}");
    }

    #[test]
    fn the_machine_has_been_busy_since_it_started() {
        assert!(machine_busy().unwrap() > Duration::ZERO);
    }

    #[test]
    fn this_process_has_resident_memory() {
        let this = std::process::id();
        assert!(resident_bytes(this).unwrap() > 100_000);
        assert!(peak_resident_bytes(this).unwrap() > 100_000);
        assert!(threads(this).unwrap() >= 1);
    }
}
