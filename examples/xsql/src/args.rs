//! The command line.

use std::path::PathBuf;

use lexopt::{Arg, Parser};

use crate::shell::Settings;
use crate::usage::{UsageError, number, text};

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Args),
    Help,
}

/// Where statements go, and where they come from.
#[derive(Debug)]
pub(crate) struct Args {
    /// A server in this process if it is none.
    pub(crate) connect: Option<String>,
    pub(crate) user: String,
    pub(crate) password: String,
    /// From standard input if there are none.
    pub(crate) statements: Vec<String>,
    pub(crate) history: Option<PathBuf>,
    pub(crate) settings: Settings,
}

pub(crate) const HELP: &str = include_str!("args/help.txt");

impl Command {
    /// Reads the arguments of this process.
    pub(crate) fn from_env() -> Result<Self, UsageError> {
        let mut parser = Parser::from_env();
        let mut args = Args {
            connect: None,
            user: "root".to_owned(),
            password: String::new(),
            statements: Vec::new(),
            history: None,
            settings: Settings::default(),
        };
        let mut user = None;
        while let Some(option) = parser.next()? {
            match option {
                Arg::Long("connect") => args.connect = Some(text("--connect", parser.value()?)?),
                Arg::Long("user") => user = Some(text("--user", parser.value()?)?),
                Arg::Long("password") => args.password = text("--password", parser.value()?)?,
                Arg::Short('e') | Arg::Long("execute") => {
                    args.statements.push(text("-e", parser.value()?)?);
                }
                Arg::Long("history") => args.history = Some(parser.value()?.into()),
                Arg::Long("cut") => {
                    args.settings.cut = Some(number("--cut", parser.value()?, 1..=1_000_000)?);
                }
                Arg::Long("chunks") => args.settings.chunks = true,
                Arg::Short('h') | Arg::Long("help") => return Ok(Self::Help),
                other => return Err(other.unexpected().into()),
            }
        }
        match user {
            Some(user) => args.user = user,
            None if args.connect.is_some() => {
                return Err(UsageError("--connect needs --user".to_owned()));
            }
            None => {}
        }
        Ok(Self::Run(args))
    }
}
