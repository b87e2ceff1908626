//! What idle connections cost a server in memory.
//!
//! The other ends live in a process of their own, so that the server's memory is the server's.
//! What is measured before has met some connections already: what the first of them brings in
//! for all is not a cost of each.

use std::error::Error;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::load::Target;
use super::meter::resident_bytes;
use super::process::Helper;
use super::server::Server;
use super::spec::Spec;

#[derive(Debug, Serialize)]
pub(crate) struct Idle {
    pub(crate) server: String,
    pub(crate) connections: usize,
    pub(crate) resident_before: u64,
    pub(crate) resident_after: u64,
    /// Resident memory once they all have been closed.
    pub(crate) resident_closed: u64,
}

const WARM_UP_CONNECTIONS: usize = 64;
/// A reading counts once two in a row, so far apart, are the same.
const BETWEEN_READINGS: Duration = Duration::from_millis(500);
const READINGS: usize = 20;

impl Idle {
    /// One exchange on each connection, then nothing.
    pub(crate) fn measure(spec: &Spec, connections: usize) -> Result<Self, Box<dyn Error>> {
        let (server, address) = Server::Echo(spec.clone()).start()?;
        let target = Target::Tcp(address);
        release(hold(&target, WARM_UP_CONNECTIONS)?)?;
        let resident_before = settled(server.pid())?;
        let holder = hold(&target, connections)?;
        let resident_after = settled(server.pid())?;
        release(holder)?;
        let resident_closed = settled(server.pid())?;
        server.finish()?;
        Ok(Self {
            server: spec.to_string(),
            connections,
            resident_before,
            resident_after,
            resident_closed,
        })
    }

    pub(crate) fn bytes_per_connection(&self) -> f64 {
        let bytes = self.resident_after as f64 - self.resident_before as f64;
        bytes / self.connections as f64
    }
}

/// Connections of a process of their own, each greeted once.
pub(crate) fn hold(target: &Target, connections: usize) -> Result<Helper, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["hold", &target.to_string(), &connections.to_string()]);
    Ok(Helper::start(&mut command, "holding ")?.0)
}

/// Closes the connections; each has answered once more before. Returns all answers they had.
pub(crate) fn release(holder: Helper) -> Result<u64, Box<dyn Error>> {
    let said = holder.finish()?;
    let answers = said.trim().strip_prefix("all answered, ").and_then(|count| count.parse().ok());
    answers.ok_or_else(|| format!("the idle connections say {said:?}").into())
}

fn settled(pid: u32) -> Result<u64, Box<dyn Error>> {
    let mut last = resident_bytes(pid)?;
    for _ in 0..READINGS {
        thread::sleep(BETWEEN_READINGS);
        let now = resident_bytes(pid)?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}
