//! A run: phase after phase, and the verdict.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};

use fastrand::Rng;
use lab::load::sys::raise_descriptor_limit;

use crate::args::Options;
use crate::hazard;
use crate::phase::{self, Plan};
use crate::report::Report;
use crate::world::World;

/// Length of the quiet load before the first phase. The state of the servers after it is the base.
const WARM_UP: Duration = Duration::from_secs(1);

/// Runs all phases.
///
/// # Errors
/// The run found problems, which are in the report.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let seed = options.seed;
    writeln!(out, "seed {seed}")?;
    let done = soak(options, out);
    if done.is_err() {
        writeln!(out, "FAILED, with --seed {seed}")?;
        out.flush()?;
    }
    done
}

fn soak(options: &Options, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut world = World::start()?;
    let quiet =
        Plan { time: WARM_UP, seed: options.seed, most_peers: 0, most_away: Duration::ZERO };
    phase::run(&mut world, &[], quiet)?;
    // Time for the servers to close the connections that were cut at the end of the quiet load.
    std::thread::sleep(WARM_UP);
    world.take_base()?;
    let mut report = Report::new(options, &world);
    report.heading(out)?;
    if let Err(error) = phases(options, &mut world, &mut report, out) {
        report.stopped(&*error);
    }
    let problems = report.finish(&world, out)?;
    if let Some(path) = &options.out {
        std::fs::write(path, report.markdown(&world))?;
    }
    match problems {
        0 => Ok(()),
        count => Err(format!("{count} things were wrong").into()),
    }
}

/// Runs round after round until the time is over, or one round without a time.
fn phases(
    options: &Options,
    world: &mut World,
    report: &mut Report,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let (began, mut random) = (Instant::now(), Rng::with_seed(options.seed));
    for round in 0.. {
        let sizes = if options.minutes.is_some() { 2..=5 } else { 20..=20 };
        for items in hazard::mix(&mut random, sizes) {
            if options.minutes.is_some_and(|time| began.elapsed() >= time) {
                return Ok(());
            }
            let outcome = phase::run(world, &items, plan(options, &mut random))?;
            report.phase(began.elapsed(), round, &items, &outcome, out)?;
        }
        if options.minutes.is_none() {
            break;
        }
    }
    Ok(())
}

fn plan(options: &Options, random: &mut Rng) -> Plan {
    let seed = random.u64(..1 << 40);
    match options.minutes {
        None => Plan {
            time: Duration::from_millis(800),
            seed,
            most_peers: 12,
            most_away: Duration::from_millis(300),
        },
        Some(_) => Plan {
            time: Duration::from_millis(random.u64(4000..8000)),
            seed,
            most_peers: 60,
            most_away: Duration::from_secs(3),
        },
    }
}
