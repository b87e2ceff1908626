//! Values on a command line. Every error names the option, the value, and what would be allowed.

use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Error in a command line.
#[derive(Debug)]
pub struct UsageError(pub String);

pub fn number<T>(option: &str, value: OsString, range: RangeInclusive<T>) -> Result<T, UsageError>
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

pub fn text(option: &str, value: OsString) -> Result<String, UsageError> {
    value.into_string().map_err(|value| {
        let value = value.display();
        UsageError(format!("{option} {value} is not UTF-8"))
    })
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
