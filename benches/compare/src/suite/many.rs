//! As many connections as descriptors allow, few of which do anything.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lab::helper::{Helper, say};
use lab::load::{self, Options, Report, Target, raise_descriptor_limit};
use serde_json::json;

use super::{SERVERS, Suite, blocks, line_up};
use crate::experiment::{Lane, Plan};
use crate::measured::Measured;
use crate::report::Section;
use crate::table::{CPU_EACH, Column, P99_EACH, P99_RATIO, REQUESTS, THREADS};
use crate::workload::{Frames, Load, Workload};

pub const SUITE: Suite = Suite {
    name: "many",
    question: "What do very many open connections cost, when few of them ask?",
    run,
};

/// Servers that may not get enough threads.
const HUNGRY: [&str; 2] = ["thread-per-connection", "thread-per-session"];
const ACTIVE: usize = 256;
/// Ports of one address that the kernel hands out, less some.
const MOST: usize = 19_000;
const FEW: usize = 1500;
/// Descriptors of a server beside those of its connections, with room to spare.
const OTHER_DESCRIPTORS: usize = 1000;

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let descriptors = usize::try_from(raise_descriptor_limit()?).unwrap_or(usize::MAX);
    let most = if plan.quick { FEW } else { MOST };
    let connections = most.min(descriptors.saturating_sub(OTHER_DESCRIPTORS));
    let (active, idle) = (ACTIVE.min(connections), connections.saturating_sub(ACTIVE));
    // Opening them takes longer than all windows do.
    let plan = Plan { fresh_every: plan.cycles, ..*plan };
    let refused = refused(active, idle);
    let takes_part = |name: &&str| refused.iter().all(|(refused, _)| refused != name);
    let servers: Vec<_> = SERVERS.into_iter().filter(takes_part).collect();
    let name = format!("{connections} connections, {active} of them ask");
    let found = [line_up(&name, &servers, &workload(active, idle), &plan)?];
    let bytes = bytes_each(connections);
    let bytes: Column<'_> = ("bytes/connection", &bytes);
    let mut all = vec![format!(
        "{connections} connections are open, after one exchange on each. {active} of them ask without \
         pause, the others keep quiet. Bytes per connection are resident memory of the server, without \
         the memory that the kernel keeps for sockets and threads. Each server is started once, so \
         intervals tell how windows differ, and not how starts would."
    )];
    all.extend(blocks(&found, &[REQUESTS, P99_EACH, P99_RATIO, CPU_EACH, bytes, THREADS]));
    for (server, fewer) in &refused {
        all.push(format!(
            "{server} does not come that far, because its threads are too many for this machine. It \
             lives with {fewer} connections."
        ));
    }
    let raw = json!({ "experiments": found, "refused": refused });
    Ok(Section::new("Very many connections", all, raw))
}

/// Servers that do not get enough threads, all of them together, and the number of connections with which
/// they live instead.
fn refused(active: usize, idle: usize) -> Vec<(&'static str, usize)> {
    let (mut refused, mut alive) = (Vec::new(), Vec::new());
    for name in HUNGRY {
        let mut fewer = idle;
        let live = loop {
            match start(name, active, fewer) {
                Ok(live) => break Some(live),
                Err(_) if fewer == 0 => break None,
                Err(_) => fewer = fewer / 4 * 3,
            }
        };
        if fewer == idle {
            alive.extend(live);
        } else {
            refused.push((name, active + fewer));
        }
    }
    refused
}

fn start(name: &str, active: usize, idle: usize) -> Result<(Many, Helper), Box<dyn Error>> {
    let (server, address, _) = Lane::echo(name, workload(active, idle)).server.start()?;
    Ok((Many::connect(address, active, idle)?, server))
}

/// Resident memory of a server that grew with its connections, for each of them.
pub fn bytes_each(connections: usize) -> impl Fn(&Measured, usize) -> Option<String> {
    move |measured, lane| {
        let lane = &measured.lanes[lane];
        let growth = lane.memory(|memory| memory.resident.saturating_sub(memory.before))?;
        Some(format!("{:.0}", growth / connections as f64))
    }
}

pub(super) fn workload(active: usize, idle: usize) -> Workload {
    let label = format!("{active} active, {idle} idle");
    Workload::new(label, move |address| Many::connect(address, active, idle))
}

/// Active connections, and quiet ones that another process holds, because one process does not have enough
/// descriptors for both.
struct Many {
    active: load::Load,
    idle: Helper,
}

impl Many {
    fn connect(address: SocketAddr, active: usize, idle: usize) -> Result<Self, Box<dyn Error>> {
        let (idle, _) = Helper::again(["hold", &address.to_string(), &idle.to_string()])?;
        Ok(Self { active: Frames::plain(active).connect(address)?, idle })
    }
}

impl Load for Many {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        Load::run_for(&mut self.active, time)
    }

    fn answers_total(&self) -> u64 {
        self.active.answers_total()
    }

    /// Lets the quiet ones ask as well.
    fn finish(self: Box<Self>) -> Result<u64, Box<dyn Error>> {
        let text = self.idle.finish()?;
        let answers = text.trim().parse::<u64>();
        let answers = answers.map_err(|_| format!("the idle connections say {text:?}"))?;
        Ok(self.active.answers_total() + answers)
    }
}

/// Body of the other process. Opens the connections, and sends nothing until standard input ends. Then
/// sends one more request on each connection, to check that it was alive. Prints the number of answers.
pub fn hold(target: Target, connections: usize) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let mut load = load::Load::connect(&Options { connections, ..Options::new(target) })?;
    say("holding")?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    // On a busy machine a short window can be over before all connections have asked.
    for millis in [1, 100, 1000, 10_000] {
        let report = load.run_for(Duration::from_millis(millis), |_| ())?.checked()?;
        if report.requests >= connections as u64 {
            say(&load.answers_total().to_string())?;
            return Ok(());
        }
    }
    Err(format!("{connections} connections have not all answered").into())
}
