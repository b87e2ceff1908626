//! Compares `examples/txn_kv` with a single-node etcd: the same load, from the same machine, on the
//! same disk, in windows in turn.

mod args;
mod etcd;
mod load;
mod measure;
mod ours;
mod ratio;
mod report;
mod server;

use std::error::Error;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{EtcdAlone, HELP, Options};
use crate::etcd::Etcd;
use crate::load::Load;
use crate::measure::{Pair, fill, pairs};
use crate::ours::TxnKv;
use crate::report::{Outcome, Report, environment};

/// Both servers.
struct Rig {
    txn_kv: Option<TxnKv>,
    etcd: Etcd,
    /// Keys that were written before the first window.
    filled: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(options) = Options::parse(lexopt::Parser::from_env())? else {
        print!("{HELP}");
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // What is dropped then ends its servers and removes their folders.
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = run(&options) => done,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
            _ = terminate.recv() => Err("terminated".into()),
        }
    })
}

async fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let environment = environment(&options.etcd, &options.folder);
    let mut report = Report { environment, outcomes: Vec::new() };
    let style = "{elapsed_precise} {wide_bar} {pos}/{len} {msg}";
    let bar = ProgressBar::new((options.loads.len() * options.pairs) as u64)
        .with_style(ProgressStyle::with_template(style)?);
    let mut rig = None;
    for &load in &options.loads {
        bar.set_message(load.to_string());
        let mut there = Rig::for_load(load, rig.take(), options).await?;
        let progress = |pair: &Pair| {
            bar.inc(1);
            bar.set_message(format!("{load}: {pair}"));
        };
        let (ours, etcd) = (there.txn_kv.as_mut(), &mut there.etcd);
        let pairs = pairs(ours, etcd, load, options.pairs, options.window, progress).await?;
        report.outcomes.push(Outcome { load, pairs });
        // What is broken off leaves what it has found.
        if let Some(out) = &options.out {
            report.write(out)?;
        }
        rig = Some(there);
    }
    bar.finish_and_clear();
    println!("{}", report.tables());
    Ok(())
}

impl Rig {
    /// Puts begin with empty stores. Reads share theirs, which nothing changes.
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
            EtcdAlone::Yes => None,
            EtcdAlone::No => Some(TxnKv::start(&options.server, folder, *connections).await?),
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
