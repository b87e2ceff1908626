//! Against what queueing theory knows exactly, and what must hold whatever is simulated.

use super::costs::Costs;
use super::shapes::{Effort, Load, Machine, Shape, predict};
use super::sim::{Length, Seen, simulate};
use super::system::{Arrivals, Burn, Hop, Queue, System, Thread};

/// One queue, `threads` threads with a core each; a job takes 1 µs.
fn station(threads: usize, clients: usize, arrivals: Arrivals, variation: f64) -> System {
    let queue = Queue { batch: 1, crowd: 1, pollers: threads, ..Queue::default() };
    System {
        cores: threads as u32,
        queues: vec![queue],
        threads: vec![Thread { queue: 0, cores: u128::MAX }; threads],
        routes: vec![vec![Hop { queue: 0, cost: 1_000, handler: true }]; clients],
        arrivals,
        variation,
        burn: None,
    }
}

fn run(system: &System) -> Seen {
    simulate(system, 1, Length { requests: 100_000, nanos: 0 })
}

#[track_caller]
fn assert_near(found: f64, expected: f64, tolerance: f64) {
    let error = (found / expected - 1.0).abs();
    assert!(error < tolerance, "{found} is not {expected}");
}

#[test]
fn one_server_with_random_service_waits_as_m_m_1() {
    for load in [0.3, 0.7] {
        let arrivals = Arrivals::Open { between: (1_000.0 / load) as u64 };
        let seen = run(&station(1, 1, arrivals, 1.0));
        assert_near(seen.latencies.mean(), 1_000.0 / (1.0 - load), 0.04);
        // An exponential distribution: the last percent begins at ln 100 means.
        assert_near(seen.p99(), 100_f64.ln() * 1_000.0 / (1.0 - load), 0.06);
    }
}

#[test]
fn one_server_with_constant_service_waits_half_as_long() {
    let load = 0.7;
    let arrivals = Arrivals::Open { between: (1_000.0 / load) as u64 };
    let seen = run(&station(1, 1, arrivals, 0.0));
    assert_near(seen.latencies.mean() - 1_000.0, 1_000.0 * load / (2.0 * (1.0 - load)), 0.04);
}

#[test]
fn a_closed_loop_is_what_mean_value_analysis_says() {
    let think = 5_000.0;
    let (mut at_server, mut expected) = (0.0, 0.0);
    for clients in 1..=12 {
        let response = 1_000.0 * (1.0 + at_server);
        expected = f64::from(clients) / (response + think);
        at_server = expected * response;
    }
    let seen = run(&station(1, 12, Arrivals::Closed { think: think as u64 }, 1.0));
    assert_near(seen.throughput() / 1e9, expected, 0.01);
    // Little: clients are at the server, or think.
    assert_near(seen.throughput() / 1e9 * (seen.latencies.mean() + think), 12.0, 0.01);
}

#[test]
fn four_servers_and_a_closed_loop_are_a_birth_death_process() {
    let (think, clients) = (2_000.0, 12);
    let (mut weight, mut total, mut busy) = (1.0, 1.0, 0.0);
    for present in 1..=clients {
        let servers = f64::from(present.min(4));
        weight *= f64::from(clients - present + 1) / think / (servers / 1_000.0);
        total += weight;
        busy += servers * weight;
    }
    let seen = run(&station(4, 12, Arrivals::Closed { think: think as u64 }, 1.0));
    assert_near(seen.throughput() / 1e9, busy / total / 1_000.0, 0.01);
}

#[test]
fn no_core_rests_while_a_thread_is_ready() {
    // More threads than cores, each with a queue that never runs dry: all cores work all the time.
    let mut system = station(1, 24, Arrivals::Closed { think: 0 }, 1.0);
    system.cores = 2;
    system.queues = vec![system.queues[0]; 3];
    system.threads = (0..3).map(|queue| Thread { queue, cores: 3 }).collect();
    for (client, route) in system.routes.iter_mut().enumerate() {
        route[0].queue = client % 3;
    }
    let seen = run(&system);
    let work: f64 = seen.cpu.iter().sum();
    assert_near(seen.throughput() * work / 1e9, 2.0, 0.001);
    assert_near(work, 1_000.0, 0.01);
}

#[test]
fn what_one_thread_at_a_time_does_bounds_all() {
    let mut system = station(8, 64, Arrivals::Closed { think: 0 }, 0.0);
    system.queues[0].take = 250;
    assert_near(run(&system).throughput(), 4e6, 0.001);
}

#[test]
fn batches_share_the_cost_of_a_poll() {
    let mut system = station(1, 16, Arrivals::Closed { think: 0 }, 0.0);
    system.queues[0] = Queue { batch: 16, poll: 1_600, ..system.queues[0] };
    assert_near(run(&system).cpu[0], 1_100.0, 0.01);
    system.queues[0].batch = 1;
    assert_near(run(&system).cpu[0], 2_600.0, 0.01);
}

#[test]
fn a_wake_up_costs_who_wakes_who_is_woken_and_time() {
    let mut system = station(1, 1, Arrivals::Closed { think: 10_000 }, 0.0);
    system.queues[0] = Queue { wake_delay: 5_000, resume: 500, wake: 300, ..system.queues[0] };
    let seen = run(&system);
    // Nobody pays for the wake-up of who comes from outside.
    assert_eq!(seen.cpu[0], 1_500.0);
    assert_eq!((seen.latencies.min(), seen.p99()), (6_500, 6_503.0));
}

#[test]
fn a_lookout_frees_what_stands_behind_a_burner() {
    let mut system = station(4, 64, Arrivals::Closed { think: 100_000 }, 0.0);
    system.queues[0] = Queue { batch: 16, pollers: 1, ..system.queues[0] };
    system.burn = Some(Burn { chance: 0.001, cost: 5_000_000 });
    let alone = run(&system);
    system.queues[0].lookout = Some(500_000);
    let freed = run(&system);
    let p99 = |seen: &Seen| seen.latencies.value_at_quantile(0.99);
    assert!(p99(&alone) > 4_000_000, "{}", p99(&alone));
    assert!(3 * p99(&freed) < p99(&alone), "{}", p99(&freed));
}

#[test]
fn further_pollers_come_when_a_crowd_waits() {
    // Of 8 clients never 9 wait.
    let mut system = station(4, 8, Arrivals::Closed { think: 0 }, 0.0);
    system.queues[0].crowd = 9;
    assert_near(run(&system).throughput(), 1e6, 0.001);
    system.queues[0].crowd = 1;
    assert_near(run(&system).throughput(), 4e6, 0.001);
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let costs = Costs::example();
    let burn = Some(Burn { chance: 0.01, cost: 100_000 });
    let load = Load { clients: 100, think: 50_000, burn };
    for shape in
        [Shape::Loops, Shape::Groups, Shape::EagerGroups, Shape::HandOver, Shape::ThreadEach]
    {
        let effort = Effort { requests: 5_000, nanos: 0, seeds: 2 };
        let once = predict(shape, Machine::of(6), load, &costs, effort);
        let again = predict(shape, Machine::of(6), load, &costs, effort);
        assert_eq!(format!("{once:?}"), format!("{again:?}"));
        assert!(once.throughput > 0.0 && once.p99 > 0.0);
    }
}

#[test]
fn a_saturated_loop_for_each_core_does_what_its_costs_allow() {
    let costs = Costs::example();
    let machine = Machine::of(4);
    let load = Load { clients: 4_000, think: 0, burn: None };
    let effort = Effort { requests: 100_000, nanos: 0, seeds: 1 };
    let found = predict(Shape::Loops, machine, load, &costs, effort);
    // Request, event, and a wait for each 64 of them.
    let cost = 6_000.0 + 100.0 + 400.0 / 64.0;
    assert_near(found.cpu, cost, 0.01);
    assert_near(found.throughput, 4e9 / cost, 0.02);
}
