//! The kernel's counts of a process: CPU time, context switches, memory; and those of the machine.

use std::error::Error;
use std::fs;
use std::time::Duration;

use serde::Serialize;

use crate::cpu;

/// A reading of a process. Read it while the process is quiet, because the kernel adds the CPU time of a
/// thread when the thread leaves its CPU, or at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// User and system time of all threads, those that have ended included.
    pub cpu: Duration,
    /// Switches of threads that blocked. A thread takes its count along when it ends.
    pub voluntary_switches: u64,
    /// Switches of threads that another one replaced.
    pub involuntary_switches: u64,
    /// User memory in RAM. Memory that the kernel keeps for sockets is not in it.
    pub resident_bytes: u64,
    /// Largest resident memory since the start of the process.
    pub peak_resident_bytes: u64,
    pub threads: u64,
    pub descriptors: u64,
}

/// Places in the cpu line of `/proc/stat`. Earlier columns include those behind steal.
const IDLE: usize = 3;
const IO_WAIT: usize = 4;
const STEAL: usize = 7;
/// The unit of `/proc/stat`, whatever the kernel's own tick is.
const TICK_MILLIS: u64 = 10;

impl Usage {
    /// # Errors
    /// There is no such process.
    pub fn of(pid: u32) -> Result<Self, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let mut usage = Self {
            cpu: cpu::of(pid)?,
            resident_bytes: field(&status, "VmRSS:")? * 1024,
            peak_resident_bytes: field(&status, "VmHWM:")? * 1024,
            threads: field(&status, "Threads:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            ..Self::default()
        };
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            // The thread may end meanwhile.
            let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
            usage.voluntary_switches += field(&status, "voluntary_ctxt_switches:")?;
            usage.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches:")?;
        }
        Ok(usage)
    }

    /// The reading with CPU time and switches since an earlier one.
    pub fn since(&self, before: &Self) -> Self {
        let switches = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            voluntary_switches: switches(|usage| usage.voluntary_switches),
            involuntary_switches: switches(|usage| usage.involuntary_switches),
            ..*self
        }
    }
}

/// CPU time that the machine has not spent idle, all CPUs together, with the time that a hypervisor took
/// away. Counted in ticks, so it is good for the sum of many windows.
///
/// # Errors
/// `/proc/stat` is not readable.
pub fn machine_busy() -> Result<Duration, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let line = line.ok_or("no cpu line in /proc/stat")?;
    let mut busy = 0;
    for (place, ticks) in line.split_whitespace().take(STEAL + 1).enumerate() {
        if place != IDLE && place != IO_WAIT {
            busy += ticks.parse::<u64>()?;
        }
    }
    Ok(Duration::from_millis(TICK_MILLIS * busy))
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let number = rest.and_then(|rest| rest.split_whitespace().next());
    Ok(number.ok_or_else(|| format!("no {name} in the kernel's text"))?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_this_process_move_with_its_work() {
        let before = Usage::of(std::process::id()).unwrap();
        cpu::burn(Duration::from_millis(20));
        let after = Usage::of(std::process::id()).unwrap();
        assert!(after.since(&before).cpu >= Duration::from_millis(19), "{after:?}");
        assert!(after.resident_bytes > 100_000 && after.peak_resident_bytes > 100_000, "{after:?}");
        assert!(after.threads >= 1 && after.descriptors >= 3, "{after:?}");
        assert!(machine_busy().unwrap() > Duration::ZERO);
    }
}
