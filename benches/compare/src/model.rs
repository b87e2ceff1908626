//! A simulation of servers on machines that are not here: [`sim`] of queues, threads and cores, and
//! the architectures that are built of it.
//!
//! ```text
//!  loops     client ──▶ epoll of its loop ──▶ loop                 a loop for each core
//!  groups    client ──▶ epoll of its group ──▶ any of 4 workers    a group for 4 cores
//! ```
//!
//! Clients fall to loops and groups by chance, as with `SO_REUSEPORT`. Times are nanoseconds of simulated
//! time, and the same seed gives the same numbers.

pub mod sim;

use serde::Serialize;

use sim::{Length, Queue, Seen, System, simulate};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Loops,
    /// Groups that try to share long batches: a worker whose batch lasts longer than a wake-up wakes
    /// another one.
    Groups,
}

/// Times in nanoseconds, but for the last two.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Costs {
    /// Receive, handle and send, in a bare loop and in a group.
    pub request: f64,
    pub group_request: f64,
    /// One `epoll_wait`, and each event of it, which one thread takes at a time.
    pub poll: f64,
    pub event: f64,
    /// To fall asleep in `epoll_wait` and wake up.
    pub resume: f64,
    pub group_resume: f64,
    /// From an event until the sleeper runs.
    pub delay: f64,
    /// Part that each further core adds to all costs.
    pub contention: f64,
    /// Part of a request that varies.
    pub variation: f64,
}

/// Load of a server.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub clients: usize,
    /// Mean time of the network there and back, and of the client.
    pub think: u64,
    /// Chance and further cost of some handlers.
    pub burn: Option<(f64, u64)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Predicted {
    /// Requests per second.
    pub throughput: f64,
    /// CPU nanoseconds of the server per request.
    pub cpu: f64,
    /// Nanoseconds.
    pub p99: f64,
    /// True if the workers of a group share long batches.
    pub shares: bool,
}

const WORKERS_OF_A_GROUP: usize = 4;
/// Gain in throughput that a trial must bring.
const GAIN: f64 = 1.15;
const EVENTS_OF_A_LOOP: usize = 64;
const EVENTS_OF_A_WORKER: usize = 16;
const WATCHDOG_TICK: u64 = 500_000;
/// CPU time of a batch that lasts longer than to wake a worker.
const LONG_BATCH: u64 = 20_000;

/// Throughput, CPU time and p99 as the mean over some seeds. Groups try to share batches.
pub fn predict(
    shape: Shape,
    cores: usize,
    load: Load,
    costs: &Costs,
    length: Length,
    seeds: u64,
) -> Predicted {
    let with = |shares| average(shape, shares, cores, load, costs, length, seeds);
    let alone = with(false);
    if shape == Shape::Loops {
        return alone;
    }
    let sharing = with(true);
    if sharing.throughput < alone.throughput * GAIN { alone } else { sharing }
}

fn average(
    shape: Shape,
    shares: bool,
    cores: usize,
    load: Load,
    costs: &Costs,
    length: Length,
    seeds: u64,
) -> Predicted {
    let requests = (length.requests / seeds).max(10 * load.clients as u64);
    let length = Length { requests, nanos: length.nanos / seeds };
    let (mut throughput, mut cpu, mut all) = (0.0, 0.0, None::<Seen>);
    for seed in 0..seeds {
        let system = build(shape, shares, cores, load, costs, seed);
        let seen = simulate(&system, seed, length);
        throughput += seen.throughput() / seeds as f64;
        cpu += seen.cpu / seeds as f64;
        match &mut all {
            Some(all) => all.latencies += &seen.latencies,
            None => all = Some(seen),
        }
    }
    Predicted { throughput, cpu, p99: all.expect("there is a seed").p99(), shares }
}

fn build(shape: Shape, shares: bool, cores: usize, load: Load, costs: &Costs, seed: u64) -> System {
    // The more cores, the more each pays for what they share.
    let nanos = |cost: f64| (cost * (1.0 + costs.contention * (cores - 1) as f64)) as u64;
    let bare = shape == Shape::Loops;
    let mut system = System {
        cores,
        queues: Vec::new(),
        threads: Vec::new(),
        clients: Vec::new(),
        cost: nanos(if bare { costs.request } else { costs.group_request }),
        think: load.think,
        variation: costs.variation,
        burn: load.burn,
    };
    let workers = if bare { 1 } else { WORKERS_OF_A_GROUP };
    let count = cores.div_ceil(workers);
    for group in 0..count {
        system.queues.push(Queue {
            batch: if bare { EVENTS_OF_A_LOOP } else { EVENTS_OF_A_WORKER },
            poll: nanos(costs.poll),
            take: nanos(costs.event),
            wakes_next: shares.then_some(LONG_BATCH),
            wake_delay: costs.delay as u64,
            resume: nanos(if bare { costs.resume } else { costs.group_resume }),
            watchdog_tick: (!bare).then_some(WATCHDOG_TICK),
        });
        // With a core for each worker, no thread waits for a core of another group.
        system.threads.extend(vec![group; workers]);
    }
    let mut random = fastrand::Rng::with_seed(seed);
    system.clients.extend((0..load.clients).map(|_| random.usize(..count)));
    system
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Costs of the record of 2026-11-22.
    pub const RECORDED: Costs = Costs {
        request: 6_520.0,
        group_request: 7_960.0,
        poll: 161.0,
        event: 118.0,
        resume: 18_200.0,
        group_resume: 16_100.0,
        delay: 9_900.0,
        contention: 0.002,
        variation: 0.3,
    };

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let load = Load { clients: 100, think: 50_000, burn: Some((0.01, 100_000)) };
        let length = Length { requests: 5_000, nanos: 0 };
        for shape in [Shape::Loops, Shape::Groups] {
            let once = predict(shape, 8, load, &RECORDED, length, 2);
            let again = predict(shape, 8, load, &RECORDED, length, 2);
            assert_eq!(format!("{once:?}"), format!("{again:?}"));
            assert!(once.throughput > 0.0 && once.p99 > 0.0);
        }
    }

    #[test]
    fn a_saturated_loop_for_each_core_does_what_its_costs_allow() {
        let costs = Costs { contention: 0.0, ..RECORDED };
        let load = Load { clients: 4_000, think: 0, burn: None };
        let length = Length { requests: 100_000, nanos: 0 };
        let found = predict(Shape::Loops, 4, load, &costs, length, 1);
        // Request, event, and a wait for each 64 of them.
        let cost = 6_520.0 + 118.0 + 161.0 / 64.0;
        assert!((found.cpu / cost - 1.0).abs() < 0.01, "{found:?}");
        assert!((found.throughput * cost / 4e9 - 1.0).abs() < 0.02, "{found:?}");
    }

    /// At the cost of a request in a bare loop. With 256 connections on 64 cores, sharing brings too little
    /// to stay: groups do 0.94 of the loops' requests, for half of the CPU time.
    #[test]
    fn groups_do_as_much_as_loops_on_many_cores() {
        for handler in [0.0, 43_000.0] {
            let request = RECORDED.request + handler;
            let costs = Costs { request, group_request: request, ..RECORDED };
            for (cores, clients) in [(64, 256), (64, 1_024), (104, 256), (104, 1_024), (104, 4_096)]
            {
                let load = Load { clients, think: 100_000, burn: None };
                let length = Length { requests: 30_000, nanos: 3_000_000 };
                let found = [Shape::Groups, Shape::Loops]
                    .map(|shape| predict(shape, cores, load, &costs, length, 1).throughput);
                let ratio = found[0] / found[1];
                let least = if (cores, clients, handler) == (64, 256, 0.0) { 0.92 } else { 0.95 };
                assert!(ratio > least, "{cores} cores, {clients} clients, {request} ns: {ratio}");
            }
        }
    }
}
