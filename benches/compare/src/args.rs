//! The command line.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use baselines::Spec;
use clap::{Args, Parser, Subcommand};
use lab::args::{microseconds, milliseconds, within};
use lab::load::{HEADER_BYTES, Heavy, Pace, Target};
use lab::terminal::Output;

use crate::experiment::Plan;
use crate::proxies::Proxy;
use crate::server::{self, SqlServer};
use crate::suite::{self, SUITES, Suite, many};
use crate::tls::TlsServer;
use crate::workload::{Frames, Workload};
use crate::{charts, pools, report, summary};

/// epoll-group beside what it is measured against.
///
/// Without a command: a report, which is a page of tables and the raw numbers, of all suites, some, or of
/// servers and a load that are named here.
#[derive(Debug, Parser)]
#[command(name = "compare", after_help = suites())]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    length: Length,
    /// Folder of the report. Files of the same names are replaced.
    ///
    /// Default: benches/record/DATE-MACHINE, with --quick target/compare/quick, with --servers none.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Some of the suites.
    #[arg(long, value_name = "SUITE,…", value_delimiter = ',', value_parser = named_suite)]
    only: Vec<&'static Suite>,
    /// Servers to compare under the load below, the first with the others.
    ///
    /// A server is limit, uv, easy-sync, easy-async, percona, grpc-cq, thread-per-connection,
    /// thread-per-session, tokio or epoll-group, then :THREADS, then :SETTING=VALUE, and @BINARY for
    /// another build of this program: limit:2, epoll-group:4:events=1, epoll-group@/old/compare. Settings of
    /// epoll-group: threads (of each group), groups, events, pollers, tasks-per-poll, read-budget, bind (each
    /// thread to 0 for all CPUs, 1 for one, 2 for those of its group). Others: workers of easy-async, groups
    /// of percona. Any server: cpus=N, the first N of the machine.
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with = "only")]
    servers: Vec<Spec>,
    #[command(flatten)]
    load: Load,
}

/// Rounds and windows.
#[derive(Clone, Copy, Debug, Args)]
struct Length {
    /// Windows of each server under each load (default 11; ratios need 5).
    #[arg(long, value_parser = within(1..=1000_usize))]
    rounds: Option<usize>,
    /// Length of a window (default 300).
    #[arg(long, value_name = "MS", value_parser = milliseconds(10..=60_000))]
    window_ms: Option<Duration>,
    /// 2 rounds of 100 ms and fewer loads: a first look, not for the record.
    #[arg(long)]
    quick: bool,
}

/// Load of `--servers`.
#[derive(Debug, Args)]
struct Load {
    #[arg(long, value_delimiter = ',', default_value = "32,128,512,1024", requires = "servers")]
    #[arg(value_parser = within(1..=19_000_usize))]
    connections: Vec<usize>,
    /// Sessions on each connection.
    #[arg(long, default_value_t = 1, requires = "servers", value_parser = within(1..=65_536_usize))]
    sessions: usize,
    /// Requests in flight of each session.
    #[arg(long, default_value_t = 1, requires = "servers", value_parser = within(1..=65_536_usize))]
    pipeline: usize,
    /// Size of a frame, 13 bytes of header included.
    #[arg(long, default_value_t = 64, requires = "servers")]
    #[arg(value_parser = within(HEADER_BYTES..=1 << 20))]
    size: usize,
    /// Pause between an answer and the next request.
    #[arg(long, value_name = "US", default_value = "0", requires = "servers")]
    #[arg(value_parser = microseconds(0..=60_000_000), conflicts_with_all = ["random_us", "bursts"])]
    think_us: Duration,
    /// Each session asks at random times, once in so long on average.
    #[arg(long, value_name = "US", requires = "servers", conflicts_with = "bursts")]
    #[arg(value_parser = microseconds(1..=60_000_000))]
    random_us: Option<Duration>,
    /// N connections ask at once, and US microseconds later the next N.
    #[arg(long, value_name = "N:US", requires = "servers", value_parser = bursts)]
    bursts: Option<Pace>,
    /// CPU time that a frame burns in the server.
    #[arg(long, value_name = "US", default_value = "0", requires = "servers")]
    #[arg(value_parser = microseconds(0..=10_000_000))]
    burn_us: Duration,
    /// N more connections, whose frames burn US microseconds of CPU each.
    #[arg(long, value_name = "N:US", requires = "servers", value_parser = heavy)]
    heavy: Option<Heavy>,
    /// Each client connects, asks once and closes, again and again. `--connections` counts the clients.
    #[arg(long, requires = "servers")]
    #[arg(conflicts_with_all = ["sessions", "pipeline", "size", "think_us", "random_us", "bursts"])]
    #[arg(conflicts_with_all = ["burn_us", "heavy"])]
    churn: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pools of connections under threads, in the published cells.
    Pool(Pool),
    /// Charts of a record of `--only published` and `pool`, as an SVG on standard output.
    Charts {
        /// Folder with `published.json` and `pool.json`.
        record: PathBuf,
    },
    /// Summary of a record of `benches/report.sh`, as Markdown on standard output.
    Summary {
        /// Folder of the record.
        record: PathBuf,
    },
    /// A server that echoes frames, until standard input ends.
    #[command(hide = true)]
    Serve { server: Spec },
    /// A server of statements, until standard input ends.
    #[command(hide = true)]
    ServeSql {
        server: SqlServer,
        /// Rows of `sbtest1`.
        rows: u32,
    },
    /// A proxy before a server, until standard input ends.
    #[command(hide = true)]
    ServeProxy { proxy: Proxy, to: SocketAddr },
    /// A server that echoes bytes over TLS, until standard input ends.
    #[command(hide = true)]
    ServeTls {
        server: TlsServer,
        /// Folder with the certificate and its key.
        folder: PathBuf,
    },
    /// Idle connections to a server, until standard input ends.
    #[command(hide = true)]
    Hold { target: Target, connections: usize },
}

#[derive(Debug, Args)]
struct Pool {
    #[command(flatten)]
    length: Length,
    /// File for the raw numbers.
    #[arg(long, value_name = "FILE", default_value = "target/compare/pool.json")]
    json: PathBuf,
}

impl Length {
    /// `usual` and `quick` are rounds and the milliseconds of a window.
    fn plan(self, usual: (usize, u64), quick: (usize, u64)) -> Plan {
        let (rounds, window_ms) = if self.quick { quick } else { usual };
        Plan {
            cycles: self.rounds.unwrap_or(rounds),
            window: self.window_ms.unwrap_or_else(|| Duration::from_millis(window_ms)),
            fresh_every: 3,
            counts_syscalls: true,
            repeats_first: !self.quick,
            quick: self.quick,
        }
    }
}

impl Load {
    fn pace(&self) -> Pace {
        match (self.random_us, self.bursts) {
            (_, Some(bursts)) => bursts,
            (Some(mean), None) => Pace::Random(mean),
            (None, None) => Pace::After(self.think_us),
        }
    }
}

/// Does what the command line says.
pub fn run(cli: Cli, out: &mut Output) -> Result<(), Box<dyn Error>> {
    let plan = cli.length.plan((11, 300), (2, 100));
    match cli.command {
        None if cli.servers.is_empty() => {
            let wanted = |suite: &&Suite| {
                cli.only.is_empty() || cli.only.iter().any(|only| only.name == suite.name)
            };
            let suites: Vec<_> = SUITES.iter().filter(wanted).collect();
            report::run(&suites, &plan, cli.out, out)
        }
        None => {
            let Load { sessions, pipeline, size, burn_us, heavy, .. } = cli.load;
            let pace = cli.load.pace();
            let frame_bytes = size;
            let shape = Frames {
                connections: 0,
                sessions,
                pipeline,
                frame_bytes,
                pace,
                burn: burn_us,
                heavy,
            };
            let workloads = cli.load.connections.iter().map(|&connections| match cli.load.churn {
                true => Workload::churn(connections),
                false => Workload::frames(Frames { connections, ..shape }),
            });
            let counts_syscalls = shape.counts_syscalls();
            // To see the noise, the caller names a server twice.
            let plan = Plan { counts_syscalls, repeats_first: false, ..plan };
            suite::servers::run(&cli.servers, workloads, plan, cli.out, out)
        }
        Some(Command::Pool(pool)) => {
            let plan = pool.length.plan((41, 500), (3, 200));
            pools::run(&plan, &pool.json, out)
        }
        Some(Command::Charts { record }) => Ok(write!(out, "{}", charts::draw(&record)?)?),
        Some(Command::Summary { record }) => Ok(write!(out, "{}", summary::write(&record))?),
        Some(Command::Serve { server }) => server::echo(&server),
        Some(Command::ServeSql { server, rows }) => server::sql(server, rows),
        Some(Command::ServeProxy { proxy, to }) => proxy.serve(to),
        Some(Command::ServeTls { server, folder }) => server.serve(&folder),
        Some(Command::Hold { target, connections }) => many::hold(target, connections),
    }
}

fn suites() -> String {
    let line = |suite: &Suite| format!("  {:<11} {}\n", suite.name, suite.question);
    format!("Suites:\n{}", SUITES.iter().map(line).collect::<String>())
}

fn named_suite(name: &str) -> Result<&'static Suite, String> {
    let names = || SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
    let suite = SUITES.iter().find(|suite| suite.name == name);
    suite.ok_or_else(|| format!("{name} is none of {}", names()))
}

fn heavy(text: &str) -> Result<Heavy, String> {
    let (connections, burn) = number_and_time(text, 0..=10_000_000)?;
    Ok(Heavy { connections, burn, pipeline: 1 })
}

fn bursts(text: &str) -> Result<Pace, String> {
    let (size, every) = number_and_time(text, 1..=10_000_000)?;
    Ok(Pace::Bursts { size, every })
}

fn number_and_time(text: &str, micros: RangeInclusive<u64>) -> Result<(usize, Duration), String> {
    let wrong = || format!("{text} is not N:US, such as 1:5000");
    let (number, time) = text.split_once(':').ok_or_else(wrong)?;
    Ok((within(1..=1000)(number)?, microseconds(micros)(time)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_named() {
        for (args, named) in [
            (&["--only", "nothing"][..], "nothing is none of paced, "),
            (&["--pipeline", "2"], "--servers"),
            (&["--servers", "limit", "--only", "echo"], "--only"),
            (&["--servers", "seastar"], "seastar is none of limit, "),
            (&["--rounds", "0"], "0 is outside 1..=1000"),
            (&["--servers", "limit", "--heavy", "1"], "1 is not N:US"),
        ] {
            let error = Cli::try_parse_from([&["compare"], args].concat()).unwrap_err().to_string();
            assert!(error.contains(named), "{args:?}: {error}");
        }
        assert!(suites().contains("\n  echo  "));
    }
}
