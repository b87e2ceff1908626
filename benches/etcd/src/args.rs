//! The command line.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use crate::load::{Load, Op, RANGE_KEYS};

/// What to measure, how long, and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) server: PathBuf,
    pub(crate) etcd: PathBuf,
    pub(crate) etcd_alone: EtcdAlone,
    pub(crate) connections: usize,
    pub(crate) loads: Vec<Load>,
    pub(crate) pairs: usize,
    pub(crate) window: Duration,
    pub(crate) folder: PathBuf,
    pub(crate) out: Option<PathBuf>,
}

/// Whether ours is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EtcdAlone {
    No,
    Yes,
}

pub(crate) const HELP: &str = "\
usage: etcd-compare [options]      txn_kv beside a single-node etcd, under the same load

  --quick             a look in a minute: fewer loads, 3 pairs of 200 ms
  --out DIR           writes README.md and windows.json there
  --only LOAD,LOAD    some of put, plain-put, get, get-serializable, range
  --clients N,N       clients of each load (default 1,10,50,100,200)
  --keys N,N          key spaces of put (default 1,100000); the others have the largest
  --connections N     connections of each server's clients (default 4)
  --pairs N           pairs of windows (default 11)
  --window-ms T       length of a window (default 500)
  --server PATH       txn_kv (default target/release/txn_kv)
  --etcd PATH         etcd (default /usr/bin/etcd)
  --etcd-alone        without txn_kv
  --folder DIR        where both keep their data meanwhile (default target); a real disk
";

const OPS: [(&str, Op); 5] = [
    ("put", Op::Put),
    ("plain-put", Op::PlainPut),
    ("get", Op::Get),
    ("get-serializable", Op::GetSerializable),
    ("range", Op::Range),
];

impl Options {
    /// Reads the arguments; `None` when help was asked for.
    pub(crate) fn parse(mut parser: Parser) -> Result<Option<Self>, Box<dyn Error>> {
        let target = target_folder();
        let mut options = Self {
            server: target.join("release/txn_kv"),
            etcd: "/usr/bin/etcd".into(),
            etcd_alone: EtcdAlone::No,
            connections: 4,
            loads: Vec::new(),
            pairs: 11,
            window: Duration::from_millis(500),
            folder: target,
            out: None,
        };
        let mut ops = OPS.map(|(_, op)| op).to_vec();
        let (mut clients, mut keys) = (vec![1, 10, 50, 100, 200], vec![1, 100_000]);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Long("quick") => {
                    clients = vec![1, 50, 200];
                    options.pairs = 3;
                    options.window = Duration::from_millis(200);
                }
                Arg::Long("only") => ops = list(&mut parser, op)?,
                Arg::Long("clients") => {
                    clients = list(&mut parser, |text| number(text, 1..=10_000))?
                }
                Arg::Long("keys") => keys = list(&mut parser, |text| number(text, 1..=10_000_000))?,
                Arg::Long("connections") => options.connections = value(&mut parser, 1..=1000)?,
                Arg::Long("pairs") => options.pairs = value(&mut parser, 1..=10_000)?,
                Arg::Long("window-ms") => {
                    options.window = Duration::from_millis(value(&mut parser, 10..=60_000)?);
                }
                Arg::Long("server") => options.server = parser.value()?.into(),
                Arg::Long("etcd") => options.etcd = parser.value()?.into(),
                Arg::Long("etcd-alone") => options.etcd_alone = EtcdAlone::Yes,
                Arg::Long("folder") => options.folder = parser.value()?.into(),
                Arg::Long("out") => options.out = Some(parser.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        options.loads = loads(&ops, &clients, &keys);
        Ok(Some(options))
    }
}

/// Transactions have every key space, the others the largest.
fn loads(ops: &[Op], clients: &[usize], keys: &[u64]) -> Vec<Load> {
    let largest = [keys.iter().copied().max().unwrap_or_default().max(RANGE_KEYS)];
    let mut loads = Vec::new();
    for &op in ops {
        for &keys in if op == Op::Put { keys } else { &largest } {
            loads.extend(clients.iter().map(|&clients| Load { op, clients, keys }));
        }
    }
    loads
}

/// Cargo's folder of the workspace.
fn target_folder() -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(usual, PathBuf::from)
}

fn op(text: &str) -> Result<Op, Box<dyn Error>> {
    let entry = OPS.iter().find(|(name, _)| *name == text);
    Ok(entry.ok_or_else(|| format!("no load {text}"))?.1)
}

fn value<T>(parser: &mut Parser, range: std::ops::RangeInclusive<T>) -> Result<T, Box<dyn Error>>
where
    T: std::str::FromStr<Err: Error + 'static> + PartialOrd + std::fmt::Debug,
{
    number(&parser.value()?.string()?, range)
}

fn number<T>(text: &str, range: std::ops::RangeInclusive<T>) -> Result<T, Box<dyn Error>>
where
    T: std::str::FromStr<Err: Error + 'static> + PartialOrd + std::fmt::Debug,
{
    let number = text.parse()?;
    if range.contains(&number) {
        Ok(number)
    } else {
        Err(format!("{text} is outside {range:?}").into())
    }
}

fn list<T>(
    parser: &mut Parser,
    item: impl Fn(&str) -> Result<T, Box<dyn Error>>,
) -> Result<Vec<T>, Box<dyn Error>> {
    parser.value()?.string()?.split(',').map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, Box<dyn Error>> {
        Ok(Options::parse(Parser::from_args(arguments))?.expect("no help was asked for"))
    }

    #[test]
    fn all_loads_are_the_default() {
        let loads = parsed(&[]).unwrap().loads;
        assert_eq!(loads.len(), 2 * 5 + 4 * 5);
        let reads = loads.iter().filter(|load| load.op != Op::Put);
        assert!(reads.into_iter().all(|load| load.keys == 100_000));
    }

    #[test]
    fn some_loads_are_chosen_by_name() {
        let loads =
            parsed(&["--only", "range,put", "--clients", "7", "--keys", "1"]).unwrap().loads;
        let load = |op, keys| Load { op, clients: 7, keys };
        assert_eq!(loads, [load(Op::Range, 100), load(Op::Put, 1)]);
    }

    #[test]
    fn nonsense_is_refused() {
        for arguments in [&["--only", "push"][..], &["--clients", "0"], &["--fast"], &["--pairs"]] {
            assert!(parsed(arguments).is_err(), "{arguments:?}");
        }
    }
}
