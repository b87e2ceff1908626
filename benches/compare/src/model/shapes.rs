//! The architectures, as queues and threads of the simulation.
//!
//! ```text
//!  loops           client ──▶ epoll of its loop ──▶ loop                        a loop for each core
//!  groups          client ──▶ epoll of its group ──▶ any of 4 workers           a group for 4 cores
//!  hand-over       client ──▶ epoll ──▶ io loop ──▶ queue ──▶ worker ──▶ queue ──▶ io loop
//!                                                        an io loop and a worker for each core
//!  thread-each     client ──▶ reader of its connection ──▶ queue ──▶ thread of its session
//! ```
//!
//! Which loop, group or worker a client belongs to is chance, as it is with `SO_REUSEPORT`.

use super::costs::Costs;
use super::dice::Dice;
use super::sim::{Length, Seen, simulate};
use super::system::{Arrivals, Burn, Hop, Queue, System, Thread};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Loops,
    Groups,
    /// Groups whose workers all take what is there, calm or not.
    EagerGroups,
    HandOver,
    ThreadEach,
}

/// What it runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) cores: u32,
    /// Those that the server may use, from the first one on.
    pub(crate) server_cores: u32,
    /// The load generator is one thread on any of the cores, and its time counts; or it is
    /// somewhere else.
    pub(crate) shared_with_load: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) clients: usize,
    /// Network there and back, and what the client does meanwhile: the mean.
    pub(crate) think: u64,
    pub(crate) burn: Option<Burn>,
}

/// How many requests and nanoseconds are simulated at least, and for how many throws of the dice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) requests: u64,
    pub(crate) nanos: u64,
    pub(crate) seeds: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Predicted {
    /// Requests per second.
    pub(crate) throughput: f64,
    /// CPU nanoseconds of the server per request.
    pub(crate) cpu: f64,
    /// Nanoseconds.
    pub(crate) p99: f64,
    /// Of a group that is calm, as trying would find it out.
    pub(crate) pollers: usize,
}

pub(crate) const WORKERS_OF_A_GROUP: usize = 4;
/// What another poller has to bring in a trial, or it goes.
const GAIN: f64 = 1.15;
const EVENTS_OF_A_LOOP: usize = 64;
const EVENTS_OF_A_WORKER: usize = 16;
const LOOKOUT: u64 = 500_000;

impl Machine {
    /// So many cores for the server, and the load comes from elsewhere.
    pub(crate) fn of(cores: u32) -> Self {
        Self { cores, server_cores: cores, shared_with_load: false }
    }
}

/// Throughput, CPU time and p99 over some throws of the dice. Groups try one, two … pollers.
pub(crate) fn predict(
    shape: Shape,
    machine: Machine,
    load: Load,
    costs: &Costs,
    effort: Effort,
) -> Predicted {
    let with = |pollers| average(shape, pollers, machine, load, costs, effort);
    if shape == Shape::EagerGroups {
        return with(WORKERS_OF_A_GROUP);
    }
    let mut best = with(1);
    if shape == Shape::Groups {
        for pollers in 2..=WORKERS_OF_A_GROUP {
            let more = with(pollers);
            if more.throughput < best.throughput * GAIN {
                break;
            }
            best = more;
        }
    }
    best
}

fn average(
    shape: Shape,
    pollers: usize,
    machine: Machine,
    load: Load,
    costs: &Costs,
    effort: Effort,
) -> Predicted {
    let requests = (effort.requests / effort.seeds).max(10 * load.clients as u64);
    let length = Length { requests, nanos: effort.nanos / effort.seeds };
    let mut all: Option<Seen> = None;
    let (mut throughput, mut cpu) = (0.0, 0.0);
    for seed in 0..effort.seeds {
        let mut plan = Builder::new(machine, load, costs, seed);
        plan.server(shape, pollers, load.clients);
        let server_queues = plan.system.queues.len();
        plan.load_generator(load.clients);
        let seen = simulate(&plan.system, seed, length);
        throughput += seen.throughput() / effort.seeds as f64;
        cpu += seen.cpu[..server_queues].iter().sum::<f64>() / effort.seeds as f64;
        match &mut all {
            Some(all) => all.latencies += &seen.latencies,
            None => all = Some(seen),
        }
    }
    let p99 = all.expect("at least one throw").p99();
    Predicted { throughput, cpu, p99, pollers }
}

struct Builder<'a> {
    costs: &'a Costs,
    machine: Machine,
    dice: Dice,
    system: System,
}

impl<'a> Builder<'a> {
    fn new(machine: Machine, load: Load, costs: &'a Costs, seed: u64) -> Self {
        let system = System {
            cores: machine.cores,
            queues: Vec::new(),
            threads: Vec::new(),
            routes: Vec::new(),
            arrivals: Arrivals::Closed { think: load.think },
            variation: costs.variation.value,
            burn: load.burn,
        };
        Self { costs, machine, dice: Dice::new(seed), system }
    }

    fn server(&mut self, shape: Shape, pollers: usize, clients: usize) {
        match shape {
            Shape::Loops => self.loops(clients),
            Shape::Groups => self.groups(pollers, EVENTS_OF_A_WORKER, clients),
            Shape::EagerGroups => self.groups(pollers, 1, clients),
            Shape::HandOver => self.hand_over(clients),
            Shape::ThreadEach => self.thread_each(clients),
        }
    }

    fn loops(&mut self, clients: usize) {
        let loops: Vec<_> = (0..self.machine.server_cores)
            .map(|_| {
                let queue = self.epoll(EVENTS_OF_A_LOOP, self.costs.resume.value);
                self.served_by(queue, 1, self.server_mask())
            })
            .collect();
        for _ in 0..clients {
            let queue = loops[self.dice.below(loops.len())];
            let hop = self.handler(queue, self.costs.request.value);
            self.system.routes.push(vec![hop]);
        }
    }

    fn groups(&mut self, pollers: usize, crowd: usize, clients: usize) {
        let cores = self.machine.server_cores as usize;
        let count = cores.div_ceil(WORKERS_OF_A_GROUP);
        let groups: Vec<_> = (0..count)
            .map(|group| {
                let queue = self.epoll(EVENTS_OF_A_WORKER, self.costs.group_resume.value);
                let spec = &mut self.system.queues[queue];
                (spec.pollers, spec.crowd) = (pollers, crowd);
                spec.lookout = Some(LOOKOUT);
                // Equal slices of the cores, if each is large enough.
                let mut mask = self.server_mask();
                if cores >= count * WORKERS_OF_A_GROUP {
                    let (first, end) = (group * cores / count, (group + 1) * cores / count);
                    mask = mask_of((end - first) as u32) << first;
                }
                self.served_by(queue, WORKERS_OF_A_GROUP, mask)
            })
            .collect();
        for _ in 0..clients {
            let queue = groups[self.dice.below(groups.len())];
            let hop = self.handler(queue, self.costs.group_request.value);
            self.system.routes.push(vec![hop]);
        }
    }

    /// Half of what a request costs is receiving, half is sending; the handler itself is nothing.
    fn hand_over(&mut self, clients: usize) {
        let half = self.costs.request.value / 2.0;
        let mask = self.server_mask();
        let mut loops = Vec::new();
        let mut workers = Vec::new();
        for _ in 0..self.machine.server_cores {
            let queue = self.epoll(EVENTS_OF_A_LOOP, self.costs.resume.value);
            // Its events, and what workers hand back.
            let side = self.nanos(self.costs.hand_over.value / 2.0);
            let wake = self.nanos(self.costs.wake.value);
            let spec = &mut self.system.queues[queue];
            *spec = Queue { take: spec.take + side, put: side, wake, ..*spec };
            loops.push(self.served_by(queue, 1, mask));
            let queue = self.between_threads();
            workers.push(self.served_by(queue, 1, mask));
        }
        for _ in 0..clients {
            let io = loops[self.dice.below(loops.len())];
            let worker = workers[self.dice.below(workers.len())];
            let halfway = Hop { queue: io, cost: self.nanos(half), handler: false };
            let handler = self.handler(worker, 0.0);
            self.system.routes.push(vec![halfway, handler, halfway]);
        }
    }

    fn thread_each(&mut self, clients: usize) {
        let half = self.costs.request.value / 2.0;
        let mask = self.server_mask();
        for _ in 0..clients {
            // A blocking read instead of epoll: the same sleep, and no other call.
            let reader = self.epoll(1, self.costs.resume.value);
            self.system.queues[reader].poll = 0;
            self.served_by(reader, 1, mask);
            let session = self.between_threads();
            self.served_by(session, 1, mask);
            let read = Hop { queue: reader, cost: self.nanos(half), handler: false };
            let handler = self.handler(session, half);
            self.system.routes.push(vec![read, handler]);
        }
    }

    /// The last hop of each route, where the load shares the machine.
    fn load_generator(&mut self, clients: usize) {
        if !self.machine.shared_with_load {
            return;
        }
        let queue = self.epoll(256, self.costs.client_resume.value);
        self.served_by(queue, 1, mask_of(self.machine.cores));
        let hop = Hop { queue, cost: self.nanos(self.costs.client.value), handler: false };
        self.system.routes.iter_mut().take(clients).for_each(|route| route.push(hop));
    }

    fn epoll(&mut self, batch: usize, resume: f64) -> usize {
        self.system.queues.push(Queue {
            batch,
            poll: self.nanos(self.costs.poll.value),
            take: self.nanos(self.costs.event.value),
            put: 0,
            pollers: 1,
            crowd: 1,
            wake_delay: self.costs.delay.value as u64,
            wake: 0,
            resume: self.nanos(resume),
            lookout: None,
        });
        self.system.queues.len() - 1
    }

    fn between_threads(&mut self) -> usize {
        let side = self.nanos(self.costs.hand_over.value / 2.0);
        self.system.queues.push(Queue {
            batch: 1,
            poll: 0,
            take: side,
            put: side,
            pollers: 1,
            crowd: 1,
            wake_delay: self.costs.delay.value as u64,
            wake: self.nanos(self.costs.wake.value),
            resume: self.nanos(self.costs.woken.value),
            lookout: None,
        });
        self.system.queues.len() - 1
    }

    fn served_by(&mut self, queue: usize, threads: usize, cores: u128) -> usize {
        self.system.threads.extend((0..threads).map(|_| Thread { queue, cores }));
        queue
    }

    fn handler(&self, queue: usize, cost: f64) -> Hop {
        Hop { queue, cost: self.nanos(cost), handler: true }
    }

    fn server_mask(&self) -> u128 {
        mask_of(self.machine.server_cores)
    }

    /// CPU time on this machine: the more cores, the more each pays for what they share.
    fn nanos(&self, cost: f64) -> u64 {
        let others = f64::from(self.machine.server_cores - 1);
        (cost * (1.0 + self.costs.contention.value * others)) as u64
    }
}

/// The first so many cores.
fn mask_of(cores: u32) -> u128 {
    u128::MAX >> (u128::BITS - cores)
}
