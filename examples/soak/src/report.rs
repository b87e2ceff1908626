//! [`Report`]: a line for each phase, tables at the end.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use lab::abuse::Tally;
use lab::environment::Environment;
use lab::table::{self, Table};
use lab::units::{Bytes, Count, Nanos};

use crate::account::Account;
use crate::args::Options;
use crate::check;
use crate::hazard::{ECHO, Item, SERVERS};
use crate::phase::Outcome;
use crate::server::Usage;
use crate::world::World;

/// Results of all phases.
pub(crate) struct Report {
    seed: u64,
    time: Duration,
    phases: u64,
    direct: Vec<Account>,
    relayed: Vec<Account>,
    hazards: BTreeMap<String, Hazards>,
    /// Resources of each server at times in seconds.
    quiet: Vec<Vec<(f64, Usage)>>,
    /// Index of the first sample after the first round.
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

/// Totals of one hazard.
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
        // In the first round each hazard comes for the first time: caches and pools still grow.
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

    /// Notes that the run could not go on.
    pub(crate) fn stopped(&mut self, error: &dyn std::error::Error) {
        self.problems.push(format!("{:.1} s: {error}", self.time.as_secs_f64()));
    }

    /// Prints the tables and returns the number of problems.
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

    /// Returns bytes in the quiet times after the first round.
    fn samples(&self, server: usize, of: fn(&Usage) -> u64) -> Vec<(f64, f64)> {
        let samples = self.quiet[server].iter().skip(self.warm);
        samples.map(|(time, usage)| (*time, of(usage) as f64)).collect()
    }

    pub(crate) fn markdown(&self, world: &World) -> String {
        let environment = Environment::of("cargo run --release -p soak");
        format!("# Soak\n\n{environment}\n{}", self.tables(world))
    }

    fn tables(&self, world: &World) -> String {
        let (phases, time, seed) = (self.phases, self.time.as_secs_f64(), self.seed);
        let mut parts = vec![format!("{phases} phases in {time:.0} s, seed {seed}")];
        parts.push(self.requests(world).to_string());
        let (memory, handles) = self.resources(world);
        parts.extend([memory.to_string(), handles.to_string()]);
        parts.push(self.attacks().to_string());
        let others = self.hazards.iter().filter(|(_, hazard)| hazard.peers == 0);
        let others = others.map(|(name, hazard)| format!("{name} {}", hazard.phases));
        let others = others.collect::<Vec<_>>().join(", ");
        parts.push(format!("Phases of other hazards: {others}."));
        if self.memory_is_not_judged() {
            parts.push("The run was too short to judge memory.".to_owned());
        }
        parts.push(if self.problems.is_empty() {
            "No answer was wrong; no request was lost on roads that lose none; nothing is left."
                .to_owned()
        } else {
            format!("Wrong:\n\n* {}", self.problems.join("\n* "))
        });
        parts.join("\n\n") + "\n"
    }

    fn requests(&self, world: &World) -> Table {
        let mut table = table::markdown(&[
            "server", "road", "asked", "answered", "refused", "not sent", "unknown", "wrong", "p99",
        ]);
        for server in 0..SERVERS {
            let roads = [("direct", &self.direct[server]), ("relayed", &self.relayed[server])];
            for (road, account) in roads {
                let Account { asked, answered, refused, not_sent, unknown, wrong, .. } = *account;
                let mut row = vec![world.servers[server].name.to_owned(), road.to_owned()];
                row.extend(counts([asked, answered, refused, not_sent, unknown, wrong]));
                row.push(Nanos::of(account.p99()).to_string());
                table.add_row(row);
            }
        }
        table
    }

    fn resources(&self, world: &World) -> (Table, Table) {
        let mut memory = table::markdown(&[
            "server",
            "memory",
            "at first",
            "after the first round",
            "at the end",
            "slope per hour",
        ]);
        let mut handles = table::markdown(&["server", "descriptors", "threads"]);
        for server in 0..SERVERS {
            let (name, quiet) = (world.servers[server].name, &self.quiet[server]);
            let end = quiet.len() - 1;
            for Memory { name: kind, of } in MEMORY {
                let at = |index: usize| {
                    Bytes(quiet.get(index).map_or(0, |(_, usage)| of(usage)) as f64).to_string()
                };
                let slope = check::memory(&self.samples(server, of)).map_or_else(
                    || "too few samples".to_owned(),
                    |(slope, _)| {
                        let kib = |bytes: f64| bytes * 3600.0 / 1024.0;
                        format!("{:.0} ± {:.0} KiB", kib(slope.mean), kib(slope.margin))
                    },
                );
                let (first, warm, last) = (at(0), at(self.warm.min(end)), at(end));
                memory.add_row([name, kind, &first, &warm, &last, &slope]);
            }
            let range = |part: fn(&Usage) -> u64| {
                let values = quiet.iter().map(|(_, usage)| part(usage));
                let (least, most) = (values.clone().min(), values.max());
                format!("{}..={}", least.unwrap_or(0), most.unwrap_or(0))
            };
            let (fds, threads) = (range(|usage| usage.descriptors), range(|usage| usage.threads));
            handles.add_row([name, &fds, &threads]);
        }
        (memory, handles)
    }

    fn attacks(&self) -> Table {
        let mut table = table::markdown(&[
            "attackers",
            "phases",
            "peers",
            "connected",
            "closed by the server",
            "asked",
            "answered",
            "failed",
            "cut",
        ]);
        for (name, hazard) in self.hazards.iter().filter(|(_, hazard)| hazard.peers > 0) {
            let Tally { connected, closed_by_server, requests, answered, failed, cut, .. } =
                hazard.tally;
            let mut row = vec![name.clone(), hazard.phases.to_string(), hazard.peers.to_string()];
            row.extend(counts([connected, closed_by_server, requests, answered, failed, cut]));
            table.add_row(row);
        }
        table
    }
}

fn counts(counts: [u64; 6]) -> [String; 6] {
    counts.map(|count| Count(count as f64).to_string())
}
