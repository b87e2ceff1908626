//! Pools under threads, in the cells that MDEV-26332 published for the pool of Spider.
//!
//! 16 backends; each operation takes one connection of a backend chosen at random and holds it for 1 ms.
//! Threads, backends and time are real, connections are not. All is one process. A round has one window of
//! each pool, in random order, with threads of its own.

mod designs;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{process, thread};

use hdrhistogram::Histogram;
use lab::cpu;
use lab::environment::Environment;
use lab::meter::machine_busy;
use lab::ratio::Spread;
use lab::table::markdown;
use serde::{Deserialize, Serialize};

use crate::COMMAND;
use crate::charts::{self, FEWER_CORES, HERE, HERE_POOL, Line, Panel};
use crate::experiment::{Plan, progress};
use crate::perf::{self, Frame, Sample};
use crate::table::{or_dash, time};

use designs::{AFTER, BEFORE, Design, OURS};

const BACKENDS: usize = 16;
/// Threads of the cells whose capacity differs.
const THREADS: usize = 300;
const HOLD: Duration = Duration::from_millis(1);
/// Time without an operation after which a design counts as stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// Window in which samples are taken.
const SAMPLED: Duration = Duration::from_secs(2);
/// Bounds of the latencies that are kept, in nanoseconds. They are kept to 1 %.
const LATENCIES: (u64, u64) = (10_000, 60_000_000_000);

/// A cell of the published tables.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
struct Cell {
    threads: usize,
    /// Connections of each backend.
    capacity: usize,
    /// Operations per second of the pools [`BEFORE`] and [`AFTER`] the change.
    operations: [f64; 2],
    /// The p99 after the change, divided by the one before.
    p99_ratio: Option<f64>,
}

const CELLS: [Cell; 8] = [
    Cell::new(THREADS, 100, [124_912.0, 125_323.0], Some(0.898)),
    Cell::new(THREADS, 50, [124_805.0, 125_408.0], None),
    Cell::new(THREADS, 20, [124_437.0, 125_411.0], None),
    Cell::new(THREADS, 10, [98_682.0, 117_253.0], None),
    Cell::new(THREADS, 5, [83_200.0, 98_598.0], None),
    Cell::new(50, 100, [57_169.0, 57_671.0], Some(1.0)),
    Cell::new(100, 100, [99_769.0, 99_938.0], Some(1.0)),
    Cell::new(200, 100, [122_404.0, 123_154.0], Some(0.964)),
];

#[derive(Debug, Serialize)]
struct Outcome {
    environment: Environment,
    backends: usize,
    hold_micros: u128,
    window_millis: u128,
    cells: Vec<Measured>,
}

/// Part of an [`Outcome`] that the chart is drawn from.
#[derive(Debug, Deserialize)]
struct Record {
    cells: Vec<Measured>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Measured {
    published: Cell,
    designs: Vec<Lane>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Lane {
    #[serde(skip_deserializing)]
    name: &'static str,
    /// A value for each round.
    windows: Vec<Window>,
    /// Of one more window, which is longer. `None`: `perf` is missing or not allowed.
    locks: Option<Locks>,
}

/// Samples of CPUs that ran this process, and those in locks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct Locks {
    samples: usize,
    /// In functions of locks and condition variables, which are those for waiting and waking: a lock that
    /// is free is taken by code that is inlined.
    functions: usize,
    /// In the kernel, below a call of futex.
    futex: usize,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Window {
    operations_per_second: f64,
    cpu_nanos_per_operation: f64,
    /// Time of an operation: the wait for a connection, and the 1 ms.
    p99_nanos: u64,
}

/// Measures, prints, and writes the raw numbers down.
///
/// # Errors
/// A thread cannot be started, or the file cannot be written.
pub fn run(plan: &Plan, json: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let environment = Environment::of(COMMAND);
    let (began, busy, own) = (Instant::now(), machine_busy()?, cpu::of_process());
    let mut cells = Vec::new();
    for cell in CELLS.iter().filter(|cell| !plan.quick || cell.capacity == 5) {
        cells.push(measure(plan, *cell)?);
    }
    let own = cpu::of_process().saturating_sub(own);
    let others = (machine_busy()?.saturating_sub(busy)).saturating_sub(own);
    let others = others.as_secs_f64() / began.elapsed().as_secs_f64();
    let outcome = Outcome {
        environment,
        backends: BACKENDS,
        hold_micros: HOLD.as_micros(),
        window_millis: plan.window.as_millis(),
        cells,
    };
    print(&outcome, plan.cycles, others, out)?;
    if let Some(folder) = json.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(json, serde_json::to_string(&outcome)? + "\n")?;
    writeln!(out, "Raw numbers: {}", json.display())?;
    Ok(())
}

/// The chart of a record: operations by capacity, divided by those of the pool [`BEFORE`] the change.
///
/// # Errors
/// The record has no `pool.json`, or it lacks a cell.
pub fn panel(record: &Path) -> Result<Panel, String> {
    let Record { cells } = charts::read(record, "pool.json")?;
    let find = |cell: &Cell| {
        let found = cells.iter().find(|measured| measured.published == *cell);
        found.ok_or_else(|| format!("pool.json has no {cell:?}"))
    };
    let cells = CELLS.iter().rev().filter(|cell| cell.threads == THREADS);
    let cells = cells.map(find).collect::<Result<Vec<_>, _>>()?;
    let line = |look, ratio: &dyn Fn(&Measured) -> Option<Spread>| {
        let points = cells.iter().filter_map(|cell| Some((cell.published.capacity, ratio(cell)?)));
        Line { look, points: points.collect() }
    };
    let here = |lane| move |cell: &Measured| cell.ratio(lane, Window::operations);
    let published = |cell: &Measured| {
        let operations = cell.published.operations;
        Spread::of(vec![operations[AFTER] / operations[BEFORE]])
    };
    Ok(Panel {
        title: format!("Pool under {THREADS} threads: a mutex each"),
        x_title: "capacity, connections of each backend",
        y_title: "operations/s, ratio to one mutex".to_owned(),
        x_ticks: cells.iter().map(|cell| cell.published.capacity).collect(),
        y_ticks: &[0.8, 0.9, 1.0, 1.1, 1.2],
        lines: vec![
            line(FEWER_CORES, &published),
            line(HERE, &here(AFTER)),
            line(HERE_POOL, &here(OURS)),
        ],
    })
}

fn measure(plan: &Plan, cell: Cell) -> Result<Measured, Box<dyn Error>> {
    let designs = designs::all(BACKENDS, cell.capacity)?;
    let lane =
        |design: &Arc<dyn Design>| Lane { name: design.name(), windows: Vec::new(), locks: None };
    let mut lanes: Vec<_> = designs.iter().map(lane).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let bar = progress(plan.cycles * lanes.len());
    for _ in 0..plan.cycles {
        let mut order: Vec<_> = (0..designs.len()).collect();
        random.shuffle(&mut order);
        for place in order {
            let (threads, capacity, name) = (cell.threads, cell.capacity, lanes[place].name);
            bar.set_message(format!("{threads} threads, capacity {capacity}: {name}"));
            lanes[place].windows.push(window(&designs[place], threads, plan.window)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for (lane, design) in lanes.iter_mut().zip(&designs) {
        let measured = || window(design, cell.threads, SAMPLED).map(drop);
        lane.locks = perf::samples(process::id(), measured)?.map(|samples| Locks::of(&samples));
    }
    Ok(Measured { published: cell, designs: lanes })
}

fn window(
    design: &Arc<dyn Design>,
    threads: usize,
    length: Duration,
) -> Result<Window, Box<dyn Error>> {
    let start = Arc::new(Barrier::new(threads + 1));
    let [measures, end] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let operations = Arc::new(AtomicU64::new(0));
    let all = Arc::new(Mutex::new(latencies()?));
    let threads: Vec<_> = (0..threads)
        .map(|number| {
            let (start, end) = (Arc::clone(&start), Arc::clone(&end));
            let measures = Arc::clone(&measures);
            let (design, operations) = (Arc::clone(design), Arc::clone(&operations));
            let (mut own, all) = (latencies()?, Arc::clone(&all));
            let operate = move || {
                let mut random = fastrand::Rng::with_seed(number as u64);
                start.wait();
                while !end.load(Relaxed) {
                    let began = Instant::now();
                    design.with(random.usize(..BACKENDS), &mut || thread::sleep(HOLD));
                    if measures.load(Relaxed) {
                        operations.fetch_add(1, Relaxed);
                        own.saturating_record(began.elapsed().as_nanos() as u64);
                    }
                }
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.add(own).expect("they have the same bounds");
            };
            Ok(thread::Builder::new().stack_size(128 << 10).spawn(operate)?)
        })
        .collect::<Result<_, Box<dyn Error>>>()?;
    start.wait();
    // All threads wake up in the first moments, which do not count.
    thread::sleep(length / 10);
    let (began, used) = (Instant::now(), cpu::of_process());
    measures.store(true, Relaxed);
    thread::sleep(length);
    // On a busy machine the threads may not even have begun.
    while operations.load(Relaxed) == 0 && began.elapsed() < PATIENCE {
        thread::sleep(length);
    }
    measures.store(false, Relaxed);
    let (took, count) = (began.elapsed(), operations.load(Relaxed));
    let used = cpu::of_process().saturating_sub(used);
    end.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| format!("a thread of {} panicked", design.name()))?;
    }
    assert!(count > 0, "{} does nothing", design.name());
    design.assert_bounded();
    let p99_nanos = all.lock().unwrap_or_else(PoisonError::into_inner).value_at_quantile(0.99);
    Ok(Window {
        operations_per_second: count as f64 / took.as_secs_f64(),
        cpu_nanos_per_operation: used.as_nanos() as f64 / count as f64,
        p99_nanos,
    })
}

fn latencies() -> Result<Histogram<u64>, hdrhistogram::CreationError> {
    Histogram::new_with_bounds(LATENCIES.0, LATENCIES.1, 2)
}

impl Locks {
    fn of(samples: &[Sample]) -> Self {
        let count = |is: &dyn Fn(&Sample) -> bool| samples.iter().filter(|one| is(one)).count();
        let is_futex =
            |frame: &Frame| frame.object.starts_with('[') && frame.symbol.contains("futex");
        Self {
            samples: samples.len(),
            functions: count(&|sample| sample.frames[0].symbol.contains("std::sys::sync::")),
            futex: count(&|sample| sample.frames.iter().any(is_futex)),
        }
    }

    fn percent(&self, count: usize) -> String {
        format!("{:.1} %", count as f64 / self.samples.max(1) as f64 * 100.0)
    }
}

impl Measured {
    fn median(&self, lane: usize, metric: impl Fn(&Window) -> f64) -> Option<f64> {
        let windows = self.designs[lane].windows.iter();
        Spread::of(windows.map(metric).collect()).map(|spread| spread.median)
    }

    /// Ratio of each round to the pool before the change.
    fn ratio(&self, lane: usize, metric: impl Fn(&Window) -> f64) -> Option<Spread> {
        let pairs = self.designs[lane].windows.iter().zip(&self.designs[BEFORE].windows);
        let ratios = pairs.map(|(window, base)| metric(window) / metric(base));
        Spread::of(ratios.collect()).filter(|_| lane != BEFORE)
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
        "threads",
        "capacity",
        "pool",
        "published",
        "ratio",
        "p99, ratio",
        "here",
        "ratio",
        "p99",
        "p99, ratio",
        "CPU/operation",
        "CPU, ratio",
        "in locks",
        "in futex",
    ]);
    for measured in &outcome.cells {
        let Cell { threads, capacity, operations, p99_ratio } = measured.published;
        for (place, lane) in measured.designs.iter().enumerate() {
            let is_after = place == AFTER;
            let published = operations[AFTER] / operations[BEFORE];
            let ratio = |metric: fn(&Window) -> f64| {
                Some(measured.ratio(place, metric)?.ratio().to_string())
            };
            let row = [
                Some(threads.to_string()),
                Some(capacity.to_string()),
                Some(lane.name.to_owned()),
                operations.get(place).map(|published| format!("{published:.0}")),
                is_after.then(|| format!("{published:.3}")),
                p99_ratio.filter(|_| is_after).map(|ratio| format!("{ratio:.3}")),
                measured.median(place, Window::operations).map(|value| format!("{value:.0}")),
                ratio(Window::operations),
                measured.median(place, Window::p99).map(time),
                ratio(Window::p99),
                measured.median(place, Window::cpu).map(time),
                ratio(Window::cpu),
                lane.locks.map(|locks| locks.percent(locks.functions)),
                lane.locks.map(|locks| locks.percent(locks.futex)),
            ];
            table.add_row(row.map(or_dash));
        }
    }
    writeln!(out, "{table}")?;
    writeln!(
        out,
        "\nMedians of {rounds} rounds of {} ms windows; ratios of each round to the pool before the \
         change, with the interval that holds the true median with at least 95 % confidence. \
         *In locks* and *in futex* are shares of the samples of one more window of 2 s: functions of locks outside \
         of the kernel, and all that the kernel does for futexes.\nOther work took {others:.2} of {} CPUs meanwhile.\n",
        outcome.window_millis, outcome.environment.cpus
    )?;
    Ok(())
}

impl Window {
    fn operations(&self) -> f64 {
        self.operations_per_second
    }

    fn p99(&self) -> f64 {
        self.p99_nanos as f64
    }

    fn cpu(&self) -> f64 {
        self.cpu_nanos_per_operation
    }
}

impl Cell {
    const fn new(
        threads: usize,
        capacity: usize,
        operations: [f64; 2],
        p99_ratio: Option<f64>,
    ) -> Self {
        Self { threads, capacity, operations, p99_ratio }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_in_locks_are_counted_by_their_functions() {
        let frame = |&(symbol, object): &(&str, &str)| Frame {
            symbol: symbol.to_owned(),
            object: object.to_owned(),
        };
        let lock = ("std::sys::sync::mutex::futex::Mutex::lock_contended", "/tmp/compare");
        let (wait, sleep) =
            (("futex_wait", "[kernel.kallsyms]"), ("do_nanosleep", "[kernel.kallsyms]"));
        let stacks = [&[lock][..], &[wait, lock], &[sleep], &[("run", "/tmp/compare"), lock]];
        let samples = stacks.map(|frames| Sample { frames: frames.iter().map(frame).collect() });
        let Locks { samples, functions, futex } = Locks::of(&samples);
        assert_eq!((samples, functions, futex), (4, 1, 1));
    }
}
