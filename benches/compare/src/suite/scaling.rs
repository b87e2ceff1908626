//! One CPU, two, and so on up to all of the machine; and the same CPUs in more or fewer groups.
//!
//! A server is bound to the first CPUs of the machine, which its threads inherit, and from which it
//! chooses how many of them to start. From four CPUs on, the load has half of them, with as many threads.
//! On fewer, server and load share them, and throughput is that of both together; then CPU time per
//! request is the number to look at.

use std::error::Error;
use std::time::Duration;

use lab::cpu;

use super::{Suite, section};
use crate::experiment::{Experiment, Lane, Plan};
use crate::report::Section;
use crate::table::{
    CPU_EACH, CPU_RATIO, Column, Metric, P99_EACH, P99_RATIO, REQUESTS, THROUGHPUT, ratio,
};
use crate::workload::{Frames, Workload};

pub const SUITE: Suite = Suite {
    name: "scaling",
    question: "What does each further CPU bring, and each further group?",
    run,
};

/// Division of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Machine {
    server_most: usize,
    /// Threads of the load on CPUs of their own; 0 if it shares those of the server.
    load_threads: usize,
}

const SERVERS: [&str; 3] = ["limit", "easy-sync", "epoll-group"];
const MORE_SERVERS: [&str; 2] = ["easy-async", "tokio"];
/// Servers that are compared on all CPUs, the first with the others.
const SIDE_BY_SIDE: [&str; 4] = ["limit", "easy-sync", "epoll-group", "tokio"];
/// CPU time of each request in one of these comparisons, as that of a small query.
const BURN: Duration = Duration::from_micros(20);
const GROUPINGS: [&str; 3] = ["epoll-group", "epoll-group:groups=2", "epoll-group:groups=4"];
const MORE_GROUPINGS: [&str; 4] =
    ["epoll-group:1", "epoll-group:2", "epoll-group:8", "epoll-group:1:groups=4"];

/// CPUs that the server has kept busy.
const BUSY: Metric = |window| window.server_cpu_per_request * window.requests_per_second / 1e9;
const CPUS_BUSY: Column<'static> =
    ("CPUs busy", &|measured, lane| Some(format!("{:.2}", measured.values(lane, BUSY)?.median)));
const REQUESTS_RATIO: Column<'static> =
    ("requests/s, ratio", &|measured, lane| ratio(measured, lane, THROUGHPUT));

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let machine = Machine::of(cpu::allowed()?.len());
    // Other suites count system calls.
    let plan = &Plan { counts_syscalls: false, ..*plan };
    let mut servers = SERVERS.to_vec();
    let mut groupings = GROUPINGS.to_vec();
    let mut loads = vec![256];
    if !plan.quick {
        servers.extend(MORE_SERVERS);
        groupings.extend(MORE_GROUPINGS);
        loads.push(1024.max(32 * machine.server_most));
    }
    let lane = |server: &str, cpus, connections, burn| {
        let frames = Frames { burn, ..Frames::plain(connections) };
        let workload = match machine.load_threads {
            0 => Workload::frames(frames),
            threads => Workload::crowd(frames, threads),
        };
        Lane::echo(&format!("{server}:cpus={cpus}"), workload)
    };
    let mut found = Vec::new();
    for &connections in &loads {
        for server in &servers {
            let steps = machine.steps().into_iter();
            let lanes = steps.map(|cpus| lane(server, cpus, connections, Duration::ZERO));
            let name = format!("{server}, {connections} connections");
            found.push(Experiment::new(name, lanes).run(plan)?);
        }
    }
    let cpus = machine.server_most;
    for &connections in &loads {
        for burn in [Duration::ZERO, BURN] {
            let lanes = SIDE_BY_SIDE.iter().map(|server| lane(server, cpus, connections, burn));
            let name = format!("All CPUs, {connections} connections, {burn:?} a request");
            found.push(Experiment::new(name, lanes).run(plan)?);
        }
    }
    let connections = loads[loads.len() - 1];
    let lanes = groupings.iter().map(|server| lane(server, cpus, connections, Duration::ZERO));
    let name = format!("Groups and threads, {connections} connections");
    found.push(Experiment::new(name, lanes).run(plan)?);
    let columns = [REQUESTS, REQUESTS_RATIO, CPUS_BUSY, CPU_EACH, CPU_RATIO, P99_EACH, P99_RATIO];
    Ok(section("Scaling", machine.to_string(), &found, &columns))
}

impl Machine {
    fn of(cpus: usize) -> Self {
        let load_threads = if cpus < 4 { 0 } else { cpus / 2 };
        Self { server_most: cpus - load_threads, load_threads }
    }

    /// Numbers of CPUs: 1, 2, 4, 8 … and all.
    fn steps(&self) -> Vec<usize> {
        let powers = (0..).map(|power| 1 << power);
        let mut steps: Vec<_> = powers.take_while(|cpus| *cpus < self.server_most).collect();
        steps.push(self.server_most);
        steps
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { server_most, load_threads } = *self;
        writeln!(
            f,
            "A server is bound to the first 1 … {server_most} CPUs, and starts as many threads as it \
             does on a machine of that size. Ratios are to the first row. \
             `epoll-group:N:groups=M` has M groups of N threads."
        )?;
        match load_threads {
            0 => write!(
                f,
                "\n**The load shares the CPUs with the server.** It is one thread that may run on any \
                 of them and takes about as much time per request, so throughput on all CPUs is that \
                 of both together. The measure that survives this is the server's CPU time per \
                 request."
            ),
            _ => write!(f, "\nThe load has the last {load_threads} CPUs, and as many threads."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_machines_give_half_of_their_cpus_to_the_load() {
        assert_eq!(Machine::of(1), Machine { server_most: 1, load_threads: 0 });
        assert_eq!(Machine::of(2).steps(), [1, 2]);
        assert_eq!(Machine::of(3), Machine { server_most: 3, load_threads: 0 });
        assert_eq!(Machine::of(104), Machine { server_most: 52, load_threads: 52 });
        assert_eq!(Machine::of(104).steps(), [1, 2, 4, 8, 16, 32, 52]);
    }
}
