//! The command line.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use lexopt::{Arg, Parser};

use crate::usage::UsageError;

/// What the user asked for.
#[derive(Debug)]
pub enum Command {
    /// Data nodes, a proxy and its load in one process.
    Demo,
    /// A proxy until it is told to end.
    Serve(PathBuf),
    /// Whether a file makes sense.
    Check(PathBuf),
    Help,
}

pub const HELP: &str = include_str!("args/help.txt");

impl Command {
    /// Reads the arguments of this process.
    pub fn from_env() -> Result<Self, UsageError> {
        let mut parser = Parser::from_env();
        let command = match parser.next()? {
            None => return Ok(Self::Demo),
            Some(Arg::Short('h') | Arg::Long("help")) => return Ok(Self::Help),
            Some(Arg::Value(command)) if command == "serve" => Self::Serve,
            Some(Arg::Value(command)) if command == "check" => Self::Check,
            Some(Arg::Value(command)) => {
                return Err(UsageError(format!("there is no command {}", command.display())));
            }
            Some(other) => return Err(other.unexpected().into()),
        };
        let file = parser.value().map_err(|_| UsageError("it needs a FILE".to_owned()))?;
        match parser.next()? {
            None => Ok(command(file.into())),
            Some(other) => Err(other.unexpected().into()),
        }
    }
}
