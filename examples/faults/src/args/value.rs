//! Times, marks and numbers on a command line.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use lab::faults::script::Mark;

const LONGEST: Duration = Duration::from_secs(1000);
const EXAMPLES: &str = "a time such as 250us, 5ms or 10s";

pub(super) fn in_range<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + fmt::Debug,
{
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        Ok(_) => Err(format!("{text} is outside {range:?}")),
        Err(_) => Err(format!("{text} is not a number in {range:?}")),
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    let nanos = try_time(text).ok_or_else(|| format!("{text} is not {EXAMPLES}"))?;
    if nanos > LONGEST {
        return Err(format!("{text} is longer than {LONGEST:?}"));
    }
    Ok(nanos)
}

/// Bytes passed on, or a time.
pub(super) fn mark(text: &str) -> Result<Mark, String> {
    if let Ok(byte) = text.parse() {
        return Ok(Mark::Byte(byte));
    }
    if try_time(text).is_none() {
        return Err(format!("{text} is neither bytes nor {EXAMPLES}"));
    }
    time(text).map(Mark::Time)
}

fn try_time(text: &str) -> Option<Duration> {
    let (number, unit) = [("us", 1), ("ms", 1000), ("s", 1_000_000)]
        .into_iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))?;
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_micros(number.checked_mul(unit)?))
}
