//! The command line.

mod load;

use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser};

use crate::server_settings::Setting;
use crate::usage::{UsageError, number, text};

pub(crate) use load::Load;

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Command {
    /// A server and its load, for so long each step.
    Demo(Duration),
    Serve(Serve),
    Load(Load),
    Help,
}

/// A server until it is told to end.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) listen: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) database: Option<PathBuf>,
    pub(crate) schema: String,
    pub(crate) rows: u32,
    pub(crate) config: Option<PathBuf>,
    pub(crate) settings: Vec<Setting>,
}

pub(crate) const HELP: &str = include_str!("args/help.txt");

const STEP: Duration = Duration::from_secs(2);
const QUICK_STEP: Duration = Duration::from_millis(300);

impl Command {
    /// Reads the arguments of this process.
    pub(crate) fn from_env() -> Result<Self, UsageError> {
        let mut parser = Parser::from_env();
        match parser.next()? {
            None => Ok(Self::Demo(STEP)),
            Some(Arg::Long("quick")) => Ok(Self::Demo(QUICK_STEP)),
            Some(Arg::Short('h') | Arg::Long("help")) => Ok(Self::Help),
            Some(Arg::Value(command)) if command == "serve" => serve(&mut parser),
            Some(Arg::Value(command)) if command == "load" => load::parse(&mut parser),
            Some(Arg::Value(command)) => {
                Err(UsageError(format!("there is no command {}", command.display())))
            }
            Some(other) => Err(other.unexpected().into()),
        }
    }
}

fn serve(parser: &mut Parser) -> Result<Command, UsageError> {
    let (mut listen, mut user, mut password) = (None, None, None);
    let (mut database, mut config, mut settings) = (None, None, Vec::new());
    let (mut schema, mut rows) = ("sbtest".to_owned(), 100_000);
    while let Some(option) = parser.next()? {
        match option {
            Arg::Long("listen") => listen = Some(text("--listen", parser.value()?)?),
            Arg::Long("user") => user = Some(text("--user", parser.value()?)?),
            Arg::Long("password") => password = Some(text("--password", parser.value()?)?),
            Arg::Long("database") => database = Some(parser.value()?.into()),
            Arg::Long("schema") => schema = text("--schema", parser.value()?)?,
            Arg::Long("rows") => rows = number("--rows", parser.value()?, 0..=10_000_000)?,
            Arg::Long("config") => config = Some(parser.value()?.into()),
            Arg::Long("set") => {
                let pair = text("--set", parser.value()?)?;
                let (name, value) = pair.split_once('=').ok_or_else(|| {
                    UsageError(format!("--set {pair} is not of the form NAME=VALUE"))
                })?;
                let (name, value) = (name.to_owned(), value.to_owned());
                settings.push(Setting { option: "--set", name, value });
            }
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let needed = |value: Option<String>, option| {
        value.ok_or_else(|| UsageError(format!("serve needs {option}")))
    };
    Ok(Command::Serve(Serve {
        listen: needed(listen, "--listen")?,
        user: needed(user, "--user")?,
        password: needed(password, "--password")?,
        database,
        schema,
        rows,
        config,
        settings,
    }))
}
