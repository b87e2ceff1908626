//! System calls of a process and wake-ups by it, counted by `perf` while it is loaded.
//!
//! Apart from the timed windows, because counting slows every call down. A server that is slower
//! finds more events at each wait, so the count is that of a somewhat busier server.

use std::error::Error;
use std::fs;
use std::process::Command;

use super::process::Helper;

/// What all threads of a process have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) syscalls: u64,
    /// Threads that they woke, of any process. `None`: system calls alone could be counted.
    pub(crate) wakeups: Option<u64>,
}

const SYSCALLS: &str = "raw_syscalls:sys_enter";
const WAKEUPS: &str = "sched:sched_waking";

/// Runs `load` while `perf` counts; `None` where `perf` is missing or not allowed to.
pub(crate) fn count(
    pid: u32,
    load: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<Option<Counts>, Box<dyn Error>> {
    let name = format!("compare-perf-{}-{pid}.txt", std::process::id());
    let result_file = std::env::temp_dir().join(name);
    let mut perf = Command::new("perf");
    let events = format!("{SYSCALLS},{WAKEUPS}");
    perf.args(["stat", "-x", ",", "-e", &events, "-o"])
        .arg(&result_file)
        .args(["-p", &pid.to_string()])
        // Counting is on before this starts, and ends when this does: at the end of its input.
        .args(["--", "sh", "-c", "echo counting; exec cat"])
        .stderr(std::process::Stdio::null());
    let Ok((perf, _)) = Helper::start(&mut perf, "counting") else {
        return Ok(None);
    };
    load()?;
    perf.finish()?;
    let text = fs::read_to_string(&result_file)?;
    fs::remove_file(&result_file)?;
    Ok(counts(&text))
}

fn counts(text: &str) -> Option<Counts> {
    let counted = |event| text.lines().find_map(|line| counted(line, event));
    Some(Counts { syscalls: counted(SYSCALLS)?, wakeups: counted(WAKEUPS) })
}

/// The first field of the line that names the event, when it is a number.
fn counted(line: &str, event: &str) -> Option<u64> {
    let (count, rest) = line.split_once(',')?;
    rest.contains(event).then(|| count.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_first_field() {
        let text = "# started on Sat Jan  1\n\n1234,,raw_syscalls:sys_enter,1000,100.00,,\n\
                    7,,sched:sched_waking,1000,100.00,,\n";
        assert_eq!(counts(text), Some(Counts { syscalls: 1234, wakeups: Some(7) }));
        let text =
            "12,,raw_syscalls:sys_enter,1,1.00,,\n<not counted>,,sched:sched_waking,0,1.00,,";
        assert_eq!(counts(text), Some(Counts { syscalls: 12, wakeups: None }));
        assert_eq!(counts("<not counted>,,raw_syscalls:sys_enter,0,100.00,,"), None);
    }
}
