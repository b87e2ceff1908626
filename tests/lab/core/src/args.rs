//! Command lines: options that the programs share, and parsers of values for `clap`.
//!
//! A parser names the value and its limits, `clap` adds the option. A command line that makes no
//! sense ends the program with status 2.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use epoll_group::Config;

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
    pub settings: Vec<(String, String)>,
}

impl Tunables {
    /// The configuration. Its limits that depend on each other are checked when a runtime starts.
    ///
    /// # Errors
    /// A file that cannot be read, or a value that the tunable does not take. The error names the
    /// file, the variable or `--set`.
    pub fn gather(&self) -> Result<Config, String> {
        self.gather_with(std::env::vars_os())
    }

    fn gather_with(
        &self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, String> {
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::default()), read)?;
        for (variable, value) in environment {
            let Some(variable) = variable.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            // `set` takes the name of a tunable with this prefix.
            let set = value.to_str().ok_or_else(|| format!("{} is not UTF-8", value.display()));
            let set = set
                .and_then(|value| config.set(variable, value).map_err(|error| error.to_string()));
            config = set.map_err(|error| format!("{variable}: {error}"))?;
        }
        for (name, value) in &self.settings {
            config = config.set(name, value).map_err(|error| format!("--set: {error}"))?;
        }
        Ok(config)
    }
}

/// Prefix of the environment variables that are tunables.
const PREFIX: &str = "EPOLL_GROUP_";

fn read(path: &Path) -> Result<Config, String> {
    let named = |error: &dyn fmt::Display| format!("--config {}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
    toml::from_str(&text).map_err(|error| named(&error))
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
pub fn setting(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("{text} is not NAME=VALUE, such as max_threads=256"));
    };
    Ok((name.to_owned(), value.to_owned()))
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

    fn gather(
        config: Option<&str>,
        variables: &[(&str, &str)],
        sets: &[&str],
    ) -> Result<Config, String> {
        let settings = sets.iter().map(|text| setting(text).expect("an =")).collect();
        let tunables = Tunables { config: config.map(PathBuf::from), settings };
        tunables.gather_with(variables.iter().map(|&(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn later_sources_override_earlier_ones() {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/echo/echo.toml");
        let value = |variables: &[_], sets: &[&str]| {
            let config = gather(Some(sample), variables, sets).expect("valid");
            config.get("max_threads").expect("a tunable")
        };
        let variable = [("EPOLL_GROUP_MAX_THREADS", "100"), ("PATH", "/bin")];
        assert_eq!(value(&[], &[]), "256");
        assert_eq!(value(&variable, &[]), "100");
        assert_eq!(value(&variable, &["max_threads=200"]), "200");
        // Commented lines of the sample show the defaults.
        let text = std::fs::read_to_string(sample).expect("a file");
        for line in text.lines().filter_map(|line| line.strip_prefix("#")) {
            let Some((name, rest)) = line.split_once(" = ") else { continue };
            let value = rest.split('#').next().expect("a first part").trim().trim_matches('"');
            let config = Config::default().set(name, value).expect(line);
            assert_eq!(config, Config::default(), "{line}");
        }
    }

    #[test]
    fn an_error_names_the_source() {
        let error = |variables: &[_], sets: &[&str]| gather(None, variables, sets).unwrap_err();
        assert_eq!(
            error(&[("EPOLL_GROUP_MAX_THREADS", "1")], &[]),
            "EPOLL_GROUP_MAX_THREADS: max_threads 1 is outside 2..=32768"
        );
        assert_eq!(
            error(&[], &["max_thread=9"]),
            "--set: unknown tunable \"max_thread\", did you mean max_threads?"
        );
        let missing = gather(Some("/no/such"), &[], &[]).unwrap_err();
        assert!(missing.starts_with("--config /no/such: No such file"), "{missing}");
        // A file with other content than TOML.
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/args.rs");
        let broken = gather(Some(source), &[], &[]).unwrap_err();
        assert!(broken.contains("src/args.rs: TOML parse error at line 1"), "{broken}");
    }
}
