//! [`Report`]: a line for each phase, tables at the end.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use crate::account::Account;
use crate::args::Options;
use crate::check;
use crate::hazard::{ECHO, Item, SERVERS};
use crate::phase::Outcome;
use crate::server::Usage;
use crate::world::World;
use lab::abuse::Tally;
use lab::units::{Bytes, Count, Nanos};

/// All that was seen.
pub(crate) struct Report {
    seed: u64,
    time: Duration,
    phases: u64,
    direct: Vec<Account>,
    relayed: Vec<Account>,
    hazards: BTreeMap<String, Hazards>,
    /// By server: seconds, and what it took then.
    quiet: Vec<Vec<(f64, Usage)>>,
    /// Index of the first sample behind the first round.
    warm: usize,
    problems: Vec<String>,
}

/// A kind of memory that must not grow.
#[derive(Clone, Copy)]
struct Memory {
    name: &'static str,
    of: fn(&Usage) -> u64,
}

const MEMORY: [Memory; 2] = [
    Memory { name: "resident", of: |usage| usage.resident_bytes },
    Memory { name: "allocated", of: |usage| usage.allocated_bytes },
];

/// What one hazard has come to.
#[derive(Default)]
struct Hazards {
    phases: u64,
    peers: usize,
    tally: Tally,
}

impl Report {
    pub(crate) fn new(options: &Options, world: &World) -> Self {
        let base = |server| world.base(server).map(|base| base.usage).unwrap_or_default();
        let quiet = (0..SERVERS).map(|server| vec![(0.0, base(server))]).collect();
        Self {
            seed: options.seed,
            time: Duration::ZERO,
            phases: 0,
            direct: vec![Account::default(); SERVERS],
            relayed: vec![Account::default(); SERVERS],
            hazards: BTreeMap::new(),
            quiet,
            warm: 0,
            problems: Vec::new(),
        }
    }

    pub(crate) fn heading(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{:>7} {:>9} {:>7}  echo: p99, resident, allocated, fds, threads | node | proxy | hazards",
            "time", "requests", "failed"
        )?;
        out.flush()
    }

    pub(crate) fn phase(
        &mut self,
        time: Duration,
        round: u64,
        items: &[Item],
        outcome: &Outcome,
        out: &mut impl Write,
    ) -> io::Result<()> {
        self.time = time;
        self.phases += 1;
        let seconds = time.as_secs_f64();
        let (mut asked, mut errors) = (0, BTreeMap::<&str, u64>::new());
        let mut servers = String::new();
        for server in 0..SERVERS {
            let (direct, relayed) = (&outcome.direct[server], &outcome.relayed[server]);
            self.direct[server].add(direct);
            self.relayed[server].add(relayed);
            for account in [direct, relayed, &outcome.churned[server]] {
                asked += account.asked;
                for (kind, count) in &account.errors {
                    *errors.entry(kind).or_default() += count;
                }
            }
            let usage = outcome.usage[server];
            self.quiet[server].push((seconds, usage));
            let p99 = Nanos::of(direct.p99());
            let [resident, allocated] =
                [usage.resident_bytes, usage.allocated_bytes].map(|bytes| Bytes(bytes as f64));
            let (fds, threads) = (usage.descriptors, usage.threads);
            let _ =
                write!(servers, "{p99:>8} {resident:>8} {allocated:>8} {fds:>3} {threads:>2} | ");
        }
        // In the first round each hazard comes for the first time.
        if round == 0 {
            self.warm = self.quiet[0].len();
        }
        for item in items {
            self.hazards.entry(item.hazard.to_string()).or_default().phases += 1;
        }
        for (item, peers, tally) in &outcome.attacks {
            let hazard = self.hazards.entry(item.hazard.to_string()).or_default();
            hazard.peers = hazard.peers.max(*peers);
            hazard.tally.add(tally);
        }
        let failed: u64 = errors.values().sum();
        let letters = ["e", "n", "p"];
        let hazards = items.iter().map(|item| format!("{} {}", letters[item.server], item.hazard));
        let hazards = hazards.collect::<Vec<_>>().join(", ");
        write!(out, "{seconds:>6.1}s {:>9} {failed:>7}  {servers}{hazards}", Count(asked as f64))?;
        if !errors.is_empty() {
            let errors = errors.iter().map(|(kind, count)| format!("{count} {kind}"));
            write!(out, " | {}", errors.collect::<Vec<_>>().join(", "))?;
        }
        writeln!(out)?;
        for problem in &outcome.problems {
            writeln!(out, "        WRONG: {problem}")?;
            self.problems.push(format!("{seconds:.1} s, {hazards}: {problem}"));
        }
        out.flush()
    }

    /// The run could not go on.
    pub(crate) fn stopped(&mut self, error: &dyn std::error::Error) {
        self.problems.push(format!("{:.1} s: {error}", self.time.as_secs_f64()));
    }

    /// Prints the tables; how many things were wrong.
    pub(crate) fn finish(&mut self, world: &World, out: &mut impl Write) -> io::Result<usize> {
        for server in 0..SERVERS {
            for Memory { name, of } in MEMORY {
                if let Some((_, Some(problem))) = check::memory(&self.samples(server, of)) {
                    let server = world.servers[server].name;
                    self.problems.push(format!("{server}, {name} memory: {problem}"));
                }
            }
        }
        writeln!(out)?;
        write!(out, "{}", self.tables(world))?;
        Ok(self.problems.len())
    }

    fn memory_is_not_judged(&self) -> bool {
        let [resident, _] = MEMORY;
        check::memory(&self.samples(ECHO, resident.of)).is_none()
    }

    /// Bytes in the quiet times behind the first round.
    fn samples(&self, server: usize, of: fn(&Usage) -> u64) -> Vec<(f64, f64)> {
        let samples = self.quiet[server].iter().skip(self.warm);
        samples.map(|(time, usage)| (*time, of(usage) as f64)).collect()
    }

    pub(crate) fn markdown(&self, world: &World) -> String {
        let (seed, minutes) = (self.seed, self.time.as_secs_f64() / 60.0);
        let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!(
            "# Soak\n\n`soak --minutes {minutes:.0} --seed {seed}`, {cpus} CPUs, Linux {}\n\n{}",
            kernel.trim(),
            self.tables(world)
        )
    }

    fn tables(&self, world: &World) -> String {
        let mut text = String::new();
        let (phases, time) = (self.phases, self.time.as_secs_f64());
        let _ = writeln!(text, "{phases} phases in {time:.0} s, seed {}\n", self.seed);
        self.requests(world, &mut text);
        self.resources(world, &mut text);
        self.attacks(&mut text);
        if self.memory_is_not_judged() {
            let _ = writeln!(text, "It was too short to judge memory.");
        }
        if self.problems.is_empty() {
            let _ = writeln!(
                text,
                "Nothing was wrong; nothing was lost on roads that lose nothing; nothing is left."
            );
        } else {
            let _ = writeln!(text, "Wrong:\n");
            for problem in &self.problems {
                let _ = writeln!(text, "* {problem}");
            }
        }
        text
    }

    fn requests(&self, world: &World, text: &mut String) {
        let _ = writeln!(
            text,
            "| server | road | asked | answered | refused | not sent | unknown | wrong | p99 |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|"
        );
        for server in 0..SERVERS {
            let roads = [("direct", &self.direct[server]), ("relayed", &self.relayed[server])];
            for (road, account) in roads {
                let counts = [
                    account.asked,
                    account.answered,
                    account.refused,
                    account.not_sent,
                    account.unknown,
                    account.wrong,
                ];
                let counts = counts.map(|count| Count(count as f64).to_string()).join(" | ");
                let (name, p99) = (world.servers[server].name, Nanos::of(account.p99()));
                let _ = writeln!(text, "| {name} | {road} | {counts} | {p99} |");
            }
        }
        let _ = writeln!(text);
    }

    fn resources(&self, world: &World, text: &mut String) {
        let _ = writeln!(
            text,
            "| server | memory | at first | after the first round | at the end | slope per hour |\n\
             |---|---|---:|---:|---:|---:|"
        );
        for server in 0..SERVERS {
            let quiet = &self.quiet[server];
            let end = quiet.len() - 1;
            for Memory { name, of } in MEMORY {
                let at =
                    |index: usize| Bytes(quiet.get(index).map_or(0, |(_, usage)| of(usage)) as f64);
                let (first, warm, last) = (at(0), at(self.warm.min(end)), at(end));
                let slope = check::memory(&self.samples(server, of)).map_or_else(
                    || "too few samples".to_owned(),
                    |(slope, _)| {
                        let kib = |bytes: f64| bytes * 3600.0 / 1024.0;
                        format!("{:.0} ± {:.0} KiB", kib(slope.mean), kib(slope.margin))
                    },
                );
                let server = world.servers[server].name;
                let _ =
                    writeln!(text, "| {server} | {name} | {first} | {warm} | {last} | {slope} |");
            }
        }
        let _ = writeln!(text, "\n| server | descriptors | threads |\n|---|---:|---:|");
        for server in 0..SERVERS {
            let range = |part: fn(&Usage) -> u64| {
                let values = self.quiet[server].iter().map(|(_, usage)| part(usage));
                let (least, most) = (values.clone().min(), values.max());
                format!("{}..={}", least.unwrap_or(0), most.unwrap_or(0))
            };
            let (fds, threads) = (range(|usage| usage.descriptors), range(|usage| usage.threads));
            let _ = writeln!(text, "| {} | {fds} | {threads} |", world.servers[server].name);
        }
        let _ = writeln!(text);
    }

    fn attacks(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "| attackers | phases | peers | connected | closed by the server | asked | answered | \
             failed | cut |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        );
        for (name, hazard) in self.hazards.iter().filter(|(_, hazard)| hazard.peers > 0) {
            let Tally { connected, closed_by_server, requests, answered, failed, cut, .. } =
                hazard.tally;
            let counts = [connected, closed_by_server, requests, answered, failed, cut];
            let counts = counts.map(|count| Count(count as f64).to_string()).join(" | ");
            let (phases, peers) = (hazard.phases, hazard.peers);
            let _ = writeln!(text, "| {name} | {phases} | {peers} | {counts} |");
        }
        let _ = writeln!(text);
        let others = self.hazards.iter().filter(|(_, hazard)| hazard.peers == 0);
        let others = others.map(|(name, hazard)| format!("{name} {}", hazard.phases));
        let others = others.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "In so many phases: {others}.\n");
    }
}
