//! Servers that are not saturated: questions come at random times, or many at once and then none.

use std::error::Error;
use std::time::Duration;

use lab::load::{Pace, raise_descriptor_limit};

use super::{SERVERS, Suite, section};
use crate::experiment::{Experiment, Lane, Plan};
use crate::report::Section;
use crate::table::{
    CPU_EACH, CPU_RATIO, P50, P50_RATIO, P99_EACH, P99_RATIO, REQUESTS, SWITCHES, SYSCALLS,
};
use crate::workload::{Frames, Workload};

pub const SUITE: Suite = Suite {
    name: "paced",
    question: "What do requests cost, and how long do they take, when CPUs are idle now and then?",
    run,
};

/// Servers under [`MANY`] connections. The load has 20 000 descriptors, which is enough for three.
const FEW: [&str; 3] = ["epoll-group", "limit", "tokio"];
const MANY: usize = 6000;
const BURN: Duration = Duration::from_micros(20);

const TEXT: &str = "\
The load asks at times of its own, whether answers are late or not, but never on a connection without its \
answer. *At random*: a Poisson process for each connection. *Bursts*: so many connections ask at the same \
moment, the next as many after the pause. *Burn*: the handler computes for 20 µs. *Just opened*: the \
connections are opened before each window, right after those of the last were closed. Requests per second are \
those of the load, and equal.";

/// Each connection asks at random times, all together `rate` times a second.
fn random(connections: usize, rate: u32) -> Frames {
    let mean = Duration::from_secs(connections as u64) / rate;
    Frames { pace: Pace::Random(mean), ..Frames::plain(connections) }
}

fn bursts(connections: usize, size: usize) -> Frames {
    let every = Duration::from_millis(1);
    Frames { pace: Pace::Bursts { size, every }, ..Frames::plain(connections) }
}

fn burning(frames: Frames) -> Frames {
    Frames { burn: BURN, ..frames }
}

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    raise_descriptor_limit()?;
    let few = [random(64, 10_000), bursts(64, 8), burning(bursts(64, 8))];
    let more =
        [random(256, 40_000), burning(random(64, 10_000)), random(1024, 20_000), bursts(256, 40)];
    let mut found = Vec::new();
    for frames in few.into_iter().chain(more.into_iter().filter(|_| !plan.quick)) {
        let counts_syscalls = plan.counts_syscalls && frames.counts_syscalls();
        let plan = Plan { counts_syscalls, ..*plan };
        found.push(line_up(&SERVERS, &Workload::frames(frames), &plan)?);
    }
    if !plan.quick {
        let many = random(MANY, MANY as u32);
        for workload in [Workload::frames(many), Workload::reopened(many)] {
            let plan = Plan { repeats_first: false, ..*plan };
            found.push(line_up(&FEW, &workload, &plan)?);
        }
    }
    let columns =
        [REQUESTS, CPU_EACH, CPU_RATIO, P50, P50_RATIO, P99_EACH, P99_RATIO, SWITCHES, SYSCALLS];
    Ok(section("Below saturation", TEXT, &found, &columns))
}

fn line_up(
    servers: &[&str],
    workload: &Workload,
    plan: &Plan,
) -> Result<crate::measured::Measured, Box<dyn Error>> {
    let lanes = servers.iter().map(|server| Lane::echo(server, workload.clone()));
    Experiment::new(workload.to_string(), lanes).run(plan)
}
