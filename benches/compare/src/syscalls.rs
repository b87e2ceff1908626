//! System calls of a process, counted by `perf` while it is loaded.
//!
//! Apart from the timed windows, because counting slows every call down. A server that is slower
//! finds more events at each wait, so the count is that of a somewhat busier server.

use std::error::Error;
use std::fs;
use std::process::Command;

use super::process::Helper;

/// Runs `load` while `perf` counts; `None` where `perf` is missing or not allowed to.
pub(crate) fn count(
    pid: u32,
    load: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<Option<u64>, Box<dyn Error>> {
    let name = format!("compare-perf-{}-{pid}.txt", std::process::id());
    let result_file = std::env::temp_dir().join(name);
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o"])
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
    Ok(text.lines().find_map(counted))
}

/// The first field of the line that names the event, when it is a number.
fn counted(line: &str) -> Option<u64> {
    let (count, rest) = line.split_once(',')?;
    rest.contains("raw_syscalls:sys_enter").then(|| count.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_first_field() {
        let line = "1234,,raw_syscalls:sys_enter,1000,100.00,,";
        assert_eq!(counted(line), Some(1234));
        assert_eq!(counted("<not counted>,,raw_syscalls:sys_enter,0,100.00,,"), None);
        assert_eq!(counted("# started on Sat Jan  1"), None);
    }
}
