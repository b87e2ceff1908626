//! [`Server`]: a child process, its counters, and its use of resources.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::child::Role;

/// A server in a process of its own, killed when it is dropped.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    role: Role,
    process: Mutex<Process>,
}

struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Resources that a process holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Resident memory that is not mapped from files: a data node maps its database once for each
    /// connection.
    pub(crate) resident_bytes: u64,
    /// Memory that the allocator has given out; 0 if it has no such count.
    pub(crate) allocated_bytes: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

/// Counters and gauges by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(BTreeMap<String, u64>);

impl Server {
    pub(crate) fn start(name: &'static str, role: Role) -> Result<Self, Box<dyn Error>> {
        let (process, address) = Process::start(&role)?;
        Ok(Self { name, address, role, process: Mutex::new(process) })
    }

    /// Kills the process; see [`start_again`](Self::start_again).
    pub(crate) fn kill(&self) {
        let mut process = self.lock();
        let _ = process.child.kill();
        let _ = process.child.wait();
    }

    /// Starts the process again after a kill, at the same address.
    pub(crate) fn start_again(&self) -> Result<(), Box<dyn Error>> {
        let mut role = self.role.clone();
        if let Role::Node { listen, .. } = &mut role {
            *listen = self.address.to_string();
        }
        let (process, address) = Process::start(&role)?;
        if address != self.address {
            return Err(format!("{} came back at {address}", self.name).into());
        }
        *self.lock() = process;
        Ok(())
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) -> Result<(), Box<dyn Error>> {
        let id = self.lock().child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status()?;
        if status.success() { Ok(()) } else { Err(format!("{name} was not sent").into()) }
    }

    /// Gives an order and returns the lines of the answer.
    pub(crate) fn ask(&self, order: &str) -> Result<Vec<String>, Box<dyn Error>> {
        let mut process = self.lock();
        writeln!(process.orders, "{order}")?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if process.answers.read_line(&mut line)? == 0 {
                let status = process.child.wait()?;
                return Err(format!("{} has ended: {status}", self.name).into());
            }
            match line.trim_end() {
                "" => return Ok(lines),
                line => lines.push(line.to_owned()),
            }
        }
    }

    pub(crate) fn counts(&self) -> Result<Counts, Box<dyn Error>> {
        Ok(Counts::read(&self.ask("stats")?))
    }

    /// Reads the resources in use, after freed memory was returned to the system.
    pub(crate) fn usage(&self) -> Result<Usage, Box<dyn Error>> {
        let allocated = Counts::read(&self.ask("trim")?);
        let folder = format!("/proc/{}", self.lock().child.id());
        let status = fs::read_to_string(format!("{folder}/status"))?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Ok(Usage {
            resident_bytes: field("RssAnon:").unwrap_or(0) << 10,
            allocated_bytes: allocated.get("allocated_bytes"),
            descriptors: fs::read_dir(format!("{folder}/fd"))?.count() as u64,
            threads: field("Threads:").unwrap_or(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    fn start(role: &Role) -> Result<(Self, SocketAddr), Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("child").args(role.words());
        // Resident memory must not include memory that the allocator keeps for later. So there is one
        // arena, because the unused end of another one is never trimmed, and thresholds are fixed,
        // because they would rise with the buffers of an attack.
        command.env("MALLOC_ARENA_MAX", "1");
        command.env("MALLOC_MMAP_THRESHOLD_", "131072");
        command.env("MALLOC_TRIM_THRESHOLD_", "131072");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or("the child has no pipe")?;
        let mut answers = BufReader::new(child.stdout.take().ok_or("the child has no pipe")?);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        let Some(address) = line.trim_end().strip_prefix("listening on ") else {
            let _ = child.kill();
            return Err(format!("{role:?} did not start: {}", child.wait()?).into());
        };
        let address = address.parse()?;
        Ok((Self { child, orders, answers }, address))
    }
}

impl Counts {
    /// Reads lines of a name and a number.
    fn read(lines: &[String]) -> Self {
        let pair = |line: &String| {
            let (name, value) = line.split_once(' ')?;
            // Times have fractions of a second.
            Some((name.to_owned(), value.parse::<f64>().ok()? as u64))
        };
        Self(lines.iter().filter_map(pair).collect())
    }

    /// Returns 0 if there is no such count.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}
