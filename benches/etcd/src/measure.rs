//! Windows of both servers in turn.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::process;
use std::time::Duration;

use lab::drive::{Failure, Summary, Until};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::load::{Chain, Load, PATIENCE, last_writes, value};
use crate::server;

/// A server under load, from its clients' side.
pub(crate) trait Target {
    /// Returns the process of the server.
    fn pid(&self) -> u32;

    /// Opens connections and sessions for so many clients.
    async fn prepare(&mut self, clients: usize) -> Result<(), Box<dyn Error>>;

    /// Lets every chain ask to the end of the window; at least once if the end is a time.
    async fn run(
        &mut self,
        chains: Vec<Chain>,
        until: Until,
    ) -> Result<(Summary, Vec<Chain>), Box<dyn Error>>;

    /// Writes these keys in one transaction, each with a value of this stamp.
    async fn fill(&mut self, keys: Range<u64>, stamp: u64) -> Result<(), Box<dyn Error>>;

    /// Called when the store is filled, to end its background work.
    async fn filled(&mut self) -> Result<(), Box<dyn Error>>;

    /// Reads the value of a key and the revision of its last write.
    async fn read(&mut self, key: u64) -> Result<Option<(Vec<u8>, u64)>, Box<dyn Error>>;

    /// Returns how often the server has waited for the disk before it answered writes.
    async fn flushes(&mut self) -> Result<u64, Box<dyn Error>>;
}

/// One window of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Window {
    /// Right answers.
    pub(crate) requests: u64,
    pub(crate) per_second: f64,
    pub(crate) mean_us: f64,
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

/// Time for work after the last answer, whose CPU time counts: etcd writes to its tables each 100 ms.
const SETTLE: Duration = Duration::from_millis(150);
/// Keys that are read after a window of puts.
const READ_BACK: usize = 20;
/// Keys that one transaction fills.
const FILL: u64 = 100;

/// Loads a server to the end of the window, and reads back values that it has acknowledged.
pub(crate) async fn window<T: Target>(
    target: &mut T,
    load: Load,
    number: u64,
    until: Until,
) -> Result<Window, Box<dyn Error>> {
    target.prepare(load.clients).await?;
    let flushes = target.flushes().await?;
    let server_cpu = server::cpu_time(target.pid())?;
    let client_cpu = server::cpu_time(process::id())?;
    let chains = (0..load.clients).map(|place| Chain::new(load, number, place)).collect();
    let (mut summary, chains) = timeout(deadline(until), target.run(chains, until)).await??;
    let client_cpu = server::cpu_time(process::id())? - client_cpu;
    sleep(SETTLE).await;
    let server_cpu = server::cpu_time(target.pid())? - server_cpu;
    let flushes = target.flushes().await? - flushes;

    let read_back = read_back(target, &mut summary, &chains).await?;
    let requests = summary.answers();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests.max(1) as f64;
    Ok(Window {
        requests,
        per_second: summary.per_second(),
        mean_us: summary.latencies().mean() / 1000.0,
        p50_us: summary.quantile(0.5) as f64 / 1000.0,
        p99_us: summary.quantile(0.99) as f64 / 1000.0,
        server_cpu_us: each(server_cpu),
        client_cpu_us: each(client_cpu),
        flushes,
        errors: summary.tally().errors,
        wrong: summary.tally().wrong,
        read_back,
        first_error: summary.tally().first_failure.as_ref().map(Failure::to_string),
    })
}

/// Reads keys that were written last, and counts those with another value as wrong. Returns their number.
/// After errors it is not known which writes were done, so that no value is judged.
async fn read_back<T: Target>(
    target: &mut T,
    summary: &mut Summary,
    chains: &[Chain],
) -> Result<u64, Box<dyn Error>> {
    let writes = last_writes(chains, READ_BACK);
    for write in &writes {
        let there = target.read(write.key).await?;
        let expected = (value(write.key, write.stamp), write.revision);
        if summary.tally().errors == 0 && there != Some(expected) {
            summary.failed(Failure::wrong(format!("key {} has another value", write.key)));
        }
    }
    Ok(writes.len() as u64)
}

/// Measures windows of both in turn, A B B A, after one of each that does not count. Without ours,
/// windows of etcd alone.
pub(crate) async fn pairs<A: Target, B: Target>(
    mut txn_kv: Option<&mut A>,
    etcd: &mut B,
    load: Load,
    count: usize,
    until: Until,
    mut progress: impl FnMut(&Pair),
) -> Result<Vec<Pair>, Box<dyn Error>> {
    if let Some(target) = txn_kv.as_deref_mut() {
        window(target, load, 1, half(until)).await?;
    }
    window(etcd, load, 1, half(until)).await?;
    let mut pairs = Vec::new();
    for place in 0..count {
        let number = place as u64 + 2;
        let mut pair = Pair { txn_kv: None, etcd: Window::default() };
        for ours in [place % 2 == 0, place % 2 != 0] {
            match txn_kv.as_deref_mut() {
                Some(target) if ours => {
                    pair.txn_kv = Some(window(target, load, number, until).await?);
                }
                None if ours => {}
                _ => pair.etcd = window(etcd, load, number, until).await?,
            }
        }
        progress(&pair);
        pairs.push(pair);
    }
    Ok(pairs)
}

fn half(until: Until) -> Until {
    match until {
        Until::Time(length) => Until::Time(length / 2),
        Until::Requests(requests) => Until::Requests(requests / 2),
    }
}

/// Returns the deadline of a window. A number of requests may take a slow disk minutes.
fn deadline(until: Until) -> Duration {
    match until {
        Until::Time(length) => length + PATIENCE,
        Until::Requests(_) => 10 * PATIENCE,
    }
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
