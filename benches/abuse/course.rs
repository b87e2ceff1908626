//! One abuse: quiet windows, abused and control windows in turn, quiet windows.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::abuse::Abuse;
use lab::helper::Helper;
use lab::meter::Usage;
use lab::ratio::{Ratio, Spread};
use serde::Serialize;

use crate::args::{self, Options};
use crate::stand_by::Window;

pub(crate) struct Course<'a> {
    options: &'a Options,
    abuse: &'a Abuse,
    peers: usize,
    pairs: usize,
}

/// Results of one abuse.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) peers: usize,
    /// Length of the attack.
    pub(crate) seconds: f64,
    /// All windows of a kind together.
    pub(crate) quiet: Window,
    pub(crate) abused: Window,
    pub(crate) control: Window,
    pub(crate) against_quiet: Ratios,
    pub(crate) against_control: Ratios,
    pub(crate) server: Cost,
    pub(crate) attackers: Attackers,
    pub(crate) windows: Vec<Taken>,
}

/// Ratios of windows of two kinds, paired in the order in which they were taken. Abused and control windows
/// take turns, so a pair of them are neighbours. One half of the quiet windows lies before the attack, the
/// other after it.
#[derive(Debug, Serialize)]
pub(crate) struct Ratios {
    pub(crate) p50: Option<Ratio>,
    pub(crate) p99: Option<Ratio>,
    pub(crate) p999: Option<Ratio>,
    pub(crate) rate: Option<Ratio>,
}

/// CPU time and memory of the server.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    /// CPU seconds a second.
    pub(crate) cpu_quiet: f64,
    /// CPU seconds a second during the attack, when the bystanders ask the server in half of the
    /// windows.
    pub(crate) cpu_abused: f64,
    pub(crate) before: Reading,
    /// At the ends of windows.
    pub(crate) peak: Reading,
    /// After the attack.
    pub(crate) after: Reading,
}

/// CPU time of the attackers, their connections, and how these ended.
#[derive(Debug, Serialize)]
pub(crate) struct Attackers {
    /// CPU seconds a second.
    pub(crate) cpu: f64,
    /// Most connections that were open at the end of a window.
    pub(crate) most: u64,
    /// Memory of the server's process for each of those.
    pub(crate) resident_kb_each: f64,
    /// Memory of the sockets of both ends for each of those.
    pub(crate) sockets_kb_each: f64,
    /// Counted by the attackers.
    pub(crate) tally: serde_json::Value,
    /// Counted by the server.
    pub(crate) counted: BTreeMap<String, u64>,
    /// Seconds until the end of the window in which the server counted the first of a kind.
    pub(crate) first_after: BTreeMap<String, f64>,
}

/// A window and its kind.
#[derive(Debug, Serialize)]
pub(crate) struct Taken {
    pub(crate) kind: Kind,
    #[serde(flatten)]
    pub(crate) window: Window,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Quiet,
    Abused,
    Control,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Abused => "abused",
            Self::Control => "control",
        }
    }

    /// Which server the bystanders ask.
    const fn place(self) -> usize {
        match self {
            Self::Quiet | Self::Abused => SERVER,
            Self::Control => TWIN,
        }
    }
}

/// The kernel's counts of a server, and of the sockets of the machine.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Reading {
    /// CPU seconds of the process so far, all threads together.
    pub(crate) cpu: f64,
    pub(crate) resident_kb: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    /// Memory of all TCP sockets of the machine, those of both ends.
    pub(crate) sockets_kb: u64,
}

const SERVER: usize = 0;
const TWIN: usize = 1;
const PAGE_KB: u64 = 4;

type Counts = BTreeMap<String, u64>;

impl<'a> Course<'a> {
    pub(crate) fn new(options: &'a Options, abuse: &'a Abuse) -> Self {
        let (peers, pairs) = (options.peers_of(abuse), options.pairs_of(abuse));
        Self { options, abuse, peers, pairs }
    }

    pub(crate) fn run(&self) -> Result<Outcome, Box<dyn Error>> {
        let mut stage = Stage::set(self.options)?;
        let before = stage.reading()?;
        self.quiet(&mut stage, self.pairs.div_ceil(2))?;
        let cpu_quiet = stage.cpu_since(&before)?;

        let (counts, began, start) = (stage.counts()?, Instant::now(), stage.reading()?);
        let (attack, _) = self.attack(&stage.address)?;
        let mut watch = Watch::new(began, counts.clone(), start);
        thread::sleep(self.settle());
        for pair in 0..self.pairs {
            let mut kinds = [Kind::Abused, Kind::Control];
            if pair % 2 == 1 {
                kinds.reverse();
            }
            for kind in kinds {
                stage.window(kind, self.options.window())?;
                watch.look(&mut stage)?;
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let cpu = Reading::of(attack.pid())?.cpu / seconds;
        let cpu_abused = (stage.reading()?.cpu - start.cpu) / seconds;
        let tally = attack.finish()?;
        thread::sleep(self.settle());
        let end = stage.counts()?;
        self.quiet(&mut stage, self.pairs.div_ceil(2))?;

        let attackers = watch.attackers(cpu, serde_json::from_str(tally.trim())?, &counts, &end);
        let cost = Cost {
            cpu_quiet,
            cpu_abused,
            before: start,
            peak: watch.peak,
            after: stage.reading()?,
        };
        self.outcome(stage, seconds, cost, attackers)
    }

    fn outcome(
        &self,
        mut stage: Stage,
        seconds: f64,
        server: Cost,
        attackers: Attackers,
    ) -> Result<Outcome, Box<dyn Error>> {
        let (quiet, abused, control) =
            (stage.total(Kind::Quiet)?, stage.total(Kind::Abused)?, stage.total(Kind::Control)?);
        let windows = stage.finish()?;
        Ok(Outcome {
            name: self.abuse.name,
            about: self.abuse.about,
            peers: self.peers,
            seconds,
            quiet,
            abused,
            control,
            against_quiet: Ratios::of(&windows, Kind::Abused, Kind::Quiet),
            against_control: Ratios::of(&windows, Kind::Abused, Kind::Control),
            server,
            attackers,
            windows,
        })
    }

    fn quiet(&self, stage: &mut Stage, windows: usize) -> Result<(), Box<dyn Error>> {
        (0..windows).try_for_each(|_| stage.window(Kind::Quiet, self.options.window()))
    }

    fn attack(&self, address: &str) -> Result<(Helper, String), Box<dyn Error>> {
        let mut command = match self.options.attackers {
            args::Attackers::Idle => wrapped("chrt", &["--idle", "0"])?,
            args::Attackers::Equal => Command::new(std::env::current_exe()?),
        };
        let (peers, seed) = (self.peers.to_string(), self.options.seed.to_string());
        Helper::start(command.args(["attack", self.abuse.name, address, &peers, &seed]))
    }

    /// Time until an attack is under way, or its traces are gone.
    fn settle(&self) -> Duration {
        Duration::from_millis(if self.options.quick() { 200 } else { 1000 })
    }
}

impl Ratios {
    fn of(windows: &[Taken], of: Kind, to: Kind) -> Self {
        let all = |kind: Kind| windows.iter().filter(move |taken| taken.kind == kind);
        let ratio = |value: fn(&Window) -> f64| {
            let pairs = all(of).zip(all(to));
            let ratios = pairs.map(|(of, to)| value(&of.window) / value(&to.window));
            Spread::of(ratios.collect()).map(|spread| spread.ratio())
        };
        Self {
            p50: ratio(|window| window.p50),
            p99: ratio(|window| window.p99),
            p999: ratio(|window| window.p999),
            rate: ratio(|window| window.rate),
        }
    }
}

/// The servers and the bystanders.
struct Stage {
    servers: [Helper; 2],
    /// The server that is attacked.
    address: String,
    bystanders: Helper,
    windows: Vec<Taken>,
    since: Instant,
}

impl Stage {
    fn set(options: &Options) -> Result<Self, Box<dyn Error>> {
        let (server, address) = Helper::again(["serve"])?;
        let (twin, other) = Helper::again(["serve"])?;
        let think = options.think_ms.as_millis().to_string();
        // With a high priority if this user may set it, so that the clients' own waiting adds nothing. Without
        // the permission `nice` complains and starts them all the same.
        let mut command = wrapped("nice", &["-n", "-10"])?;
        let command = command.args(["stand-by", &think, &address, &other]);
        let (mut bystanders, _) = Helper::start(command)?;
        for place in [SERVER, TWIN] {
            bystanders.ask(&format!("window {place} warm 100"))?;
        }
        let (servers, windows, since) = ([server, twin], Vec::new(), Instant::now());
        Ok(Self { servers, address, bystanders, windows, since })
    }

    fn window(&mut self, kind: Kind, length: Duration) -> Result<(), Box<dyn Error>> {
        let (place, name, millis) = (kind.place(), kind.name(), length.as_millis());
        let answer = self.bystanders.ask(&format!("window {place} {name} {millis}"))?;
        self.windows.push(Taken { kind, window: serde_json::from_str(&answer)? });
        Ok(())
    }

    fn total(&mut self, kind: Kind) -> Result<Window, Box<dyn Error>> {
        let answer = self.bystanders.ask(&format!("total {}", kind.name()))?;
        Ok(serde_json::from_str(&answer)?)
    }

    fn counts(&mut self) -> Result<Counts, Box<dyn Error>> {
        Ok(serde_json::from_str(&self.servers[SERVER].ask("counts")?)?)
    }

    fn reading(&self) -> Result<Reading, Box<dyn Error>> {
        Reading::of(self.servers[SERVER].pid())
    }

    /// CPU seconds a second since the stage was set.
    fn cpu_since(&self, before: &Reading) -> Result<f64, Box<dyn Error>> {
        Ok((self.reading()?.cpu - before.cpu) / self.since.elapsed().as_secs_f64())
    }

    fn finish(self) -> Result<Vec<Taken>, Box<dyn Error>> {
        self.bystanders.finish()?;
        self.servers.into_iter().try_for_each(|server| server.finish().map(drop))?;
        Ok(self.windows)
    }
}

impl Reading {
    fn of(pid: u32) -> Result<Self, Box<dyn Error>> {
        let usage = Usage::of(pid)?;
        let sockstat = fs::read_to_string("/proc/net/sockstat")?;
        let pages = sockstat.lines().find_map(|line| {
            line.strip_prefix("TCP: ")?.split_once("mem ")?.1.trim().parse::<u64>().ok()
        });
        Ok(Self {
            cpu: usage.cpu.as_secs_f64(),
            resident_kb: usage.resident_bytes >> 10,
            descriptors: usage.descriptors,
            threads: usage.threads,
            sockets_kb: pages.unwrap_or(0) * PAGE_KB,
        })
    }

    /// The larger one of each.
    fn peak(&self, other: &Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            resident_kb: self.resident_kb.max(other.resident_kb),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            sockets_kb: self.sockets_kb.max(other.sockets_kb),
        }
    }
}

/// Observations of the server while it is attacked.
struct Watch {
    began: Instant,
    before: Counts,
    start: Reading,
    peak: Reading,
    most: u64,
    first_after: BTreeMap<String, f64>,
}

impl Watch {
    fn new(began: Instant, before: Counts, start: Reading) -> Self {
        Self { began, before, start, peak: start, most: 0, first_after: BTreeMap::new() }
    }

    fn look(&mut self, stage: &mut Stage) -> Result<(), Box<dyn Error>> {
        self.peak = self.peak.peak(&stage.reading()?);
        let counts = stage.counts()?;
        let seconds = self.began.elapsed().as_secs_f64();
        self.most = self.most.max(rise(&self.before, &counts, "connections"));
        for name in counts.keys().filter(|name| tells_of_an_end(name)) {
            if rise(&self.before, &counts, name) > 0 {
                self.first_after.entry(name.clone()).or_insert(seconds);
            }
        }
        Ok(())
    }

    fn attackers(
        &self,
        cpu: f64,
        tally: serde_json::Value,
        before: &Counts,
        end: &Counts,
    ) -> Attackers {
        let counted = end.keys().filter(|name| !GAUGES.contains(&name.as_str()));
        let counted = counted.map(|name| (name.clone(), rise(before, end, name)));
        let each =
            |peak: u64, start: u64| peak.saturating_sub(start) as f64 / self.most.max(1) as f64;
        Attackers {
            cpu,
            most: self.most,
            resident_kb_each: each(self.peak.resident_kb, self.start.resident_kb),
            sockets_kb_each: each(self.peak.sockets_kb, self.start.sockets_kb),
            tally,
            counted: counted.filter(|&(_, count)| count > 0).collect(),
            first_after: self.first_after.clone(),
        }
    }
}

const GAUGES: [&str; 3] = ["connections", "sessions", "buffered_bytes"];

/// Returns true for a counter of connections that the server closed or refused.
pub(crate) fn tells_of_an_end(counter: &str) -> bool {
    counter.starts_with("closed_") || counter.contains("refused")
}

/// Command that starts this program through another one, which then becomes this program.
fn wrapped(by: &str, args: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(by);
    command.args(args).arg(std::env::current_exe()?);
    Ok(command)
}

fn rise(before: &Counts, after: &Counts, name: &str) -> u64 {
    let of = |counts: &Counts| counts.get(name).copied().unwrap_or(0);
    of(after).saturating_sub(of(before))
}
