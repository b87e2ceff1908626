//! Frames that come back as they are: the cost of the architecture alone.

use std::error::Error;

use super::{SERVERS, Suite, section};
use crate::experiment::{Experiment, Lane, Plan};
use crate::report::Section;
use crate::table::USUAL;
use crate::workload::{Frames, Workload};

pub const SUITE: Suite = Suite {
    name: "echo",
    question: "What does each architecture cost per request, when the work is nothing?",
    run,
};

/// A server beside those of every suite.
const MORE: &str = "easy-async:16:workers=64";

const TEXT: &str = "\
Frames of 64 bytes, one in flight on each connection, sent and checked by one thread of another process, on \
the same CPUs. Requests per second are those of server and load together, CPU time is the server's alone. \
The server only finds where a frame ends and sends it back.

Each server has the threads that it has by default: loops, pollers, io threads, workers and thread groups \
one for each CPU, `epoll-group` 4 threads for each group and a group for 4 CPUs.

Switches are those of threads that had nothing to do, and of threads that another one replaced. Wake-ups are \
those that threads of the server make, of each other and of the load generator where it sleeps. `perf` counts \
wake-ups and system calls in windows of their own, one for each start.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let loads: Vec<usize> = match plan.quick {
        true => vec![32, 256],
        false => (1..=10).map(|power| 1 << power).collect(),
    };
    let experiment = |connections: usize| {
        let workload = Workload::frames(Frames::plain(connections));
        let servers = SERVERS.into_iter().chain([MORE]);
        let lanes = servers.map(|server| Lane::echo(server, workload.clone()));
        Experiment::new(format!("{connections} connections"), lanes).run(plan)
    };
    let found = loads.into_iter().map(experiment).collect::<Result<Vec<_>, _>>()?;
    Ok(section("Echo", TEXT, &found, &USUAL))
}
