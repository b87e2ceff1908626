//! The command line, of the bench and of the helpers that it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lab::abuse::{ALL, Abuse, named};
use lab::args::{milliseconds, within};

/// Latency of well-behaved clients while others abuse the server.
#[derive(Debug, Parser)]
#[command(name = "abuse", args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A minute for all: few peers, short windows. Without `cargo bench`, always.
    #[arg(long)]
    quick: bool,
    /// `cargo bench` gives it.
    #[arg(long, hide = true)]
    bench: bool,
    /// Only these abuses.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = abuse)]
    only: Vec<&'static Abuse>,
    /// Name the abuses.
    #[arg(long)]
    pub(crate) list: bool,
    /// Attackers, in place of the number that each abuse has.
    #[arg(long, value_name = "N", value_parser = within(1..=1_000_000_usize))]
    peers: Option<usize>,
    /// Windows of each kind for an abuse (default 11, or 15 if the abuse waits for a time limit; quick 1).
    #[arg(long, value_name = "N", value_parser = within(1..=1000_usize))]
    pairs: Option<usize>,
    /// Length of a window (default 400; quick 200).
    #[arg(long, value_name = "MS", value_parser = milliseconds(10..=60_000))]
    window_ms: Option<Duration>,
    /// Mean think time of a bystander's session.
    #[arg(long, value_name = "MS", default_value = "10", value_parser = milliseconds(0..=60_000))]
    pub(crate) think_ms: Duration,
    /// CPU time of attackers.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Attackers::Idle)]
    pub(crate) attackers: Attackers,
    /// Seed of the attackers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Folder for abuse.json and abuse.md.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attackers {
    /// Only the time that is left by all other threads.
    Idle,
    /// The same share as other threads.
    Equal,
}

/// Helper processes of a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    #[command(hide = true)]
    Serve,
    #[command(hide = true)]
    Attack(Attack),
    #[command(hide = true)]
    StandBy(StandBy),
}

#[derive(Debug, Args)]
pub(crate) struct Attack {
    #[arg(value_parser = abuse)]
    pub(crate) abuse: &'static Abuse,
    pub(crate) address: SocketAddr,
    pub(crate) peers: usize,
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct StandBy {
    #[arg(value_parser = milliseconds(0..=60_000))]
    pub(crate) think: Duration,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Abuses that last until a time limit ends them, which is 10 s by default.
const PATIENT: [&str; 7] = [
    "slowloris",
    "slowloris-logged-in",
    "slow-readers",
    "trickle-readers",
    "silent-peers",
    "black-holes",
    "half-open",
];

impl Options {
    pub(crate) fn quick(&self) -> bool {
        self.quick || !self.bench
    }

    pub(crate) fn window(&self) -> Duration {
        let usual = Duration::from_millis(if self.quick() { 200 } else { 400 });
        self.window_ms.unwrap_or(usual)
    }

    pub(crate) fn abuses(&self) -> Vec<&'static Abuse> {
        if self.only.is_empty() { ALL.iter().collect() } else { self.only.clone() }
    }

    /// Windows of each kind.
    pub(crate) fn pairs_of(&self, abuse: &Abuse) -> usize {
        let usual = match PATIENT.contains(&abuse.name) {
            _ if self.quick() => 1,
            true => 15,
            false => 11,
        };
        self.pairs.unwrap_or(usual)
    }

    pub(crate) fn peers_of(&self, abuse: &Abuse) -> usize {
        let usual = if self.quick() { abuse.peers.div_ceil(20) } else { abuse.peers };
        self.peers.unwrap_or(usual)
    }
}

fn abuse(name: &str) -> Result<&'static Abuse, String> {
    named(name).ok_or_else(|| format!("there is no abuse {name}; --list names them"))
}
