//! Windows in turn, and how their neighbours compare.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::process;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::load::{Chain, Load, PATIENCE, Tally, value};
use crate::ratio::quantile;
use crate::server;

/// A server under load, from its clients' side.
pub(crate) trait Target {
    /// Its process.
    fn pid(&self) -> u32;

    /// Opens what so many clients need.
    async fn prepare(&mut self, clients: usize) -> Result<(), Box<dyn Error>>;

    /// Lets every chain ask until it is over.
    async fn run(&mut self, chains: Vec<Chain>) -> Result<Vec<Chain>, Box<dyn Error>>;

    /// Writes these keys in one transaction, each with a value of this stamp.
    async fn fill(&mut self, keys: Range<u64>, stamp: u64) -> Result<(), Box<dyn Error>>;

    /// Called when all is filled, to get over that.
    async fn filled(&mut self) -> Result<(), Box<dyn Error>>;

    /// The value of a key and the revision of its last write.
    async fn read(&mut self, key: u64) -> Result<Option<(Vec<u8>, u64)>, Box<dyn Error>>;

    /// How often it has waited for the disk before it answered writes.
    async fn flushes(&mut self) -> Result<u64, Box<dyn Error>>;
}

/// One window of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Window {
    /// Right answers.
    pub(crate) requests: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// CPU time of the server for each request, and of the load.
    pub(crate) server_cpu_us: f64,
    pub(crate) client_cpu_us: f64,
    pub(crate) flushes: u64,
    pub(crate) errors: u64,
    /// Wrong answers, those of the reads afterwards included.
    pub(crate) wrong: u64,
    /// Keys that were read afterwards.
    pub(crate) read_back: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_error: Option<String>,
}

/// Neighbouring windows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pair {
    pub(crate) txn_kv: Option<Window>,
    pub(crate) etcd: Window,
}

/// A server works on after its last answer: etcd writes to its tables each 100 ms. It is given this
/// time, which counts as its CPU time.
const SETTLE: Duration = Duration::from_millis(150);
/// Keys that are read after a window of puts.
const READ_BACK: usize = 20;
/// Keys that one transaction fills.
const FILL: u64 = 100;

/// Loads a server for `length`, and reads back what it has acknowledged.
pub(crate) async fn window<T: Target>(
    target: &mut T,
    load: Load,
    number: u64,
    length: Duration,
) -> Result<Window, Box<dyn Error>> {
    target.prepare(load.clients).await?;
    let flushes = target.flushes().await?;
    let server_cpu = server::cpu_time(target.pid())?;
    let client_cpu = server::cpu_time(process::id())?;
    let start = Instant::now();
    let until = start + length;
    let chains = (0..load.clients).map(|place| Chain::new(load, number, place, until)).collect();
    let chains = timeout(length + PATIENCE, target.run(chains)).await??;
    let elapsed = start.elapsed();
    let client_cpu = server::cpu_time(process::id())? - client_cpu;
    sleep(SETTLE).await;
    let server_cpu = server::cpu_time(target.pid())? - server_cpu;
    let flushes = target.flushes().await? - flushes;

    let mut tally = Tally::default();
    chains.into_iter().for_each(|chain| tally.add(chain.into_tally()));
    let lost = read_back(target, &tally).await?;
    let requests = tally.latencies.len() as u64;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests.max(1) as f64;
    Ok(Window {
        requests,
        per_second: requests as f64 / elapsed.as_secs_f64(),
        p50_us: quantile(&tally.latencies, 0.5).unwrap_or_default(),
        p99_us: quantile(&tally.latencies, 0.99).unwrap_or_default(),
        server_cpu_us: each(server_cpu),
        client_cpu_us: each(client_cpu),
        flushes,
        errors: tally.errors,
        wrong: tally.wrong + lost,
        read_back: tally.last_writes(READ_BACK).len() as u64,
        first_error: tally.first_error,
    })
}

/// How many of the keys that were written last have something else. With errors nobody knows what
/// was written.
async fn read_back<T: Target>(target: &mut T, tally: &Tally) -> Result<u64, Box<dyn Error>> {
    let mut lost = 0;
    for write in tally.last_writes(READ_BACK) {
        let there = target.read(write.key).await?;
        let expected = (value(write.key, write.stamp), write.revision);
        lost += u64::from(tally.errors == 0 && there != Some(expected));
    }
    Ok(lost)
}

/// Windows of both in turn, A B B A, after one of each that does not count. Without ours, windows of
/// etcd alone.
pub(crate) async fn pairs<A: Target, B: Target>(
    mut txn_kv: Option<&mut A>,
    etcd: &mut B,
    load: Load,
    count: usize,
    length: Duration,
    mut progress: impl FnMut(&Pair),
) -> Result<Vec<Pair>, Box<dyn Error>> {
    if let Some(target) = txn_kv.as_deref_mut() {
        window(target, load, 1, length / 2).await?;
    }
    window(etcd, load, 1, length / 2).await?;
    let mut pairs = Vec::new();
    for place in 0..count {
        let number = place as u64 + 2;
        let mut pair = Pair { txn_kv: None, etcd: Window::default() };
        for ours in [place % 2 == 0, place % 2 != 0] {
            match txn_kv.as_deref_mut() {
                Some(target) if ours => {
                    pair.txn_kv = Some(window(target, load, number, length).await?);
                }
                None if ours => {}
                _ => pair.etcd = window(etcd, load, number, length).await?,
            }
        }
        progress(&pair);
        pairs.push(pair);
    }
    Ok(pairs)
}

/// Writes every key once.
pub(crate) async fn fill<T: Target>(target: &mut T, keys: u64) -> Result<(), Box<dyn Error>> {
    for from in (0..keys).step_by(FILL as usize) {
        timeout(PATIENCE, target.fill(from..keys.min(from + FILL), 0)).await??;
    }
    sleep(SETTLE).await;
    target.filled().await?;
    sleep(SETTLE).await;
    Ok(())
}

impl fmt::Display for Pair {
    /// `2000/s, etcd 1000/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ours) = &self.txn_kv {
            write!(f, "{:.0}/s, ", ours.per_second)?;
        }
        write!(f, "etcd {:.0}/s", self.etcd.per_second)
    }
}

#[cfg(test)]
mod tests;
