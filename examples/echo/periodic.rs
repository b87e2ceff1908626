//! `--stats-every`: a few lines about what happened since the last ones.

use std::io::{self, Write};
use std::time::Instant;

use epoll_group::stats::{Counter, Snapshot, Stage};

use super::units::{Bytes, Count, Nanos};

/// Why threads were started, in a word or three.
pub(crate) const STARTED: [(Counter, &str); 4] = [
    (Counter::ThreadsStartedStall, "handlers wait"),
    (Counter::ThreadsStartedBacklog, "long queue"),
    (Counter::ThreadsStartedWatchdog, "no progress"),
    (Counter::ThreadsStartedReserve, "reserve"),
];

/// How many threads were started, and why.
pub(crate) fn started(stats: &Snapshot) -> String {
    let reasons = STARTED.into_iter().filter(|&(counter, _)| stats.get(counter) > 0);
    let reasons: Vec<_> =
        reasons.map(|(counter, why)| format!("{why} {}", stats.get(counter))).collect();
    if reasons.is_empty() { "none".to_owned() } else { reasons.join(", ") }
}

/// Remembers how things stood when it last printed.
#[derive(Debug)]
pub(crate) struct Periodic {
    started: Instant,
    at: Instant,
    snapshot: Snapshot,
    requests: u64,
}

impl Periodic {
    pub(crate) fn new(snapshot: Snapshot, requests: u64) -> Self {
        let now = Instant::now();
        Self { started: now, at: now, snapshot, requests }
    }

    pub(crate) fn print(
        &mut self,
        out: &mut impl Write,
        snapshot: Snapshot,
        requests: u64,
    ) -> io::Result<()> {
        let now = Instant::now();
        let seconds = (now - self.at).as_secs_f64();
        let recent = snapshot.since(&self.snapshot);
        let rate = |counter| Count(recent.get(counter) as f64 / seconds);
        let bytes = |counter| Bytes(recent.get(counter) as f64 / seconds);

        writeln!(
            out,
            "[{:.1} s] {} requests/s, {}/s in, {}/s out, {} open",
            (now - self.started).as_secs_f64(),
            Count((requests - self.requests) as f64 / seconds),
            bytes(Counter::BytesReceived),
            bytes(Counter::BytesSent),
            recent.connections,
        )?;
        write!(
            out,
            "  threads: {} base, {} dynamic, {} taskers, {} reserve; {} at work, {} wait; \
             {} left; started:",
            recent.base_threads,
            recent.dynamic_threads,
            recent.tasker_threads,
            recent.reserve_threads,
            recent.running_threads,
            recent.stalled_threads,
            recent.get(Counter::ThreadsLeft),
        )?;
        writeln!(out, " {}", started(&recent))?;
        writeln!(
            out,
            "  stalls: {}/s; queue: {} long, {} at most so far, oldest {}; wake-ups: {}/s useful, \
             {}/s futile",
            rate(Counter::Stalls),
            recent.queue_len + recent.urgent_queue_len + recent.overflow_len,
            recent.queue_high_water,
            Nanos::of(recent.oldest_task_age),
            rate(Counter::WakeupsUseful),
            rate(Counter::WakeupsFutile),
        )?;
        for &stage in Stage::ALL {
            let Some(histogram) = recent.histogram(stage).filter(|all| all.count() > 0) else {
                continue;
            };
            write!(out, "  {:<10}", stage.name())?;
            for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
                let time = histogram.quantile(part).unwrap_or_default();
                write!(out, "  {name} {:>7}", Nanos::of(time))?;
            }
            writeln!(out, "  of {}", Count(histogram.count() as f64))?;
        }
        *self = Self { at: now, snapshot, requests, ..*self };
        Ok(())
    }
}
