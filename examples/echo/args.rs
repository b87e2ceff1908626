//! The command line.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::time::Duration;

use lexopt::{Arg, Parser};

use super::load::Target;
use super::usage::{UsageError, number, text};

mod admin;
mod load;
mod serve;
mod top;

pub(crate) use admin::Ask;
pub(crate) use load::Load;
pub(crate) use serve::Serve;
pub(crate) use top::Top;

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Demo,
    Serve(Serve),
    Load(Load),
    Top(Top),
    Admin(Ask),
    Help,
}

pub(crate) const HELP: &str = include_str!("args/help.txt");

impl Command {
    /// Reads the arguments of this process.
    pub(crate) fn from_env() -> Result<Self, UsageError> {
        let mut parser = Parser::from_env();
        match parser.next()? {
            None => Ok(Self::Demo),
            Some(Arg::Short('h') | Arg::Long("help")) => Ok(Self::Help),
            Some(Arg::Value(command)) if command == "demo" => Ok(Self::Demo),
            Some(Arg::Value(command)) if command == "serve" => serve::parse(&mut parser),
            Some(Arg::Value(command)) if command == "load" => load::parse(&mut parser),
            Some(Arg::Value(command)) if command == "admin" => admin::parse(&mut parser),
            Some(Arg::Value(command)) if command == "top" => top::parse(&mut parser),
            Some(Arg::Value(command)) => {
                let command = command.display();
                Err(UsageError(format!(
                    "command {command} is none of demo, serve, load, top and admin"
                )))
            }
            Some(other) => Err(other.unexpected().into()),
        }
    }
}

fn address(option: &str, value: OsString) -> Result<Target, UsageError> {
    let value = text(option, value)?;
    value.parse().map_err(|error| {
        UsageError(format!("{option} {value} is neither HOST:PORT nor unix:PATH: {error}"))
    })
}

fn seconds(
    option: &str,
    value: OsString,
    range: RangeInclusive<f64>,
) -> Result<Duration, UsageError> {
    number(option, value, range).map(Duration::from_secs_f64)
}

fn missing(command: &str, option: &str) -> UsageError {
    UsageError(format!("{command} needs {option}"))
}
