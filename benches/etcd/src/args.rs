//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use lab::args::{milliseconds, within};
use lab::drive::Until;

use crate::load::{Load, Op, RANGE_KEYS};
use crate::published;

/// Compare txn_kv with a single-node etcd under the same load.
#[derive(Clone, Debug, Parser)]
#[command(name = "etcd-compare")]
pub(crate) struct Options {
    /// Take a minute: clients 1,50,200 and 3 pairs of 200 ms.
    #[arg(long)]
    quick: bool,
    /// Take the published loads of txn-put: windows are numbers of requests, and a table has the
    /// published numbers beside those of here.
    #[arg(long, conflicts_with_all = ["quick", "only", "clients", "keys", "window_ms"])]
    pub(crate) published: bool,
    /// Folder for README.md and windows.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Loads [default: all].
    #[arg(long, value_name = "LOAD,LOAD", value_enum, value_delimiter = ',')]
    only: Vec<Op>,
    /// Clients of each load [default: 1,10,50,100,200].
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = within(1..=10_000_usize))]
    clients: Vec<usize>,
    /// Key spaces of put; the other loads have the largest.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,100000", value_parser = within(1..=10_000_000_u64))]
    keys: Vec<u64>,
    /// Connections of each server's clients.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = within(1..=1000_usize))]
    pub(crate) connections: usize,
    /// Pairs of windows [default: 11].
    #[arg(long, value_name = "N", value_parser = within(1..=10_000_usize))]
    pairs: Option<usize>,
    /// Milliseconds of a window [default: 500].
    #[arg(long, value_name = "T", value_parser = milliseconds(10..=60_000))]
    window_ms: Option<Duration>,
    /// Program txn_kv.
    #[arg(long, value_name = "PATH", default_value_os_t = target_folder().join("release/txn_kv"))]
    pub(crate) server: PathBuf,
    /// Program etcd.
    #[arg(long, value_name = "PATH", default_value = "/usr/bin/etcd")]
    pub(crate) etcd: PathBuf,
    /// Leave txn_kv out.
    #[arg(long)]
    pub(crate) etcd_alone: bool,
    /// Folder for the data of both servers; must be on a real disk.
    #[arg(long, value_name = "DIR", default_value_os_t = target_folder())]
    pub(crate) folder: PathBuf,
}

impl Options {
    pub(crate) fn pairs(&self) -> usize {
        self.pairs.unwrap_or(if self.quick { 3 } else { 11 })
    }

    /// End of a window.
    pub(crate) fn until(&self, load: Load) -> Until {
        if self.published
            && let Some(until) = published::until(load)
        {
            return until;
        }
        let usual = if self.quick { 200 } else { 500 };
        Until::Time(self.window_ms.unwrap_or_else(|| Duration::from_millis(usual)))
    }

    /// Loads in order. Transactions have every key space, the others the largest.
    pub(crate) fn loads(&self) -> Vec<Load> {
        if self.published {
            return published::loads();
        }
        let ops: &[Op] = if self.only.is_empty() { &Op::ALL } else { &self.only };
        let clients: &[usize] = match &self.clients[..] {
            [] if self.quick => &[1, 50, 200],
            [] => &[1, 10, 50, 100, 200],
            some => some,
        };
        let largest = [self.keys.iter().copied().max().unwrap_or_default().max(RANGE_KEYS)];
        let mut loads = Vec::new();
        for &op in ops {
            for &keys in if op == Op::Put { &self.keys[..] } else { &largest } {
                loads.extend(clients.iter().map(|&clients| Load { op, clients, keys }));
            }
        }
        loads
    }
}

/// Cargo's folder of the workspace.
fn target_folder() -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(usual, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        let words = ["etcd-compare"].into_iter().chain(line.split_whitespace());
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn all_loads_are_the_default() {
        let loads = parsed("").unwrap().loads();
        assert_eq!(loads.len(), 2 * 5 + 4 * 5);
        let reads = loads.iter().filter(|load| load.op != Op::Put);
        assert!(reads.into_iter().all(|load| load.keys == 100_000));
    }

    #[test]
    fn a_quick_run_is_shorter_unless_told_otherwise() {
        let quick = parsed("--quick --window-ms 50").unwrap();
        assert_eq!(quick.loads().len(), 2 * 3 + 4 * 3);
        let until = quick.until(quick.loads()[0]);
        assert_eq!((quick.pairs(), until), (3, Until::Time(Duration::from_millis(50))));
    }

    #[test]
    fn some_loads_are_chosen_by_name() {
        let loads = parsed("--only range,put --clients 7 --keys 1").unwrap().loads();
        let load = |op, keys| Load { op, clients: 7, keys };
        assert_eq!(loads, [load(Op::Range, 100), load(Op::Put, 1)]);
    }

    #[test]
    fn published_loads_are_numbers_of_requests() {
        let options = parsed("--published").unwrap();
        let loads = options.loads();
        let untils: Vec<_> = loads.iter().map(|&load| options.until(load)).collect();
        let half = [2_000, 10_000, 20_000, 20_000, 30_000].map(Until::Requests);
        assert_eq!(untils, [half, half].concat());
        assert!(loads[..5].iter().all(|load| load.keys == 1), "{loads:?}");
        assert!(parsed("--published --clients 7").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--only push", "--clients 0", "--fast", "--pairs"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
