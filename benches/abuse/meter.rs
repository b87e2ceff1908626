//! What the kernel knows of the server and of the machine's sockets.

use std::error::Error;
use std::fs;

use serde::Serialize;

/// A reading.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Reading {
    /// CPU seconds of the process so far, all its threads together, in steps of 10 ms.
    pub(crate) cpu: f64,
    pub(crate) resident_kb: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    /// Memory of all TCP sockets of the machine, those of both ends.
    pub(crate) sockets_kb: u64,
}

const TICKS: f64 = 100.0;
const PAGE_KB: u64 = 4;

impl Reading {
    pub(crate) fn of(pid: u32) -> Result<Self, Box<dyn Error>> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, fields) = stat.rsplit_once(") ").ok_or("no name in stat")?;
        // What follows the name: state, and from the twelfth on user and system time.
        let ticks = fields.split_whitespace().skip(11).take(2);
        let cpu = ticks.map(|ticks| ticks.parse::<f64>().unwrap_or(0.0)).sum::<f64>() / TICKS;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let sockstat = fs::read_to_string("/proc/net/sockstat")?;
        let pages = sockstat.lines().find_map(|line| {
            line.strip_prefix("TCP: ")?.split_once("mem ")?.1.trim().parse::<u64>().ok()
        });
        Ok(Self {
            cpu,
            resident_kb: field(&status, "VmRSS:"),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            threads: field(&status, "Threads:"),
            sockets_kb: pages.unwrap_or(0) * PAGE_KB,
        })
    }

    /// The larger one of each.
    pub(crate) fn peak(&self, other: &Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            resident_kb: self.resident_kb.max(other.resident_kb),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            sockets_kb: self.sockets_kb.max(other.sockets_kb),
        }
    }
}

fn field(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
