//! System calls, wake-ups and samples of a process, by `perf`, while the process is loaded.
//!
//! They are taken apart from the timed windows, because counting slows every call down. A server that is
//! slower finds more events at each wait, so the counts are those of a somewhat busier server.

use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};

use lab::helper::Helper;

/// One sample of a CPU that ran the process.
#[derive(Debug, PartialEq, Eq)]
pub struct Sample {
    /// Functions, the innermost first.
    pub frames: Vec<Frame>,
}

/// System calls, and wake-ups by threads of the process where they can be counted.
pub type Counts = (u64, Option<u64>);

#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub symbol: String,
    /// File with the code.
    pub object: String,
}

const SYSCALLS: &str = "raw_syscalls:sys_enter";
const WAKEUPS: &str = "sched:sched_waking";
/// Samples a second of each CPU. Not a round number, so that samples do not keep step with timers.
const FREQUENCY: &str = "999";

/// Runs `load` and counts system calls and wake-ups of all threads of a process. `None` if `perf` is
/// missing or not allowed to count.
pub fn count(
    pid: u32,
    load: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<Option<Counts>, Box<dyn Error>> {
    let file = tempfile::NamedTempFile::new()?;
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", &format!("{SYSCALLS},{WAKEUPS}"), "-o"])
        .arg(file.path())
        .args(["-p", &pid.to_string()]);
    if !run_beside(perf, load)? {
        return Ok(None);
    }
    Ok(counts(&fs::read_to_string(file.path())?))
}

/// Runs `load` and takes samples of a process. `None` if `perf` is missing or not allowed to.
///
/// The whole machine is sampled, because to watch each of thousands of threads would take longer than the
/// load.
pub fn samples(
    pid: u32,
    load: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<Option<Vec<Sample>>, Box<dyn Error>> {
    let file = tempfile::NamedTempFile::new()?;
    let mut perf = Command::new("perf");
    perf.args(["record", "-a", "-g", "-e", "cpu-clock", "-F", FREQUENCY, "-o"]).arg(file.path());
    if !run_beside(perf, load)? {
        return Ok(None);
    }
    let script = Command::new("perf")
        .args(["script", "--no-inline", "-F", "ip,sym,dso", "--pid", &pid.to_string(), "-i"])
        .arg(file.path())
        .stderr(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&script.stdout);
    Ok(script.status.success().then(|| read_samples(&text)))
}

/// Runs `load` beside `perf`, which begins before this and ends with its input. Returns false if `perf`
/// does not start.
fn run_beside(
    mut perf: Command,
    load: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<bool, Box<dyn Error>> {
    perf.args(["--", "sh", "-c", "echo started; exec cat"]).stderr(Stdio::null());
    let Ok((perf, _)) = Helper::start(&mut perf) else { return Ok(false) };
    load()?;
    perf.finish()?;
    Ok(true)
}

fn counts(text: &str) -> Option<Counts> {
    // The first field of the line that names the event, if it is a number.
    let counted = |event: &str| {
        text.lines().find_map(|line| {
            let (count, rest) = line.split_once(',')?;
            rest.contains(event).then(|| count.parse().ok())?
        })
    };
    Some((counted(SYSCALLS)?, counted(WAKEUPS)))
}

/// Reads blocks of lines, one line for each frame, with an empty line behind each block.
fn read_samples(script: &str) -> Vec<Sample> {
    let blocks = script.split("\n\n");
    let samples = blocks.map(|block| Sample { frames: block.lines().filter_map(frame).collect() });
    samples.filter(|sample| !sample.frames.is_empty()).collect()
}

/// Reads `ffffffff81001234 tcp_ack ([kernel.kallsyms])`. Names may have blanks in them, and objects
/// ` (deleted)` behind them.
fn frame(line: &str) -> Option<Frame> {
    let (_, rest) = line.trim().split_once(' ')?;
    let rest = rest.strip_suffix(')')?;
    let (symbol, object) = rest.strip_suffix(" (deleted)").unwrap_or(rest).rsplit_once(" (")?;
    Some(Frame { symbol: symbol.to_owned(), object: object.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_first_field() {
        let text = "# started on Sat Jan  1\n\n1234,,raw_syscalls:sys_enter,1000,100.00,,\n\
                    7,,sched:sched_waking,1000,100.00,,\n";
        assert_eq!(counts(text), Some((1234, Some(7))));
        let text =
            "12,,raw_syscalls:sys_enter,1,1.00,,\n<not counted>,,sched:sched_waking,0,1.00,,";
        assert_eq!(counts(text), Some((12, None)));
        assert_eq!(counts("<not counted>,,raw_syscalls:sys_enter,0,100.00,,"), None);
    }

    #[test]
    fn samples_are_parted_by_empty_lines() {
        let script = "\n\
            \tffffffff82018639 tcp_ack ([kernel.kallsyms])\n\
            \t          10aba4 __send (/usr/lib/libc.so.6)\n\
            \n\
            \t          3b1a44 <a::B as c::D>::e (/tmp/compare (deleted))\n\
            \n";
        let found = read_samples(script);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].frames.len(), 2);
        assert_eq!(found[1].frames[0].symbol, "<a::B as c::D>::e");
    }
}
