//! `designs`: compares the orders in which data and index can be written.
//!
//! Two stores are alive together, one of them of the default design, and are loaded in windows of the
//! same length: A B, B A, A B, ... Other work of the machine disturbs neighbouring windows alike, so the
//! ratio is taken pair by pair, and the result is the median of all pairs.

mod direct;
mod pairs;
mod report;
mod subject;

use std::error::Error;
use std::fmt;
use std::io::Write;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use txn_kv::Design;
use txn_kv::load::{Lines, Progress, Until};

use crate::args::Designs as Args;

pub(crate) use pairs::{Pairs, Window};
pub(crate) use subject::{Setup, Subject};

/// Content of a store before the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Revisions of each key; 0 for a store that begins empty.
    pub(crate) revisions: u64,
    pub(crate) keys: u64,
}

/// Origin of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Threads that call the store.
    Store,
    /// Sessions over loopback.
    Network,
}

/// A design beside the default.
#[derive(Clone, Debug)]
struct Comparison {
    case: Case,
    level: Level,
    design: Design,
    pairs: Pairs,
}

/// Command that starts this program, for the head of a report.
pub(crate) const STARTED_BY: &str = "cargo run --release -p txn_kv";
/// Revisions of each key, before the load.
const REVISIONS: [u64; 3] = [1, 100, 10_000];
const BASE: Design = Design::Publish;

/// # Errors
///
/// A store is damaged or does not answer, or the results cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut all = Vec::new();
    for design in compared() {
        all.push(grown(args, design)?);
    }
    for revisions in REVISIONS {
        let keys = args.puts.key_space_size.min(args.records / revisions).max(1);
        let case = Case { revisions, keys };
        let base = held(args, case, BASE)?;
        for design in compared() {
            let other = held(args, case, design)?;
            for level in [Level::Store, Level::Network] {
                all.push(by_turns(args, (&base, &other), level)?);
            }
            other.records()?;
        }
        base.records()?;
    }
    report::print(args, &all, out)?;
    match &args.puts.out {
        Some(folder) => report::write(args, &all, folder),
        None => Ok(()),
    }
}

/// Designs that stand beside the default. The first is the default itself, whose ratio is noise. Two are left
/// to `published`: a search of the whole index would take hours to fill the stores.
fn compared() -> impl Iterator<Item = Design> {
    let left_out = [Design::MarkByTraversal, Design::MarkPersisted];
    Design::ALL.into_iter().filter(move |design| !left_out.contains(design))
}

/// Starts a store that has all revisions of the case.
fn held(args: &Args, case: Case, design: Design) -> Result<Subject, Box<dyn Error>> {
    let name = format!("{design}: {} revisions of {} keys", case.revisions, case.keys);
    let mut progress = Progress::new(name, Lines::AtTheEnd);
    let subject = Subject::start(args.setup(), case, design)?;
    subject.preload(&mut progress)?;
    progress.finish("are there");
    Ok(subject)
}

/// Compares two stores that stay as they are: revisions beyond the case are forgotten between windows.
fn by_turns(
    args: &Args,
    (base, other): (&Subject, &Subject),
    level: Level,
) -> Result<Comparison, Box<dyn Error>> {
    let until = Until::Time(args.seconds);
    let window = |subject: &Subject| {
        let window = subject.window(level, until)?;
        subject.forget()?;
        Ok(window)
    };
    // Warm-up, which is not measured.
    window(base)?;
    window(other)?;
    let design = other.design();
    let progress = Progress::new(format!("{level}: {design}"), Lines::AtTheEnd);
    let pairs = Pairs::in_turn(args.puts.pairs, progress, || window(base), || window(other))?;
    Ok(Comparison { case: other.case(), level, design, pairs })
}

/// Compares two stores that begin empty in each window, and get many revisions of one key.
fn grown(args: &Args, design: Design) -> Result<Comparison, Box<dyn Error>> {
    let case = Case { revisions: 0, keys: 1 };
    let window = |design| {
        let subject = Subject::start(args.setup(), case, design)?;
        let window = subject.window(Level::Store, Until::Requests(args.growing))?;
        subject.records()?;
        Ok(window)
    };
    let progress = Progress::new(format!("one key grows: {design}"), Lines::AtTheEnd);
    let pairs = Pairs::in_turn(args.puts.pairs, progress, || window(BASE), || window(design))?;
    Ok(Comparison { case, level: Level::Store, design, pairs })
}

impl Args {
    fn setup(&self) -> Setup {
        Setup { clients: self.clients, value_bytes: self.puts.val_size, disk: self.disk }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Store => "store",
            Self::Network => "network",
        })
    }
}

impl Serialize for Comparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Comparison", 7)?;
        object.serialize_field("revisions", &self.case.revisions)?;
        object.serialize_field("keys", &self.case.keys)?;
        object.serialize_field("level", &self.level.to_string())?;
        object.serialize_field("design", self.design.name())?;
        object.serialize_field("puts_per_second_ratio", &self.pairs.ratio(Window::per_second))?;
        object.serialize_field("cpu_per_put_ratio", &self.pairs.ratio(Window::cpu_each))?;
        object.serialize_field("windows", &self.pairs)?;
        object.end()
    }
}

#[cfg(test)]
mod tests;
