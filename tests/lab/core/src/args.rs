//! Command lines: options that the programs share, and parsers of values for `clap`.
//!
//! A parser names the value and its limits, `clap` adds the option. A command line that makes no
//! sense ends the program with status 2.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;

use crate::settings::{Setting, Settings, SettingsError};
use crate::terminal::{Output, fail};

/// The frame of a `main`: reads the command line, runs, and prints an error on standard error.
pub fn run<C: Parser>(run: impl FnOnce(C, &mut Output) -> Result<(), Box<dyn Error>>) -> ExitCode {
    let command = C::parse();
    let mut out = Output::new();
    let done = run(command, &mut out);
    match done.and_then(|()| Ok(std::io::Write::flush(&mut out)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(misuse) => misuse.exit(),
            Err(error) => fail(C::command().get_name(), error.as_ref(), ExitCode::FAILURE),
        },
    }
}

/// Error for options that make no sense together. Status 2, as for a value out of range.
pub fn misuse(text: impl fmt::Display) -> Box<dyn Error> {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{text}\n")).into()
}

/// A user of a server.
#[derive(Clone, Debug, clap::Args)]
pub struct Account {
    /// User to log in as.
    #[arg(long)]
    pub user: String,
    /// Password of the user.
    #[arg(long)]
    pub password: String,
}

/// Tunables of a server: a file, then `EPOLL_GROUP_NAME=VALUE` of the environment, then options.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Tunables {
    /// TOML file of tunables, such as examples/echo/echo.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One tunable; may be repeated. Overrides EPOLL_GROUP_<NAME>=VALUE of the environment, which
    /// overrides the file.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<Setting>,
}

impl Tunables {
    /// The configuration with where each value comes from.
    ///
    /// # Errors
    /// A file that cannot be read, or a value that the tunable does not take.
    pub fn gather(&self) -> Result<Settings, SettingsError> {
        Settings::gather(self.config.as_deref(), std::env::vars_os(), &self.settings)
    }
}

/// A number within limits.
pub fn within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + fmt::Debug + Clone + Send + Sync + 'static,
{
    move |text| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        Ok(_) => Err(format!("{text} is outside {range:?}")),
        Err(_) => Err(format!("{text} is not a number in {range:?}")),
    }
}

/// Seconds within limits, fractions allowed.
pub fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    let number = within(range);
    move |text| number(text).map(Duration::from_secs_f64)
}

/// Milliseconds within limits.
pub fn milliseconds(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    let number = within(range);
    move |text| number(text).map(Duration::from_millis)
}

/// Microseconds within limits.
pub fn microseconds(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    let number = within(range);
    move |text| number(text).map(Duration::from_micros)
}

/// A tunable and its value: `NAME=VALUE`.
///
/// # Errors
/// There is no `=` in it.
pub fn setting(text: &str) -> Result<Setting, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("{text} is not NAME=VALUE, such as max_threads=256"));
    };
    Ok(Setting { option: "--set", name: name.to_owned(), value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_value_and_its_limits() {
        let number = within(1..=65_536_usize);
        assert_eq!(number("7"), Ok(7));
        assert_eq!(number("0"), Err("0 is outside 1..=65536".to_owned()));
        assert_eq!(number("many"), Err("many is not a number in 1..=65536".to_owned()));
        let time = seconds(0.01..=86_400.0);
        assert_eq!(time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(time("NaN"), Err("NaN is outside 0.01..=86400.0".to_owned()));
        assert_eq!(milliseconds(1..=2)("2"), Ok(Duration::from_millis(2)));
        assert_eq!(microseconds(1..=2)("1"), Ok(Duration::from_micros(1)));
        let error = "max_threads is not NAME=VALUE, such as max_threads=256";
        assert_eq!(setting("max_threads"), Err(error.to_owned()));
    }
}
