//! No arguments: a store in memory and one on disk, loaded and checked.

mod grid;
mod mixed;

use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};

use txn_kv::load::{Keys, Lines, Load, Options, Progress, Shape, Until, Workload};
use txn_kv::serve::{self, Kind, Server};
use txn_kv::store::Stats;

use lab::units::{Count, Nanos};
use tempfile::TempDir;

const USER: &str = "root";
const PASSWORD: &str = "secret";
/// Sizes of the published load.
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 256;
const MANY_KEYS: u64 = 100_000;
/// Connections that the clients share.
const MOST_CONNECTIONS: usize = 8;
const DRAIN: Duration = Duration::from_secs(10);
/// Reads of what was recovered.
const READS: u64 = 10_000;

/// Serves, loads, and checks: every answer, and the store at the end.
pub(crate) fn run(quick: bool, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let folder = TempDir::new()?;
    let kinds = [Kind::Memory, Kind::Disk(folder.path().to_owned())];
    let start = |kind: &Kind| Server::start(&options(kind));
    let servers = kinds.iter().map(start).collect::<Result<Vec<_>, _>>()?;

    writeln!(
        out,
        "Transactions of one put, values of {VALUE_BYTES} bytes; every answer is checked."
    )?;
    writeln!(out)?;
    grid::run(kinds.iter().zip(&servers), quick, out)?;
    writeln!(out)?;
    for (kind, server) in kinds.iter().zip(&servers) {
        mixed::run(kind, server, quick, out)?;
    }
    writeln!(out)?;
    for (kind, server) in kinds.iter().zip(servers) {
        end(kind, server, out)?;
    }
    Ok(())
}

/// Checks a store and drains its server. If the store is on disk, opens it again.
fn end(kind: &Kind, server: Server, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let store = server.store();
    let Stats { indexed, read, failed_flushes, .. } = store.stats();
    if indexed != read || failed_flushes > 0 {
        let what =
            format!("{indexed} found in the index, {read} read, {failed_flushes} not written");
        return Err(format!("{kind}: {what}").into());
    }
    let (records, revision) = (store.check()?, store.revision());
    let (of_index, of_store) = (Count(indexed as f64), Count(read as f64));
    writeln!(
        out,
        "{kind}: reads found {of_index} revisions in the index, {of_store} values in the store"
    )?;
    let count = Count(records as f64);
    writeln!(out, "{kind}: index and engine agree on {count} records, at revision {revision}")?;
    writeln!(out, "{kind}: {}", server.drain(DRAIN))?;
    out.flush()?;
    if matches!(kind, Kind::Disk(_)) { recover(kind, (records, revision), out) } else { Ok(()) }
}

/// Opens a store again: all of it has to be there.
fn recover(kind: &Kind, before: (u64, u64), out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let server = Server::start(&options(kind))?;
    let time = Nanos::of(begun.elapsed());
    let after = (server.store().check()?, server.store().revision());
    if after != before {
        return Err(format!("{kind}: {before:?} before the restart, {after:?} after it").into());
    }
    let load = load(&server, 10, MANY_KEYS)?;
    let reads = load.run(Workload::Get, Until::Requests(READS), Progress::new("", Lines::None))?;
    reads.verdict()?;
    let (records, reads) = (Count(before.0 as f64), Count(READS as f64));
    writeln!(
        out,
        "{kind}: opened again in {time}: {records} records, and {reads} reads are right"
    )?;
    writeln!(out, "{kind}: {}", server.drain(DRAIN))?;
    Ok(())
}

fn options(kind: &Kind) -> serve::Options {
    serve::Options::new(USER, PASSWORD).engine(kind.clone())
}

/// Clients of a server that use so many keys.
fn load(server: &Server, clients: usize, keys: u64) -> Result<Load, Box<dyn Error>> {
    let options = Options {
        address: server.address().to_string(),
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
        clients,
        connections: clients.min(MOST_CONNECTIONS),
    };
    let keys = Keys::new(KEY_BYTES, keys)?;
    Load::new(&options, Shape { keys, value_bytes: VALUE_BYTES, seed: clients as u64 })
}
