//! Expectations of machines that are not here: a simulation, fitted to this one, and asked about 64 and 104
//! cores.

use std::error::Error;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use baselines::epoll::{self, Epoll};
use lab::table::markdown;
use serde_json::json;

use super::Suite;
use crate::experiment::{Experiment, Lane, Plan};
use crate::measured::{Measured, Window};
use crate::model::sim::Length;
use crate::model::{Costs, Load, Predicted, Shape, predict};
use crate::report::Section;
use crate::table::{CPU, time};
use crate::workload::{Frames, Workload};

pub const SUITE: Suite =
    Suite { name: "model", question: "What is to be expected of 64 and of 104 cores?", run };

/// Shapes, and their names on the page.
const SHAPES: [(Shape, &str); 2] = [(Shape::Loops, "limit"), (Shape::Groups, "epoll-group")];
/// Servers that the costs are fitted to.
const SERVERS: [&str; 2] = ["limit:cpus=1", "epoll-group:cpus=1"];
const BARE: usize = 0;
const OURS: usize = 1;
/// Network there and back and the client's work.
const THINK: u64 = 100_000;
/// One request in 500 burns 2 ms: as much CPU time in all as the light ones take.
const BURN: (f64, u64) = (0.002, 2_000_000);

const TEXT: &str = "\
A simulation of queues, the threads that serve them and the cores that these need (`src/model/sim.rs`). Its \
tests hold it against M/M/1 and birth-death processes of one and four servers. It knows a loop for each core \
(`limit`), and groups of 4 workers that share an epoll (`epoll-group`). A worker whose batch lasts 20 µs or \
longer first wakes another one to poll, if a trial shows that this gains 15 %. Costs are fitted to these \
servers on one CPU, with 1 and 256 connections; contention and variation are assumed. Its curves say how the \
shapes compare, and not what a machine will do.

Clients are 100 µs away on average. Cells are requests per second and p99. A star marks groups \
whose workers share batches.";

const ASSUMPTIONS: &str = "\
### Assumptions

`compare --only scaling,model` on a machine with more CPUs gives the numbers that would contradict them.

1. The kernel's part of a request costs the same on every core, but for the contention.
2. Threads that take from one epoll meet at nothing but the time of each event.
3. A trial finds out whether sharing gains 15 %. It does not see that requests would be answered sooner.
4. Connections fall to loops and groups by chance.
5. Threads run anywhere and to the end of their slice (3 ms), a free core is found at once, and moving costs \
nothing.
6. The watchdog sees a stuck worker between 0.5 and 1 ms after it began; then all workers take one event at a \
time until it is done. The 20 ms for which a group stays open after that are left out.
7. No memory is missed.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let experiment = |connections: usize| {
        let workload = Workload::frames(Frames::plain(connections));
        let lanes = SERVERS.map(|server| Lane::echo(server, workload.clone()));
        let experiment = Experiment::new(format!("model, {connections} connections"), lanes);
        experiment.run(&Plan { counts_syscalls: false, ..*plan })
    };
    let (one, many) = (experiment(1)?, experiment(256)?);
    let costs = fit(&one, &many, epoll_costs()?);
    let mut blocks = vec![TEXT.to_owned(), cost_table(&costs)];
    let mut predictions = Vec::new();
    for clients in if plan.quick { vec![1_024] } else { vec![256, 1_024, 16_384] } {
        for (what, burn) in [("", None), (", one request in 500 burns 2 ms", Some(BURN))] {
            let load = Load { clients, think: THINK, burn };
            let (table, raw) = predictions_of(load, &costs, plan.quick);
            blocks.push(format!("### {clients} connections{what}\n\n{table}"));
            predictions.extend(raw);
        }
    }
    blocks.push(ASSUMPTIONS.to_owned());
    let raw = json!({ "costs": costs, "experiments": [one, many], "predictions": predictions });
    Ok(Section::new("Model", blocks, raw))
}

/// Costs from servers on one CPU. With one connection each request finds its server asleep; the difference
/// to a request among many is the cost of sleeping and waking up.
fn fit(one: &Measured, many: &Measured, (poll, event): (f64, f64)) -> Costs {
    let seen = |measured: &Measured, lane: usize, metric: fn(&Window) -> f64| {
        measured.values(lane, metric).map_or(0.0, |spread| spread.median)
    };
    // A batch shares its poll.
    let request = |cpu: f64, batch: f64| (cpu - event - poll / batch).max(0.0);
    let resume = |cpu: f64, request: f64| (cpu - request - event - poll).max(0.0);
    let bare = request(seen(many, BARE, CPU), 64.0);
    let group = request(seen(many, OURS, CPU), 16.0);
    // Server and client wake up once each.
    let latency = seen(one, BARE, |window| window.p50 as f64);
    let client = seen(one, BARE, |window| window.client_cpu_per_request);
    Costs {
        request: bare,
        group_request: group,
        poll,
        event,
        resume: resume(seen(one, BARE, CPU), bare),
        group_resume: resume(seen(one, OURS, CPU), group),
        delay: (latency - seen(one, BARE, CPU) - client).max(0.0) / 2.0,
        contention: 0.002,
        variation: 0.3,
    }
}

fn cost_table(costs: &Costs) -> String {
    let mut table = markdown(&["cost", "value"]);
    for (name, cost) in [
        ("request, bare loop", costs.request),
        ("request, group", costs.group_request),
        ("one epoll_wait", costs.poll),
        ("each event of it, one thread at a time", costs.event),
        ("sleep and wake up, bare loop", costs.resume),
        ("sleep and wake up, group", costs.group_resume),
        ("from event to running", costs.delay),
    ] {
        table.add_row([name.to_owned(), time(cost)]);
    }
    for (name, part) in
        [("added by each further core", costs.contention), ("part that varies", costs.variation)]
    {
        table.add_row([name.to_owned(), format!("{:.1} %", part * 100.0)]);
    }
    format!("### Costs\n\n{table}")
}

/// A row for each number of cores.
fn predictions_of(load: Load, costs: &Costs, quick: bool) -> (String, Vec<serde_json::Value>) {
    let mut table = markdown(&["cores", SHAPES[0].1, SHAPES[1].1]);
    let mut raw = Vec::new();
    let cores = if quick { vec![4, 16, 64, 104] } else { vec![1, 2, 4, 8, 16, 32, 64, 104] };
    for cores in cores {
        let mut row = vec![cores.to_string()];
        for (shape, name) in SHAPES {
            let Predicted { throughput, cpu, p99, shares } =
                predicted(shape, cores, load, costs, quick);
            let text = format!("{:.2} M, {}", throughput / 1e6, time(p99));
            row.push(if shares { text + " \\*" } else { text });
            raw.push(json!({
                "shape": name, "cores": cores, "clients": load.clients,
                "burns": load.burn.is_some(), "requests_per_second": throughput.round(),
                "p99": p99, "server_cpu_per_request": cpu.round(), "shares": shares,
            }));
        }
        table.add_row(row);
    }
    (table.to_string(), raw)
}

/// Handlers that burn are rare and take long, so only a longer time shows them.
fn predicted(shape: Shape, cores: usize, load: Load, costs: &Costs, quick: bool) -> Predicted {
    let nanos = if load.burn.is_some() { 60_000_000 } else { 5_000_000 };
    let (length, seeds) = match quick {
        true => (Length { requests: 20_000, nanos: nanos / 2 }, 1),
        false => (Length { requests: 100_000, nanos: 2 * nanos }, 2),
    };
    predict(shape, cores, load, costs, length, seeds)
}

/// Nanoseconds of an `epoll_wait` that finds nothing, and of each event in one. They are the least of some
/// batches, because other work on the machine only adds.
fn epoll_costs() -> Result<(f64, f64), Box<dyn Error>> {
    const EVENTS: usize = 16;
    const CALLS: u32 = 500;
    let smallest = |epoll: &Epoll, expected: usize| {
        let mut events = epoll::events::<EVENTS>();
        let batch = |_| {
            let began = Instant::now();
            for _ in 0..CALLS {
                assert_eq!(epoll.wait(&mut events, 0).expect("a wait"), expected);
            }
            began.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        (0..20).map(batch).fold(f64::INFINITY, f64::min)
    };
    let (idle, busy) = (Epoll::new()?, Epoll::new()?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut streams = Vec::new();
    for _ in 0..EVENTS {
        let mut from = TcpStream::connect(listener.local_addr()?)?;
        let (to, _) = listener.accept()?;
        // Level-triggered and never read, so each wait finds it.
        busy.add(&to, libc::EPOLLIN)?;
        from.write_all(&[1])?;
        streams.push((from, to));
    }
    let (poll, full) = (smallest(&idle, 0), smallest(&busy, EVENTS));
    Ok((poll, (full - poll).max(0.0) / EVENTS as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::measured;
    use crate::model::tests::RECORDED;

    #[test]
    fn the_fit_takes_the_shares_of_polls_and_sleeps_apart() {
        // 1 000 and 1 640 ns among many, 5 000 and 6 000 ns alone; a client without CPU time, 1 µs.
        let (many, one) =
            (measured(&[[1000.0; 5], [1640.0; 5]]), measured(&[[500.0; 5], [6000.0; 5]]));
        let costs = fit(&one, &many, (640.0, 100.0));
        assert_eq!((costs.request, costs.group_request), (890.0, 1500.0));
        assert_eq!((costs.resume, costs.group_resume), (0.0, 3760.0));
        assert_eq!(costs.delay, 250.0);
        let (poll, event) = epoll_costs().unwrap();
        assert!(poll > 0.0 && event.is_finite());
    }

    #[test]
    fn every_question_has_its_place_on_the_page() {
        assert!(cost_table(&RECORDED).contains("| 7.96 µs |"));
        let load = Load { clients: 32, think: THINK, burn: None };
        let (table, raw) = predictions_of(load, &RECORDED, true);
        assert_eq!((table.lines().count(), raw.len()), (2 + 4, 8), "{table}");
    }
}
