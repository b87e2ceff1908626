//! Pools under threads: this crate's beside one mutex around a multi-map, `r2d2` and `deadpool`.
//!
//! They follow tests 2 and 3 of MDEV-26332: 16 backends, 300 threads, connections that are held for 1 ms.
//! Each operation takes one connection of a backend chosen at random (test 2), or four of different ones, in
//! the order of their keys (test 3). Threads, backends and time are real, connections are not. All is one
//! process: windows A B C D D C B A, each with threads of its own.

mod designs;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use lab::cpu;
use lab::environment::Environment;
use lab::meter::machine_busy;
use lab::ratio::Spread;
use lab::table::markdown;
use serde::Serialize;

use crate::COMMAND;
use crate::experiment::Plan;
use crate::table::time;

use designs::{BASE, Design};

const BACKENDS: usize = 16;
const THREADS: usize = 300;
const HOLD: Duration = Duration::from_millis(1);
/// Time without an operation after which a design counts as stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// Name, and connections of each operation.
const TESTS: [(&str, usize); 2] = [("2: one connection", 1), ("3: four connections", 4)];

#[derive(Debug, Serialize)]
struct Outcome {
    environment: Environment,
    backends: usize,
    threads: usize,
    hold_micros: u128,
    window_millis: u128,
    experiments: Vec<Measured>,
}

#[derive(Debug, Serialize)]
struct Measured {
    test: &'static str,
    capacity: usize,
    /// Operations per second if every connection were held all the time.
    saturation: f64,
    designs: Vec<Lane>,
}

#[derive(Debug, Serialize)]
struct Lane {
    name: &'static str,
    /// Values in the order of the windows, two for each round.
    operations_per_second: Vec<f64>,
    cpu_nanos_per_operation: Vec<f64>,
    /// Ratios of the rounds to the base.
    ratios: Vec<f64>,
}

/// Measures, prints, and writes the raw numbers down.
///
/// # Errors
/// A thread cannot be started, or the file cannot be written.
pub fn run(
    plan: &Plan,
    capacities: &[usize],
    json: &Path,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let (began, busy, own) = (Instant::now(), machine_busy()?, cpu::of_process());
    let mut experiments = Vec::new();
    for (test, at_once) in TESTS {
        for &capacity in capacities {
            experiments.push(measure(plan, test, at_once, capacity)?);
        }
    }
    let own = cpu::of_process().saturating_sub(own);
    let others = (machine_busy()?.saturating_sub(busy)).saturating_sub(own);
    let others = others.as_secs_f64() / began.elapsed().as_secs_f64();
    let outcome = Outcome {
        environment: Environment::of(COMMAND),
        backends: BACKENDS,
        threads: THREADS,
        hold_micros: HOLD.as_micros(),
        window_millis: plan.window.as_millis(),
        experiments,
    };
    print(&outcome, plan.cycles, others, out)?;
    if let Some(folder) = json.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(json, serde_json::to_string(&outcome)? + "\n")?;
    writeln!(out, "Raw numbers: {}", json.display())?;
    Ok(())
}

fn measure(
    plan: &Plan,
    test: &'static str,
    at_once: usize,
    capacity: usize,
) -> Result<Measured, Box<dyn Error>> {
    let designs = designs::all(BACKENDS, capacity)?;
    let lane = |design: &Arc<dyn Design>| Lane {
        name: design.name(),
        operations_per_second: Vec::new(),
        cpu_nanos_per_operation: Vec::new(),
        ratios: Vec::new(),
    };
    let mut lanes: Vec<_> = designs.iter().map(lane).collect();
    let there: Vec<usize> = (0..designs.len()).collect();
    for _ in 0..plan.cycles {
        for &place in there.iter().chain(there.iter().rev()) {
            let (operations, cpu) = window(&designs[place], at_once, plan.window)?;
            lanes[place].operations_per_second.push(operations);
            lanes[place].cpu_nanos_per_operation.push(cpu);
        }
        let rate = |lane: &Lane| lane.operations_per_second.iter().rev().take(2).sum::<f64>();
        let base = rate(&lanes[BASE]);
        for lane in &mut lanes {
            lane.ratios.push(rate(lane) / base);
        }
    }
    let held = (BACKENDS * capacity / at_once).min(THREADS) as f64;
    Ok(Measured { test, capacity, saturation: held / HOLD.as_secs_f64(), designs: lanes })
}

/// Operations per second, and the CPU time of each in nanoseconds.
fn window(
    design: &Arc<dyn Design>,
    at_once: usize,
    length: Duration,
) -> Result<(f64, f64), Box<dyn Error>> {
    let (start, end) = (Arc::new(Barrier::new(THREADS + 1)), Arc::new(AtomicBool::new(false)));
    let operations = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (start, end) = (Arc::clone(&start), Arc::clone(&end));
            let (design, operations) = (Arc::clone(design), Arc::clone(&operations));
            let operate = move || {
                let mut random = fastrand::Rng::with_seed(number as u64);
                start.wait();
                while !end.load(Relaxed) {
                    let backends = choose(&mut random, at_once);
                    hold(&*design, &backends);
                    operations.fetch_add(1, Relaxed);
                }
            };
            thread::Builder::new().stack_size(128 << 10).spawn(operate)
        })
        .collect::<Result<_, _>>()?;
    start.wait();
    // All threads wake up in the first moments, which do not count.
    thread::sleep(length / 10);
    let (began, before) = (Instant::now(), operations.load(Relaxed));
    let used = cpu::of_process();
    thread::sleep(length);
    // On a busy machine the threads may not even have begun.
    while operations.load(Relaxed) == before && began.elapsed() < PATIENCE {
        thread::sleep(length);
    }
    let (took, count) = (began.elapsed(), operations.load(Relaxed) - before);
    let used = cpu::of_process().saturating_sub(used);
    end.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| format!("a thread of {} panicked", design.name()))?;
    }
    assert!(count > 0, "{} does nothing", design.name());
    design.assert_bounded();
    Ok((count as f64 / took.as_secs_f64(), used.as_nanos() as f64 / count as f64))
}

/// Chooses different backends, in order.
fn choose(random: &mut fastrand::Rng, count: usize) -> Vec<usize> {
    let mut chosen = random.choose_multiple(0..BACKENDS, count);
    chosen.sort_unstable();
    chosen
}

/// Takes a connection of each, then works.
fn hold(design: &dyn Design, backends: &[usize]) {
    match backends {
        [] => thread::sleep(HOLD),
        [first, rest @ ..] => design.with(*first, &mut || hold(design, rest)),
    }
}

fn print(
    outcome: &Outcome,
    rounds: usize,
    others: f64,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    writeln!(out, "{}", outcome.environment)?;
    let mut table = markdown(&[
        "test",
        "capacity",
        "pool",
        "operations/s",
        "ratio",
        "of saturation",
        "CPU/operation",
    ]);
    for measured in &outcome.experiments {
        for (place, lane) in measured.designs.iter().enumerate() {
            let rate = Spread::of(lane.operations_per_second.clone()).ok_or("no window")?;
            let cpu = Spread::of(lane.cpu_nanos_per_operation.clone()).ok_or("no window")?;
            let ratio = Spread::of(lane.ratios.clone()).ok_or("no round")?;
            table.add_row([
                measured.test.to_owned(),
                measured.capacity.to_string(),
                lane.name.to_owned(),
                format!("{:.0}", rate.median),
                if place == BASE { "–".to_owned() } else { ratio.to_string() },
                format!("{:.0} %", rate.median / measured.saturation * 100.0),
                time(cpu.median),
            ]);
        }
    }
    writeln!(out, "{table}")?;
    writeln!(
        out,
        "\nMedians of {rounds} rounds of two {} ms windows each; [quartiles]; ratios of each round to \
         the first pool.\nOther work took up {others:.2} of {} CPUs meanwhile.\n",
        outcome.window_millis, outcome.environment.cpus
    )?;
    Ok(())
}
