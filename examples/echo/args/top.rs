//! The options of `top`.

use std::ops::RangeInclusive;
use std::time::Duration;

use lexopt::{Arg, Parser};

use super::super::load::Target;
use super::{Command, UsageError, address, missing, seconds};

#[derive(Debug)]
pub(crate) struct Top {
    pub(crate) target: Target,
    pub(crate) interval: Duration,
    pub(crate) once: bool,
}

const INTERVAL: RangeInclusive<f64> = 0.05..=3600.0;

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut target = None;
    let mut interval = Duration::from_secs(1);
    let mut once = false;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("connect") => target = Some(address("--connect", parser.value()?)?),
            Arg::Long("interval") => interval = seconds("--interval", parser.value()?, INTERVAL)?,
            Arg::Long("once") => once = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let target = target.ok_or_else(|| missing("top", "--connect"))?;
    Ok(Command::Top(Top { target, interval, once }))
}
