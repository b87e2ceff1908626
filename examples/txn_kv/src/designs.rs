//! `designs`: the orders in which data and index can be written, by turns.
//!
//! Two stores are alive together, one of them of the default design, and are loaded in windows of the
//! same length: A B, B A, A B, ... What else happens on the machine meets neighbours alike, so the ratio
//! is taken pair by pair, and told is the median of all pairs.

mod comparison;
mod direct;
use lab::environment;
mod ratio;
mod report;
mod subject;

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use txn_kv::Design;
use txn_kv::load::{Lines, Progress, Until};

use crate::args::Designs as Args;
use crate::sys::raise_descriptor_limit;
use comparison::Comparison;

pub(crate) use comparison::{Case, Level, Window, in_turn};
pub(crate) use environment::Environment;
pub(crate) use ratio::{Ratio, median};
pub(crate) use subject::Subject;

/// What starts this program, for the head of a report.
pub(crate) const STARTED_BY: &str = "cargo run --release -p txn_kv";
/// Revisions of each key, before the load.
const REVISIONS: [u64; 3] = [1, 100, 10_000];
const BASE: Design = Design::Publish;

/// # Errors
///
/// Something is wrong with a store, or there is no place for the results.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    report::heading(args, out)?;
    let mut all = Vec::new();
    let mut done = |comparison: Comparison, out: &mut _| {
        report::row(&comparison, out)?;
        all.push(comparison);
        Ok::<_, Box<dyn Error>>(())
    };
    for design in others() {
        done(grown(args, design)?, out)?;
    }
    for revisions in REVISIONS {
        let case = Case { revisions, keys: args.keys.min(args.records / revisions).max(1) };
        let base = held(args, case, BASE)?;
        for design in others() {
            let other = held(args, case, design)?;
            for level in [Level::Store, Level::Network] {
                done(by_turns(args, (&base, &other), level)?, out)?;
            }
            other.records()?;
        }
        base.records()?;
    }
    match &args.out {
        Some(folder) => report::write(args, &all, folder),
        None => Ok(()),
    }
}

fn others() -> impl Iterator<Item = Design> {
    Design::ALL.into_iter().filter(|&design| design != BASE)
}

/// A store that has all revisions of the case.
fn held(args: &Args, case: Case, design: Design) -> Result<Subject, Box<dyn Error>> {
    let name = format!("{design}: {} revisions of {} keys", case.revisions, case.keys);
    let mut progress = Progress::new(name, Lines::AtTheEnd);
    let subject = Subject::start(args, case, design)?;
    subject.preload(&mut progress)?;
    progress.finish("are there");
    Ok(subject)
}

/// Two stores that stay as they are: what is put beyond that is forgotten between windows.
fn by_turns(
    args: &Args,
    (base, other): (&Subject, &Subject),
    level: Level,
) -> Result<Comparison, Box<dyn Error>> {
    let until = Until::Time(args.window);
    let window = |subject: &Subject| {
        let window = subject.window(level, until)?;
        subject.forget()?;
        Ok(window)
    };
    // What is only done once is not measured.
    window(base)?;
    window(other)?;
    let design = other.design();
    let progress = Progress::new(format!("{level}: {design}"), Lines::AtTheEnd);
    let pairs = in_turn(args.pairs, progress, || window(base), || window(other))?;
    Ok(Comparison { case: other.case(), level, design, pairs })
}

/// Two stores that begin without anything, each time, and get so many revisions of one key.
fn grown(args: &Args, design: Design) -> Result<Comparison, Box<dyn Error>> {
    let case = Case { revisions: 0, keys: 1 };
    let window = |design| {
        let subject = Subject::start(args, case, design)?;
        let window = subject.window(Level::Store, Until::Requests(args.growing))?;
        subject.records()?;
        Ok(window)
    };
    let progress = Progress::new(format!("one key grows: {design}"), Lines::AtTheEnd);
    let pairs = in_turn(args.pairs, progress, || window(BASE), || window(design))?;
    Ok(Comparison { case, level: Level::Store, design, pairs })
}

/// Nanoseconds, or none of nothing.
fn each(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count.max(1) as f64
}

#[cfg(test)]
mod tests;
