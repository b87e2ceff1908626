//! Compares `examples/txn_kv` with a single-node etcd: the same load, from the same machine, on the
//! same disk, in windows in turn.

mod args;
mod etcd;
mod load;
mod measure;
mod ours;
mod published;
mod report;
mod server;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use lab::progress::{Lines, Progress};
use lab::terminal::Output;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Options;
use crate::etcd::Etcd;
use crate::load::Load;
use crate::measure::{Pair, fill, pairs};
use crate::ours::TxnKv;
use crate::report::{Outcome, Report};

/// Both servers.
struct Rig {
    txn_kv: Option<TxnKv>,
    etcd: Etcd,
    /// Number of keys that were written before the first window.
    filled: u64,
}

fn main() -> ExitCode {
    lab::args::run(|options: Options, out| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            // Dropped by a signal, `run` ends its servers and removes their folders.
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                done = run(&options, out) => done,
                _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
                _ = terminate.recv() => Err("terminated".into()),
            }
        })
    })
}

async fn run(options: &Options, out: &mut Output) -> Result<(), Box<dyn Error>> {
    let mut report = Report::new(options);
    let (loads, count) = (options.loads(), options.pairs());
    let mut progress = Progress::new("pairs", Lines::EachTenth);
    let (all, mut done) = (loads.len() * count, 0);
    let mut rig = None;
    for load in loads {
        let mut there = Rig::for_load(load, rig.take(), options).await?;
        let step = |pair: &Pair| {
            done += 1;
            progress.update(done as f64 / all as f64, format_args!("{load}: {pair}"));
        };
        let (ours, etcd) = (there.txn_kv.as_mut(), &mut there.etcd);
        let pairs = pairs(ours, etcd, load, count, options.until(load), step).await?;
        report.outcomes.push(Outcome { load, pairs });
        // A run that is broken off leaves the results so far.
        if let Some(out) = &options.out {
            report.write(out)?;
        }
        rig = Some(there);
    }
    progress.finish(format_args!("{all} pairs"));
    writeln!(out, "{}", report.tables())?;
    report.verdict()
}

impl Rig {
    /// Starts the servers for a load. Puts begin with empty stores. Reads share theirs, because they
    /// change nothing.
    async fn for_load(
        load: Load,
        before: Option<Self>,
        options: &Options,
    ) -> Result<Self, Box<dyn Error>> {
        if let Some(rig) = before
            && !load.op.writes()
            && rig.filled == load.keys
        {
            return Ok(rig);
        }
        let Options { folder, connections, .. } = options;
        let mut etcd = Etcd::start(&options.etcd, folder, *connections).await?;
        let mut txn_kv = match options.etcd_alone {
            true => None,
            false => Some(TxnKv::start(&options.server, folder, *connections).await?),
        };
        let filled = if load.op.writes() { 0 } else { load.keys };
        if filled > 0 {
            fill(&mut etcd, filled).await?;
            if let Some(txn_kv) = &mut txn_kv {
                fill(txn_kv, filled).await?;
            }
        }
        Ok(Self { txn_kv, etcd, filled })
    }
}
