//! The command line: of the bench, and of the helpers that it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Error, Parser, ValueExt};

use lab::abuse::{ALL, Abuse, named};

pub(crate) const HELP: &str = "\
usage: cargo bench --bench abuse -- [OPTION]...

  --quick             a minute for all: few peers, short windows
  --only NAME[,NAME]  these abuses alone
  --list              names them
  --peers N           attackers, in place of the size that each abuse has of its own
  --pairs N           windows of each kind for an abuse (11, or 15 if it is one of patience; quick 1)
  --window-ms N       length of a window (400; quick 200)
  --think-ms N        mean think time of a bystander's session (10)
  --attackers WHO     idle: they get what CPU is left (default); equal: as much as all others
  --seed N            of the attackers (1)
  --out DIR           writes abuse.json and abuse.md into it";

/// Abuses that are ended by a time limit, which is 10 s by default: they last for longer.
const PATIENT: [&str; 7] = [
    "slowloris",
    "slowloris-logged-in",
    "slow-readers",
    "trickle-readers",
    "silent-peers",
    "black-holes",
    "half-open",
];

/// What this process is to do.
pub(crate) enum Command {
    Measure(Options),
    Serve,
    Attack(Attack),
    StandBy(StandBy),
    Help,
}

pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) only: Vec<String>,
    pub(crate) peers: Option<usize>,
    pairs: Option<usize>,
    pub(crate) window: Duration,
    pub(crate) think: Duration,
    pub(crate) attackers: Attackers,
    pub(crate) seed: u64,
    pub(crate) out: Option<PathBuf>,
}

/// What share of the CPUs attackers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attackers {
    /// What is left.
    Idle,
    /// As much as everybody else.
    Equal,
}

pub(crate) struct Attack {
    pub(crate) abuse: &'static Abuse,
    pub(crate) address: SocketAddr,
    pub(crate) peers: usize,
    pub(crate) seed: u64,
}

pub(crate) struct StandBy {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) think: Duration,
}

impl Command {
    pub(crate) fn from_env() -> Result<Self, Error> {
        let mut parser = Parser::from_env();
        let mut options = Options::default();
        // Without `cargo bench` it is a test, which is to be over soon.
        let mut bench = false;
        let mut window = None;
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("bench") => bench = true,
                Arg::Long("quick") => options.quick = true,
                Arg::Long("only") => {
                    let names = parser.value()?.string()?;
                    options.only.extend(names.split(',').map(str::to_owned));
                }
                Arg::Long("peers") => options.peers = Some(parser.value()?.parse()?),
                Arg::Long("pairs") => options.pairs = Some(parser.value()?.parse()?),
                Arg::Long("window-ms") => window = Some(millis(&mut parser)?),
                Arg::Long("think-ms") => options.think = millis(&mut parser)?,
                Arg::Long("attackers") => options.attackers = attackers(&mut parser)?,
                Arg::Long("seed") => options.seed = parser.value()?.parse()?,
                Arg::Long("out") => options.out = Some(parser.value()?.into()),
                Arg::Long("list") => return Ok(Self::list()),
                Arg::Long("help") | Arg::Short('h') => return Ok(Self::Help),
                Arg::Value(role) if role == "serve" => return Ok(Self::Serve),
                Arg::Value(role) if role == "attack" => return attack(&mut parser),
                Arg::Value(role) if role == "stand-by" => return stand_by(&mut parser),
                other => return Err(other.unexpected()),
            }
        }
        options.quick |= !bench;
        let usual = Duration::from_millis(if options.quick { 200 } else { 400 });
        options.window = window.unwrap_or(usual);
        Ok(Self::Measure(options))
    }

    fn list() -> Self {
        for abuse in ALL {
            println!("{:24} {:5} peers: {}", abuse.name, abuse.peers, abuse.about);
        }
        std::process::exit(0)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quick: false,
            only: Vec::new(),
            peers: None,
            pairs: None,
            window: Duration::ZERO,
            think: Duration::from_millis(10),
            attackers: Attackers::Idle,
            seed: 1,
            out: None,
        }
    }
}

impl Options {
    /// Those that are to be measured.
    pub(crate) fn abuses(&self) -> Result<Vec<&'static Abuse>, String> {
        if self.only.is_empty() {
            return Ok(ALL.iter().collect());
        }
        let find = |name: &String| named(name).ok_or_else(|| format!("there is no abuse {name}"));
        self.only.iter().map(find).collect()
    }

    /// Windows of each kind.
    pub(crate) fn pairs_of(&self, abuse: &Abuse) -> usize {
        let patient = PATIENT.contains(&abuse.name);
        let usual = if patient { 15 } else { 11 };
        self.pairs.unwrap_or(if self.quick { 1 } else { usual })
    }

    pub(crate) fn peers_of(&self, abuse: &Abuse) -> usize {
        let usual = if self.quick { abuse.peers.div_ceil(20) } else { abuse.peers };
        self.peers.unwrap_or(usual)
    }
}

fn millis(parser: &mut Parser) -> Result<Duration, Error> {
    Ok(Duration::from_millis(parser.value()?.parse()?))
}

fn attackers(parser: &mut Parser) -> Result<Attackers, Error> {
    match parser.value()?.string()?.as_str() {
        "idle" => Ok(Attackers::Idle),
        "equal" => Ok(Attackers::Equal),
        other => Err(format!("attackers are idle or equal, not {other}").into()),
    }
}

/// `attack NAME ADDRESS PEERS SEED`
fn attack(parser: &mut Parser) -> Result<Command, Error> {
    let name = parser.value()?.string()?;
    let abuse = named(&name).ok_or_else(|| format!("there is no abuse {name}"))?;
    let address = parser.value()?.parse()?;
    let (peers, seed) = (parser.value()?.parse()?, parser.value()?.parse()?);
    Ok(Command::Attack(Attack { abuse, address, peers, seed }))
}

/// `stand-by THINK-MS ADDRESS...`
fn stand_by(parser: &mut Parser) -> Result<Command, Error> {
    let think = millis(parser)?;
    let mut addresses = Vec::new();
    while let Some(Arg::Value(address)) = parser.next()? {
        addresses.push(address.parse()?);
    }
    Ok(Command::StandBy(StandBy { addresses, think }))
}
