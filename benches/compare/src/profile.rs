//! Where a server spends its CPU time: samples that `perf` takes while it is loaded.
//!
//! Apart from the timed windows, like the counting of system calls. The whole machine is sampled and
//! the server's samples are kept: to watch each of thousands of threads would take longer than the
//! windows. A sample has the function in which the CPU was, and those that the kernel was called by.

use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};

use super::process::Helper;

mod part;

pub(crate) use part::Part;

/// One look at a CPU that was the server's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The innermost first; below the kernel's there may be nonsense.
    frames: Vec<Frame>,
}

#[derive(Debug, PartialEq, Eq)]
struct Frame {
    symbol: String,
    /// The file that the code is from.
    object: String,
}

/// Looks a second at each CPU; no divisor of the timer ticks of others.
const FREQUENCY: &str = "999";

/// Runs `load` while `perf` looks; `None` where `perf` is missing or not allowed to.
pub(crate) fn record(
    pid: u32,
    load: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<Option<Vec<Sample>>, Box<dyn Error>> {
    let name = format!("compare-perf-{}-{pid}.data", std::process::id());
    let file = std::env::temp_dir().join(name);
    let mut perf = Command::new("perf");
    perf.args(["record", "-a", "-g", "-e", "cpu-clock", "-F", FREQUENCY, "-o"])
        .arg(&file)
        // Sampling is on before this starts, and ends when this does: at the end of its input.
        .args(["--", "sh", "-c", "echo sampling; exec cat"])
        .stderr(Stdio::null());
    let Ok((perf, _)) = Helper::start(&mut perf, "sampling") else {
        return Ok(None);
    };
    load()?;
    perf.finish()?;
    let script = Command::new("perf")
        .args(["script", "--no-inline", "-F", "ip,sym,dso", "--pid", &pid.to_string(), "-i"])
        .arg(&file)
        .stderr(Stdio::null())
        .output();
    // It is in the way from now on, whatever came out.
    let removed = fs::remove_file(&file);
    let script = script?;
    removed?;
    if !script.status.success() {
        return Ok(None);
    }
    Ok(Some(samples(&String::from_utf8_lossy(&script.stdout))))
}

/// Blocks of lines, one for each frame, with an empty line behind each block.
fn samples(script: &str) -> Vec<Sample> {
    let blocks = script.split("\n\n");
    let samples = blocks.map(|block| Sample { frames: block.lines().filter_map(frame).collect() });
    samples.filter(|sample| !sample.frames.is_empty()).collect()
}

/// `ffffffff81001234 tcp_ack ([kernel.kallsyms])`: names may have blanks in them, and objects
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
    fn samples_are_parted_by_empty_lines() {
        let script = "\n\
            \tffffffff82018639 tcp_ack ([kernel.kallsyms])\n\
            \t          10aba4 __send (/usr/lib/libc.so.6)\n\
            \n\
            \t          3b1a44 <a::B as c::D>::e (/tmp/compare (deleted))\n\
            \n";
        let found = samples(script);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].frames.len(), 2);
        let frame = &found[1].frames[0];
        assert_eq!(frame.symbol, "<a::B as c::D>::e");
    }
}
