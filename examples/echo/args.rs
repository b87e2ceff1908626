//! The command line. Every error names the option, the value, and what would be allowed.

use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use lexopt::{Arg, Parser};

use super::load::{HEADER_BYTES, Heavy, Options, Target};

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Demo,
    Serve(Serve),
    Load(Load),
    Help,
}

#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) listen: String,
    /// `None` leaves it to the library, here and below.
    pub(crate) groups: Option<usize>,
    pub(crate) threads: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) options: Options,
    pub(crate) time: Duration,
    pub(crate) json: bool,
}

/// Why the command line makes no sense.
#[derive(Debug)]
pub(crate) struct UsageError(String);

pub(crate) const HELP: &str = "\
An echo server on epoll-group, and a load generator for it.

usage: echo                                serve on loopback and load it for 5 seconds
       echo serve --listen ADDR [options]  serve until SIGTERM or SIGINT
       echo load --connect ADDR --connections N [options]

ADDR is HOST:PORT or unix:PATH.

serve
  --listen ADDR         where to listen; port 0 takes any free one
  --groups G            epoll groups (0..=128; 0, the default: from the CPUs)
  --threads T           threads in each group (1..=128; default 4)

load
  --connect ADDR        server to load
  --connections N       connections (1..=20000)
  --sessions-per-connection S
                        sessions on each connection (1..=65536; default 1)
  --pipeline P          requests in flight of each session (1..=65536; default 1)
  --size BYTES          frame, 13 bytes of header included (13..=67108876; default 64)
  --think-us T          pause between an answer and the next request (0..=3600000000; default 0)
  --heavy N:US          N more connections, whose frames burn US microseconds of CPU each
                        (1..=1000 and 0..=10000000)
  --seconds S           how long (0.01..=86400; default 5)
  --json                print one JSON object instead of a table
";

const CONNECTIONS: RangeInclusive<usize> = 1..=20_000;
const GROUPS: RangeInclusive<usize> = 0..=128;
const HEAVY_CONNECTIONS: RangeInclusive<usize> = 1..=1000;
const HEAVY_MICROS: RangeInclusive<u64> = 0..=10_000_000;
/// Requests in flight, all connections together: the generator keeps a time for each.
const IN_FLIGHT: RangeInclusive<usize> = 1..=16 << 20;
const PIPELINE: RangeInclusive<usize> = 1..=65_536;
const SECONDS: RangeInclusive<f64> = 0.01..=86_400.0;
const SESSIONS: RangeInclusive<usize> = 1..=65_536;
/// The server takes a body and kind byte of 64 MiB.
const SIZE: RangeInclusive<usize> = HEADER_BYTES..=HEADER_BYTES - 1 + (64 << 20);
const THINK_MICROS: RangeInclusive<u64> = 0..=3_600_000_000;
const THREADS: RangeInclusive<usize> = 1..=128;

impl Command {
    /// Reads the arguments of this process.
    pub(crate) fn from_env() -> Result<Self, UsageError> {
        let mut parser = Parser::from_env();
        match parser.next()? {
            None => Ok(Self::Demo),
            Some(Arg::Short('h') | Arg::Long("help")) => Ok(Self::Help),
            Some(Arg::Value(command)) if command == "serve" => serve(&mut parser),
            Some(Arg::Value(command)) if command == "load" => load(&mut parser),
            Some(Arg::Value(command)) => {
                let command = command.display();
                Err(UsageError(format!("command {command} is neither serve nor load")))
            }
            Some(other) => Err(other.unexpected().into()),
        }
    }
}

fn serve(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut listen = None;
    let mut groups = None;
    let mut threads = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("listen") => listen = Some(text("--listen", parser.value()?)?),
            Arg::Long("groups") => groups = Some(number("--groups", parser.value()?, GROUPS)?),
            Arg::Long("threads") => threads = Some(number("--threads", parser.value()?, THREADS)?),
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let listen = listen.ok_or_else(|| missing("serve", "--listen"))?;
    Ok(Command::Serve(Serve { listen, groups, threads }))
}

fn load(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut target = None;
    let mut connections = None;
    let mut options = Options::new(Target::Unix(std::path::PathBuf::new()));
    let mut time = Duration::from_secs(5);
    let mut json = false;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("connect") => target = Some(address("--connect", parser.value()?)?),
            Arg::Long("connections") => {
                connections = Some(number("--connections", parser.value()?, CONNECTIONS)?);
            }
            Arg::Long(option @ "sessions-per-connection") => {
                let option = format!("--{option}");
                options.sessions_per_connection = number(&option, parser.value()?, SESSIONS)?;
            }
            Arg::Long("pipeline") => {
                options.pipeline = number("--pipeline", parser.value()?, PIPELINE)?;
            }
            Arg::Long("size") => options.frame_bytes = number("--size", parser.value()?, SIZE)?,
            Arg::Long("think-us") => {
                let micros = number("--think-us", parser.value()?, THINK_MICROS)?;
                options.think = Duration::from_micros(micros);
            }
            Arg::Long("heavy") => options.heavy = Some(heavy(parser.value()?)?),
            Arg::Long("seconds") => {
                let seconds = number("--seconds", parser.value()?, SECONDS)?;
                time = Duration::from_secs_f64(seconds);
            }
            Arg::Long("json") => json = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    options.target = target.ok_or_else(|| missing("load", "--connect"))?;
    options.connections = connections.ok_or_else(|| missing("load", "--connections"))?;
    let in_flight = options.connections * options.sessions_per_connection * options.pipeline;
    if !IN_FLIGHT.contains(&in_flight) {
        let limit = IN_FLIGHT.end();
        return Err(UsageError(format!(
            "--connections x --sessions-per-connection x --pipeline = {in_flight} requests in \
             flight exceeds {limit}"
        )));
    }
    Ok(Command::Load(Load { options, time, json }))
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
    })
}

fn address(option: &str, value: OsString) -> Result<Target, UsageError> {
    let value = text(option, value)?;
    value.parse().map_err(|error| {
        UsageError(format!("{option} {value} is neither HOST:PORT nor unix:PATH: {error}"))
    })
}

fn number<T>(option: &str, value: OsString, range: RangeInclusive<T>) -> Result<T, UsageError>
where
    T: FromStr + PartialOrd + fmt::Debug,
{
    let value = text(option, value)?;
    match value.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        Ok(_) => Err(UsageError(format!("{option} {value} is outside {range:?}"))),
        Err(_) => Err(UsageError(format!("{option} {value} is not a number in {range:?}"))),
    }
}

fn text(option: &str, value: OsString) -> Result<String, UsageError> {
    value.into_string().map_err(|value| {
        let value = value.display();
        UsageError(format!("{option} {value} is not UTF-8"))
    })
}

fn missing(command: &str, option: &str) -> UsageError {
    UsageError(format!("{command} needs {option}"))
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (--help lists the options)", self.0)
    }
}

impl std::error::Error for UsageError {}

impl From<lexopt::Error> for UsageError {
    fn from(error: lexopt::Error) -> Self {
        Self(error.to_string())
    }
}
