//! The options of `pool`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use lexopt::{Arg, Parser};

use super::{Command, Length, UsageError, list};
use crate::pools::Pools;

const CAPACITIES: RangeInclusive<usize> = 1..=10_000;

/// Rounds of a measurement for the record, and of a first look.
const ROUNDS: usize = 11;
const QUICK_ROUNDS: usize = 3;

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut length = Length::default();
    let mut capacities = vec![100, 50, 20, 10, 5];
    let mut json = PathBuf::from("target/compare/pool.json");
    while let Some(arg) = parser.next()? {
        let option = match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            Arg::Long("quick") => {
                length.quick = true;
                continue;
            }
            Arg::Long(option) => format!("--{option}"),
            other => return Err(other.unexpected().into()),
        };
        match option.as_str() {
            "--json" => json = parser.value()?.into(),
            "--capacities" => {
                capacities = list(&option, parser.value()?)?;
                if let Some(value) = capacities.iter().find(|value| !CAPACITIES.contains(value)) {
                    return Err(UsageError(format!("{option} {value} is outside {CAPACITIES:?}")));
                }
            }
            _ if length.option(&option, parser)? => {}
            _ => return Err(UsageError(format!("no option {option}"))),
        }
    }
    let rounds = length.pairs.unwrap_or(if length.quick { QUICK_ROUNDS } else { ROUNDS });
    Ok(Command::Pools(Pools { rounds, window: length.window(), capacities, json }))
}
