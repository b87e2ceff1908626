//! One abuse: quiet, abused with a control beside, quiet again.

use std::collections::BTreeMap;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::helper::{Helper, Priority};
use crate::meter::Reading;
use crate::options::Options;
use crate::spread::Spread;
use crate::stand_by::Window;
use lab::abuse::Abuse;

pub(crate) struct Course<'a> {
    options: &'a Options,
    abuse: &'a Abuse,
    peers: usize,
    pairs: usize,
}

/// Everything that was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) peers: usize,
    /// How long the attack lasted.
    pub(crate) seconds: f64,
    /// All windows of a kind as one.
    pub(crate) quiet: Window,
    pub(crate) abused: Window,
    pub(crate) control: Window,
    pub(crate) against_quiet: Ratios,
    pub(crate) against_control: Ratios,
    pub(crate) server: Cost,
    pub(crate) attackers: Attackers,
    pub(crate) windows: Vec<Taken>,
}

/// Ratios of windows of two kinds, each kind in the order in which they were taken: first by first,
/// second by second. Abused and control windows take turns, so these are neighbours. Quiet ones lie
/// before the attack and after it: those of its first half are compared with what was before, those
/// of the second with what came after.
#[derive(Debug, Serialize)]
pub(crate) struct Ratios {
    pub(crate) p50: Option<Spread>,
    pub(crate) p99: Option<Spread>,
    pub(crate) p999: Option<Spread>,
    pub(crate) rate: Option<Spread>,
}

/// What the server needed.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    /// CPU seconds a second.
    pub(crate) cpu_quiet: f64,
    /// The bystanders are here half of the time.
    pub(crate) cpu_abused: f64,
    pub(crate) before: Reading,
    /// At the ends of windows.
    pub(crate) peak: Reading,
    /// When the attackers have gone.
    pub(crate) after: Reading,
}

/// What became of them.
#[derive(Debug, Serialize)]
pub(crate) struct Attackers {
    /// CPU seconds a second.
    pub(crate) cpu: f64,
    /// Open at the same time, by the ends of windows.
    pub(crate) most: u64,
    /// Memory of the server's process for each of those.
    pub(crate) resident_kb_each: f64,
    /// Memory of the sockets of both ends for each of those.
    pub(crate) sockets_kb_each: f64,
    /// As they have counted themselves.
    pub(crate) tally: serde_json::Value,
    /// What the server has counted.
    pub(crate) counted: BTreeMap<String, u64>,
    /// Seconds until the end of the window in which the server counted the first of a kind.
    pub(crate) first_after: BTreeMap<String, f64>,
}

/// A window and what it was for.
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

const SERVER: usize = 0;
const TWIN: usize = 1;

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
        let args = self.attack_args(&stage);
        let (attack, _) = Helper::start(self.options.attackers.into(), &args)?;
        let mut watch = Watch::new(began, counts.clone(), start);
        thread::sleep(self.settle());
        for pair in 0..self.pairs {
            let mut kinds = [Kind::Abused, Kind::Control];
            if pair % 2 == 1 {
                kinds.reverse();
            }
            for kind in kinds {
                stage.window(kind, self.options.window)?;
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
        (0..windows).try_for_each(|_| stage.window(Kind::Quiet, self.options.window))
    }

    fn attack_args(&self, stage: &Stage) -> Vec<String> {
        let (peers, seed) = (self.peers.to_string(), self.options.seed.to_string());
        ["attack", self.abuse.name, &stage.address, &peers, &seed].map(str::to_owned).to_vec()
    }

    /// Until an attack is under way, or its traces are gone.
    fn settle(&self) -> Duration {
        Duration::from_millis(if self.options.quick { 200 } else { 1000 })
    }
}

impl Ratios {
    fn of(windows: &[Taken], of: Kind, to: Kind) -> Self {
        let all = |kind: Kind| windows.iter().filter(move |taken| taken.kind == kind);
        let ratio = |value: fn(&Window) -> f64| {
            let pairs = all(of).zip(all(to));
            Spread::of(pairs.map(|(of, to)| value(&of.window) / value(&to.window)))
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
    /// Of the server that is attacked.
    address: String,
    bystanders: Helper,
    windows: Vec<Taken>,
    since: Instant,
}

impl Stage {
    fn set(options: &Options) -> Result<Self, Box<dyn Error>> {
        let serve = ["serve".to_owned()];
        let (server, address) = Helper::start(Priority::Usual, &serve)?;
        let (twin, other) = Helper::start(Priority::Usual, &serve)?;
        let think = options.think.as_millis().to_string();
        let args = ["stand-by".to_owned(), think, address.clone(), other];
        let (mut bystanders, _) = Helper::start(Priority::First, &args)?;
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

/// What is seen of the server while it is attacked.
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

/// Counters of connections that are ended, or not let in.
pub(crate) fn tells_of_an_end(counter: &str) -> bool {
    counter.starts_with("closed_") || counter.contains("refused")
}

fn rise(before: &Counts, after: &Counts, name: &str) -> u64 {
    let of = |counts: &Counts| counts.get(name).copied().unwrap_or(0);
    of(after).saturating_sub(of(before))
}
