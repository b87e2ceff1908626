//! What to expect of machines that are not here: a simulation, fitted to what was measured, held
//! against what else was measured, and then asked about 64 and 104 cores.

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use super::Suite;
use crate::affinity;
use crate::experiment::{
    self, Experiment, Lane, Measured, Plan, Processes, Progress, Shape as Frames, Window,
};
use crate::model::costs::{Cost, Costs};
use crate::model::fit::{Fitted, fit};
use crate::model::measure::micro;
use crate::model::shapes::{Effort, Load, Machine, Predicted, Shape, predict};
use crate::model::system::Burn;
use crate::report::Section;
use crate::server::Server;
use crate::workload::Workload;

mod page;
#[cfg(test)]
mod tests;

pub(crate) const SUITE: Suite = Suite {
    name: "model",
    question: "What is to be expected of 64 and of 104 cores?",
    seconds: |plan| seconds(plan),
    run,
};

/// A shape, the server here that has it, and up to how many connections it is asked.
const SHAPES: [(Shape, &str, usize); 4] = [
    (Shape::Groups, "epoll-group", usize::MAX),
    (Shape::Loops, "limit", usize::MAX),
    (Shape::HandOver, "easy-async", usize::MAX),
    (Shape::ThreadEach, "thread-per-session", 1_024),
];
/// The place of ours.
const GROUPS: usize = 0;
/// What the fit looks at, beside one connection.
const MANY: usize = 256;
/// Network there and back and what a client does meanwhile, in predictions.
const THINK: u64 = 100_000;
/// One request in 500 burns 2 ms: as much CPU time in all as the light ones take.
const BURN: Burn = Burn { chance: 0.002, cost: 2_000_000 };
/// Contention in place of the one assumed, to see what it changes.
const CONTENTIONS: [f64; 3] = [0.0, 0.002, 0.01];

/// One question to the simulation.
#[derive(Clone, Copy, Debug)]
struct Question {
    place: usize,
    cores: u32,
    clients: usize,
    burns: bool,
    contention: Option<f64>,
    /// Groups whose workers all take, calm or not.
    eager: bool,
}

/// What was measured beside what the model says of the same.
#[derive(Debug)]
struct Pair {
    place: usize,
    cpus: usize,
    connections: usize,
    /// It is what the costs were fitted to.
    fitted: bool,
    throughput: f64,
    cpu: f64,
    p99: f64,
    model: Predicted,
}

#[derive(Debug)]
struct Answers {
    all: Vec<(Question, Predicted)>,
    cores: Vec<u32>,
    clients: Vec<usize>,
}

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let cpus = affinity::allowed()?.len();
    let measured = measure(plan, cpus, progress)?;
    let costs = costs(&measured, cpus, plan.quick)?;
    let pairs = compare(&measured, cpus, &costs, plan.quick)?;
    let answers = Answers::of(&costs, plan.quick);
    let raw = json!({
        "costs": costs,
        "experiments": measured.iter().map(|(_, measured)| measured).collect::<Vec<_>>(),
        "validation": pairs.iter().map(Pair::raw).collect::<Vec<_>>(),
        "predictions": answers.raw(),
    });
    let others = measured.iter().map(|(_, measured)| measured.other_cpus()).fold(0.0, f64::max);
    let blocks = page::blocks(&costs, &pairs, &answers, (cpus, others));
    Ok(Section { name: SUITE.name, title: "Model".to_owned(), blocks, raw })
}

fn seconds(plan: &Plan) -> f64 {
    let lanes = (2 * SHAPES.len() * connections(plan).len()) as f64;
    lanes * plan.seconds_of_lane(0.4) + if plan.quick { 3.0 } else { 60.0 }
}

fn connections(plan: &Plan) -> &'static [usize] {
    if plan.quick { &[1, MANY] } else { &[1, 32, MANY, 1_024] }
}

/// All servers on one CPU and on two, by numbers of connections.
fn measure(
    plan: &Plan,
    cpus: usize,
    progress: &mut Progress,
) -> Result<Vec<(usize, Measured)>, Box<dyn Error>> {
    let plan = &Plan { counts_syscalls: false, ..*plan };
    let experiment = |connections: usize| {
        let lane = |place: usize| {
            let (_, server, _) = SHAPES[place % SHAPES.len()];
            let spec = format!("{server}:cpus={}", 1 + place / SHAPES.len());
            let spec = spec.parse().expect("a server that is written down here");
            let workload = Workload::Frames(Frames::plain(connections));
            Lane { server: Server::Echo(spec), workload }
        };
        let lanes = SHAPES.len() * cpus.min(2);
        Experiment {
            name: format!("model, {connections} connections"),
            lanes: (0..lanes).map(lane).collect(),
            groups: vec![(0..lanes).collect()],
            processes: Processes::OneEach,
        }
    };
    let experiments: Vec<_> =
        connections(plan).iter().map(|&count| (count, experiment(count))).collect();
    let windows = experiments.iter().map(|(_, experiment)| experiment.windows());
    progress.expect(windows.sum::<usize>() * plan.cycles);
    let run = |(count, experiment)| Ok((count, experiment::run(&experiment, plan, progress)?));
    experiments.into_iter().map(run).collect()
}

fn costs(
    measured: &[(usize, Measured)],
    cpus: usize,
    quick: bool,
) -> Result<Costs, Box<dyn Error>> {
    let fitted = |place: usize| {
        Some(Fitted {
            cpu_of_one: seen(measured, 1, place, |window| window.server_cpu_per_request)?,
            cpu_of_many: seen(measured, MANY, place, |window| window.server_cpu_per_request)?,
            client_of_one: seen(measured, 1, place, |window| window.client_cpu_per_request)?,
            client_of_many: seen(measured, MANY, place, |window| window.client_cpu_per_request)?,
            latency_of_one: seen(measured, 1, place, |window| window.p50 as f64)?,
        })
    };
    let of = |shape| SHAPES.iter().position(|(known, ..)| *known == shape).and_then(fitted);
    let (bare, group) = (of(Shape::Loops), of(Shape::Groups));
    let (Some(bare), Some(group)) = (bare, group) else {
        return Err("nothing was measured to fit the model to".into());
    };
    let mut costs = fit(bare, group, micro()?);
    let surplus = |wanted: Shape| {
        let place = SHAPES.iter().position(|(known, ..)| *known == wanted)?;
        let found = seen(measured, MANY, place, |window| window.server_cpu_per_request)?;
        let load = Load { clients: MANY, think: 0, burn: None };
        let model = predict(wanted, here(cpus, 1), load, &costs, effort(quick, false));
        let source = format!(
            "{}:cpus=1, measured: CPU time with many connections, less what the costs above make of it",
            SHAPES[place].1
        );
        Some(Cost::new((found - model.cpu).max(0.0), &source))
    };
    let both = surplus(Shape::HandOver).zip(surplus(Shape::ThreadEach));
    let (hand_over, session) = both.ok_or("nothing was measured of those that hand over")?;
    (costs.hand_over_surplus, costs.session_surplus) = (hand_over, session);
    Ok(costs)
}

fn seen(
    measured: &[(usize, Measured)],
    connections: usize,
    lane: usize,
    metric: fn(&Window) -> f64,
) -> Option<f64> {
    let (_, measured) = measured.iter().find(|(count, _)| *count == connections)?;
    Some(measured.values(lane, metric)?.median)
}

/// The model of this very machine, the load's thread included.
fn compare(
    measured: &[(usize, Measured)],
    cpus: usize,
    costs: &Costs,
    quick: bool,
) -> Result<Vec<Pair>, Box<dyn Error>> {
    let mut pairs = Vec::new();
    for (connections, seen) in measured {
        for lane in 0..seen.lanes.len() {
            let (place, server_cpus) = (lane % SHAPES.len(), 1 + lane / SHAPES.len());
            let median = |metric: fn(&Window) -> f64| {
                seen.values(lane, metric).map(|spread| spread.median).ok_or("no windows")
            };
            let (shape, ..) = SHAPES[place];
            let machine = here(cpus, server_cpus);
            let load = Load { clients: *connections, think: 0, burn: None };
            let fitted = server_cpus == 1
                && match shape {
                    Shape::Loops | Shape::Groups => [1, MANY].contains(connections),
                    _ => *connections == MANY,
                };
            pairs.push(Pair {
                place,
                cpus: server_cpus,
                connections: *connections,
                fitted,
                throughput: median(|window| window.requests_per_second)?,
                cpu: median(|window| window.server_cpu_per_request)?,
                p99: median(|window| window.p99 as f64)?,
                model: predict(shape, machine, load, costs, effort(quick, false)),
            });
        }
    }
    Ok(pairs)
}

/// This machine, with so many CPUs for the server.
fn here(cpus: usize, server_cpus: usize) -> Machine {
    let (cores, server_cores) = (cpus as u32, server_cpus as u32);
    Machine { cores, server_cores, shared_with_load: true }
}

/// What burns is rare and takes long: only a longer time shows it.
fn effort(quick: bool, burns: bool) -> Effort {
    let nanos = if burns { 60_000_000 } else { 5_000_000 };
    match quick {
        true => Effort { requests: 20_000, nanos: nanos / 2, seeds: 1 },
        false => Effort { requests: 100_000, nanos: 2 * nanos, seeds: 2 },
    }
}

impl Answers {
    fn of(costs: &Costs, quick: bool) -> Self {
        let cores = if quick { vec![1, 4, 16, 64, 104] } else { vec![1, 2, 4, 8, 16, 32, 64, 104] };
        let clients = if quick { vec![1_024] } else { vec![256, 1_024, 16_384] };
        let mut questions = Vec::new();
        for (place, &(_, _, most)) in SHAPES.iter().enumerate() {
            for &clients in clients.iter().filter(|clients| **clients <= most) {
                for burns in [false, true] {
                    let ask = |&cores| Question {
                        place,
                        cores,
                        clients,
                        burns,
                        contention: None,
                        eager: false,
                    };
                    questions.extend(cores.iter().map(ask));
                }
            }
            let (clients, cores) = (clients[clients.len() - 1], 104);
            if clients <= most {
                let ask = |contention| Question {
                    place,
                    cores,
                    clients,
                    burns: false,
                    contention: Some(contention),
                    eager: false,
                };
                questions.extend(CONTENTIONS.map(ask));
            }
        }
        for &clients in &clients {
            for burns in [false, true] {
                let ask = |&cores| Question {
                    place: GROUPS,
                    cores,
                    clients,
                    burns,
                    contention: None,
                    eager: true,
                };
                questions.extend(cores.iter().map(ask));
            }
        }
        let all = in_parallel(&questions, |question| question.answer(costs, quick));
        Self { all, cores, clients }
    }

    fn find(&self, place: usize, cores: u32, clients: usize, burns: bool) -> Option<&Predicted> {
        let fits = |question: &Question| {
            question.contention.is_none()
                && !question.eager
                && question.place == place
                && question.cores == cores
                && question.clients == clients
                && question.burns == burns
        };
        self.all.iter().find(|(question, _)| fits(question)).map(|(_, answer)| answer)
    }

    /// Groups whose workers all take.
    fn find_eager(&self, cores: u32, clients: usize, burns: bool) -> Option<&Predicted> {
        let fits = |question: &Question| {
            question.eager
                && question.cores == cores
                && question.clients == clients
                && question.burns == burns
        };
        self.all.iter().find(|(question, _)| fits(question)).map(|(_, answer)| answer)
    }

    fn raw(&self) -> serde_json::Value {
        let raw = |(question, answer): &(Question, Predicted)| {
            json!({
                "shape": SHAPES[question.place].1,
                "cores": question.cores,
                "clients": question.clients,
                "burns": question.burns,
                "contention": question.contention,
                "eager": question.eager,
                "requests_per_second": answer.throughput.round(),
                "p99": answer.p99,
                "server_cpu_per_request": answer.cpu.round(),
                "pollers": answer.pollers,
            })
        };
        self.all.iter().map(raw).collect()
    }
}

impl Question {
    fn answer(&self, costs: &Costs, quick: bool) -> Predicted {
        let mut costs = costs.clone();
        if let Some(contention) = self.contention {
            costs.contention.value = contention;
        }
        let burn = self.burns.then_some(BURN);
        let load = Load { clients: self.clients, think: THINK, burn };
        let shape = if self.eager { Shape::EagerGroups } else { SHAPES[self.place].0 };
        predict(shape, Machine::of(self.cores), load, &costs, effort(quick, self.burns))
    }
}

impl Pair {
    fn raw(&self) -> serde_json::Value {
        json!({
            "shape": SHAPES[self.place].1,
            "cpus": self.cpus,
            "connections": self.connections,
            "fitted": self.fitted,
            "requests_per_second": [self.throughput.round(), self.model.throughput.round()],
            "server_cpu_per_request": [self.cpu.round(), self.model.cpu.round()],
            "p99": [self.p99, self.model.p99],
        })
    }
}

/// Asks all questions, on as many threads as there are CPUs; answers in their order.
fn in_parallel<Q: Copy + Send + Sync, A: Send>(
    questions: &[Q],
    answer: impl Fn(&Q) -> A + Sync,
) -> Vec<(Q, A)> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    let work = || {
        // Relaxed: each number is drawn once, and nothing else is shared through it.
        while let Some(question) = questions.get(next.fetch_add(1, Ordering::Relaxed)) {
            let answer = answer(question);
            let mut answers = answers.lock().expect("nobody panics with it");
            answers.push((*question, answer));
        }
    };
    thread::scope(|scope| {
        for _ in 1..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    answers.into_inner().expect("nobody panics with it")
}
