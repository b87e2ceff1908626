//! Puts by more and more clients.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use lab::table;
use lab::units::{Count, Nanos};
use txn_kv::load::{Lines, Progress, Until, Workload};
use txn_kv::serve::{Kind, Server};

use super::{MANY_KEYS, load};

const KEYS: [u64; 2] = [1, MANY_KEYS];
const CLIENTS: [usize; 5] = [1, 10, 50, 100, 200];
const STEP: Duration = Duration::from_millis(1200);
const QUICK_STEP: Duration = Duration::from_millis(100);

/// Loads the servers and prints a line for each step.
pub(super) fn run<'a>(
    servers: impl Iterator<Item = (&'a Kind, &'a Server)>,
    quick: bool,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let step = if quick { QUICK_STEP } else { STEP };
    let mut table = table::numbers(&[
        "engine",
        "key space",
        "clients",
        "puts/s",
        "p50",
        "p99",
        "transactions per flush",
    ]);
    for (kind, server) in servers {
        for keys in KEYS {
            for clients in CLIENTS {
                let load = load(server, clients, keys)?;
                let before = server.store().stats();
                let name = format!("{kind}: keys {keys}, clients {clients}");
                let progress = Progress::new(name.as_str(), Lines::AtTheEnd);
                let put = Workload::Put { operations: 1 };
                let summary = load.run(put, Until::Time(step), progress)?;
                summary.verdict().map_err(|error| format!("{name}: {error}"))?;
                let per_flush = server.store().stats().since(&before).per_flush();
                let [p50, p99] = [0.5, 0.99].map(|share| Nanos(summary.quantile(share) as f64));
                table.add_row([
                    kind.to_string(),
                    keys.to_string(),
                    clients.to_string(),
                    Count(summary.per_second().round()).to_string(),
                    p50.to_string(),
                    p99.to_string(),
                    format!("{per_flush:.1}"),
                ]);
            }
        }
    }
    writeln!(out, "{}", table.trim_fmt())?;
    Ok(out.flush()?)
}
