//! The command line.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::{Arg, Parser};

use super::experiment::Shape;
use super::load::{HEADER_BYTES, Heavy, Target};
use super::pools::Pools;
use super::server::{Architecture, EngineName};
use super::spec::{Kind, Spec};
use super::suite::{SUITES, Suite};
use super::usage::{UsageError, number, text};

mod pools;
mod report;
mod sessions;

pub(crate) use report::Report;
pub(crate) use sessions::{Part, Sessions};

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Report(Report),
    Measure(Measure),
    Sessions(Sessions),
    Pools(Pools),
    /// This process is a server of the rig.
    Serve(Spec, SocketAddr),
    /// Likewise, one that runs statements.
    ServeSql(ServeSql),
    /// This process holds idle connections for the rig.
    Hold(Target, usize),
    Help,
}

#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) scenario: Scenario,
    pub(crate) length: Length,
    pub(crate) connections: Option<Vec<usize>>,
    /// The load of [`Scenario::Servers`], for each number of connections.
    pub(crate) shape: Shape,
    pub(crate) servers: Option<Vec<Spec>>,
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct ServeSql {
    pub(crate) listen: SocketAddr,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) engine: EngineName,
    pub(crate) architecture: Architecture,
    pub(crate) database: Option<PathBuf>,
    /// Of `sbtest1`, if the database does not have it.
    pub(crate) rows: u32,
}

/// How much is measured, as far as it was said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Length {
    pairs: Option<usize>,
    window: Option<Duration>,
    quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    Cpu,
    Heavy,
    Pipeline,
    Idle,
    /// No named one: the servers and the load of the command line.
    Servers,
}

const HELP: &str = "\
epoll-group beside what it is measured against.

usage: compare [options]                   the report: all suites, for the record
       compare --quick                     the same as a first look, in less than 3 minutes
       compare --scenario NAME [options]   the numbers to reach, each with its target
       compare --servers A,B[,C] [options] ratios of B, C … to A under the load given
       compare --all [options]             the same with one of each kind
       compare sessions [options]          statements of sessions: select1 and a thread for each
       compare pool [options]              pools of connections under 300 threads
       compare serve SERVER ADDR           one of the servers, until standard input ends
       compare serve-sql SERVER [options]  one that runs statements, likewise
       compare hold ADDR N                 idle connections to it, until standard input ends

report: a page, its charts and the raw numbers in benches/record/DATE-MACHINE
  --only SUITE,SUITE    some of its suites
  --rounds N            windows of each server under each load (1..=1000; default 11; ratios need 5)
  --window-ms T         length of a window (10..=60000; default 300)
  --quick               2 rounds of 100 ms, fewer loads, to target/compare/quick
  --out DIR             another folder; files of the same names are replaced

suites, in the order of the report
SUITES
scenarios (--servers replaces the ones to compare, the first is the base)
  cpu        CPU time, system calls, throughput and p99 beside the limit, with the rig's floor
  heavy      64 light connections beside one that burns 5 ms for each of its frames
  pipeline   16 connections x 32 requests in flight, against the limit and against 512 x 1
  idle       resident memory of 10 000 idle connections

SERVER is limit, mio, uv, easy-sync, easy-async, percona, grpc-cq, grpc-cq-repaired,
thread-per-connection, thread-per-session, tokio or epoll-group, then :THREADS, then :SETTING=VALUE, and
@BINARY for another build of this program: limit:2, epoll-group:4:events=1, epoll-group@/old/one.
Settings of epoll-group: threads (of each group), groups, events, pollers, tasks-per-poll,
read-budget. What is not set is the library's default. Others: workers of easy-async, groups of
percona. Any server: cpus=N, the first N of the machine.

measuring (of all but the report)
  --pairs N             pairs of windows (1..=10000; default 31)
  --window-ms T         length of a window (10..=60000; default 500)
  --quick               5 pairs of 200 ms: a first look, not for the record
  --json FILE           raw numbers (a scenario: default target/compare/NAME.json)

load (a scenario has its own, but cpu and idle take --connections)
  --connections N,N     connections (1..=19000 each; default 32,128,512,1024; idle: 10000)
  --sessions S          sessions on each connection (1..=65536; default 1)
  --pipeline P          requests in flight of each session (1..=65536; default 1)
  --size BYTES          frame, 13 bytes of header included (13..=1048576; default 64)
  --think-us T          pause between an answer and the next request (default 0)
  --heavy N:US          N more connections, whose frames burn US microseconds of CPU each

sessions: measuring as above, and
  --servers A,B         base and subject (default old:sqlite,select1): old has a thread for each
                        session, jdbc one for each connection, which has one session, new is the
                        library; :constant answers without a database; select1@BINARY is another
                        build of the example
  --parts P,P           base: select 1 against the base; scale: against fewer sessions;
                        points: kinds of point selects (default all)
  --sessions N,N        sessions, all connections together (default 16,64,256,1024,2048,4096)
  --point-sessions N    sessions of the point selects (default 1024)
  --connections N       connections that they share (default 16)
  --rows N              rows of the table (default 100000)
  --load-threads N      threads of the load generator (default 2)

pool: --pairs (here: rounds, default 11), --window-ms, --quick, --json as above, and
  --capacities N,N      connections of each of the 16 backends (default 100,50,20,10,5)

serve-sql
  --listen ADDR --user U --password P [--database FILE] [--rows N]
";

/// What `--help` says.
pub(crate) fn help() -> String {
    let line = |suite: &Suite| format!("  {:<21} {}\n", suite.name, suite.question);
    HELP.replace("SUITES", &SUITES.iter().map(line).collect::<String>())
}

const ALL: [Kind; 3] = [Kind::Limit, Kind::ThreadPerConnection, Kind::EpollGroup];
const CONNECTIONS: RangeInclusive<usize> = 1..=19_000;
const HEAVY_CONNECTIONS: RangeInclusive<usize> = 1..=1000;
const HEAVY_MICROS: RangeInclusive<u64> = 0..=10_000_000;
const PAIRS: RangeInclusive<usize> = 1..=10_000;
const PIPELINE: RangeInclusive<usize> = 1..=65_536;
const SESSIONS: RangeInclusive<usize> = 1..=65_536;
const SIZE: RangeInclusive<usize> = HEADER_BYTES..=1 << 20;
const THINK_MICROS: RangeInclusive<u64> = 0..=60_000_000;
const WINDOW_MILLIS: RangeInclusive<u64> = 10..=60_000;

const SCENARIOS: [(&str, Scenario); 4] = [
    ("cpu", Scenario::Cpu),
    ("heavy", Scenario::Heavy),
    ("pipeline", Scenario::Pipeline),
    ("idle", Scenario::Idle),
];

impl Command {
    /// Reads the arguments of this process.
    pub(crate) fn from_env() -> Result<Self, UsageError> {
        Self::parse(Parser::from_env())
    }

    fn parse(mut parser: Parser) -> Result<Self, UsageError> {
        let mut measure = Measure {
            scenario: Scenario::Servers,
            length: Length::default(),
            connections: None,
            shape: Shape::plain(1),
            servers: None,
            json: None,
        };
        let mut report = report::Said::default();
        let (mut load_option, mut measure_option) = (None, None);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Short('h') | Arg::Long("help") => return Ok(Self::Help),
                Arg::Value(command) if command == "sessions" => {
                    return sessions::parse(&mut parser);
                }
                Arg::Value(command) if command == "pool" => return pools::parse(&mut parser),
                Arg::Value(command) if command == "serve-sql" => {
                    return sessions::parse_serve_sql(&mut parser);
                }
                Arg::Value(command) if command == "serve" => return serve(&mut parser),
                Arg::Value(command) if command == "hold" => return hold(&mut parser),
                Arg::Long("quick") => measure.length.quick = true,
                Arg::Long("all") => measure.servers = Some(ALL.map(Spec::plain).into()),
                Arg::Long(option) => {
                    let option = format!("--{option}");
                    if measure.load_option(&option, &mut parser)? {
                        load_option = Some(option);
                    } else if measure.option(&option, &mut parser)? {
                        // A report knows this one as well.
                        let own = option != "--window-ms";
                        measure_option = own.then_some(option).or(measure_option);
                    } else if !report.option(&option, &mut parser)? {
                        return Err(UsageError(format!("no option {option}")));
                    }
                }
                other => return Err(other.unexpected().into()),
            }
        }
        if let (Some(option), Some(name)) = (&load_option, measure.scenario.name()) {
            let text = format!("scenario {name} has its own load: {option} makes no sense with it");
            return Err(UsageError(text));
        }
        let is_report = measure.scenario == Scenario::Servers && measure.servers.is_none();
        match load_option.or(measure_option) {
            Some(option) if is_report => {
                Err(UsageError(format!("{option} makes no sense without --scenario or --servers")))
            }
            _ if is_report => Ok(Self::Report(report.report(&measure.length)?)),
            _ if !report.is_empty() => {
                let text =
                    "--only, --rounds and --out are those of the report: no scenario, no servers";
                Err(UsageError(text.to_owned()))
            }
            _ => Ok(Self::Measure(measure)),
        }
    }
}

impl Measure {
    /// Reads one option with its value; `false` when there is none of this name.
    fn option(&mut self, option: &str, parser: &mut Parser) -> Result<bool, UsageError> {
        match option {
            "--scenario" => self.scenario = scenario(parser.value()?)?,
            "--servers" => self.servers = Some(list(option, parser.value()?)?),
            "--json" => self.json = Some(parser.value()?.into()),
            "--connections" => {
                let counts: Vec<usize> = list(option, parser.value()?)?;
                if let Some(count) = counts.iter().find(|count| !CONNECTIONS.contains(count)) {
                    let text = format!("{option} {count} is outside {CONNECTIONS:?}");
                    return Err(UsageError(text));
                }
                self.connections = Some(counts);
            }
            _ => return self.length.option(option, parser),
        }
        Ok(true)
    }

    /// Likewise, one that says what the load is.
    fn load_option(&mut self, option: &str, parser: &mut Parser) -> Result<bool, UsageError> {
        match option {
            "--sessions" => self.shape.sessions = number(option, parser.value()?, SESSIONS)?,
            "--pipeline" => self.shape.pipeline = number(option, parser.value()?, PIPELINE)?,
            "--size" => self.shape.frame_bytes = number(option, parser.value()?, SIZE)?,
            "--think-us" => {
                let micros = number(option, parser.value()?, THINK_MICROS)?;
                self.shape.think = Duration::from_micros(micros);
            }
            "--heavy" => self.shape.heavy = Some(heavy(parser.value()?)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Length {
    /// Reads one option with its value; `false` when there is none of this name.
    fn option(&mut self, option: &str, parser: &mut Parser) -> Result<bool, UsageError> {
        match option {
            "--pairs" => self.pairs = Some(number(option, parser.value()?, PAIRS)?),
            "--window-ms" => {
                let millis = number(option, parser.value()?, WINDOW_MILLIS)?;
                self.window = Some(Duration::from_millis(millis));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(crate) fn pairs(&self) -> usize {
        self.pairs.unwrap_or(if self.quick { 5 } else { 31 })
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    pub(crate) fn window(&self) -> Duration {
        let millis = if self.quick { 200 } else { 500 };
        let usual = Duration::from_millis(millis);
        self.window.unwrap_or(usual)
    }
}

impl Scenario {
    /// `None`: the servers and the load of the command line.
    pub(crate) fn name(self) -> Option<&'static str> {
        let entry = SCENARIOS.iter().find(|(_, scenario)| *scenario == self);
        entry.map(|(name, _)| *name)
    }
}

fn serve(parser: &mut Parser) -> Result<Command, UsageError> {
    let spec = text("SERVER", parser.value()?)?;
    let spec = spec.parse().map_err(UsageError)?;
    Ok(Command::Serve(spec, address("ADDR", parser.value()?)?))
}

fn address(option: &str, value: OsString) -> Result<SocketAddr, UsageError> {
    let value = text(option, value)?;
    value.parse().map_err(|_| UsageError(format!("{option} {value} is not IP:PORT")))
}

fn hold(parser: &mut Parser) -> Result<Command, UsageError> {
    let target = text("ADDR", parser.value()?)?;
    let target = target.parse().map_err(UsageError)?;
    let connections = number("N", parser.value()?, CONNECTIONS)?;
    Ok(Command::Hold(target, connections))
}

fn scenario(value: OsString) -> Result<Scenario, UsageError> {
    let value = text("--scenario", value)?;
    let entry = SCENARIOS.iter().find(|(name, _)| *name == value);
    entry.map(|(_, scenario)| *scenario).ok_or_else(|| {
        UsageError(format!("--scenario {value} is none of cpu, heavy, pipeline, idle"))
    })
}

fn heavy(value: OsString) -> Result<Heavy, UsageError> {
    let value = text("--heavy", value)?;
    let Some((connections, micros)) = value.split_once(':') else {
        return Err(UsageError(format!("--heavy {value} is not N:US, such as 1:5000")));
    };
    let micros = number("US of --heavy", micros.into(), HEAVY_MICROS)?;
    Ok(Heavy {
        connections: number("N of --heavy", connections.into(), HEAVY_CONNECTIONS)?,
        burn: Duration::from_micros(micros),
        pipeline: 1,
    })
}

fn list<T>(option: &str, value: OsString) -> Result<Vec<T>, UsageError>
where
    T: FromStr<Err: fmt::Display>,
{
    let value = text(option, value)?;
    let parse = |item: &str| {
        let error = |error| UsageError(format!("{option} {item}: {error}"));
        item.parse().map_err(error)
    };
    value.split(',').map(parse).collect()
}
