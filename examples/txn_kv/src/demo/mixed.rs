//! Reads and puts, while history is compacted beside them.

use std::error::Error;
use std::io::Write;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{self, Client};
use lab::units::{Count, Nanos};
use txn_kv::client::Kv;
use txn_kv::load::{Lines, Progress, Until, Workload};
use txn_kv::serve::{Kind, Server};

use super::{MANY_KEYS, PASSWORD, USER, load};

const CLIENTS: usize = 50;
const READS_PER_100: u64 = 50;
const TIME: Duration = Duration::from_secs(2);
const QUICK_TIME: Duration = Duration::from_millis(300);
/// From the end of one compaction to the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Result of the compactions.
#[derive(Debug, Default)]
struct Compacted {
    times: u64,
    records: u64,
}

pub(super) fn run(
    kind: &Kind,
    server: &Server,
    quick: bool,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let load = load(server, CLIENTS, MANY_KEYS)?;
    load.fill(Progress::new(format!("{kind}: fill"), Lines::AtTheEnd))?;
    let time = if quick { QUICK_TIME } else { TIME };
    let (stop, stopped) = mpsc::channel();
    let (summary, compacted) = thread::scope(|scope| {
        let beside =
            scope.spawn(move || compact(server, &stopped).map_err(|error| error.to_string()));
        let progress = Progress::new(format!("{kind}: mixed, compacted"), Lines::AtTheEnd);
        let workload = Workload::Mixed { reads_per_100: READS_PER_100 };
        let summary = load.run(workload, Until::Time(time), progress);
        drop(stop);
        (summary, beside.join())
    });
    let summary = summary?;
    summary.verdict()?;
    let compacted = compacted.map_err(|_| "the thread that compacts has panicked")??;
    let (reads, rate) = (READS_PER_100, Count(summary.per_second().round()));
    let p99 = Nanos(summary.quantile(0.99) as f64);
    writeln!(out, "{kind}: {CLIENTS} clients, {reads} % reads: {rate} requests/s, p99 {p99}")?;
    let Compacted { times, records } = compacted;
    let count = Count(records as f64);
    writeln!(out, "{kind}: compactions beside them: {times}, which forgot {count} records")?;
    out.flush()?;
    if records == 0 { Err("nothing was there to forget".into()) } else { Ok(()) }
}

/// Forgets all that can be forgotten, again and again until it is stopped, as one more client.
fn compact(server: &Server, stopped: &Receiver<()>) -> Result<Compacted, Box<dyn Error>> {
    let runtime = Runtime::builder().name("compact").start()?;
    let options = client::Options::new(server.address().to_string(), USER).password(PASSWORD);
    let mut kv = Kv::new(Client::new(&runtime.handle(), options)?.session()?);
    let (mut compacted, mut last) = (Compacted::default(), 0);
    loop {
        let revision = server.store().revision();
        if revision > last {
            compacted.records += kv.compact(revision)?;
            compacted.times += 1;
            last = revision;
        }
        if stopped.recv_timeout(PAUSE) == Err(mpsc::RecvTimeoutError::Disconnected) {
            return Ok(compacted);
        }
    }
}
