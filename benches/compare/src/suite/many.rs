//! As many connections as descriptors allow, few of which do anything.

use std::error::Error;

use serde_json::json;

use super::Suite;
use super::line_up::{self, CPU, Column, P99, P99_RATIO, REQUESTS, SERVERS, THREADS};
use crate::experiment::{Measured, Plan, Progress};
use crate::load::raise_descriptor_limit;
use crate::process::Helper;
use crate::report::{Block, Section};
use crate::workload::Workload;

mod load;

pub(crate) use load::{Load, Shape};

pub(crate) const SUITE: Suite = Suite {
    name: "many",
    question: "What do very many open connections cost, when few of them ask?",
    seconds,
    run,
};

/// The servers that may not get so many threads.
const HUNGRY: [&str; 2] = ["thread-per-connection", "thread-per-session"];
const ACTIVE: usize = 256;
/// Ports of one address that the kernel hands out, less some.
const MOST: usize = 19_000;
const FEW: usize = 1500;
/// Descriptors of a server beside those of its connections, and more than enough.
const OTHER_DESCRIPTORS: usize = 1000;
/// Connections that are opened, and greeted, in a second.
const PER_SECOND: f64 = 4000.0;

fn seconds(plan: &Plan) -> f64 {
    line_up::seconds(plan, connections(plan, MOST) as f64 / PER_SECOND)
}

fn connections(plan: &Plan, descriptors: usize) -> usize {
    let most = if plan.quick { FEW } else { MOST };
    most.min(descriptors.saturating_sub(OTHER_DESCRIPTORS))
}

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let descriptors = usize::try_from(raise_descriptor_limit()?).unwrap_or(usize::MAX);
    let connections = connections(plan, descriptors);
    let shape = Shape { active: ACTIVE.min(connections), idle: connections.saturating_sub(ACTIVE) };
    // Opening them takes longer than all windows do.
    let plan = Plan { fresh_every: plan.cycles, ..*plan };
    let refused = refused(&shape);
    let takes_part = |name: &&str| refused.iter().all(|(refused, _)| refused != name);
    let servers: Vec<_> = SERVERS.iter().copied().filter(takes_part).collect();
    let name = format!("{connections} connections, {} of them ask", shape.active);
    let measured = line_up::run_some(&servers, name, Workload::Many(shape), &plan, progress)?;
    let bytes = |measured: &Measured, lane: usize| {
        let growth = measured.lanes[lane].resident_growth()?.median;
        Some(format!("{:.0}", growth / connections as f64))
    };
    let bytes: Column<'_> = ("bytes/connection", &bytes);
    let columns = [REQUESTS, P99, P99_RATIO, CPU, bytes, THREADS];
    let mut blocks = vec![
        Block::Text(format!(
            "{connections} connections are open, after one exchange on each; {} of them ask without \
             pause, the others keep quiet. Bytes per connection are resident memory of the server: \
             what the kernel keeps for sockets and threads is not in it. Each server is started once: \
             intervals tell how windows differ, not how starts would.",
            shape.active
        )),
        Block::Table(line_up::table(&measured, &columns)),
    ];
    for (server, fewer) in &refused {
        let text = format!(
            "{server} does not come that far: its threads are too many for this machine. It lives \
             with {fewer} connections."
        );
        blocks.push(Block::Text(text));
    }
    let raw = json!({ "experiments": [measured], "refused": refused });
    Ok(Section { name: SUITE.name, title: "Very many connections".to_owned(), blocks, raw })
}

/// Those that do not get that many threads, all of them together, and with how many connections they
/// live instead.
fn refused(shape: &Shape) -> Vec<(&'static str, usize)> {
    let (mut refused, mut alive) = (Vec::new(), Vec::new());
    for name in HUNGRY {
        let mut fewer = *shape;
        let live = loop {
            match start(name, &fewer) {
                Ok(live) => break Some(live),
                Err(_) if fewer.idle == 0 => break None,
                Err(_) => fewer.idle = fewer.idle / 4 * 3,
            }
        };
        if fewer.idle == shape.idle {
            alive.extend(live);
        } else {
            refused.push((name, fewer.active + fewer.idle));
        }
    }
    refused
}

fn start(server: &str, shape: &Shape) -> Result<(Load, Helper), Box<dyn Error>> {
    let (server, address) = line_up::server(server).start()?;
    Ok((Load::connect(address, shape)?, server))
}
