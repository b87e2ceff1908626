//! Puts by more and more clients.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use txn_kv::load::{Lines, Progress, Summary, Until, Workload};
use txn_kv::serve::{Kind, Server};

use super::{MANY_KEYS, load};
use crate::args::Pace;
use crate::units::{Count, Nanos};

const KEYS: [u64; 2] = [1, MANY_KEYS];
const CLIENTS: [usize; 5] = [1, 10, 50, 100, 200];
const STEP: Duration = Duration::from_millis(1200);
const QUICK_STEP: Duration = Duration::from_millis(100);

pub(super) fn heading(out: &mut impl Write) -> io::Result<()> {
    write!(out, "{:<7} {:>9} {:>8} {:>10}", "engine", "key space", "clients", "puts/s")?;
    writeln!(out, "  {:>8}  {:>8}  transactions per flush", "p50", "p99")
}

/// Loads a server, a line for each step.
pub(super) fn run(
    kind: &Kind,
    server: &Server,
    pace: Pace,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let step = if pace == Pace::Quick { QUICK_STEP } else { STEP };
    for keys in KEYS {
        for clients in CLIENTS {
            let load = load(server, clients, keys)?;
            let before = server.store().stats();
            let name = format!("{kind}: keys {keys}, clients {clients}");
            let progress = Progress::new(name.as_str(), Lines::AtTheEnd);
            let put = Workload::Put { operations: 1 };
            let summary = load.run(put, Until::Time(step), progress)?;
            summary.verdict().map_err(|error| format!("{name}: {error}"))?;
            let stats = server.store().stats().since(&before);
            row(out, (kind, keys, clients), &summary, stats.per_flush())?;
        }
    }
    Ok(())
}

fn row(
    out: &mut impl Write,
    (kind, keys, clients): (&Kind, u64, usize),
    summary: &Summary,
    per_flush: f64,
) -> io::Result<()> {
    let (engine, rate) = (kind.to_string(), Count(summary.per_second().round()));
    write!(out, "{engine:<7} {keys:>9} {clients:>8} {rate:>10}")?;
    for share in [0.5, 0.99] {
        write!(out, "  {:>8}", Nanos(summary.quantile(share) as f64))?;
    }
    writeln!(out, "  {per_flush:>22.1}")?;
    out.flush()
}
