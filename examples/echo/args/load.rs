//! The options of `load`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser};

use super::super::load::{HEADER_BYTES, Heavy, Options, Target};
use super::{Command, UsageError, address, missing, number, seconds, text};

#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) options: Options,
    pub(crate) time: Duration,
    pub(crate) json: bool,
}

const CONNECTIONS: RangeInclusive<usize> = 1..=20_000;
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

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut target = None;
    let mut connections = None;
    let mut options = Options::new(Target::Unix(PathBuf::new()));
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
            Arg::Long("seconds") => time = seconds("--seconds", parser.value()?, SECONDS)?,
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
        pipeline: 1,
    })
}
